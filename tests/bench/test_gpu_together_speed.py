"""CPU time of launches that are simulated together, beside that of one launch that has the blocks of both."""

from __future__ import annotations

import time

import pytest
from gpu_programs import launch
from validation.gpu.streams import SMS, computing, small_gpu, using

from manyscale.models.gpu import detailed
from manyscale.models.gpu.together.model import Arriving, simulate_together

MOST = 1.3  # times
ROUNDS = 3


@pytest.mark.bench
def test_together_costs_what_one_launch_of_all_blocks_costs():
    """287,000 warp instructions of two launches; the least of some rounds of each, in turn."""
    gpu = small_gpu()
    first = [computing(600)] * (6 * SMS)
    second = [using(24, block, 1 << 24) for block in range(12 * SMS)]
    whole = launch([*first, *second])
    parts = [Arriving(launch(first)), Arriving(launch(second))]
    alone, together = [], []
    for _ in range(1 + ROUNDS):
        begin = time.process_time()
        detailed.simulate(whole, gpu)
        middle = time.process_time()
        simulate_together(parts, gpu)
        alone.append(middle - begin)
        together.append(time.process_time() - middle)
    assert min(together[1:]) < MOST * min(alone[1:])
