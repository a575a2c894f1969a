"""Iterations of the main loop: sequences made of known loops, real traces of runs with known counts, marks."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from manyscale.models.workload import (
    COMMUNICATORS_SCHEMA,
    KIND_NAMES,
    OPERATIONS_SCHEMA,
    PHASES_SCHEMA,
    REGIONS_SCHEMA,
    OperationKind,
    PhaseKind,
    Workload,
)
from manyscale.models.workload.iterations import find_iterations, windows
from manyscale.models.workload.loop_search import find_loops
from manyscale.models.workload.task_tables import EVENTS_SCHEMA, ITERATIONS_SCHEMA, EventKind
from manyscale.runner import shipped
from manyscale.runner.cli import main
from manyscale.runner.cli.iterations import summary as iterations_summary
from manyscale.runner.run.questions.iterations import iteration_figures
from manyscale.runner.study import WorkloadChoice, traces

HALO = ("isend 1 100", "irecv 1 100", "waitall")
SOLVER = (*HALO, "allreduce 8")


def workload(*ranks, events=None) -> Workload:
    """``ranks``: operations as "kind peer bytes" or "kind bytes"; ``events``: per rank (operation_id, kind, type,
    value)."""
    rows = []
    for rank, operations in enumerate(ranks):
        for text in operations:
            kind, *numbers = text.split()
            peer = int(numbers[0]) if len(numbers) == 2 else -2
            size = int(numbers[-1]) if numbers else 0
            rows.append(
                {
                    "rank": rank, "kind": kind, "peer": peer, "source": -2, "tag": 0, "bytes": size,
                    "receive_bytes": 0, "communicator_id": 0, "request": -1,
                }
            )  # fmt: skip
    kinds = [OperationKind[row["kind"]] for row in rows]
    codes = pa.DictionaryArray.from_arrays(pa.array(kinds, pa.int8()), KIND_NAMES)
    tables = {
        "operations": pa.Table.from_pylist(rows, OPERATIONS_SCHEMA).set_column(1, OPERATIONS_SCHEMA.field(1), codes),
        "phases": PHASES_SCHEMA.empty_table(),
        "regions": REGIONS_SCHEMA.empty_table(),
        "communicators": pa.table({"members": [list(range(len(ranks)))]}, schema=COMMUNICATORS_SCHEMA),
    }
    if events is not None:
        happened = [
            {
                "rank": rank, "operation_id": operation, "kind": kind, "task_instance_id": 0, "task_type_id": task_type,
                "value": value, "cpu_ps": 0,
            }
            for rank, mine in enumerate(events)
            for operation, kind, task_type, value in mine
        ]  # fmt: skip
        tables["events"] = pa.Table.from_pylist(happened, EVENTS_SCHEMA)
    # unchecked: some ranks of a run, whose partners and tasks have no rows
    return Workload("made", len(ranks), tables, is_checked=True)


def timed(made: Workload, durations: list[int]) -> Workload:
    """With a compute phase of so many ps before each operation."""
    operations = made.tables["operations"]
    first = made.rank_offsets[operations.column("rank").to_numpy()]
    rows = [
        {"rank": rank, "operation_id": i, "kind": PhaseKind.compute, "region_id": -1, "duration_ps": duration}
        for rank, i, duration in zip(
            operations.column("rank").to_pylist(), (np.arange(len(first)) - first).tolist(), durations, strict=True
        )
    ]
    tables = {**made.tables, "phases": pa.Table.from_pylist(rows, PHASES_SCHEMA)}
    return Workload("made", made.num_ranks, tables, is_checked=True)


def cuts(found: pa.Table, rank: int = 0) -> list[tuple[int, int]]:
    """(first operation, end) of a rank's iterations."""
    rows = [row for row in found.to_pylist() if row["rank"] == rank]
    assert [row["iteration"] for row in rows] == list(range(len(rows)))
    return [(row["first_operation_id"], row["end_operation_id"]) for row in rows]


def count(found: pa.Table) -> int:
    numbers = {len(cuts(found, rank)) for rank in set(found.column("rank").to_pylist())}
    return numbers.pop() if len(numbers) == 1 else (0 if not numbers else -1)


