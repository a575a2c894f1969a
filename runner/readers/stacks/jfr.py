"""Reader for call stacks that Java Flight Recorder took.

Three forms, plain or compressed: a recording (``.jfr``), which the JDK's own tool ``jfr`` prints; what ``jfr print
--json --stack-depth 2048 --events jdk.ExecutionSample,jdk.NativeMethodSample`` printed; and a list
``NAME_jfr_stacks.tsv`` (``M id name`` names a frame, ``S time_ns thread native state ids`` is a sample, frames from the
innermost outwards), beside which may stand ``NAME_tasks.csv`` with what the framework measured of its tasks.

Samples of native methods are taken of threads that wait, too. Only those count whose thread also ran Java code (or is
chosen by name), and whose innermost method is none that waits; readers/stacks/idle.py says what else is idle, and
which threads are executors. A sample's state is its producer's word: only states in which a thread waits leave it out.
async-profiler gives samples of CPU time STATE_DEFAULT, whatever their methods (who parks a thread runs until it
sleeps), and those of wall-clock time STATE_RUNNABLE or STATE_SLEEPING; others may give none. States that are not known
count as running, and a note says so. Of a recording with several kinds of samples, the first in ``KINDS`` counts: the
others see the same work again.

A sample stands for no certain time, since the recorder drops those that it cannot walk: units are numbers of snapshots.
The numbers and addresses in the names of lambdas' classes differ from run to run and are left out.

Tasks are joined with units by thread and time: a task's values are shared among the units in proportion to their
overlap with it. Tasks without a thread cannot be joined where several ran at once.

Cost: JSON is taken apart one event at a time with the standard library, so memory is that of an event, of the distinct
stacks, and some 250 B per sample.
"""

from __future__ import annotations

import codecs
import contextlib
import csv
import io
import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from manyscale.runner.errors import UserError
from manyscale.runner.readers import bounds
from manyscale.runner.readers.archive import first_line, guarded, open_stream
from manyscale.runner.readers.options import DEFAULT_OPTIONS, ReadOptions
from manyscale.runner.readers.stacks.profile import SAMPLES, UNKNOWN, Profile, TaskCounts
from manyscale.runner.readers.stacks.unit_counts import head_fields, snapshots
from manyscale.runner.readers.stacks.units import DEFAULT_RULES, UnitRules

if TYPE_CHECKING:
    from manyscale.models.workload import Workload

NAME: Final = "jfr"
KEEPS_THREADS: Final = True  # read takes options.threads and options.idle
JAVA, NATIVE = "jdk.ExecutionSample", "jdk.NativeMethodSample"
# events that are samples: of the JDK (with those of native methods) and async-profiler, of the JDK from 25 on, and of
# async-profiler from 4 on, whose one event may stand for several samples of a thread that did not move
CPU_TIME: Final = "jdk.CPUTimeSample"
KINDS: Final = (JAVA, CPU_TIME, "profiler.WallClockSample")
_MAGIC: Final = b"FLR\0"
_ON_CPU: Final = "DEFAULT"
# of the JDK (jfrThreadState.cpp), of async-profiler (flightRecorder.cpp), and of java.lang.Thread.State
_RUNNING_STATES: Final = {"", _ON_CPU, "RUNNABLE", "RUNNING", "UNKNOWN", "CPU", "ON_CPU"}
_WAITING_STATES: Final = {
    "NEW", "TERMINATED", "SLEEPING", "IN_OBJECT_WAIT", "IN_OBJECT_WAIT_TIMED", "PARKED", "PARKED_TIMED",
    "BLOCKED_ON_MONITOR_ENTER", "BLOCKED", "WAITING", "TIMED_WAITING",
}  # fmt: skip
_PRINTED: Final = ",".join((*KINDS, NATIVE))
_STACK_DEPTH: Final = 2048  # the deepest that the recorder keeps
_CHUNK_CHARACTERS: Final = 1 << 20
_HEAD_BYTES: Final = 1 << 12
_LONGEST_EVENT: Final = 1 << 26  # characters; a stack of 2048 frames has less
_OPENING: Final = re.compile(r'\s*\{\s*"recording"\s*:\s*\{\s*"events"\s*:\s*\[')
_DEFAULT_DEPTH: Final = 5  # to which jfr print cuts stacks unless told otherwise
# native methods in which a thread waits
_WAITING: Final = re.compile(
    r".*\.(epollWait|wait|wait0|park|sleep|sleep0|poll|poll0|accept|accept0|socketAccept|socketRead0|kevent|select0|"
    r"waitForReferencePendingList|waitForProcessExit0?|await\w*|connect0|net_poll)|.*\.(SocketDispatcher|Net)\.read\w*"
)
_LAMBDA: Final = re.compile(r"\$\$Lambda(\$\d+)?([+/.]0x[0-9a-f]+)?(\.\d+(?=\.))?")
_TIME: Final = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:?\d\d)")
_NAMED_KIND: Final = re.compile(
    rb'.*"(jdk\.(ExecutionSample|NativeMethodSample|CPUTimeSample)|profiler\.WallClockSample)"'
)
_MOST_THREAD: Final = (1 << 32) - 1
_TASK_COLUMNS: Final = {"thread", "start_ns", "end_ns"}
_NO_COUNTERS: Final = {"stage", "task", "thread", "start_ns", "end_ns"}


