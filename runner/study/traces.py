"""From a path to a workload: find the reader, and keep what it read for the next run."""

from __future__ import annotations

import hashlib
import os
import shutil
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from manyscale.models.spelling import unknown
from manyscale.models.workload import PHASES_SCHEMA, REGIONS_SCHEMA, PhaseKind, Workload, WorkloadError
from manyscale.models.workload.columns import text_array, to_arrow
from manyscale.models.workload.jobs import joined
from manyscale.models.workload.phase_times import by_clock, without_clocks
from manyscale.models.workload.polls import without_polls
from manyscale.runner import kept, limits, shipped
from manyscale.runner.errors import UserError, WrongKeyError
from manyscale.runner.plain_files import refuse_special
from manyscale.runner.readers import workload_folder
from manyscale.runner.readers.archive import guarded, is_tar, read_head, tar_members
from manyscale.runner.readers.json_text import refuse_cut
from manyscale.runner.readers.workload_folder.layout import DETAIL, RAW, VERSION
from manyscale.runner.registry import lookup, names
from manyscale.runner.storage.address import is_url, origin
from manyscale.runner.storage.fetching import fetched_trace
from manyscale.runner.study.workload import TraceChoice, WorkloadChoice

Choice = TypeVar("Choice", bound=TraceChoice)
READ_VERSION = 12  # raised when a reader's result changes


def read_workload(
    choice: WorkloadChoice, cache: Path | None = None, machine: Callable[[str], Any] | None = None
) -> Workload:
    """The workload that a study names, repeated if it says so, or that of all its jobs. Raises UserError, one line, if
    it cannot be read.

    A trace that is one file is kept, once read, in ``cache`` under the hash of its bytes and options. ``machine``: what
    a step is synthesised for, by its name, for whoever knows what the files hold.
    """
    if choice.beside:
        return _joined(choice, cache)
    return _read_job(choice, cache, machine)


def _joined(choice: WorkloadChoice, cache: Path | None) -> Workload:
    """The workload of all jobs that a study names. Raises UserError."""
    found = []
    for job in (choice, *choice.beside):
        found.append(_read_job(job, cache))
        base = getattr(found[-1], "base", found[-1])
        if job.repeat is not None and base.tables["tasks"].num_rows:
            raise UserError(f"{job.path}: has task instances, and a job beside others cannot repeat these")
    try:
        return joined(found, None if choice.job is None else choice.job - 1)
    except WorkloadError as error:
        raise UserError(f"workload.beside: {error}") from None


def _read_job(choice: TraceChoice, cache: Path | None, machine: Callable[[str], Any] | None = None) -> Workload:
    recorded = read_recorded(choice, cache, machine)
    workload, notes = without_polls(without_clocks(recorded), keep=choice.polls == "keep")
    workload = replace(workload, notes=(*workload.notes, *notes), is_checked=True) if notes else workload
    if choice.repeat is None:
        return workload
    from manyscale.runner.study.repeat import repeat

    return repeat(workload, choice.repeat, choice.path)


def read_recorded(
    choice: TraceChoice, cache: Path | None = None, machine: Callable[[str], Any] | None = None
) -> Workload:
    """The same as its trace has it: once, what only polling did marked, and with what further clocks show of its
    phases, if none was chosen."""
    choice = located(choice)
    workload = _timed(_read(choice, cache, machine), choice)
    return _with_region(with_phases(chosen_launches(workload, choice.launches or (), choice.path)))


def located(choice: Choice) -> Choice:
    """``choice`` as ``with_shipped`` has it."""
    content = choice.model_dump(exclude_unset=True)
    found = with_shipped(content)
    return choice if found == content else type(choice).model_validate(found)


def with_shipped(workload: Mapping[str, Any]) -> dict[str, Any]:
    """A study's key ``workload`` with the paths of shipped traces in place of their names. What it leaves out of how
    its trace is read is as the shipped study of that name has it. Raises UserError for a name that stands for several
    traces."""
    path = workload.get("path")
    named = shipped.workload_named(path) if isinstance(path, str) else None
    found = dict(workload)
    if named is not None:
        own = {key: value for key, value in workload.items() if key != "path" and (key, value) != ("format", "auto")}
        found = {**named, **own}
    for key in ("detail", "gpu_trace"):
        if isinstance(found.get(key), str):
            found[key] = shipped.trace_path(found[key])
    if isinstance(beside := found.get("beside"), list):
        found["beside"] = [with_shipped(each) if isinstance(each, Mapping) else each for each in beside]
    return found


