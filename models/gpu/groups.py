"""A launch whose SMs are simulated in groups side by side: see groups_kernel.py. L2 is as strict order has it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from manyscale.models.gpu import detailed, groups_kernel, memory_state
from manyscale.models.gpu.detailed import LaunchResult, StuckError
from manyscale.models.gpu.l2.exchange_kernel import enlarged, replies_for
from manyscale.models.gpu.launch_program import launch_program
from manyscale.models.gpu.memory_state import REPLY_TO_SM, Memory
from manyscale.models.gpu.occupancy import l1_bytes, resident_blocks
from manyscale.models.gpu.parameters import Gpu
from manyscale.models.gpu.sm import state as sm_state
from manyscale.models.gpu.sm.asynchronous.state import room_for
from manyscale.models.gpu.sm.control.rows import is_controlled
from manyscale.models.gpu.sm.limits import sm_limits
from manyscale.models.gpu.sm.state import REQUEST, Counted
from manyscale.models.gpu.sm.wanted import want_for
from manyscale.models.gpu.windows_kernel import first_room
from manyscale.models.kernels.shared_words import ABORT, WORDS
from manyscale.models.kernels.team import ALONE, Team, Wanted
from manyscale.models.kernels.watching import watched
from manyscale.models.workload.launch_trace import LaunchTrace

VERSION: Final = 5  # raised when results change
_PER_SLICE: Final = ("slice", "tag", "line", "last_use", "miss")
_PER_CHANNEL: Final = ("channel", "waiting", "bank", "bank_from", "first", "counts")


def simulate_in_groups(
    trace: LaunchTrace,
    gpu: Gpu,
    memory: Memory | None = None,
    team: Team = ALONE,
    told: Callable[[float], None] | None = None,
) -> tuple[LaunchResult, Memory]:
    """As ``detailed.simulate``, by the members of ``team``: each has a ``memory`` of its own, simulates a group of SMs
    and of channels (as long as there are enough of both), and returns the result of all. Any number of them gives the
    same; blocks are given out a little otherwise than in strict order. ``told`` as there, of this member's part."""
    running = _Running(trace, gpu, detailed.prepared(memory, gpu), team)
    with watched(running.share, told if trace.num_instructions > detailed.SMALL else None):
        return _simulated(running, trace)


def _simulated(running: _Running, trace: LaunchTrace) -> tuple[LaunchResult, Memory]:
    while True:
        whys = running.run()
        if whys == {groups_kernel.FINISHED}:
            return running.result()
        if whys == {groups_kernel.STUCK}:
            raise StuckError(f"launch {trace.launch_id}: warps wait for ever (a barrier that one does not reach?)")
        if whys != {groups_kernel.NEEDS_ROOM}:
            raise RuntimeError(f"launch {trace.launch_id}: shards stopped for different reasons: {sorted(whys)}")
        running.make_room()


