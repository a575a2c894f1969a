"""Task graphs that communicate: closed forms of overlap, and equality with the replay where nothing overlaps.

Costs on the network below, by hand: latency 10 us, 0.8 ns a byte, 16 bytes of envelope, so a message of S bytes takes
10,000,000 + 800 (S + 16) ps. Messages under 65,536 bytes are eager; a transfer begins when both sides are posted.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from validation.simgrid.random_programs import generate

from manyscale.models.kernels import read_only
from manyscale.models.machine import Link, Network
from manyscale.models.network.coupled.model import CoupledTimeline, replay_coupled
from manyscale.models.network.program import build_program
from manyscale.models.network.replay.timeline import Placement, ReplayError
from manyscale.models.node.program.build import build_program as build_node_program
from manyscale.models.node.program.node_program import Action, NodeProgram
from manyscale.models.node.scheduler.runtime_system import RuntimeSystem
from manyscale.models.workload import Workload
from manyscale.runner import shipped
from manyscale.runner.readers import simgrid_ti, workload_folder
from manyscale.runner.registry import lookup
from manyscale.runner.run.coupled import ranks_table
from manyscale.runner.run.pipeline import compute_per_operation

US = 1_000_000  # ps
Steps = Sequence[tuple[str, int]]


def network(**changes: object) -> Network:
    values = {
        "latency": "10 us", "bandwidth": "1.25 GB/s", "envelope": "16 B", "eager_threshold": "65536 B",
        "transfer_start": "match", "collectives": "simgrid-3.32",
        "intra_node": Link(latency="1 us", bandwidth="10 GB/s"), "self": Link(latency="5 us", bandwidth="1.25 GB/s"),
    }  # fmt: skip
    return Network(**(values | changes))


def cost(size: int) -> int:
    return 10 * US + 800 * (size + 16)


def trace(folder: Path, *ranks: str) -> Workload:
    """A workload from time-independent text, one string per rank; its operation 0 is init, its last one finalize."""
    path = folder / "actions.txt"
    lines = [
        f"{rank} {line.strip()}" for rank, text in enumerate(ranks) for line in ["init", *text.split(";"), "finalize"]
    ]
    path.write_text("\n".join(line for line in lines if line.split()[1:]) + "\n")
    return simgrid_ti.read(path)


def node_program(
    rank: int, phases: Sequence[tuple[Steps, int]], tasks: Sequence[tuple[Steps, Sequence[int]]] = ()
) -> NodeProgram:
    """``phases``: (steps of the initial task, operation that ends them); ``tasks``: (steps, predecessors), from 1.

    A step is (action, target); the target of ``compute`` is a time in ps. All tasks are created in one phase.
    """
    action: list[int] = []
    target: list[int] = []
    first, piece_ps, piece_instance = [0], [], []
    of_main = [step for steps, _ in phases for step in steps]
    for instance, steps in enumerate([of_main, *(steps for steps, _ in tasks)]):
        for name, value in steps:
            action.append(Action[name])
            target.append(len(piece_ps) if name == "compute" else value)
            if name == "compute":
                piece_ps.append(value)
                piece_instance.append(instance)
        first.append(len(action))
    count = 1 + len(tasks)
    successors: list[list[int]] = [[] for _ in range(count)]
    for instance, (_, before) in enumerate(tasks, 1):
        for one in before:
            successors[one].append(instance)
    creates = [any(name == "create" for name, _ in steps) for steps, _ in phases]
    lengths = np.array([len(steps) for steps, _ in phases])
    num_pieces = len(piece_ps)
    no_segment = np.zeros(num_pieces, np.int64)
    made = np.cumsum([0, *(len(tasks) * (k == creates.index(True)) for k in range(len(phases)))] if tasks else [0])
    return NodeProgram(
        rank=rank,
        num_cores=1,
        step_action=np.array(action, np.uint8),
        step_target=np.array(target, np.int32),
        first_step=np.array(first, np.int64),
        parent=np.array([-1] + [0] * len(tasks), np.int32),
        task_type=np.array([-1] + [0] * len(tasks), np.int32),
        priority=np.zeros(count, np.int32),
        instance_flags=np.zeros(count, np.uint8),
        instance_id=np.arange(count, dtype=np.int32),
        num_predecessors=np.array([0] + [len(before) for _, before in tasks], np.int32),
        first_successor=np.cumsum([0] + [len(each) for each in successors]).astype(np.int64),
        successor=np.array([one for each in successors for one in each], np.int32),
        first_chunk=np.zeros(1, np.int32),
        piece_ps=np.array(piece_ps, np.int64),
        piece_instance=np.array(piece_instance, np.int32),
        piece_event=np.full(num_pieces, -1, np.int64),
        first_segment=no_segment,
        end_segment=no_segment,
        part=np.zeros(num_pieces, np.int32),
        num_parts=np.ones(num_pieces, np.int32),
        phase_first_step=np.concatenate(([0], np.cumsum(lengths))).astype(np.int64),
        phase_first_instance=(1 + (made if tasks else np.zeros(len(phases) + 1))).astype(np.int32),
        phase_operation=np.array([operation for _, operation in phases], np.int32),
        phase_iteration=np.full(len(phases), -1, np.int32),
        num_locks=0,
    )


def serial(workload: Workload, rank: int, compute: np.ndarray) -> NodeProgram:
    """A rank whose initial task does all: its compute, then each operation."""
    first, end = workload.rank_offsets[rank : rank + 2]
    return node_program(rank, [([("compute", int(compute[row]))], row - first) for row in range(first, end)])


def compute_of(workload: Workload) -> np.ndarray:
    return compute_per_operation(workload, workload.column("phases", "duration_ps"))


def coupled(
    workload: Workload,
    nodes: Sequence[NodeProgram | None],
    num_cores: int = 1,
    law: Network | None = None,
    model: str = "latency-bandwidth",
    keep: Sequence[int] = (),
    speeds: np.ndarray | None = None,
) -> CoupledTimeline:
    law = law or network()
    program = build_program(workload, law.collectives)
    times = [None if node is None else read_only(node.piece_ps, np.int64) for node in nodes]
    placement = Placement.one_per_node(workload.num_ranks)
    return replay_coupled(
        program, compute_of(workload), nodes, times, num_cores, RuntimeSystem(), law, placement, model=model,
        keep_ranks=keep, speeds=speeds,
    )  # fmt: skip


def overlapping(rank: int, operation: int, last: int, compute_ps: int) -> NodeProgram:
    """After init, two independent tasks: one communicates by ``operation``, one computes; then finalize."""
    main: Steps = [("create", 1), ("create", 2), ("barrier", 0)]
    tasks: list[tuple[Steps, Sequence[int]]] = [([("operation", operation)], ()), ([("compute", compute_ps)], ())]
    return node_program(rank, [([], 0), (main, last)], tasks)


@pytest.mark.theory
class TestOverlap:
    @pytest.mark.parametrize("compute_us", [1, 40, 500])
    @pytest.mark.parametrize("num_cores", [1, 2])
    def test_a_phase_takes_the_longer_of_compute_and_communication(self, tmp_path, compute_us, num_cores):
        """C and M on one core, the longer of them on two; the receiver posts at once, so M is the message's cost."""
        workload = trace(tmp_path, "recv 1 0 100000", "send 0 0 100000")
        compute = compute_us * US
        result = coupled(workload, [overlapping(0, 1, 2, compute), None], num_cores)
        expected = max(compute, cost(100_000)) if num_cores == 2 else compute + cost(100_000)
        assert result.makespan_ps == expected
        assert result.busy_ps.sum() == compute
        assert result.blocked_ps.sum() == cost(100_000)

    @pytest.mark.parametrize("speed", [1.0, 0.5, 0.01])
    def test_cores_of_other_speeds_take_longer_to_compute_and_not_to_communicate(self, tmp_path, speed):
        """C = 500 us on rank 0, whose cores are of that speed; those of rank 1 count for nothing here."""
        workload = trace(tmp_path, "recv 1 0 100000", "send 0 0 100000")
        speeds = np.array([[speed, speed], [0.001, 0.001]])
        result = coupled(workload, [overlapping(0, 1, 2, 500 * US), None], 2, speeds=speeds)
        assert result.makespan_ps == max(500 * US / speed, cost(100_000))
        assert result.busy_ps.sum() == 500 * US / speed
        assert result.blocked_ps.sum() == cost(100_000)

    def test_two_operations_of_a_rank_overlap(self, tmp_path):
        """Both messages travel at the same time; the second is named by its own tag."""
        workload = trace(tmp_path, "recv 1 1 1000; recv 2 2 5000", "send 0 1 1000", "send 0 2 5000")
        main: Steps = [("create", 1), ("create", 2), ("barrier", 0)]
        tasks: list[tuple[Steps, Sequence[int]]] = [([("operation", 1)], ()), ([("operation", 2)], ())]
        result = coupled(workload, [node_program(0, [([], 0), (main, 3)], tasks), None, None], 2)
        assert result.makespan_ps == cost(5000)
        assert result.begin_ps[1:3].tolist() == [0, 0]

    def test_chains_across_ranks(self, tmp_path):
        """compute 30 us -> send; recv -> compute 20 us on the other rank, which computes 100 us beside."""
        workload = trace(tmp_path, "send 1 0 1000", "recv 0 0 1000")
        tasks: list[tuple[Steps, Sequence[int]]] = [
            ([("compute", 30 * US)], ()), ([("operation", 1)], (1,)), ([("compute", 50 * US)], ())
        ]  # fmt: skip
        main: Steps = [("create", 1), ("create", 2), ("create", 3), ("barrier", 0)]
        sender = node_program(0, [([], 0), (main, 2)], tasks)
        tasks = [([("operation", 1)], ()), ([("compute", 20 * US)], (1,)), ([("compute", 100 * US)], ())]
        receiver = node_program(1, [([], 0), (main, 2)], tasks)
        result = coupled(workload, [sender, receiver], 2, keep=[1])
        assert result.rank_end_ps.tolist() == [50 * US, 100 * US]
        assert result.timeline.end_ps.reshape(2, 3)[:, 1].tolist() == [30 * US, 30 * US + cost(1000)]
        rows = result.cores
        assert rows.rank.tolist() == [1] * 3
        waits = rows.operation >= 0
        assert rows.end_ps[waits].tolist() == [30 * US + cost(1000)]
        assert rows.start_ps[rows.instance == 2].tolist() == [30 * US + cost(1000)]
        assert rows.end_ps[rows.instance == 2].tolist() == [50 * US + cost(1000)]

    def test_what_is_exposed_is_what_no_core_computes_under(self, tmp_path):
        """A message of 90 us under 40 us of compute: 50 us of the rank are spent in the receive alone."""
        size = 100_000 - 16
        workload = trace(tmp_path, f"recv 1 0 {size}", f"send 0 0 {size}")
        result = coupled(workload, [overlapping(0, 1, 2, 40 * US), None], 2)
        assert (result.exposed_ps[1], result.timeline.end_ps[1]) == (40 * US, 90 * US)
        assert (result.exposed_ps[2], result.timeline.end_ps[2]) == (90 * US, 90 * US)

    def test_cores_that_wait_for_messages_do_not_compute(self, tmp_path):
        """As many blocked receives as cores: the compute comes after them, though it was ready before."""
        workload = trace(tmp_path, "recv 1 1 1000; recv 1 2 1000", "send 0 1 1000; send 0 2 1000")
        tasks: list[tuple[Steps, Sequence[int]]] = [
            ([("operation", 1)], ()), ([("operation", 2)], ()), ([("compute", 5 * US)], ())
        ]  # fmt: skip
        main: Steps = [("create", 1), ("create", 2), ("create", 3), ("barrier", 0)]
        node = node_program(0, [([], 0), (main, 3)], tasks)
        assert coupled(workload, [node, None], 2).makespan_ps == cost(1000) + 5 * US
        assert coupled(workload, [node, None], 3).makespan_ps == cost(1000)

    def test_compute_after_the_last_operation_counts(self, tmp_path):
        workload = trace(tmp_path, "compute 0", "compute 0")
        node = node_program(0, [([], 0), ([], 1), ([("compute", 7)], 2)])
        assert coupled(workload, [node, None]).rank_end_ps.tolist() == [7, 0]


