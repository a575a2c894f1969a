"""A kind of work unit for tests: intervals take a known number of cycles per instruction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from manyscale.runner.predict.stored_arrays import noted, stored
from manyscale.runner.predict.units import Arrays

KIND = "sampled_units:simulate"
PARTS = ("base", "dependency", "branch", "queue", "L1D", "L2", "L3", "memory", "remote")
FREQUENCY_HZ = 3.694e9  # of epyc-zen4


def cpi_at(execution: int) -> float:
    """Of what begins with a block execution: slower every 1,000 of them."""
    return 1.0 + execution // 1000


def simulate(parameters: Mapping[str, Any], inputs: Mapping[str, Any]) -> Arrays:
    """As ``interval_units.simulate_intervals``; half of the cycles are ``memory``'s, of four lines asked of L1D one is
    not there."""
    size = inputs["stream"].program.column("blocks", "num_instructions")
    detail = inputs["stream"].open()
    cycles = []
    for _, _, first, end in parameters["stretches"]:
        cycles.append(cpi_at(first) * size[detail.read_executions(first, end).block_ids].sum())
    stack = np.zeros((len(cycles), len(PARTS)))
    stack[:, 0] = stack[:, PARTS.index("memory")] = np.array(cycles) / 2
    counts = np.zeros((len(cycles), len(PARTS) - 2, 4), np.int64)
    counts[:, 0, 0], counts[:, 0, 1] = 3, 1
    arrays = {
        "cycles": np.array(cycles), "stack": stack, "counts": counts, "part": np.array(PARTS),
        "frequency_hz": np.array([FREQUENCY_HZ]),
    }  # fmt: skip
    return noted(stored(arrays), ())
