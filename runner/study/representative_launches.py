"""Which launches of a program are recorded where it is traced by TBPoint between launches (Huang et al., IPDPS 2014,
section III): several of each cluster, drawn at random, from which the interval of the whole follows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from manyscale.sampling.tbpoint.launches import LaunchCounts
from manyscale.sampling.tbpoint.launches import choose as choose_launches
from manyscale.sampling.tbpoint.rules import LaunchSampling

RULES: Final = LaunchSampling(representatives="auto")
_COLUMNS: Final = ("thread_instructions", "warp_instructions", "memory_requests", "block_size_cov")


def choose(heads: Mapping[int, Mapping[str, Any]]) -> tuple[frozenset[int], dict[str, Any]]:
    """(numbers of the launches, rules) from what each launch executes, by the columns of the table of launches."""
    ids = sorted(heads)
    names = [heads[each]["kernel_name"] for each in ids]
    columns = {name: np.array([heads[each][name] for each in ids], np.float64) for name in _COLUMNS}
    sample = choose_launches(LaunchCounts(np.unique(names, return_inverse=True)[1], **columns), RULES)
    return frozenset(ids[row] for row in sample.chosen.tolist()), RULES.model_dump(mode="json")
