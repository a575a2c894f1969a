"""Micro-profiles of a program: which instances are sampled, which of their executions are kept, and what lies between
uses of lines.

Classes: instances of one task type whose lengths fall into the same half octave. Of each class the instances that stand
for the others are spread evenly over the order in which they run; each stands for those around it, the first one for
itself alone (it finds caches empty, or as another class leaves them). How many depends on the instructions of the
program and of the class (``Budget``). An instance that is not longer than ``whole`` is kept whole; of a longer one
``windows`` pieces of ``measured`` instructions, each at random in an equal part of it. The ``lead`` instructions
before, of whichever instance, are kept, too, and the lines of ``history`` accesses before these: they come first, so
that prefetchers know their streams, and DRAM its rows.

Distances count distinct lines of a spatial sample (SHARDS: lines whose hash falls below a bound, the counts scaled by
its inverse) since the last use, in the order in which instances run; lines that the window itself used before are
counted exactly. Where a line was never used before, the warm distance goes around: from its last use in the run to the
end, and from the beginning on. The branch predictor (cpu/branch_predictor.py) has seen ``_PREDICTED`` executions before
each window.

Assumptions: an access's line is that of its first byte as far as distances go; pieces run one after the other, in the
order given or else that of the traced run.

Cost: O(accesses + executions in sampled instances + lines of windows x log), 1 to 2 ns an access.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from manyscale.models.cpu.branch_predictor import new_predictors
from manyscale.models.cpu.dataflow_code import ends_in_branch
from manyscale.models.kernels import read_only
from manyscale.models.memory.access_stream import Sites, sites_of
from manyscale.models.node.instruction_stream import InstructionStream, PieceStream
from manyscale.models.node.micro import collect_kernel as kernel
from manyscale.models.node.micro.line_distances import distances
from manyscale.models.node.micro.profiles import MicroProfiles
from manyscale.models.node.program.node_program import NodeProgram
from manyscale.models.workload import Workload

VERSION: Final = 1  # raised when profiles change
_PREDICTED: Final = 8000
_SEED: Final = 20_161  # of places of windows


@dataclass(frozen=True)
class Budget:
    """Instructions in windows: ``share`` of the program's, at least ``least``; of a class at least ``few`` samples and
    at most ``many``. ``whole``, ``windows``, ``history``, ``lead``, ``measured``: see the module."""

    share: float = 1 / 500
    least: int = 100_000
    few: int = 4
    many: int = 64
    whole: int = 9000
    windows: int = 6
    history: int = 2048
    lead: int = 1000
    measured: int = 1500


DEFAULT: Final = Budget()


def collect_profiles(
    program: NodeProgram,
    stream: InstructionStream,
    pieces: PieceStream,
    workload: Workload,
    *,
    order: np.ndarray | None = None,
    line_bytes: int = 64,
    budget: Budget = DEFAULT,
) -> MicroProfiles:
    """Profiles of all instances of a program of which the stream has instructions. ``order`` int64[]: pieces in the
    order in which they run, those left out behind the others (default: the traced order).

    Raises ValueError for a line size that is no power of two, and where the stream is shorter than its blocks say.
    """
    if line_bytes < 1 or line_bytes & (line_bytes - 1):
        raise ValueError(f"lines of {line_bytes} B are not of a power of two")
    sites = sites_of(workload)
    block_instructions = np.maximum(workload.column("blocks", "num_instructions").astype(np.int64), 0)
    run = _run_order(pieces, program.piece_instance.astype(np.int64), len(stream.addresses), order)
    instructions = np.bincount(run.owner, pieces.num_instructions[run.row], program.num_instances).astype(np.int64)
    begin = np.full(program.num_instances, len(run.row))
    np.minimum.at(begin, run.owner, np.arange(len(run.row)))
    sample_of, chosen = _samples(program.task_type.astype(np.int64), instructions, begin, budget)
    cut = _cut(stream, pieces, run, instructions, chosen, sites, block_instructions, budget)
    is_mispredicted = _mispredicted(stream, cut, ends_in_branch(workload))
    lines = _lines(stream, run, cut, sites, line_bytes, budget.history)
    return _profiles(
        stream, line_bytes, instructions, sample_of, chosen, cut, is_mispredicted, lines, block_instructions
    )


@dataclass(frozen=True)
class _Run:
    """Pieces with executions in the order in which they run: ``row``, ``owner`` (instance); accesses [``first_access``,
    ``end_access``) of the stream; ``time``: accesses that ran before each."""

    row: np.ndarray
    owner: np.ndarray
    first_access: np.ndarray
    end_access: np.ndarray
    time: np.ndarray


def _run_order(pieces: PieceStream, owner: np.ndarray, num_accesses: int, order: np.ndarray | None) -> _Run:
    there = pieces.end_execution > pieces.first_execution
    traced = np.argsort(pieces.first_access, kind="stable")
    if order is not None:
        is_given = np.zeros(len(there), bool)
        is_given[order] = True
        traced = np.concatenate((order, traced[~is_given[traced]]))
    row = traced[there[traced]]
    begins = np.unique(np.append(pieces.first_access, num_accesses))  # those of pieces without executions, too
    first = pieces.first_access[row]
    if len(first) and int(first.max()) > num_accesses:
        raise ValueError("the stream has fewer accesses than its blocks make")
    end = begins[np.minimum(np.searchsorted(begins, first, side="right"), len(begins) - 1)]
    time = np.concatenate(([0], np.cumsum(end - first)))[:-1]
    return _Run(row, owner[row], first, end, time.astype(np.int64))


def _samples(
    task_type: np.ndarray, instructions: np.ndarray, begin: np.ndarray, budget: Budget
) -> tuple[np.ndarray, np.ndarray]:
    """(int32[instances] which sample stands for each, int64[samples] the instances of these)."""
    executes = np.flatnonzero(instructions > 0)
    length = np.floor(2 * np.log2(instructions[executes])).astype(np.int64)
    _, kind = np.unique(np.stack((task_type[executes], length)), axis=1, return_inverse=True)
    sample_of = np.full(len(instructions), -1, np.int32)
    total = float(instructions.sum())
    allowed = max(total * budget.share, budget.least)
    longest = budget.windows * (budget.lead + budget.measured)
    chosen: list[int] = []
    for one in range(int(kind.max(initial=-1)) + 1):
        mine = executes[kind == one]
        mine = mine[np.argsort(begin[mine], kind="stable")]
        own = float(instructions[mine].sum())
        each = min(own / len(mine), max(budget.whole, longest))
        count = int(np.clip(round(allowed * own / total / each), budget.few, budget.many))
        if count >= len(mine):
            places, stands = np.arange(len(mine)), np.arange(len(mine))
        else:
            rest = len(mine) - 1
            strata = 1 + np.arange(count) * rest // (count - 1)  # of count - 1 strata behind the first instance
            places = np.append(0, (strata[:-1] + strata[1:] - 1) // 2)
            stands = np.append(0, np.searchsorted(strata, np.arange(1, len(mine)), side="right"))
        sample_of[mine] = len(chosen) + stands
        chosen.extend(mine[places].tolist())
    return sample_of, np.array(chosen, np.int64)


@dataclass(frozen=True)
class _Cut:
    """Windows in the order of their samples. Each has executions [begin, end) and accesses [first_access, end_access)
    of the piece before its own ([:, 0], maybe none), then of its own ([:, 1]), all int64[windows, 2]; those of its own
    piece from ``measured`` on count, ``counted`` instructions. ``piece``: in the order of _Run. ``weight``: what it
    stands for; whether it ends, and begins, with a piece."""

    begin: np.ndarray
    end: np.ndarray
    first_access: np.ndarray
    end_access: np.ndarray
    measured: np.ndarray
    counted: np.ndarray
    piece: np.ndarray
    weight: np.ndarray
    ends_piece: np.ndarray
    begins_piece: np.ndarray
    instance: np.ndarray
    first_window: np.ndarray


def _cut(
    stream: InstructionStream, pieces: PieceStream, run: _Run, instructions: np.ndarray, chosen: np.ndarray,
    sites: Sites, block_instructions: np.ndarray, budget: Budget,
) -> _Cut:  # fmt: skip
    by_owner = np.argsort(run.owner, kind="stable")
    first = np.searchsorted(run.owner[by_owner], np.arange(len(instructions) + 1))
    wanted: list[tuple[float, ...]] = []  # the piece; where it begins and ends there; what it stands for
    first_window = [0]
    random = np.random.default_rng(_SEED)
    for instance in chosen.tolist():
        mine = by_owner[first[instance] : first[instance + 1]]
        sizes = pieces.num_instructions[run.row[mine]].astype(np.float64)
        if instructions[instance] <= budget.whole:
            wanted.extend(
                (each, 0.0, np.inf, size) for each, size in zip(mine.tolist(), sizes.tolist(), strict=True) if size
            )
        else:
            ends = np.cumsum(sizes)
            stands = float(ends[-1]) / budget.windows
            for k, part in enumerate(random.random(budget.windows).tolist()):
                middle = (k + part) * stands
                at = int(np.searchsorted(ends, middle, side="right"))
                size = min(float(budget.measured), float(sizes[at]))
                since = float(np.clip(middle - (ends[at] - sizes[at]) - size / 2, 0.0, sizes[at] - size))
                wanted.append((int(mine[at]), since, since + size, stands))
        first_window.append(len(wanted))
    table = np.array(wanted, np.float64).reshape(-1, 4)
    piece = table[:, 0].astype(np.int64)
    found = np.zeros((len(piece), 10), np.int64)
    kernel.cut(
        read_only(stream.block_ids, np.int32), np.diff(sites.offsets), block_instructions,
        pieces.first_execution[run.row], pieces.end_execution[run.row], run.first_access, run.end_access, piece,
        np.ascontiguousarray(table[:, 1:3]), budget.lead, found,
    )  # fmt: skip
    begin, end, first_access, end_access = (np.ascontiguousarray(found[:, k : k + 2]) for k in (0, 2, 4, 6))
    measured, counted = found[:, 8].copy(), found[:, 9].copy()
    row = run.row[piece]
    return _Cut(
        begin, end, first_access, end_access, measured, counted, piece, table[:, 3].copy(),
        end[:, 1] == pieces.end_execution[row], measured == pieces.first_execution[row],
        np.repeat(chosen, np.diff(first_window)), np.array(first_window),
    )  # fmt: skip


def _mispredicted(stream: InstructionStream, cut: _Cut, ends_in_branch: np.ndarray) -> np.ndarray:
    """bool[executions of windows]"""
    first = np.concatenate(([0], np.cumsum((cut.end - cut.begin).sum(axis=1))))
    result = np.zeros(int(first[-1]), bool)
    order = np.argsort(cut.begin[:, 1], kind="stable")
    kernel.predict(
        new_predictors(1, len(ends_in_branch)), read_only(stream.block_ids, np.int32), ends_in_branch, order, cut.begin,
        cut.end, cut.ends_piece, first, _PREDICTED, result,
    )  # fmt: skip
    return result


@dataclass(frozen=True)
class _Lines:
    first: np.ndarray
    line: np.ndarray
    cold: np.ndarray
    warm: np.ndarray
    ahead: np.ndarray
    is_own: np.ndarray
    num_lines: int
    is_stored: np.ndarray
    first_history: np.ndarray
    history: np.ndarray
    history_accesses: np.ndarray


def _lines(stream: InstructionStream, run: _Run, cut: _Cut, sites: Sites, line_bytes: int, history: int) -> _Lines:
    addresses = read_only(stream.addresses, np.uint64)
    shift = line_bytes.bit_length() - 1
    # where the window begins: in its piece, or in the one before
    leads = cut.end[:, 0] > cut.begin[:, 0]
    piece = np.where(leads, cut.piece - 1, cut.piece)
    access = np.where(leads, cut.first_access[:, 0], cut.first_access[:, 1])
    time = run.time[piece] + access - run.first_access[piece]
    since = np.maximum(time - history, 0)
    before = int((time - since).sum())
    most = int((cut.end_access - cut.first_access).sum()) * 2 + before
    used = kernel.Used(
        np.zeros(len(piece) + 1, np.int64), np.zeros(most, np.int64), np.zeros(most, bool),
        np.zeros(len(piece) + 1, np.int64), np.zeros(before, np.int64),
    )  # fmt: skip
    first_piece = np.searchsorted(run.time, since, side="right") - 1
    kernel.lines_of_windows(
        read_only(stream.block_ids, np.int32), addresses, shift, sites.offsets, sites.bytes.astype(np.int64),
        sites.is_store, cut.begin, cut.end, cut.first_access, first_piece,
        run.first_access[first_piece] + since - run.time[first_piece], piece, access, run.first_access, run.end_access,
        np.full((2, 1 << 18), -1, np.int64), used,
    )  # fmt: skip
    total = int(used.first[-1])
    line, is_stored = used.line[:total].copy(), used.is_stored[:total].copy()
    found = distances(
        addresses, shift, run.first_access, run.end_access, run.time, run.owner, since, cut.instance, used.first, line
    )
    history_lines = used.history[: used.first_history[-1]].copy()
    return _Lines(used.first, line, *found, is_stored, used.first_history, history_lines, time - since)


def _rows(begin: np.ndarray, end: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(rows of the stream of each window int64[], first of each window int64[windows + 1]) of ranges int64[windows,
    2]."""
    size = (end - begin).ravel()
    first = np.concatenate(([0], np.cumsum(size)))
    return np.repeat(begin.ravel() - first[:-1], size) + np.arange(first[-1]), first[::2].copy()


