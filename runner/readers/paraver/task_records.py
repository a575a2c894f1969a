"""The runtime system's level of a workload, from a Paraver trace that ``convert --to paraver`` wrote of one.

Such a trace says so by labels of its own (task_levels.py). Its lines are read a second time: those of each table are
found and parsed by Arrow, a block of lines at a time. Cost: O(bytes).
"""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from manyscale.models.workload import PHASES_SCHEMA, SCHEMAS, PhaseKind, Workload, WorkloadError
from manyscale.models.workload.columns import text_array, to_arrow, to_numpy
from manyscale.models.workload.notes import changes
from manyscale.models.workload.task_tables import EventKind
from manyscale.runner.errors import UserError
from manyscale.runner.readers.archive import guarded, open_stream
from manyscale.runner.readers.paraver.label_files import Labels
from manyscale.runner.readers.paraver.task_levels import LEVELS, STATIC, columns_of, types_of

_BLOCK_BYTES: Final = 1 << 24
_HEAD: Final = ("record", "cpu", "application", "task", "thread", "time")


def tables(path: Path, labels: Labels, application: int) -> dict[str, pa.Table]:
    """Tables by level; none of a trace that has none. Raises UserError for lines that are not as they were written."""
    if types_of("events")[0] not in labels.types:
        return {}
    found: dict[str, list[pa.Table]] = {level: [] for level in LEVELS}
    with guarded(path), open_stream(path) as stream:
        rest = b""
        while block := stream.read(_BLOCK_BYTES):
            text = rest + block
            cut = text.rfind(b"\n") + 1
            rest = text[cut:]
            _read(path, text[:cut], application, found)
        _read(path, rest + b"\n", application, found)
    result = {level: _table(path, level, parts, labels) for level, parts in found.items() if parts}
    return result | {STATIC: _static(labels)}


def with_tasks(plain: Workload, found: dict[str, pa.Table]) -> Workload:
    """The workload with these tables; where they do not fit its calls, as after a cut, without, and a note."""
    try:
        tables = _with_time_of_events({**plain.tables, **found}, plain.num_ranks)
        return Workload(plain.name, plain.num_ranks, tables, plain.notes, plain.source_format)
    except (WorkloadError, IndexError) as error:
        what = "what the trace has of tasks does not fit its MPI calls and is left out (it was cut or filtered)"
        text = f"{what}: {error}"
        return replace(plain, notes=(*plain.notes, changes("trace-cut", text)))


def _with_time_of_events(tables: dict[str, pa.Table], num_ranks: int) -> dict[str, pa.Table]:
    """All tables, the compute before each operation at least as long as the events there: where the traced program took
    more CPU time than passed between two calls, and before a rank's first one, states cannot show it."""
    phases, events = tables["phases"], tables["events"]
    operations = np.bincount(to_numpy(tables["operations"].column("rank")), minlength=num_ranks)
    first = np.cumsum(operations) - operations

    def rows(table: pa.Table) -> np.ndarray:
        rank, operation = (to_numpy(table.column(name)) for name in ("rank", "operation_id"))
        return np.where(operation < operations[rank], first[rank] + operation, operations.sum())

    spent = np.zeros((2, int(operations.sum()) + 1), np.int64)
    computes = to_numpy(phases.column("kind")) == PhaseKind.compute
    where, duration = rows(phases), to_numpy(phases.column("duration_ps")).copy()
    np.add.at(spent[0], where[computes], duration[computes])
    np.add.at(spent[1], rows(events), to_numpy(events.column("cpu_ps")))
    short = np.flatnonzero((spent[1] - spent[0])[:-1] > 0)
    lacks = (spent[1] - spent[0])[short]
    last = np.full(spent.shape[1], -1)
    last[where[computes]] = np.flatnonzero(computes)  # (of several the last)
    known = last[short] >= 0
    duration[last[short[known]]] += lacks[known]
    new = short[~known]
    rank = np.searchsorted(first + operations, new, "right").astype(np.int32)
    added = {
        "rank": rank, "operation_id": (new - first[rank]).astype(np.int32),
        "kind": np.full(len(new), PhaseKind.compute, np.int8), "region_id": np.full(len(new), -1, np.int32),
        "duration_ps": lacks[~known],
    }  # fmt: skip
    order = np.argsort(np.concatenate((where, new)), kind="stable")
    columns = {name: to_numpy(phases.column(name)) for name in phases.column_names} | {"duration_ps": duration}
    joined = [to_arrow(np.concatenate((columns[name], added[name]))[order]) for name in PHASES_SCHEMA.names]
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    counters = tables["counters"]
    moved = to_arrow(place[to_numpy(counters.column("phase_id"))].astype(np.int64))
    at = counters.schema.get_field_index("phase_id")
    moved = moved.cast(counters.schema.field(at).type)
    return tables | {
        "phases": pa.Table.from_arrays(joined, schema=PHASES_SCHEMA),
        "counters": counters.set_column(at, counters.schema.field(at), moved),
    }