@pytest.mark.theory
class TestOneRank:
    def test_prologue_loop_epilogue(self):
        step = ("isend 1 8", "irecv 1 8", "waitall", "allreduce 8")
        found = find_iterations(workload(["init", "bcast 4", *step * 5, "reduce 8", "finalize"]))
        assert cuts(found) == [(2 + 4 * i, 6 + 4 * i) for i in range(5)]
        assert found.schema.equals(ITERATIONS_SCHEMA)
        assert not any(found.column("annotated").to_pylist())

    def test_iterations_end_with_their_reductions(self):
        operations = ["init", "allreduce 8", *("send 1 8", "recv 1 8", "allreduce 8") * 6, "finalize"]
        assert cuts(find_iterations(workload(operations))) == [(2 + 3 * i, 5 + 3 * i) for i in range(6)]

    def test_two_repeats_are_none_unless_asked_for(self):
        operations = ["init", "send 1 8", "barrier", "send 1 8", "barrier", "finalize"]
        assert find_iterations(workload(operations)).num_rows == 0
        assert count(find_iterations(workload(operations), min_repeats=2)) == 2

    def test_a_set_up_that_repeats_in_no_time_is_no_main_loop(self):
        """Five broadcasts 50 ns apart and a second of computation; then with a loop of ten steps of 0.1 s."""
        set_up = ["init", *["bcast 4"] * 5, "reduce 8", "finalize"]
        brief = [0, *[50_000] * 5, 10**12, 0]
        assert find_iterations(workload(set_up)).num_rows == 5
        assert find_iterations(timed(workload(set_up), brief)).num_rows == 0
        before_and_behind = ["init", *["bcast 4"] * 8, "finalize"]
        slow_ends = [0, 10**12, *[50_000] * 7, 10**12]
        assert find_iterations(timed(workload(before_and_behind), slow_ends)).num_rows == 0
        steps = [*set_up[:-1], *["allreduce 8"] * 10, "finalize"]
        found = find_iterations(timed(workload(steps), [*brief[:-1], *[10**11] * 10, 0]))
        assert cuts(found) == [(7 + i, 8 + i) for i in range(10)]

    def test_iterations_are_longer_than_the_clock_tells(self):
        """50 ns each, and nothing else; of two ranks, the time of calls is not known."""
        operations = ["init", *["allreduce 8"] * 10, "finalize"]
        assert find_iterations(timed(workload(operations), [0, *[50_000] * 10, 0])).num_rows == 0
        assert count(find_iterations(timed(workload(operations), [0, *[5_000_000] * 10, 0]))) == 10
        assert count(find_iterations(timed(workload(operations, operations), [0, *[50_000] * 10, 0] * 2))) == 10

    def test_regions_that_repeat_in_no_time_are_no_main_loop(self):
        events = [(1, EventKind.parallel_begin, 0, 0)] * 6
        made = workload(["init", "finalize"], events=[events])
        assert find_iterations(made).num_rows == 6
        assert find_iterations(timed(made, [0, 10**12])).num_rows == 0

    def test_no_loop(self):
        random = np.random.default_rng(5)
        kinds = ("send 1", "recv 1", "allreduce", "bcast", "reduce", "gather")
        operations = [f"{kinds[random.integers(6)]} {random.integers(4)}" for _ in range(400)]
        assert find_iterations(workload(["init", *operations, "finalize"])).num_rows == 0
        assert find_iterations(workload(["init", "finalize"])).num_rows == 0
        assert find_iterations(workload([])).num_rows == 0

    def test_rounds_of_the_solver_differ_from_step_to_step(self):
        rounds = (4, 7, 2, 9, 1, 5)
        operations = ["init"]
        begins = []
        for number in rounds:
            begins.append(len(operations))
            operations += ["isend 2 900", "wait", *SOLVER * number, "allreduce 64"]
        found = find_iterations(workload([*operations, "finalize"]))
        assert [first for first, _ in cuts(found)] == begins
        inner = find_iterations(workload([*operations, "finalize"]), level=1)
        assert abs(count(inner) - sum(rounds)) <= len(rounds)

    def test_output_now_and_then_makes_no_longer_iterations(self):
        step = ("send 1 8", "recv 1 8", "send 2 8", "recv 2 8", "allreduce 8")
        operations = ["init", *(step * 10 + ("gather 0 100",)) * 5, "finalize"]
        found = find_iterations(workload(operations))
        assert count(found) == 50
        assert cuts(found)[9] == (46, 52)  # the output belongs to the tenth

    def test_stages_and_a_reduction_are_one_step(self):
        operations = ["init", *(("send 1 8", "recv 1 8") * 4 + ("allreduce 8",)) * 6, "finalize"]
        assert count(find_iterations(workload(operations))) == 6

    def test_an_extra_call_inside_some_iterations(self):
        plain = ("isend 1 8", "irecv 1 8", "waitall", "isend 2 8", "irecv 2 8", "waitall", "allreduce 8")
        longer = (*plain[:4], "bcast 3", *plain[4:])
        operations = ["init"]
        for i in range(50):
            operations += longer if i in (3, 17, 18, 39) else plain
        assert count(find_iterations(workload([*operations, "finalize"]))) == 50

    def test_the_first_and_last_iteration_lack_a_call(self):
        step = [f"send 1 {i}" for i in range(1, 8)]
        operations = ["init", *step, *(["allreduce 8", *step] * 9), "finalize"]
        assert count(find_iterations(workload(operations))) == 10

    def test_sizes_differ_every_time(self):
        operations = ["init"]
        for i in range(20):
            operations += [f"send 1 {100 + 7 * i * i}", f"recv 2 {30 + i**3}", "allreduce 8", "allreduce 16"]
        assert count(find_iterations(workload([*operations, "finalize"]))) == 20

    def test_partners_differ_every_time(self):
        operations = ["init"]
        for i in range(20):
            operations += [f"bcast {(i * i) % 7} {50 + i}", "allreduce 8", f"send {(3 * i * i) % 11} 8", "barrier"]
        assert count(find_iterations(workload([*operations, "finalize"]))) == 20

    def test_tests_and_waits_play_no_part(self):
        random = np.random.default_rng(3)
        operations = ["init"]
        for _ in range(12):
            operations += ["isend 1 8", *["test"] * random.integers(0, 5), "irecv 1 8", *["other"] * random.integers(2)]
            operations += ["waitany"] * random.integers(1, 3)
        found = cuts(find_iterations(workload([*operations, "finalize"])))
        assert len(found) == 12
        assert all(operations[first] == "isend 1 8" for first, _ in found)
        assert found[-1][1] == len(operations)

    def test_parameters_are_checked(self):
        with pytest.raises(ValueError, match="min_repeats 1, level 0"):
            find_iterations(workload(["init"]), min_repeats=1)


