"""Prediction of what happens inside nodes: task instances on simulated cores, sampled or not."""
