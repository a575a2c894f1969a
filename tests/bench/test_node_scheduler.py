"""Speed of the runtime-system model: instances created and executed per CPU second, by policy and number of cores.

Phases as large as those of BT-MZ in MUSA (Grass, UPC 2017, section 6.4.4): 5,200 instances, created by the initial
task, which does a little between two creations. The bound is that of 64 cores, fed just fast enough to be busy, and
moves with the machine: CPU seconds are counted in sorts of a million numbers, `UNIT` of which took one where it was
set. Every figure is printed, so that `pytest -m bench -s` is a report.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from cpu_time import least_cpu, second

from manyscale.models.node.burst import run_phases
from manyscale.models.node.program.node_program import Action, NodeProgram
from manyscale.models.node.scheduler.runtime_system import POLICIES, Policy, RuntimeSystem

pytestmark = pytest.mark.bench

PHASE, PHASES = 5_200, 100


@cache
def phases(depends: bool) -> NodeProgram:
    """Phases of instances of 500 to 1,500 ps, which are created every 14 ps, and the end of all waited for. Those that
    depend have two predecessors each: a band of 64 chains with a neighbour."""
    rng = np.random.default_rng(5)
    total = PHASE * PHASES
    main_steps = PHASES * (2 * PHASE + 1)
    action = np.full(main_steps + total, Action.compute, np.uint8)
    target = np.zeros(main_steps + total, np.int32)
    of_main = action[:main_steps].reshape(PHASES, 2 * PHASE + 1)
    of_main[:, 1::2], of_main[:, -1] = Action.create, Action.wait_children
    targets = target[:main_steps].reshape(PHASES, 2 * PHASE + 1)
    targets[:, 0:-1:2] = np.arange(total).reshape(PHASES, PHASE)
    targets[:, 1::2] = 1 + targets[:, 0:-1:2]
    target[main_steps:] = total + np.arange(total)
    first = np.repeat(np.arange(PHASE), 2)
    after = first + np.tile([63, 64], PHASE)
    kept = (after < PHASE) & depends
    starts = 1 + PHASE * np.arange(PHASES)[:, None]
    before, successor = (starts + first[kept]).ravel(), (starts + after[kept]).ravel()
    none = np.zeros(2 * total, np.int64)
    return NodeProgram(
        rank=0,
        num_cores=64,
        step_action=action,
        step_target=target,
        first_step=np.concatenate([[0], main_steps + np.arange(total + 1)]),
        parent=np.concatenate([[-1], np.zeros(total)]).astype(np.int32),
        task_type=np.zeros(total + 1, np.int32),
        priority=np.zeros(total + 1, np.int32),
        instance_flags=np.zeros(total + 1, np.uint8),
        instance_id=np.arange(total + 1, dtype=np.int32),
        num_predecessors=np.bincount(successor, minlength=total + 1).astype(np.int32),
        first_successor=np.concatenate([[0], np.cumsum(np.bincount(before, minlength=total + 1))]),
        successor=successor.astype(np.int32),
        first_chunk=np.array([total + 1], np.int32),
        piece_ps=np.concatenate([np.full(total, 14), rng.integers(500, 1500, total)]),
        piece_instance=np.concatenate([np.zeros(total), 1 + np.arange(total)]).astype(np.int32),
        piece_event=none,
        first_segment=none,
        end_segment=none,
        part=none.astype(np.int32),
        num_parts=none.astype(np.int32) + 1,
        phase_first_step=(2 * PHASE + 1) * np.arange(PHASES + 1),
        phase_first_instance=(1 + PHASE * np.arange(PHASES + 1)).astype(np.int32),
        phase_operation=np.arange(PHASES, dtype=np.int32),
        phase_iteration=np.full(PHASES, -1, np.int32),
        num_locks=0,
    )


@pytest.mark.parametrize("num_cores", [1, 8, 64])
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("depends", [False, True], ids=["independent", "dependent"])
def test_instances_per_second(depends: bool, policy: Policy, num_cores: int) -> None:
    """At least 6 million per CPU second on 64 cores by the default policy. The others are reported, with half that as
    their bound. The one that predicts what follows takes 2.9 to 3.2 million in its first version (52822eca) and in
    today's, side by side on one machine (critical-path: 5.3 to 7.3); others saw 2.5."""
    program = phases(depends)
    seconds = least_cpu(lambda: run_phases(program, num_cores, RuntimeSystem(policy=policy), program.piece_ps))
    speed = PHASE * PHASES / seconds / 1e6
    print(f"\n{policy}, {num_cores} cores, depends={depends}: {speed:.2f} M instances per CPU second")
    bound = {"fifo": 6e6, "predicted-critical-path": 2e6}.get(policy, 3e6)
    assert seconds <= PHASE * PHASES / bound * second()


def test_repetitions_with_jitter() -> None:
    """Ten times 520,000 instances, each of another time."""
    program = phases(False)
    few = least_cpu(lambda: run_phases(program, 64, RuntimeSystem(), program.piece_ps, repetitions=10, jitter=0.1), 2)
    print(f"\nwith jitter: {10 * PHASE * PHASES / few / 1e6:.2f} M instances per CPU second")
    assert few <= 10 * PHASE * PHASES / 5e6 * second()