def _profiles(
    stream: InstructionStream, line_bytes: int, instructions: np.ndarray, sample_of: np.ndarray, chosen: np.ndarray,
    cut: _Cut, is_mispredicted: np.ndarray, lines: _Lines, block_instructions: np.ndarray,
) -> MicroProfiles:  # fmt: skip
    executions, first_execution = _rows(cut.begin, cut.end)
    accesses, first_access = _rows(cut.first_access, cut.end_access)
    size = np.diff(first_access)
    before = np.concatenate(([0], np.cumsum(block_instructions[stream.block_ids[executions]])))
    every = before[first_execution[1:]] - before[first_execution[:-1]]
    return MicroProfiles(
        line_bytes=line_bytes,
        instructions=instructions,
        sample_of=sample_of,
        instance=chosen.astype(np.int32),
        first_window=cut.first_window,
        first_execution=first_execution,
        first_measured=first_execution[1:] - (cut.end[:, 1] - cut.measured),
        block_ids=np.array(stream.block_ids[executions], np.int32),
        is_mispredicted=is_mispredicted,
        first_access=first_access,
        addresses=np.array(stream.addresses[accesses], np.uint64),
        begins_piece=cut.begins_piece,
        weight=cut.weight,
        instructions_measured=cut.counted,
        first_line=lines.first,
        line=lines.line,
        cold=lines.cold,
        warm=lines.warm,
        ahead=lines.ahead,
        is_own=lines.is_own,
        is_stored=lines.is_stored,
        first_history=lines.first_history,
        history=lines.history,
        num_lines=lines.num_lines,
        history_instructions=lines.history_accesses * (every / np.maximum(size, 1)),
    )