@pytest.mark.property
def test_traced_tasks_on_one_core_are_the_replay() -> None:
    """Cholesky communicates between its phases: one core executes the instances one after another, as they were traced,
    and the phases of more cores are shorter."""
    workload = workload_folder.read(shipped.folder() / "cholesky-8.tar.zst")
    nodes = [build_node_program(workload, rank, 1) for rank in range(workload.num_ranks)]
    assert not any(node.is_coupled for node in nodes)
    assert sum(node.num_instances for node in nodes) > 1000
    assert_is_the_replay(workload, nodes, network(), "latency-bandwidth")


@pytest.mark.property
def test_traced_tasks_that_communicate() -> None:
    """Jacobi exchanges halos in tasks. No rank is faster than its work on all cores, none slower than on one without
    any overlap; more cores hide more."""
    workload = workload_folder.read(shipped.folder() / "jacobi-8.tar.zst")
    work = np.add.reduceat(compute_of(workload), workload.rank_offsets[:-1])
    makespans = []
    for num_cores in (1, 2, 8):
        nodes = [build_node_program(workload, rank, num_cores) for rank in range(workload.num_ranks)]
        assert all(node.is_coupled for node in nodes)
        result = coupled(workload, nodes, num_cores)
        assert np.all(result.rank_end_ps * num_cores >= work)
        assert result.busy_ps.reshape(-1, num_cores).sum(axis=1).tolist() == work.tolist()
        makespans.append(result.makespan_ps)
    law = network()
    serial_run = lookup("network", "latency-bandwidth").replay(
        build_program(workload, law.collectives), compute_of(workload), law, Placement.one_per_node(8)
    )
    assert makespans[0] == pytest.approx(serial_run.makespan_ps, rel=0.01)  # tasks run later than where they were made
    assert makespans[0] > makespans[1] > makespans[2]


