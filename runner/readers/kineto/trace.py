"""A rank's trace as columns. Times are ps from the base of the trace, ``base_ns``, which is that of the Unix epoch
where the file says so."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Annotated, Any, Final

import msgspec
import numpy as np

from manyscale.models.workload.gpu_tables import GpuOperationKind
from manyscale.runner.errors import UserError
from manyscale.runner.readers.kineto.calls import by_name, is_communication, kind_of_copy
from manyscale.runner.readers.kineto.events import Args, Document, Event, number

_G: Final = GpuOperationKind
_Number = int | float | Decimal  # of microseconds
# categories over the versions of Kineto, in lower case
_CALLS: Final = ("cuda_runtime", "cuda_driver", "runtime", "driver", "hip_runtime", "hip_driver", "privateuse1_runtime")
_KERNELS: Final = ("kernel", "concurrent_kernel")
_COPIES: Final = ("gpu_memcpy", "memcpy")
_SETS: Final = ("gpu_memset", "memset")
_SYNCHRONISATIONS: Final = ("cuda_sync",)
_OPERATORS: Final = ("cpu_op", "operator")
_ANNOTATIONS: Final = ("user_annotation",)
# of events that take no time which is not in others; Trace is the window's own
_BESIDE: Final = ("gpu_user_annotation", "python_function", "cpu_instant_event", "overhead", "external_correlation",
                  "ac2g", "async_cpu_to_gpu", "fwdbwd", "cuda_event", "cuda_profiler_range", "trace")  # fmt: skip
_KNOWN: Final = {*_CALLS, *_KERNELS, *_COPIES, *_SETS, *_SYNCHRONISATIONS, *_OPERATORS, *_ANNOTATIONS, *_BESIDE}
_NO_NUMBER: Final = -(2**62)
_MOST_US: Final = 2**52
_MOST_DEVICE: Final = 1 << 16
_MOST_BLOCKS: Final = 2**62
_AXES: Final = Annotated[list[Annotated[int, msgspec.Meta(ge=1, lt=2**31)]], msgspec.Meta(min_length=3, max_length=3)]
_MOST_THREADS: Final = 1024  # of a block
_LONGEST_US: Final = 10 * 86_400 * 10**6  # so that ps fit into 64 bits
_STEP: Final = re.compile(r"ProfilerStep\s*#\s*(\d{1,9})(?!\d)")


@dataclass(frozen=True)
class Spans:
    """Things that a thread did: ``name`` int64[n], numbers of ``Trace.names``; ``thread`` int64[n], numbers of
    ``Trace.threads``; ``begin`` and ``end`` int64[n] in ps; sorted by begin, longer ones first. ``args`` of each."""

    name: np.ndarray
    thread: np.ndarray
    begin: np.ndarray
    end: np.ndarray
    args: Sequence[Args | None]

    def __len__(self) -> int:
        return len(self.name)


@dataclass(frozen=True)
class Trace:
    """``calls`` with their ``correlation``; ``given``: what the GPU did, by begin: ``kind`` (GpuOperationKind),
    ``stream``, ``device``, ``bytes``, ``blocks`` of a launch and threads of each (0 unknown), and the correlation of
    the call that gave it, -1 unknown; ``awaited``: what calls waited for, by correlation. ``operators``: of the
    framework, and ``annotations``. ``steps``: (number, thread, begin, end). ``untimed``: events that tell no time that
    they took, or a negative one; ``placeless``: that tell no thread, stream or GPU; ``unknown``: of categories that are
    not known; ``schema``: version of the file's form, 0 untold."""

    place: str
    rank: int | None
    world: int
    groups: tuple[dict[str, Any], ...]
    gpus: dict[int, str]
    base_ns: int
    names: list[str]
    threads: list[str]
    calls: Spans
    call_correlation: np.ndarray
    given: Spans
    kind: np.ndarray
    stream: np.ndarray
    device: np.ndarray
    bytes: np.ndarray
    blocks: np.ndarray
    block_threads: np.ndarray
    correlation: np.ndarray
    awaited: dict[int, Args]
    operators: Spans
    annotations: Spans
    steps: tuple[tuple[int, int, int, int], ...]  # (number, thread, begin, end)
    untimed: int = 0
    placeless: int = 0
    unknown: int = 0
    schema: int = 0

    @property
    def begin(self) -> int:
        """Of the first thing that the host did, or that the GPU did for it."""
        return min(
            int(each.begin.min()) for each in (self.calls, self.operators, self.annotations, self.given) if len(each)
        )

    @property
    def end(self) -> int:
        return max(
            int(each.end.max()) for each in (self.calls, self.operators, self.annotations, self.given) if len(each)
        )


