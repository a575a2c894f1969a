"""Windows of a program's pieces, which stand for all of them on the core of any machine.

Pieces of one task type whose lengths fall into the same half octave are a class. Of each class some pieces are
*sampled*, spread evenly over the run, each standing for those around it; how many follows from the class's share of the
instructions (``Budget``). A sample that is not longer than ``whole`` instructions is one window; of a longer one
``windows`` of ``measured`` instructions are, one anywhere in each of so many equal parts (in equal distances they would
meet the same phase of a regular loop again and again), each after ``lead`` more that fill the core. These are
the micro-traces of Van den Steen et al. ("Analytical processor performance and power modeling using
micro-architecture independent characteristics", IEEE TC 65(12), 2016).

Of each line that a window uses stands which row of PieceLines it is (so that whoever knows what caches hold when the
piece begins knows where it lies) and, if the piece has used it before the window, about how many other lines it has
used since: uses of lines that are none of the last few dozens.

Where a branch is mispredicted follows from the model of the branch predictor (cpu/branch_predictor.py), which has seen
the ``predicted`` executions before the window.

Cost: O(executions and accesses of sampled pieces), and O(pieces log pieces).
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final

import numpy as np

from manyscale.models.cpu.branch_predictor import new_predictors
from manyscale.models.cpu.dataflow_code import ends_in_branch
from manyscale.models.kernels import read_only
from manyscale.models.memory.access_stream import sites_of
from manyscale.models.node.instruction_stream import InstructionStream, PieceStream
from manyscale.models.node.program.node_program import NodeProgram
from manyscale.models.node.shared import windows_kernel as kernel
from manyscale.models.node.shared.piece_lines import PieceLines
from manyscale.models.workload import Workload

_GOLDEN: Final = 0.5 * (5**0.5 - 1)  # multiples spread evenly over 0 to 1


@dataclass(frozen=True)
class Budget:
    """Instructions in windows: ``share`` of the program's, at least ``least``; of a class at least ``few`` samples and
    at most ``many``. ``whole``, ``windows``, ``lead``, ``measured``, ``predicted``: see the module."""

    share: float = 1 / 500
    least: int = 60_000
    few: int = 4
    many: int = 64
    whole: int = 6000
    windows: int = 8
    lead: int = 200
    measured: int = 800
    predicted: int = 2000


DEFAULT: Final = Budget()


@dataclass(frozen=True)
class PieceWindows:
    """Rows [first_x[k], first_x[k + 1]) of a column belong to k.

    ``executed`` bool[blocks]: that pieces execute. ``sample_of`` int32[pieces]: -1 for those that execute nothing.
    ``piece`` int64[samples]; windows of samples from ``first_window`` int64[samples + 1] on. Of windows: ``block_ids``
    int32[] and ``is_mispredicted`` bool[] from
    ``first_execution`` int64[windows + 1] on, those that count from ``first_measured`` int64[windows] on; ``addresses``
    uint64[] from ``first_access`` int64[windows + 1] on; ``instructions`` int64[windows] that count; ``weight``
    float64[windows]: instructions of the sample that these stand for. Of a window's lines: ``line`` int64[] (address //
    line_bytes), ``row`` int64[] of PieceLines (-1: of the core's own stack) and ``since`` int64[]: lines used since the
    piece used it last, -1 where it had not, from ``first_line`` int64[windows + 1] on.
    """

    executed: np.ndarray
    sample_of: np.ndarray
    piece: np.ndarray
    first_window: np.ndarray
    first_execution: np.ndarray
    first_measured: np.ndarray
    block_ids: np.ndarray
    is_mispredicted: np.ndarray
    first_access: np.ndarray
    addresses: np.ndarray
    instructions: np.ndarray
    weight: np.ndarray
    first_line: np.ndarray
    line: np.ndarray
    row: np.ndarray
    since: np.ndarray

    @property
    def num_samples(self) -> int:
        return len(self.piece)

    @property
    def num_windows(self) -> int:
        return len(self.weight)

    def arrays(self) -> dict[str, np.ndarray]:
        """All as plain arrays, for ``numpy.savez``; ``windows_from`` reads them back."""
        return {f"windows_{field.name}": np.asarray(getattr(self, field.name)) for field in fields(self)}


def windows_from(arrays: dict[str, np.ndarray]) -> PieceWindows:
    """What ``PieceWindows.arrays`` gave."""
    return PieceWindows(**{field.name: arrays[f"windows_{field.name}"] for field in fields(PieceWindows)})


def windows_of_pieces(
    program: NodeProgram,
    stream: InstructionStream,
    pieces: PieceStream,
    lines: PieceLines,
    workload: Workload,
    budget: Budget = DEFAULT,
) -> PieceWindows:
    """Windows of all pieces of which the stream has instructions."""
    sites = sites_of(workload)
    sizes = np.maximum(workload.column("blocks", "num_instructions").astype(np.int64), 0)
    kinds = program.task_type[program.piece_instance].astype(np.int64)
    sample_of, piece = _samples(kinds, pieces.num_instructions, pieces.first_access, budget)
    length = pieces.num_instructions[piece].astype(np.float64)
    count = np.where(length > budget.whole, budget.windows, 1)
    first_window = np.concatenate(([0], np.cumsum(count)))
    sample = np.repeat(np.arange(len(piece)), count)
    number = np.arange(first_window[-1]) - first_window[:-1][sample]
    stands = length[sample] / count[sample]
    measured = np.where(count[sample] > 1, budget.measured, length[sample])
    bounds = np.zeros((len(sample), 3))  # instructions of the piece before the window, before what counts, at the end
    anywhere = (np.arange(len(sample)) + 1) * _GOLDEN % 1.0
    bounds[:, 1] = np.where(count[sample] > 1, number * stands + anywhere * (stands - measured), 0.0)
    bounds[:, 0], bounds[:, 2] = np.maximum(bounds[:, 1] - budget.lead, 0.0), bounds[:, 1] + measured
    stack = np.zeros((len(pieces.first_execution), 2), np.int64) if pieces.stack is None else pieces.stack
    block_ids = read_only(stream.block_ids, np.int32)
    found = kernel.new_windows(
        len(sample), int(pieces.num_instructions[piece].max(initial=0)), int((bounds[:, 2] - bounds[:, 0]).sum()),
        int((lines.end - lines.first)[piece].max(initial=0)), int(sizes.max(initial=0)),
    )  # fmt: skip
    kernel.follow(
        found, block_ids, read_only(stream.addresses, np.uint64), np.ascontiguousarray(sites.offsets, np.int64),
        np.maximum(sites.bytes.astype(np.int64), 1) - 1, sizes,
        np.stack([pieces.first_execution, pieces.end_execution, pieces.first_access], axis=1)[piece],
        lines.first[piece], first_window, bounds, np.ascontiguousarray(stack[piece], np.int64),
        lines.line_bytes.bit_length() - 1,
    )  # fmt: skip
    ends = ends_in_branch(workload)
    wrong = np.zeros(int(found.first_execution[-1]), np.bool_)
    kernel.predict(
        new_predictors(1, len(ends)), block_ids, ends, np.argsort(found.begin, kind="stable"), found.begin,
        found.first_execution, pieces.end_execution[piece][sample], budget.predicted, wrong,
    )  # fmt: skip
    executed = np.zeros(len(sizes), np.bool_)
    kernel.mark_executed(block_ids, executed)
    executions, accesses, used = int(found.first_execution[-1]), int(found.first_access[-1]), int(found.first_line[-1])
    return PieceWindows(
        executed, sample_of, piece, first_window, found.first_execution, found.first_measured,
        found.block_ids[:executions].copy(), wrong, found.first_access, found.addresses[:accesses].copy(),
        found.instructions, stands, found.first_line, found.line[:used].copy(), found.row[:used].copy(),
        found.since[:used].copy(),
    )  # fmt: skip


def _samples(
    kinds: np.ndarray, instructions: np.ndarray, order: np.ndarray, budget: Budget
) -> tuple[np.ndarray, np.ndarray]:
    """(int32[pieces] which sample stands for each, int64[samples] the pieces of these)."""
    sample_of = np.full(len(instructions), -1, np.int32)
    works = np.flatnonzero(instructions > 0)
    length = np.floor(2 * np.log2(instructions[works])).astype(np.int64)
    key = kinds[works] * 128 + length
    works = works[np.lexsort((order[works], key))]
    key = np.sort(key)
    cuts = np.append(np.flatnonzero(np.diff(key, prepend=key[:1] - 1)), len(key))
    total = max(float(instructions.sum()), 1.0)
    allowed = max(total * budget.share, float(budget.least))
    in_windows = budget.windows * (budget.lead + budget.measured)
    chosen: list[np.ndarray] = []
    number = 0
    for first, end in zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True):
        mine = works[first:end]
        own = float(instructions[mine].sum())
        mean = own / len(mine)
        each = mean if mean <= budget.whole else float(in_windows)
        count = min(int(np.clip(round(allowed * own / total / each), budget.few, budget.many)), len(mine))
        edges = np.arange(count + 1) * len(mine) // count
        chosen.append(mine[(edges[:-1] + edges[1:]) // 2])
        sample_of[mine] = number + np.repeat(np.arange(count), np.diff(edges))
        number += count
    return sample_of, np.concatenate(chosen) if chosen else np.zeros(0, np.int64)