def random_trace(factory: pytest.TempPathFactory, seed: int) -> Workload:
    path = factory.mktemp("coupled") / "actions.txt"
    lines = [f"{rank} {line}\n" for rank, actions in enumerate(generate(seed).actions) for line in actions]
    path.write_text("".join(lines))
    return simgrid_ti.read(path)


def assert_is_the_replay(workload: Workload, nodes: Sequence[NodeProgram | None], law: Network, model: str) -> None:
    """To the picosecond; under flow, whose times are fractions, to one for each operation of a chain."""
    compute = compute_of(workload)
    program = build_program(workload, law.collectives)
    placement = Placement.one_per_node(workload.num_ranks)
    expected = lookup("network", model).replay(program, compute, law, placement)
    result = coupled(workload, nodes, law=law, model=model)
    slack = workload.num_operations if model == "flow" else 0
    begin = np.concatenate([[0], expected.end_ps[:-1]])
    begin[workload.rank_offsets[:-1]] = 0
    assert np.abs(result.timeline.end_ps - expected.end_ps).max() <= slack
    assert np.abs(result.timeline.send_ps - expected.send_ps).max(initial=0) <= slack
    assert np.abs(result.timeline.receive_ps - expected.receive_ps).max(initial=0) <= slack
    assert np.abs(result.begin_ps - (begin + compute)).max() <= slack
    assert np.abs(result.exposed_ps - (begin + compute)).max() <= slack


