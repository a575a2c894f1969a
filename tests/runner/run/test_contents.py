"""What a workload holds, before anything is predicted; expected values are worked out by hand.

Blocked Cholesky of 4 x 4 blocks: 4 potrf, 6 trsm, 6 syrk and 4 gemm, with 6 edges potrf to trsm, 6 trsm to syrk, 2 each
of 4 gemm, 6 from syrk on and 4 from gemm on; the longest chain is potrf, trsm, syrk three times and a last potrf, and
after the first three trsm three syrk and three gemm may run at once.
"""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from rank_events import Recorder

import manyscale as ms
from manyscale.models.workload import SCHEMAS, Workload
from manyscale.models.workload.gpu_tables import GpuOperationKind
from manyscale.models.workload.task_tables import EventKind
from manyscale.runner.report import figures, workload_page
from manyscale.runner.run.questions.contents import (
    communication,
    compute,
    contents,
    launches,
    profiles,
    task_graph,
    uses,
)

CHOLESKY = Path(__file__).parents[2] / "data" / "detail" / "cholesky-4.omt.xz"
LAP_PS = 10


def section(workload: Workload, name: str):
    return next(each for each in contents(workload) if each.name == name)


def rows_of(level: str, *rows: dict[str, object]) -> pa.Table:
    """Rows of a level; what is not given is 0, or empty."""
    empty = {field.name: "" if pa.types.is_string(field.type) else 0 for field in SCHEMAS[level]}
    return pa.Table.from_pylist([{**empty, **row} for row in rows], SCHEMAS[level])


def forked() -> Workload:
    """Three tasks of four laps, created two laps apart, and after a wait a fourth of one lap."""
    recorder = Recorder(LAP_PS)
    with recorder.parallel():
        for _ in range(3):
            with recorder.task():
                for _ in range(3):
                    recorder.event(EventKind.taskyield)
        recorder.wait()
        with recorder.task():
            pass
        recorder.wait()
    return recorder.workload()


@pytest.mark.usefixtures("private_cache")
def test_a_cholesky_of_four_by_four_blocks() -> None:
    found = ms.show(CHOLESKY)
    graph = next(each for each in found.sections if each.name == "task graph").facts
    assert [graph[name] for name in ("instances", "edges", "depth", "width")] == [20, 30, 10, 6]
    types = found.frame("task_types")
    assert sorted(types["instances"]) == [4, 4, 6, 6]
    assert types["cpu_ps"].sum() == next(each for each in found.sections if each.name == "tasks").facts["in_tasks_ps"]
    assert graph["critical_path_ps"] <= graph["work_ps"] == found.workload.column("phases", "duration_ps").sum()
    lacking = {use.command.split()[1] for use in found.uses if use.lacks}
    able = {use.command.split()[1] for use in found.uses if not use.lacks}
    assert {"run", "scaling", "profile"} <= able
    assert {"evaluate", "plan"} <= lacking  # the format has no instructions, and knows no intervals
    assert "depth 10" in found.summary()
    assert len(repr(found)) <= 400
    chart = found._chart()
    assert chart is not None
    assert chart["data"]


