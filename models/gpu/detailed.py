"""A GPU cycle by cycle: launches one after another, L2 as the launches before left it.

See gpu/sm/kernel.py for an SM, memory_kernel.py for L2 and DRAM, windows_kernel.py for the order. The reference is
Accel-Sim's RTX 3070 (tests/validation/gpu).
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from operator import is_not
from typing import Any, Final, Protocol

import numpy as np

from manyscale.models.gpu import launch_kernel, memory_state
from manyscale.models.gpu.clusters import check_room, cluster_blocks, cluster_order
from manyscale.models.gpu.l2.exchange_kernel import Replies, enlarged, replies_for
from manyscale.models.gpu.launch_pieces import LaunchPieces
from manyscale.models.gpu.launch_program import LaunchProgram
from manyscale.models.gpu.memory_state import Memory
from manyscale.models.gpu.occupancy import l1_bytes, resident_blocks
from manyscale.models.gpu.parameters import Gpu
from manyscale.models.gpu.skipped_blocks import forget_passed
from manyscale.models.gpu.sm import state as sm_state
from manyscale.models.gpu.sm.asynchronous.state import room_for
from manyscale.models.gpu.sm.control.rows import COLUMNS, code_lines, constant_lines, is_controlled
from manyscale.models.gpu.sm.limits import SmLimits, sm_limits
from manyscale.models.gpu.sm.memory_kernel import REPLY_CYCLES
from manyscale.models.gpu.sm.state import CAUSES, Counted
from manyscale.models.gpu.sm.wanted import want_for
from manyscale.models.gpu.windows_kernel import ASKS, CHOSEN, END, HELD, NEXT, ROOM, dispatch_for, first_room
from manyscale.models.kernels.watching import watched
from manyscale.models.workload.launch_trace import LaunchTrace

VERSION: Final = 18  # raised when results change
IPC_BUCKETS: Final = 1 << 14  # of the IPC over time; those of a launch are joined until they suffice
_FIRST_BUCKET: Final = 64  # cycles
ASKED_COUNTS: Final = (  # of LaunchResult
    "l1_accesses", "l1_misses", "l2_accesses", "l2_misses", "dram_reads", "dram_writes",
)  # fmt: skip
END_CYCLES: Final = 1  # from the end of the last block to that of the launch
_WINDOWS: Final = 1 << 14  # between two looks at whether to go on
SMALL: Final = 200_000  # warp instructions: some tenth of a second, of which nobody is told how far it is


class StuckError(ValueError):
    """Blocks wait for what never comes."""


@dataclass(frozen=True)
class LaunchResult:
    """A simulated launch.

    ``cycles``: with ``launch_latency_cycles``. ``stack``: cycles of schedulers by cause (CAUSES), float64, of the SMs
    that had a block: it sums to cycles without launch latency, times ``sms_with_blocks``, times schedulers of each.
    ``ipc``: warp instructions of each ``ipc_cycles``. ``block_sm``, ``block_begin``, ``block_end``: int, in cycles
    after the launch latency; -1, 0 and 0 of a block that was not simulated. ``occupancy``: warps that were resident, of
    those that SMs with blocks have room for. Counts of L1 are requests of loads and stores, those of L2 too; those of
    DRAM, sectors of L2 that were read and written.
    ``asked_at`` int64[n], ascending: each time that a BlockChoice was asked; ``asked_counts`` float64[n, ASKED_COUNTS]:
    what had been counted by then, to a window's length.
    """

    launch_id: int
    cycles: int
    launch_latency_cycles: int
    warp_instructions: int
    thread_instructions: int
    sms_with_blocks: int
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
    asked_at: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    asked_counts: np.ndarray = field(default_factory=lambda: np.zeros((0, len(ASKED_COUNTS))))

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


class BlockChoice(Protocol):
    """Chooses which blocks of a launch are simulated; told of what happens in the order of time. ``issued``: warp
    instructions of the whole GPU up to then."""

    def next(self) -> tuple[int, int]:
        """(first, block): ``block`` is dispatched next (the number of blocks: none is), blocks [first, block) are
        skipped."""

    def dispatched(self, block: int, time: int, issued: float) -> None:
        """``block`` begins."""

    def ended(self, block: int, time: int, issued: float) -> None:
        """``block`` has ended."""


def simulate(
    trace: LaunchTrace,
    gpu: Gpu,
    memory: Memory | None = None,
    choice: BlockChoice | None = None,
    skipped: Callable[[Memory, int, int], None] | None = None,
    told: Callable[[float], None] | None = None,
) -> tuple[LaunchResult, Memory]:
    """Simulate a launch whose L2 is ``memory`` (None: empty): the result, and L2 for the next one. ``told`` hears which
    share of its warp instructions is done, unless it is SMALL.

    With ``choice`` only blocks that it chooses, those of a cluster as any others; ``skipped(memory, first, end)``
    then changes L2 as it likes for blocks [first, end); what they do to L1 is the model's (skipped_blocks.py). Raises
    DoesNotFitError where no block fits on an SM, StuckError where blocks wait for each other for ever.
    """
    running = _Running(trace, trace.num_blocks, iter(()), gpu, prepared(memory, gpu), clusters=choice is None)
    with watched(running.share, told if trace.num_instructions > SMALL else None):
        return _simulated(running, choice, skipped)


def simulate_pieces(
    pieces: Iterable[LaunchTrace],
    gpu: Gpu,
    memory: Memory | None = None,
    num_instructions: int | None = None,
    told: Callable[[float], None] | None = None,
) -> tuple[LaunchResult, Memory]:
    """The same for a launch that comes in pieces of consecutive blocks, of which only those are held that run.
    ``num_instructions``: warp instructions of all pieces, by which buckets of the IPC are chosen; without it they are
    estimated from the first."""
    following = iter(pieces)
    first = next(following)
    x, y, z = first.grid
    running = _Running(first, x * y * z, following, gpu, prepared(memory, gpu), num_instructions=num_instructions)
    with watched(running.share, told if running.num_instructions > SMALL else None):
        return _simulated(running, None, None)


def _simulated(
    running: _Running, choice: BlockChoice | None, skipped: Callable[[Memory, int, int], None] | None
) -> tuple[LaunchResult, Memory]:
    running.asks(choice is not None)
    while True:
        why = running.run()
        if why == launch_kernel.FINISHED:
            return running.result(), running.memory
        if why == launch_kernel.STUCK:
            raise StuckError(
                f"launch {running.trace.launch_id}: warps wait for ever (a barrier that one does not reach?)"
            )
        if why == launch_kernel.NEEDS_ROOM:
            running.make_room()
        if why == launch_kernel.ASKS and not running.bring_more():
            assert choice is not None
            running.choose(choice, skipped)


class _Running:
    """A launch that is being simulated: ``trace``, its first piece, and those that follow; ``num_blocks`` of all."""

    def __init__(
        self, trace: LaunchTrace, num_blocks: int, following: Iterator[LaunchTrace], gpu: Gpu, memory: Memory,
        clusters: bool = True, num_instructions: int | None = None,
    ) -> None:  # fmt: skip
        self.trace = trace
        self._gpu = gpu
        cluster = cluster_blocks(trace, gpu) if clusters else 1
        threads = trace.block[0] * trace.block[1] * trace.block[2]
        slots = resident_blocks(gpu, threads, trace.registers, trace.shared_bytes)
        slots = min(slots, num_blocks)
        size = l1_bytes(gpu, slots, trace.shared_bytes)
        window = memory_state.shortest_reply_cycles(gpu)
        sms = gpu.sms if cluster > 1 else min(gpu.sms, num_blocks)  # those that may get a block
        self.memory = memory_state.with_ports(memory, sms)
        if num_instructions is None:
            num_instructions = trace.num_instructions * num_blocks // max(1, trace.num_blocks)
        self._ipc_cycles = bucket_cycles(num_instructions, gpu)
        controlled = is_controlled(trace, gpu.core is not None)
        self._pieces = LaunchPieces.begin(trace, following, gpu, controlled, cluster)
        self._limits = sm_limits(
            gpu, size // gpu.l1.line_bytes, slots, trace.warps_per_block, self._ipc_cycles, controlled=controlled,
            cluster=cluster,
        )  # fmt: skip
        want_for(self._pieces.program, self._limits, gpu)
        registers, lines = room(trace, self._pieces.program, controlled)
        self.sm = sm_state.sm_state(
            gpu, sms, size, self._limits, window, IPC_BUCKETS, num_blocks, registers,
            room_for(trace, num_blocks, self._limits.warps, cluster), lines,
        )  # fmt: skip
        if cluster > 1:
            check_room(gpu, cluster, slots)
            self.sm.cluster_order[:] = cluster_order(trace.grid, trace.cluster)
            self.sm.cluster_index[self.sm.cluster_order] = np.arange(num_blocks)
            window = min(window, self._limits.cluster_latency - REPLY_CYCLES)
        self._dispatch = dispatch_for(num_blocks, first_room(sms, gpu, controlled))
        self._dispatch.word[HELD] = self._pieces.end
        self._mem_limits = memory_state.memory_limits(gpu)
        self._replies = replies_for(2 * len(memory.reply), len(memory.reply), window)
        most = sm_state.most_replies(gpu, self._limits, sms, window)
        self._clock = np.array([0, window, _WINDOWS, most])
        self._asked = array("d")  # rows of ``_count``
        self._told = 0  # of blocks that ended, those of which ``choose`` has told
        self.num_instructions = num_instructions  # of the launch
        self._skipped = 0  # those of blocks that are not simulated
        self._held: tuple[Any, ...] = (None,) * 7  # what ``_placed`` has the place of, as long as these are the same
        self._placed: tuple[Any, ...] = ()

    def run(self) -> int:
        """Go on: why it stopped."""
        held = (
            self.sm, self._pieces.program, self._limits, self._dispatch, self.memory, self._mem_limits, self._replies,
        )  # fmt: skip
        if any(map(is_not, held, self._held)):
            self._held, self._placed = held, tuple(map(launch_kernel.run.placed, held))
        return int(launch_kernel.run(*self._placed, self._clock))

    def share(self) -> float:
        """Of the launch's warp instructions, those that were issued or skipped; for any thread."""
        return (float(self.sm.core["instructions"].sum()) + self._skipped) / max(self.num_instructions, 1)

    def asks(self, whether: bool) -> None:
        """Whether each block is asked for before it is given out."""
        self._dispatch.word[ASKS] = whether

    def bring_more(self) -> bool:
        """More blocks, if those that are held have been given out. Raises ValueError if there are none."""
        word = self._dispatch.word
        if self._limits.cluster == 1 and word[NEXT] < word[HELD]:
            return False
        if not self._pieces.go_on(self.sm):
            raise ValueError(f"launch {self.trace.launch_id}: {word[HELD]} of {word[END]} blocks were traced")
        word[HELD] = self._pieces.end
        return True

    def result(self) -> LaunchResult:
        """Of a launch that has ended."""
        found = result_of(self.trace, self._gpu, sm_state.counted(self.sm), self.memory.counts, self._ipc_cycles)
        if not self._asked:
            return found
        asked = np.array(self._asked).reshape(-1, 1 + len(ASKED_COUNTS))
        return replace(found, asked_at=asked[:, 0].astype(np.int64), asked_counts=asked[:, 1:])

    def make_room(self) -> None:
        """More requests can be in flight."""
        self.memory, self._replies, self.sm = more_room(self.memory, self._replies, self._limits, self.sm, self._clock)

    def choose(self, choice: BlockChoice, skipped: Callable[[Memory, int, int], None] | None) -> None:
        """The next block, for an SM that has room."""
        word = self._dispatch.word
        time = int(self._dispatch.room_at[word[ROOM]])
        self._asked.extend(self._count(time))
        ended = self.sm.ended[1 + self._told : 1 + int(self.sm.ended[0])]
        order = np.lexsort((self.sm.record_sm[ended], self.sm.record_end[ended]))
        count = int(np.count_nonzero(self.sm.record_end[ended] <= time))
        ended[:] = ended[order]  # those that end later are told of later
        for block in ended[:count].tolist():
            end = int(self.sm.record_end[block])
            choice.ended(block, end, self._issued(end))
        self._told += count
        first, block = choice.next()
        if first < block:
            before = self.trace.warp_instructions[self.trace.block_warps[[first, block]]]
            self._skipped += int(before[1] - before[0])
            forget_passed(self.sm, self._pieces.program, first, block)
            if skipped is not None:
                skipped(self.memory, first, block)
        word[NEXT] = block
        if block < word[END]:
            word[CHOSEN] = 1
            choice.dispatched(block, time, self._issued(time))

    def _issued(self, time: int) -> float:
        """Warp instructions up to ``time``, which all SMs have reached; of one that is ahead, as much as is due."""
        return float((self.sm.core["instructions"] * self._due(time)).sum())

    def _due(self, time: int) -> np.ndarray:
        """float64[SM]: the part of what each SM has counted that is due at ``time``."""
        return np.minimum(1.0, time / np.maximum(self.sm.core["time"], 1))

    def _count(self, time: int) -> tuple[float, ...]:
        """``time``, and ASKED_COUNTS up to then."""
        core, due, l2 = self.sm.core, self._due(time), self.memory.counts.sum(axis=0)
        return (
            time,
            float((core["l1_reads"] + core["l1_writes"]) @ due),
            float((core["l1_read_misses"] + core["l1_write_misses"]) @ due),
            float(l2[memory_state.L2_READS] + l2[memory_state.L2_WRITES]),
            float(l2[memory_state.L2_READ_MISSES] + l2[memory_state.L2_WRITE_MISSES]),
            float(l2[memory_state.DRAM_READS]),
            float(l2[memory_state.DRAM_WRITES]),
        )