@pytest.mark.property
@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), mixed=st.booleans(), start=st.sampled_from(["match", "eager"]))
def test_without_overlap_it_is_the_replay(
    tmp_path_factory: pytest.TempPathFactory, seed: int, mixed: bool, start: str
) -> None:
    """Ranks of one core that communicate in the initial task only."""
    workload = random_trace(tmp_path_factory, seed)
    compute = compute_of(workload)
    nodes = [None if mixed and rank % 2 else serial(workload, rank, compute) for rank in range(workload.num_ranks)]
    assert_is_the_replay(workload, nodes, network(transfer_start=start), "latency-bandwidth")


@pytest.mark.slow
@pytest.mark.property
@pytest.mark.parametrize("model", ["flow", "dimemas"])
def test_transfers_that_hinder_each_other_too(tmp_path_factory: pytest.TempPathFactory, model: str) -> None:
    changes: dict[str, object] = {"topology": {"kind": "crossbar"}} if model == "flow" else {}
    for seed in range(30):
        workload = random_trace(tmp_path_factory, seed)
        compute = compute_of(workload)
        some = [rank for rank in range(workload.num_ranks) if seed % 2 == 0 or rank % 2 == 0]
        nodes = [serial(workload, rank, compute) if rank in some else None for rank in range(workload.num_ranks)]
        assert_is_the_replay(workload, nodes, network(**changes), model)


