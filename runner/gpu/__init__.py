"""Kernel launches of GPUs: what a run predicts of them, as work units, tables and statistics."""
