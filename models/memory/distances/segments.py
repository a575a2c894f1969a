"""Exact reuse profiles of a stream that is processed in segments, in any order and place, and merged afterwards.

As in PARDA (Niu, Dinan, Lu, Sadayappan: A Fast Parallel Reuse Distance Analysis Algorithm, IPDPS 2012), a segment by
itself tells the distance of every access but the first uses of its units. There, those go back from segment to segment
until the earlier use is found. Here, segments are merged in order over one LRU stack: between the last use of a unit in
an earlier segment and its first use in this one lie what the earlier segments used after it and what this one used
first so far, so the first uses, fed in order, find their distances; feeding the segment's units by last use then leaves
the stack as the segment leaves it.

The cost of merging follows the segments' distinct units and distinct distances, not their accesses. The result is that
of one pass, bit for bit, wherever the stream is cut, as long as distances are counted exactly or with one bound on
their error.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np

from manyscale.models.memory.access_stream import Accesses
from manyscale.models.memory.distances.histogram import DistanceHistogram, count_reuses
from manyscale.models.memory.distances.stack_distance import StackDistances
from manyscale.models.memory.reuse_profile import COLD, ReuseProfile, merged

VERSION: Final = 1  # raised when results change


def segment_result(
    accesses: Accesses, granularity_bytes: int, *, max_relative_error: float = 0.0
) -> dict[str, np.ndarray]:
    """What a segment tells by itself.

    ``site`` int32[], ``distance`` int64[], ``count`` float64[]: the profile of its accesses but of first uses.
    ``first_unit`` int64[distinct], ``first_site`` int32[distinct]: first uses in order. ``last_unit`` int64[distinct]:
    its units by last use. O(accesses log(distinct)). Raises ValueError as ``DistanceHistogram`` does.
    """
    stack, histogram = StackDistances(), DistanceHistogram(max_relative_error)
    first = count_reuses(accesses, stack, histogram)
    profile = histogram.profile(granularity_bytes)
    return {
        "site": profile.site,
        "distance": profile.distance,
        "count": profile.count,
        "first_unit": first.unit,
        "first_site": first.site,
        "last_unit": stack.stack(),
    }


def merge(
    results: Iterable[Mapping[str, np.ndarray]],
    granularity_bytes: int,
    *,
    steady: bool = False,
    max_relative_error: float = 0.0,
) -> ReuseProfile:
    """The profile of the whole stream from its segments' results in order, each looked at once.

    ``steady`` as in ``distance_histogram.reuse_profile``: as if the stream had just passed before.
    O(sum of the segments' distinct units log(distinct) + their profiles' rows).
    """
    stack, histogram = StackDistances(), DistanceHistogram(max_relative_error)
    profiles = []
    first_uses = []
    for result in results:
        profiles.append(ReuseProfile(granularity_bytes, result["site"], result["distance"], result["count"]))
        first = Accesses(result["first_unit"], result["first_site"])
        first_uses.append(count_reuses(first, stack, histogram))
        stack.feed(result["last_unit"])
    for first in first_uses:
        histogram.add(first.site, stack.feed(first.unit) if steady else np.full(len(first.site), COLD))
    return merged([*profiles, histogram.profile(granularity_bytes)])