@pytest.mark.theory
class TestSeveralRanks:
    def test_a_rank_with_fewer_neighbours(self):
        inner = ["init", *["send 1 8", "recv 1 8", "send 2 8", "recv 2 8", "allreduce 8"] * 6, "finalize"]
        border = ["init", *["send 1 8", "recv 1 8", "allreduce 8"] * 6, "finalize"]
        found = find_iterations(workload(inner, border))
        assert count(found) == 6
        assert cuts(found, 1)[0] == (1, 4)

    def test_a_rank_that_repeats_more_often_is_folded(self):
        whole = ["init", *["send 1 8", "recv 1 16", "send 2 8", "recv 1 4"] * 6, "finalize"]
        part = ["init", *["recv 0 8"] * 12, "finalize"]
        found = find_iterations(workload(whole, whole, part))
        assert count(found) == 6
        assert cuts(found, 2) == [(1 + 2 * i, 3 + 2 * i) for i in range(6)]

    def test_a_rank_without_a_period_is_cut_at_the_collectives_of_the_others(self):
        regular = ["init", *["send 1 8", "recv 1 8", "allreduce 8"] * 6, "finalize"]
        odd = ["init"]
        for i in range(6):
            odd += [f"send {j * j % 5} {i * j}" for j in range(1 + i * i % 4)] + ["allreduce 8"]
        found = find_iterations(workload(regular, regular, [*odd, "finalize"]))
        assert count(found) == 6
        ends = [end for _, end in cuts(found, 2)]
        assert [odd[end - 1] for end in ends] == ["allreduce 8"] * 6

    def test_collectives_before_each_cut_are_the_same_on_all_ranks(self):
        step = ["send 1 8", "recv 1 8", "allreduce 8", "send 1 4", "recv 1 4", "allreduce 8"]
        usual = ["init", "allreduce 8", *step * 7, "finalize"]
        other = ["init", "recv 1 4", "allreduce 8", *step * 7, "finalize"]  # begins as a step ends
        found = find_iterations(workload(usual, other, usual))
        assert count(found) == 7
        for k in range(7):
            passed = set()
            for rank, operations in enumerate((usual, other, usual)):
                first = cuts(found, rank)[k][0]
                passed.add(sum(text.startswith("allreduce") for text in operations[:first]))
            assert len(passed) == 1

    def test_ranks_that_cannot_agree(self):
        found = find_iterations(
            workload(["init", *["send 1 8", "recv 1 8"] * 7], ["init", *["send 0 8", "recv 0 8"] * 5])
        )
        assert found.num_rows == 0


