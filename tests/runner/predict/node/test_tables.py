"""Tables of what happened inside nodes: names of task types, and rows placed in the run by hand."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

from manyscale.runner.predict.node import result_tables, statistics, tables
from manyscale.runner.predict.node.cells.plan import Cell
from manyscale.runner.predict.node.tables import MODELS
from manyscale.runner.predict.phase_source import Replayed

DETAILED = MODELS.index("detailed")


def named(*places):
    """A workload, as far as names of its types go: (function, file, line) of each."""
    columns = {key: [each[i] for each in places] for i, key in enumerate(("function", "file", "line"))}
    return SimpleNamespace(tables={"task_types": pa.table(columns | {"construct": ["task"] * len(places)})})


@pytest.mark.contract
def test_names_of_task_types():
    workload = named(
        ("solve", "src/a.c", 5), ("sweep", "src/a.c", 7), ("sweep", "src/a.c", 9), (".omp_outlined.", "b.c", 3),
        ("", "b.c", 4), ("", "", 0), ("init", "", 0),
    )  # fmt: skip
    expected = ["solve", "sweep (a.c:7)", "sweep (a.c:9)", "b.c:3", "b.c:4", "type 5", "init", "initial task"]
    assert tables.type_names(workload) == expected


@pytest.mark.contract
def test_no_two_types_have_one_name():
    workload = named(("", "a.c", 5), ("", "x/a.c", 5), ("f", "a.c", 1), ("f", "a.c", 1), ("initial task", "a.c", 1))
    names = tables.type_names(workload)
    assert names[:2] == ["a.c:5 #0", "a.c:5 #1"]
    assert len(set(names)) == len(names) == 6
    assert names[-1] == "initial task"


@pytest.mark.contract
def test_codes_below_zero_are_the_initial_task():
    column = np.array([0, 1])
    names = ["a", "initial task"]
    cores = tables.cores_table(names, *[column] * 5, np.array([-1, 0]), *[column] * 5)
    assert cores.schema == tables.CORES_SCHEMA
    assert cores.column("task_type").to_pylist() == ["initial task", "a"]
    assert cores.column("model").to_pylist() == ["burst", "fast-forward"]
    codes, names = tables.codes_and_names(pa.chunked_array([cores.column("task_type").chunk(0)] * 2))
    assert [names[each] for each in codes] == ["initial task", "a"] * 2
    many = tables.task_instances_table(names, *[column] * 3, np.array([0, -1]), *[column] * 13)
    assert many.schema == tables.TASK_INSTANCES_SCHEMA
    assert many.column("cycles").to_pylist() == [0.0, 1.0]


@pytest.mark.contract
def test_misses_are_known_of_what_was_simulated_in_detail_alone():
    models = ("interval", "detailed", "fast-forward", "detailed")
    zero, misses = np.zeros(4, np.int64), np.array([0, 0, 3, 3])
    model = np.array([MODELS.index(each) for each in models])
    found = tables.task_instances_table(["f"], *[zero] * 6, misses, misses, model, misses, *[zero] * 7)
    for cache in ("first", "second", "last"):
        assert found.column(f"{cache}_cache_misses").to_pylist() == [None, 0, None, 3]


# One rank of three operations that end at 100, 300 and 400; before them it computes 60, 150 and 0 ps.
WORKLOAD = SimpleNamespace(
    **vars(named(("f", "", 0), ("g", "", 0))), rank_offsets=np.array([0, 3]), num_ranks=1, num_operations=3,
    column=lambda level, name: {("operations", "rank"): np.zeros(3, np.int32)}[level, name],
)  # fmt: skip
END = np.array([100, 300, 400])
COMPUTE = np.array([60, 150, 0])


def schedule(rows=(), simulated=()):
    """Rows: (operation, instance, type, core, start, end), created 2 ps before, ready 1; simulated phases: (operation,
    begin)."""
    names = ("operation", "instance", "type", "core", "start_ps", "end_ps")
    result = {name: np.array([row[i] for row in rows], np.int64) for i, name in enumerate(names)}
    result |= {"created_ps": result["start_ps"] - 2, "ready_ps": result["start_ps"] - 1}
    # the schedule of the phases before operation 1 took 75 ps, half of what they take in the run
    result |= {"compute_ps": np.array([60, 75, 0, 30]), "simulated_before": np.array([each[0] for each in simulated])}
    result |= {"id": result["instance"], "creator": np.zeros(len(rows), np.int64), "num_ids": np.array([10])}
    return result | {"simulated_begin_ps": np.array([each[1] for each in simulated])}


def cell(makespan, rows):
    """Rows: (phase, instance, type, core, start, end, instructions, cycles), created 2 ps before, ready 1."""
    names = ("phase", "instance", "type", "core", "start_ps", "end_ps", "instructions", "cycles")
    result = {name: np.array([row[i] for row in rows], np.int64) for i, name in enumerate(names)}
    count = len(rows)
    result |= {"created_ps": result["start_ps"] - 2, "ready_ps": result["start_ps"] - 1}
    result |= {"makespan_ps": np.array(makespan), "model": np.full(count, DETAILED), "cycles": result["cycles"] * 1.0}
    result |= {f"{level}_misses": np.arange(count) for level in ("first", "second", "last")}
    result |= {"id": result["instance"], "creator": np.zeros(count, np.int64), "num_ids": np.array([10])}
    result |= {"part": np.array(["base", "memory"]), "core_part": np.array(["base", "memory", "idle"])}
    result |= {"type_stack": np.array([[1.0, 2.0], [0.0, 0.0], [3.0, 4.0]]), "type_instructions": np.array([10, 0, 20])}
    return result | {"core_stack": np.array([[4.0, 6.0, 5.0], [0.0, 0.0, 15.0]])}


def built(schedules, plan=(), cells=(), replay=None, **given):
    replayed = Replayed(np.empty(0, np.int64), COMPUTE, {"end_ps": END} | (replay or {}), replay is not None)
    return result_tables.tables(WORKLOAD, WORKLOAD, plan, cells, schedules, replayed, **given)


@pytest.mark.theory
def test_rows_begin_when_the_operation_before_ends_and_stretch_as_the_run_does():
    rows = [(0, 1, 0, 1, 0, 60), (1, 2, 1, 0, 25, 75), (1, 3, 0, 1, 0, 10), (3, -1, 1, 0, 5, 30)]
    found = built([schedule(rows)])
    assert set(found) == {"cores"}
    names = ("core", "start_ps", "end_ps", "task_instance_id", "task_type", "model")
    assert [tuple(row[name] for name in names) for row in found["cores"].to_pylist()] == [
        (1, 0, 60, 1, "f", "burst"),
        (1, 100, 120, 3, "f", "burst"),  # twice as long
        (0, 150, 250, 2, "g", "burst"),
        (0, 405, 430, -1, "g", "burst"),  # after the last operation
    ]
    since = [(row["created_ps"], row["ready_ps"]) for row in found["cores"].to_pylist()]
    assert since == [(-2, -1), (96, 98), (146, 148), (403, 404)]


@pytest.mark.theory
def test_phases_of_cells_lie_where_the_schedule_puts_them():
    """The second cell's phase comes 40 ps after those before operation 1 began, all stretched by 2."""
    plan = [Cell(0, 0, 0, 0, 1), Cell(0, 1, 0, 1, 2)]
    cells = [cell([60], [(0, 1, 0, 0, 0, 60, 100, 50)]), cell([35], [(0, 2, 1, 1, 5, 35, 200, 400)])]
    found = built([schedule(simulated=[(0, 0), (1, 40)])], plan, cells)
    rows = [(row["core"], row["start_ps"], row["end_ps"], row["model"]) for row in found["cores"].to_pylist()]
    assert rows == [(0, 0, 60, "detailed"), (1, 100 + 90, 100 + 150, "detailed")]
    instances = found["task_instances"].to_pylist()
    assert [(row["iteration"], row["task_instance_id"], row["task_type"]) for row in instances] == [
        (0, 1, "f"),
        (1, 2, "g"),
    ]
    assert [(row["instructions"], row["cycles"], row["first_cache_misses"]) for row in instances] == [
        (100, 50.0, 0),
        (200, 400.0, 0),
    ]
    assert [(row["core"], row["start_ps"], row["end_ps"]) for row in instances] == [(0, 0, 60), (1, 190, 250)]
    assert [(row["created_ps"], row["ready_ps"]) for row in instances] == [(-2, -1), (186, 188)]