def can_read(path: Path) -> bool:
    """Whether the file is a recording, JSON of ``jfr print``, or a list of time-stamped stacks."""
    if not path.is_file():
        return False
    try:
        with guarded(path), open_stream(path) as stream:
            head = stream.read(_HEAD_BYTES)
    except UserError:
        return False
    if head.startswith(_MAGIC) or _OPENING.match(head.decode(errors="replace")):
        return True
    return head[:1] in (b"M", b"#") and any(one[0] == "S" and len(one) == 6 for one in head_fields(path))


def resembles(path: Path) -> int | None:
    """The first line that is the kind of a sample, if one is."""
    return first_line(path, _NAMED_KIND)


def reads_one_file(path: Path) -> bool:
    return path.is_file() and _tasks_beside(path) is None


def read(path: Path, options: ReadOptions = DEFAULT_OPTIONS, *, rules: UnitRules = DEFAULT_RULES) -> Workload:
    """The workload of one profile (of ``options`` those of threads count). Raises UserError, one line, for what cannot
    be read."""
    from manyscale.runner.readers.stacks.tables import workload

    profile, rules = Profile(), rules.chosen(options)
    collect(path, profile, 0, rules)
    name = re.sub(r"_jfr_stacks$", "", path.name.split(".")[0])
    return workload(profile, path, name, 1, rules, NAME)


def collect(path: Path, profile: Profile, rank: int, rules: UnitRules = DEFAULT_RULES, process: int = 0) -> None:
    """Add the samples of a file to a profile as those of a rank, in which it is process number ``process``."""
    with guarded(path), open_stream(path) as stream:
        head = stream.read(_HEAD_BYTES)
    if head.startswith(_MAGIC):
        samples = _samples(path, profile, _printed(path))
    elif head.lstrip().startswith(b"{"):
        samples = _samples(path, profile, _stored(path))
    else:
        samples = _listed(path, profile)
        tasks = _tasks_beside(path)
        if tasks is not None:
            profile.tasks = _tasks(tasks, profile)
    _add(path, profile, rank, rules, process << 32, list(samples))


class _Sample(NamedTuple):
    """``kind``: the event's; ``state`` in capitals, without ``STATE_``; ``times``: how many samples it stands for."""

    time_ns: int
    thread: int
    name: str
    kind: str
    state: str
    stack: int
    times: int = 1


def _add(path: Path, profile: Profile, rank: int, rules: UnitRules, first_thread: int, samples: list[_Sample]) -> None:
    from manyscale.models.workload.notes import changes, informs

    event = profile.event(SAMPLES)
    pattern = re.compile(rules.threads) if rules.threads else None
    kinds = {JAVA if sample.kind == NATIVE else sample.kind for sample in samples}
    chosen = next((kind for kind in KINDS if kind in kinds), JAVA)
    busy = {sample.thread for sample in samples if sample.kind != NATIVE}
    names = list(profile.frames)
    stacks = list(profile.stacks)
    unknown: dict[str, int] = {}
    others = 0
    for sample in sorted(samples, key=lambda one: (one.time_ns, one.thread)):
        waits = sample.state in _WAITING_STATES
        if sample.kind == NATIVE:
            known = sample.thread in busy or (pattern is not None and pattern.search(sample.name) is not None)
            leaf = names[stacks[sample.stack][-1]] if stacks[sample.stack] else ""
            waits = waits or not known or _WAITING.fullmatch(leaf) is not None
        if (JAVA if sample.kind == NATIVE else sample.kind) != chosen:
            others += sample.times
        elif waits:
            profile.num_idle += sample.times
        else:
            if sample.state not in _RUNNING_STATES:
                unknown[sample.state] = unknown.get(sample.state, 0) + sample.times
            thread = first_thread + sample.thread
            profile.names[rank, thread] = sample.name
            if sample.kind == CPU_TIME or sample.state == _ON_CPU:
                profile.on_cpu.append(len(profile.rows["rank"]))
            profile.add(
                rank, thread, sample.time_ns, sample.stack, event=event, count=sample.times, weight=sample.times
            )
    if unknown:
        known_as = ", ".join(f"{state} {count}" for state, count in sorted(unknown.items())[:4])
        text = f"{sum(unknown.values())} samples in states that are not known count as running ({known_as})"
        profile.notes.append(changes("states-unknown", text, path.name, sum(unknown.values())))
    if others:
        text = f"{others} samples of other kinds than {chosen} see the same work again: left out"
        profile.notes.append(informs("events-left-out", text, path.name, others))