def room(trace: LaunchTrace, program: LaunchProgram, controlled: bool) -> tuple[int, tuple[int, int]]:
    """Registers that SMs keep of each warp, and lines of code and of constants."""
    lines = (code_lines(trace.static), constant_lines(trace.static)[1]) if controlled else (0, 0)
    return registers_of(program, controlled), lines


def registers_of(program: LaunchProgram, controlled: bool) -> int:
    """Those that SMs keep of each warp."""
    return COLUMNS if controlled else int(program.operand.max(initial=0)) + 1


def more_room(
    memory: Memory, replies: Replies, limits: SmLimits, sm: sm_state.Sm, clock: np.ndarray
) -> tuple[Memory, Replies, sm_state.Sm]:
    """For requests in flight and replies, where there was too little; ``clock`` of gpu/launch_kernel.py."""
    most = int(clock[1]) * limits.port  # of an SM
    memory = memory_state.with_room(memory, 4 * len(sm.core) * most, 2 * most)
    new = len(memory.reply)
    replies = enlarged(replies, max(len(replies.reply), 2 * new + int(replies.rows[0])), new)
    return memory, replies, sm_state.with_replies(sm, int(clock[3]))


def prepared(memory: Memory | None, gpu: Gpu) -> Memory:
    """L2 before a launch."""
    if memory is None:
        return l2_of(gpu)
    memory_state.reset_clock(memory)
    if not gpu.l2.kept_between_launches:
        memory_state.forget_all(memory)
    return memory


