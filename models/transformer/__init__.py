"""A step of training a transformer, made from the model's shape: what GPUs compute, send and wait for, as a workload.

``shape``: the model and how it is spread over GPUs. ``kernels``: what a layer asks of a GPU. ``times``: how long that
takes. ``schedule``: the order of a pipeline stage's passes. ``rows``: operations of a rank of a stage. ``step``: the
workload.

Sources: Narayanan et al., SC 2021 (arXiv:2104.04473): tensor, pipeline and data parallelism, 1F1B and interleaved
schedules, parameters (eq. 2) and operations (eq. 3). Korthikanti et al., "Reducing activation recomputation in large
transformer models" (2022): sequence parallelism, selective recomputation, memory of activations (eq. 1 to 6).
Rajbhandari et al., "ZeRO" (SC 2020): sharded states.
"""