@pytest.mark.contract
def test_cells_whose_times_the_run_does_not_take_are_not_on_its_cores():
    plan, cells = [Cell(0, 0, 0, 0, 1)], [cell([60], [(0, 1, 0, 0, 0, 60, 100, 50)])]
    found = built([schedule()], plan, cells)
    assert found["cores"].num_rows == 0
    (row,) = found["task_instances"].to_pylist()
    assert [row[name] for name in ("core", "start_ps", "end_ps", "created_ps", "ready_ps")] == [-1] * 5


@pytest.mark.contract
def test_cells_without_times_are_not_on_cores():
    """As those of the interval model of ranks that call MPI inside phases: all times are that of the phase's begin
    before the cell's."""
    plan, cells = [Cell(0, 0, 0, 0, 1)], [cell([60, 15], [(1, 1, 0, 0, -60, -60, 100, 50)])]
    found = built([schedule(simulated=[(0, 0), (1, 0)])], plan, cells)
    assert found["cores"].num_rows == 0


@pytest.mark.contract
def test_what_takes_the_ratio_of_its_type_says_so():
    """Beside a cell that was simulated: phases of bursts, and what the replay scheduled, of which communication is left
    out."""
    names = ("rank", "core", "start_ps", "end_ps", "task_instance", "task_type", "instance", "creator", "operation")
    names = (*names, "created_ps", "ready_ps")
    replayed = [(0, 1, 20, 30, 7, 0, 2, 0, -1, 15, 16), (0, 1, 30, 40, -1, -1, -1, -1, 1, -1, -1)]
    replay = {f"rows_{name}": np.array([row[i] for row in replayed]) for i, name in enumerate(names)}
    replay["begin_ps"] = np.array([90, 250, 390])
    plan, cells = [Cell(0, 1, 0, 0, 1)], [cell([35], [(0, 2, 1, 1, 5, 35, 200, 400)])]
    schedules = [schedule([(0, 1, 0, 0, 0, 60)], [(1, 40)])]
    found = built(schedules, plan, cells, replay)
    rows = [(row["task_instance_id"], row["start_ps"], row["model"]) for row in found["cores"].to_pylist()]
    assert rows == [(1, 0, "ratio"), (7, 20, "ratio"), (2, 190, "detailed")]
    assert found["cores"].column("created_ps").to_pylist() == [-2, 15, 186]
    assert [tuple(row.values()) for row in found["core_calls"].to_pylist()] == [
        (0, 0, -1, 90, 100), (0, 1, 1, 250, 300), (0, 2, -1, 390, 400),
    ]  # fmt: skip
    found = built(schedules, replay=replay)
    assert set(found["cores"].column("model").to_pylist()) == {"burst"}


