"""TaskPoint's evaluation: kernels of OpenMP tasks at two sizes, detailed simulation against sampled simulation."""
