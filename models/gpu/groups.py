"""A launch whose SMs are simulated in groups side by side: see groups_kernel.py. L2 is as strict order has it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

from manyscale.models.gpu import detailed, groups_kernel, memory_state, sm_state
from manyscale.models.gpu.detailed import LaunchResult, StuckError
from manyscale.models.gpu.exchange_kernel import Replies, replies_for, requests_for
from manyscale.models.gpu.launch_program import launch_program
from manyscale.models.gpu.launch_trace import LaunchTrace
from manyscale.models.gpu.memory_state import Memory
from manyscale.models.gpu.occupancy import l1_bytes, resident_blocks
from manyscale.models.gpu.parameters import Gpu
from manyscale.models.gpu.sm_limits import sm_limits
from manyscale.models.gpu.sm_state import Sm
from manyscale.models.shared_words import ABORT, WORDS

VERSION: Final = 1  # raised when results change
Gang: TypeAlias = Callable[[Sequence[Callable[[], int]]], list[int]]  # runs shards at the same time
_CALENDAR: Final = 4096
_PER_CHANNEL: Final = (
    "head", "tail", "last_access", "last_reply", "blocked", "misses", "dirty_lines", "tag", "line", "miss", "clock",
    "way_head", "way_tail", "last_way", "queue", "queued", "fill_head", "fill_tail", "bus_free", "write_end",
    "last_activate", "row", "column_from", "precharge_from", "activated", "group_from", "counts",
)  # fmt: skip


def in_threads(shards: Sequence[Callable[[], int]]) -> list[int]:
    """A thread for each shard (kernels run without the interpreter's lock)."""
    with ThreadPoolExecutor(len(shards)) as pool:
        return [future.result() for future in [pool.submit(shard) for shard in shards]]


@dataclass
class _Shard:
    """One shard's own state."""

    sm: Sm
    limits: tuple[int, ...]
    memory: Memory
    memory_limits: tuple[object, ...]
    waiting: Replies
    board: groups_kernel.Board
    first_sm: int


def simulate_in_groups(
    trace: LaunchTrace, gpu: Gpu, memory: Memory | None = None, groups: int = 2, run_gang: Gang = in_threads
) -> tuple[LaunchResult, Memory]:
    """As ``detailed.simulate``, by ``groups`` shards (as many as there are SMs and channels for), which ``run_gang``
    runs at the same time. Any number of them gives the same result; blocks are given out a little otherwise than in
    strict order."""
    running = _Running(trace, gpu, detailed.prepared(memory, gpu), groups)
    while True:
        whys = set(running.run(run_gang))
        if whys == {groups_kernel.FINISHED}:
            return running.result(), running.joined_memory()
        if whys == {groups_kernel.STUCK}:
            raise StuckError(f"launch {trace.launch_id}: warps wait for ever (a barrier that one does not reach?)")
        if whys != {groups_kernel.NEEDS_ROOM}:
            raise RuntimeError(f"launch {trace.launch_id}: shards stopped for different reasons: {sorted(whys)}")
        running.make_room()


class _Running:
    def __init__(self, trace: LaunchTrace, gpu: Gpu, memory: Memory, groups: int) -> None:
        self._trace, self._gpu = trace, gpu
        threads = trace.block[0] * trace.block[1] * trace.block[2]
        slots = min(resident_blocks(gpu, threads, trace.registers, trace.shared_bytes), trace.num_blocks)
        size = l1_bytes(gpu, slots, trace.shared_bytes)
        sms = min(gpu.sms, trace.num_blocks)
        self._window = window = memory_state.shortest_reply_cycles(gpu)
        self._count = count = min(groups, sms, gpu.dram.channels)
        self._ipc_cycles = detailed.bucket_cycles(trace.num_instructions, gpu)
        self._program = launch_program(trace, gpu)
        registers = int(self._program.operand.max(initial=0)) + 1
        sm_bounds, channel_bounds = _bounds(sms, count), _bounds(gpu.dram.channels, count)
        words, events = groups_kernel.shared_for(sms, count, slots)
        self._shared = groups_kernel.Shared(np.zeros(WORDS, np.int64), words, events)
        nodes = 16 * sms * window
        self._shards = []
        for g in range(count):
            first, end = sm_bounds[g], sm_bounds[g + 1]
            limits = sm_limits(gpu, size // gpu.l1.line_bytes, slots, trace.warps_per_block, self._ipc_cycles, first)
            board = groups_kernel.board_for(sms, count, slots, window, _shortest(trace))
            groups_kernel.deal(board, words, trace.num_blocks)
            own = memory_state.memory_state(gpu, channel_bounds[g + 1] - channel_bounds[g], nodes)
            for name in _PER_CHANNEL:
                getattr(own, name)[:] = getattr(memory, name)[channel_bounds[g] : channel_bounds[g + 1]]
            self._shards.append(
                _Shard(
                    sm_state.sm_state(
                        gpu, end - first, size, limits, window, detailed.IPC_BUCKETS, trace.num_blocks, registers
                    ),
                    limits,
                    own,
                    memory_state.memory_limits(gpu, channel_bounds[g]),
                    replies_for((count + 2) * nodes),
                    board,
                    first,
                )
            )
        self._requests = tuple(requests_for(sm_bounds[g + 1] - sm_bounds[g], window) for g in range(count))
        self._memory = memory

    def run(self, run_gang: Gang) -> list[int]:
        """Go on: why each shard stopped. Whatever ends one of them early ends all."""
        replies = tuple(
            Replies(each.memory.reply_time, each.memory.reply_sm, each.memory.reply_tag, each.memory.reply_level,
                    each.memory.replies)
            for each in self._shards
        )  # fmt: skip

        def shard(me: int) -> Callable[[], int]:
            own = self._shards[me]
            head = np.full(2 * _CALENDAR, -1, np.int32)
            link = np.zeros(len(own.waiting.time) + len(own.memory.reply_time), np.int32)

            def run() -> int:
                try:
                    return int(
                        groups_kernel.run_shard(
                            me, self._count, own.sm, own.first_sm, self._program, own.limits, own.memory,
                            own.memory_limits, self._requests, replies, own.waiting, head, link, self._shared,
                            own.board, self._trace.num_blocks, self._window,
                        )
                    )  # fmt: skip
                except BaseException:
                    self._shared.barrier[ABORT] = 1
                    raise

            return run

        return run_gang([shard(me) for me in range(self._count)])

    def make_room(self) -> None:
        """More requests and replies can be in flight."""
        for each in self._shards:
            size = len(each.memory.node_time)
            each.memory = memory_state.with_room(each.memory, size)
            larger = replies_for((self._count + 2) * len(each.memory.node_time) + int(each.waiting.rows[0]))
            for old, new in zip(each.waiting, larger, strict=True):
                new[: len(old)] = old
            each.waiting = larger

    def result(self) -> LaunchResult:
        """Of a launch that has ended: sums and rows of all shards."""
        sms = [each.sm for each in self._shards]
        record = [sm.record_sm >= 0 for sm in sms]
        joined = sms[0]._replace(
            **{name: np.concatenate([getattr(sm, name) for sm in sms]) for name in ("core", "scheduler", "stack")},
            issued=np.sum([sm.issued for sm in sms], axis=0),
            **{
                name: np.select(record, [getattr(sm, name) for sm in sms], default=getattr(sms[0], name))
                for name in ("record_sm", "record_begin", "record_end")
            },
        )
        counts = np.concatenate([each.memory.counts for each in self._shards])
        return detailed.result_of(self._trace, self._gpu, joined, counts, self._ipc_cycles)

    def joined_memory(self) -> Memory:
        """L2 for the next launch."""
        for name in _PER_CHANNEL:
            getattr(self._memory, name)[:] = np.concatenate([getattr(each.memory, name) for each in self._shards])
        return self._memory


def _shortest(trace: LaunchTrace) -> int:
    """Instructions of the longest warp of the block in which it is shortest: it takes as many cycles at least."""
    lengths = np.diff(trace.warp_instructions)
    first = trace.block_warps[:-1]
    has_some = np.diff(trace.block_warps) > 0
    return int(np.maximum.reduceat(lengths, first[has_some]).min()) if has_some.all() else 0


def _bounds(count: int, parts: int) -> list[int]:
    return [count * part // parts for part in range(parts + 1)]
