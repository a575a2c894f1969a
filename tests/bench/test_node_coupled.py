"""Speed of coupled replays as ratios of CPU time to the same instances scheduled without a network, in the same run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from cpu_time import least_cpu

from manyscale.models.network.coupled.model import replay_coupled
from manyscale.models.network.program import build_program
from manyscale.models.network.replay.timeline import Placement
from manyscale.models.node.burst import run_phases
from manyscale.models.node.program.node_program import Action, NodeProgram
from manyscale.models.node.scheduler.runtime_system import RuntimeSystem
from manyscale.runner.readers import simgrid_ti
from manyscale.runner.study import parse_study
from manyscale.runner.study.targets import resolve_target

pytestmark = pytest.mark.bench

RANKS = 64
RUNS = 3


def phases_of_tasks(num_tasks: int, num_phases: int, messages: int) -> NodeProgram:
    """Phases of independent tasks of 5 to 15 us; after its compute, each of the first ``messages`` of a phase has an
    operation. Operation 0 and the last one stand alone."""
    count = 1 + num_tasks * num_phases
    number = np.arange(count - 1)
    communicates = number % num_tasks < messages
    main_action = np.tile(np.append(np.full(num_tasks, Action.create), Action.barrier), num_phases)
    main_target = np.insert(number + 1, np.arange(1, num_phases + 1) * num_tasks, 0)
    first = np.concatenate(([0, len(main_action)], len(main_action) + np.cumsum(1 + communicates)))
    action, target = np.zeros(first[-1], np.uint8), np.zeros(first[-1], np.int32)
    action[: len(main_action)], target[: len(main_action)] = main_action, main_target
    action[first[1:-1]], target[first[1:-1]] = Action.compute, number
    of_operation = first[1:-1][communicates] + 1
    action[of_operation], target[of_operation] = Action.operation, 1 + np.arange(len(of_operation))
    bounds = np.arange(num_phases + 1)
    none, zeros = np.full(count - 1, -1), np.zeros(count, np.int32)
    return NodeProgram(
        rank=0, num_cores=1, step_action=action, step_target=target, first_step=first,
        parent=np.where(np.arange(count), 0, -1).astype(np.int32), task_type=zeros, priority=zeros,
        instance_flags=zeros.astype(np.uint8), instance_id=np.arange(count, dtype=np.int32), num_predecessors=zeros,
        first_successor=np.zeros(count + 1, np.int64), successor=np.zeros(0, np.int32),
        first_chunk=np.array([count], np.int32),
        piece_ps=np.random.default_rng(0).integers(5_000_000, 15_000_000, count - 1),
        piece_instance=number.astype(np.int32) + 1, piece_event=none, first_segment=none, end_segment=none,
        part=zeros[1:], num_parts=zeros[1:] + 1,
        phase_first_step=np.concatenate(([0], bounds * (num_tasks + 1), [len(main_action)])),
        phase_first_instance=np.concatenate(([1], 1 + bounds * num_tasks, [count])).astype(np.int32),
        phase_operation=np.array([0, *[-1] * num_phases, 1 + len(of_operation)], np.int32),
        phase_iteration=np.full(num_phases + 2, -1, np.int32), num_locks=0,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("num_tasks", "num_phases", "messages", "num_cores", "least_ratio"), [(5200, 5, 4, 64, 0.5), (20, 200, 4, 16, 0.08)]
)
def test_instances_per_second(
    tmp_path: Path, num_tasks: int, num_phases: int, messages: int, num_cores: int, least_ratio: float
) -> None:
    node = phases_of_tasks(num_tasks, num_phases, messages)
    alone = phases_of_tasks(num_tasks, num_phases, 0)
    count = messages * num_phases
    lines = []
    for rank in range(RANKS):
        calls = [f"{'send' if (rank + k) % 2 else 'recv'} {rank ^ 1} {k} 1000" for k in range(count)]
        lines += [f"{rank} {call}\n" for call in ["init", *calls, "finalize"]]
    (tmp_path / "actions.txt").write_text("".join(lines))
    network = resolve_target(parse_study({"workload": {"path": "-"}, "target": "crossbar256"}, "bench"))[0].network
    program = build_program(simgrid_ti.read(tmp_path / "actions.txt"), network.collectives)
    no_compute = np.zeros(int(program.rank_offsets[-1]), np.int64)

    def coupled() -> None:
        replay_coupled(
            program, no_compute, [node] * RANKS, [node.piece_ps] * RANKS, num_cores, RuntimeSystem(), network,
            Placement.one_per_node(RANKS),
        )  # fmt: skip

    def burst() -> None:
        for _ in range(RANKS):
            run_phases(alone, num_cores, RuntimeSystem(), alone.piece_ps)

    seconds, burst_seconds = least_cpu(coupled, RUNS), least_cpu(burst, RUNS)
    instances, operations = RANKS * num_tasks * num_phases, RANKS * (count + 2)
    print(
        f"\n{RANKS} ranks x {num_cores} cores, {num_tasks} instances and {messages} messages a phase: "
        f"{instances / seconds / 1e6:.1f} M instances and {operations / seconds / 1e6:.2f} M operations a CPU second; "
        f"without MPI {instances / burst_seconds / 1e6:.1f} M"
    )
    assert burst_seconds / seconds > least_ratio