@pytest.mark.property
@settings(deadline=None, max_examples=200)
@given(
    body=st.lists(st.integers(0, 5), min_size=1, max_size=12),
    repeats=st.integers(4, 20),
    prologue=st.lists(st.integers(10, 1000), max_size=6, unique=True),
    epilogue=st.lists(st.integers(2000, 3000), max_size=6, unique=True),
)
def test_a_loop_that_dominates_is_counted(body, repeats, prologue, epilogue):
    """The body ends with a symbol of its own, so that it is no repetition itself."""
    body = [*body, 6]
    assume(len(body) * repeats > 2 * (len(prologue) + len(epilogue)))
    operations = [f"send 1 {size}" for size in [*prologue, *body * repeats, *epilogue]]
    found = cuts(find_iterations(workload(operations)))
    assert len(found) == repeats
    for first, end in found:
        assert end - first == len(body)
    assert found[0][0] == len(prologue)


@pytest.mark.property
@settings(deadline=None, max_examples=100)
@given(rounds=st.lists(st.integers(1, 6), min_size=4, max_size=12), body=st.integers(1, 5))
def test_nested_loops_are_found_whatever_their_rounds(rounds, body):
    """Outer rounds with two calls of their own around an inner loop of as many rounds as are drawn."""
    symbols = []
    for number in rounds:
        symbols += [100, 101, *list(range(body)) * number]
    loops = find_loops(np.array(symbols, np.uint64) * np.uint64(0x9E3779B97F4A7C15), 3)
    assert any(loop.period == 2 + body and loop.num_repeats == len(rounds) for loop in loops)


# Counts from the programs' arguments and sources. CoMD: 20 steps, in which it prints after every tenth. NAS CG: niter
# 15 after one untimed; 25 solver steps and the last matrix-vector product in each, 26 rounds of the same exchanges.
# NAS IS: 10 iterations after one untimed. LULESH: -i.
KNOWN = {"lulesh-8": 50, "lulesh-64": 30, "lulesh-imb-64": 30, "comd-8": 20, "nas-cg-A-8": 16, "nas-cg-A-64": 16,
         "nas-is-A-8": 11, "nas-is-A-64": 11}  # fmt: skip


# LULESH -i 10; what the file's name says; nsteps of EPOCH's input deck.
OTHERS = {
    "mpi/lulesh-216/trace.tar.zst": 10,
    "formats/paraver/mess-lulesh/lulesh_4+4_with_uncores_sockets1+2.chop_5it.prv": 5,
    "formats/paraver/pypop-epoch/epoch_4proc.prv.gz": 10,
    "formats/paraver/pypop-epoch/epoch_8proc.prv.gz": 10,
}
DATA = Path(os.environ.get("MANYSCALE_DATA", "/nowhere"))
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="needs the traces in $MANYSCALE_DATA")


def example(name: str) -> Workload:
    return traces.read_workload(WorkloadChoice(path=str(shipped.folder() / f"{name}.tar.zst")))


