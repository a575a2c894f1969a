"""How kernels are compiled that hand many arrays on from function to function."""

from __future__ import annotations

from typing import Final

from numba import njit

# Numba counts references to every array that a function takes apart or hands on, which for small functions on twenty
# arrays takes longer than what they do (measured: 80 ns of 105 a call). A function that allocates nothing needs no
# counts. The option is Numba's own, undocumented; without it the results are the same, and slower.
allocation_free: Final = njit(cache=True, nogil=True, _nrt=False)
