"""The tracer: a native library that is loaded into the program, and what starts the program under it."""
