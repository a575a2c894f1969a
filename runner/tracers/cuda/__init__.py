"""Traces of CUDA programs without a GPU: a runtime that stands in for NVIDIA's, and an interpreter of machine code."""
