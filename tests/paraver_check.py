"""A strict check of Paraver traces that shares no code with those who write or read them.

Grammar: BSC, "Paraver: Parallel Program Visualization and Analysis tool; Trace file description" (2001), with the end
of a trace in nanoseconds, resources and communicators as Extrae writes them. ``python tests/paraver_check.py FILE.prv``
says what is wrong.
"""

from __future__ import annotations

import gzip
import re
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

_HEADER = re.compile(
    r"#Paraver \((\d\d/\d\d/\d{2,4}) at (\d\d:\d\d)\):(\d+)_ns:(\d+)\(([\d,]+)\):([12]):(\d+)\(([\d:,]+)\)"
    r"(?:,1\((\d+):(\d+)\))?,(\d+)"
)
_LENGTHS = {"1": (8,), "3": (15,)}


class ParaverError(AssertionError):
    """What is wrong, with the line."""


@dataclass
class Trace:
    """What a trace says; numbers as they stand in it. ``states``: (begin, end, state) by thread, ``events``: (time,
    {type: value}) by thread, in order, where a thread is (task, thread); task 0 is the one of a second application,
    which has ``others`` (threads, node). ``messages``: rows of records of type 3."""

    end: int
    cpus: list[int]  # of each node
    threads: list[tuple[int, int]]  # of each task: how many, on which node
    others: tuple[int, int] | None = None
    states: dict[tuple[int, int], list[tuple[int, int, int]]] = field(default_factory=dict)
    events: dict[tuple[int, int], list[tuple[int, dict[int, int]]]] = field(default_factory=dict)
    messages: list[list[int]] = field(default_factory=list)
    records: Counter[str] = field(default_factory=Counter)


def check(path: Path) -> Trace:
    """The trace ``path`` (.prv or .prv.gz), with the files beside it. Raises ParaverError."""
    lines = (gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()).decode()
    _need(lines.endswith("\n"), 0, "the last line has no end")
    first, *rest = lines.splitlines()
    match = _HEADER.fullmatch(first)
    _need(match is not None, 1, f"no header: {first}")
    assert match is not None
    cpus = [int(each) for each in match[5].split(",")]
    tasks = [each.split(":") for each in match[8].split(",")]
    _need(len(cpus) == int(match[4]), 1, "as many lists of CPUs as nodes")
    _need(len(tasks) == int(match[7]) and all(len(each) == 2 for each in tasks), 1, "as many tasks as it says")
    trace = Trace(int(match[3]), cpus, [(int(count), int(node)) for count, node in tasks])
    _need((match[6] == "2") == (match[9] is not None), 1, "as many applications as it says")
    if match[9] is not None:
        trace.others = int(match[9]), int(match[10])
    every = [*trace.threads, *([] if trace.others is None else [trace.others])]
    _need(all(1 <= node <= len(cpus) and count > 0 for count, node in every), 1, "nodes of tasks")
    per_node = Counter[int]()
    for count, node in every:
        per_node[node] += count
    _need([per_node[node] for node in range(1, len(cpus) + 1)] == cpus, 1, "a CPU for each thread on a node")
    number = int(match[11])
    for at, line in enumerate(rest[:number], start=2):
        head, *values = line.split(":")
        _need(head == "c" and all(each.isdigit() for each in values), at, f"no communicator: {line}")
        application, communicator, size, *members = map(int, values)
        _need((application == 1 and communicator == at - 1) or communicator > 0, at, "numbers of communicators")
        _need(size == len(members) == len(set(members)), at, "as many members as it says, each once")
        _need(all(1 <= each <= len(tasks) for each in members), at, "members are tasks")
    _read(trace, rest[number:], number + 2)
    _labels(path, trace)
    _names(path, trace)
    return trace


def _need(holds: bool, line: int, what: str) -> None:
    if not holds:
        raise ParaverError(f"line {line}: {what}")


