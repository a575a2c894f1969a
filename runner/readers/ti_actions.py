"""What the fields of a time-independent trace's line mean: one rank's tokens become rows of operations and phases.

Layouts: SimGrid 3.32 (smpi_replay.cpp, instr_private.hpp, smpi_pmpi_*.cpp), as the tracer writes them and as the
replayer reads them where the two differ. Everything is vectorised over the lines of one verb.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from manyscale.models.workload import ANY_SOURCE, ANY_TAG, NO_RANK, OperationKind, PhaseKind
from manyscale.runner.readers.ti_tokens import Tokens, VerbTable

# Bytes of SimGrid's datatype ids 0 to 59 (smpi_datatype.cpp). INTEGER1 is declared there as a C int and COMPLEX32 as
# two doubles; kept, since the counts were written under those sizes.
DATATYPE_BYTES: Final = np.array(
    [8, 4, 1, 2, 8, 4, 1, 8, 1, 1, 2, 4, 8, 8, 16, 4, 1, 1, 2, 4, 8, 1, 2, 4, 8, 8, 16, 32, 8, 8]
    + [8, 16, 16, 8, 8, 8, 16, 16, 4, 4, 8, 16, 8, 16, 16, 4, 2, 4, 8, 16, 32, 1, 8, 16, 32, 0, 0, 1, 8, 8],
    np.int64,
)
MPI_DOUBLE, MPI_BYTE = 0, 6
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
    prefix + verb: OperationKind[prefix + _SPELLED.get(verb, verb)] for prefix in ("", "i") for verb in _COLLECTIVE_VERBS
}
_TESTS = ("test", "testany", "testall", "testsome")
_IGNORED = ("comm_size", "comm_split", "comm_dup")
_REFUSED = {
    **dict.fromkeys(
        (
            "get put accumulate rget rput raccumulate get_accumulate rget_accumulate fetch_and_op compare_and_swap "
            "win_create win_allocate win_free win_fence win_post win_start win_complete win_wait win_lock win_unlock "
            "win_lock_all win_unlock_all win_flush win_flush_local win_flush_all win_flush_local_all"
        ).split(),
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
COLLECTIVE_KEY = (-1, -1)  # one key for all non-blocking collectives: their request names no peer


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
    return bool(np.any(counts[point_to_point] == 2) or np.any(counts[verb == CODE["wait"]] == 0))


class RankReader:
    """Fills the rows of one rank, verb by verb."""

    def __init__(self, tokens: Tokens, rank: int, num_ranks: int, ps_per_flop: float, untagged: bool) -> None:
        self.tokens = tokens
        self.me = rank
        self.num_ranks = num_ranks
        self.ps_per_flop = ps_per_flop
        self.untagged = untagged
        count = len(tokens.verb)
        self.counts = tokens.num_fields
        self.first = tokens.field_offsets[:-1]
        self.kind = np.full(count, -1, np.int8)
        self.peer = np.full(count, NO_RANK, np.int32)
        self.source = np.full(count, NO_RANK, np.int32)
        self.tag = np.zeros(count, np.int32)
        self.bytes = np.zeros(count, np.int64)
        self.receive_bytes = np.zeros(count, np.int64)
        self.role = np.zeros(count, np.int8)
        self.key = np.zeros((count, 2), np.int64)
        self.array_length = np.zeros(count, np.int64)
        self.duration = np.zeros(count)  # of compute and sleep, in ps
        self.work_after = np.zeros(count)  # reduction work behind a collective, in ps
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
        for code in np.unique(tokens.verb):
            self._convert(VERBS[code], np.flatnonzero(tokens.verb == code))
        return self._rows()

    def _refuse_bad_lines(self) -> None:
        tokens = self.tokens
        is_text = np.isnan(tokens.values)
        if is_text.any():
            owner = np.repeat(np.arange(len(tokens.verb)), self.counts)[is_text]
            wrong = owner[~np.isin(tokens.verb[owner], [CODE["location"], *(CODE[v] for v in _REFUSED)])]
            if len(wrong):
                raise LineError(wrong[0], "a field is not a number")

    def _convert(self, verb: str, lines: np.ndarray) -> None:
        if verb in _REFUSED:
            raise LineError(lines[0], f"{verb!r}: {_REFUSED[verb]}")
        if verb in _IGNORED or verb == "location":
            return
        if verb in _SENDS or verb in _RECEIVES:
            self._point_to_point(verb, lines)
        elif verb in _UNSIZED:
            self._simple(_UNSIZED[verb], lines)
        elif verb in _COLLECTIVES:
            self._collective(verb, lines)
        else:
            getattr(self, f"_{verb}" if verb not in _TESTS else "_test")(verb, lines)

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
        return counts

    def _type_bytes(self, lines: np.ndarray, types: np.ndarray) -> np.ndarray:
        ids = self._int(lines, types, "datatype")
        wrong = (ids < 0) | (ids >= len(DATATYPE_BYTES))
        if wrong.any():
            raise LineError(
                lines[wrong][0],
                f"datatype {ids[wrong][0]} is a derived type whose size the trace does not hold; "
                "trace the program with MPI_BYTE or a basic type",
            )
        return DATATYPE_BYTES[ids]

    def _simple(self, kind: OperationKind, lines: np.ndarray) -> None:
        self._fields_at_most(lines, 1)
        self.kind[lines] = kind
        if kind == OperationKind.ibarrier:
            self._post(lines, *COLLECTIVE_KEY)

    def _post(self, lines: np.ndarray, first: np.ndarray | int, second: np.ndarray | int) -> None:
        self.role[lines] = POST
        self.key[lines, 0] = first
        self.key[lines, 1] = second

    def _pair_key(self, source: np.ndarray | int, destination: np.ndarray | int) -> np.ndarray | int:
        # UNDEFINED_RANK is shifted to stay non-negative, so that no key equals COLLECTIVE_KEY
        return (source - UNDEFINED_RANK) * 2**24 + (destination - UNDEFINED_RANK)

    def _point_to_point(self, verb: str, lines: np.ndarray) -> None:
        self._fields_at_most(lines, 3 if self.untagged else 4)
        receives = verb in _RECEIVES
        raw_peer = self._field(lines, 0)
        at = 1 if self.untagged else 2
        tag = np.zeros(len(lines), np.int64) if self.untagged else self._int(lines, self._field(lines, 1), "tag")
        count = self._field(lines, at)
        if receives:
            count = np.maximum(count, 0)  # a negative count means that the receiver probed for the size
        size = self._count(lines, count) * self._type_bytes(lines, self._field(lines, at + 1, self.default_type))
        self.kind[lines] = _RECEIVES[verb] if receives else _SENDS[verb]
        self.peer[lines] = self._rank(lines, raw_peer, ANY_SOURCE if receives else NO_RANK)
        self.tag[lines] = self._tag(lines, tag, receives)
        (self.receive_bytes if receives else self.bytes)[lines] = size
        if verb.startswith("i"):
            peer = raw_peer.astype(np.int64)
            self._post(lines, self._pair_key(peer, self.me) if receives else self._pair_key(self.me, peer), tag)

    def _tag(self, lines: np.ndarray, tag: np.ndarray, receives: bool) -> np.ndarray:
        wrong = lines[((tag < 0) & ~(receives & (tag == TRACED_ANY_TAG))) | (tag > 2**31 - 1)]
        if len(wrong):
            raise LineError(wrong[0], "the tag is outside 0 to 2^31 - 1")
        return np.where(tag == TRACED_ANY_TAG, ANY_TAG, tag)

    def _start(self, verb: str, lines: np.ndarray) -> None:
        # A started persistent request names its destination and its size in bytes. A receive therefore names its own
        # rank; its source stands in the wait that follows, which ti_requests cannot match, so it takes any source.
        self._fields_at_most(lines, 4)
        destination = self._rank(lines, self._field(lines, 0), NO_RANK)
        tag = self._int(lines, self._field(lines, 1), "tag")
        size = self._count(lines, self._field(lines, 2))
        receives = destination == self.me
        self.kind[lines] = np.where(receives, OperationKind.irecv, OperationKind.isend)
        self.peer[lines] = np.where(receives, ANY_SOURCE, destination)
        self.tag[lines] = self._tag(lines, tag, True)
        self.bytes[lines] = np.where(receives, 0, size)
        self.receive_bytes[lines] = np.where(receives, size, 0)
        source = self._sources_named_later(lines, tag)
        self.peer[lines] = np.where(receives & (source >= 0), source, self.peer[lines])
        self._post(lines, self._pair_key(np.where(receives, source, self.me), destination.astype(np.int64)), tag)

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

    def _sendrecv(self, verb: str, lines: np.ndarray) -> None:
        self._fields_at_most(lines, 6)
        send_type = self._field(lines, 4, self.default_type)
        receive_type = self._field(lines, 5, self.default_type)
        self.kind[lines] = OperationKind.sendrecv
        self.bytes[lines] = self._count(lines, self._field(lines, 0)) * self._type_bytes(lines, send_type)
        self.peer[lines] = self._rank(lines, self._field(lines, 1), NO_RANK)
        self.receive_bytes[lines] = self._count(lines, self._field(lines, 2)) * self._type_bytes(lines, receive_type)
        self.source[lines] = self._rank(lines, self._field(lines, 3), ANY_SOURCE)

    def _compute(self, verb: str, lines: np.ndarray) -> None:
        self._duration(lines, self.ps_per_flop)

    def _sleep(self, verb: str, lines: np.ndarray) -> None:
        self._duration(lines, 1e12)

    def _duration(self, lines: np.ndarray, ps_per_unit: float) -> None:
        self._fields_at_most(lines, 1)
        amount = self._field(lines, 0)
        wrong = lines[(amount < 0) | (amount * ps_per_unit > 2**62)]
        if len(wrong):
            raise LineError(wrong[0], "the amount is negative or beyond 53 days")
        self.duration[lines] = amount * ps_per_unit

    def _wait(self, verb: str, lines: np.ndarray) -> None:
        self.kind[lines] = OperationKind.wait
        self._named_request(lines, WAIT)

    def _test(self, verb: str, lines: np.ndarray) -> None:
        self.kind[lines] = OperationKind.test
        if verb == "test":
            self._named_request(lines, TEST)
        else:
            self._fields_at_most(lines, 0)
            self.role[lines] = TESTALL if verb == "testall" else TESTANY

    def _named_request(self, lines: np.ndarray, role: int) -> None:
        self.role[lines] = role
        if self.untagged:
            self._fields_at_most(lines, 0)
            posts = np.flatnonzero(self.role == POST)
            latest = np.searchsorted(posts, lines) - 1
            if np.any(latest < 0):
                raise LineError(lines[latest < 0][0], "no isend or irecv stands before this wait")
            self.key[lines] = self.key[posts[latest]]
            return
        self._fields_at_most(lines, 3)
        source = self._int(lines, self._field(lines, 0), "source")
        destination = self._int(lines, self._field(lines, 1), "destination")
        tag = self._int(lines, self._field(lines, 2), "tag")
        self.key[lines, 0] = self._pair_key(source, destination)
        self.key[lines, 1] = tag
        self.key[lines[(tag < 0) & (tag != TRACED_ANY_TAG)]] = COLLECTIVE_KEY

    def _waitall(self, verb: str, lines: np.ndarray) -> None:
        self._wait_for_some(lines, OperationKind.waitall, WAITALL)

    def _waitany(self, verb: str, lines: np.ndarray) -> None:
        self._wait_for_some(lines, OperationKind.waitany, WAITANY)

    def _wait_for_some(self, lines: np.ndarray, kind: OperationKind, role: int) -> None:
        self._fields_at_most(lines, 1)
        self.kind[lines] = kind
        self.role[lines] = role
        self.array_length[lines] = self._count(lines, self._field(lines, 0, 2**31 - 1))

    def _collective(self, verb: str, lines: np.ndarray) -> None:
        name = verb[1:] if verb.startswith("i") else verb
        self.kind[lines] = _COLLECTIVES[verb]
        if verb.startswith("i"):
            self._post(lines, *COLLECTIVE_KEY)
        if name in ("bcast", "reduce", "allreduce", "scan", "exscan"):
            self._one_size(name, lines)
        elif name in ("gather", "scatter", "allgather", "alltoall"):
            self._two_sizes(name, lines)
        else:
            getattr(self, f"_{name}")(lines)

    def _root(self, lines: np.ndarray, values: np.ndarray) -> None:
        self.peer[lines] = self._rank(lines, values, UNDEFINED_RANK, "root")

    def _one_size(self, name: str, lines: np.ndarray) -> None:
        work = name != "bcast"
        rooted = name in ("bcast", "reduce")
        self._fields_at_most(lines, 1 + work + rooted + 1)
        if work:
            self.work_after[lines] = self._field(lines, 1) * self.ps_per_flop
        if rooted:
            self._root(lines, self._field(lines, 1 + work, 0))
        size = self._count(lines, self._field(lines, 0))
        size = size * self._type_bytes(lines, self._field(lines, 1 + work + rooted, self.default_type))
        self.bytes[lines] = size
        self.receive_bytes[lines] = size

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
            self.bytes[chosen] = self._count(chosen, self._field(chosen, 0)) * self._type_bytes(chosen, send_type)
            if at == 2:
                count = self._count(chosen, self._field(chosen, 1))
                self.receive_bytes[chosen] = count * self._type_bytes(chosen, receive_type)
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
        table.update(zip(lines.tolist(), counts * size[:, None], strict=True))

    def _gatherv(self, lines: np.ndarray) -> None:
        n = self.num_ranks
        self._fields_at_most(lines, n + 4)
        send_size = self._type_bytes(lines, self._field(lines, n + 2, self.default_type))
        receive_size = self._type_bytes(lines, self._field(lines, n + 3, self.default_type))
        self.bytes[lines] = self._count(lines, self._field(lines, 0)) * send_size
        self._keep(self.receive_counts, lines, self._vector(lines, 1), receive_size)
        self._root(lines, self._field(lines, n + 1, 0))

    def _allgatherv(self, lines: np.ndarray) -> None:
        # three layouts by length: counts [types]; counts displacements; counts types displacements
        n = self.num_ranks
        self._fields_at_most(lines, 2 * n + 3)
        has_displacements_only = (self.counts[lines] > n + 3) & (self.counts[lines] <= 2 * n + 1)
        default = float(self.default_type)
        send_type = np.where(has_displacements_only, default, self._field(lines, n + 1, default))
        receive_type = np.where(has_displacements_only, default, self._field(lines, n + 2, default))
        self.bytes[lines] = self._count(lines, self._field(lines, 0)) * self._type_bytes(lines, send_type)
        self._keep(self.receive_counts, lines, self._vector(lines, 1), self._type_bytes(lines, receive_type))

    def _scatterv(self, lines: np.ndarray) -> None:
        n = self.num_ranks
        self._fields_at_most(lines, n + 4)
        send_size = self._type_bytes(lines, self._field(lines, n + 2, self.default_type))
        receive_size = self._type_bytes(lines, self._field(lines, n + 3, self.default_type))
        self.receive_bytes[lines] = self._count(lines, self._field(lines, n)) * receive_size
        self._keep(self.send_counts, lines, self._vector(lines, 0), send_size)
        self._root(lines, self._field(lines, n + 1, 0))

    def _alltoallv(self, lines: np.ndarray) -> None:
        n = self.num_ranks
        self._fields_at_most(lines, 2 * n + 4)
        send_size = self._type_bytes(lines, self._field(lines, 2 * n + 2, self.default_type))
        receive_size = self._type_bytes(lines, self._field(lines, 2 * n + 3, self.default_type))
        self._keep(self.send_counts, lines, self._vector(lines, 1), send_size)
        self._keep(self.receive_counts, lines, self._vector(lines, n + 2), receive_size)

    def _reducescatter(self, lines: np.ndarray) -> None:
        # The tracer writes counts, datatype, 0 where the replayer expects counts, work, datatype. For
        # MPI_Reduce_scatter_block it writes as many zeros as the block has elements, then the datatype.
        n = self.num_ranks
        counts = self.counts[lines]
        block = lines[(counts != n + 1) & (counts != n + 2)]
        for line in block:
            values = self.tokens.values[self.first[line] : self.first[line] + self.counts[line]]
            if len(values) == 0 or np.any(values[:-1] != 0):
                raise LineError(line, f"'reducescatter' has {len(values)} fields, not one count for each rank")
            size = self._type_bytes(np.array([line]), values[-1:])
            self.receive_counts[int(line)] = np.full(n, (len(values) - 1) * int(size[0]), np.int64)
        lines = np.setdiff1d(lines, block)
        if not len(lines):
            return
        work = self._field(lines, n)
        last = self._field(lines, n + 1, self.default_type)
        traced = (self.counts[lines] == n + 2) & (last == 0) & (work < len(DATATYPE_BYTES)) & (work == np.floor(work))
        datatype = np.where(traced, work, last)
        self.work_after[lines] = np.where(traced, 0.0, work * self.ps_per_flop)
        self._keep(self.receive_counts, lines, self._vector(lines, 0), self._type_bytes(lines, datatype))

    def _rows(self) -> RankRows:
        is_operation = self.kind >= 0
        operations = np.flatnonzero(is_operation)
        row_of_line = np.cumsum(is_operation) - is_operation  # of the next operation, for a line that is none
        compute = np.flatnonzero(self.duration)
        behind = np.flatnonzero(self.work_after)
        place = np.concatenate([compute, behind])
        order = np.argsort(np.concatenate([compute * 2, behind * 2 + 1]), kind="stable") if len(behind) else slice(None)
        amounts = np.rint(np.concatenate([self.duration[compute], self.work_after[behind]]))
        is_sleep = self.tokens.verb[place] == CODE["sleep"]
        to_row = {int(line): int(row_of_line[line]) for line in (*self.send_counts, *self.receive_counts)}
        return RankRows(
            kind=self.kind[operations],
            peer=self.peer[operations],
            source=self.source[operations],
            tag=self.tag[operations],
            bytes=self.bytes[operations],
            receive_bytes=self.receive_bytes[operations],
            role=self.role[operations],
            key=self.key[operations],
            array_length=self.array_length[operations],
            line=self.tokens.line[operations],
            send_counts={to_row[line]: counts for line, counts in self.send_counts.items()},
            receive_counts={to_row[line]: counts for line, counts in self.receive_counts.items()},
            phase_operation=np.concatenate([row_of_line[compute], row_of_line[behind] + 1])[order],
            phase_kind=np.where(is_sleep, PhaseKind.sleep, PhaseKind.compute)[order].astype(np.int8),
            phase_ps=amounts[order].astype(np.int64),
            phase_place=place[order],
        )
