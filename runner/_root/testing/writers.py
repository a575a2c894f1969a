"""What every writer keeps: it writes where it is told, the same bytes each time, what can be read again."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from manyscale.models.workload import Workload, WorkloadError
from manyscale.runner.api import studies
from manyscale.runner.errors import RunError, UserError
from manyscale.runner.readers import workload_folder
from manyscale.runner.run.results import Result
from manyscale.testing.contract import ContractError, contents, name_of, require, require_one_line
from manyscale.testing.workloads import known


def check_writer(write: Any, result: Result | None = None, *, parse: Callable[[Path], object] | None = None) -> None:
    """``write``: a function of (result, directory). ``result``: what is written, a ping-pong of two ranks if none is
    given. ``parse``: what reads the directory again, a consumer's own parser at best; it raises for what it cannot.

    Checked: files appear in the directory alone, the same bytes each time; the result is as before; a directory that
    cannot be written is told of by OSError, UserError or RunError. Raises ContractError.
    """
    name, result = name_of(write), result or ping_pong_result()
    before = _digest(result)
    with tempfile.TemporaryDirectory(prefix="manyscale-check-") as folder:
        first, second, beside = (Path(folder) / each for each in ("first", "second", "beside"))
        for directory in (first, second):
            directory.mkdir()
            write(result, directory)
        require({first, second} == set(Path(folder).iterdir()), f"{name}: writes beside the directory it is given")
        _check_same(first, second, name)
        require(_digest(result) == before, f"{name}: changes the result that it writes")
        if parse is not None:
            parse(first)
        beside.write_bytes(b"a file, no folder")
        _check_refused(lambda: write(result, beside), name)


def check_trace_writer(write: Any, reader: Any, workload: Workload | None = None) -> None:
    """``write``: a function of (workload, path) for a folder or file ``path``. ``reader``: what reads the format again.
    ``workload``: one without collectives, a ping-pong of two ranks if none is given.

    Checked: what is written is read again as the same messages, with the same compute on each rank; the same bytes each
    time; the workload is as before; where nothing can be written, an error says so and no file is left. Raises
    ContractError.
    """
    name, workload = name_of(write), workload or known()[0].workload
    before = workload.digest
    with tempfile.TemporaryDirectory(prefix="manyscale-check-") as folder:
        first, second, beside = (Path(folder) / each for each in ("first", "second", "beside"))
        for directory in (first, second):
            directory.mkdir()
            try:
                write(workload, directory)
            except (UserError, WorkloadError) as error:
                raise ContractError(f"{name}: {workload.name} is refused ({error})") from error
        _check_same(first, second, name)
        require(_workload_digest(workload) == before, f"{name}: changes the workload that it writes")
        _check_round_trip(_read_again(reader, first, name), workload, name)
        beside.write_bytes(b"a file, no folder")
        _check_refused(lambda: write(workload, beside / "trace"), name)
        require(
            beside.read_bytes() == b"a file, no folder", f"{name}: writes over a file where it cannot write a trace"
        )


@cache
def ping_pong_result() -> Result:
    """Messages between two ranks, on the target crossbar256."""
    return result_of(known()[0].workload)


def result_of(workload: Workload, **study: Any) -> Result:
    """What a run of a workload predicts. ``study``: keys of the study, target crossbar256 if nothing else is said.
    Raises UserError, RunError."""
    with tempfile.TemporaryDirectory(prefix="manyscale-check-") as name:
        folder = Path(name)
        workload_folder.write(workload, folder / "trace")
        content = {"workload": {"path": str(folder / "trace")}, "target": "crossbar256", **study}
        return studies.run(content, folder / "run", executor="local", cache=folder / "cache", report=False)


def _digest(result: Result) -> dict[str, str]:
    tables = {field.name: getattr(result, field.name) for field in fields(result)}
    found = {name: _table_digest(table) for name, table in tables.items() if isinstance(table, pa.Table)}
    return found | {"workload": _workload_digest(result.workload), "statistics": repr(result.statistics)}


def _table_digest(table: pa.Table) -> str:
    """Of a table that may have nulls."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return hashlib.blake2b(sink.getvalue()).hexdigest()


def _workload_digest(workload: Workload) -> str:
    return Workload(workload.name, workload.num_ranks, workload.tables, is_checked=True).digest


def _check_same(first: Path, second: Path, name: str) -> None:
    one, other = contents(first), contents(second)
    require(one, f"{name}: writes no file")
    require(set(one) == set(other), f"{name}: writes other files when it writes again")
    differing = [file for file in one if one[file] != other[file]]
    require(not differing, f"{name}: writes other bytes into {', '.join(differing)} when it writes again")


def _check_refused(write: Callable[[], object], name: str) -> None:
    try:
        write()
    except (UserError, RunError) as error:
        require_one_line(error, f"{name}, a directory that cannot be written")
        return
    except OSError:
        return
    except Exception as error:
        raise ContractError(
            f"{name}: where it cannot write it raises {type(error).__name__} ({error}); raise OSError or UserError"
        ) from error
    raise ContractError(f"{name}: says nothing where it cannot write")


def _read_again(reader: Any, directory: Path, name: str) -> Workload:
    written = [directory, *sorted(each for each in directory.rglob("*") if each.is_file())]
    path = next((each for each in written if reader.can_read(each)), None)
    require(path is not None, f"{name}: {name_of(reader)} knows nothing of what was written")
    try:
        workload: Workload = reader.read(path)
    except (UserError, WorkloadError) as error:
        raise ContractError(f"{name}: what was written cannot be read again ({error})") from error
    return workload


def _check_round_trip(again: Workload, workload: Workload, name: str) -> None:
    require(again.num_ranks == workload.num_ranks, f"{name}: {again.num_ranks} ranks of {workload.num_ranks} came back")
    for what, of in (("messages", _messages), ("compute (ps)", _compute)):
        found, wanted = of(again), of(workload)
        same = len(found) == len(wanted) and np.array_equal(found, wanted)
        require(same, f"{name}: {what} of the ranks came back as {found.tolist()}, not {wanted.tolist()}")


def _messages(workload: Workload) -> np.ndarray:
    """(source, destination, bytes) of every message, int64[messages, 3], sorted."""
    rows = workload.send_rows
    columns = [workload.column("operations", column)[rows].astype(np.int64) for column in ("rank", "peer", "bytes")]
    return np.array(sorted(zip(*(column.tolist() for column in columns), strict=True))).reshape(-1, 3)


def _compute(workload: Workload) -> np.ndarray:
    """int64[ranks]: compute of each in ps."""
    total = np.zeros(workload.num_ranks, np.int64)
    np.add.at(total, workload.column("phases", "rank"), workload.column("phases", "duration_ps"))
    return total
