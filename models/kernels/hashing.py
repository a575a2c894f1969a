"""Numbers as if drawn at random, that depend on nothing but what they are made of."""

from __future__ import annotations

import numpy as np

from manyscale.models.kernels import inlined


@inlined
def mix(first, second):  # type: ignore[no-untyped-def]
    """Hash of two uint64: the finaliser of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014) over their sum."""
    mixed = first + second * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))