def _thread(thread: dict[str, Any]) -> int:
    """The number of a thread; threads that Java does not know have negative ones."""
    given = thread.get("javaThreadId")
    if given:
        return bounds.whole(given, "sampledThread", "javaThreadId", 1, _MOST_THREAD)
    return -bounds.whole(thread.get("osThreadId") or 0, "sampledThread", "osThreadId", 0, _MOST_THREAD)


def _samples(path: Path, profile: Profile, parts: Iterator[str]) -> Iterator[_Sample]:
    """The samples among the events of printed JSON."""
    from manyscale.models.workload.notes import changes, informs

    deepest = others = 0
    frames: dict[tuple[str, str], int] = {}
    for number, event in enumerate(_events(path, parts), 1):
        try:
            kind, values = event["type"], event["values"]
            if kind != NATIVE and kind not in KINDS:
                others += 1
                continue
            thread = values["sampledThread" if "sampledThread" in values else "eventThread"] or {}
            name = thread.get("javaName") or thread.get("osName") or "unknown"
            methods = [frame["method"] or {} for frame in (values["stackTrace"] or {}).get("frames") or ()]
            keys = [((one.get("type") or {}).get("name") or "", one.get("name") or UNKNOWN) for one in methods[::-1]]
            for key in keys:
                if key not in frames:
                    frames[key] = profile.frame(_method(f"{key[0].replace('/', '.')}.{key[1]}".strip(".")))
            stack = profile.stack([frames[key] for key in keys] or [profile.frame(UNKNOWN)])
            deepest = max(deepest, len(methods))
            time_ns = _nanoseconds(values["startTime"])
            identity = _thread(thread)
            yield _Sample(time_ns, identity, name, kind, _state(values.get("state")), stack, _times(values))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise UserError(f"{path}: event {number} is no sample as 'jfr print --json' prints it ({error})") from None
    if deepest == _DEFAULT_DEPTH:
        text = (
            f"no stack is deeper than {_DEFAULT_DEPTH} frames, to which 'jfr print' cuts them unless it is given "
            f"--stack-depth {_STACK_DEPTH}"
        )
        profile.notes.append(changes("stacks-cut", text, path.name))
    if others:
        text = f"{others} events that are no samples of methods are left out"
        profile.notes.append(informs("events-left-out", text, path.name, others))


def _state(value: object) -> str:
    """What a thread did, "" where the event does not say. A constant may be printed with its fields."""
    if isinstance(value, dict):
        value = value.get("name")
    return re.sub(r"^STATE_", "", str(value or "").strip().upper())


def _times(values: dict[str, Any]) -> int:
    number = values.get("samples", 1)
    if not isinstance(number, int) or not 0 < number < 2**31:
        raise ValueError(f"samples {number!r}")
    return number


def _method(name: str) -> str:
    return _LAMBDA.sub("$$Lambda", name)


def _events(path: Path, parts: Iterator[str]) -> Iterator[dict[str, Any]]:
    """The members of the array ``recording.events``, one at a time."""
    decoder = json.JSONDecoder()
    text = ""
    while (opening := _OPENING.match(text)) is None and len(text) < _HEAD_BYTES and (part := next(parts, "")):
        text += part
    if opening is None:
        raise UserError(f"{path}: is no output of 'jfr print --json'")
    place, number = opening.end(), 0
    while True:
        while place < len(text) and text[place] in " \t\r\n,":
            place += 1
        if text[place : place + 1] == "]":
            return
        try:
            if place >= len(text):
                raise json.JSONDecodeError("the end is missing", text, place)
            event, place = decoder.raw_decode(text, place)
            number += 1
            yield event
        except json.JSONDecodeError as error:  # damaged, or not yet read to its end
            part = next(parts, "")
            if not part or len(text) - place > _LONGEST_EVENT:
                raise UserError(f"{path}: event {number + 1} is damaged or cut short ({error.msg})") from None
            text, place = text[place:] + part, 0
        except (RecursionError, ValueError) as error:  # nested too deeply; a number of thousands of digits
            raise UserError(f"{path}: event {number + 1} is damaged ({error})") from None


