"""What the fields of a time-independent trace's line mean: one rank's tokens become rows of operations and phases.

Layouts: SimGrid 3.32 (smpi_replay.cpp, instr_private.hpp, smpi_pmpi_*.cpp), as the tracer writes them and as the
replayer reads them where the two differ. Everything is vectorised over the lines of one verb.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numba import njit

from manyscale.models.workload import ANY_SOURCE, ANY_TAG, NO_RANK, OperationKind, PhaseKind
from manyscale.runner.readers.ti_tokens import Tokens, VerbTable

# Bytes of SimGrid's datatype ids 0 to 59 (smpi_datatype.cpp). INTEGER1 is declared there as a C int and COMPLEX32 as
# two doubles; kept, since the counts were written under those sizes.
DATATYPE_BYTES: Final = np.array(
    [8, 4, 1, 2, 8, 4, 1, 8, 1, 1, 2, 4, 8, 8, 16, 4, 1, 1, 2, 4, 8, 1, 2, 4, 8, 8, 16, 32, 8, 8,
     8, 16, 16, 8, 8, 8, 16, 16, 4, 4, 8, 16, 8, 16, 16, 4, 2, 4, 8, 16, 32, 1, 8, 16, 32, 0, 0, 1, 8, 8],
    np.int64,
)  # fmt: skip
MPI_DOUBLE, MPI_BYTE = 0, 6
LONGEST_PS: Final = 2**62  # 53 days: leaves room to add
MOST_ELEMENTS: Final = 2**40  # of one message; its bytes and their time stay far from 2^63
UNDEFINED_RANK = -333  # MPI_ANY_SOURCE and MPI_PROC_NULL, once translated to a world rank
TRACED_ANY_TAG = -444

_K = OperationKind
_SENDS = {
    "send": _K.send, "isend": _K.isend, "ssend": _K.ssend, "issend": _K.issend, "bsend": _K.bsend,
    "ibsend": _K.ibsend,
}  # fmt: skip
_RECEIVES = {"recv": _K.recv, "irecv": _K.irecv}
_UNSIZED = {"barrier": _K.barrier, "ibarrier": _K.ibarrier, "init": _K.init, "finalize": _K.finalize}
_SPELLED = {"reducescatter": "reduce_scatter"}
_COLLECTIVE_VERBS = [
    "bcast", "reduce", "allreduce", "scan", "exscan", "gather", "scatter", "allgather", "alltoall", "gatherv",
    "scatterv", "allgatherv", "alltoallv", "reducescatter",
]  # fmt: skip
_COLLECTIVES = {
    prefix + verb: OperationKind[prefix + _SPELLED.get(verb, verb)]
    for prefix in ("", "i")
    for verb in _COLLECTIVE_VERBS
}
_TESTS = ("test", "testany", "testall", "testsome")
_IGNORED = ("comm_size", "comm_split", "comm_dup")
_ONE_SIDED = (
    "get put accumulate rget rput raccumulate get_accumulate rget_accumulate fetch_and_op compare_and_swap "
    "win_create win_allocate win_free win_fence win_post win_start win_complete win_wait win_lock win_unlock "
    "win_lock_all win_unlock_all win_flush win_flush_local win_flush_all win_flush_local_all"
)
_REFUSED = {
    **dict.fromkeys(
        _ONE_SIDED.split(),
        "one-sided communication cannot be replayed; trace a version of the program that uses sends and receives",
    ),
    "io": "file input and output cannot be replayed; trace the program without MPI-IO",
    "startall": "the trace does not say which persistent requests it starts; use MPI_Start for each, or MPI_Isend",
    "migrate": "AMPI migration cannot be replayed; trace the program without it",
}

# In the order in which they are converted: an untagged wait looks at the posts before it.
VERBS: Final = [
    *_REFUSED, *_IGNORED, "compute", "sleep", "location", *_SENDS, *_RECEIVES, "start", "sendrecv", *_UNSIZED,
    *_COLLECTIVES, "wait", "waitall", "waitany", *_TESTS,
]  # fmt: skip
CODE: Final = {verb: code for code, verb in enumerate(VERBS)}
VERB_TABLE: Final = VerbTable(VERBS)

# What resolves requests, per operation (see ti_requests)
NOTHING, POST, WAIT, WAITALL, WAITANY, TEST, TESTALL, TESTANY = range(8)
# The request of a non-blocking collective names no ranks, and the kind by its tag: SimGrid's COLL_TAG_* minus 1, the
# same from 3.25 to 4.1. MPI_Ialltoallw (-1021) is written as ialltoallv.
COLLECTIVE_KEY: Final = -1
COLLECTIVE_TAG: Final = {
    "reduce": -113, "scatter": -224, "scatterv": -335, "gather": -446, "allgather": -557, "allgatherv": -668,
    "barrier": -779, "scan": -889, "exscan": -889, "reducescatter": -890, "alltoallv": -1001, "alltoall": -1113,
    "gatherv": -2224, "bcast": -3335, "allreduce": -4446,
}  # fmt: skip

# How the common kernel treats a verb
_OTHER, _SEND, _RECEIVE, _NAMED, _DURATION = range(5)
_TREATMENT: Final = np.zeros(len(VERBS), np.int8)
_TREATMENT[[CODE[verb] for verb in _SENDS]] = _SEND
_TREATMENT[[CODE[verb] for verb in _RECEIVES]] = _RECEIVE
_TREATMENT[[CODE[verb] for verb in ("wait", "test")]] = _NAMED
_TREATMENT[[CODE[verb] for verb in ("compute", "sleep")]] = _DURATION
_OPENS_REQUEST: Final = np.array([verb in (*_SENDS, *_RECEIVES) and verb.startswith("i") for verb in VERBS])

_ROLE: Final = np.zeros(len(VERBS), np.int8)
_ROLE[CODE["wait"]], _ROLE[CODE["test"]] = WAIT, TEST

# The kind of operation that a verb becomes, -1 for none
_KIND: Final = np.full(len(VERBS), -1, np.int8)
for _verb, _kind in {
    **_SENDS, **_RECEIVES, **_UNSIZED, **_COLLECTIVES, "sendrecv": _K.sendrecv, "wait": _K.wait, "waitall": _K.waitall,
    "waitany": _K.waitany, **dict.fromkeys(_TESTS, _K.test), "start": _K.irecv,
}.items():  # fmt: skip
    _KIND[CODE[_verb]] = _kind


class LineError(Exception):
    """What is wrong with one line: its index among the tokens, and what to say."""

    def __init__(self, index: int, message: str) -> None:
        super().__init__(message)
        self.index = int(index)
        self.message = message


@dataclass(frozen=True)
class RankRows:
    """Rows of one rank: one entry per operation; phases; ragged per-member byte counts of vector collectives.

    ``role``, ``key`` (int64[., 2]) and ``array_length`` describe requests for ti_requests.resolve.
    """

    kind: np.ndarray
    peer: np.ndarray
    source: np.ndarray
    tag: np.ndarray
    bytes: np.ndarray
    receive_bytes: np.ndarray
    role: np.ndarray
    key: np.ndarray
    array_length: np.ndarray
    line: np.ndarray
    send_counts: dict[int, np.ndarray]
    receive_counts: dict[int, np.ndarray]
    phase_operation: np.ndarray
    phase_kind: np.ndarray
    phase_ps: np.ndarray
    phase_place: np.ndarray


def is_untagged(tokens: Tokens) -> bool:
    """Whether the trace is of SimGrid 3.19 or older: sends without a tag, waits without a request."""
    counts = tokens.num_fields
    verb = tokens.verb
    point_to_point = (verb >= CODE["send"]) & (verb <= CODE["irecv"])
    waits = verb == CODE["wait"]
    old = np.any(point_to_point & (counts == 2)) or np.any(waits & (counts == 0))
    # a line of the new format beside them: then those are lines cut short
    return bool(old and not (np.any(point_to_point & (counts == 4)) or np.any(waits & (counts == 3))))


class RankReader:
    """Fills the rows of one rank: sends, receives, waits and compute by one kernel, the others verb by verb.

    ``lines`` are indices of tokens, ``rows`` of operations; ``self.row`` gives the row of a line, or of the next one.
    """

    def __init__(self, tokens: Tokens, rank: int, num_ranks: int, ps_per_flop: float, untagged: bool) -> None:
        self.tokens = tokens
        self.me = rank
        self.num_ranks = num_ranks
        self.ps_per_flop = ps_per_flop
        self.untagged = untagged
        self.counts = tokens.num_fields
        self.first = tokens.field_offsets[:-1]
        line_kind = _KIND[tokens.verb]
        is_operation = line_kind >= 0
        self.operations = np.flatnonzero(is_operation)
        self.row = np.cumsum(is_operation, dtype=np.int32) - is_operation
        self.kind = line_kind[self.operations]
        count = len(self.operations)
        self.peer = np.full(count, NO_RANK, np.int32)
        self.source = np.full(count, NO_RANK, np.int32)
        self.tag = np.zeros(count, np.int32)
        self.bytes = np.zeros(count, np.int64)
        self.receive_bytes = np.zeros(count, np.int64)
        self.role = _ROLE[tokens.verb[self.operations]]
        self.key = np.zeros((count, 2), np.int64)
        self.array_length = np.zeros(count, np.int64)
        self.work_after: dict[int, float] = {}  # line of a collective: reduction work behind it, in ps
        self.send_counts: dict[int, np.ndarray] = {}
        self.receive_counts: dict[int, np.ndarray] = {}
        self.default_type = MPI_DOUBLE

    def read(self) -> RankRows:
        """All rows. Raises LineError for the first line that is wrong."""
        tokens = self.tokens
        self._refuse_bad_lines()
        starts = np.flatnonzero(tokens.verb == CODE["init"])
        if len(starts) and self.counts[starts[0]] == 0:
            self.default_type = MPI_BYTE
        for code in np.flatnonzero(np.bincount(tokens.verb, minlength=len(VERBS))):
            if _TREATMENT[code] == _OTHER:
                self._convert(VERBS[code], np.flatnonzero(tokens.verb == code))
        return self._rows(*self._common())

    def _common(self) -> tuple[np.ndarray, np.ndarray]:
        """Sends, receives, named waits and durations; returns the lines and times (float64 ps) of the phases."""
        tokens = self.tokens
        ps_per_unit = np.where(tokens.verb == CODE["sleep"], 1e12, self.ps_per_flop)
        phase_line = np.empty(len(tokens.verb), np.int64)
        phase_ps = np.empty(len(tokens.verb))
        num_phases, line, problem = _common_lines(
            tokens.verb, _TREATMENT, _OPENS_REQUEST, self.first, self.counts, tokens.values, self.row, self.me,
            self.num_ranks, self.untagged, self.default_type, DATATYPE_BYTES, ps_per_unit, self.peer, self.tag,
            self.bytes, self.receive_bytes, self.role, self.key, phase_line, phase_ps,
        )  # fmt: skip
        if problem:
            raise LineError(line, self._problem(line, problem))
        return phase_line[:num_phases], phase_ps[:num_phases]

    def _problem(self, line: int, problem: int) -> str:
        verb = VERBS[self.tokens.verb[line]]
        fields = self.tokens.values[self.first[line] : self.first[line] + self.counts[line]]
        numbers = [f"{value:.12g}" for value in fields]
        size_at = 1 if self.untagged else 2
        return {
            _FEW: f"'{verb}' lacks fields",
            _MANY: f"'{verb}' has {len(fields)} fields, more than are known",
            _FRACTION: f"the {self._fractional_field(verb, fields)} is not a whole number",
            _NO_SUCH_RANK: f"peer {numbers[0] if numbers else ''} is not a rank of this trace "
            f"(0 to {self.num_ranks - 1})",
            _BAD_TAG: "the tag is outside 0 to 2^31 - 1",
            _NEGATIVE_SIZE: f"the size {numbers[size_at] if len(numbers) > size_at else ''} is negative",
            _DERIVED: f"datatype {numbers[-1] if numbers else ''} is a derived type whose size the trace does not "
            "hold; trace the program with MPI_BYTE or a basic type",
            _NO_POST: "no isend or irecv stands before this wait",
            _TOO_LARGE: f"a size beyond {MOST_ELEMENTS} elements cannot be replayed",
            _BAD_AMOUNT: "the amount is negative or beyond 53 days",
        }[problem]

    def _refuse_bad_lines(self) -> None:
        tokens = self.tokens
        is_text = np.isnan(tokens.values)
        if is_text.any():
            owner = np.repeat(np.arange(len(tokens.verb)), self.counts)[is_text]
            wrong = owner[~np.isin(tokens.verb[owner], [CODE["location"], *(CODE[v] for v in _REFUSED)])]
            if len(wrong):
                raise LineError(wrong[0], "a field is not a number")

    def _fractional_field(self, verb: str, fields: np.ndarray) -> str:
        names = ["source", "destination", "tag"] if verb in ("wait", "test") else ["peer", "tag", "size", "datatype"]
        if self.untagged:
            names.remove("tag")
        wrong = np.flatnonzero((fields != np.floor(fields)) | (np.abs(fields) > 2**31))
        return names[wrong[0]] if len(wrong) and wrong[0] < len(names) else "field"

    def _convert(self, verb: str, lines: np.ndarray) -> None:
        if verb in _REFUSED:
            raise LineError(lines[0], f"{verb!r}: {_REFUSED[verb]}")
        if verb in _IGNORED or verb == "location":
            return
        if verb in _UNSIZED:
            self._fields_at_most(lines, 1)
            if verb == "ibarrier":
                self._post(self.row[lines], COLLECTIVE_KEY, COLLECTIVE_TAG["barrier"])
        elif verb in _COLLECTIVES:
            self._collective(verb, lines)
        elif verb in _TESTS:
            self._fields_at_most(lines, 0)
            self.role[self.row[lines]] = TESTALL if verb == "testall" else TESTANY
        else:
            getattr(self, f"_{verb}")(lines)

    def _field(self, lines: np.ndarray, index: int, default: float | None = None) -> np.ndarray:
        """Field ``index`` of each line; lines without it take the default, or are an error if there is none."""
        has = self.counts[lines] > index
        if has.all():
            return self.tokens.values[self.first[lines] + index]
        if default is None:
            raise LineError(lines[~has][0], f"'{VERBS[self.tokens.verb[lines[0]]]}' lacks fields")
        result = np.full(len(lines), float(default))
        result[has] = self.tokens.values[self.first[lines[has]] + index]
        return result

    def _fields_at_most(self, lines: np.ndarray, most: int) -> None:
        extra = lines[self.counts[lines] > most]
        if len(extra):
            verb = VERBS[self.tokens.verb[extra[0]]]
            raise LineError(extra[0], f"'{verb}' has {self.counts[extra[0]]} fields, at most {most} are known")

    def _int(self, lines: np.ndarray, values: np.ndarray, what: str) -> np.ndarray:
        wrong = lines[(values != np.floor(values)) | (np.abs(values) > 2**62)]
        if len(wrong):
            raise LineError(wrong[0], f"the {what} is not a whole number")
        return values.astype(np.int64)

    def _rank(self, lines: np.ndarray, values: np.ndarray, undefined: int, what: str = "peer") -> np.ndarray:
        ranks = self._int(lines, values, what)
        wrong = lines[((ranks < 0) | (ranks >= self.num_ranks)) & (ranks != UNDEFINED_RANK)]
        if len(wrong):
            value = ranks[np.searchsorted(lines, wrong[0])]
            raise LineError(wrong[0], f"{what} {value} is not a rank of this trace (0 to {self.num_ranks - 1})")
        return np.where(ranks == UNDEFINED_RANK, undefined, ranks)

    def _count(self, lines: np.ndarray, values: np.ndarray) -> np.ndarray:
        counts = self._int(lines, values, "size")
        if np.any(counts < 0):
            raise LineError(lines[counts < 0][0], f"the size {counts[counts < 0][0]} is negative")
        if np.any(counts > MOST_ELEMENTS):
            raise LineError(
                lines[counts > MOST_ELEMENTS][0], f"a size beyond {MOST_ELEMENTS} elements cannot be replayed"
            )
        return counts

    def _type_bytes(self, lines: np.ndarray, types: np.ndarray, counts: np.ndarray | None = None) -> np.ndarray:
        """Bytes of one element; of no elements (``counts`` of 0) the type may be any, MPI_DATATYPE_NULL too."""
        ids = self._int(lines, types if counts is None else np.where(counts == 0, MPI_BYTE, types), "datatype")
        wrong = (ids < 0) | (ids >= len(DATATYPE_BYTES))
        if wrong.any():
            raise LineError(
                lines[wrong][0],
                f"datatype {ids[wrong][0]} is a derived type whose size the trace does not hold; "
                "trace the program with MPI_BYTE or a basic type",
            )
        return DATATYPE_BYTES[ids]

    def _post(self, rows: np.ndarray, first: np.ndarray | int, second: np.ndarray | int) -> None:
        self.role[rows] = POST
        self.key[rows, 0] = first
        self.key[rows, 1] = second

    def _tag(self, lines: np.ndarray, tag: np.ndarray, receives: bool) -> np.ndarray:
        wrong = lines[((tag < 0) & ~(receives & (tag == TRACED_ANY_TAG))) | (tag > 2**31 - 1)]
        if len(wrong):
            raise LineError(wrong[0], "the tag is outside 0 to 2^31 - 1")
        return np.where(tag == TRACED_ANY_TAG, ANY_TAG, tag)

    def _start(self, lines: np.ndarray) -> None:
        # A started persistent request names its destination and its size in bytes. A receive therefore names its own
        # rank; its source is that of the next wait for it, or any.
        self._fields_at_most(lines, 4)
        rows = self.row[lines]
        destination = self._rank(lines, self._field(lines, 0), NO_RANK)
        tag = self._int(lines, self._field(lines, 1), "tag")
        size = self._count(lines, self._field(lines, 2))
        receives = destination == self.me
        source = self._sources_named_later(lines, tag)
        self.kind[rows] = np.where(receives, OperationKind.irecv, OperationKind.isend)
        self.peer[rows] = np.where(receives, np.where(source >= 0, source, ANY_SOURCE), destination)
        self.tag[rows] = self._tag(lines, tag, True)
        self.bytes[rows] = np.where(receives, 0, size)
        self.receive_bytes[rows] = np.where(receives, size, 0)
        self._post(rows, _pair_key(np.where(receives, source, self.me), destination.astype(np.int64)), tag)

    def _sources_named_later(self, lines: np.ndarray, tag: np.ndarray) -> np.ndarray:
        """Source in the first later wait for (any source, this rank, tag); UNDEFINED_RANK if there is none."""
        waits = np.flatnonzero(self.tokens.verb == CODE["wait"])
        waits = waits[self.counts[waits] == 3]
        mine = waits[self._field(waits, 1) == self.me] if len(waits) else waits
        result = np.full(len(lines), UNDEFINED_RANK, np.int64)
        for value in np.unique(tag):
            candidates = mine[self._field(mine, 2) == value] if len(mine) else mine
            chosen = tag == value
            position = np.searchsorted(candidates, lines[chosen])
            found = position < len(candidates)
            sources = np.full(len(position), UNDEFINED_RANK, np.int64)
            sources[found] = self._field(candidates[position[found]], 0)
            result[chosen] = sources
        return result

    def _sendrecv(self, lines: np.ndarray) -> None:
        self._fields_at_most(lines, 6)
        rows = self.row[lines]
        send_type = self._field(lines, 4, self.default_type)
        receive_type = self._field(lines, 5, self.default_type)
        self.bytes[rows] = self._count(lines, self._field(lines, 0)) * self._type_bytes(lines, send_type)
        self.peer[rows] = self._rank(lines, self._field(lines, 1), NO_RANK)
        self.receive_bytes[rows] = self._count(lines, self._field(lines, 2)) * self._type_bytes(lines, receive_type)
        self.source[rows] = self._rank(lines, self._field(lines, 3), ANY_SOURCE)

    def _waitall(self, lines: np.ndarray) -> None:
        self._wait_for_some(lines, WAITALL)

    def _waitany(self, lines: np.ndarray) -> None:
        self._wait_for_some(lines, WAITANY)

    def _wait_for_some(self, lines: np.ndarray, role: int) -> None:
        self._fields_at_most(lines, 1)
        rows = self.row[lines]
        self.role[rows] = role
        self.array_length[rows] = self._count(lines, self._field(lines, 0, 2**31 - 1))

    def _collective(self, verb: str, lines: np.ndarray) -> None:
        name = verb[1:] if verb.startswith("i") else verb
        if verb.startswith("i"):
            self._post(self.row[lines], COLLECTIVE_KEY, COLLECTIVE_TAG[name])
        if name in ("bcast", "reduce", "allreduce", "scan", "exscan"):
            self._one_size(name, lines)
        elif name in ("gather", "scatter", "allgather", "alltoall"):
            self._two_sizes(name, lines)
        else:
            getattr(self, f"_{name}")(lines)

    def _root(self, lines: np.ndarray, values: np.ndarray) -> None:
        self.peer[self.row[lines]] = self._rank(lines, values, UNDEFINED_RANK, "root")

    def _work(self, lines: np.ndarray, flops: np.ndarray) -> None:
        wrong = lines[~((flops >= 0) & (flops <= LONGEST_PS / self.ps_per_flop))]
        if len(wrong):
            raise LineError(wrong[0], self._problem(int(wrong[0]), _BAD_AMOUNT))
        some = flops > 0
        self.work_after.update(zip(lines[some].tolist(), (flops[some] * self.ps_per_flop).tolist(), strict=True))

    def _one_size(self, name: str, lines: np.ndarray) -> None:
        work = name != "bcast"
        rooted = name in ("bcast", "reduce")
        self._fields_at_most(lines, 1 + work + rooted + 1)
        if work:
            self._work(lines, self._field(lines, 1))
        if rooted:
            self._root(lines, self._field(lines, 1 + work, 0))
        size = self._count(lines, self._field(lines, 0))
        size = size * self._type_bytes(lines, self._field(lines, 1 + work + rooted, self.default_type))
        self.bytes[self.row[lines]] = size
        self.receive_bytes[self.row[lines]] = size

    def _two_sizes(self, name: str, lines: np.ndarray) -> None:
        # send count, receive count (left out by the tracer when it is 0), root if rooted, two datatypes
        rooted = name in ("gather", "scatter")
        full = 4 + rooted
        self._fields_at_most(lines, full)
        shifted = self.counts[lines] == full - 1
        for chosen, at in ((lines[~shifted], 2), (lines[shifted], 1)):
            if not len(chosen):
                continue
            send_type = self._field(chosen, at + rooted, self.default_type)
            receive_type = self._field(chosen, at + rooted + 1, self.default_type)
            count = self._count(chosen, self._field(chosen, 0))
            self.bytes[self.row[chosen]] = count * self._type_bytes(chosen, send_type, count)
            if at == 2:
                count = self._count(chosen, self._field(chosen, 1))
                self.receive_bytes[self.row[chosen]] = count * self._type_bytes(chosen, receive_type, count)
            if rooted:
                self._root(chosen, self._field(chosen, at, 0))

    def _vector(self, lines: np.ndarray, at: int) -> np.ndarray:
        """int64[lines, num_ranks]: the counts that start at field ``at``."""
        short = lines[self.counts[lines] < at + self.num_ranks]
        if len(short):
            verb = VERBS[self.tokens.verb[short[0]]]
            raise LineError(short[0], f"'{verb}' has fewer counts than the trace has ranks ({self.num_ranks})")
        values = self.tokens.values[self.first[lines][:, None] + at + np.arange(self.num_ranks)]
        return self._count(np.repeat(lines, self.num_ranks), values.ravel()).reshape(values.shape)

    def _keep(self, table: dict[int, np.ndarray], lines: np.ndarray, counts: np.ndarray, size: np.ndarray) -> None:
        table.update(zip(self.row[lines].tolist(), counts * size[:, None], strict=True))

    def _gatherv(self, lines: np.ndarray) -> None:
        n = self.num_ranks
        self._fields_at_most(lines, n + 4)
        count, counts = self._count(lines, self._field(lines, 0)), self._vector(lines, 1)
        send_size = self._type_bytes(lines, self._field(lines, n + 2, self.default_type), count)
        receive_size = self._type_bytes(lines, self._field(lines, n + 3, self.default_type), counts.sum(axis=1))
        self.bytes[self.row[lines]] = count * send_size
        self._keep(self.receive_counts, lines, counts, receive_size)
        self._root(lines, self._field(lines, n + 1, 0))

    def _allgatherv(self, lines: np.ndarray) -> None:
        # three layouts by length: counts [types]; counts displacements; counts types displacements
        n = self.num_ranks
        self._fields_at_most(lines, 2 * n + 3)
        has_displacements_only = (self.counts[lines] > n + 3) & (self.counts[lines] <= 2 * n + 1)
        default = float(self.default_type)
        send_type = np.where(has_displacements_only, default, self._field(lines, n + 1, default))
        receive_type = np.where(has_displacements_only, default, self._field(lines, n + 2, default))
        self.bytes[self.row[lines]] = self._count(lines, self._field(lines, 0)) * self._type_bytes(lines, send_type)
        self._keep(self.receive_counts, lines, self._vector(lines, 1), self._type_bytes(lines, receive_type))

    def _scatterv(self, lines: np.ndarray) -> None:
        n = self.num_ranks
        self._fields_at_most(lines, n + 4)
        count, counts = self._count(lines, self._field(lines, n)), self._vector(lines, 0)
        send_size = self._type_bytes(lines, self._field(lines, n + 2, self.default_type), counts.sum(axis=1))
        receive_size = self._type_bytes(lines, self._field(lines, n + 3, self.default_type), count)
        self.receive_bytes[self.row[lines]] = count * receive_size
        self._keep(self.send_counts, lines, counts, send_size)
        self._root(lines, self._field(lines, n + 1, 0))

    def _alltoallv(self, lines: np.ndarray) -> None:
        n = self.num_ranks
        self._fields_at_most(lines, 2 * n + 4)
        send_size = self._type_bytes(lines, self._field(lines, 2 * n + 2, self.default_type))
        receive_size = self._type_bytes(lines, self._field(lines, 2 * n + 3, self.default_type))
        self._keep(self.send_counts, lines, self._vector(lines, 1), send_size)
        self._keep(self.receive_counts, lines, self._vector(lines, n + 2), receive_size)

    def _reducescatter(self, lines: np.ndarray) -> None:
        # counts, work (0 from the tracer), datatype. For MPI_Reduce_scatter_block the tracer writes as many zeros as
        # the block has elements, then the datatype.
        n = self.num_ranks
        counts = self.counts[lines]
        block = lines[(counts != n + 1) & (counts != n + 2)]
        for line in block:
            values = self.tokens.values[self.first[line] : self.first[line] + self.counts[line]]
            if len(values) == 0 or np.any(values[:-1] != 0):
                raise LineError(line, f"'reducescatter' has {len(values)} fields, not one count for each rank")
            size = self._type_bytes(np.array([line]), values[-1:])
            self.receive_counts[int(self.row[line])] = np.full(n, (len(values) - 1) * int(size[0]), np.int64)
        lines = np.setdiff1d(lines, block)
        if not len(lines):
            return
        self._work(lines, self._field(lines, n))
        size = self._type_bytes(lines, self._field(lines, n + 1, self.default_type))
        self.bytes[self.row[lines]] = size
        self._keep(self.receive_counts, lines, self._vector(lines, 0), size)

    def _rows(self, phase_line: np.ndarray, phase_ps: np.ndarray) -> RankRows:
        phase_operation = self.row[phase_line]
        if self.work_after:
            behind = np.array(list(self.work_after), np.int64)
            order = np.argsort(np.concatenate([phase_line * 2, behind * 2 + 1]), kind="stable")
            phase_line = np.concatenate([phase_line, behind])[order]
            phase_operation = np.concatenate([phase_operation, self.row[behind] + 1])[order]
            phase_ps = np.concatenate([phase_ps, list(self.work_after.values())])[order]
        until_ps = np.cumsum(phase_ps)
        if len(until_ps) and until_ps[-1] > LONGEST_PS:
            raise LineError(
                phase_line[np.argmax(until_ps > LONGEST_PS)], "the rank's compute and sleep add up to beyond 53 days"
            )
        is_sleep = self.tokens.verb[phase_line] == CODE["sleep"]
        return RankRows(
            kind=self.kind,
            peer=self.peer,
            source=self.source,
            tag=self.tag,
            bytes=self.bytes,
            receive_bytes=self.receive_bytes,
            role=self.role,
            key=self.key,
            array_length=self.array_length,
            line=self.tokens.line[self.operations],
            send_counts=self.send_counts,
            receive_counts=self.receive_counts,
            phase_operation=phase_operation,
            phase_kind=is_sleep.astype(np.int8),
            phase_ps=np.rint(phase_ps).astype(np.int64),
            phase_place=phase_line,
        )


assert (PhaseKind.compute, PhaseKind.sleep) == (0, 1)


def _pair_key(source: np.ndarray | int, destination: np.ndarray | int) -> np.ndarray | int:
    # shifted to be non-negative, so that no key equals COLLECTIVE_KEY
    return (source - UNDEFINED_RANK) * 2**24 + (destination - UNDEFINED_RANK)


# Problems that the common kernel reports
_FEW, _MANY, _FRACTION, _NO_SUCH_RANK, _BAD_TAG, _NEGATIVE_SIZE, _DERIVED, _NO_POST, _BAD_AMOUNT, _TOO_LARGE = range(
    1, 11
)


@njit(cache=True, nogil=True)
def _common_lines(  # type: ignore[no-untyped-def]
    verb, treatment, opens_request, first, counts, values, row_of, me, num_ranks, untagged, default_type, type_bytes,
    ps_per_unit, peer, tag, size_sent, size_received, role, key, phase_line, phase_ps,
):  # fmt: skip
    """Convert the lines of the common verbs. Returns the number of phases, and the first bad line with its problem (0
    for none). O(lines)."""
    num_phases = 0
    last_post = -1
    size_at = 1 if untagged else 2
    for line in range(verb.shape[0]):
        what = treatment[verb[line]]
        row = row_of[line]
        if what == 0:
            continue
        at = first[line]
        count = counts[line]
        if what == 4:  # compute, sleep
            if count != 1:
                return num_phases, line, 1 if count < 1 else 2
            amount = values[at] * ps_per_unit[line]
            if not (0.0 <= amount <= 4.6e18):
                return num_phases, line, 9
            if amount > 0:
                phase_line[num_phases] = line
                phase_ps[num_phases] = amount
                num_phases += 1
            continue
        if what == 3:  # wait, test
            if untagged:
                if count > 0:
                    return num_phases, line, 2
                if last_post < 0:
                    return num_phases, line, 8
                key[row, 0] = key[last_post, 0]
                key[row, 1] = key[last_post, 1]
                continue
            if count != 3:
                return num_phases, line, 1 if count < 3 else 2
            for k in range(3):
                if values[at + k] != np.floor(values[at + k]) or abs(values[at + k]) > 2147483648.0:
                    return num_phases, line, 3
            number = np.int64(values[at + 2])
            if number < 0 and number != -444:  # the request of a non-blocking collective
                key[row, 0] = -1
                key[row, 1] = number if number != -1021 else -1001
            else:
                key[row, 0] = (np.int64(values[at]) + 333) * 16777216 + np.int64(values[at + 1]) + 333
                key[row, 1] = number
            continue
        if count < size_at + 1:
            return num_phases, line, 1
        if count > size_at + 2:
            return num_phases, line, 2
        for k in range(count):
            if values[at + k] != np.floor(values[at + k]) or abs(values[at + k]) > 4e18:
                return num_phases, line, 3
        other = np.int64(values[at])
        if other != -333 and (other < 0 or other >= num_ranks):
            return num_phases, line, 4
        number = np.int64(0) if untagged else np.int64(values[at + 1])
        if number > 2147483647 or (number < 0 and not (what == 2 and number == -444)):
            return num_phases, line, 5
        size = np.int64(values[at + size_at])
        if size < 0:
            if what == 1:
                return num_phases, line, 6
            size = np.int64(0)  # the receiver probed for the size
        elif size > MOST_ELEMENTS:
            return num_phases, line, 10
        datatype = np.int64(values[at + size_at + 1]) if count > size_at + 1 else default_type
        if datatype < 0 or datatype >= type_bytes.shape[0]:
            return num_phases, line, 7
        tag[row] = -1 if number == -444 else number
        if what == 1:
            size_sent[row] = size * type_bytes[datatype]
            peer[row] = other if other != -333 else -2
        else:
            size_received[row] = size * type_bytes[datatype]
            peer[row] = other if other != -333 else -1
        if opens_request[verb[line]]:
            role[row] = 1
            source = me if what == 1 else other
            destination = other if what == 1 else me
            key[row, 0] = (source + 333) * 16777216 + destination + 333
            key[row, 1] = number
            last_post = row
    return num_phases, -1, 0