def _read(path: Path, text: bytes, application: int, found: dict[str, list[pa.Table]]) -> None:
    """Add what the lines of a block hold of each table."""
    if not text.strip():
        return
    options = pa.csv.ReadOptions(column_names=["line"], use_threads=False, block_size=len(text) + 1)
    as_lines = pa.csv.ParseOptions(delimiter="\x01", quote_char=False, double_quote=False)
    lines = pa.csv.read_csv(
        io.BytesIO(text), options, as_lines, pa.csv.ConvertOptions(column_types={"line": pa.string()})
    ).column("line")  # fmt: skip
    lines = lines.filter(pc.match_substring_regex(lines, f"^2:[0-9]+:{application}:[0-9]+:1:[0-9]+:6392"))
    for level in LEVELS:  # by the first type of a line: any value of another may be the same number
        mine = lines.filter(pc.match_substring_regex(lines, f"^(?:[0-9]+:){{6}}{types_of(level)[0]}:"))
        if len(mine):
            found[level].append(_parsed(path, level, mine))


def _parsed(path: Path, level: str, lines: pa.ChunkedArray) -> pa.Table:
    """rank and the columns of a table, as they stand."""
    types = types_of(level)
    pairs = [name for each in types for name in (f"type {each}", str(each))]
    names = [*_HEAD, *pairs]
    text = "\n".join(lines.to_pylist()) + "\n"
    try:
        read = pa.csv.read_csv(
            io.BytesIO(text.encode()),
            pa.csv.ReadOptions(column_names=names, use_threads=False),
            pa.csv.ParseOptions(delimiter=":"),
            pa.csv.ConvertOptions(column_types=dict.fromkeys(names, pa.int64()), include_columns=["task", *pairs]),
        )
    except pa.ArrowInvalid as error:
        raise UserError(f"{path}: lines of {level} are not as convert writes them ({error}); convert again") from None
    for each in types:
        if not pc.all(pc.equal(read.column(f"type {each}"), each)).as_py():
            raise UserError(f"{path}: lines of {level} have other types than convert writes; convert again")
    return read.select(["task", *map(str, types)]).rename_columns(["rank", *columns_of(level)])


def _table(path: Path, level: str, parts: list[pa.Table], labels: Labels) -> pa.Table:
    """A table of the workload: numbers less 1, names from the labels."""
    whole = pa.concat_tables(parts)
    values = {name: to_numpy(whole.column(name)) - 1 for name in whole.column_names}
    order = np.lexsort(tuple(values[name] for name in reversed(LEVELS[level])))
    columns = []
    for field in SCHEMAS[level]:
        mine = values[field.name][order]
        number = types_of(level)[columns_of(level).index(field.name)] if field.name != "rank" else 0
        if pa.types.is_dictionary(field.type) or pa.types.is_string(field.type):
            names = _names(labels, number)
            if mine.min(initial=0) < 0 or mine.max(initial=-1) >= len(names):
                raise UserError(f"{path}: a {field.name} of {level} has no label; keep the .pcf file beside the trace")
            texts = text_array(names)
            codes = pa.array(mine, field.type.index_type if pa.types.is_dictionary(field.type) else pa.int32())
            named = pa.DictionaryArray.from_arrays(codes, texts)
            columns.append(named if pa.types.is_dictionary(field.type) else texts.take(codes))
        elif pa.types.is_boolean(field.type):
            columns.append(pa.array(mine > 0))
        else:
            columns.append(pa.array(mine).cast(field.type))
    if level == "events" and values["kind"].max(initial=0) >= len(EventKind):
        raise UserError(f"{path}: events are of kinds that are not known; convert again")
    return pa.Table.from_arrays(columns, schema=SCHEMAS[level])


def _static(labels: Labels) -> pa.Table:
    types = types_of(STATIC)
    count = max((max(labels.values.get(each, {0: ""})) for each in types), default=0)
    columns = []
    for number, field in zip(types, SCHEMAS[STATIC], strict=True):
        texts = [labels.values.get(number, {}).get(place, "") for place in range(1, count + 1)]
        columns.append(text_array(texts) if pa.types.is_string(field.type) else pa.array(map(int, texts), field.type))
    return pa.Table.from_arrays(columns, schema=SCHEMAS[STATIC])


def _names(labels: Labels, number: int) -> list[str]:
    values = labels.values.get(number, {})
    return [values.get(place, "") for place in range(1, max(values, default=0) + 1)]