def _read(trace: Trace, lines: list[str], first: int) -> None:
    last = (-1, "")
    cpu_of: dict[tuple[int, int], int] = {}
    first_cpu = [1 + sum(trace.cpus[:node]) for node in range(len(trace.cpus) + 1)]
    for at, line in enumerate(lines, start=first):
        words = line.split(":")
        _need(all(word.isdigit() for word in words), at, f"numbers only: {line}")
        kind, values = words[0], [int(word) for word in words]
        if kind in _LENGTHS:
            _need(len(values) in _LENGTHS[kind], at, f"fields of a record of type {kind}")
        else:
            _need(kind == "2" and len(values) >= 8 and len(values) % 2 == 0, at, "a record of type 1, 2 or 3")
        trace.records[kind] += 1
        time = values[6] if kind == "3" else values[5]
        _need(time >= last[0], at, "times go on")
        last = (time, kind)
        ends = [values[1:5]] if kind != "3" else [values[1:5], values[7:11]]
        for cpu, application, task, thread in ends:
            is_other = application == 2 and task == 1 and trace.others is not None
            _need(is_other or (application == 1 and 1 <= task <= len(trace.threads)), at, "application and task")
            count, node = trace.others if is_other and trace.others is not None else trace.threads[task - 1]
            task = 0 if is_other else task
            _need(1 <= thread <= count, at, "thread")
            _need(first_cpu[node - 1] <= cpu < first_cpu[node], at, "a CPU of the task's node")
            _need(cpu_of.setdefault((task, thread), cpu) == cpu, at, "a thread stays on its CPU")
        who = values[3] if values[2] == 1 else 0, values[4]
        if kind == "1":
            begin, end, state = values[5:]
            _need(begin < end <= trace.end, at, "a state's begin and end")
            mine = trace.states.setdefault(who, [])
            _need(not mine or mine[-1][1] <= begin, at, f"states of thread {who} overlap")
            mine.append((begin, end, state))
        elif kind == "2":
            _need(time <= trace.end, at, "events before the end")
            pairs: dict[int, int] = {}
            for number, value in zip(values[6::2], values[7::2], strict=True):
                _need(pairs.get(number, 0) == 0, at, "a value ends before another one of its type begins in a record")
                pairs[number] = value
            trace.events.setdefault(who, []).append((time, pairs))
        else:
            logical, physical, _, _ = values[5], values[6], *values[13:15]
            _need(logical <= physical, at, "a message is sent when it was asked for or later")
            _need(values[11] <= values[12] <= trace.end, at, "a message is received when it was asked for or later")
            trace.messages.append(values)
    _need(len(set(cpu_of.values())) == len(cpu_of), first, "no two threads on one CPU")


def _labels(path: Path, trace: Trace) -> None:
    """Every type has a label, and every value of a type that has labels of values; no label stands twice."""
    types: dict[int, str] = {}
    values: dict[int, set[int]] = {}
    block: list[int] = []
    heading = ""
    states: set[int] = set()
    for line in _beside(path, ".pcf").read_text().splitlines():
        words = line.split()
        if not words:
            continue
        if words[0].isupper() and not words[0].isdigit() and "_" not in words[0][:1] and len(words) == 1:
            heading = words[0]
            block = [] if heading == "EVENT_TYPE" else block
        elif heading == "EVENT_TYPE":
            number = int(words[1])
            _need(number not in types, 0, f".pcf: type {number} stands twice")
            types[number] = " ".join(words[2:])
            block.append(number)
        elif heading == "VALUES":
            for each in block:
                _need(int(words[0]) not in values.setdefault(each, set()), 0, f".pcf: value {words[0]} stands twice")
                values[each].add(int(words[0]))
        elif heading == "STATES":
            states.add(int(words[0]))
    for mine in trace.states.values():
        _need({state for _, _, state in mine} <= states, 0, ".pcf: states have names")
    for records in trace.events.values():
        for _, pairs in records:
            for number, value in pairs.items():
                _need(number in types, 0, f".pcf: type {number} has no label")
                _need(number not in values or value in values[number], 0, f".pcf: value {value} of {number} has none")


def _names(path: Path, trace: Trace) -> None:
    sizes = {"CPU": sum(trace.cpus), "NODE": len(trace.cpus), "TASK": len(trace.threads), "THREAD": sum(trace.cpus)}
    lines = _beside(path, ".row").read_text().splitlines()
    at = 0
    while at < len(lines):
        if not lines[at]:
            at += 1
            continue
        word, level, size, number = lines[at].split()
        _need((word, size) == ("LEVEL", "SIZE") and sizes.get(level) == int(number), 0, f".row: {lines[at]}")
        names = lines[at + 1 : at + 1 + int(number)]
        _need(len(names) == int(number) and all(names), 0, f".row: names of level {level}")
        at += 1 + int(number)


def _beside(path: Path, ending: str) -> Path:
    return path.with_name(path.name.removesuffix(".gz").removesuffix(".prv") + ending)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        found = check(Path(name))
        print(
            name, dict(found.records), len(found.threads), "tasks", sum(count for count, _ in found.threads), "threads"
        )
