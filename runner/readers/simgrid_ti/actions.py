"""What the fields of a time-independent trace's line mean: one rank's tokens become rows of operations and phases.

Layouts: SimGrid 3.32 (smpi_replay.cpp, instr_private.hpp, smpi_pmpi_*.cpp), as the tracer writes them and as the
replayer reads them where the two differ. Everything is vectorised over the lines of one verb.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from manyscale.models.workload import ANY_SOURCE, ANY_TAG, NO_RANK, OperationKind, PhaseKind
from manyscale.runner.readers.simgrid_ti.common import (
    BAD_TAG,
    DERIVED,
    FEW,
    FRACTION,
    MANY,
    NEGATIVE_SIZE,
    NO_SUCH_RANK,
    TOO_LARGE,
    convert_common_lines,
    pair_key,
)
from manyscale.runner.readers.simgrid_ti.tokens import Tokens
from manyscale.runner.readers.simgrid_ti.verb_names import (
    CODE,
    COLLECTIVE_VERBS,
    DURATION_VERBS,
    IGNORED_VERBS,
    REFUSED_VERBS,
    TEST_VERBS,
    UNSIZED_VERBS,
    VERBS,
)
from manyscale.runner.readers.simgrid_ti.verbs import (
    COLLECTIVE_KEY,
    COLLECTIVE_TAG,
    DATATYPE_BYTES,
    KIND_OF_VERB,
    LONGEST_PS,
    MOST_ELEMENTS,
    MPI_BYTE,
    MPI_DOUBLE,
    NAMED,
    OPENS_REQUEST,
    OTHER,
    POST,
    ROLE_OF_VERB,
    TESTALL,
    TESTANY,
    TRACED_ANY_TAG,
    TREATMENT,
    UNDEFINED_RANK,
    WAITALL,
    WAITANY,
)

# Collectives with a count for each member whose number of fields tells the members: fields beside the counts as the
# tracer writes them, counts for each member; and the least number of such fields
_COUNTED: Final = {"allgatherv": (3, 1), "alltoallv": (4, 2)}
_LEAST: Final = {"allgatherv": 1, "alltoallv": 2}


def _outside(values: np.ndarray, limit: int) -> np.ndarray:
    """Where int64 values are not among 0 to ``limit`` - 1."""
    return np.flatnonzero(values.view(np.uint64) >= limit)


class LineError(Exception):
    """What is wrong with one line: its index among the tokens, and what to say."""

    def __init__(self, index: int, message: str) -> None:
        super().__init__(message)
        self.index = int(index)
        self.message = message


@dataclass(frozen=True)
class RankRows:
    """Rows of one rank: one entry per operation; phases; ragged per-member byte counts of vector collectives.

    ``role``, ``key`` (int64[2, .]) and ``array_length`` describe requests for requests.resolve.
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
    """Fills the rows of one rank, verb by verb.

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
        line_kind = KIND_OF_VERB[tokens.verb]
        is_operation = line_kind >= 0
        self.operations = np.flatnonzero(is_operation)
        self.row = np.cumsum(is_operation, dtype=np.int32) - is_operation
        self.kind = line_kind[self.operations]
        count = len(self.operations)
        self.narrow = np.zeros((2, count), np.int32)
        self.sizes = np.zeros((2, count), np.int64)
        self.key = np.zeros((2, count), np.int64)
        self.peer, self.tag = self.narrow
        self.bytes, self.receive_bytes = self.sizes
        self.peer[:] = NO_RANK
        self.source = np.full(count, NO_RANK, np.int32)
        self.role = ROLE_OF_VERB[tokens.verb[self.operations]]
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
            if TREATMENT[code] <= OTHER and VERBS[code] not in DURATION_VERBS:
                self._convert(VERBS[code], np.flatnonzero(tokens.verb == code))
        self._common()
        return self._rows(*self._durations())

    def _refuse_bad_lines(self) -> None:
        tokens = self.tokens
        is_text = np.isnan(tokens.values)
        if is_text.any():
            owner = np.repeat(np.arange(len(tokens.verb)), self.counts)[is_text]
            wrong = owner[~np.isin(tokens.verb[owner], [CODE["location"], *(CODE[v] for v in REFUSED_VERBS)])]
            if len(wrong):
                raise LineError(wrong[0], "a field is not a number")

    def _convert(self, verb: str, lines: np.ndarray) -> None:
        if verb in REFUSED_VERBS:
            raise LineError(lines[0], f"{verb!r}: {REFUSED_VERBS[verb]}")
        if verb in IGNORED_VERBS or verb == "location":
            return
        if verb in UNSIZED_VERBS:
            self._fields_at_most(lines, 1)
            if verb == "ibarrier":
                self._post(self.row[lines], COLLECTIVE_KEY, COLLECTIVE_TAG["barrier"])
        elif verb in COLLECTIVE_VERBS:
            self._collective(verb, lines)
        elif verb in TEST_VERBS:
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
            short = lines[~has][0]
            raise LineError(short, f"'{VERBS[self.tokens.verb[short]]}' lacks fields")
        result = np.full(len(lines), float(default))
        result[has] = self.tokens.values[self.first[lines[has]] + index]
        return result

    def _fields_at_most(self, lines: np.ndarray, most: int) -> None:
        extra = lines[self.counts[lines] > most]
        if len(extra):
            verb = VERBS[self.tokens.verb[extra[0]]]
            raise LineError(extra[0], f"'{verb}' has {self.counts[extra[0]]} fields, at most {most} are known")

    def _int(self, lines: np.ndarray, values: np.ndarray, what: str) -> np.ndarray:
        with np.errstate(invalid="ignore"):  # beyond 63 bits: the numbers differ
            whole = values.astype(np.int64)
        wrong = np.flatnonzero(whole != values)
        if len(wrong):
            raise LineError(lines[wrong[0]], f"the {what} is not a whole number")
        return whole

    def _rank(self, lines: np.ndarray, values: np.ndarray, undefined: int, what: str = "peer") -> np.ndarray:
        ranks = self._int(lines, values, what)
        outside = _outside(ranks, self.num_ranks)
        wrong = outside[ranks[outside] != UNDEFINED_RANK]
        if len(wrong):
            raise LineError(
                lines[wrong[0]], f"{what} {ranks[wrong[0]]} is not a rank of this trace (0 to {self.num_ranks - 1})"
            )
        ranks[outside] = undefined
        return ranks

    def _count(self, lines: np.ndarray, values: np.ndarray) -> np.ndarray:
        counts = self._int(lines, values, "size")
        wrong = _outside(counts, MOST_ELEMENTS + 1)
        if len(wrong):
            count = counts[wrong[0]]
            beyond = f"a size beyond {MOST_ELEMENTS} elements cannot be replayed"
            raise LineError(lines[wrong[0]], f"the size {count} is negative" if count < 0 else beyond)
        return counts

    def _type_bytes(self, lines: np.ndarray, types: np.ndarray, counts: np.ndarray | None = None) -> np.ndarray:
        """Bytes of one element; of no elements (``counts`` of 0) the type may be any, MPI_DATATYPE_NULL too."""
        ids = self._int(lines, types if counts is None else np.where(counts == 0, MPI_BYTE, types), "datatype")
        wrong = _outside(ids, len(DATATYPE_BYTES))
        if len(wrong):
            raise LineError(
                lines[wrong[0]],
                f"datatype {ids[wrong[0]]} is a derived type whose size the trace does not hold; "
                "trace the program with MPI_BYTE or a basic type",
            )
        return DATATYPE_BYTES[ids]

    def _post(self, rows: np.ndarray, first: np.ndarray | int, second: np.ndarray | int) -> None:
        self.role[rows] = POST
        self.key[0, rows] = first
        self.key[1, rows] = second

    def _tag(self, lines: np.ndarray, tag: np.ndarray, receives: bool) -> np.ndarray:
        outside = _outside(tag, 2**31)
        wrong = outside[~(receives & (tag[outside] == TRACED_ANY_TAG))]
        if len(wrong):
            raise LineError(lines[wrong[0]], "the tag is outside 0 to 2^31 - 1")
        if not len(outside):
            return tag
        return np.where(tag == TRACED_ANY_TAG, ANY_TAG, tag)

    def _durations(self) -> tuple[np.ndarray, np.ndarray]:
        """The lines and times (float64 ps) of the phases."""
        is_sleep = self.tokens.verb == CODE["sleep"]
        lines = np.flatnonzero(is_sleep | (self.tokens.verb == CODE["compute"]))
        amount = self._field(lines, 0) * np.where(is_sleep[lines], 1e12, self.ps_per_flop)
        self._fields_at_most(lines, 1)
        self._refuse_amounts(lines, amount)
        return lines[amount > 0], amount[amount > 0]

    def _common(self) -> None:
        """Sends, receives and named waits."""
        treatment = TREATMENT[self.tokens.verb]
        if self.untagged:
            unnamed = np.flatnonzero(treatment == NAMED)
            treatment[unnamed] = OTHER
        settings = np.array([self.me, self.num_ranks, self.default_type, self.untagged], np.int64)
        found = convert_common_lines(
            self.tokens.values,
            self.tokens.field_offsets,
            treatment,
            self.role,
            self.narrow,
            self.sizes,
            self.key,
            settings,
        )
        if found >= 0:
            raise LineError(found >> 4, self._problem(found >> 4, found & 15))
        if self.untagged:
            self._unnamed(unnamed)

    def _problem(self, line: int, problem: int) -> str:
        verb = VERBS[self.tokens.verb[line]]
        fields = self.tokens.values[self.first[line] : self.first[line] + self.counts[line]]
        numbers = [f"{value:.12g}" for value in fields]
        size_at = 1 if self.untagged else 2
        return {
            FEW: f"'{verb}' lacks fields",
            MANY: f"'{verb}' has {len(fields)} fields, more than are known",
            FRACTION: f"the {self._fractional_field(verb, fields)} is not a whole number",
            NO_SUCH_RANK: f"peer {numbers[0] if numbers else ''} is not a rank of this trace "
            f"(0 to {self.num_ranks - 1})",
            BAD_TAG: "the tag is outside 0 to 2^31 - 1",
            NEGATIVE_SIZE: f"the size {numbers[size_at] if len(numbers) > size_at else ''} is negative",
            DERIVED: f"datatype {numbers[-1] if numbers else ''} is a derived type whose size the trace does not "
            "hold; trace the program with MPI_BYTE or a basic type",
            TOO_LARGE: f"a size beyond {MOST_ELEMENTS} elements cannot be replayed",
        }[problem]

    def _fractional_field(self, verb: str, fields: np.ndarray) -> str:
        names = ["source", "destination", "tag"] if verb in ("wait", "test") else ["peer", "tag", "size", "datatype"]
        if self.untagged:
            names.remove("tag")
        wrong = np.flatnonzero((fields != np.floor(fields)) | (np.abs(fields) > 2**31))
        return names[wrong[0]] if len(wrong) and wrong[0] < len(names) else "field"

    def _unnamed(self, lines: np.ndarray) -> None:
        """Waits and tests of old traces, for the request that was opened last."""
        self._fields_at_most(lines, 0)
        posts = np.flatnonzero(OPENS_REQUEST[self.tokens.verb[self.operations]])
        latest = np.searchsorted(posts, self.row[lines]) - 1
        if np.any(latest < 0):
            raise LineError(lines[latest < 0][0], "no isend or irecv stands before this wait")
        self.key[:, self.row[lines]] = self.key[:, posts[latest]]

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
        self._post(rows, pair_key(np.where(receives, source, self.me), destination.astype(np.int64)), tag)

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
        elif name in _COUNTED:
            for members, mine in self._by_members(name, lines):
                getattr(self, f"_{name}")(mine, members)
        else:
            getattr(self, f"_{name}")(lines, self.num_ranks)

    def _by_members(self, name: str, lines: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
        """Lines with a count for each member, by the number of members: fewer than the trace has ranks on a
        sub-communicator, where the tracer's own layout (with both datatypes) is taken."""
        fixed, lists = _COUNTED[name]
        fields = self.counts[lines]
        number = np.full(len(lines), self.num_ranks)
        short = (fields < lists * self.num_ranks + _LEAST[name]) & ((fields - fixed) % lists == 0) & (fields > fixed)
        number[short] = (fields[short] - fixed) // lists
        for members in np.unique(number).tolist():
            yield members, lines[number == members]

    def _root(self, lines: np.ndarray, values: np.ndarray) -> None:
        self.peer[self.row[lines]] = self._rank(lines, values, UNDEFINED_RANK, "root")

    def _work(self, lines: np.ndarray, flops: np.ndarray) -> None:
        self._refuse_amounts(lines, flops * self.ps_per_flop)
        some = flops > 0
        self.work_after.update(zip(lines[some].tolist(), (flops[some] * self.ps_per_flop).tolist(), strict=True))

    def _refuse_amounts(self, lines: np.ndarray, amount_ps: np.ndarray) -> None:
        wrong = lines[~((amount_ps >= 0) & (amount_ps <= LONGEST_PS))]
        if len(wrong):
            raise LineError(wrong[0], "the amount is negative or beyond 53 days")

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

    def _vector(self, lines: np.ndarray, at: int, members: int) -> np.ndarray:
        """int64[lines, members]: the counts that start at field ``at``."""
        short = lines[self.counts[lines] < at + members]
        if len(short):
            verb = VERBS[self.tokens.verb[short[0]]]
            raise LineError(
                short[0],
                f"'{verb}' has fewer counts than the trace has ranks ({self.num_ranks}): the line is cut short, or the "
                "call is on a sub-communicator, which the format does not name",
            )
        values = self.tokens.values[self.first[lines][:, None] + at + np.arange(members)]
        return self._count(np.repeat(lines, members), values.ravel()).reshape(values.shape)

    def _keep(self, table: dict[int, np.ndarray], lines: np.ndarray, counts: np.ndarray, size: np.ndarray) -> None:
        table.update(zip(self.row[lines].tolist(), counts * size[:, None], strict=True))

    def _gatherv(self, lines: np.ndarray, n: int) -> None:
        self._fields_at_most(lines, n + 4)
        count, counts = self._count(lines, self._field(lines, 0)), self._vector(lines, 1, n)
        send_size = self._type_bytes(lines, self._field(lines, n + 2, self.default_type), count)
        receive_size = self._type_bytes(lines, self._field(lines, n + 3, self.default_type), counts.sum(axis=1))
        self.bytes[self.row[lines]] = count * send_size
        self._keep(self.receive_counts, lines, counts, receive_size)
        self._root(lines, self._field(lines, n + 1, 0))

    def _allgatherv(self, lines: np.ndarray, n: int) -> None:
        # three layouts by length: counts [types]; counts displacements; counts types displacements
        self._fields_at_most(lines, 2 * n + 3)
        has_displacements_only = (self.counts[lines] > n + 3) & (self.counts[lines] <= 2 * n + 1)
        default = float(self.default_type)
        send_type = np.where(has_displacements_only, default, self._field(lines, n + 1, default))
        receive_type = np.where(has_displacements_only, default, self._field(lines, n + 2, default))
        self.bytes[self.row[lines]] = self._count(lines, self._field(lines, 0)) * self._type_bytes(lines, send_type)
        self._keep(self.receive_counts, lines, self._vector(lines, 1, n), self._type_bytes(lines, receive_type))

    def _scatterv(self, lines: np.ndarray, n: int) -> None:
        self._fields_at_most(lines, n + 4)
        count, counts = self._count(lines, self._field(lines, n)), self._vector(lines, 0, n)
        send_size = self._type_bytes(lines, self._field(lines, n + 2, self.default_type), counts.sum(axis=1))
        receive_size = self._type_bytes(lines, self._field(lines, n + 3, self.default_type), count)
        self.receive_bytes[self.row[lines]] = count * receive_size
        self._keep(self.send_counts, lines, counts, send_size)
        self._root(lines, self._field(lines, n + 1, 0))

    def _alltoallv(self, lines: np.ndarray, n: int) -> None:
        self._fields_at_most(lines, 2 * n + 4)
        send_size = self._type_bytes(lines, self._field(lines, 2 * n + 2, self.default_type))
        receive_size = self._type_bytes(lines, self._field(lines, 2 * n + 3, self.default_type))
        self._keep(self.send_counts, lines, self._vector(lines, 1, n), send_size)
        self._keep(self.receive_counts, lines, self._vector(lines, n + 2, n), receive_size)

    def _reducescatter(self, lines: np.ndarray, n: int) -> None:
        # counts, work (0 from the tracer), datatype. For MPI_Reduce_scatter_block the tracer writes as many zeros as
        # the block has elements, then the datatype.
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
        self._keep(self.receive_counts, lines, self._vector(lines, 0, n), size)

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
