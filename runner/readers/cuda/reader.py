"""What the tracer recorded of a CUDA program, as a workload."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from manyscale.models.workload import Workload
from manyscale.models.workload.columns import to_arrow
from manyscale.models.workload.gpu_tables import COPIES_SCHEMA, LAUNCHES_SCHEMA
from manyscale.models.workload.notes import Errs, Note, changes, informs
from manyscale.runner.errors import UserError
from manyscale.runner.readers.bounds import MOST, whole
from manyscale.runner.readers.cuda.lanes import Recorded, RecordedLaunches
from manyscale.runner.readers.cuda.launches import (
    MOST_OF_COLUMN,
    CudaKernel,
    Launch,
    kernel_of,
    read_kernels,
    store_launch,
    with_source,
)
from manyscale.runner.readers.cuda.layout import EVENTS, PROCESS
from manyscale.runner.readers.cuda.records import LaunchRecord
from manyscale.runner.readers.options import DEFAULT_OPTIONS, ReadOptions
from manyscale.runner.readers.rank_tables import rank_tables
from manyscale.runner.readers.stores.launch_counts import COUNTED, CountedLaunches, CountsWriter
from manyscale.runner.readers.stores.launch_store import StoredLaunch
from manyscale.runner.readers.stores.launches import launches_table

NAME: Final = "cuda"
_KEPT: Final = ("recorded", "counted", "outside", "limit")


@dataclass(frozen=True)
class _Made:
    """A launch that was made: ``warp_instructions`` that it executed, whether it ran to its end, and what was kept of
    it: recorded, counted, outside (of the chosen regions) or limit (behind the limit of the disk); the ``device`` on
    which it ran."""

    launch: Launch
    warp_instructions: int
    is_whole: bool
    kept: str
    device: int


@dataclass
class Events:
    """What the text of a process says. ``copies``: (launch that follows, address, bytes). ``blocks``: of launches that
    are not whole, how many they have and how many of these are recorded."""

    path: Path
    launches: list[_Made] = field(default_factory=list)
    copies: list[tuple[int, int, int]] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    is_ended: bool = False
    begin_ns: int = 0
    blocks: list[tuple[int, int]] = field(default_factory=list)


@dataclass
class Collected:
    """What was stored of a process's launches. ``heads`` of counted ones, for the table; ``cut``: numbers of launches
    in whose midst the limit of the disk was reached; ``rules`` by which TBPoint chose those that are recorded."""

    launches: dict[int, StoredLaunch] = field(default_factory=dict)
    counted: CountedLaunches | None = None
    heads: dict[int, dict[str, Any]] = field(default_factory=dict)
    cut: set[int] = field(default_factory=set)
    rules: Mapping[str, Any] | None = None


def read(
    path: Path, options: ReadOptions = DEFAULT_OPTIONS, collected: Mapping[int, Collected] | None = None
) -> Workload:
    """The workload, with the launches that ``options`` choose. ``collected``: what was stored of each process while the
    program ran; None: records are files. Raises UserError with file and place."""
    processes = _processes(path)
    store = store_of(path, _chosen(processes, options), collected)
    tables = rank_tables(1, {}) | gpu_tables(store, _copies(processes))
    return Workload(path.resolve().name, 1, tables, tuple(_notes_of_all(processes)), NAME, gpu=store)


def store_of(
    path: Path,
    processes: Sequence[tuple[Path, Events, Mapping[int, int]]],
    collected: Mapping[int, Collected] | None = None,
) -> RecordedLaunches:
    """The launches of processes: of each its folder, its events, and the number that each of its launches that are
    chosen has in the workload. What is stored stands in a temporary folder, or where it was ``collected``. The events
    then tell what of them is recorded. Raises UserError."""
    kernels = read_kernels(path)
    folder = Path(tempfile.mkdtemp(prefix="manyscale-launches-"))
    launches: dict[int, StoredLaunch] = {}
    recorded: dict[int, Recorded] = {}
    rules = next((each.rules for each in (collected or {}).values()), None)
    counted = CountsWriter(folder / COUNTED, rules)
    try:
        for process, events, chosen in processes:
            events.problems = [with_source(each, kernels) for each in events.problems]
            number = int(process.name.rpartition("-")[2])
            own = folder / str(number)
            found = _stored(events, chosen, kernels, process, own) if collected is None else collected.get(number)
            found = found or Collected()
            _tell(events, found)
            launches |= {chosen[each]: stored for each, stored in found.launches.items() if each in chosen}
            for made in events.launches:
                if made.launch.launch_id in found.launches and made.launch.launch_id in chosen:
                    lanes = process / f"launch-{made.launch.launch_id}.lanes"
                    recorded[chosen[made.launch.launch_id]] = Recorded(lanes, kernels[made.launch.kernel].listed)
            if found.counted is not None:
                known = {each: chosen[each] for each in found.counted.launch_ids if each in chosen}
                found.counted.add_to(counted, known, found.heads)
        if not launches:
            raise UserError(_nothing(path, [events for _, events, _ in processes]))
        store = RecordedLaunches(launches, recorded, counted.close(), counted.heads)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    finally:
        counted.abandon()
    weakref.finalize(store, shutil.rmtree, folder, True)
    return store


def _tell(events: Events, found: Collected) -> None:
    """What was stored, to the events."""
    events.launches = [
        replace(made, kept="limit") if made.launch.launch_id in found.cut else made for made in events.launches
    ]
    partial = [each.blocks for each in found.launches.values() if each.blocks is not None]
    events.blocks = [(len(each.warps), int(each.is_recorded.sum())) for each in partial]


def _nothing(path: Path, processes: Sequence[Events]) -> str:
    """Why nothing was recorded."""
    made = [each for events in processes for each in events.launches]
    if outside := sum(each.kept == "outside" for each in made):
        return f"{path}: none of {outside} launches was in the regions of --regions"
    if any(each.kept == "counted" for each in made):
        return f"{path}: no launch of --launches was made; the program's are 1 to {len(made)}"
    why = "no block was recorded" if any(each.is_whole for each in made) else "no launch completed a block"
    return f"{path}: {why}{''.join(map(_last, processes))}"


def gpu_tables(store: RecordedLaunches, copies: np.ndarray) -> dict[str, pa.Table]:
    """``launches`` and ``copies``; ``copies`` int64[n, 3]: launch that follows, address, bytes."""
    columns = [to_arrow(copies[:, 0].astype(np.int32)), to_arrow(copies[:, 1]), to_arrow(copies[:, 2])]
    stored = {each: store.stored(each) for each in store.launch_ids}
    return {
        "launches": launches_table(LAUNCHES_SCHEMA, stored, store.heads),
        "copies": pa.Table.from_arrays(columns, schema=COPIES_SCHEMA),
    }


def _processes(path: Path) -> list[tuple[Path, Events]]:
    """The folder and events of each process that launched kernels, in the order in which they began. Raises
    UserError."""
    found = [(each, events_of(each / EVENTS)) for each in sorted(path.glob(PROCESS)) if (each / EVENTS).is_file()]
    if not found:
        raise UserError(f"{path}: no process used the GPU; is it another program that does, or one of a script's?")
    launched = [(folder, events) for folder, events in found if events.launches]
    if not launched:
        raise UserError(f"{path}: the program launched no kernel{_last(found[-1][1])}")
    return sorted(launched, key=lambda each: each[1].begin_ns)


def _chosen(
    processes: Sequence[tuple[Path, Events]], options: ReadOptions
) -> list[tuple[Path, Events, dict[int, int]]]:
    """With the number that each launch of a process that is chosen has in the workload: those of a process follow those
    of the one before."""
    wanted = set(options.launches or ())
    found, first = [], 0
    for folder, events in processes:
        numbers = {made.launch.launch_id: first + made.launch.launch_id for made in events.launches}
        first = max(numbers.values())
        wanted_here = {own: number for own, number in numbers.items() if not wanted or number in wanted}
        found.append((folder, events, wanted_here))
    missing = sorted(wanted - {number for _, _, numbers in found for number in numbers.values()})
    if missing:
        raise UserError(f"{processes[0][1].path}: has no launch {missing[0]}; its launches are 1 to {first}")
    return found


def _copies(processes: Sequence[tuple[Path, Events]]) -> np.ndarray:
    """int64[n, 3] of all processes."""
    rows, first = [], 0
    for _, events in processes:
        rows += [(min(first + before, MOST_OF_COLUMN), address, size) for before, address, size in events.copies]
        first += max(made.launch.launch_id for made in events.launches)
    return np.array(rows, np.int64).reshape(-1, 3)


def _notes_of_all(processes: Sequence[tuple[Path, Events]]) -> list[Note]:
    found = [note for _, events in processes for note in notes_of(events)]
    if len(processes) > 1:
        text = f"{len(processes)} processes used the GPU: their launches are read one process after the other"
        found.insert(0, changes("cuda-several-processes", text, count=len(processes), errs=Errs.long))
    return found


def _stored(
    events: Events, chosen: Mapping[int, int], kernels: list[CudaKernel], process: Path, folder: Path
) -> Collected:
    """From the files of a process."""
    found = Collected()
    counted = CountsWriter(folder / COUNTED)
    for made in events.launches:
        if made.launch.launch_id not in chosen or made.kept not in ("recorded", "counted"):
            continue
        launch_id = made.launch.launch_id
        kernel = kernel_of(kernels, made.launch, str(process / EVENTS))
        path = process / f"launch-{launch_id}"
        try:
            with path.open("rb") as stream:
                record = LaunchRecord(stream, str(path), len(kernel.static.pc))
                stored = store_launch(record, made.launch, kernel, folder / str(launch_id), counted)
        except OSError as error:
            raise UserError(f"{path}: cannot be read ({error.strerror or error}); trace the program again") from None
        if made.is_whole and not record.is_ended:
            raise UserError(f"{path}: the record of the launch is cut; trace the program again")
        if stored is not None:
            found.launches[launch_id] = stored
    found.counted, found.heads = counted.close(), counted.heads
    return found


def events_of(path: Path) -> Events:
    found = Events(path)
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror or error})") from None
    for number, line in enumerate(lines, 1):
        words = line.split(" ")
        try:
            _add(found, words, f"{path}:{number}")
        except (ValueError, IndexError):
            raise UserError(f"{path}:{number}: {line[:60]!r} is no event; trace the program again") from None
    return found


def _add(found: Events, words: list[str], place: str) -> None:
    if words[0] == "launch":
        launch_id, kernel, *shape, shared, stream = (
            whole(word, place, "a launch", most=MOST_OF_COLUMN if k < 9 else MOST) for k, word in enumerate(words[1:11])
        )
        grid, block = (shape[0], shape[1], shape[2]), (shape[3], shape[4], shape[5])
        launch = Launch(launch_id, kernel, grid, block, shared, stream)
        executed, kept = whole(words[11], place, "a launch"), words[13] if len(words) > 13 else "recorded"
        device = whole(words[14], place, "a launch's device") if len(words) > 14 else 0
        if kept not in _KEPT:
            raise ValueError(kept)
        found.launches.append(_Made(launch, executed, words[12] == "whole", kept, device))
    elif words[0] == "copy":
        before, address, size = (whole(word, place, "a copy") for word in words[1:4])
        found.copies.append((min(before, MOST_OF_COLUMN), address, size))
    elif words[0] == "note":
        found.notes.append(_note(words[1], whole(words[2], place, "a note's count"), " ".join(words[3:])))
    elif words[0] == "problem":
        found.problems.append(" ".join(words[2:]))
    elif words[0] == "end":
        found.is_ended = True
    elif words[0] == "begin":
        found.begin_ns = whole(words[1], place, "a time")
    elif words[0] != "profiler":
        raise ValueError


def _last(events: Events) -> str:
    if any(note.code == "cuda-undocumented-tables" for note in events.notes) and not events.problems:
        return (
            " (a library of it has a CUDA runtime of its own, which is linked statically and cannot be traced; use one "
            "that is linked with the shared runtime or calls the driver)"
        )
    return f" ({events.problems[-1]})" if events.problems else ""


def notes_of(events: Events) -> list[Note]:
    """What is to be said of a process."""
    found = _left_out(events)
    for problem in events.problems:
        text = f"a launch stopped, and everything after it failed: {problem}"
        found.append(changes("cuda-launch-stopped", text, errs=Errs.short))
    if not events.is_ended:
        text = "the program did not end by itself: what it did after its last launch is not there"
        found.append(changes("cuda-program-ended-early", text, errs=Errs.short))
    devices = len({made.device for made in events.launches})
    if devices > 1:
        text = f"launches were made on {devices} GPUs; a run takes them one after the other, as launches of one"
        found.append(changes("cuda-several-gpus", text, count=devices, errs=Errs.long))
    return found + events.notes


def _left_out(events: Events) -> list[Note]:
    """What was executed and not recorded, or not all of it."""
    kinds = {kept: [made for made in events.launches if made.kept == kept] for kept in _KEPT}
    executed = {kept: sum(made.warp_instructions for made in kinds[kept]) for kept in _KEPT}
    found = []
    if outside := len(kinds["outside"]):
        text = f"{outside} launches with {executed['outside']} warp instructions were outside of the regions: left out"
        found.append(changes("cuda-outside-regions", text, count=outside, errs=Errs.short))
    if behind := len(kinds["limit"]):
        text = (
            f"the limit of --disk-gb was reached at launch {kinds['limit'][0].launch.launch_id}: {behind} launches "
            f"with {executed['limit']} warp instructions are left out"
        )
        found.append(changes("recording-stopped", text, count=behind, errs=Errs.short))
    if counted := len(kinds["counted"]):
        text = (
            f"of {counted} of {counted + len(kinds['recorded'])} launches ({executed['counted']} warp instructions) "
            "counts alone were recorded: they are predicted by recorded ones like them"
        )
        found.append(changes("launches-counted", text, count=counted))
    if events.blocks:
        blocks, known = (sum(each[k] for each in events.blocks) for k in range(2))
        text = (
            f"of {len(events.blocks)} launches {known} of {blocks} blocks were recorded: the others are taken to run "
            "at the rate of those"
        )
        found.append(changes("blocks-counted", text, count=blocks - known))
    return found


def _note(code: str, count: int, name: str) -> Note:
    if code == "cuda-not-supported":
        text = f"{name} is not supported: {count} calls failed, and what the program did instead was traced"
        return changes("cuda-not-supported", text, count=count)
    if code == "cuda-kernel-not-run":
        text = f"kernel {name} was not run: {count} launches of it failed"
        return changes("cuda-kernel-not-run", text, count=count, errs=Errs.short)
    if code == "cuda-managed-memory":
        text = f"{count} allocations of managed memory: no pages are moved between host and GPU"
        return changes("cuda-managed-memory", text, count=count, errs=Errs.short)
    if code == "cuda-outside-allocation":
        text = f"kernel {name} accesses memory that is not allocated, where hardware notices nothing"
        return informs("cuda-outside-allocation", text, count=count)
    if code == "cuda-active-clusters":
        text = f"kernel {name} was told how many clusters all SMs hold; hardware's groups of SMs may hold fewer"
        return changes("cuda-active-clusters", text, count=count)
    if code == "cuda-system-functions":
        text = f"kernel {name} calls printf, malloc, free or assert of the system, which take no time here"
        return changes("cuda-system-functions", text, count=count, errs=Errs.short)
    if code == "cuda-undocumented-tables":
        text = f"{count} requests for tables of the driver that NVIDIA does not document were refused"
        return informs("cuda-undocumented-tables", text, count=count)
    if code == "nccl-in-process":
        text = f"{count} calls of {name} between GPUs of one process take no time"
        return changes("nccl-in-process", text, count=count, errs=Errs.short)
    if code == "cuda-host-times":
        text = f"{count} times between events are the host's, of the emulation: decisions that rest on them may differ"
        return informs("cuda-host-times", text, count=count)
    raise ValueError(code)
