"""A node program whose large pieces are cut into *windows*, which follow each other in time: so that a part of a region
stands for it, where it has no wait inside.

What is cut: loops that the initial task waits for, and pieces of the initial task beside which nothing runs. A loop of
no more chunks than cores (a static one has as many) becomes loops in which every core executes a like part of its
chunk; one of many chunks becomes loops of consecutive chunks. Windows of a loop end as loops do, so cores wait for each
other at each end, where inside of the loop they do not.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np

from manyscale.models.node.program.node_program import OF_INSTANCES, OF_PIECES, Action, NodeProgram
from manyscale.models.node.program.regions import may_cut

_MANY_CHUNKS: Final = 8  # chunks of a core in a window of several
_LEAST_WINDOWS: Final = 4
SHORT: Final = 10_000  # instructions of a core: windows of 5,000 are 12 % too long (tests/validation/intervals)


@dataclass(frozen=True)
class Windows:
    """``program``, whose piece is the ``part``-th of ``num_parts`` of the whole program's ``piece`` (int64[pieces]
    each), and whose instance is, or is such a part of, its ``row`` (int64[instances]). ``may_end`` bool[pieces]: of the
    initial task's, windows, behind which it may be cut. ``num_windows`` of all ``num_cut`` pieces and loops;
    ``of_loop`` int64[instances]: windows of the loop that each is a chunk, or a part of one, of, else 1;
    ``num_short``: windows in which a core has fewer than SHORT instructions."""

    program: NodeProgram
    piece: np.ndarray
    part: np.ndarray
    num_parts: np.ndarray
    row: np.ndarray
    of_loop: np.ndarray
    may_end: np.ndarray
    num_windows: int
    num_cut: int
    num_short: int = 0

    @cached_property
    def row_is_part(self) -> np.ndarray:
        """bool[instances]: parts of one of the whole program's."""
        return np.asarray(np.bincount(self.row)[self.row] > 1)

    def shares(self, values: np.ndarray) -> np.ndarray:
        """int64[pieces]: of values of the whole program's pieces, in like parts."""
        of_piece = np.asarray(values, np.int64)[self.piece]
        return np.asarray(of_piece * (self.part + 1) // self.num_parts - of_piece * self.part // self.num_parts)


def unchanged(program: NodeProgram) -> Windows:
    """Without windows."""
    pieces, rows = np.arange(program.num_pieces), np.arange(program.num_instances)
    none, one = np.zeros(len(pieces), np.int64), np.ones(len(pieces), np.int64)
    return Windows(program, pieces, none, one, rows, np.ones_like(rows), np.zeros(len(pieces), bool), 0, 0)


def with_windows(program: NodeProgram, num_instructions: np.ndarray, length: int) -> Windows:
    """Windows of ``length`` instructions or a little more of what has several times as many. ``num_instructions``
    int64[pieces]. O(steps + instances + pieces + windows)."""
    most = length + length // 8  # a window that is a little short would be a region only with the next one
    own = np.arange(program.first_step[0], program.first_step[1])
    action, target = program.step_action[own], program.step_target[own].astype(np.int64)
    is_free = may_cut(program)
    of_row = np.bincount(program.piece_instance, num_instructions, program.num_instances).astype(np.int64)
    before = np.concatenate(([0], np.cumsum(of_row)))
    pieces = np.flatnonzero(is_free & (action == Action.compute))
    pieces = pieces[num_instructions[target[pieces]] >= _LEAST_WINDOWS * length]
    loops = np.flatnonzero(is_free & (action == Action.loop))
    bounds = program.first_chunk.astype(np.int64)
    size = before[bounds[target[loops] + 1]] - before[bounds[target[loops]]]
    loops = loops[(size >= _LEAST_WINDOWS * length)]
    plain = _is_plain(program)
    cuts: dict[int, tuple[int, bool]] = {}  # by loop: windows, and whether of parts of chunks
    for loop in target[loops].tolist():
        first, end = int(bounds[loop]), int(bounds[loop + 1])
        total, chunks = int(before[end] - before[first]), end - first
        if chunks <= program.num_cores and plain[first:end].all():
            cuts[loop] = (total // most, True)
        elif chunks >= 2 * _MANY_CHUNKS * program.num_cores:
            cuts[loop] = (min(total // most, chunks // (_MANY_CHUNKS * program.num_cores)), False)
    if not cuts and not len(pieces):
        return unchanged(program)
    parts = np.ones(program.num_pieces, np.int64)
    parts[target[pieces]] = num_instructions[target[pieces]] // most
    mine = parts[target[pieces]]
    num_short = int(mine[num_instructions[target[pieces]] < SHORT * mine].sum())
    rows = [np.zeros(0, np.int64)]
    row_part = [np.zeros(0, np.int64)]
    at = 0
    for loop, (count, of_chunks) in sorted(cuts.items()):
        first, end = int(bounds[loop]), int(bounds[loop + 1])
        if before[end] - before[first] < SHORT * count * min(end - first, program.num_cores):
            num_short += count
        if of_chunks:
            rows += [np.arange(at, first), np.tile(np.arange(first, end), count)]
            row_part += [np.zeros(first - at, np.int64), np.repeat(np.arange(count), end - first)]
            parts[np.isin(program.piece_instance, np.arange(first, end))] = count
            at = end
    rows.append(np.arange(at, program.num_instances))
    row_part.append(np.zeros(program.num_instances - at, np.int64))
    found = _assembled(program, cuts, parts, np.concatenate(rows), np.concatenate(row_part), len(pieces))
    return replace(found, num_short=num_short)


def _is_plain(program: NodeProgram) -> np.ndarray:
    """bool[instances]: those that execute one piece and are in no graph of dependences."""
    steps, edges = np.diff(program.first_step), np.diff(program.first_successor)
    first = np.minimum(program.first_step[:-1], max(len(program.step_action) - 1, 0))
    computes = program.step_action[first] == Action.compute
    return np.asarray((steps == 1) & computes & (edges == 0) & (program.num_predecessors == 0))


def _assembled(
    program: NodeProgram, cuts: dict[int, tuple[int, bool]], parts: np.ndarray, row: np.ndarray, row_part: np.ndarray,
    num_pieces_cut: int,
) -> Windows:  # fmt: skip
    """``parts`` int64[pieces]: of each; ``row`` and ``row_part`` int64[new instances]: what each is."""
    new_row = np.full(program.num_instances + 1, len(row))  # the first of each, and the end
    new_row[row[::-1]] = np.arange(len(row))[::-1]
    piece = np.repeat(np.arange(program.num_pieces), parts)
    first_piece = np.cumsum(parts) - parts
    part = np.arange(len(piece)) - first_piece[piece]
    number, bounds, flags = _loops(program, cuts, new_row)
    # steps
    own = np.arange(program.first_step[0], program.first_step[1])
    action, target = program.step_action, program.step_target.astype(np.int64)
    repeated = np.ones(len(own), np.int64)
    computes = action[own] == Action.compute
    repeated[computes] = parts[target[own][computes]]
    of_loop = action[own] == Action.loop
    repeated[of_loop] = [cuts.get(loop, (1, False))[0] for loop in target[own][of_loop].tolist()]
    new_own = np.cumsum(repeated) - repeated
    counts = np.diff(program.first_step)[row[1:]]
    others = np.repeat(program.first_step[row[1:]] - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())
    step = np.concatenate((np.repeat(own, repeated), others))
    step_part = np.concatenate(
        (np.arange(int(repeated.sum())) - np.repeat(new_own, repeated), np.repeat(row_part[1:], counts))
    )
    action, target = action[step], target[step]
    computes, of_loops = action == Action.compute, np.isin(action, (Action.loop, Action.loop_nowait))
    of_rows = np.isin(action, (Action.create, Action.call, Action.wait_instance))
    is_first = np.zeros(len(step), bool)
    is_first[: int(repeated.sum())] = True
    target[computes] = first_piece[target[computes]] + step_part[computes]
    target[of_loops] = number[target[of_loops]] + 2 * np.where(is_first, step_part, 0)[of_loops]
    target[of_rows] = new_row[target[of_rows]]
    owner = program.piece_instance[piece].astype(np.int64)
    is_chunk = (owner > 0) & (parts[piece] > 1)
    rows_of_chunk = _chunk_rows(row, row_part, owner[is_chunk], part[is_chunk])
    owner = new_row[owner]
    owner[is_chunk] = rows_of_chunk
    edges = np.diff(program.first_successor)
    place = np.concatenate((program.phase_first_step - program.first_step[0], [0]))[:-1]
    parent = program.parent[row].astype(np.int64)
    found = replace(
        program,
        **{name: getattr(program, name)[row] for name in OF_INSTANCES},
        **{name: getattr(program, name)[piece] for name in OF_PIECES},
        step_action=action,
        step_target=target.astype(np.int32),
        first_step=np.concatenate(([0], [int(repeated.sum())], int(repeated.sum()) + np.cumsum(counts))),
        parent=np.where(parent > 0, new_row[np.maximum(parent, 0)], parent).astype(np.int32),
        first_successor=np.concatenate(([0], np.cumsum(edges[row]))),  # those of several parts have none
        successor=new_row[program.successor].astype(np.int32),
        first_chunk=bounds,
        loop_flags=flags,
        piece_ps=program.piece_ps[piece] * (part + 1) // parts[piece] - program.piece_ps[piece] * part // parts[piece],
        piece_instance=owner.astype(np.int32),
        phase_first_step=np.append(new_own, repeated.sum())[place],
        phase_first_instance=new_row[program.phase_first_instance].astype(np.int32),
    )
    of_loop = np.ones(program.num_instances, np.int64)
    for loop, (count, _) in cuts.items():
        of_loop[program.first_chunk[loop] : program.first_chunk[loop + 1]] = count
    may_end = (owner == 0) & (parts[piece] > 1)
    windows = sum(count for count, _ in cuts.values()) + int(np.count_nonzero(may_end))
    return Windows(found, piece, part, parts[piece], row, of_loop[row], may_end, windows, len(cuts) + num_pieces_cut)


def _chunk_rows(row: np.ndarray, row_part: np.ndarray, owner: np.ndarray, part: np.ndarray) -> np.ndarray:
    """The new instance that is the ``part``-th of each ``owner``."""
    most = int(row_part.max(initial=0)) + 1
    order = np.argsort(row * most + row_part, kind="stable")
    return order[np.searchsorted((row * most + row_part)[order], owner * most + part)]


def _loops(
    program: NodeProgram, cuts: dict[int, tuple[int, bool]], new_row: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(int64[loops]: the new number of each, or of its first window, whose others are the next even ones; int32[]: the
    new ``first_chunk``, in which every other loop stands for what lies between two; uint8[]: ``loop_flags``)."""
    begun = np.isin(program.step_action, (Action.loop, Action.loop_nowait))
    number = np.zeros(len(program.first_chunk), np.int64)
    pairs: list[tuple[int, int]] = []
    flags: list[int] = []
    known = np.zeros(len(number), np.uint8) if program.loop_flags is None else program.loop_flags
    for loop in np.unique(program.step_target[begun]).tolist():
        number[loop] = 2 * len(pairs)
        first, end = program.first_chunk[loop : loop + 2].tolist()
        count, of_chunks = cuts.get(loop, (1, False))
        flags += [int(known[loop])] * count
        begin, size = int(new_row[first]), end - first
        if of_chunks:
            pairs += [(begin + k * size, begin + (k + 1) * size) for k in range(count)]
        else:
            pairs += [(begin + size * k // count, begin + size * (k + 1) // count) for k in range(count)]
    bounds = np.append(np.array(pairs, np.int64).ravel(), new_row[-1]).astype(np.int32)
    return number, bounds, np.insert(np.array(flags, np.uint8), np.arange(1, len(flags) + 1), 0)
