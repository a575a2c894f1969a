"""A GPU cycle by cycle: launches one after another, L2 as the launches before left it.

See sm_kernel.py for an SM, memory_kernel.py for L2 and DRAM, windows_kernel.py for the order. The reference is
Accel-Sim's RTX 3070 (tests/validation/gpu).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from manyscale.models.gpu import launch_kernel, memory_state, sm_state
from manyscale.models.gpu.exchange_kernel import replies_for, requests_for
from manyscale.models.gpu.launch_program import launch_program
from manyscale.models.gpu.launch_trace import LaunchTrace
from manyscale.models.gpu.memory_state import Memory
from manyscale.models.gpu.occupancy import l1_bytes, resident_blocks
from manyscale.models.gpu.parameters import Gpu
from manyscale.models.gpu.sm_limits import sm_limits
from manyscale.models.gpu.sm_state import CAUSES, Sm
from manyscale.models.gpu.windows_kernel import dispatch_for

VERSION: Final = 1  # raised when results change
IPC_BUCKETS: Final = 1 << 14  # of the IPC over time; those of a launch are joined until they suffice
_FIRST_BUCKET: Final = 64  # cycles
_END: Final = 1  # from the end of the last block to that of the launch
_WINDOWS: Final = 1 << 14  # between two looks at whether to go on
_CALENDAR: Final = 4096  # cycles that replies may lie ahead without waiting for the next exchange


class StuckError(ValueError):
    """Blocks wait for what never comes."""


@dataclass(frozen=True)
class LaunchResult:
    """A simulated launch.

    ``cycles``: with ``launch_latency_cycles``. ``stack``: scheduler cycles by cause (CAUSES), float64; divided by
    ``warp_instructions`` and by the schedulers of all SMs it sums to cycles without launch latency per instruction of
    an SM. ``ipc``: warp instructions of each ``ipc_cycles``. ``block_sm``, ``block_begin``, ``block_end``: int, in
    cycles after the launch latency. ``occupancy``: warps that were resident, of those that SMs with blocks have room
    for. Counts of L1 are requests of loads and stores, those of L2 too.
    """

    launch_id: int
    cycles: int
    launch_latency_cycles: int
    warp_instructions: int
    thread_instructions: int
    stack: np.ndarray
    l1_accesses: int
    l1_misses: int
    l2_accesses: int
    l2_misses: int
    dram_reads: int
    dram_writes: int
    occupancy: float
    ipc_cycles: int
    ipc: np.ndarray
    block_sm: np.ndarray
    block_begin: np.ndarray
    block_end: np.ndarray

    @property
    def busy_cycles(self) -> int:
        return self.cycles - self.launch_latency_cycles

    @property
    def l1_miss_ratio(self) -> float:
        return self.l1_misses / self.l1_accesses if self.l1_accesses else 0.0

    @property
    def l2_miss_ratio(self) -> float:
        return self.l2_misses / self.l2_accesses if self.l2_accesses else 0.0


def l2_of(gpu: Gpu) -> Memory:
    """An empty L2 with its DRAM, for the first launch."""
    return memory_state.memory_state(gpu, gpu.dram.channels, 4 * gpu.sms * memory_state.shortest_reply_cycles(gpu))


def simulate(trace: LaunchTrace, gpu: Gpu, memory: Memory | None = None) -> tuple[LaunchResult, Memory]:
    """Simulate a launch whose L2 is ``memory`` (None: empty): the result, and L2 for the next one.

    Raises DoesNotFitError where no block fits on an SM, StuckError where blocks wait for each other for ever.
    """
    memory = _prepared(memory, gpu)
    threads = trace.block[0] * trace.block[1] * trace.block[2]
    slots = resident_blocks(gpu, threads, trace.registers, trace.shared_bytes)
    slots = min(slots, trace.num_blocks)
    size = l1_bytes(gpu, slots, trace.shared_bytes)
    window = memory_state.shortest_reply_cycles(gpu)
    ipc_cycles = _bucket_cycles(trace, gpu)
    program = launch_program(trace, gpu)
    limits = sm_limits(gpu, size // gpu.l1.line_bytes, slots, trace.warps_per_block, ipc_cycles)
    sms = min(gpu.sms, trace.num_blocks)  # those that get a block
    registers = int(program.operand.max(initial=0)) + 1
    sm = sm_state.sm_state(gpu, sms, size, limits, window, IPC_BUCKETS, trace.num_blocks, registers)
    dispatch = dispatch_for(sms, np.arange(trace.num_blocks))
    mem_limits = memory_state.memory_limits(gpu)
    requests = requests_for(sms, window)
    replies = replies_for(2 * len(memory.reply_time))
    head = np.full(2 * _CALENDAR, -1, np.int32)
    link = np.zeros(4 * len(memory.reply_time), np.int32)
    clock = np.array([0, window])
    while True:
        why = launch_kernel.run(
            sm, program, limits, dispatch, memory, mem_limits, requests, replies, head, link, clock, _WINDOWS
        )
        if why == launch_kernel.FINISHED:
            break
        if why == launch_kernel.STUCK:
            raise StuckError(
                f"launch {trace.launch_id}: at cycle {clock[0]} warps wait for ever (a barrier not reached?)"
            )
        if why == launch_kernel.NEEDS_ROOM:
            memory = memory_state.with_room(memory, 4 * gpu.sms * window)
            larger = replies_for(2 * len(memory.reply_time) + int(replies.rows[0]))
            for old, new in zip(replies, larger, strict=True):
                new[: len(old)] = old
            replies, link = larger, np.zeros(len(larger.time) + len(memory.reply_time), np.int32)
    return _result(trace, gpu, sm, memory, ipc_cycles), memory


def _prepared(memory: Memory | None, gpu: Gpu) -> Memory:
    if memory is None:
        return l2_of(gpu)
    memory_state.reset_clock(memory)
    if not gpu.l2.kept_between_launches:
        memory_state.forget_all(memory)
    return memory


def _bucket_cycles(trace: LaunchTrace, gpu: Gpu) -> int:
    """Cycles of a bucket of the IPC over time: so that a launch of one instruction per 64 cycles of an SM fits."""
    most = 64 * trace.num_instructions // gpu.sms + 1
    cycles = _FIRST_BUCKET
    while cycles * IPC_BUCKETS < most:
        cycles *= 2
    return cycles


def _result(trace: LaunchTrace, gpu: Gpu, sm: Sm, memory: Memory, ipc_cycles: int) -> LaunchResult:
    end = int(sm.record_end.max(initial=0)) + _END
    core = sm.core
    latency = round(gpu.launch_latency_cycles)
    active = int(core["active_cycles"].sum())
    stack = sm.stack.sum(axis=0).astype(np.float64)
    stack[sm_state.EMPTY] += float((end - sm.scheduler["active_until"]).clip(0).sum())
    stack[sm_state.EMPTY] += float(end * gpu.schedulers * (gpu.sms - len(core)))
    counts = memory.counts.sum(axis=0)
    buckets = end // ipc_cycles + 1
    return LaunchResult(
        launch_id=trace.launch_id,
        cycles=end + latency,
        launch_latency_cycles=latency,
        warp_instructions=int(core["instructions"].sum()),
        thread_instructions=int(core["thread_instructions"].sum()),
        stack=stack,
        l1_accesses=int((core["l1_reads"] + core["l1_writes"]).sum()),
        l1_misses=int((core["l1_read_misses"] + core["l1_write_misses"]).sum()),
        l2_accesses=int(counts[[memory_state.L2_READS, memory_state.L2_WRITES]].sum()),
        l2_misses=int(counts[[memory_state.L2_READ_MISSES, memory_state.L2_WRITE_MISSES]].sum()),
        dram_reads=int(counts[memory_state.DRAM_READS]),
        dram_writes=int(counts[memory_state.DRAM_WRITES]),
        occupancy=float(core["warp_cycles"].sum()) / (active * gpu.warps) if active else 0.0,
        ipc_cycles=ipc_cycles,
        ipc=sm.issued[:buckets],
        block_sm=sm.record_sm,
        block_begin=sm.record_begin,
        block_end=sm.record_end,
    )


__all__ = ["CAUSES", "VERSION", "LaunchResult", "StuckError", "l2_of", "simulate"]
