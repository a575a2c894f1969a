"""CUDA programs traced without a GPU: their machine code (SASS), as compiled for a chosen architecture, is interpreted
by C code in the program's own process, launch by launch, and recorded.

``listing`` reads what ``cuobjdump -sass`` prints, ``decode`` makes records of it, ``native/`` has the interpreter.
"""
