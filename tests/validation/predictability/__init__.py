"""Execution-time predictability: errors of its predictors on kernels whose task instances differ."""
