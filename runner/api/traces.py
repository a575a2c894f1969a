"""Traces: ``trace`` records one, ``convert`` writes it in another format, ``extrapolate`` makes one for more ranks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from inspect import signature
from os import PathLike, fspath
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final, Literal

from manyscale.models.workload import MAX_RANKS, Workload
from manyscale.models.workload.notes import Errs, Note, changes
from manyscale.runner.api.answer import Answer
from manyscale.runner.api.folders import Folder, Output, Scratch, place
from manyscale.runner.api.inputs import TraceLike, changed, tools_folder
from manyscale.runner.api.progress import Progress, watched
from manyscale.runner.errors import UserError
from manyscale.runner.run import directory as rundir
from manyscale.runner.study import WorkloadChoice, parse_study
from manyscale.runner.study.traces import counted

if TYPE_CHECKING:
    import pyarrow as pa

    from manyscale.runner.run.extrapolation.quality import Extrapolation
    from manyscale.runner.run.extrapolation.roles.result import Scaled

_PathLike = str | PathLike[str]
EXTRAPOLATION: Final = "extrapolation.json"
_GB: Final = 10**9


@dataclass(frozen=True, repr=False, eq=False)
class TraceResult(Answer):
    """A workload and the folder that it was written to, which every function takes as a trace. ``status``: the exit
    status of the program that was traced, negative for a signal; ``format``: that of the files. Tables: those of the
    workload that hold something."""

    workload: Workload
    folder: Folder
    notes: Sequence[Note] = ()
    status: int = 0
    format: str = "workload"

    @property
    def path(self) -> Path:
        """Where the trace is."""
        return self.folder.path

    @property
    def title(self) -> str:
        return f"trace {self.workload.name}"

    def facts(self) -> Mapping[str, str]:
        found = {"holds": counted(self.workload), "format": self.format}
        if self.status:
            found["program"] = f"signal {-self.status}" if self.status < 0 else f"exit status {self.status}"
        return found if self.folder.is_temporary else found | {"files": str(self.folder.path)}

    @property
    def figures(self) -> Mapping[str, Any]:
        """Rows of each table."""
        return {name: table.num_rows for name, table in self.workload.tables.items() if table.num_rows}

    def _makers(self) -> Mapping[str, Callable[[], pa.Table]]:
        known = self.workload.tables
        return {name: partial(known.__getitem__, name) for name, table in known.items() if table.num_rows}


@dataclass(frozen=True, repr=False, eq=False)
class ExtrapolateResult(TraceResult):
    """A workload for more ranks than were traced, and what is known of it (``found``): trends of several traces, or
    groups and speeds of a trace of GPUs."""

    found: Extrapolation | Scaled | None = None

    @property
    def figures(self) -> Mapping[str, Any]:
        """The content of ``extrapolation.json``: trends, their intervals and checks on the smaller traces; or groups,
        spread of speeds and stragglers."""
        return {} if self.found is None else _words(self.found).figures(self.found)

    def summary(self) -> str:
        """The table to read, as the command prints it."""
        return "" if self.found is None else _words(self.found).printed(self.found)


def _words(found: Extrapolation | Scaled) -> Any:
    """The module that says what was found."""
    from manyscale.runner.run.extrapolation import quality
    from manyscale.runner.run.extrapolation.roles import report

    return quality if isinstance(found, quality.Extrapolation) else report


def trace(
    command: Sequence[str],
    output: Output = None,
    *,
    level: Literal["mpi", "tasks", "detailed", "stacks", "gpu"] = "mpi",
    ranks: Sequence[int] | None = (0,),
    iterations: Sequence[int] | None = (2,),
    regions: str | None = None,
    route: Literal["coverage", "qemu", "valgrind"] = "coverage",
    function: str | None = None,
    counting: _PathLike | None = None,
    source: Literal["auto", "perf", "py-spy", "jfr"] = "auto",
    unit_instructions: int = 100_000_000,
    unit_time: str = "100 ms",
    snapshots: int = 10,
    counters: str | None = None,
    max_gb: float | None = None,
    mpi: Literal["mpich", "openmpi"] | None = None,
    keep_raw: bool = False,
    launches: Sequence[int] | Literal["tbpoint"] | None = None,
    blocks: Sequence[tuple[int, int, int]] | None = None,
    shown: str = "rtx3070",
    gpus: int | None = None,
    check_memory: bool = False,
    keep_addresses: bool = False,
    workers: int = 1,
    cache: _PathLike | None = None,
    progress: bool = False,
) -> TraceResult:
    """Run a program under the tracer and write the workload that all else reads. The program's output is its own.

    ``level``: mpi, tasks, detailed, stacks or gpu. Of the detailed level: ``ranks`` and ``iterations`` (from 1; None:
    all), ``regions`` (names, with commas), ``route``, ``function``, and ``counting``, the program built to count. Of
    call stacks: ``source``, the profiler, and sampling units of ``unit_instructions`` or ``unit_time`` with
    ``snapshots``. Of a CUDA program: ``launches`` whose instructions are recorded, by number, or "tbpoint":
    representatives, chosen in a first run of the program (None: all); ``blocks`` of each launch, as first and
    last number and step (None: all); ``regions``: NVTX ranges, or profiler; ``shown``,
    the target whose GPU it is shown, ``gpus``, how many of them (default: those of a node of the target), and
    ``check_memory``: a kernel stops at an access to what is not allocated, even where hardware would not notice;
    ``keep_addresses``: the tracer's files stay, with the address of each thread, so that ``convert`` can write them in
    Accel-Sim's format; a command that names a source, app.cu or a shipped one, is compiled first; ``workers``: threads
    that run the blocks of a launch, with the same trace for any number. ``counters``: "hardware", "software" or names
    with commas, counted in each phase and, from level tasks on, in each task instance; ``max_gb`` on disk; ``mpi``: the
    program's library (found out by default); ``keep_raw``: the tracer's files stay; ``progress``: a line on standard
    error says what is run.

    Raises UserError where it cannot be recorded so; a program that failed has its trace, and ``status``.
    """
    tools = tools_folder(cache)
    if level == "gpu":
        if counters is not None:
            raise UserError(f"--counters {counters}: are of levels mpi, tasks and detailed, not gpu")
        from manyscale.runner.study import representative_launches

        return _trace_gpu(
            list(command), output, shown, gpus, tools, mpi,
            keep_raw=keep_raw, checks_memory=check_memory, keeps_lanes=keep_addresses, announces=progress,
            max_bytes=None if max_gb is None else int(max_gb * _GB),
            regions=tuple(regions.split(",")) if regions else (), launches=None if launches == "tbpoint" else launches,
            choose=representative_launches.choose if launches == "tbpoint" else None,
            workers=workers, blocks=tuple(blocks or ()),
        )  # fmt: skip
    from manyscale.models.workload.quantities import parse_time_ps
    from manyscale.runner.tracers import counters as known_counters
    from manyscale.runner.tracers import session
    from manyscale.runner.tracers.stacks import DEFAULT_SAMPLING, Sampling

    sampling = DEFAULT_SAMPLING
    if level == "stacks":
        if counters is not None:
            raise UserError(f"--counters {counters}: are of levels mpi, tasks and detailed, not stacks")
        try:
            sampling = Sampling(unit_instructions, parse_time_ps(unit_time), snapshots)
        except ValueError as error:
            raise UserError(f"--unit-instructions, --unit-time, --snapshots: {error}") from None
    what = session.Recording(
        level=level, ranks=ranks, iterations=iterations, regions=regions, route=route, function=function,
        counting=None if counting is None else Path(counting), source=source, sampling=sampling,
        counters=None if counters is None else known_counters.chosen(counters),
        max_bytes=None if max_gb is None else int(max_gb * _GB), announces=progress,
    )  # fmt: skip
    program = session.find_program(list(command), what, mpi)
    scratch = Scratch() if output is None else None
    wanted = scratch.path / "trace" if scratch else place(output)[0]
    directory = rundir.new_directory(wanted, "trace")
    found, status = session.trace(list(command), program, what, directory, tools, keep_raw=keep_raw)
    return TraceResult(found, Folder(directory, scratch), found.notes, status)


def _trace_gpu(
    command: list[str], output: Output, shown: str, gpus: int | None, cache: Path, mpi: str | None, **how: Any
) -> TraceResult:
    from manyscale.runner.shipped import program_path
    from manyscale.runner.study.shown_device import shown_device
    from manyscale.runner.tracers.cuda import session, sources

    if not 1 <= how["workers"] <= 64:
        raise UserError(f"--workers {how['workers']}: must be 1 to 64 threads")
    device = shown_device(shown, gpus)
    with TemporaryDirectory(prefix="manyscale-program-") as built:
        if command:
            command = [program_path(command[0]), *command[1:]]
            command = sources.built(command, device, cache, Path(built), announces=how["announces"])
        program, kit = session.find_program(command, mpi)
        scratch = Scratch() if output is None else None
        directory = rundir.new_directory(scratch.path / "trace" if scratch else place(output)[0], "trace")
        found, status = session.trace(command, program, kit, device, directory, cache, session.Recording(**how))
    return TraceResult(found, Folder(directory, scratch), found.notes, status)


def convert(
    trace: TraceLike,
    output: Output = None,
    *,
    to: str = "workload",
    format: str = "auto",
    flop_rate: str = "1 Gflop/s",
    time_unit: str = "1 ns",
    time: Literal["auto", "cpu", "process", "wall"] = "auto",
    application: int = 1,
    target: str | PathLike[str] | Mapping[str, Any] | None = None,
    set: Mapping[str, Any] | None = None,
    progress: Progress = False,
) -> TraceResult:
    """Read a trace in any format (path or shipped name) and write it in another, ``to``.

    ``flop_rate``: the speed behind a trace's flop counts; ``time_unit``: of a format that names none; ``time``: the
    clock of phases; ``application``: which one of a trace with several; ``target``: the machine whose collectives are
    written as messages (goal); ``set``: keys that settle what the trace leaves open, such as workload.polls. Raises
    UserError.
    """
    from manyscale.runner.registry import lookup
    from manyscale.runner.study.targets import resolve_target
    from manyscale.runner.study.traces import read_recorded
    from manyscale.runner.study.traces import read_workload as read_choice

    choice = {
        "path": fspath(trace), "format": format, "flop_rate": flop_rate, "time_unit": time_unit,
        "application": application, "time": time,
    }  # fmt: skip
    content = changed({"workload": choice, "target": "laptop"}, target=target, set=set)
    study = parse_study(content, "command line")
    write_trace = lookup("trace-writer", to)
    further = {}
    if target is not None:
        if "collectives" not in signature(write_trace).parameters:
            raise UserError(f"--target: format {to} names collectives, whatever the machine; leave it out")
        further["collectives"] = resolve_target(study)[0].network.collectives
    with watched(progress) as show:
        show(0, 0, "reading")
        # a workload alone can tell what only polling did, and what other clocks show
        workload = (read_recorded if to == "workload" else read_choice)(study.workload)
        show(0, 0, "writing")
        scratch = Scratch() if output is None else None
        wanted = scratch.path / workload.name if scratch else place(output)[0]
        with rundir.new_results(wanted, workload.name) as directory:
            made_up = write_trace(workload, directory, **further) or ()
    notes = (*workload.notes, *made_up, *_left_out(workload, to))
    return TraceResult(workload, Folder(directory, scratch), notes, format=to)


def _left_out(workload: Workload, form: str) -> list[Note]:
    """What of the workload takes time, and no format but its own can say."""
    from manyscale.models.machine.storage import accesses

    count = 0 if form == "workload" else len(accesses(workload).row)
    text = f"format {form} says nothing of files: {count} accesses take no time there"
    return [changes("accesses-left-out", text, count=count, errs=Errs.short)] if count else []


def extrapolate(
    traces: Sequence[TraceLike],
    ranks: int | None = None,
    output: Output = None,
    *,
    grid: Sequence[int] | None = None,
    groups: Mapping[str, int] | None = None,
    traced: Mapping[str, int] | None = None,
    roles: Mapping[int, int] | None = None,
    spread: Literal["fitted", "measured", "none"] = "fitted",
    seed: int = 0,
    format: str = "auto",
    progress: Progress = False,
) -> ExtrapolateResult:
    """Make a workload for more ``ranks`` than were traced: from traces of one program on different numbers of ranks,
    or, with ``groups`` or ``roles``, from one trace of ranks that drive GPUs.

    ``grid``: the shape, the first number varies fastest (default: as the largest trace's). ``groups``: sizes of groups
    such as dp, tp, pp, the first varies fastest (what is not named keeps its size); ``traced``: those of the trace
    (default: as its communicators say); ``roles``: ranks of the trace that are missing, and after whom they take;
    ``spread``: how speeds of new ranks are drawn, by ``seed``. Raises UserError.
    """
    import json

    from manyscale.runner.readers import workload_folder
    from manyscale.runner.study.traces import read_workload as read_choice

    paths = [fspath(each) for each in ([traces] if isinstance(traces, str | PathLike) else traces)]
    by_roles = bool(groups or traced or roles)
    _refuse_request(paths, ranks, grid, by_roles)
    read: list[tuple[str, Workload]] = []
    with watched(progress) as show:
        for path in paths:
            show(len(read), len(paths), "reading")
            missing: Literal["drop", "keep"] = "keep" if by_roles else "drop"
            read.append((path, read_choice(WorkloadChoice(path=path, format=format, missing_ranks=missing))))
        show(0, 0, "extrapolating")
        found: Extrapolation | Scaled
        if by_roles:
            from manyscale.runner.run.extrapolation.roles import scaled
            from manyscale.runner.run.extrapolation.roles.wanted import Wanted

            found = scaled(*read[0], Wanted(ranks, groups or {}, traced, roles or {}, spread, seed))
            workload = found.workload
        else:
            from manyscale.runner.run.extrapolation import extrapolation

            found = extrapolation(read, ranks or 0, None if grid is None else _shape(grid))
            workload = found.result.workload
    scratch = Scratch() if output is None else None
    wanted = scratch.path / "extrapolation" if scratch else place(output)[0]
    with rundir.new_results(wanted, "extrapolation") as directory:
        rundir.write_atomically(directory / EXTRAPOLATION, json.dumps(_words(found).figures(found), indent=1) + "\n")
        workload_folder.write(workload, directory)
    return ExtrapolateResult(workload, Folder(directory, scratch), workload.notes, found=found)


def _refuse_request(paths: Sequence[str], ranks: int | None, grid: Sequence[int] | None, by_roles: bool) -> None:
    """What can be told before a trace is read."""
    first = paths[0] if paths else "extrapolate"
    if ranks is not None and not 1 <= ranks <= MAX_RANKS:
        raise UserError(f"--ranks {ranks}: between 1 and {MAX_RANKS} can be replayed")
    if by_roles:
        if len(paths) != 1:
            raise UserError(f"{first}: --groups, --traced and --role are for one trace; there are {len(paths)}")
        if grid is not None:
            raise UserError("--grid: groups say how ranks are laid out; leave it out, or --groups, --traced and --role")
        return
    if len(paths) < 2:
        raise UserError(
            f"{first}: one trace has no trend; give traces of two or more numbers of ranks, or, of a trace of GPUs, "
            "--groups"
        )
    if ranks is None:
        raise UserError("--ranks: must be given")


def _shape(grid: Sequence[int]) -> tuple[int, int, int]:
    if not 1 <= len(grid) <= 3 or any(size < 1 for size in grid):
        text = "x".join(map(str, grid))
        raise UserError(f"--grid {text}: write one to three positive numbers, e.g. 6x6x6 (the first varies fastest)")
    sizes = [*grid, 1, 1]
    return (sizes[0], sizes[1], sizes[2])
