"""What kernels do, by their names and the shapes of the operators that launched them.

Classes rest on the names of kernels of cuBLAS, cuDNN, CUTLASS, PyTorch, fbgemm, FlashAttention, Triton and rocBLAS. Of
products of matrices the operations follow from the shapes of the operator's inputs, 2 m n k; the bytes are those of its
operands and its result, once each. Of elementwise operators, reductions and normalisations that launch one kernel the
bytes are those of their inputs.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any, Final

from manyscale.models.workload.gpu_step_tables import KernelClass
from manyscale.runner.readers.kineto.collectives import element_bytes, listed
from manyscale.runner.readers.kineto.events import Args

_C: Final = KernelClass
_WORDS: Final = (  # the first that a name has decides
    (_C.attention, "flash|fmha|attention|mha_|sdpa"),
    (_C.optimiser, "multi_tensor|adam|adagrad|sgd|lamb|fused_optim|foreach|optimizer"),
    (
        _C.matrix,
        "splitKreduce|gemm|gemv|cutlass|cublas|conv(?!ert)|winograd|wgrad|dgrad|fprop|xmma|implicit|Cijk_|dot_kernel"
        "|_tn_|_nt_|_nn_|nvjet",
    ),
    (_C.normalisation, "layer_?norm|batch_?norm|bn_|group_?norm|rms_?norm|softmax|GammaBeta"),
    (
        _C.embedding,
        "embedding|indexing_|index_elementwise|index_?select|gather|scatter|linearize_index|bounds_check",
    ),
    (_C.movement, "CatArray|copy|transpose|permute|sort|scan|compact|unique|im2col|col2im|\\broll|nchwTo|nhwcTo"),
    (_C.reduction, "reduce|norm_|argmax|topk|sum_kernel|mean_"),
    (_C.elementwise, "elementwise|pointwise|triton_poi|distribution|dropout|relu|gelu|silu|threshold|add_|mul_|pool"),
)
_CLASSES: Final = tuple((re.compile(words, re.I), found) for found, words in _WORDS)
_PRECISIONS: Final = (  # the first in a name decides
    (re.compile(r"bf16|bfloat16", re.I), "bf16"),
    (re.compile(r"tf32|s1688"), "tf32"),
    (re.compile(r"fp8|e4m3|e5m2", re.I), "fp8"),
    (re.compile(r"fp?16|half|hgemm|h1688|h884|hmma", re.I), "fp16"),
    (re.compile(r"dgemm|double|fp64|f64", re.I), "fp64"),
    (re.compile(r"int8|imma|_i8", re.I), "int8"),
    (re.compile(r"sgemm|float|fp?32|scudnn", re.I), "fp32"),
)
_MOVES_INPUTS: Final = (_C.elementwise, _C.reduction, _C.normalisation)
_PRODUCTS: Final = {"aten::mm": (0, 1), "aten::addmm": (1, 2), "aten::bmm": (0, 1), "aten::baddbmm": (1, 2)}
_UNKNOWN: Final = (float("nan"), float("nan"))


def class_of(name: str) -> KernelClass:
    plain = name.removeprefix("void ").replace("fbgemm_gpu::", "")
    # template arguments name other kernels: what stands before them decides, if it can
    head = plain.split("<", 1)[0]
    for text in (head, plain):
        for pattern, found in _CLASSES:
            if pattern.search(text):
                return found
    return _C.other


def precision_of(name: str) -> str:
    found = [(match.start(), precision) for pattern, precision in _PRECISIONS if (match := pattern.search(name))]
    return min(found)[1] if found else ""


def work_of(operator: str, args: Args | None, kind: KernelClass) -> tuple[float, float]:
    """(operations, bytes) of a kernel of a class that is all that an operator launched; NaN where its shapes do not
    tell."""
    if args is None or not len(args.dims):
        return _UNKNOWN
    shapes, kinds = listed(args.dims), [str(each) for each in listed(args.types)]
    sizes = [element_bytes(each) for each in kinds]
    if operator in _PRODUCTS:
        return _product(shapes, sizes, *_PRODUCTS[operator])
    tensors = [(shape, size) for shape, size in zip(shapes, sizes, strict=False) if _is_shape(shape) and size > 0]
    if not tensors or kind not in _MOVES_INPUTS:
        return _UNKNOWN
    return float("nan"), float(sum(_elements(shape) * size for shape, size in tensors))


def _product(shapes: Sequence[Any], sizes: Sequence[int], left: int, right: int) -> tuple[float, float]:
    if len(shapes) <= right or len(sizes) <= right:
        return _UNKNOWN
    a, b = shapes[left], shapes[right]
    if not _is_shape(a) or not _is_shape(b) or len(a) != len(b) or len(a) not in (2, 3) or sizes[left] <= 0:
        return _UNKNOWN
    batch = a[0] if len(a) == 3 else 1
    rows, inner, columns = a[-2], a[-1], b[-1]
    moved = batch * (rows * inner + inner * columns + rows * columns) * sizes[left]
    return float(2 * batch * rows * inner * columns), float(moved)


def _is_shape(shape: Any) -> bool:
    return isinstance(shape, list) and len(shape) > 0 and all(type(each) is int for each in shape)


def _elements(shape: Sequence[int]) -> int:
    return math.prod(shape)
