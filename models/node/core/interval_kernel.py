"""One core that executes parts of a single thread's stream, and looks at the time and its counters between blocks.

Beside the loop of detailed_kernel.py: there is no runtime system and no other core, so the core goes from access to
access without asking who is next. At marks (places between two block executions) nothing is drained: what is counted
between two of them is what the same instructions take inside the whole run.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from manyscale.models.cpu.branch_predictor import mispredicts
from manyscale.models.kernels import allocation_free, by_reference
from manyscale.models.node.core.kernel import begin_block, end_block
from manyscale.models.node.core.window_kernel import do_node
from manyscale.models.node.memory.kernel import touch


class BlockAccesses(NamedTuple):
    """Of each block: its accesses are those from ``first[block]`` on."""

    first: np.ndarray
    num_bytes: np.ndarray
    is_store: np.ndarray


@allocation_free
def run_to_marks(cores, mem, mark, cycle, stack, counts):  # type: ignore[no-untyped-def]
    """Core 0 goes on from where ``begin_piece`` or an earlier call left it until execution ``mark[-1]`` of its
    stream. At each of ``mark`` int64[n], ascending: ``cycle`` float64[n], by when all before it has left;
    ``stack`` float64[n, parts] and ``counts`` int64[n, levels + 2, 4] so far. O(accesses and executions)."""
    cores, mem = by_reference(cores), by_reference(mem)
    c = cores.core[0]
    spacing = cores.limits[0].spacing
    seen = 0
    while True:
        while c.node == c.end_node:
            if c.block >= 0:
                end_block(cores, 0, cores.code.block[c.block])
            if c.execution == mark[seen]:
                c.cycle = max(c.commit + (c.position - 1 - c.commit_position) * spacing, c.base)
                cycle[seen] = c.cycle
                for part in range(stack.shape[1]):
                    stack[seen, part] = cores.stack[0, part]
                for level in range(counts.shape[1]):
                    for kind in range(counts.shape[2]):
                        counts[seen, level, kind] = mem.counts[0, level, kind]
                seen += 1
                if seen == mark.shape[0]:
                    c.block = -1  # it has ended
                    return
            begin_block(cores, 0)
        do_node(cores, mem)


@allocation_free
def fill(mem, used):  # type: ignore[no-untyped-def]
    """Core 0 uses lines one after the other: ``used`` int64[], 2 x line + (1 where it stores). No time passes, nothing
    is counted. O(lines * levels * ways)."""
    mem = by_reference(mem)
    for i in range(used.shape[0]):
        touch(mem, 0, used[i] >> 1, (used[i] & 1) == 1)


@allocation_free
def follow(cores, before, block):  # type: ignore[no-untyped-def]
    """Core 0's branch predictor sees ``block`` executed behind ``before``. O(tables), see branch_predictor.py."""
    cores = by_reference(cores)
    if cores.limits[0].misprediction > 0:
        mispredicts(cores.predictor, 0, before, block, cores.code.ends_in_branch[before])


@allocation_free
def warm(cores, mem, sites, before):  # type: ignore[no-untyped-def]
    """Caches, prefetchers and core 0's branch predictor see the stream's blocks and their accesses; no time passes,
    nothing is counted. ``before``: the block executed before, -1 if none was. O(accesses * levels * ways)."""
    cores, mem, sites = by_reference(cores), by_reference(mem), by_reference(sites)
    stream = cores.stream
    shift = np.uint64(cores.limits[0].line_shift)
    at = 0
    for i in range(stream.block_ids.shape[0]):
        block = np.int64(stream.block_ids[i])
        if before >= 0:
            follow(cores, before, block)
        before = block
        for site in range(sites.first[block], sites.first[block + 1]):
            address = stream.addresses[at]
            at += 1
            line = np.int64(address >> shift)
            last = np.int64((address + np.uint64(max(sites.num_bytes[site], 1) - 1)) >> shift)
            while line <= last:
                touch(mem, 0, line, sites.is_store[site])
                line += 1
