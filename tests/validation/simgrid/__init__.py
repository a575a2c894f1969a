"""Comparison of the replay with SimGrid 3.32: random action traces, and small MPI programs that it traces and times."""
