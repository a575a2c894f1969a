"""CUDA programs traced without a GPU: their machine code (SASS), as compiled for a chosen architecture, is interpreted
by C code in the program's own process, launch by launch, and recorded.

``sass`` reads what ``cuobjdump -sass`` prints and makes records of it, ``native`` has the interpreter, ``runtime``,
``driver`` and ``nccl`` the libraries that stand in for NVIDIA's.
"""
