"""Numba as it is used here: ``njit``, and how kernels are compiled that hand many arrays on to each other."""

from __future__ import annotations

import sys
from typing import Any, Final

from llvmlite import ir  # type: ignore[import-untyped]
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

__all__ = ["allocation_free", "apart", "inlined", "inner", "inner_inlined", "merged", "njit", "read_soon"]


def _load_without_blas() -> None:
    """Load Numba's array functions without scipy's BLAS behind them.

    They look for it when they are loaded, which takes a quarter of a second and serves only covariances in compiled
    code; matrix products look for it again themselves.
    """
    modules: dict[str, Any] = sys.modules
    name = "scipy.linalg.cython_blas"
    if name in modules:
        return
    modules[name] = None  # an import of it fails at once
    try:
        import numba.np.arraymath  # noqa: F401
    finally:
        del modules[name]


_load_without_blas()

# Numba counts references to every array that a function takes apart or hands on, which for small functions on twenty
# arrays takes longer than what they do (measured: 80 ns of 105 a call). A function that allocates nothing needs no
# counts. The option is Numba's own, undocumented; without it the results are the same, and slower. (What does not say
# ``forceinline`` inherits it of the function for which it is compiled first.)
allocation_free: Final = njit(cache=True, nogil=True, _nrt=False, forceinline=False)

# The same, put into its callers whatever its size: a call hands on seven words and more of each array. For what runs
# for each access, and is called in few places.
inlined: Final = njit(cache=True, nogil=True, _nrt=False, forceinline=True)

# As these two, for functions that only kernels call: without what makes them callable by Python, which takes much of
# the time of compiling small functions of many arrays.
inner: Final = njit(
    cache=True, nogil=True, _nrt=False, forceinline=False, no_cpython_wrapper=True, no_cfunc_wrapper=True
)
inner_inlined: Final = njit(
    cache=True, nogil=True, _nrt=False, forceinline=True, no_cpython_wrapper=True, no_cfunc_wrapper=True
)

# Put into its callers before these are compiled: for functions of one or two callers. What is compiled by itself is
# compiled once more with each caller, and with the callers of these.
merged: Final = njit(inline="always")


@intrinsic
def apart(context):  # type: ignore[no-untyped-def]
    """Called anywhere in a function: LLVM must not put that function into its callers. For large ones that are seldom
    run, which would else be copied, and compiled, many times."""

    def mark(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        builder.function.attributes.add("noinline")
        return context.get_dummy_value()

    return types.void(), mark


@intrinsic
def read_soon(context, array, index):  # type: ignore[no-untyped-def]
    """Have the host bring ``array[index]`` (of several dimensions: the first element of that row) into its caches, and
    go on at once. Nothing is read where that could fail, so any index will do."""

    def fetch(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        view = context.make_array(signature.args[0])(context, builder, arguments[0])
        stride = cgutils.unpack_tuple(builder, view.strides)[0]
        place = context.cast(builder, arguments[1], signature.args[1], types.intp)
        start = builder.ptrtoint(view.data, stride.type)
        address = builder.inttoptr(builder.add(start, builder.mul(place, stride)), ir.IntType(8).as_pointer())
        kinds = [ir.IntType(32)] * 3
        name = ir.FunctionType(ir.VoidType(), [address.type, *kinds])
        function = cgutils.get_or_insert_function(builder.module, name, "llvm.prefetch.p0i8")
        builder.call(function, [address, *(kind(value) for kind, value in zip(kinds, (0, 3, 1), strict=True))])
        return context.get_dummy_value()

    return types.void(array, index), fetch
