"""The workload's tables, from the columns of all ranks of an OTF2 archive."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from manyscale.models.workload import (
    COLLECTIVES,
    COMMUNICATORS_SCHEMA,
    COUNTERS_SCHEMA,
    KIND_NAMES,
    MEASURED_SCHEMA,
    NO_RANK,
    NO_REQUEST,
    OPERATIONS_SCHEMA,
    PHASES_SCHEMA,
    RECEIVES,
    REGIONS_SCHEMA,
    SENDS,
    OperationKind,
    PhaseKind,
)
from manyscale.models.workload.columns import text_array, to_arrow
from manyscale.models.workload.polls import marked, polling
from manyscale.runner.errors import UserError
from manyscale.runner.readers import bounds
from manyscale.runner.readers.otf2.collectives import RankSizes
from manyscale.runner.readers.otf2.events import Archive
from manyscale.runner.readers.otf2.operations import (
    END,
    PHASE_END,
    PHASE_OPERATION,
    PHASE_REGION,
    PHASE_START,
    REQUEST,
    START,
    TAG,
    RankRows,
)

_K = OperationKind
_WITH_PARTNERS = (*SENDS, *RECEIVES, *COLLECTIVES)


@dataclass
class RankColumns:
    """Columns of a rank, a row an operation; ``peer`` and ``source`` are world ranks (a root: one of the members)."""

    rows: RankRows
    kind: np.ndarray
    peer: np.ndarray
    source: np.ndarray
    communicator: np.ndarray
    bytes: np.ndarray
    receive_bytes: np.ndarray
    polls: np.ndarray


class Tables:
    """``ends``: kind of the row that is added at each rank's end, -1 for none."""

    def __init__(
        self,
        anchor: Path,
        archive: Archive,
        ranks: list[RankColumns],
        members: list[np.ndarray],
        collectives: list[RankSizes],
    ) -> None:
        self.anchor, self.archive, self.ranks, self.members = anchor, archive, ranks, list(members)
        self.collectives = collectives
        self.num_ranks = len(ranks)
        self.ends = [self._end(rank) for rank in ranks]
        self.origin = min((int(events[0, 1]) for events in archive.events if len(events)), default=0)

    def all(self) -> dict[str, pa.Table]:
        """Every table, by name."""
        operations = self._operations()
        phases = self._phases()
        return {
            "operations": operations,
            **phases,
            "regions": pa.Table.from_arrays([text_array(self.region_names)], schema=REGIONS_SCHEMA),
            "communicators": self._communicators(),
            "measured": self._measured(),
        }

    def _end(self, rank: RankColumns) -> int:
        """Kind of a row to add at a rank's end, -1 for none: the end of the program, or of a last phase."""
        if _K.finalize not in rank.kind:
            return int(_K.finalize)
        last = int(rank.rows.phases[-1, PHASE_OPERATION]) if len(rank.rows.phases) else -1
        return int(_K.other) if last >= len(rank.kind) else -1

    def _joined(self, columns: list[np.ndarray], fill: int, dtype: type) -> np.ndarray:
        parts = [np.append(values, fill if end >= 0 else []) for values, end in zip(columns, self.ends, strict=True)]
        return np.concatenate(parts).astype(dtype)

    def _operations(self) -> pa.Table:
        ranks = self.ranks
        tables = [rank.rows.operations for rank in ranks]
        sizes = [len(rank.kind) + (end >= 0) for rank, end in zip(ranks, self.ends, strict=True)]
        kind = np.concatenate(
            [
                np.append(rank.kind, np.array([end] * (end >= 0), np.int8))
                for rank, end in zip(ranks, self.ends, strict=True)
            ]
        )
        sent = [rank.bytes + sizes.sent for rank, sizes in zip(ranks, self.collectives, strict=True)]
        received = [rank.receive_bytes + sizes.received for rank, sizes in zip(ranks, self.collectives, strict=True)]
        world = self._world()
        communicator = self._joined([rank.communicator for rank in ranks], 0, np.int64)
        communicator[~np.isin(kind, _WITH_PARTNERS)] = world
        used = np.unique(np.append(communicator, world))
        self.order = np.concatenate(([world], used[used != world]))
        number = np.zeros(len(self.members), np.int32)
        number[self.order] = np.arange(len(self.order))
        is_point = [np.isin(rank.kind, (*SENDS, *RECEIVES)) for rank in ranks]
        tags = [np.where(point, table[:, TAG], 0) for point, table in zip(is_point, tables, strict=True)]
        arrays = {
            "rank": to_arrow(np.repeat(np.arange(self.num_ranks, dtype=np.int32), sizes)),
            "kind": pa.DictionaryArray.from_arrays(to_arrow(kind), KIND_NAMES),
            "peer": to_arrow(self._joined([rank.peer for rank in ranks], NO_RANK, np.int32)),
            "source": to_arrow(self._joined([rank.source for rank in ranks], NO_RANK, np.int32)),
            "tag": to_arrow(self._joined(tags, 0, np.int32)),
            "bytes": to_arrow(self._joined(sent, 0, np.int64)),
            "receive_bytes": to_arrow(self._joined(received, 0, np.int64)),
            "communicator_id": to_arrow(number[communicator]),
            "request": to_arrow(self._joined([self._requests(rank) for rank in ranks], NO_REQUEST, np.int32)),
            "completes": self._lists([rank.rows.completes for rank in ranks], np.int32),
            "send_counts": self._lists([part.send_counts for part in self.collectives], np.int64),
            "receive_counts": self._lists([part.receive_counts for part in self.collectives], np.int64),
        }
        return pa.Table.from_arrays([arrays[name] for name in OPERATIONS_SCHEMA.names], schema=OPERATIONS_SCHEMA)

    def _requests(self, rank: RankColumns) -> np.ndarray:
        """Request that each operation opens; those of receives and collectives that never complete are dropped."""
        return np.where(rank.kind == _K.other, NO_REQUEST, rank.rows.operations[:, REQUEST])

    def _world(self) -> int:
        """The communicator of all ranks."""
        for number, members in enumerate(self.members):
            if len(members) == self.num_ranks and np.array_equal(members, np.arange(self.num_ranks)):
                return number
        self.members.append(np.arange(self.num_ranks, dtype=np.int32))
        return len(self.members) - 1

    def _lists(self, columns: list[tuple[np.ndarray, np.ndarray]], dtype: type) -> pa.Array:
        lengths = self._joined([np.diff(offsets) for offsets, _ in columns], 0, np.int64)
        offsets = np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths)))
        if offsets[-1] > 2**31 - 1:
            raise UserError(f"{self.anchor}: lists more than 2^31 requests or counts; trace fewer ranks")
        flat: np.ndarray = np.concatenate([np.empty(0, dtype), *(values for _, values in columns)]).astype(dtype)
        return pa.ListArray.from_arrays(to_arrow(offsets.astype(np.int32)), to_arrow(flat))

    def _communicators(self) -> pa.Table:
        members = [self.members[number] for number in self.order]
        offsets = np.concatenate(([0], np.cumsum([len(who) for who in members]))).astype(np.int32)
        lists = pa.ListArray.from_arrays(to_arrow(offsets), to_arrow(np.concatenate(members).astype(np.int32)))
        return pa.Table.from_arrays([lists], schema=COMMUNICATORS_SCHEMA)

    def _ps(self, ticks: np.ndarray) -> np.ndarray:
        """Picoseconds since the first event."""
        seconds, rest = np.divmod(ticks - self.origin, self.archive.ticks_per_second)
        nanoseconds, rest = np.divmod(rest * 10**9, self.archive.ticks_per_second)
        return seconds * 10**12 + nanoseconds * 1000 + rest * 1000 // self.archive.ticks_per_second

    def _phases(self) -> dict[str, pa.Table]:
        phases = [rank.rows.phases for rank in self.ranks]
        table = np.concatenate(phases)
        duration = self._ps(table[:, PHASE_END]) - self._ps(table[:, PHASE_START])
        present = np.unique(table[:, PHASE_REGION][table[:, PHASE_REGION] >= 0])
        self.region_names = [self.archive.regions[number] for number in present]
        region = np.where(table[:, PHASE_REGION] >= 0, np.searchsorted(present, table[:, PHASE_REGION]), -1)
        bounds = np.cumsum([len(part) for part in phases])[:-1]
        polled = [
            polling(rank.polls, part[:, PHASE_OPERATION], own)
            for rank, part, own in zip(self.ranks, phases, np.split(duration, bounds), strict=True)
        ]
        columns: dict[str, np.ndarray] = {
            "rank": np.repeat(np.arange(self.num_ranks, dtype=np.int32), [len(part) for part in phases]),
            "operation_id": table[:, PHASE_OPERATION].astype(np.int32),
            "kind": marked(np.full(len(table), PhaseKind.compute, np.int8), np.concatenate(polled)),
            "region_id": region.astype(np.int32),
            "duration_ps": duration,
        }
        arrays = [to_arrow(columns[name]) for name in PHASES_SCHEMA.names]
        return {"phases": pa.Table.from_arrays(arrays, schema=PHASES_SCHEMA), **self._counters()}

    def _counters(self) -> dict[str, pa.Table]:
        """Increase of each counter over each phase at both ends of which it was recorded."""
        names: dict[str, int] = {}
        parts = []
        first = 0
        for rank, metrics in zip(self.ranks, self.archive.metrics, strict=True):
            for number, entry in enumerate(self.archive.classes):
                rows = rank.rows.metric_rows[:, number]
                chosen = np.flatnonzero((rows >= 0).all(axis=1))
                increase = metrics[number][rows[chosen, 1]] - metrics[number][rows[chosen, 0]]
                for column, (name, counts_up) in enumerate(zip(entry.names, entry.counts_up, strict=True)):
                    if counts_up and len(chosen):
                        code = names.setdefault(name, len(names))
                        parts.append((first + chosen, np.full(len(chosen), code), increase[:, column]))
            first += len(rank.rows.phases)
        if not parts:
            return {}
        phase_id, codes, value = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        order = np.lexsort((codes, phase_id))
        named = pa.DictionaryArray.from_arrays(to_arrow(codes[order].astype(np.int16)), text_array(list(names)))
        value = to_arrow(bounds.counts(value[order], "traces.otf2", "a counter's increase"))
        table = pa.Table.from_arrays([to_arrow(phase_id[order].astype(np.int64)), named, value], schema=COUNTERS_SCHEMA)
        return {"counters": table}

    def _measured(self) -> pa.Table:
        starts, ends = [], []
        for rank, events, end in zip(self.ranks, self.archive.events, self.ends, strict=True):
            last = [int(events[-1, 1]) if len(events) else self.origin] * (end >= 0)
            starts.append(np.append(rank.rows.operations[:, START], last))
            ends.append(np.append(rank.rows.operations[:, END], last))
        columns = [to_arrow(self._ps(np.concatenate(part).astype(np.int64))) for part in (starts, ends)]
        return pa.Table.from_arrays(columns, schema=MEASURED_SCHEMA)
