"""Events of an OTF2 archive as arrays, through the ``otf2`` Python package (PyPI, by OTF2's authors; tried with 3.2).

The package hands over one Python object an event: 186,000 events a CPU second where this was written, of which the
package alone takes nine tenths (207,000 a second with nothing done to them; an archive of 22,180 events). Here each
becomes one row of eight integers; everything after that is compiled.
Only the locations that are MPI ranks are read.
"""

from __future__ import annotations

import contextlib
import io
from array import array
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import numpy as np

from manyscale.runner.errors import UserError

# what a row of events records, and the columns after (code, time): see each
ENTER, LEAVE = 0, 1  # region
SEND, ISEND = 2, 3  # receiver, communicator, tag, bytes, request of ISEND
RECEIVE, IRECEIVE = 4, 5  # sender, communicator, tag, bytes, request of IRECEIVE, which is its completion
ISEND_COMPLETE, IRECEIVE_REQUEST, REQUEST_TEST, CANCELLED = 6, 7, 8, 9  # request in column 6
COLLECTIVE_BEGIN = 10
COLLECTIVE_END = 11  # operation, communicator, root, bytes sent, bytes received
COLLECTIVE_REQUEST = 12  # request in column 6
COLLECTIVE_COMPLETE = 13  # as COLLECTIVE_END, and the request (last)
METRIC = 14  # class of the metric, row of its values
SWITCHED = 15  # 1: measurement goes on
NUM_COLUMNS: Final = 8
SELF: Final = -1  # a communicator of the rank alone
_WIDTH: Final = (1 << 63) - 1  # request numbers have 64 bits, unsigned

COLLECTIVE_NAMES: Final = (
    "BARRIER", "BCAST", "GATHER", "GATHERV", "SCATTER", "SCATTERV", "ALLGATHER", "ALLGATHERV", "ALLTOALL", "ALLTOALLV",
    "ALLTOALLW", "ALLREDUCE", "REDUCE", "REDUCE_SCATTER", "REDUCE_SCATTER_BLOCK", "SCAN", "EXSCAN",
)  # fmt: skip
_NO_COMMUNICATION: Final = ("ProgramBegin", "ProgramEnd", "BufferFlush", "ParameterString", "ParameterInt",
                            "ParameterUnsignedInt")  # fmt: skip


@dataclass(frozen=True)
class MetricClass:
    """Counters recorded together: their names, and whether each counts up (others are levels)."""

    names: tuple[str, ...]
    counts_up: tuple[bool, ...]


@dataclass(frozen=True)
class Archive:
    """``events``: int64[n, NUM_COLUMNS] per rank, in time order, times in ticks. ``communicators``: world ranks, None
    for one of each rank alone. ``metrics``: per rank and class the values, one row a recording."""

    ticks_per_second: int
    regions: list[str]
    communicators: list[np.ndarray | None]
    events: list[np.ndarray]
    classes: list[MetricClass]
    metrics: list[list[np.ndarray]]
    other_locations: Counter[str]
    other_events: Counter[str]


def read_archive(anchor: Path) -> Archive:
    """Read an archive. Raises UserError where the package is absent or cannot read the archive."""
    try:
        otf2: Any = import_module("otf2")
    except ImportError:
        raise UserError(
            f"{anchor}: OTF2 is read through the package 'otf2', which is not installed; run: pip install otf2"
        ) from None
    complaints = io.StringIO()  # the package prints what goes wrong in its callbacks
    try:
        with contextlib.redirect_stderr(complaints), otf2.reader.open(str(anchor)) as trace:
            return _Collector(otf2, anchor, trace).collect()
    except (UserError, MemoryError):
        raise
    except Exception as error:  # the package's errors have no common class of their own
        lines = [line for line in complaints.getvalue().splitlines() if line.strip()]
        reason = lines[-1].strip().removeprefix("otf2.error.") if lines else f"{type(error).__name__}: {error}"
        raise UserError(
            f"{anchor}: the package otf2 cannot read the archive ({_short(reason)}); trace with a tool that writes "
            "archives to the standard, such as Score-P"
        ) from None


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 160 else f"{text[:157]}..."


