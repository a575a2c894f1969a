"""Words that several threads or processes share: read and written one at a time, in one order for all of them; and a
barrier made of them. (Numba has no atomics for the CPU; LLVM's are a few lines.)"""

from __future__ import annotations

from typing import Any, Final

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from manyscale.models.kernels import allocation_free

ARRIVED: Final = 0  # columns of the words of a barrier: how often it was reached, by all
ABORT: Final = 1  # not 0: nobody waits any more
WORDS: Final = 2
_SPINS: Final = 2000  # before the processor is left to others
_ORDER: Final = "seq_cst"
_ALIGNED: Final = 8


def _pointer(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    view = context.make_array(signature.args[0])(context, builder, arguments[0])
    place = context.cast(builder, arguments[1], signature.args[1], types.intp)
    return builder.gep(view.data, [place])


@intrinsic
def load_word(context, words, index):  # type: ignore[no-untyped-def]
    """``words[index]`` (int64[]) as the last of all wrote it."""

    def load(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        return builder.load_atomic(_pointer(context, builder, signature, arguments), _ORDER, _ALIGNED)

    return types.int64(words, index), load


@intrinsic
def store_word(context, words, index, value):  # type: ignore[no-untyped-def]
    """``words[index] = value`` for all who read it from here on."""

    def store(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        word = context.cast(builder, arguments[2], signature.args[2], types.int64)
        builder.store_atomic(word, _pointer(context, builder, signature, arguments), _ORDER, _ALIGNED)
        return context.get_dummy_value()

    return types.void(words, index, value), store


@intrinsic
def add_word(context, words, index, value):  # type: ignore[no-untyped-def]
    """Add to ``words[index]``: what it was before."""

    def add(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        word = context.cast(builder, arguments[2], signature.args[2], types.int64)
        return builder.atomic_rmw("add", _pointer(context, builder, signature, arguments), word, _ORDER)

    return types.int64(words, index, value), add


@intrinsic
def leave_processor(context):  # type: ignore[no-untyped-def]
    """Let others run (POSIX sched_yield)."""

    def leave(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        kind = ir.FunctionType(ir.IntType(32), [])
        builder.call(cgutils.get_or_insert_function(builder.module, kind, "sched_yield"), [])
        return context.get_dummy_value()

    return types.void(), leave


@allocation_free
def wait_for_all(words, count, number):  # type: ignore[no-untyped-def]
    """Wait until ``count`` have come to the barrier for the ``number``-th time (from 0). False: it was aborted."""
    add_word(words, ARRIVED, 1)
    spins = 0
    while load_word(words, ARRIVED) < (number + 1) * count:
        if load_word(words, ABORT) != 0:
            return False
        spins += 1
        if spins > _SPINS:
            leave_processor()
    return load_word(words, ABORT) == 0