@dataclass
class RandomTasks:
    """Ranks of tasks of one step of compute, often a message, and compute again. The k-th tasks of two ranks may have a
    message in common; tasks wait for earlier ones of their rank. So no order of them gets stuck, unless cores lack."""

    seed: int
    with_predecessors: bool

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.num_ranks, self.num_tasks = self.random.randint(2, 5), self.random.randint(1, 7)
        self.before = [
            [
                sorted({self.random.randrange(k) for _ in range(self.random.randint(0, 2))})
                if k and self.with_predecessors else []
                for k in range(self.num_tasks)
            ]
            for _ in range(self.num_ranks)
        ]  # fmt: skip
        self.compute = [
            [[self.random.choice((0, 1, 7, 20, 300)) * US for _ in range(2)] for _ in range(self.num_tasks)]
            for _ in range(self.num_ranks)
        ]
        self.messages: list[list[tuple[int, int, int]]] = []  # per task: source, destination, bytes
        for _ in range(self.num_tasks):
            ranks = self.random.sample(range(self.num_ranks), self.num_ranks)
            pairs = zip(ranks[::2], ranks[1::2], strict=False)
            sizes = (0, 1000, 65535, 65536, 10**6)
            self.messages.append([(*pair, self.random.choice(sizes)) for pair in pairs if self.random.random() < 0.8])

    def workload(self, folder: Path) -> Workload:
        lines: list[list[str]] = [[] for _ in range(self.num_ranks)]
        for k, messages in enumerate(self.messages):
            for source, destination, size in messages:
                lines[source].append(f"send {destination} {k} {size}")
                lines[destination].append(f"recv {source} {k} {size}")
        return trace(folder, *("; ".join(each) or "compute 0" for each in lines))

    def node_programs(self) -> list[NodeProgram]:
        result = []
        for rank in range(self.num_ranks):
            operation = 0
            tasks: list[tuple[Steps, Sequence[int]]] = []
            for k in range(self.num_tasks):
                first, second = self.compute[rank][k]
                steps = [("compute", first), ("compute", second)]
                if any(rank in message[:2] for message in self.messages[k]):
                    operation += 1
                    steps.insert(1, ("operation", operation))
                tasks.append((steps, [1 + other for other in self.before[rank][k]]))
            main = [*(("create", 1 + k) for k in range(self.num_tasks)), ("barrier", 0)]
            result.append(node_program(rank, [([], 0), (main, operation + 1)], tasks))
        return result

    def ends(self) -> list[int]:
        """When each rank ends, if it has a core for each task: the longest paths, task by task."""
        end = [[0] * self.num_tasks for _ in range(self.num_ranks)]
        for k in range(self.num_tasks):
            done = [
                max((end[rank][other] for other in self.before[rank][k]), default=0) + self.compute[rank][k][0]
                for rank in range(self.num_ranks)
            ]
            for source, destination, size in self.messages[k]:
                arrived = max(done[source], done[destination]) + cost(size)
                done[destination] = arrived
                if size >= 65536:
                    done[source] = arrived
            for rank in range(self.num_ranks):
                end[rank][k] = done[rank] + self.compute[rank][k][1]
        return [max(each) for each in end]


@pytest.mark.property
@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_with_a_core_for_each_task_it_is_the_longest_path(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    tasks = RandomTasks(seed, with_predecessors=True)
    workload = tasks.workload(tmp_path_factory.mktemp("tasks"))
    result = coupled(workload, tasks.node_programs(), tasks.num_tasks + 1)
    assert result.rank_end_ps.tolist() == tasks.ends()


@pytest.mark.property
@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), num_cores=st.integers(1, 4))
def test_cores_and_states_tile_the_run(tmp_path_factory: pytest.TempPathFactory, seed: int, num_cores: int) -> None:
    tasks = RandomTasks(seed, with_predecessors=False)
    workload = tasks.workload(tmp_path_factory.mktemp("tasks"))
    ranks = range(tasks.num_ranks)
    result = coupled(workload, tasks.node_programs(), num_cores, keep=ranks)
    assert all(end >= least for end, least in zip(result.rank_end_ps.tolist(), tasks.ends(), strict=True))
    for rank in ranks:
        work = sum(map(sum, tasks.compute[rank]))
        assert result.busy_ps[result.core_rank == rank].sum() == work
        assert result.rank_end_ps[rank] * num_cores >= work
    rows = result.cores
    place = rows.rank.astype(np.int64) * num_cores + rows.core
    assert np.all((rows.start_ps[1:] >= rows.end_ps[:-1]) | (place[1:] > place[:-1]))
    duration = rows.end_ps - rows.start_ps
    assert duration[rows.operation < 0].sum() == result.busy_ps.sum()
    assert duration[rows.operation >= 0].sum() == result.blocked_ps.sum()
    states = ranks_table(workload, result.exposed_ps, result.timeline.end_ps, result.rank_end_ps)
    for rank, computing in zip(ranks, any_core_computes(result), strict=True):
        mine = states.filter(pc.equal(states["rank"], rank)).to_pylist()
        assert mine[-1]["end_ps"] == result.rank_end_ps[rank] if mine else result.rank_end_ps[rank] == 0
        assert [row["start_ps"] for row in mine] == [0, *(row["end_ps"] for row in mine[:-1])][: len(mine)]
        assert sum(row["end_ps"] - row["start_ps"] for row in mine if row["state"] == "compute") == computing


