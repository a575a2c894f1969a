"""The machine code of NVIDIA's GPUs (SASS): its texts taken apart, a table of its instructions, and the records that
the interpreter executes."""
