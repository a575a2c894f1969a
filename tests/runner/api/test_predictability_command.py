"""``predictability``: instances of traces and runs in the order of execution, errors by hand, and what is missing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import manyscale
from manyscale.models.workload import SCHEMAS, Workload
from manyscale.models.workload.notes import Note, informs
from manyscale.models.workload.task_tables import EventKind as E
from manyscale.models.workload.task_tables import TaskFlag
from manyscale.runner.cli import main
from manyscale.runner.errors import UserError
from manyscale.runner.predict.node.tables import MODELS, task_instances_table
from manyscale.runner.readers import workload_folder
from manyscale.runner.readers.rank_tables import rank_tables

pytestmark = pytest.mark.theory


def trace(
    folder: Path, counters: dict[str, list[int]], notes: tuple[Note, ...] = (), *, with_tasks: bool = True,
    of_loop: list[tuple[E, int]] | None = None,
) -> Path:  # fmt: skip
    """One rank: tasks 1 to 4 of one type are executed 3, 1, 2, 4, then the chunks of a loop of another type.
    ``counters``: of tasks 1 to 4 and the two chunks; CPU times are 10, 20, 30, 40, 5 and 7 us."""
    kinds = [*((E.task_create, t) for t in (1, 2, 3, 4)), *((E.task_begin, t) for t in (3, 1, 2, 4))]
    whole = [(E.loop_begin, 0), (E.loop_chunk, 0), (E.loop_chunk, 8), (E.loop_end, 0)]
    kinds += whole if of_loop is None else of_loop
    rows: dict[str, list[dict[str, Any]]] = {
        "task_types": [
            {"construct": kind, "function": kind, "file": "", "line": 0, "module": "", "offset": 0}
            for kind in ("task", "loop")
        ],
        "events": [
            {"rank": 0, "operation_id": 0, "kind": kind, "task_instance_id": 0, "task_type_id": -1, "value": value,
             "cpu_ps": 0}
            for kind, value in kinds
        ],
        "tasks": [
            {"rank": 0, "task_instance_id": t, "parent_id": t and 0, "task_type_id": 0, "operation_id": 0,
             "flags": 0 if t else int(TaskFlag.initial), "cpu_ps": 10_000_000 * t}
            for t in range(5)
        ],
        "loops": [
            {"rank": 0, "loop_id": 0, "task_type_id": 1, "schedule": "dynamic", "num_iterations": 16,
             "chunk_iterations": 8}
        ],
        "loop_chunks": [
            {"rank": 0, "loop_id": 0, "first_iteration": first, "num_iterations": 8, "cpu_ps": time}
            for first, time in ((0, 5_000_000), (8, 7_000_000))
        ],
        "task_counters": [
            {"rank": 0, "task_instance_id": t + 1, "counter": name, "value": values[t]}
            for t in range(4) for name, values in counters.items() if values[t] >= 0
        ],
        "chunk_counters": [
            {"rank": 0, "loop_id": 0, "first_iteration": 8 * c, "counter": name, "value": values[4 + c]}
            for c in range(2) for name, values in counters.items()
        ],
    }  # fmt: skip
    rows["tasks"][0]["parent_id"] = -1
    tables = {name: pa.Table.from_pylist(content, SCHEMAS[name]) for name, content in rows.items() if content}
    phase = {"rank": 0, "operation_id": 0, "kind": 0, "region_id": -1, "duration_ps": 112_000_000}
    base = rank_tables(1, {}) | {"phases": pa.Table.from_pylist([phase], SCHEMAS["phases"])}
    workload = Workload("made", 1, base | (tables if with_tasks else {}), notes, "raw-trace")
    folder.mkdir()
    workload_folder.write(workload, folder)
    return folder


def errors(found: manyscale.PredictabilityResult) -> dict[tuple[str, str], float]:
    return {(row["predictor"], row["task_type"]): row["error"] for row in found.table().to_pylist()}


COUNTED = {"PAPI_TOT_CYC": [100, 150, 200, 400, 60, 90], "PAPI_TOT_INS": [100, 100, 200, 200, 50, 50]}


def test_the_order_is_that_of_execution(tmp_path: Path) -> None:
    """Task 3 is executed first: its 200 cycles stand for all of its type, 800 for 850. Of the loop's chunks the first
    one stands for both: 120 for 150."""
    found = manyscale.predictability(trace(tmp_path / "t", COUNTED))
    assert found.executed.of == "PAPI_TOT_CYC"
    of = errors(found)
    assert of["first", "task"] == pytest.approx(50 / 850)
    assert of["first", "loop"] == pytest.approx(30 / 150)
    assert of["first", ""] == pytest.approx(80 / 1000)
    # task 1 is executed next
    assert of["second", "task"] == pytest.approx(450 / 850)
    # two sizes, 100 (tasks 1 and 2) and 200 (3 and 4), each measured once, first: 100 + 100 + 200 + 200
    assert of["interpolation", "task"] == pytest.approx(250 / 850)
    types = {row["task_type"]: row for row in found.table("types").to_pylist()}
    assert (types["task"]["instances"], types["task"]["mean"], types["task"]["mean_size"]) == (4, 212.5, 150)
    assert types["task"]["ratio_p50"] == pytest.approx((2 / 3 + 1) / 2)  # IPCs are 1, 2/3, 1 and 1/2


def test_without_counters_cpu_time_is_predicted(tmp_path: Path) -> None:
    found = manyscale.predictability(trace(tmp_path / "t", {}))
    of = errors(found)
    assert of["first", "task"] == pytest.approx((4 * 30 - 100) / 100)
    assert {name for name, _ in of} == {"first", "second"}
    assert {"cycles-not-counted", "sizes-not-counted"} <= {note.code for note in found.notes}


def test_what_was_not_counted_is_left_out_and_said(tmp_path: Path) -> None:
    counted = {"page-faults": [-1, 7, 9, 9, 1, 1], "task-clock": [1, 2, 4, 4, 1, 1]}
    found = manyscale.predictability(trace(tmp_path / "t", counted), of="page-faults", by="task-clock")
    assert errors(found)["first", "task"] == pytest.approx((3 * 9 - 25) / 25)
    assert next(note for note in found.notes if note.code == "instances-not-counted").count == 1


BEGIN, CHUNK, END = E.loop_begin, E.loop_chunk, E.loop_end


@pytest.mark.parametrize(
    ("of_loop", "alone"),
    [
        # a loop within the loop, that no chunk belongs to, and the end of one that never began
        ([(END, 9), (BEGIN, 0), (CHUNK, 0), (BEGIN, 5), (END, 5), (CHUNK, 8), (END, 0)], 0),
        ([(CHUNK, 0), (CHUNK, 8), (END, 0)], 4),  # no loop has begun: two events and two chunks
        ([(BEGIN, 0), (CHUNK, 0), (END, 0), (CHUNK, 8)], 2),  # it is over
        ([(BEGIN, 0), (CHUNK, 0), (CHUNK, 7), (CHUNK, 8), (END, 0)], 1),  # a chunk that the loop does not have
        ([(BEGIN, 0), (CHUNK, 0), (BEGIN, 5), (CHUNK, 8), (END, 5), (END, 0)], 2),  # of the inner loop
    ],
)  # fmt: skip
def test_chunks_that_fit_no_event_are_left_out_and_said(
    tmp_path: Path, of_loop: list[tuple[E, int]], alone: int
) -> None:
    found = manyscale.predictability(trace(tmp_path / "t", {}, of_loop=of_loop))
    assert sum(note.count for note in found.notes if note.code == "chunks-unmatched") == alone
    loops = [row["instances"] for row in found.table().to_pylist() if row["task_type"] == "loop"]
    assert loops == ([2 - alone // 2] * len(loops) if alone < 4 else [])


def test_a_missing_counter_names_the_command_that_records_it(tmp_path: Path) -> None:
    plain = trace(tmp_path / "plain", {"task-clock": [1] * 6})
    with pytest.raises(UserError, match=r"PAPI_TOT_CYC is not in the trace.*--level tasks --counters hardware$"):
        manyscale.predictability(plain, of="cycles")
    with pytest.raises(UserError, match=r"^made: by branches .*--counters branches$"):
        manyscale.predictability(plain, by="branches")
    # the command that was used is not advised again
    note = informs("counters-unavailable", "PAPI_TOT_INS, PAPI_TOT_CYC not counted: the machine has no such counter")
    tried = trace(tmp_path / "tried", {}, (note,))
    with pytest.raises(UserError, match=r"the machine has no such counter.*cpu=detailed") as raised:
        manyscale.predictability(tried, of="cycles")
    assert "--counters" not in str(raised.value)
    bare = trace(tmp_path / "bare", {}, with_tasks=False)
    with pytest.raises(UserError, match=r"holds no task instances.*--level tasks --counters hardware"):
        manyscale.predictability(bare)


def simulated(folder: Path, model: str = "detailed", start: tuple[int, ...] = (50, 0, 20)) -> Path:
    """A run directory with three simulated instances of one type."""
    (folder / "timeline").mkdir(parents=True)
    (folder / "manifest.json").write_text('{"status": "complete"}')
    (folder / "resolved.yaml").write_text("model: {cpu: detailed}\n")
    (folder / "stats.json").write_text('{"notes": {"list": []}}')
    zero, number = np.zeros(3, np.int64), np.arange(3)
    columns = [zero, zero, number, zero, zero + 10, np.array([4.0, 1.0, 2.0]), zero, zero, zero + MODELS.index(model)]
    table = task_instances_table(
        ["work", "initial task"],
        *columns,
        zero,
        number,
        zero - 1,
        zero,
        np.array(start),
        np.array(start) + 1,
        zero,
        zero,
    )
    pq.write_table(table, folder / "timeline" / "task_instances.parquet")
    return folder


def test_a_run_is_asked_for_its_simulated_cycles(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The second one begins first: 3 x 1 cycles for 7."""
    run = simulated(tmp_path / "run")
    assert main(["predictability", str(run), "-o", str(tmp_path / "found")]) == 0
    assert "all types" in capsys.readouterr().out
    content = json.loads((tmp_path / "found" / "predictability.json").read_text())
    first = next(row for row in content["figures"]["rows"] if row["predictor"] == "first")
    assert first["error"] == pytest.approx(4 / 7)
    assert first["predicted"] == 3
    assert "work" in (tmp_path / "found" / "report.html").read_text()
    # a run that has other times of some instances: by their numbers, of which the first one takes 4 cycles
    found = manyscale.predictability(simulated(tmp_path / "other", start=(50, -1, 20)))
    assert errors(found)["first", ""] == pytest.approx(5 / 7)
    assert "order-of-creation" in {note.code for note in found.notes}


def test_runs_that_did_not_simulate_all_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"3 of 3 task instances were not simulated.*--sampling tasks=full"):
        manyscale.predictability(simulated(tmp_path / "sampled", "fast-forward"))
    without = simulated(tmp_path / "without")
    (without / "timeline" / "task_instances.parquet").unlink()
    with pytest.raises(UserError, match="creates no task instances"):
        manyscale.predictability(without)
    (without / "resolved.yaml").write_text("model: {cpu: burst}\n")
    with pytest.raises(UserError, match="--model cpu=detailed"):
        manyscale.predictability(without)
    with pytest.raises(UserError, match="of, by: a run has"):
        manyscale.predictability(simulated(tmp_path / "run"), of="page-faults")
