"""Profiles of intervals as basic-block vectors (.bb), a file per thread, with a table of what was measured beside.

What readers/simpoint_bb/__init__.py reads back: NAME.bb, NAME.bb.2, ... and NAME.cpi.csv with columns ``interval``,
``tid`` (from 1), ``instrs`` and the counters. Each thread has a row for each interval; a bare ``T`` is one in which it
executed nothing. ``cycles`` are the time that passed, and stand with the first thread alone, so that their sum is that
time.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np

from manyscale.models.node.interval_watch import NodeIntervals
from manyscale.runner.run import directory as rundir
from manyscale.runner.run.plans import simpoint_files


def write_intervals(found: NodeIntervals, directory: Path, name: str) -> Path:
    """Writes NAME.bb and what belongs to it; the path of NAME.bb. O(pairs)."""
    threads = found.instructions.shape[1]
    row = np.repeat(np.arange(len(found)), np.diff(found.first_block))
    thread, block = np.divmod(found.core_block, found.num_blocks)
    for each in range(threads):
        mine = np.flatnonzero(thread == each)
        first = np.searchsorted(row[mine], np.arange(len(found) + 1)).tolist()
        pairs = list(zip((block[mine] + 1).tolist(), found.block_instructions[mine].tolist(), strict=True))
        text = simpoint_files.vectors(pairs[begin:end] for begin, end in pairwise(first))
        rundir.write_atomically(directory / f"{name}.{'bb' if each == 0 else f'bb.{each + 1}'}", text)
    rundir.write_atomically(directory / f"{name}.cpi.csv", _table(found, threads))
    return directory / f"{name}.bb"


def _table(found: NodeIntervals, threads: int) -> str:
    lines = ["interval,tid,instrs,cycles,coherence_answers,llc_misses,offcore_requests\n"]
    counts = np.stack([found.coherence_answers, found.llc_misses, found.offcore_requests], axis=2)
    for interval, (cycles, instructions) in enumerate(zip(found.cycles, found.instructions, strict=True)):
        for thread in range(threads):
            shown = ",".join(f"{value:.0f}" for value in counts[interval, thread])
            time = f"{cycles:.12g}" if thread == 0 else ""
            lines.append(f"{interval},{thread + 1},{instructions[thread]:.0f},{time},{shown}\n")
    return "".join(lines)
