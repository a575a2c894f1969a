"""How far ahead ``calibrate --node`` finds a prefetcher, on the dataflow model as the machine."""

from __future__ import annotations

import numpy as np
import pytest
from test_dataflow import LINE, Op, cycles, load, node, workload

from manyscale.models.workload.detail_tables import InstructionClass as Kind
from manyscale.runner.run.calibration.lines_ahead import lines_ahead
from manyscale.runner.run.calibration.measure import BESIDE

LATENCY, WINDOW, WIDTH, PAGES = 600, 320, 6, 40


def of_a_line(others: int, distance: int, pool: int) -> float:
    """Cycles of microbench.c's ``load_beside``: of a line 31 instructions, eight of them loads, and beside it loads of
    ``pool`` lines without order, of 11 instructions each."""
    step = Op(Kind.int_alu, (1,), (2,))
    loop = workload([*[load(1)] * 8, *[step] * 23, *[load(1), *[step] * 10] * others])
    lines = PAGES * 64
    addresses = np.empty((lines, 8 + others), np.int64)
    addresses[:, :8] = (1 << 24) + np.arange(lines)[:, None] * LINE + np.arange(8) * 8
    addresses[:, 8:] = np.random.default_rng(1).integers(0, pool, (lines, others)) * LINE
    prefetcher = {"distance": distance, "page": "2 MiB", "interrupted_page": "4 KiB"}
    machine = node(
        width=WIDTH, reorder_buffer=WINDOW, line_fill_buffers=64, latencies=(4, 14, LATENCY), memory_bandwidth=64,
        prefetcher=prefetcher,
    )  # fmt: skip
    return cycles(loop, machine, [0] * lines, addresses.ravel(), warm=True)


@pytest.mark.theory
@pytest.mark.parametrize("distance", [4, 16])
def test_the_distance_of_the_model_comes_back(distance: int):
    beside, few = ({others: of_a_line(others, distance, pool) for others in BESIDE} for pool in (256, 16))
    assert lines_ahead(beside, few, LATENCY, WINDOW, WIDTH, 64) in range(distance - 1, distance + 2)