def test_ranks_count_the_instances_that_the_source_creates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Implicit tasks apart, as the section on tasks does; where a trace has none, nothing is said of them."""
    own = forked()
    offsets = np.append(own.rank_offsets, own.num_operations)  # the second rank is empty
    workload = SimpleNamespace(column=own.column, send_rows=own.send_rows, num_ranks=2, rank_offsets=offsets)
    found = compute.ranks(workload)
    assert found is not None
    assert found.tables["ranks"].column("task_instances").to_pylist() == [4, 0]
    assert len(own.column("tasks", "rank")) > 4
    monkeypatch.setattr(compute, "created", lambda workload: workload.column("tasks", "rank") < 0)
    without = compute.ranks(workload)
    assert without is not None
    assert "task_instances" not in without.tables["ranks"].column_names


def test_critical_path_with_what_the_creator_does_before_and_after_a_wait() -> None:
    graph = task_graph.graph_of_rank(forked(), 0)
    assert graph is not None
    # the creator has 17 laps: two up to the first creation's, two a task, two a wait, two at the end, one operation
    assert graph.work_ps.tolist() == [(17 + 3 * 4 + 1) * LAP_PS]
    # the third task is created after 7 laps and ends after 11, when the creator, at its wait since 9, has 8 more to do;
    # the fourth ends before its wait
    assert graph.span_ps.tolist() == [(7 + 4 + 8) * LAP_PS]
    assert graph.depth.tolist() == [2]
    assert graph.width.tolist() == [3]


def test_a_rank_that_is_too_long_is_followed_in_its_first_part(monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = Recorder(LAP_PS)
    for _ in range(4):
        with recorder.parallel():
            with recorder.task():
                pass
            recorder.wait()
        recorder.operation()
    workload = recorder.workload()
    whole = section(workload, "task graph")
    assert (whole.facts["instances"], "first part" in whole.note) == (4, False)
    per_operation = workload.tables["events"].num_rows // 4
    monkeypatch.setattr(task_graph, "MOST_EVENTS", 3 * per_operation)
    part = section(workload, "task graph")
    assert (part.facts["instances"], "first part" in part.note) == (2, True)
    monkeypatch.setattr(task_graph, "MOST_EVENTS", per_operation // 2)
    assert all(each.name != "task graph" for each in contents(workload))


def test_calls_inside_tasks_take_no_time_in_the_graph() -> None:
    recorder = Recorder(LAP_PS)
    with recorder.parallel():
        with recorder.task():
            recorder.operation()
        recorder.wait()
    found = section(recorder.workload(), "task graph")
    assert found.facts["instances"] == 1
    assert "1 MPI calls inside" in found.note


def test_loops_by_construct() -> None:
    recorder = Recorder(LAP_PS)
    for _ in range(2):
        with recorder.parallel(), recorder.loop("dynamic", 6, 2) as loop:
            for first in (0, 2, 4):
                recorder.chunk(loop, first, 2)
    workload = recorder.workload()
    found = [workload]
    for lengths in ((-1, 6), (-1, -1)):  # where the runtime system did not say
        loops = workload.tables["loops"]
        loops = loops.set_column(loops.column_names.index("num_iterations"), "num_iterations", pa.array(lengths))
        found.append(
            Workload("unknown", 1, {**workload.tables, "loops": loops.cast(SCHEMAS["loops"])}, is_checked=True)
        )
    rows = [section(each, "loops").tables["loops"].to_pylist()[0] for each in found]
    assert (rows[0]["schedule"], rows[0]["executions"], rows[0]["chunks"]) == ("dynamic", 2, 6)
    assert [workload_page.text("mean_iterations", row["mean_iterations"]) for row in rows] == ["6", "6", "-"]


def test_what_ranks_gave_their_gpus() -> None:
    """Two ranks; rank 0 has two streams on one GPU, rank 1 one."""
    workload = Recorder(LAP_PS).workload(1)
    kinds = ("launch", "copy_to_device", "copy_to_host", "copy_to_device")
    rows = [
        {
            "rank": number // 3, "kind": int(GpuOperationKind[kind]), "stream": number % 2, "bytes": 100 * number,
            "peer": -1,
        }
        for number, kind in enumerate(kinds)
    ]  # fmt: skip
    table = rows_of("gpu_operations", *rows)
    with_calls = Workload("calls", 2, {**workload.tables, "gpu_operations": table}, is_checked=True)
    found = launches.host_calls(with_calls)
    assert found is not None
    assert found.facts == {"calls": 4, "ranks": 2, "devices_of_a_process": 1, "streams": 3}
    moved = {row["call"]: (row["calls"], row["moved_bytes"]) for row in found.tables["gpu_calls"].to_pylist()}
    assert moved == {"launch": (1, 0), "copy_to_device": (2, 400), "copy_to_host": (1, 200)}


def test_functions_by_the_snapshots_in_which_they_are_innermost() -> None:
    """3 of ``main`` calling ``solve``, 2 of ``main`` alone, 1 without a frame."""
    tables = {
        **Recorder(0).workload().tables,
        "frames": rows_of("frames", {"name": "main"}, {"name": "solve"}),
        "stacks": rows_of("stacks", {"frames": [0, 1]}, {"frames": [0]}, {"frames": []}),
        "stack_units": rows_of("stack_units", {"end_ps": 7}),
        "stack_samples": rows_of("stack_samples", *({"stack_id": n, "weight": 3 - n} for n in range(3))),
    }
    found = profiles.stacks(Workload("profiled", 1, tables, is_checked=True))
    assert found is not None
    assert (found.facts["snapshots"], found.facts["profiled_ps"]) == (6, 7)
    shown = found.tables["functions"].to_pylist()
    assert [(row["function"], row["snapshots"]) for row in shown] == [("solve", 3), ("main", 2)]


@pytest.mark.parametrize("unknown", [False, True])
def test_instructions_of_the_detailed_level_where_they_are_known(unknown: bool) -> None:
    counted = (
        {"num_accesses": 4, "num_instructions": 9},
        {"num_accesses": 1, "num_instructions": -1 if unknown else 2},
    )
    tables = {**Recorder(0).workload().tables, "segments": rows_of("segments", *counted)}
    found = profiles.detail(Workload("detailed", 1, tables, is_checked=True))
    assert found is not None
    expected = {"rank": 0, "segments": 2, "memory_accesses": 5} | ({} if unknown else {"instructions": 11})
    assert found.tables["detailed_ranks"].to_pylist() == [expected]
    assert found.facts.get("instructions") == (None if unknown else 11)


def test_launches_by_kernel() -> None:
    """Of two launches of ``a`` and one of ``b``: 20 of 25 instructions, by 16 threads in the mean, 4 warps a block."""
    of_a = {"kernel_name": "a", "warps": 8, "warp_instructions": 10, "thread_instructions": 160}
    rows = (
        {**of_a, "blocks": 2, "registers": 40}, {**of_a, "blocks": 2, "registers": 30},
        {"kernel_name": "b", "blocks": 9, "warps": 9, "warp_instructions": 5, "thread_instructions": 160},
    )  # fmt: skip
    tables = {**Recorder(0).workload().tables, "launches": rows_of("launches", *rows)}
    found = launches.launches(Workload("launched", 1, tables, is_checked=True))
    assert found is not None
    wanted = (
        "kernel",
        "launches",
        "mean_blocks",
        "warps_of_a_block",
        "instructions_share",
        "threads",
        "most_registers",
    )
    shown = [tuple(row[name] for name in wanted) for row in found.tables["kernels"].to_pylist()]
    assert shown == [("a", 2, 2.0, 4.0, 0.8, 16.0, 40), ("b", 1, 9.0, 1.0, 0.2, 32.0, 0)]
    grids = [(row["blocks_from"], row["launches"]) for row in found.tables["grid_sizes"].to_pylist()]
    assert grids == [(2, 2), (8, 1)]


def test_counters_of_phases_and_tasks() -> None:
    workload = forked()
    rows = [{"rank": 0, "task_instance_id": number, "counter": "cycles", "value": 7} for number in (2, 3)]
    tables = {**workload.tables, "task_counters": pa.Table.from_pylist(rows, SCHEMAS["task_counters"])}
    found = section(Workload("counted", 1, tables, is_checked=True), "counters")
    assert found.tables["counters"].to_pylist() == [
        {"counter": "cycles", "of": "task instances", "counted": 2, "total": 14.0}
    ]


def test_figures_of_long_tables_say_what_they_leave_out() -> None:
    ranks = pa.table({"rank": range(4001), "compute_ps": range(4001)})
    kernels = pa.table({"kernel": [f"k{n}" for n in range(201)], "warp_instructions": range(201)})
    titles = [
        figures.workload(name, table.slice(0, rows))["layout"]["xaxis"]["title"]["text"]  # type: ignore[index]
        for name, table in (("ranks", ranks), ("kernels", kernels))
        for rows in (200, 9999)
    ]
    assert titles == ["rank", "rank (one in 3)", "", "(the first 200 of 201)"]


def test_sizes_of_messages_by_powers_of_two() -> None:
    table = communication._by_size(np.array([0, 1, 2, 3, 4, 1023, 1024]))
    assert table.column("from_bytes").to_pylist() == [0, 1, 2, 4, 512, 1024]
    assert table.column("messages").to_pylist() == [1, 1, 2, 1, 1, 1]
    assert table.column("sent_bytes").to_pylist() == [0, 1, 5, 4, 1023, 1024]


def test_what_is_lacking_names_the_command_that_records_it() -> None:
    recorder = Recorder(LAP_PS)
    recorder.operation()
    found = {use.gives: use for use in uses(recorder.workload(), "a b")}
    assert "--level tasks" in found["time over the number of cores"].lacks
    assert found["phase clusters of its bursts"].command == "manyscale clusters 'a b'"


@pytest.mark.usefixtures("private_cache")
def test_accesses_without_the_code_do_for_profiles_and_lack_the_code_for_more() -> None:
    found = {use.gives: use.lacks for use in ms.show(CHOLESKY.parent / "bs16_O1.lk.xz").uses}
    assert not found["stack distances and hit rates of caches"]
    assert found["cores, caches and memory in detail"].startswith("classes and registers of its instructions (")


def test_of_a_gpu_only_launches_are_missed() -> None:
    """And of a program without one none."""
    tables = {**Recorder(0).workload().tables, "gpu_operations": rows_of("gpu_operations", {})}
    lacking = {use.lacks for use in uses(Workload("calls", 1, tables, is_checked=True), "x")}
    assert [each.split(" (")[0] for each in sorted(lacking)] == ["kernel launches", "times"]
    assert not any("launches" in use.lacks for use in uses(forked(), "x"))


def test_messages_of_ranks(cli, write_trace) -> None:
    trace = write_trace(
        {
            0: ["init", "compute 100000", "send 1 0 984 6", "allreduce 8 0", "finalize"],
            1: ["init", "compute 20000", "recv 0 0 984 6", "compute 30000", "allreduce 8 0", "finalize"],
        }
    )
    outcome = cli("show", trace, "-o", "shown", "--json", "shown.json")
    assert outcome.status == 0, outcome.err
    figures = {each["name"]: each["value"] for each in json.loads(Path("shown.json").read_text())["figures"]}
    assert figures["messages.messages"] == 1
    assert figures["messages.sent_bytes"] == 984
    assert figures["collectives.calls"] == 2
    assert figures["ranks.load_balance_ratio"] == pytest.approx(75 / 100)
    assert figures["trace.compute_ps"] == 150_000_000
    page = Path("shown/report.html").read_text()
    assert "What it can be given to" in page
    assert "manyscale trace --level tasks" in page
    assert cli("show", "nowhere").status == 2
