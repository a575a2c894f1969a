"""Several launches on one GPU, cycle by cycle: each arrives at its time, and their blocks share SMs, L1, L2 and DRAM.

All is as in gpu/detailed.py for one launch, but for who gives out blocks (kernel.py). L1 is what the largest share of
shared memory leaves of it that any of the launches has alone, since an SM that runs blocks cannot divide it anew
(NVIDIA, CUDA C++ Programming Guide, on cudaFuncSetCacheConfig: a launch with another preference may have to wait).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from manyscale.models.gpu import detailed, launch_kernel, memory_state
from manyscale.models.gpu.clusters import cluster_blocks
from manyscale.models.gpu.l2.exchange_kernel import replies_for
from manyscale.models.gpu.memory_state import Memory
from manyscale.models.gpu.occupancy import allocated, l1_bytes, resident_blocks
from manyscale.models.gpu.parameters import WARP_THREADS, Gpu
from manyscale.models.gpu.sm import state as sm_state
from manyscale.models.gpu.sm.asynchronous.state import Room, room_for
from manyscale.models.gpu.sm.control.rows import is_controlled
from manyscale.models.gpu.sm.limits import SmLimits, sm_limits
from manyscale.models.gpu.sm.state import NEVER
from manyscale.models.gpu.sm.wanted import want_for
from manyscale.models.gpu.together.kernel import run_together
from manyscale.models.gpu.together.program import joined_program
from manyscale.models.gpu.together.state import LAUNCH, sharing
from manyscale.models.gpu.windows_kernel import first_room
from manyscale.models.kernels.watching import watched
from manyscale.models.workload.launch_trace import LaunchTrace

VERSION: Final = 2  # raised when results change, other than by gpu/detailed.py
_WINDOWS: Final = 1 << 14  # between two looks at whether to go on
_SPARE: Final = (
    2  # times the warps of an SM: slots in a row are found though others lie between them (in random mixes of
)
# blocks of 1 to 32 warps at most 2 of 60,000 had to wait for others to go)


@dataclass(frozen=True)
class Arriving:
    """A launch that comes to the GPU ``at`` cycles after the begin of all, or, where ``after`` is no -1, after the end
    of that launch (a number in the list, below its own). The lower ``priority`` is, the sooner its blocks go.
    ``space``: number of its process, whose addresses are its own."""

    trace: LaunchTrace
    at: int = 0
    after: int = -1
    priority: int = 0
    space: int = 0


@dataclass(frozen=True)
class Ended:
    """One of the launches, in cycles from the begin of all. ``block_sm``, ``block_begin`` and ``block_end`` int of
    each of its blocks."""

    launch_id: int
    arrival: int
    end: int
    block_sm: np.ndarray
    block_begin: np.ndarray
    block_end: np.ndarray

    @property
    def cycles(self) -> int:
        return self.end - self.arrival


def why_not(traces: Sequence[LaunchTrace], gpu: Gpu) -> str:
    """Why launches cannot be simulated together; "" where they can."""
    if any(cluster_blocks(each, gpu) > 1 for each in traces):
        return "blocks of clusters"
    if len({is_controlled(each, gpu.core is not None) for each in traces}) > 1:
        return "some launches have control bits, and others none"
    return ""


def simulate_together(
    launches: Sequence[Arriving],
    gpu: Gpu,
    memory: Memory | None = None,
    told: Callable[[float], None] | None = None,
) -> tuple[list[Ended], detailed.LaunchResult, Memory]:
    """Each launch, what all are together (as if they were one launch), and L2 behind them. ``memory``: L2 before them
    (None: empty). Raises ValueError for what cannot be simulated together, DoesNotFitError where a block of one does
    not fit on an SM, StuckError where blocks wait for each other for ever."""
    if why := why_not([each.trace for each in launches], gpu):
        raise ValueError(f"launches cannot be simulated together: {why}")
    running = _Running(launches, gpu, detailed.prepared(memory, gpu))
    with watched(running.share, told if running.num_instructions > detailed.SMALL else None):
        while (why_it_stopped := running.run()) != launch_kernel.FINISHED:
            if why_it_stopped == launch_kernel.STUCK:
                raise detailed.StuckError(f"launches {running.names}: warps wait for ever")
            if why_it_stopped == launch_kernel.NEEDS_ROOM:
                running.make_room()
    return running.ended(), running.result(), running.memory


class _Running:
    def __init__(self, launches: Sequence[Arriving], gpu: Gpu, memory: Memory) -> None:
        traces = [each.trace for each in launches]
        self._launches, self._gpu = launches, gpu
        self.num_instructions = sum(each.num_instructions for each in traces)
        controlled = is_controlled(traces[0], gpu.core is not None)
        self._program, lines = joined_program(traces, [each.space for each in launches], gpu, controlled=controlled)
        blocks = len(self._program.block_warps) - 1
        sms, window = min(gpu.sms, blocks), memory_state.shortest_reply_cycles(gpu)
        size = min(_l1_of(trace, gpu) for trace in traces)
        self._ipc_cycles = detailed.bucket_cycles(self.num_instructions, gpu)
        self._limits = _limits_of(gpu, size, self._ipc_cycles, controlled=controlled)
        want_for(self._program, self._limits, gpu)
        self.sm = sm_state.sm_state(
            gpu, sms, size, self._limits, window, detailed.IPC_BUCKETS, blocks,
            detailed.registers_of(self._program, controlled), _room_of(traces, self._limits.warps), lines,
        )  # fmt: skip
        warps = min(gpu.warps, gpu.threads // WARP_THREADS)
        limit = np.array([gpu.blocks, warps, gpu.registers, gpu.shared_memory.size_bytes])
        need = np.array([(1, *allocated(gpu, _threads(each), each.registers, each.shared_bytes)) for each in traces])
        self._own = sharing(_rows_of(launches), need, limit, first_room(sms, gpu, controlled))
        self.memory = memory_state.with_ports(memory, sms)
        self._mem_limits = memory_state.memory_limits(gpu)
        self._replies = replies_for(2 * len(memory.reply), len(memory.reply), window)
        most = sm_state.most_replies(gpu, self._limits, sms, window)
        self._clock = np.array([0, window, _WINDOWS, most])

    @property
    def names(self) -> str:
        return ", ".join(str(each.trace.launch_id) for each in self._launches)

    def run(self) -> int:
        """Go on: why it stopped."""
        return int(
            run_together(
                self.sm, self._program, self._limits, self._own, self.memory, self._mem_limits, self._replies,
                self._clock,
            )
        )  # fmt: skip

    def share(self) -> float:
        """Of all warp instructions, those that were issued; for any thread."""
        return float(self.sm.core["instructions"].sum()) / max(self.num_instructions, 1)

    def make_room(self) -> None:
        """More requests can be in flight."""
        self.memory, self._replies, self.sm = detailed.more_room(
            self.memory, self._replies, self._limits, self.sm, self._clock
        )

    def result(self) -> detailed.LaunchResult:
        counted = sm_state.counted(self.sm)
        return detailed.result_of(self._launches[0].trace, self._gpu, counted, self.memory.counts, self._ipc_cycles)

    def ended(self) -> list[Ended]:
        found, first = [], 0
        for each, row in zip(self._launches, self._own.launch, strict=True):
            mine = slice(first, first + each.trace.num_blocks)
            first = mine.stop
            blocks = (self.sm.record_sm[mine], self.sm.record_begin[mine], self.sm.record_end[mine])
            end = int(row["end"]) + detailed.END_CYCLES
            found.append(Ended(each.trace.launch_id, int(row["arrival"]), end, *blocks))
        return found


def _threads(trace: LaunchTrace) -> int:
    x, y, z = trace.block
    return x * y * z


def _l1_of(trace: LaunchTrace, gpu: Gpu) -> int:
    """Bytes of L1 beside the shared memory that the launch has alone."""
    slots = resident_blocks(gpu, _threads(trace), trace.registers, trace.shared_bytes)
    return l1_bytes(gpu, min(slots, trace.num_blocks), trace.shared_bytes)


def _limits_of(gpu: Gpu, l1_size: int, ipc_cycles: int, *, controlled: bool) -> SmLimits:
    """Blocks have the slots that they are given."""
    found = sm_limits(gpu, l1_size // gpu.l1.line_bytes, gpu.blocks, 0, ipc_cycles, controlled=controlled)
    slots = -(-_SPARE * gpu.warps // gpu.schedulers) * gpu.schedulers
    return found._replace(warps=slots)


def _room_of(traces: Sequence[LaunchTrace], warps: int) -> Room:
    rooms = [room_for(each, each.num_blocks, warps, 1) for each in traces]
    return Room(*(max(values) for values in zip(*rooms, strict=True)))


def _rows_of(launches: Sequence[Arriving]) -> np.ndarray:
    found = np.zeros(len(launches), LAUNCH)
    blocks = np.array([each.trace.num_blocks for each in launches])
    found["end_block"] = np.cumsum(blocks)
    found["next"] = found["end_block"] - blocks
    found["left"] = blocks
    found["priority"] = [each.priority for each in launches]
    found["after"] = [each.after for each in launches]
    found["gap"] = [each.at + detailed.END_CYCLES for each in launches]
    found["arrival"] = [each.at if each.after < 0 else NEVER for each in launches]
    return found