def trace_of(document: Document, place: str) -> Trace:
    """The columns of a trace. Raises UserError."""
    every = [each for each in document.traceEvents or () if each.ph == "X"]
    events = [each for each in every if type(each.cat) is str]
    kinds = {each.cat for each in events}
    of = {cat: str(cat).lower() for cat in kinds}
    parts = [[each for each in events if of[each.cat] in cats] for cats in
             (_CALLS, (*_KERNELS, *_COPIES, *_SETS), _OPERATORS, _ANNOTATIONS, _SYNCHRONISATIONS)]  # fmt: skip
    calls, given, operators, annotations, awaited = parts
    if not calls and not given and not operators and not annotations:
        raise UserError(f"{place}: has no events of operators, calls or kernels; record it with torch.profiler")
    origin = min(math.floor(_time(each, place)) for part in parts[:4] for each in part)
    base_ns = number(document.baseTimeNanoseconds, 0) + origin * 1000
    table = _Names({}, {})
    info = document.distributedInfo if isinstance(document.distributedInfo, dict) else {}
    spans = [table.spans(part, origin, place) for part in (calls, given, operators, annotations)]
    for number_of, part in enumerate((calls, given, operators, annotations)):
        part[:] = [part[each] for each in spans[number_of][1].tolist()]
    names = list(table.names)
    gpu = spans[1][0]
    cats = {cat: _kind(low) for cat, low in of.items()}
    kind = np.array([cats[each.cat] for each in given], np.int64)
    is_kernel = kind == _G.launch
    kind[is_kernel] = np.where(by_name(names, gpu.name[is_kernel], is_communication), _G.communication, _G.launch)
    is_copy = kind == _G.copy_on_device
    kind[is_copy] = by_name(names, gpu.name[is_copy], kind_of_copy)
    configured = info["pg_config"] if isinstance(info.get("pg_config"), list) else []
    steps = []
    for at, name in enumerate(spans[3][0].name.tolist()):
        found = _STEP.match(names[name])
        own = spans[3][0]
        if found and own.end[at] > own.begin[at]:
            steps.append((int(found[1]), int(own.thread[at]), int(own.begin[at]), int(own.end[at])))
    nothing = Args()
    process = [each.pid if number(each.pid, -1) <= _MOST_DEVICE else 0 for each in given]  # old traces: the GPU
    device = np.maximum(_column(given, "device", 0, process), 0)
    if len(device) and int(device.max()) > _MOST_DEVICE:
        raise UserError(f"{place}: something ran on GPU {int(device.max())}, which no process has; export it again")
    launched = [_launched(bytes(args.grid), bytes(args.block)) for args in (each.args or nothing for each in given)]
    blocks, block_threads = np.array(launched, np.int64).reshape(-1, 2).T
    return Trace(
        place=place,
        rank=number(info.get("rank"), -1) if number(info.get("rank"), -1) >= 0 else None,
        world=max(number(info.get("world_size"), 0), 0),
        groups=tuple(each for each in configured if isinstance(each, dict)),
        gpus=_gpus(document.deviceProperties),
        base_ns=base_ns,
        names=names,
        threads=list(table.threads),
        calls=spans[0][0],
        call_correlation=_column(calls, "correlation", -1),
        given=gpu,
        kind=kind,
        stream=_column(given, "stream", 0, [each.tid for each in given]),
        device=device,
        bytes=np.maximum(_column(given, "bytes", 0), 0),
        blocks=blocks,
        block_threads=block_threads,
        correlation=_column(given, "correlation", -1),
        awaited={
            correlation: args
            for args in (each.args or nothing for each in awaited)
            if (correlation := number(args.correlation, -1)) > 0
        },
        operators=spans[2][0],
        annotations=spans[3][0],
        steps=tuple(sorted(steps)),
        untimed=sum(each.dur is None or _length(each, place) < 0 for part in parts[:4] for each in part),
        placeless=sum(not _has_thread(each) for part in (calls, operators, annotations) for each in part)
        + sum(not _has_stream(each) for each in given),
        unknown=len(every) - len(events) + sum(of[each.cat] not in _KNOWN for each in events),
        schema=number(document.schemaVersion, 0),
    )  # fmt: skip


