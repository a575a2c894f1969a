"""The build of a wheel that carries compiled kernels."""