def any_core_computes(result: CoupledTimeline) -> list[int]:
    """Of each rank, how long at least one core computes."""
    total = [0] * len(result.rank_end_ps)
    for rank in range(len(total)):
        until = 0
        chosen = (result.cores.rank == rank) & (result.cores.operation < 0)
        for start, end in sorted(zip(result.cores.start_ps[chosen], result.cores.end_ps[chosen], strict=True)):
            total[rank] += max(0, int(end) - max(int(start), until))
            until = max(until, int(end))
    return total


@pytest.mark.contract
class TestRefusals:
    def test_a_deadlock_names_ranks_and_operations(self, tmp_path):
        workload = trace(tmp_path, "recv 1 0 8; send 1 0 8", "recv 0 0 8; send 0 0 8")
        tasks: list[tuple[Steps, Sequence[int]]] = [([("operation", 1)], ()), ([("operation", 2)], (1,))]
        main: Steps = [("create", 1), ("create", 2), ("barrier", 0)]
        nodes = [node_program(rank, [([], 0), (main, 3)], tasks) for rank in range(2)]
        with pytest.raises(ReplayError, match=r"deadlock: 2 of 2 .* rank 0, operation 1 waits for 8 B from rank 1"):
            coupled(workload, nodes, 2)
        with pytest.raises(ReplayError, match="rank 1, operation 1 waits for 8 B from rank 0"):
            coupled(workload, [nodes[0], None], 2)

    def test_a_non_blocking_collective_that_one_leaves_out(self, tmp_path):
        workload = trace(tmp_path, "ibarrier 0; waitall 1", "ibarrier 0; waitall 1")
        compute = compute_of(workload)
        stuck = node_program(
            1, [([], 0), ([("operation", 1), ("create", 1), ("barrier", 0)], 3)], [([("operation", 2)], ())]
        )
        assert coupled(workload, [serial(workload, 0, compute), stuck]).makespan_ps == cost(0)

    def test_instances_that_wait_for_each_other(self, tmp_path):
        workload = trace(tmp_path, "compute 0", "compute 0")
        tasks: list[tuple[Steps, Sequence[int]]] = [([("compute", 1)], (2,)), ([("compute", 1)], (1,))]
        node = node_program(0, [([], 0), ([("create", 1), ("create", 2), ("barrier", 0)], 1)], tasks)
        with pytest.raises(ReplayError, match=r"1 of 2 ranks .*: rank 0, .* task instance 1 waits for ever for 1 of"):
            coupled(workload, [node, None], 2)

    def test_an_operation_that_stands_nowhere(self, tmp_path):
        workload = trace(tmp_path, "send 1 0 8", "recv 0 0 8")
        node = node_program(0, [([], 0), ([], 2)])
        with pytest.raises(ValueError, match="rank 0, operation 1 stands 0 times"):
            coupled(workload, [node, None])

    def test_a_model_without_strands(self, tmp_path):
        workload = trace(tmp_path, "send 1 0 8", "recv 0 0 8")
        node = serial(workload, 0, compute_of(workload))
        with pytest.raises(ValueError, match=r"loggops cannot join .*; choose one of latency-bandwidth, flow, dimemas"):
            coupled(workload, [node, None], model="loggops")
        with pytest.raises(ValueError, match="no rank has a node program"):
            coupled(workload, [None, None])
        program = build_program(workload, network().collectives)
        with pytest.raises(ValueError, match="rank 0: 1 times for 3 pieces"):
            replay_coupled(
                program, compute_of(workload), [node, None], [np.zeros(1, np.int64), None], 1, RuntimeSystem(),
                network(), Placement.one_per_node(2),
            )  # fmt: skip