@pytest.mark.golden
class TestRealTraces:
    @pytest.mark.parametrize("name", KNOWN)
    def test_main_loop(self, name):
        trace = example(name)
        found = find_iterations(trace)
        assert count(found) == KNOWN[name]
        assert found.num_rows == KNOWN[name] * trace.num_ranks

    @needs_data
    @pytest.mark.parametrize(("trace", "expected"), OTHERS.items())
    def test_other_real_traces(self, trace, expected):
        found = find_iterations(traces.read_workload(WorkloadChoice(path=str(DATA / trace))))
        assert count(found) == expected

    @needs_data
    @pytest.mark.known_gap
    def test_epoch_on_two_ranks(self):
        """Left and right neighbour are one rank there, so that exchanges of different fields look alike: of the ten
        steps some are cut in two."""
        path = DATA / "formats" / "paraver" / "pypop-epoch" / "epoch_2proc.prv.gz"
        assert count(find_iterations(traces.read_workload(WorkloadChoice(path=str(path))))) != 10

    def test_lulesh_iterations_hold_all_between_set_up_and_final_reduction(self):
        """Of each time step of rank 0: 17 receives, 10 sends, their waits, and the reduction (not in the first)."""
        found = cuts(find_iterations(example("lulesh-8")))
        assert {end - first for first, end in found[:-1]} == {48}
        assert found[-1][1] - found[-1][0] == 47

    def test_solver_steps_of_nas_cg(self):
        found = count(find_iterations(example("nas-cg-A-8"), level=1))
        assert abs(found - 16 * 26) <= 16

    def test_command(self, tmp_path, capsys):
        given = str(shipped.folder() / "nas-is-A-8.tar.zst")
        table = tmp_path / "found.parquet"
        assert main(["iterations", given, "-o", str(table), "--cache", str(tmp_path / "cache")]) == 0
        assert capsys.readouterr().out.startswith("nas-is-A-8: 11 iterations per rank, found by their period")
        assert pq.read_table(table).select(ITERATIONS_SCHEMA.names).num_rows == 88
        assert main(["iterations", given, "--depth", "-1", "--cache", str(tmp_path / "cache")]) == 2
        assert "levels count from 0" in capsys.readouterr().err

    def test_summary(self):
        trace = example("comd-8")
        lines = iterations_summary(trace.name, iteration_figures(trace, find_iterations(trace)))
        assert lines[0].startswith("comd-8: 20 iterations per rank, found by their period; they hold 85.2 %")
        assert len(lines) == 22
        nothing = iteration_figures(trace, find_iterations(trace).slice(0, 0))
        assert "no iterations" in iterations_summary(trace.name, nothing)[0]


MARK, PARALLEL, LOOP = EventKind.iteration, EventKind.parallel_begin, EventKind.loop_begin


