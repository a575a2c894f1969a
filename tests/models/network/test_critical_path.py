"""The critical path against paths found by hand, and what must hold for every program.

Costs on the network below, by hand: latency 10 us, 0.8 ns a byte, 16 bytes of envelope, so a message of S bytes takes
10,000,000 + 800 (S + 16) ps. Messages under 65,536 bytes are eager.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from validation.simgrid.random_programs import generate

from manyscale.models.machine import Link, Network
from manyscale.models.network import latency_bandwidth
from manyscale.models.network.critical_path import (
    CriticalPath,
    critical_path,
    eager_messages,
    starting_at_send,
)
from manyscale.models.network.path_walk import COLLECTIVE, COMPUTE, KINDS
from manyscale.models.network.program import Program, build_program
from manyscale.models.network.replay.steps import ENTER_GATE, FIRST, LAST, WAIT_GATE
from manyscale.models.network.replay.timeline import Placement, Timeline
from manyscale.models.workload import Workload
from manyscale.runner import shipped
from manyscale.runner.readers import simgrid_ti
from manyscale.runner.registry import lookup, names
from manyscale.runner.run.pipeline import compute_per_operation
from manyscale.runner.study import parse_study
from manyscale.runner.study.targets import resolve_target

US = 1_000_000  # ps


def network(start: str = "match") -> Network:
    return Network(
        latency="10 us", bandwidth="1.25 GB/s", envelope="16 B", eager_threshold="65536 B", transfer_start=start,
        collectives="simgrid-3.32", intra_node=Link(latency="1 us", bandwidth="10 GB/s"),
        self=Link(latency="5 us", bandwidth="1.25 GB/s"),
    )  # fmt: skip


def cost(size: int) -> int:
    return 10 * US + 800 * (size + 16)


def trace(folder: Path, *ranks: str) -> Workload:
    """A workload from time-independent text, one string per rank; its operation 0 is init."""
    path = folder / "actions.txt"
    lines = [
        f"{rank} {line.strip()}" for rank, text in enumerate(ranks) for line in ["init", *text.split(";"), "finalize"]
    ]
    path.write_text("\n".join(line for line in lines if line.split()[1:]) + "\n")
    return simgrid_ti.read(path)


def compute_of(workload: Workload) -> np.ndarray:
    return compute_per_operation(workload, workload.column("phases", "duration_ps"))


class Replay:
    """A program with its compute, replayed."""

    def __init__(self, workload: Workload, start: str = "match") -> None:
        self.workload, self.law = workload, network(start)
        self.program = build_program(workload, self.law.collectives)
        self.compute = compute_of(workload)

    def timeline(self, compute: np.ndarray | None = None) -> Timeline:
        placement = Placement.one_per_node(self.workload.num_ranks)
        return latency_bandwidth.replay(self.program, self.compute if compute is None else compute, self.law, placement)

    def path(self) -> CriticalPath:
        eager = eager_messages(self.program, self.law.eager_threshold_bytes)
        at_send = starting_at_send(eager, self.law.transfer_start)
        count = len(self.workload.send_rows)
        return critical_path(self.program, self.compute, self.timeline(), eager, at_send, count)

    def steps(self) -> list[tuple[str, int, int, int, int]]:
        """(kind, rank on which the segment ends, rank on which it begins, start, end) of every segment."""
        path, rank = self.path(), self.workload.column("operations", "rank")
        return [
            (KINDS[kind], int(rank[row]), int(source), int(first), int(last))
            for kind, row, source, first, last in zip(
                path.kind, path.operation, path.source, path.start_ps, path.end_ps, strict=True
            )
        ]


def assert_tiles(path: CriticalPath, makespan_ps: int) -> None:
    """Contiguous segments of positive length from 0 to the end of the run."""
    assert (path.end_ps > path.start_ps).all()
    edges = [0, *path.end_ps.tolist()]
    assert edges[:-1] == path.start_ps.tolist()
    assert edges[-1] == makespan_ps


@pytest.mark.parametrize(
    "ranks",
    [("compute 1000",), ("compute 0", "compute 700; compute 0; compute 7", ""), ("",)],
)
def test_what_only_computes_needs_no_kernel(ranks, tmp_path, monkeypatch) -> None:
    """Its times and its path are those of the kernels."""
    replay = Replay(trace(tmp_path, *ranks))
    assert replay.program.only_computes
    timeline, path = replay.timeline(), replay.path()
    assert_tiles(path, timeline.makespan_ps)
    monkeypatch.setattr(Program, "only_computes", False)
    expected, expected_path = replay.timeline(), replay.path()
    for found, by_kernel in ((timeline, expected), (path, expected_path)):
        for name, array in vars(by_kernel).items():
            if array is not None:
                assert getattr(found, name).dtype == array.dtype
                assert getattr(found, name).tobytes() == array.tobytes()


@pytest.mark.theory
class TestByHand:
    def test_through_compute_and_messages(self, tmp_path):
        # 0 computes 5 us and sends to 1, which then computes 27 us and sends to 2, which is ready after 30 us
        replay = Replay(
            trace(
                tmp_path,
                "compute 5000; send 1 0 0",
                "compute 2000; recv 0 0 0; compute 27000; send 2 0 0",
                "compute 30000; recv 1 0 0; compute 1000",
            )
        )
        at_1 = 5 * US + cost(0)
        sent = at_1 + 27 * US
        there = sent + cost(0)
        assert replay.steps() == [
            ("compute", 0, 0, 0, 5 * US),
            ("transfer", 1, 0, 5 * US, at_1),
            ("compute", 1, 1, at_1, sent),
            ("transfer", 2, 1, sent, there),
            ("compute", 2, 2, there, there + US),
        ]

    def test_a_late_receiver_is_on_the_path_not_the_sender(self, tmp_path):
        replay = Replay(trace(tmp_path, "send 1 0 8", "compute 30000; recv 0 0 8"))
        assert replay.steps() == [("compute", 1, 1, 0, 30 * US), ("transfer", 1, 1, 30 * US, 30 * US + cost(8))]

    def test_an_eager_transfer_that_was_under_way_leads_to_its_sender(self, tmp_path):
        workload = trace(tmp_path, "compute 3000; send 1 0 8", "compute 5000; recv 0 0 8")
        expected = [("compute", 0, 0, 0, 3 * US), ("transfer", 1, 0, 3 * US, 3 * US + cost(8))]
        assert Replay(workload, "eager").steps() == expected
        # a message that came while its receiver computed is not on the path
        late = trace(tmp_path, "compute 3000; send 1 0 8", "compute 50000; recv 0 0 8")
        assert Replay(late, "eager").steps() == [("compute", 1, 1, 0, 50 * US)]

    def test_a_rendezvous_sender_waits_for_its_receiver(self, tmp_path):
        replay = Replay(trace(tmp_path, "send 1 0 65536; compute 9000", "compute 30000; recv 0 0 65536"))
        there = 30 * US + cost(65536)
        assert replay.steps() == [
            ("compute", 1, 1, 0, 30 * US),
            ("transfer", 0, 1, 30 * US, there),
            ("compute", 0, 0, there, there + 9 * US),
        ]

    def test_an_eager_send_of_the_same_instant_explains_no_wait(self, tmp_path):
        # both transfers end at once; rank 0 waited for what it received, not for what it sent
        replay = Replay(
            trace(
                tmp_path,
                "isend 1 0 8; irecv 1 0 8; wait 1 0 0; wait 0 1 0",
                "irecv 0 0 8; compute 7000; isend 0 0 8; wait 0 1 0; wait 1 0 0",
            )
        )
        assert replay.steps() == [("compute", 1, 1, 0, 7 * US), ("transfer", 0, 1, 7 * US, 7 * US + cost(8))]

    def test_the_longer_wait_of_a_waitall(self, tmp_path):
        replay = Replay(
            trace(
                tmp_path,
                "irecv 1 0 8; irecv 2 0 8; irecv 3 0 8; waitall 3",
                "compute 5000; send 0 0 8",
                "compute 25000; send 0 0 8",
                "compute 15000; send 0 0 8",
            )
        )
        assert [step[:3] for step in replay.steps()] == [("compute", 2, 2), ("transfer", 0, 2)]

    def test_wait_any_leads_to_the_request_that_it_took(self, tmp_path):
        replay = Replay(
            trace(
                tmp_path,
                "irecv 1 1 2984; irecv 2 1 0; waitAny 2; compute 1000000; waitAny 2",
                "compute 10000; send 0 1 2984",
                "compute 5000; send 0 1 0",
            )
        )
        there = 5 * US + cost(0)
        assert replay.steps() == [
            ("compute", 2, 2, 0, 5 * US),
            ("transfer", 0, 2, 5 * US, there),
            ("compute", 0, 0, there, there + 1000 * US),
        ]

    def test_a_wildcard_leads_to_the_message_that_it_took(self, tmp_path):
        # specific receive of rank 2 (at 40 us) first, then the wildcard takes rank 1's of 20 us, posted at 40 us + cost
        replay = Replay(
            trace(
                tmp_path,
                "recv -333 5 0; compute 100000; recv -333 5 0; recv -333 5 8",
                "compute 20000; send 0 5 0",
                "compute 40000; send 0 5 0",
                "compute 500000; send 0 5 8",
            )
        )
        assert [step[:3] for step in replay.steps()] == [("compute", 3, 3), ("transfer", 0, 3)]
        short = Replay(
            trace(
                tmp_path,
                "recv -333 5 0; compute 100000; recv -333 5 0",
                "compute 20000; send 0 5 0",
                "compute 40000; send 0 5 0",
            )
        )
        there = 20 * US + cost(0)
        assert short.steps() == [
            ("compute", 1, 1, 0, 20 * US),
            ("transfer", 0, 1, 20 * US, there),
            ("compute", 0, 0, there, there + 100 * US),
            ("transfer", 0, 0, there + 100 * US, there + 100 * US + cost(0)),
        ]

    def test_a_collective_leads_to_the_rank_that_came_last(self, tmp_path):
        ranks = [f"compute {1000 * (1 + 9 * (rank == 2))}; barrier; compute 1000" for rank in range(4)]
        steps = Replay(trace(tmp_path, *ranks)).steps()
        assert steps[0] == ("compute", 2, 2, 0, 10 * US)
        assert {kind for kind, *_ in steps[1:-1]} == {"collective"}
        assert steps[-1][0] == "compute"

    def test_a_non_blocking_collective_is_on_the_path_only_if_waited_for(self, tmp_path):
        def ranks(overlap: int) -> list[str]:
            rest = f"compute {overlap}; wait 0 {{}} -3335"
            return ["compute 4000; ibcast 8 0 6; " + rest.format(0), "ibcast 8 0 6; " + rest.format(1)]

        hidden = Replay(trace(tmp_path, *ranks(50000))).steps()
        assert {kind for kind, *_ in hidden} == {"compute"}
        waited = Replay(trace(tmp_path, *ranks(1000))).steps()
        assert [step[:3] for step in waited] == [("compute", 0, 0), ("collective", 1, 0)]
        assert waited[-1][3:] == (4 * US, 4 * US + cost(8))

    def test_a_gate_leads_to_the_last_that_entered(self):
        # two ranks enter at 3 and 8 us, the gate opens at 12 us
        steps = np.array([ENTER_GATE | FIRST, WAIT_GATE | LAST] * 2, np.uint8)
        none32, none64, none8 = np.empty(0, np.int32), np.empty(0, np.int64), np.empty(0, np.uint8)
        program = Program(
            num_ranks=2, rank_offsets=np.array([0, 1, 2]), step=steps, target=np.zeros(4, np.int32),
            strand_steps=np.array([0, 2, 4]), strand_rank=np.array([0, 1], np.int32), source=none32, destination=none32,
            bytes=none64, mode=none8, send_queue=none32, send_tag=none32, send_operation=none32, open_queue=none32,
            open_source=none32, open_tag=none32, num_queues=0, candidate_offsets=np.zeros(1, np.int64),
            candidate_action=none8, candidate_target=none32, gate_size=np.array([2], np.int32),
            gate_model=np.zeros((1, 2), np.uint8), gate_bytes=np.zeros((1, 2), np.int64),
        )  # fmt: skip
        end = np.array([12 * US, 12 * US])
        timeline = Timeline(end, none64, none64)
        none = np.empty(0, np.bool_)
        path = critical_path(program, np.array([3 * US, 8 * US]), timeline, none, none, 0)
        assert path.kind.tolist() == [COMPUTE, COLLECTIVE]
        assert path.source.tolist() == [1, 1]
        assert path.end_ps.tolist() == [8 * US, 12 * US]

    def test_a_run_of_no_time_has_an_empty_path(self, tmp_path):
        assert Replay(trace(tmp_path, "compute 0", "compute 0")).steps() == []

    def test_a_timeline_of_another_program_is_refused(self, tmp_path):
        replay = Replay(trace(tmp_path, "send 1 0 8", "recv 0 0 8"))
        other = Replay(trace(tmp_path, "send 1 0 8; send 1 1 8", "recv 0 0 8; recv 0 1 8"))
        eager, timeline = np.ones(1, np.bool_), other.timeline()
        with pytest.raises(ValueError, match="not of this program"):
            critical_path(replay.program, replay.compute, timeline, eager, eager, 1)


@pytest.mark.contract
@pytest.mark.parametrize("start", ["match", "eager", "send"])
@pytest.mark.parametrize("name", names("network"))
def test_tiles_the_run_of_every_network_model(name, start):
    workload = simgrid_ti.read(shipped.folder() / "lulesh-8.tar.zst")
    replay = Replay(workload)
    placement = Placement.one_per_node(workload.num_ranks)
    law = resolve_target(parse_study({"workload": {"path": "-"}, "target": "crossbar256"}, "test"))[0].network
    timeline = lookup("network", name).replay(replay.program, replay.compute, law, placement)
    eager = eager_messages(replay.program, replay.law.eager_threshold_bytes)
    at_send, count = starting_at_send(eager, start), len(workload.send_rows)
    path = critical_path(replay.program, replay.compute, timeline, eager, at_send, count)
    assert_tiles(path, timeline.makespan_ps)
    computed = (path.end_ps - path.start_ps)[path.kind == COMPUTE].sum()
    assert computed > 0.3 * timeline.makespan_ps  # lulesh computes most of its time, whatever the network


@pytest.mark.property
class TestProperties:
    """Random programs of every kind of operation (those of the comparison with SimGrid)."""

    @settings(deadline=None, max_examples=60)
    @given(seed=st.integers(0, 10**6), start=st.sampled_from(["match", "eager"]))
    def test_tiles_the_run(self, tmp_path_factory, seed, start):
        replay = random_replay(tmp_path_factory, seed, start)
        path = replay.path()
        assert_tiles(path, replay.timeline().makespan_ps)
        assert not np.any(path.kind == KINDS.index("overhead"))  # this model charges none
        messages = path.message[path.message >= 0]
        assert (path.kind[path.message >= 0] == np.where(messages < len(replay.workload.send_rows), 1, 2)).all()

    @settings(deadline=None, max_examples=60)
    @given(seed=st.integers(0, 10**6), data=st.data())
    def test_longer_compute_on_the_path_lengthens_the_run_as_much(self, tmp_path_factory, seed, data):
        """And shorter compute shortens it by no more."""
        replay = random_replay(tmp_path_factory, seed, data.draw(st.sampled_from(["match", "eager"])))
        if replay.program.num_queues or len(replay.program.candidate_target):
            return  # other times could match other messages
        path, makespan = replay.path(), replay.timeline().makespan_ps
        on_path = path.operation[path.kind == COMPUTE].tolist()
        if not on_path:
            return
        row = data.draw(st.sampled_from(on_path))
        change = data.draw(st.integers(1, 50 * US))
        compute = replay.compute.copy()
        compute[row] += change
        assert replay.timeline(compute).makespan_ps == makespan + change
        compute[row] = max(0, replay.compute[row] - change)
        assert makespan - replay.timeline(compute).makespan_ps <= replay.compute[row] - compute[row]

    @settings(deadline=None, max_examples=60)
    @given(seed=st.integers(0, 10**6), data=st.data())
    def test_shorter_compute_off_the_path_changes_nothing(self, tmp_path_factory, seed, data):
        replay = random_replay(tmp_path_factory, seed, data.draw(st.sampled_from(["match", "eager"])))
        if replay.program.num_queues or len(replay.program.candidate_target):
            return
        path, makespan = replay.path(), replay.timeline().makespan_ps
        off_path = np.ones(len(replay.compute), np.bool_)
        off_path[path.operation[path.kind == COMPUTE]] = False
        compute = np.where(off_path, replay.compute // data.draw(st.integers(2, 9)), replay.compute)
        assert replay.timeline(compute).makespan_ps == makespan


def random_replay(factory: pytest.TempPathFactory, seed: int, start: str) -> Replay:
    path = factory.mktemp("program") / "actions.txt"
    lines = [f"{rank} {line}\n" for rank, actions in enumerate(generate(seed).actions) for line in actions]
    path.write_text("".join(lines))
    return Replay(simgrid_ti.read(path), start)