def _stored(path: Path) -> Iterator[str]:
    with guarded(path), open_stream(path) as stream:
        yield from _characters(stream)


def _printed(path: Path) -> Iterator[str]:
    """What the JDK's tool prints of a recording."""
    tool = shutil.which("jfr")
    if tool is None:
        raise UserError(
            f"{path}: the tool 'jfr' that prints recordings is not on the PATH; install a JDK of version 14 or later "
            "(Debian: default-jdk-headless)"
        )
    with contextlib.ExitStack() as stack:
        file = path
        with path.open("rb") as stream:
            is_plain = stream.read(len(_MAGIC)) == _MAGIC
        if not is_plain:  # the tool reads nothing else
            file = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "unpacked.jfr"
            with guarded(path), open_stream(path) as stream, file.open("wb") as unpacked:
                shutil.copyfileobj(stream, unpacked, _CHUNK_CHARACTERS)
        command = [tool, "print", "--json", "--stack-depth", str(_STACK_DEPTH), "--events", _PRINTED, str(file)]
        process = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE))
        assert process.stdout is not None
        assert process.stderr is not None
        first = process.stdout.read(1)
        if not first:
            told = process.stderr.read().decode(errors="replace").strip().splitlines() or ["it prints nothing"]
            raise UserError(f"{path}: 'jfr print' cannot read the recording: {told[0]}")
        yield first.decode() + next(characters := _characters(process.stdout), "")
        yield from characters
        if process.wait():
            told = process.stderr.read().decode(errors="replace").strip().splitlines() or ["it gave up"]
            raise UserError(f"{path}: 'jfr print' cannot read the whole recording: {told[0].strip()}")


def _characters(stream: IO[bytes]) -> Iterator[str]:
    """Text in parts: at least as much as was read before, so that a long event is not taken apart too often."""
    decode = codecs.getincrementaldecoder("utf-8")(errors="replace").decode
    while part := stream.read(_CHUNK_CHARACTERS):
        yield decode(part)


def _nanoseconds(text: str) -> int:
    """Nanoseconds since 1970 of a time such as 2026-11-28T05:54:01.626651045Z."""
    found = _TIME.fullmatch(text)
    if found is None:
        raise ValueError(f"time {text!r}")
    seconds = int(datetime.fromisoformat(found[1] + found[3]).timestamp())
    return seconds * 10**9 + int((found[2] or "").ljust(9, "0"))


def _listed(path: Path, profile: Profile) -> Iterator[_Sample]:
    threads: dict[str, int] = {}
    for number, fields, stack in snapshots(path, profile, _method):
        if len(fields) != 6 or not re.fullmatch(r"\d{1,18}|1\d{18}", fields[1]) or fields[3] not in ("0", "1"):
            raise UserError(f"{path}:{number}: a sample is 'S time_ns thread native state frames', separated by tabs")
        thread = threads.setdefault(fields[2], len(threads) + 1)
        kind = NATIVE if fields[3] == "1" else JAVA
        yield _Sample(int(fields[1]), thread, fields[2], kind, _state(fields[4]), stack)


def _tasks_beside(path: Path) -> Path | None:
    name, found, _ = path.name.partition("_jfr_stacks.tsv")
    beside = [path.with_name(f"{name}_tasks.csv{suffix}") for suffix in ("", ".gz", ".xz", ".zst")] if found else []
    return next((one for one in beside if one.is_file()), None)


def _tasks(path: Path, profile: Profile) -> TaskCounts | None:
    from manyscale.models.workload.notes import informs

    with guarded(path), open_stream(path) as stream:
        rows = csv.DictReader(io.TextIOWrapper(stream, errors="replace"))
        columns = list(rows.fieldnames or ())
        if not set(columns) >= _TASK_COLUMNS:
            text = "tasks without the columns thread, start_ns and end_ns cannot be joined with units"
            profile.notes.append(informs("counters-missing", text, path.name))
            return None
        counters = [name for name in columns if name not in _NO_COUNTERS]
        names, times, values = [], [], []
        for row in rows:
            try:
                names.append(row["thread"])
                times.append(tuple(bounds.whole(row[name], path, name) for name in ("start_ns", "end_ns")))
                values.append([bounds.finite(row[name], path, name) for name in counters])
            except (TypeError, ValueError):
                raise UserError(f"{path}:{rows.line_num}: each counter must have a number in each row") from None
    start, end = np.array(times, np.int64).reshape(-1, 2).T
    table = np.array(values, np.float64).reshape(-1, len(counters)).T
    return TaskCounts(tuple(names), start, end, tuple(f"task_{name}" for name in counters), table)
