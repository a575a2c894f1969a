"""Polynomials through whole numbers, exactly: trip counts, strides and sizes as functions of the input.

Unlike a fit to measurements, a polynomial is either right at every input or refused.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from typing import Final

MAX_DEGREE: Final = 3

Polynomial = tuple[Fraction, ...]  # coefficients, constant first; () is 0


@lru_cache(maxsize=4096)
def polynomial_through(points: tuple[tuple[int, int], ...]) -> Polynomial | None:
    """The polynomial of the lowest degree through all points (x, value), x ascending.

    None unless its degree is at most MAX_DEGREE and at least one point more than it needs confirms it. Newton's divided
    differences, in fractions. O(points MAX_DEGREE).
    """
    xs = [x for x, _ in points]
    differences = [Fraction(value) for _, value in points]
    leading: list[Fraction] = []
    while any(differences):
        if len(leading) > MAX_DEGREE:
            return None
        leading.append(differences[0])
        span = len(leading)
        differences = [(b - a) / (xs[i + span] - xs[i]) for i, (a, b) in enumerate(pairwise(differences))]
    if not differences:  # no point is left to confirm it
        return None
    result: list[Fraction] = []
    for x, difference in zip(reversed(xs[: len(leading)]), reversed(leading), strict=True):
        shifted = [Fraction(0), *result]  # Horner's scheme: result times (x - xs[k]) plus the next difference
        for i, coefficient in enumerate(result):
            shifted[i] -= coefficient * x
        shifted[0] += difference
        result = shifted
    return tuple(result)


def value_at(polynomial: Polynomial, x: int) -> Fraction:
    """O(degree)."""
    value = Fraction(0)
    for coefficient in reversed(polynomial):
        value = value * x + coefficient
    return value