def _read(choice: TraceChoice, cache: Path | None, machine: Callable[[str], Any] | None) -> Workload:
    if choice.synthesise is not None:
        from manyscale.runner.study.synthesis import synthesised

        return synthesised(choice.synthesise, machine)
    path = _expanded(choice.path)
    if not shipped.exists(path):
        raise UserError(
            f"{path}: does not exist; give the path of a trace (a file, an archive or a folder), or the name of a "
            "shipped one (manyscale examples)"
        )
    refuse_special(path)
    copy = _copy(path, choice, cache)
    if copy is not None and kept.is_whole(copy):
        return workload_folder.read(copy, verify=False)
    format_name = _format(path, choice.format)
    reader = lookup("reader", format_name)
    if (choice.threads or choice.idle) and not getattr(reader, "KEEPS_THREADS", False):
        raise UserError(
            f"{path}: workload.threads and workload.idle choose among call stacks as a profiler took them; format "
            f"{format_name} has none, or in units that are cut already"
        )
    try:
        try:
            workload: Workload = reader.read(path, choice.read_options())
        except UserError as error:
            if choice.format != "auto" or reader.can_read(path):
                raise
            line = reader.resembles(path)
            raise UserError(
                f"{error} (it looks like {format_name} in line {line}; if it is none, name its format with --format)"
            ) from None
    except WorkloadError as error:
        raise UserError(f"{path}: {error}") from None
    except MemoryError:
        raise UserError(f"{path}: does not fit into memory; trace fewer iterations or ranks") from None
    name = workload.name.encode(errors="backslashreplace").decode()
    if name != workload.name:  # from the name of a file, which need not be UTF-8
        workload = replace(workload, name=name)
    if copy is not None and is_whole(reader, path):
        _keep(workload, copy)
    return workload


def _timed(workload: Workload, choice: TraceChoice) -> Workload:
    """The workload, its phases by the clock that was chosen. Raises UserError if the trace has no such clock."""
    if choice.time == "auto":
        return workload
    reader = lookup("reader", _format(_expanded(choice.path), choice.format))
    if choice.time in getattr(reader, "CLOCKS", ()):  # it was read so
        return workload
    try:
        return by_clock(workload, choice.time)
    except WorkloadError as error:
        raise UserError(f"{choice.path}: {error}") from None


def _with_region(workload: Workload) -> Workload:
    """``workload``, or, if it is the detailed level of one program and knows no phases: with what was recorded as one
    compute phase. The trace does not say how long it took."""
    is_bare = not workload.tables["phases"].num_rows and workload.num_operations == 1
    if workload.detail is None or not is_bare:
        return workload
    row = {"rank": 0, "operation_id": 0, "kind": int(PhaseKind.compute), "region_id": -1, "duration_ps": 0}
    return replace(workload, tables={**workload.tables, "phases": pa.Table.from_pylist([row], PHASES_SCHEMA)})


def counted(workload: Workload) -> str:
    """What a workload holds, in numbers: "8 ranks, 2411 operations, 1712 task instances"."""
    texts = [f"{workload.num_ranks} ranks", f"{workload.num_operations} operations"]
    numbers = {
        "task instances": workload.tables["tasks"].num_rows,
        "iterations": int(workload.column("iterations", "iteration").max(initial=-1)) + 1,
        "blocks": workload.tables["blocks"].num_rows,
        "accesses": int(workload.column("segments", "num_accesses").sum()),
        "intervals": int(workload.column("intervals", "interval_id").max(initial=-1)) + 1,
        "kernel launches": workload.tables["launches"].num_rows,
        "sampling units": workload.tables["stack_units"].num_rows,
        "call stacks": int(workload.column("stack_samples", "weight").sum()),
    }
    return ", ".join([*texts, *(f"{number} {word}" for word, number in numbers.items() if number)])


def _expanded(text: str) -> Path:
    """The path of a trace; of one at an address that of its copy here."""
    if is_url(text):
        return fetched_trace(text)
    try:
        path = Path(text).expanduser()
    except RuntimeError:  # the home of a user who is not known
        return Path(text)
    place = None if path.exists() else origin(path)
    return path if place is None else fetched_trace(str(place))


def _format(path: Path, wanted: str) -> str:
    if wanted != "auto":
        if wanted not in names("reader"):
            raise WrongKeyError("", "workload.format", unknown("format", wanted, names("reader")))
        return wanted
    for name in names("reader"):
        if lookup("reader", name).can_read(path):
            return name
    _refuse_damaged(path)
    held = {each.name for each in path.iterdir()} if path.is_dir() else set()
    if RAW in held and held <= {RAW, DETAIL, f"{DETAIL}.partial"}:
        raise UserError(
            f"{path}: is a trace that was not finished: {RAW}/ is all there is of it; trace the program again, "
            "into another folder"
        )
    if path.is_file() and read_head(path, 1) == b"":
        raise UserError(f"{path}: is empty; did the program that writes it run to its end?")
    if alike := [(line, name) for name in names("reader") if (line := _resembles(name, path))]:
        return min(alike, key=lambda one: one[0])[1]
    if path.suffix in (".yaml", ".yml"):
        raise UserError(f"{path}: is in no format that is known of traces; a study goes without --workload")
    raise UserError(f"{path}: is in no format that is known ({', '.join(names('reader'))}); name one with --format")