def _has_thread(event: Event) -> bool:
    return type(event.pid) in (int, str) and type(event.tid) in (int, str)


def _has_stream(event: Event) -> bool:
    """Whether something that a GPU did tells numbers of its stream and its GPU; old traces have them as thread and
    process."""
    args = event.args or Args()
    told = (event.tid if args.stream is None else args.stream, event.pid if args.device is None else args.device)
    return all(number(each, _NO_NUMBER) != _NO_NUMBER for each in told)


@lru_cache(1 << 12)
def _launched(grid: bytes, block: bytes) -> tuple[int, int]:
    """Blocks of a launch and threads of a block, from its sizes along three axes as they stand in the trace; 0 where
    either is not told."""
    found = []
    for text in (grid, block):
        try:
            found.append(math.prod(msgspec.json.decode(text, type=_AXES)))
        except msgspec.MsgspecError:
            return 0, 0
    return (found[0], found[1]) if found[0] < _MOST_BLOCKS and found[1] <= _MOST_THREADS else (0, 0)


def _kind(category: str) -> int:
    return int(_G.launch if category in _KERNELS else _G.set if category in _SETS else _G.copy_on_device)


def _gpus(properties: Any) -> dict[int, str]:
    found = [each for each in properties or () if isinstance(each, dict)] if isinstance(properties, list) else []
    return {number(each.get("id"), at): str(each.get("name", "")) for at, each in enumerate(found)}


def _time(event: Event, place: str) -> _Number:
    """When an event begins, us."""
    return _number(event, event.ts, "begins at", place)


def _length(event: Event, place: str) -> _Number:
    """How long an event takes, us."""
    return _number(event, 0 if event.dur is None else event.dur, "takes", place)


def _number(event: Event, value: Any, what: str, place: str) -> _Number:
    if type(value) is int and abs(value) < _MOST_US:
        return value
    found: int | float | Decimal
    try:
        if isinstance(value, bool):
            raise TypeError
        found = Decimal(value) if isinstance(value, str | Decimal) else float(value)
        is_time = abs(float(found)) < _MOST_US
    except (TypeError, ValueError, ArithmeticError):
        is_time = False
    if not is_time:
        raise UserError(f"{place}: an event {str(event.name)[:60]!r} {what} {value!r}, which is no time")
    return found


def _column(events: Sequence[Event], name: str, otherwise: int, instead: Sequence[Any] = ()) -> np.ndarray:
    """An argument of events as whole numbers; ``instead`` where an event has none."""
    values: list[Any] = [None if each.args is None else getattr(each.args, name) for each in events]
    if set(map(type, values)) <= {int} and min(values, default=0) >= -_MOST_US and max(values, default=0) <= _MOST_US:
        return np.array(values, np.int64)
    if instead:
        values = [own if given is None else given for given, own in zip(values, instead, strict=True)]
    return np.array([number(each, otherwise) for each in values], np.int64)


@dataclass(frozen=True)
class _Names:
    names: dict[str, int]
    threads: dict[str, int]

    def spans(self, events: list[Event], origin: int, place: str) -> tuple[Spans, np.ndarray]:
        """Columns, and the order in which they have the events."""
        begin = _ps([_time(each, place) for each in events], origin, place)
        length = _ps([max(_length(each, place), 0) for each in events], 0, place)
        name, thread = self.names, self.threads
        number_of = np.array([name.setdefault(str(each.name), len(name)) for each in events], np.int64)
        of_thread = np.array([thread.setdefault(f"{each.pid}/{each.tid}", len(thread)) for each in events], np.int64)
        order = np.lexsort((-length, begin))
        args = [events[each].args for each in order.tolist()]
        return Spans(number_of[order], of_thread[order], begin[order], (begin + length)[order], args), order


def _ps(values: list[_Number], origin: int, place: str) -> np.ndarray:
    """Microseconds behind ``origin`` as ps, to the ns. Raises UserError for more than ten days."""
    if any(type(each) is Decimal for each in values):
        found = np.array([float(each - origin) for each in values])
    else:
        found = (np.array(values) if values else np.zeros(0, np.int64)) - origin
    if len(found) and float(found.max()) > _LONGEST_US:
        raise UserError(f"{place}: its events take {float(found.max()) / 8.64e10:.3g} days; is it one trace?")
    if found.dtype.kind == "i":
        return np.asarray(found * 1_000_000, np.int64)
    return np.rint(found * 1000).astype(np.int64) * 1000
