"""Micro-profiles of a program: which instances are sampled, which of their executions are kept, and what lies between
uses of lines.

Classes: instances of one task type whose lengths fall into the same half octave. Of each class the instances that stand
for the others are spread evenly over its order in the traced run; each stands for those around it, the first one for
itself alone (it finds caches empty, or as another class leaves them). How many depends on the instructions of the
program and of the class (``Budget``). An instance that is not longer than ``whole`` is kept whole; of a longer one
``windows`` pieces of ``measured`` instructions in equal distances. The ``lead`` instructions before, of whichever
instance, are kept, too, and the lines of ``history`` accesses before these: they come first, so that prefetchers know
their streams, and DRAM its rows.

Distances count distinct lines of a spatial sample (SHARDS: lines whose hash falls below a bound, the counts scaled by
its inverse) since the last use, in the order of the traced run; lines that the window itself used before are counted
exactly. Where a line was never used before, the warm distance goes around: from its last use in the run to the end, and
from the beginning on. The branch predictor (cpu/branch_predictor.py) has seen ``_PREDICTED`` executions before each
window.

Assumptions: an access's line is that of its first byte as far as distances go; instances execute on one core in the
order of the traced run.

Cost: O(accesses + executions in sampled instances + lines of windows x log), 1 to 2 ns an access.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from manyscale.models.cpu.branch_predictor import new_predictors
from manyscale.models.kernels import read_only
from manyscale.models.memory.access_stream import Sites, sites_of
from manyscale.models.node.instruction_stream import InstructionStream, PieceStream
from manyscale.models.node.micro import collect_kernel as kernel
from manyscale.models.node.micro.profiles import MicroProfiles
from manyscale.models.node.program.node_program import NodeProgram
from manyscale.models.workload import Workload
from manyscale.models.workload.detail_tables import InstructionClass as Kind

VERSION: Final = 1  # raised when profiles change
_PREDICTED: Final = 4000
_RECENT: Final = 1  # lines, of which a use again is no new one in a history
_BRANCHES: Final = (Kind.branch, Kind.call, Kind.call_return)


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
    line_bytes: int = 64,
    budget: Budget = DEFAULT,
) -> MicroProfiles:
    """Profiles of all instances of a program of which the stream has instructions.

    Raises ValueError for a line size that is no power of two, and where the stream is shorter than its blocks say.
    """
    if line_bytes < 1 or line_bytes & (line_bytes - 1):
        raise ValueError(f"lines of {line_bytes} B are not of a power of two")
    sites = sites_of(workload)
    block_instructions = np.maximum(workload.column("blocks", "num_instructions").astype(np.int64), 0)
    rows = np.flatnonzero(pieces.end_execution > pieces.first_execution)
    rows = rows[np.argsort(pieces.first_access[rows], kind="stable")]
    owner = program.piece_instance[rows].astype(np.int64)
    instructions = np.bincount(owner, pieces.num_instructions[rows], program.num_instances).astype(np.int64)
    begin = np.full(program.num_instances, np.iinfo(np.int64).max)
    np.minimum.at(begin, owner, pieces.first_execution[rows])
    sample_of, chosen = _samples(program.task_type.astype(np.int64), instructions, begin, budget)
    cut = _cut(stream, pieces, rows, owner, instructions, chosen, sites, block_instructions, budget)
    is_mispredicted = _mispredicted(stream, cut, _ends_in_branch(workload), budget)
    lines = _lines(stream, pieces, rows, owner, cut, sites, line_bytes, budget.history)
    return _profiles(
        stream, line_bytes, instructions, sample_of, chosen, cut, is_mispredicted, lines, block_instructions
    )


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
    """Windows in the order of their samples: executions [begin, end) of the stream, of which those from ``measured`` on
    count; accesses [first_access, end_access); ``counted`` instructions; what each stands for (``weight``); whether it
    ends, and begins, with a piece."""

    begin: np.ndarray
    measured: np.ndarray
    end: np.ndarray
    first_access: np.ndarray
    end_access: np.ndarray
    counted: np.ndarray
    weight: np.ndarray
    is_piece_end: np.ndarray
    begins_piece: np.ndarray
    instance: np.ndarray
    first_window: np.ndarray


def _cut(
    stream: InstructionStream, pieces: PieceStream, rows: np.ndarray, owner: np.ndarray, instructions: np.ndarray,
    chosen: np.ndarray, sites: Sites, block_instructions: np.ndarray, budget: Budget,
) -> _Cut:  # fmt: skip
    by_owner = np.argsort(owner, kind="stable")
    first = np.searchsorted(owner[by_owner], np.arange(len(instructions) + 1))
    wanted: list[tuple[float, ...]] = []  # row of the piece; where it begins and ends there; what it stands for
    first_window = [0]
    for instance in chosen.tolist():
        mine = rows[by_owner[first[instance] : first[instance + 1]]]
        sizes = pieces.num_instructions[mine].astype(np.float64)
        if instructions[instance] <= budget.whole:
            wanted.extend(
                (row, 0.0, np.inf, size) for row, size in zip(mine.tolist(), sizes.tolist(), strict=True) if size
            )
        else:
            ends = np.cumsum(sizes)
            stands = float(ends[-1]) / budget.windows
            for k in range(budget.windows):
                middle = (k + 0.5) * stands
                at = int(np.searchsorted(ends, middle, side="right"))
                measured = min(float(budget.measured), float(sizes[at]))
                since = np.clip(middle - (ends[at] - sizes[at]) - measured / 2, 0.0, sizes[at] - measured)
                wanted.append((int(mine[at]), since, since + measured, stands))
        first_window.append(len(wanted))
    table = np.array(wanted, np.float64).reshape(-1, 4)
    row = table[:, 0].astype(np.int64)
    found = np.zeros((len(row), 6), np.int64)
    kernel.cut(
        read_only(stream.block_ids, np.int32), np.diff(sites.offsets), block_instructions,
        pieces.first_execution[row], pieces.end_execution[row], pieces.first_access[row],
        np.ascontiguousarray(table[:, 1:3]), budget.lead, found,
    )  # fmt: skip
    begin, counts_from, end, first_access, end_access, counted = found.T.copy()
    is_end = end == pieces.end_execution[row]
    begins = counts_from == pieces.first_execution[row]
    instance = np.repeat(chosen, np.diff(first_window))
    return _Cut(
        begin,
        counts_from,
        end,
        first_access,
        end_access,
        counted,
        table[:, 3].copy(),
        is_end,
        begins,
        instance,
        np.array(first_window),
    )


def _ends_in_branch(workload: Workload) -> np.ndarray:
    """bool[blocks]"""
    count = workload.tables["blocks"].num_rows
    block = workload.column("instructions", "block_id").astype(np.int64)
    kind = workload.column("instructions", "instruction_class").astype(np.int64)
    offsets = np.concatenate(([0], np.cumsum(np.bincount(block, minlength=count))))
    if not len(kind):
        return np.zeros(count, bool)
    return np.asarray((np.diff(offsets) > 0) & np.isin(kind[np.maximum(offsets[1:] - 1, 0)], _BRANCHES))


def _mispredicted(stream: InstructionStream, cut: _Cut, ends_in_branch: np.ndarray, budget: Budget) -> np.ndarray:
    """bool[executions of windows]"""
    first = np.concatenate(([0], np.cumsum(cut.end - cut.begin)))
    result = np.zeros(int(first[-1]), bool)
    order = np.argsort(cut.begin, kind="stable")
    kernel.predict(
        new_predictors(1, len(ends_in_branch)), read_only(stream.block_ids, np.int32), ends_in_branch, order, cut.begin,
        cut.end, cut.is_piece_end, first, _PREDICTED, result,
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


def _lines(
    stream: InstructionStream, pieces: PieceStream, rows: np.ndarray, owner: np.ndarray, cut: _Cut, sites: Sites,
    line_bytes: int, history: int,
) -> _Lines:  # fmt: skip
    addresses = read_only(stream.addresses, np.uint64)
    block_ids = read_only(stream.block_ids, np.int32)
    shift = line_bytes.bit_length() - 1
    since = np.maximum(cut.first_access - history, 0)
    before = int((cut.first_access - since).sum())
    most = int((cut.end_access - cut.first_access).sum()) * 2 + before
    used = kernel.Used(
        np.zeros(len(cut.begin) + 1, np.int64), np.zeros(most, np.int64), np.zeros(most, bool),
        np.zeros(len(cut.begin) + 1, np.int64), np.zeros(before, np.int64),
    )  # fmt: skip
    scratch = np.full((2, 1 << 18), -1, np.int64)
    kernel.lines_of_windows(
        block_ids, addresses, shift, sites.offsets, sites.bytes.astype(np.int64), sites.is_store, cut.begin, cut.end,
        cut.first_access, since, scratch, np.zeros(_RECENT, np.int64), used,
    )  # fmt: skip
    total = int(used.first[-1])
    line, is_stored = used.line[:total].copy(), used.is_stored[:total].copy()
    ends = np.append(pieces.first_access[rows][1:], len(addresses))
    if len(rows) and len(addresses) < int(max(pieces.first_access[rows].max(), cut.end_access.max(initial=0))):
        raise ValueError("the stream has fewer accesses than its blocks make")
    found = kernel.distances(
        addresses, shift, pieces.first_access[rows], ends, owner, since, cut.instance, used.first, line
    )
    return _Lines(
        used.first,
        line,
        *found,
        is_stored,
        used.first_history,
        used.history[: used.first_history[-1]].copy(),
        cut.first_access - since,
    )


def _profiles(
    stream: InstructionStream, line_bytes: int, instructions: np.ndarray, sample_of: np.ndarray, chosen: np.ndarray,
    cut: _Cut, is_mispredicted: np.ndarray, lines: _Lines, block_instructions: np.ndarray,
) -> MicroProfiles:  # fmt: skip
    first_execution = np.concatenate(([0], np.cumsum(cut.end - cut.begin)))
    first_access = np.concatenate(([0], np.cumsum(cut.end_access - cut.first_access)))
    executions = np.repeat(cut.begin - first_execution[:-1], cut.end - cut.begin) + np.arange(first_execution[-1])
    size = cut.end_access - cut.first_access
    accesses = np.repeat(cut.first_access - first_access[:-1], size) + np.arange(first_access[-1])
    before = np.concatenate(([0], np.cumsum(block_instructions[stream.block_ids[executions]])))
    every = before[first_execution[1:]] - before[first_execution[:-1]]
    return MicroProfiles(
        line_bytes=line_bytes,
        instructions=instructions,
        sample_of=sample_of,
        instance=chosen.astype(np.int32),
        first_window=cut.first_window,
        first_execution=first_execution,
        first_measured=first_execution[:-1] + cut.measured - cut.begin,
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