def is_trace(path: Path) -> bool:
    """Whether a reader knows what is at a path."""
    return any(lookup("reader", name).can_read(path) for name in names("reader"))


def _resembles(name: str, path: Path) -> int | None:
    """The first line that only this format has, of a file that does not begin as one."""
    reader = lookup("reader", name)
    return reader.resembles(path) if path.is_file() and hasattr(reader, "resembles") else None


def _refuse_damaged(path: Path) -> None:
    """A damaged file is in no format, too; the user is told of the damage. Raises UserError."""
    for file in [path] if path.is_file() else sorted(each for each in path.iterdir() if each.is_file()):
        if is_tar(file):
            with guarded(file):
                for _, stream in islice(tar_members(file), 2):
                    stream.read(1)
        refuse_cut(file)


def _copy(path: Path, choice: TraceChoice, cache: Path | None) -> Path | None:
    if cache is None or not path.is_file():
        return None
    read_as = f"{READ_VERSION} {VERSION} {choice.format} {choice.read_options()} {path.resolve().name}"
    state = hashlib.blake2b(os.fsencode(read_as), digest_size=16)
    state.update(os.fsencode(path.resolve().parent.name))
    for part in (path, *_companions(path)):
        try:
            with part.open("rb") as file:
                state.update(os.fsencode(part.name))
                while block := file.read(1 << 22):
                    state.update(block)
        except OSError as error:
            raise UserError(f"{part}: cannot be read ({error.strerror})") from None
    return cache / "workloads" / state.hexdigest()


def is_whole(reader: Any, path: Path) -> bool:
    """Whether a reader reads nothing but ``path`` and its companions: only then do their bytes identify the trace."""
    return bool(getattr(reader, "reads_one_file", lambda _path: False)(path))


def _companions(path: Path) -> list[Path]:
    """The files beside a trace that its reader reads, too: names and labels of a Paraver trace."""
    name = path.name.removesuffix(".gz")
    if not name.endswith(".prv"):
        return []
    beside = [path.with_name(name.removesuffix(".prv") + suffix) for suffix in (".pcf", ".row")]
    return [file for file in beside if file.is_file()]


def _keep(workload: Workload, copy: Path) -> None:
    temporary = copy.with_name(f".{copy.name}.{uuid.uuid4().hex}")
    try:
        workload_folder.write(workload, temporary, compression=None)
        kept.seal_folder(temporary)
        kept.install(temporary, copy)
    except OSError as error:
        limits.refuse(error, copy.parent, "written")
        raise UserError(
            f"{copy.parent}: the cache cannot be written ({error.strerror or error}); name another with --cache DIR"
        ) from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def chosen_launches(workload: Workload, numbers: Sequence[int], place: str) -> Workload:
    """``workload`` with those launches alone, whatever its reader chose; all without ``numbers``. ``place``: its path,
    for errors. Raises UserError for one that it has not."""
    if not numbers:
        return workload
    known = workload.column("launches", "launch_id")
    if not len(known):
        raise UserError(f"{place}: has no kernel launches to choose from; leave --launch (workload.launches) out")
    missing = sorted(set(numbers) - set(known.tolist()))
    if missing:
        raise UserError(f"{place}: has no launch {missing[0]}; its launches are {known.min()} to {known.max()}")
    mine = np.isin(known, numbers)
    if mine.all():
        return workload
    was_stream = workload.tables["phases"].num_rows == len(known)
    workload = replace(workload, tables={**workload.tables, "launches": workload.tables["launches"].filter(mine)})
    return _as_phases(workload) if was_stream else workload


def with_phases(workload: Workload) -> Workload:
    """``workload``, or, if it has launches but knows no phases: one of which each launch is a compute phase of rank 0,
    in its kernel's region, before an operation ``other``. The trace does not say how long they took. O(launches)."""
    is_bare = not workload.tables["phases"].num_rows and workload.num_operations == 1
    return _as_phases(workload) if workload.tables["launches"].num_rows and is_bare else workload


def _as_phases(workload: Workload) -> Workload:
    count = workload.tables["launches"].num_rows
    kernels = workload.tables["launches"].column("kernel_name").to_pylist()
    regions = list(dict.fromkeys(kernels))
    number = {name: index for index, name in enumerate(regions)}
    phases: list[np.ndarray] = [
        np.zeros(count, np.int32),
        np.arange(count, dtype=np.int32),
        np.full(count, PhaseKind.compute, np.int8),
        np.array([number[name] for name in kernels], np.int32),
        np.zeros(count, np.int64),
    ]
    operation = workload.tables["operations"].slice(0, 1)
    tables = {
        **workload.tables,
        "operations": pa.concat_tables([operation] * count).combine_chunks(),
        "phases": pa.Table.from_arrays(list(map(to_arrow, phases)), schema=PHASES_SCHEMA),
        "regions": pa.Table.from_arrays([text_array(regions)], schema=REGIONS_SCHEMA),
    }
    return replace(workload, tables=tables)