@pytest.mark.theory
class TestEvents:
    def test_marks_win(self):
        operations = ["init", *["send 1 8", "allreduce 8"] * 12, "reduce 8", "finalize"]
        marks = [(1 + 6 * i, MARK, -1, i + 1) for i in range(4)]  # three rounds of calls in each
        found = find_iterations(workload(operations, events=[marks]))
        assert cuts(found) == [(1 + 6 * i, 7 + 6 * i) for i in range(4)]
        assert found.column("annotated").to_pylist() == [True] * 4
        assert found.column("first_event_id").to_pylist() == [0, 1, 2, 3]
        assert found.column("end_event_id").to_pylist() == [1, 2, 3, 4]

    def test_the_last_marked_iteration_ends_before_the_program_at_the_latest(self):
        operations = ["init", *["send 1 8"] * 9, "finalize"]
        found = find_iterations(workload(operations, events=[[(1, MARK, -1, 0), (6, MARK, -1, 1)]]))
        assert cuts(found) == [(1, 6), (6, 10)]
        found = find_iterations(workload(operations, events=[[(1, MARK, -1, 0)]]))
        assert cuts(found) == [(1, 10)]

    def test_marks_without_communication(self):
        one = [(1, MARK, -1, 0), (1, PARALLEL, 0, 0), (1, PARALLEL, 1, 0)]
        found = find_iterations(
            workload(["init", "finalize"], events=[[*one * 3, (1, PARALLEL, 7, 0), (1, LOOP, 8, 0)]])
        )
        assert cuts(found) == [(1, 1)] * 3
        assert found.column("end_event_id").to_pylist() == [3, 6, 9]

    def test_ranks_without_communication_are_searched_by_their_regions(self):
        one = [(1, PARALLEL, 3, 0), (1, LOOP, 4, 0), (1, EventKind.loop_end, 4, 0), (1, PARALLEL, 5, 0)]
        mine = [(1, PARALLEL, 9, 0), *one * 5]
        found = find_iterations(workload(["init", "finalize"], events=[mine]))
        assert found.column("first_event_id").to_pylist() == [1 + 4 * i for i in range(5)]
        assert found.column("end_event_id").to_pylist() == [5 + 4 * i for i in range(5)]
        assert cuts(found) == [(1, 1)] * 5

    @pytest.mark.parametrize(("blocks", "steps"), [(4, 0), (6, 4)])
    def test_task_types_that_follow_each_other_now_and_then_are_no_main_loop(self, blocks, steps):
        """A blocked Cholesky factorisation: its steps differ in how many tasks they create, the last two in which. Of
        4 x 4 blocks, five of 21 symbols are a type's in a row: a quarter, by chance."""
        kinds = []
        for step in range(blocks):
            rest = range(blocks - step - 1)
            kinds += ["potrf", *["trsm" for _ in rest], *[kind for row in rest for kind in ("syrk", *["gemm"] * row)]]
        created = [(1, EventKind.task_create, ord(kind[0]), 0) for kind in kinds]
        assert count(find_iterations(workload(["finalize"], events=[[(1, PARALLEL, 0, 0), *created]]))) == steps

    def test_events_of_an_iteration_stand_before_its_operations(self):
        operations = ["init", *["send 1 8", "allreduce 8"] * 4, "finalize"]
        events = [(k, PARALLEL, 0, 0) for k in range(1, 9) for _ in range(2)]
        found = find_iterations(workload(operations, events=[events]))
        assert found.column("first_event_id").to_pylist() == [0, 4, 8, 12]


@pytest.mark.theory
class TestWindows:
    """The tracer's window is open while first <= position < end; a position counts what has ended (or begun)."""

    def test_operations_without_tests(self):
        operations = ["init", *["isend 1 8", "test", "irecv 1 8", "wait"] * 4, "finalize"]
        trace = workload(operations, operations)
        trace = replace(trace, tables={**trace.tables, "iterations": find_iterations(trace)}, is_checked=True)
        repeats = np.array(["test" not in text for text in operations] * 2)
        assert windows(trace, repeats, [1], [1, 0]) == [("o", 1, 4, 7), ("o", 0, 4, 7)]
        assert windows(trace, repeats, [0, 3, 9], [0]) == [("o", 0, 1, 4), ("o", 0, 10, 13)]

    def test_events(self):
        one = [(1, PARALLEL, 3, 0), (1, LOOP, 4, 0), (1, PARALLEL, 5, 0)]
        trace = workload(["init", "finalize"], events=[[(1, PARALLEL, 9, 0), *one * 4]])
        trace = replace(trace, tables={**trace.tables, "iterations": find_iterations(trace)}, is_checked=True)
        assert windows(trace, np.ones(2, bool), [1], [0]) == [("e", 0, 4, 7)]

    def test_marks(self):
        operations = ["init", *["send 1 8", "allreduce 8"] * 6, "reduce 8", "finalize"]
        trace = workload(operations, events=[[(1 + 4 * i, MARK, -1, 10 + i) for i in range(3)]])
        trace = replace(trace, tables={**trace.tables, "iterations": find_iterations(trace)}, is_checked=True)
        repeats = np.ones(len(operations), np.int64)
        assert windows(trace, repeats, [0, 1], [0]) == [("i", 0, 10, 11), ("i", 0, 11, 12)]
        # nothing marks where the last one ends, so that a window of marks would stay open
        assert windows(trace, repeats, [2], [0]) == [("o", 0, 9, 13)]

    def test_a_rank_without_iterations(self):
        assert windows(workload(["init"]), np.ones(1, bool), [1], [0]) == []

    def test_a_number_for_each_operation(self):
        with pytest.raises(ValueError, match="2 repeats for 1 operations"):
            windows(workload(["init"]), np.ones(2, bool), [1], [0])