@dataclass
class _Sink:
    """What is collected of a rank."""

    rows: array[int] = field(default_factory=lambda: array("q"))
    metrics: list[array[float]] = field(default_factory=list)


class _Collector:
    def __init__(self, otf2: Any, anchor: Path, trace: Any) -> None:
        self.otf2, self.anchor, self.trace = otf2, anchor, trace
        self.definitions = trace.definitions

    def collect(self) -> Archive:
        definitions = self.definitions
        ranks = self._rank_locations()
        self.rank_of = {id(location): rank for rank, location in enumerate(ranks)}
        regions = list(definitions.regions)
        self.region = {id(region): number for number, region in enumerate(regions)}
        communicators = list(definitions.comms)
        self.communicator = {id(entry): number for number, entry in enumerate(communicators)}
        classes = [entry for entry in definitions.metrics if hasattr(entry, "members")]
        self.metric_class = {id(entry): number for number, entry in enumerate(classes)}
        self.operation = {str(getattr(self.otf2.CollectiveOp, name)): number
                          for number, name in enumerate(COLLECTIVE_NAMES)}  # fmt: skip
        sinks = [_Sink(metrics=[array("d") for _ in classes]) for _ in ranks]
        others = self._events(ranks, sinks)
        described = [self._metric_class(entry) for entry in classes]
        elsewhere = Counter(str(entry.type).split(".")[-1] for entry in definitions.locations
                            if id(entry) not in self.rank_of)  # fmt: skip
        return Archive(
            ticks_per_second=int(definitions.clock_properties.timer_resolution),
            regions=[region.name for region in regions],
            communicators=[self._members(entry) for entry in communicators],
            events=[np.array(sink.rows, np.int64).reshape(-1, NUM_COLUMNS) for sink in sinks],
            classes=described,
            metrics=[
                [
                    np.array(values).reshape(-1, max(1, len(entry.names)))
                    for values, entry in zip(sink.metrics, described, strict=True)
                ]
                for sink in sinks
            ],
            other_locations=elsewhere,
            other_events=others,
        )

    def _rank_locations(self) -> list[Any]:
        """The location of each MPI rank: the members, in order, of the group of all of MPI's locations."""
        otf2 = self.otf2
        for group in self.definitions.groups:
            is_all = group.group_type == otf2.GroupType.COMM_LOCATIONS and group.paradigm == otf2.Paradigm.MPI
            if is_all and len(group.members):
                return list(group.members)
        raise UserError(f"{self.anchor}: no location of the archive is an MPI rank; only MPI programs can be replayed")

    def _members(self, communicator: Any) -> np.ndarray | None:
        """World ranks of a communicator; None for one of each rank alone, an empty array for what is not MPI's."""
        group = getattr(communicator, "group", None)
        if group is None or group.paradigm != self.otf2.Paradigm.MPI:
            return np.empty(0, np.int32)
        if group.group_type == self.otf2.GroupType.COMM_SELF:
            return None
        return np.array([self.rank_of.get(id(member), -1) for member in group.members], np.int32)

    def _metric_class(self, entry: Any) -> MetricClass:
        mode = self.otf2.MetricMode
        up = [str(value) for value in (mode.ACCUMULATED_START, mode.ACCUMULATED_POINT, mode.ACCUMULATED_LAST,
                                       mode.ACCUMULATED_NEXT)]  # fmt: skip
        return MetricClass(
            tuple(member.name for member in entry.members),
            tuple(str(member.metric_mode) in up for member in entry.members),
        )

    def _events(self, ranks: list[Any], sinks: list[_Sink]) -> Counter[str]:
        """Hand every event to what turns it into a row; returns the number of those that have none, by name."""
        handlers = dict(self._handlers())
        rank_of = self.rank_of
        others: Counter[str] = Counter()
        for location, event in self.trace.events(ranks):
            handler = handlers.get(type(event))
            if handler is None:
                others[type(event).__name__] += 1
            else:
                handler(sinks[rank_of[id(location)]], event)
        for name in _NO_COMMUNICATION:
            others.pop(name, None)
        return others

    def _handlers(self) -> Iterator[tuple[type, Callable[[_Sink, Any], None]]]:
        """One function for each kind of event that is kept."""
        events = self.otf2.events
        region, communicator, operation = self.region, self.communicator, self.operation

        def enters(code: int) -> Callable[[_Sink, Any], None]:
            def keep(sink: _Sink, event: Any) -> None:
                sink.rows.extend((code, event.time, region[id(event.region)], 0, 0, 0, 0, 0))

            return keep

        def message(code: int, peer: str, has_request: bool) -> Callable[[_Sink, Any], None]:
            def keep(sink: _Sink, event: Any) -> None:
                request = event.request_id & _WIDTH if has_request else 0
                number = communicator[id(event.communicator)]
                sink.rows.extend(
                    (code, event.time, getattr(event, peer), number, event.msg_tag, event.msg_length, request, 0)
                )

            return keep

        def request(code: int) -> Callable[[_Sink, Any], None]:
            def keep(sink: _Sink, event: Any) -> None:
                sink.rows.extend((code, event.time, 0, 0, 0, 0, event.request_id & _WIDTH, 0))

            return keep

        def collective(code: int, has_request: bool) -> Callable[[_Sink, Any], None]:
            def keep(sink: _Sink, event: Any) -> None:
                what = operation.get(str(event.collective_op), -1)
                number = communicator[id(event.communicator)]
                name = event.request_id & _WIDTH if has_request else 0
                sent, received = min(event.size_sent, _WIDTH), min(event.size_received, _WIDTH)
                sink.rows.extend((code, event.time, what, number, event.root, sent, received, name))

            return keep

        def begin(sink: _Sink, event: Any) -> None:
            sink.rows.extend((COLLECTIVE_BEGIN, event.time, 0, 0, 0, 0, 0, 0))

        def switched(sink: _Sink, event: Any) -> None:
            is_on = str(event.measurement_mode).endswith("ON")
            sink.rows.extend((SWITCHED, event.time, int(is_on), 0, 0, 0, 0, 0))

        def metric(sink: _Sink, event: Any) -> None:
            number = self.metric_class.get(id(event.metric), -1)
            if number >= 0:
                values = sink.metrics[number]
                row = len(values) // max(1, len(event.values))
                values.extend(event.values)
                sink.rows.extend((METRIC, event.time, number, row, 0, 0, 0, 0))

        yield events.Enter, enters(ENTER)
        yield events.Leave, enters(LEAVE)
        yield events.MpiSend, message(SEND, "receiver", False)
        yield events.MpiIsend, message(ISEND, "receiver", True)
        yield events.MpiRecv, message(RECEIVE, "sender", False)
        yield events.MpiIrecv, message(IRECEIVE, "sender", True)
        yield events.MpiIsendComplete, request(ISEND_COMPLETE)
        yield events.MpiIrecvRequest, request(IRECEIVE_REQUEST)
        yield events.MpiRequestTest, request(REQUEST_TEST)
        yield events.MpiRequestCancelled, request(CANCELLED)
        yield events.MpiCollectiveBegin, begin
        yield events.MpiCollectiveEnd, collective(COLLECTIVE_END, False)
        yield events.Metric, metric
        yield events.MeasurementOnOff, switched
        if hasattr(events, "NonBlockingCollectiveRequest"):  # OTF2 3.0
            yield events.NonBlockingCollectiveRequest, request(COLLECTIVE_REQUEST)
            yield events.NonBlockingCollectiveComplete, collective(COLLECTIVE_COMPLETE, True)
