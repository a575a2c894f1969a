"""Launches of which some blocks were recorded: the others run at the rate of the time at which the GPU is full."""

from __future__ import annotations

import numpy as np
import pytest
from gpu_launches import Launch, gpu_workload

from manyscale.models.gpu.occupancy import resident_blocks
from manyscale.models.gpu.parameters import Gpu
from manyscale.runner.cli.options import MOST_NUMBER, parse_steps
from manyscale.runner.errors import UserError
from manyscale.runner.predict.gpu.launch_results import LaunchResult
from manyscale.runner.predict.gpu.partial import MIN_GENERATIONS, check_blocks, of_all_blocks
from manyscale.runner.study import parse_study
from manyscale.runner.study.targets import resolve_target


def launch(generations: int, held: int, cycles: int, instructions: int) -> LaunchResult:
    """``held`` blocks at a time, generation by generation, each of so many cycles and instructions a block; the first
    takes twice as long, at half the rate."""
    start = np.repeat(np.concatenate(([0], np.arange(2, generations + 1))), held) * cycles
    end = np.repeat(np.arange(2, generations + 2), held) * cycles
    rate = held * instructions // cycles
    issued = np.concatenate((np.full(2 * cycles, rate // 2), np.full((generations - 1) * cycles, rate)))
    number = generations * held
    return LaunchResult(
        launch_id=1, cycles=(generations + 1) * cycles, warp_instructions=number * instructions,
        simulated_instructions=number * instructions, causes=("a", "b"), stack=np.array([1.0, 3.0]) * cycles,
        l1_accesses=number, l2_misses=2 * number, block=np.arange(number), block_sm=np.zeros(number, np.int64),
        block_start=start, block_end=end, block_warp_instructions=np.full(number, instructions),
        block_thread_instructions=np.full(number, instructions), block_requests=np.zeros(number, np.int64),
        block_region=np.zeros(number, np.int64), bin_cycles=1, ipc_instructions=issued,
    )  # fmt: skip


def test_the_others_run_at_the_rate_of_the_full_gpu():
    """Of 5,000 blocks of 40 instructions 50 are recorded: ten at a time, 100 cycles each, and another 100 at the begin.
    The other 4,950 are 495 generations of 100 cycles, which differ in nothing."""
    recorded = np.zeros(5000, np.bool_)
    recorded[::100] = True
    found = of_all_blocks(launch(5, 10, 100, 40), recorded, 5000 * 40)
    assert found.cycles == 600 + 495 * 100
    assert found.half_width == 0
    assert (found.warp_instructions, found.simulated_instructions) == (200_000, 2000)
    assert (found.l1_accesses, found.l2_misses) == (5000, 10_000)
    assert found.stack.sum() == pytest.approx(found.cycles)
    assert found.block.tolist() == list(range(0, 5000, 100))
    assert set(found.block_region.tolist()) == {-1}


def test_rates_that_differ_give_an_interval():
    """The four parts of the time take 100 cycles for 40, 20, 40 and 20 instructions a block: 2.5, 5, 2.5 and 5 cycles
    per ten instructions, of mean 3.75, deviation 1.443, and error a half of it; t of three degrees is 3.182."""
    result = launch(6, 10, 100, 40)
    result.ipc_instructions[300:400] //= 2
    result.ipc_instructions[500:600] //= 2
    recorded = np.zeros(1000, np.bool_)
    recorded[:60] = True
    found = of_all_blocks(result, recorded, 1000 * 40)
    left = (1000 - 60) * 40 / (4 * 0.75)  # cycles, at three quarters of four instructions a cycle
    assert found.cycles == pytest.approx(700 + left, abs=1)
    assert found.half_width * found.cycles == pytest.approx(3.1824 * 1.4434 / 3.75 / 2 * left, rel=1e-3)


def test_too_few_blocks_and_other_models_are_refused():
    study = parse_study({"schema": 1, "workload": {"path": "x"}, "target": "rtx3070"}, "test")
    gpu = Gpu.of(resolve_target(study)[0].node)
    assert gpu is not None
    workload = gpu_workload(Launch("k", (10,) * 20_000))
    held = gpu.sms * resident_blocks(
        gpu, *(int(workload.column("launches", name)[0]) for name in ("block_x", "registers", "shared_bytes"))
    )
    rows = np.array([0])
    recorded = np.zeros(20_000, np.bool_)
    recorded[: MIN_GENERATIONS * held] = True
    workload.gpu.recorded_blocks = lambda launch_id: recorded
    check_blocks(workload, rows, gpu, "detailed", "full", "t")
    with pytest.raises(UserError, match="--model gpu=detailed alone"):
        check_blocks(workload, rows, gpu, "gpumech", "full", "t")
    with pytest.raises(UserError, match="--model gpu=detailed alone"):
        check_blocks(workload, rows, gpu, "detailed", "tbpoint", "t")
    recorded[0] = False
    with pytest.raises(UserError, match=f"record at least {MIN_GENERATIONS * held} with --blocks"):
        check_blocks(workload, rows, gpu, "detailed", "full", "t")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0-63", [(0, 63, 1)]),
        ("5", [(5, 5, 1)]),
        ("::16", [(0, MOST_NUMBER, 16)]),
        ("3::4,100-199::10", [(3, MOST_NUMBER, 4), (100, 199, 10)]),
    ],
)
def test_lists_of_blocks(text, expected):
    assert parse_steps(text, "--blocks") == expected


@pytest.mark.parametrize("text", ["", "a", "-3", "9-3", "::0", "1,,2", "1:2", "0-9::", ",".join("0" * 257)])
def test_what_is_no_list_of_blocks_is_named(text):
    with pytest.raises(UserError, match="--blocks"):
        parse_steps(text, "--blocks")
