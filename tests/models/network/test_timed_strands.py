"""Strands in the order of time: with transfers of a known cost they must do what the replay without order does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from manyscale.models.kernels import allocation_free
from manyscale.models.kernels.event_heap import event_record, pop, push
from manyscale.models.machine import Network
from manyscale.models.network.latency_bandwidth import message_law
from manyscale.models.network.program import Program, build_program
from manyscale.models.network.replay.replay import MessageLaw, replay_law
from manyscale.models.network.replay.strand_state import ARRIVED, BOTH_POSTED, NEVER, SEND_POSTED, new_state
from manyscale.models.network.replay.timed_strands import complete, next_time, run_next
from manyscale.runner import shipped
from manyscale.runner.readers import simgrid_ti
from manyscale.runner.run.pipeline import compute_per_operation
from manyscale.runner.study import parse_study
from manyscale.runner.study.targets import resolve_target

STARTED, LANDED = 1, 2


@allocation_free
def run_fixed_costs(steps, state, cost, eager_start, flight, heap, heap_size):  # type: ignore[no-untyped-def]
    """Every transfer takes its cost, whatever else is under way."""
    while True:
        strands_at = next_time(state)
        if heap_size[0] > 0 and heap[0].time <= strands_at:
            time = heap[0].time
            message = pop(heap, heap_size)
            flight[message] = LANDED
            if state.message[message].status & BOTH_POSTED == BOTH_POSTED:
                complete(steps, state, message, time)
            continue
        if strands_at == NEVER:
            return
        count = run_next(steps, state)
        now = state.now[0]
        for k in range(count):
            message = np.int64(state.posted[k])
            status = state.message[message].status
            both = status & BOTH_POSTED == BOTH_POSTED
            if flight[message] == 0 and (both or (eager_start and steps.is_eager[message] and status & SEND_POSTED)):
                flight[message] = STARTED
                push(heap, heap_size, message, now + cost[message])
            elif flight[message] == LANDED and both and not status & ARRIVED:
                complete(steps, state, message, now)


def timed(program: Program, compute: np.ndarray, law: MessageLaw, dtype: type = np.int64) -> np.ndarray:
    """End of every operation under fixed costs."""
    steps, state = new_state(
        program, compute.astype(dtype), law.is_eager, np.zeros(program.num_messages, dtype),
        np.zeros(len(program.gate_size), dtype),
    )  # fmt: skip
    flight = np.zeros(program.num_messages, np.uint8)
    heap = np.zeros(program.num_messages, event_record(np.dtype(dtype)))
    run_fixed_costs(steps, state, law.cost_ps.astype(dtype), law.eager_start, flight, heap, np.zeros(1, np.int64))
    assert state.finished.all()
    return state.end


def crossbar(**changes: object) -> Network:
    network = resolve_target(parse_study({"workload": {"path": "-"}, "target": "crossbar256"}, "test"))[0].network
    return network.model_copy(update=changes)


@pytest.mark.contract
@pytest.mark.parametrize("start", ["match", "eager"])
@pytest.mark.parametrize("name", [pytest.param("comd-8", marks=pytest.mark.slow), "nas-is-A-8", "lulesh-8", "hpcg-8"])
def test_equal_to_the_replay_without_order(name: str, start: str) -> None:
    workload = simgrid_ti.read(shipped.folder() / f"{name}.tar.zst")
    network = crossbar(transfer_start=start)
    program = build_program(workload, network.collectives)
    compute = compute_per_operation(workload, workload.column("phases", "duration_ps"))
    law = message_law(program, network, np.arange(workload.num_ranks))
    expected = replay_law(program, compute, law).end_ps
    assert np.array_equal(timed(program, compute, law), expected)
    assert np.array_equal(timed(program, compute, law, np.float64), expected)  # under 2^53 ps both are exact


PROGRAMS = {
    "wildcards": (
        "irecv -333 0 100; irecv -333 0 100; compute 5000; wait -333 0 0; wait -333 0 0; recv 1 0 7",
        "compute 900; send 0 0 100; send 0 0 7",
        "compute 20; send 0 0 100",
    ),
    "any of several": (
        "irecv 1 0 100; irecv 2 0 100; isend 1 3 8; waitAny 3; compute 3000; waitAny 3; waitAny 3",
        "compute 4000000; send 0 0 100; recv 0 3 8",
        "compute 20; send 0 0 100",
    ),
    "rendezvous, both wait": (
        "isend 1 0 100000; compute 10; wait 0 1 0",
        "irecv 0 0 100000; compute 20; wait 0 1 0",
    ),
    "non-blocking collectives": (
        "ibarrier 0; compute 500; iallreduce 100 0; waitall 2",
        "compute 77; ibarrier 0; iallreduce 100 0; waitall 2",
        "ibarrier 0; iallreduce 100 0; compute 9; waitall 2",
    ),
}  # fmt: skip


@pytest.mark.contract
@pytest.mark.parametrize("start", ["match", "eager"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_small_programs_equal_the_replay_without_order(tmp_path: Path, name: str, start: str) -> None:
    lines = [
        f"{rank} {line.strip()}"
        for rank, text in enumerate(PROGRAMS[name])
        for line in ["init", *text.split(";"), "finalize"]
    ]
    (tmp_path / "actions.txt").write_text("\n".join(lines) + "\n")
    workload = simgrid_ti.read(tmp_path / "actions.txt")
    network = crossbar(transfer_start=start)
    program = build_program(workload, network.collectives)
    compute = compute_per_operation(workload, workload.column("phases", "duration_ps"))
    law = message_law(program, network, np.arange(workload.num_ranks))
    assert np.array_equal(timed(program, compute, law), replay_law(program, compute, law).end_ps)
