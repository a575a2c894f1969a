"""Blocks of a cluster start together, whatever a study says of the order of SMs and of blocks."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from gpu_programs import Instruction, launch
from gpu_small import chain, gpu

from manyscale.models.gpu import detailed
from manyscale.models.workload.launch_trace import UnitClass
from manyscale.runner.registry import lookup
from manyscale.runner.run.execute.teams import in_threads

MEET = [Instruction(UnitClass.uniform, opcode=f"UCGABAR_{each}") for each in ("ARV", "WAIT")]
ON = gpu(sms=4, clusters={"latency": "60 cycles", "gpcs": 2}, dram={"channels": 2})


@pytest.mark.parametrize(
    "options", [{"order": "windows", "sampler": "full"}, {"order": "strict", "sampler": "tbpoint"}]
)
def test_launches_in_clusters_are_simulated_as_a_whole_in_strict_order(options):
    """Each block meets the other of its cluster, which computes longer: run one by one, none would wait."""
    blocks = [[[*chain(5 + 20 * (k % 2)), *MEET]] for k in range(16)]
    trace = dataclasses.replace(launch(blocks), cluster=(2, 1, 1))
    whole = detailed.simulate(trace, ON)[0]
    model = lookup("gpu", "detailed")
    for (found,) in in_threads(2, lambda team: model.simulate([trace], [], ON, options, team)):
        assert found.cycles == whole.busy_cycles
        assert np.array_equal(found.block_end, whole.block_end)
    alone = detailed.simulate(dataclasses.replace(trace, cluster=(1, 1, 1)), ON)[0]
    assert alone.block_end[0] < whole.block_end[0]