@pytest.mark.theory
def test_stacks_have_a_row_per_cell_type_or_core_and_part():
    plan, cells = [Cell(0, 4, 0, 0, 1)], [cell([60], [(0, 1, 0, 0, 0, 60, 100, 50)])]
    rows = built([schedule()], plan, cells)["cpi_stacks"].to_pylist()
    names = ("iteration", "core", "task_type", "part", "cycles", "instructions")
    assert [tuple(row[name] for name in names) for row in rows] == [
        (4, -1, "f", "base", 1.0, 10), (4, -1, "f", "memory", 2.0, 10),
        (4, -1, "initial task", "base", 3.0, 20), (4, -1, "initial task", "memory", 4.0, 20),
        (4, 0, "initial task", "base", 4.0, 0), (4, 0, "initial task", "memory", 6.0, 0),
        (4, 0, "initial task", "idle", 5.0, 0), (4, 1, "initial task", "base", 0.0, 0),
        (4, 1, "initial task", "memory", 0.0, 0), (4, 1, "initial task", "idle", 15.0, 0),
    ]  # fmt: skip


@pytest.mark.theory
def test_types_of_another_trace_are_those_of_the_same_place():
    other = named(("h", "", 0), ("f", "", 0))
    # (the detailed trace's first type is not in the workload, its second is the workload's first)
    plan, cells = [Cell(0, 4, 0, 0, 1)], [cell([60], [(0, 1, 0, 0, 0, 60, 100, 50)])]
    cells[0]["type_instructions"] = np.array([0, 10, 0])
    rows = built([schedule()], plan, cells, detail=other)["cpi_stacks"].to_pylist()
    assert [row["task_type"] for row in rows if row["core"] < 0] == ["f", "f"]


@pytest.mark.theory
def test_misses_per_1000_instructions_of_what_was_simulated_in_detail():
    """(6 + 3) / 3,000 and 3 / 3,000; what was fast-forwarded is left out."""
    names = ("instructions", "first_misses", "last_misses", "model")
    rows = [(1000, 6, 2, DETAILED), (5000, 99, 99, MODELS.index("fast-forward"))], [(2000, 3, 1, DETAILED)]
    cells = [{name: np.array([row[i] for row in part]) for i, name in enumerate(names)} for part in rows]
    found = statistics._misses(cells)
    assert {name: each.value for name, each in found.items()} == {
        "node.mpki.first_cache": 3.0,
        "node.mpki.last_cache": 1.0,
    }
    assert statistics._misses([{**cells[1], "model": np.array([MODELS.index("interval")])}]) == {}


@pytest.mark.theory
def test_the_stack_of_samples_stands_for_all_of_their_type():
    """Type 0: 1,000 instructions in detail, 1,000 cycles, a quarter of them branches; 3,000 fast-forwarded in 5,000
    cycles. Type 1 all in detail: 1,000 and 500. In all 5,000 instructions, 6,500 cycles, 1,500 of them branches."""
    cell = {
        "part": np.array(["base", "branch"]),
        "type": np.array([0, 0, 1]),
        "instructions": np.array([1000, 3000, 1000]),
        "cycles": np.array([1000.0, 5000.0, 500.0]),
        "model": np.array([DETAILED, MODELS.index("fast-forward"), DETAILED]),
        "type_stack": np.array([[750.0, 250.0], [500.0, 0.0], [0.0, 0.0]]),
        "type_instructions": np.array([1000, 1000, 0]),
    }
    found = {name: each.value for name, each in statistics._stacks([cell]).items()}
    assert found == pytest.approx({"node.cpi": 1.3, "node.cpi.base": 1.0, "node.cpi.branch": 0.3})
    plain = {**cell, "model": np.full(3, DETAILED), "type_instructions": np.array([4000, 1000, 0])}
    assert statistics._stacks([plain, plain])["node.cpi"].value == pytest.approx(0.3)
