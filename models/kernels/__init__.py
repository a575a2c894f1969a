"""Numba as it is used here: decorators of kernels, and what kernels call; ``styles.py`` says what each is for. Numba is
loaded when the first kernel is called (``later.py``)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from manyscale.models.kernels.later import later

if TYPE_CHECKING:
    import numpy as np

__all__ = [
    "allocation_free", "apart", "by_reference", "count_ones", "entry", "inlined", "inner", "inner_inlined", "merged",
    "njit", "read_only", "read_soon", "row_of", "seldom", "separate",
]  # fmt: skip


def _style(name: str) -> Any:
    return getattr(import_module("manyscale.models.kernels.styles"), name)


def _decorator(name: str) -> Any:
    def decorate(function: Callable[..., Any] | None = None, **options: Any) -> Any:
        if function is None:
            return partial(decorate, **options)
        return later(lambda: _style(name)(function, **options))

    return decorate


njit: Final = _decorator("njit")
allocation_free: Final = _decorator("allocation_free")
entry: Final = _decorator("entry")
inlined: Final = _decorator("inlined")
inner: Final = _decorator("inner")
inner_inlined: Final = _decorator("inner_inlined")
separate: Final = _decorator("separate")
seldom: Final = _decorator("seldom")
merged: Final = _decorator("merged")

apart: Final = later(lambda: _style("apart"))
by_reference: Final = later(lambda: _style("by_reference"))
count_ones: Final = later(lambda: _style("count_ones"))
row_of: Final = later(lambda: _style("row_of"))
read_soon: Final = later(lambda: _style("read_soon"))


def read_only(values: np.ndarray, dtype: Any) -> np.ndarray:
    """A view that cannot be written, as Ray and Arrow hand arrays over: kernels are compiled once for all."""
    import numpy as np  # the command line asks this package whether kernels are compiled, and loads no more for help

    view: np.ndarray = np.ascontiguousarray(values, dtype).view()
    view.flags.writeable = False
    return view
