"""Numba as it is used here: ``njit``, and how kernels are compiled that hand many arrays on to each other."""

from __future__ import annotations

import sys
from typing import Any, Final

from numba import njit

__all__ = ["allocation_free", "inlined", "njit"]


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
# counts. The option is Numba's own, undocumented; without it the results are the same, and slower.
allocation_free: Final = njit(cache=True, nogil=True, _nrt=False)

# The same, put into its callers whatever its size: a call hands on seven words and more of each array. For what runs
# for each access, and is called in few places.
inlined: Final = njit(cache=True, nogil=True, _nrt=False, forceinline=True)