def bucket_cycles(num_instructions: int, gpu: Gpu) -> int:
    """Cycles of a bucket of the IPC over time: so that a launch of one instruction per 64 cycles of an SM fits."""
    most = 64 * num_instructions // gpu.sms + 1
    cycles = _FIRST_BUCKET
    while cycles * IPC_BUCKETS < most:
        cycles *= 2
    return cycles


def result_of(trace: LaunchTrace, gpu: Gpu, sm: Counted, memory_counts: np.ndarray, ipc_cycles: int) -> LaunchResult:
    """Of SMs whose launch has ended, and counts of its memory channels."""
    end = int(sm.record_end.max(initial=0)) + END_CYCLES
    sums = sm.core.view(np.int64).reshape(len(sm.core), -1).sum(axis=0).tolist()
    core = dict(zip(sm.core.dtype.names or (), sums, strict=True))
    latency = round(gpu.launch_latency_cycles)
    stack = sm.stack.sum(axis=0).astype(np.float64)
    stack[sm_state.EMPTY] += float((end - sm.scheduler["active_until"]).clip(0).sum())
    counts = memory_counts.sum(axis=0).tolist()
    buckets = end // ipc_cycles + 1
    return LaunchResult(
        launch_id=trace.launch_id,
        cycles=end + latency,
        launch_latency_cycles=latency,
        warp_instructions=core["instructions"],
        thread_instructions=core["thread_instructions"],
        sms_with_blocks=len(sm.core),
        stack=stack,
        l1_accesses=core["l1_reads"] + core["l1_writes"],
        l1_misses=core["l1_read_misses"] + core["l1_write_misses"],
        l2_accesses=counts[memory_state.L2_READS] + counts[memory_state.L2_WRITES],
        l2_misses=counts[memory_state.L2_READ_MISSES] + counts[memory_state.L2_WRITE_MISSES],
        dram_reads=counts[memory_state.DRAM_READS],
        dram_writes=counts[memory_state.DRAM_WRITES],
        occupancy=core["warp_cycles"] / (core["active_cycles"] * gpu.warps) if core["active_cycles"] else 0.0,
        ipc_cycles=ipc_cycles,
        ipc=sm.issued[:buckets],
        block_sm=sm.record_sm,
        block_begin=sm.record_begin,
        block_end=sm.record_end,
    )


__all__ = ["CAUSES", "VERSION", "BlockChoice", "LaunchResult", "StuckError", "l2_of", "simulate", "simulate_pieces"]
