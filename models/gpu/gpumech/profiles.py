"""What GPUMech learned of a launch's accesses, and how that is kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

import numpy as np

from manyscale.models.gpu.gpumech.collector import ANSWER, FOUND
from manyscale.models.gpu.gpumech.outline import Outline, writeable


@dataclass(frozen=True)
class Profile:
    """What ``model.profile_of`` learned of a launch, beside its ``outline``.

    ``reads`` int64[]: what of the GPU it depends on. ``shape`` int64[3]: SMs that get a block, the most blocks on each
    at once, bytes of L1. ``answer`` ANSWER[accesses] (gpu/gpumech/collector.py); ``l1_counts`` and ``l2_counts``
    int64[6] (gpu/gpumech/functional_caches.py). For the printed form, if the outline has instructions (else empty):
    ``met`` int64[static, NUM_EVENTS] (gpu/gpumech/collector.py); ``chosen`` int64[3], the representative warps, in the
    order of REPRESENTATIVES. ``busiest`` int64[3]: requests of the busiest slice of L2, of all slices, and how
    many slices there are. ``found`` FOUND[lines], of the outline's lines. ``waves`` uint8[waves]: at which blocks may
    be skipped (gpu/gpumech/waves.py; empty: nowhere). ``part`` int64[3], where some SMs are followed
    (gpu/gpumech/part.py; else empty): channels of DRAM that they have, requests of their blocks, and of all; then the
    counts are those of all SMs, estimated.
    """

    outline: Outline
    reads: np.ndarray
    shape: np.ndarray
    answer: np.ndarray
    found: np.ndarray
    met: np.ndarray
    l1_counts: np.ndarray
    l2_counts: np.ndarray
    chosen: np.ndarray
    busiest: np.ndarray
    waves: np.ndarray
    part: np.ndarray

    @property
    def launch_id(self) -> int:
        return self.outline.launch_id

    @property
    def num_instructions(self) -> int:
        """Warp instructions."""
        return int(self.outline.launch[1])


def to_arrays(found: Profile) -> dict[str, np.ndarray]:
    """Arrays of plain types that hold a profile, but for its outline."""
    names = [each.name for each in fields(found) if each.name != "outline"]
    return {name: getattr(found, name) for name in names} | {
        "answer": found.answer.view(np.uint8),
        "found": found.found.view(np.uint8),
    }


def from_arrays(arrays: Mapping[str, np.ndarray], outlined: Outline) -> Profile:
    """What ``to_arrays`` was given."""
    names = [each.name for each in fields(Profile) if each.name != "outline"]
    found = {name: writeable(arrays[name]) for name in names}
    return Profile(outlined, **found | {"answer": found["answer"].view(ANSWER), "found": found["found"].view(FOUND)})
