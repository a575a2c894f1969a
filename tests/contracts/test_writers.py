"""Every writer keeps its contract; those that do not are found out."""

from __future__ import annotations

import gzip
import itertools
import json
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from manyscale.models.workload import SCHEMAS, Workload
from manyscale.runner import shipped
from manyscale.runner.errors import UserError
from manyscale.runner.registry import lookup, names
from manyscale.runner.run import parquet
from manyscale.runner.study import WorkloadChoice
from manyscale.runner.study.traces import read_workload
from manyscale.testing import ContractError, check_trace_writer, check_writer
from manyscale.testing.workloads import known
from manyscale.testing.writers import ping_pong_result, result_of

pytestmark = pytest.mark.contract


def measured() -> Workload:
    """The ping-pong with times of its operations, one after the other."""
    right = known()[0].workload
    rows = [
        {"start_ps": 10_000_000 * (row + 1), "end_ps": 10_000_000 * (row + 1) + 5000}
        for row in range(right.num_operations)
    ]
    return replace(right, tables={**right.tables, "measured": pa.Table.from_pylist(rows, SCHEMAS["measured"])})


def timelines(directory: Path) -> None:
    assert pq.read_table(directory / "timeline" / "ranks.parquet").num_rows


def statistics(directory: Path) -> None:
    assert json.loads((directory / "stats.json").read_text())["application.messages"]["value"] == 6


def perfetto(directory: Path) -> None:
    assert json.loads(gzip.decompress((directory / "trace.json.gz").read_bytes()))["traceEvents"]


def page(directory: Path) -> None:
    assert (directory / "report.html").read_text().rstrip().endswith("</html>")


PARSERS = {"timeline": timelines, "statistics": statistics, "perfetto": perfetto, "report": page}


@pytest.fixture(scope="module")
def of_tasks():
    """Task instances on two cores of each rank."""
    workload = read_workload(WorkloadChoice(path=str(shipped.folder() / "cholesky-8.tar.zst")))
    return result_of(workload, target="marenostrum3", mapping={"cores_per_rank": 2})


@pytest.fixture(scope="module")
def of_launches():
    """The first launch of the shipped example."""
    workload = read_workload(WorkloadChoice(path=str(shipped.folder() / "bfs-16"), launches=(1,)))
    return result_of(workload, target="rtx3070")


@pytest.mark.parametrize("name", names("writer"))
def test_built_in(name, request):
    results = [request.getfixturevalue(each) for each in ("of_tasks", "of_launches")] if name == "paraver" else [None]
    for result in results:
        check_writer(lookup("writer", name), result, parse=PARSERS.get(name))


# accelsim's takes kernel launches alone: tests/runner/tracers/cuda/test_cuda_accelsim.py
@pytest.mark.parametrize("name", [name for name in names("trace-writer") if name != "accelsim"])
def test_built_in_of_traces(name):
    check_trace_writer(lookup("trace-writer", name), lookup("reader", name), measured() if name == "paraver" else None)


def numbered():
    """A writer that writes another number each time."""
    count = itertools.count()
    return lambda result, directory: (directory / "a.txt").write_text(str(next(count)))


def beside(result, directory):
    (directory.parent / "b.txt").write_text("")
    (directory / "a.txt").write_text("")


def forgetful(result, directory):
    if directory.is_dir():
        (directory / "a.txt").write_text("")


def greedy(result, directory):
    directory.mkdir(exist_ok=True, parents=True)
    result.statistics.clear()
    (directory / "a.txt").write_text("")


def crashing(result, directory):
    assert directory.is_dir()
    (directory / "a.txt").write_text("")


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        (lambda result, directory: None, "writes no file"),
        (numbered(), "writes other bytes into a.txt when it writes again"),
        (beside, "writes beside the directory it is given"),
        (forgetful, "says nothing where it cannot write"),
        (crashing, "where it cannot write it raises AssertionError"),
        (greedy, "changes the result that it writes"),
    ],
)
def test_broken(broken, reason):
    result = ping_pong_result()
    with pytest.raises(ContractError, match=reason):
        check_writer(broken, replace(result, statistics=dict(result.statistics)))


def test_what_the_consumer_cannot_parse(tmp_path):
    def cut(result, directory):
        parquet.write(result, directory)
        path = directory / "timeline" / "ranks.parquet"
        path.write_bytes(path.read_bytes()[:-100])

    with pytest.raises(pa.ArrowInvalid):
        check_writer(cut, parse=timelines)


def in_part(workload, path):
    """Without a message."""
    right = known()[0].workload
    rows = right.tables["operations"].to_pylist()
    rows[1]["bytes"] = rows[2]["receive_bytes"] = 9
    changed = pa.Table.from_pylist(rows, SCHEMAS["operations"])
    lookup("trace-writer", "goal")(replace(right, tables={**right.tables, "operations": changed}), path)


def slower(workload, path):
    phases = workload.tables["phases"].to_pylist()
    phases[1]["duration_ps"] += 1000
    tables = {**workload.tables, "phases": pa.Table.from_pylist(phases, SCHEMAS["phases"])}
    lookup("trace-writer", "goal")(replace(workload, tables=tables), path)


def over(workload, path):
    path.parent.unlink() if path.parent.is_file() else None
    path.mkdir(exist_ok=True, parents=True)
    lookup("trace-writer", "goal")(workload, path)


def refuses(workload, path):
    raise UserError("nothing can be written")


def cut(workload, path):
    lookup("trace-writer", "goal")(workload, path)
    (path / "schedule.goal").write_text((path / "schedule.goal").read_text()[:-10])


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        (lambda workload, path: None, "writes no file"),
        (in_part, "messages of the ranks came back as"),
        (slower, r"compute \(ps\) of the ranks came back as"),
        (over, "says nothing where it cannot write"),
        (refuses, "ping-pong is refused"),
        (cut, "what was written cannot be read again"),
        (lambda workload, path: (path / "x").write_text("x"), "knows nothing of what was written"),
    ],
)
def test_broken_of_traces(broken, reason):
    with pytest.raises(ContractError, match=reason):
        check_trace_writer(broken, lookup("reader", "goal"))
