"""The micro-benchmark of ``manyscale calibrate --node`` and what is made of its figures."""