class _Running:
    """A launch that is being simulated, as one member of the team sees it."""

    def __init__(self, trace: LaunchTrace, gpu: Gpu, memory: Memory, team: Team) -> None:
        self._trace, self._gpu, self._memory, self._team = trace, gpu, memory, team
        threads = trace.block[0] * trace.block[1] * trace.block[2]
        slots = min(resident_blocks(gpu, threads, trace.registers, trace.shared_bytes), trace.num_blocks)
        size = l1_bytes(gpu, slots, trace.shared_bytes)
        sms = min(gpu.sms, trace.num_blocks)
        window = memory_state.shortest_reply_cycles(gpu)
        self._count = count = min(team.count, sms, gpu.dram.channels)
        self._ipc_cycles = detailed.bucket_cycles(trace.num_instructions, gpu)
        self._sm_bounds, self._channel_bounds = _bounds(sms, count), _bounds(gpu.dram.channels, count)
        self._nodes = 16 * sms * window * gpu.crossbar.sectors
        self._window = window
        most = -(-sms // count) * (window + 1) * gpu.crossbar.sectors  # requests of a shard in a window
        controlled = is_controlled(trace, gpu.core is not None)
        seen = groups_kernel.shared_for(first_room(sms, gpu, controlled), count, slots)
        arrays = team.arrays(
            "launch",
            {
                "barrier": ((WORDS,), np.int64),
                "sm": (seen[0].shape, np.int64),
                "shard": (seen[1].shape, np.int64),
                "whys": ((count,), np.int64),
                "request": ((count, most), REQUEST),
                "sender": ((count, most), np.int32),
                "requests": ((count, 1), np.int64),
            },
        )
        self._whys = arrays["whys"]
        self._shown = arrays
        if team.me == 0:
            arrays["sm"][:], arrays["shard"][:] = seen
        self._is_idle = team.me >= count
        if not self._is_idle:
            first, end = self._own(self._sm_bounds)
            first_channel, end_channel = self._own(self._channel_bounds)
            program = team.once(lambda: launch_program(trace, gpu, asynchronous=True, controlled=controlled))
            registers, lines = detailed.room(trace, program, controlled)
            self._program = program
            self._limits = sm_limits(
                gpu, size // gpu.l1.line_bytes, slots, trace.warps_per_block, self._ipc_cycles, first, controlled
            )
            want_for(program, self._limits, gpu)
            self._sm = sm_state.sm_state(
                gpu,
                end - first,
                size,
                self._limits,
                window,
                detailed.IPC_BUCKETS,
                trace.num_blocks,
                registers,
                room_for(trace, trace.num_blocks, self._limits.warps, 1),
                lines,
            )
            own = memory_state.memory_state(gpu, end_channel - first_channel, self._nodes)
            self._own_memory = memory_state.with_ports(own, sms)
            each = gpu.l2.slices // gpu.dram.channels
            for name in _PER_SLICE:
                getattr(self._own_memory, name)[:] = getattr(memory, name)[each * first_channel : each * end_channel]
            for name in _PER_CHANNEL:
                getattr(self._own_memory, name)[:] = getattr(memory, name)[first_channel:end_channel]
            self._waiting = replies_for((count + 2) * self._nodes, self._nodes, window)
            self._board = groups_kernel.board_for(trace.num_blocks, sms, slots, window, _shortest(trace))
            self._board.word[groups_kernel.ME] = team.me
            replies = sm_state.most_replies(gpu, self._limits, sms, window)
            self._board.word[groups_kernel.REPLIES] = replies
            self._sm = sm_state.with_replies(self._sm, replies)  # (room is made a window later than it is asked for)
            groups_kernel.deal(self._board, seen[0], trace.num_blocks)
        else:
            team.once(lambda: None)
        self._share_replies()

    def share(self) -> float:
        """Of the warp instructions that are this member's if all SMs have equally many; for any thread."""
        if self._is_idle:
            return 0.0
        core = self._sm.core
        whole = self._trace.num_instructions * len(core) / self._sm_bounds[-1]
        return float(core["instructions"].sum()) / max(whole, 1.0)

    def _own(self, bounds: list[int]) -> tuple[int, int]:
        return bounds[self._team.me], bounds[self._team.me + 1]

    def _share_replies(self) -> None:
        """Room for the replies of an exchange, seen by all."""
        room: Wanted = {"reply": ((self._count, self._nodes), REPLY_TO_SM), "replies": ((self._count, 1), np.int64)}
        self._shown = self._shown | self._team.arrays("replies", room)
        if not self._is_idle:
            own = {name: self._shown[name][self._team.me] for name in room}
            self._own_memory = self._own_memory._replace(**own)

    def run(self) -> set[int]:
        """Go on: why the shards stopped. Whatever ends one of them early ends all."""
        if not self._is_idle:
            try:
                self._whys[self._team.me] = self._run_shard()
            except BaseException:
                self._shown["barrier"][ABORT] = 1
                raise
        self._team.wait()
        return set(self._whys.tolist())

    def _run_shard(self) -> int:
        first_channel = self._own(self._channel_bounds)[0]
        return int(
            groups_kernel.run_shard(
                self._sm, self._program, self._limits, self._own_memory,
                memory_state.memory_limits(self._gpu, first_channel), self._waiting,
                groups_kernel.Shared(*(self._shown[name] for name in groups_kernel.Shared._fields)), self._board,
            )
        )  # fmt: skip

    def make_room(self) -> None:
        """More requests and replies can be in flight."""
        self._nodes *= 3
        if not self._is_idle:
            in_queues = 4 * self._window * self._gpu.crossbar.sectors
            self._own_memory = memory_state.enlarged(self._own_memory, self._nodes, in_queues)
            size = (self._count + 2) * self._nodes + int(self._waiting.rows[0])
            self._waiting = enlarged(self._waiting, size, self._nodes)
            self._sm = sm_state.with_replies(self._sm, 2 * int(self._board.word[groups_kernel.REPLIES]))
        self._share_replies()

    def result(self) -> tuple[LaunchResult, Memory]:
        """Of a launch that has ended: sums and rows of all shards; and L2 for the next launch."""
        own: dict[str, np.ndarray] = {}
        if not self._is_idle:
            own = sm_state.counted(self._sm)._asdict()
            own |= {f"memory.{name}": getattr(self._own_memory, name) for name in (*_PER_SLICE, *_PER_CHANNEL)}
        parts = self._team.gather(own)[: self._count]

        def joined(name: str) -> np.ndarray:
            return np.concatenate([part[name] for part in parts])

        has_block = [part["record_sm"] >= 0 for part in parts]

        def recorded(name: str) -> np.ndarray:
            return np.select(has_block, [part[name] for part in parts], default=parts[0][name])

        sms = Counted(
            core=joined("core"),
            scheduler=joined("scheduler"),
            stack=joined("stack"),
            issued=np.sum([part["issued"] for part in parts], axis=0),
            record_sm=recorded("record_sm"),
            record_begin=recorded("record_begin"),
            record_end=recorded("record_end"),
        )
        for name in (*_PER_SLICE, *_PER_CHANNEL):
            getattr(self._memory, name)[:] = joined(f"memory.{name}")
        return detailed.result_of(self._trace, self._gpu, sms, self._memory.counts, self._ipc_cycles), self._memory


def _shortest(trace: LaunchTrace) -> int:
    """Instructions of the longest warp of the block in which it is shortest: it takes as many cycles at least."""
    lengths = np.diff(trace.warp_instructions)
    first = trace.block_warps[:-1]
    has_some = np.diff(trace.block_warps) > 0
    return int(np.maximum.reduceat(lengths, first[has_some]).min()) if has_some.all() else 0


def _bounds(count: int, parts: int) -> list[int]:
    return [count * part // parts for part in range(parts + 1)]
