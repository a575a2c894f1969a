"""Replay of ranks that give GPUs work: hosts, streams, copies, launches and messages in one simulated time.

What a host gives a stream is done later, in the stream's order, while the host goes on; it waits where the program
does. A communication of NCCL's is an operation of its stream, which begins the messages of its row when all before it
in the stream is done, and ends with them; or a meeting (models/gpu/device/state.py). An MPI call is the host's. The
network models are those of coupled/joined.py.

Laws of GPUs: models/gpu/device.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, TypeAlias

import numpy as np

from manyscale.models.gpu.device.program import Program as DeviceProgram
from manyscale.models.gpu.device.program import heap_entries
from manyscale.models.gpu.device.state import Devices
from manyscale.models.machine import Network
from manyscale.models.network.coupled.joined import MODELS, Kernels, run, split, whole
from manyscale.models.network.devices import kernel
from manyscale.models.network.flow.own_ways import OwnWays
from manyscale.models.network.program import Program
from manyscale.models.network.replay.replay import deadlock_of, refuse_unreceived, stuck_strand
from manyscale.models.network.replay.steps import ACTION, FIRST, POST_OPEN_SEND, POST_RECEIVE, POST_SEND
from manyscale.models.network.replay.strand_state import BOTH_POSTED, State
from manyscale.models.network.replay.timeline import Placement, ReplayError, Timeline

VERSION: Final = 18
ToldMeeting: TypeAlias = Callable[[int, list[int]], str]
KERNELS: Final = Kernels(kernel.run_devices_fixed, kernel.run_devices_flow, kernel.run_devices_dimemas)


@dataclass(frozen=True)
class DeviceTimeline:
    """``timeline``: when operations of the network ended; int64 per operation ``begin_ps`` and ``end_ps``, the host's
    part of it: its thread computes between the end of one and the begin of the next. ``rank_end_ps`` int64[ranks].
    ``devices`` as they were at the end: start and end of each operation of a stream, and how long each GPU was busy."""

    timeline: Timeline
    begin_ps: np.ndarray
    end_ps: np.ndarray
    rank_end_ps: np.ndarray
    devices: Devices

    @property
    def makespan_ps(self) -> int:
        return int(max(self.rank_end_ps.max(initial=0), self.devices.operation["end"].max(initial=0)))


def takes_message_times(model: str, network: Network) -> bool:
    """Whether a network model takes ``message_ps`` of replay_with_devices: one whose messages share no links."""
    return model == "latency-bandwidth" or (model == "flow" and network.topology is None)


def replay_with_devices(
    program: Program,
    devices: DeviceProgram,
    network: Network,
    placement: Placement,
    *,
    model: str = "latency-bandwidth",
    message_ps: np.ndarray | None = None,
    told: ToldMeeting | None = None,
    own: OwnWays | None = None,
) -> DeviceTimeline:
    """Timeline of a program whose ranks give GPUs work. ``devices`` is used up. ``message_ps`` int64[messages]: what
    those take that do not go over the network, -1 of others, where `takes_message_times`; ``own``: those that share
    links of their own, where not. ``told``: what a meeting is that some ranks have come to, for errors. Raises
    ReplayError for a deadlock, ValueError for a network model that cannot wait for GPUs. O(operations log operations +
    blocks of launches that overlap x SMs)."""
    if model not in MODELS:
        raise ValueError(f"the network model {model} cannot wait for GPUs; choose one of {', '.join(MODELS)}")
    if not program.graph_is_ordered:
        raise ValueError("operations that are a graph without an order cannot join GPUs")
    strands = split(program, np.arange(program.num_ranks))
    nothing = np.zeros(int(program.rank_offsets[-1]), np.int64)
    parked = partial(_with_hosts, devices.devices)
    state, end_ps, links = run(
        model, KERNELS, devices.devices, parked, program, strands, nothing, network, placement, message_ps, own
    )
    hosts = devices.devices.host
    if np.any(hosts["end"] < 0):
        raise ReplayError(_deadlock(program, devices.devices, state, told))
    if program.num_queues:
        refuse_unreceived(program, state.status & BOTH_POSTED)
    timeline = Timeline(end_ps, whole(state.sent), whole(state.arrived), links)
    last = np.zeros(program.num_ranks, np.int64)
    np.maximum.at(last, hosts["rank"], hosts["end"])
    return DeviceTimeline(timeline, devices.devices.begin, devices.devices.end, last, devices.devices)


def strands_needed(program: Program, of_rows: np.ndarray) -> tuple[Program, np.ndarray]:
    """The program with the operations of ``of_rows`` (bool[operations]) alone, where others are what streams and hosts
    do without the network; and int32[operations], the strand of each when all operations are split, -1: none.
    O(steps)."""
    of_ranks = int(program.strand_steps[program.num_ranks])
    row = np.cumsum((program.step[:of_ranks] & FIRST) != 0) - 1
    kept = np.concatenate((of_rows[row], np.ones(len(program.step) - of_ranks, np.bool_)))
    before = np.append(0, np.cumsum(kept))
    rows_before = np.append(0, np.cumsum(of_rows))
    found = replace(
        program,
        rank_offsets=rows_before[program.rank_offsets],
        step=program.step[kept],
        target=program.target[kept],
        strand_steps=before[program.strand_steps],
    )
    return found, np.where(of_rows, rows_before[1:] - 1, -1).astype(np.int32)


def rows_of_messages(program: Program, *, receives: bool = False) -> np.ndarray:
    """int64[messages]: the operation of the workload that sends each, or ``receives`` it; -1 for those of collectives
    that do not block, and of receives for those whose sender is not told."""
    end = int(program.strand_steps[program.num_ranks])
    steps, target = program.step[:end], program.target[:end]
    row = np.cumsum((steps & FIRST) != 0) - 1
    posts = np.isin(steps & ACTION, (POST_RECEIVE,) if receives else (POST_SEND, POST_OPEN_SEND))
    found = np.full(program.num_messages, -1, np.int64)
    found[target[posts]] = row[posts]
    return found


def _with_hosts(devices: Devices, state: State) -> State:
    """All hosts are parked at 0; strands begin when a host or a stream comes to them."""
    first, count = len(state.strand), len(devices.host)
    heap = np.zeros(first + heap_entries(devices), state.heap.dtype)
    heap["number"][:count] = np.arange(first, first + count)
    return state._replace(heap=heap, heap_size=np.array([count]))


def _deadlock(program: Program, devices: Devices, state: State, told: ToldMeeting | None) -> str:
    """What the ranks that do not end wait for, at most five of them."""
    waiting = np.unique(devices.host["rank"][devices.host["end"] < 0])
    open_meetings = _open_meetings(devices) if told is not None else np.zeros(0, np.int64)
    lines = [told(number, _arrived(devices, number)) for number in open_meetings[:5].tolist()] if told else []
    for rank in waiting[:5].tolist():
        rows = np.arange(program.rank_offsets[rank], program.rank_offsets[rank + 1])
        open_rows = rows[(state.finished[rows] == 0) & (state.strand["phase"][rows] != 0)]
        for row in open_rows[: max(0, 5 - len(lines))].tolist():
            lines.append(stuck_strand(program, rank, int(state.strand["place"][row])))
    number = len(open_meetings) if len(open_meetings) else len(waiting)
    return deadlock_of(len(waiting), program.num_ranks, lines, max(number, len(lines)))


def _open_meetings(devices: Devices) -> np.ndarray:
    """int64[]: those to which some members have come, and not all."""
    arrived = devices.meeting["arrived"]
    return np.flatnonzero((arrived > 0) & (arrived < devices.meeting["size"]))


def _arrived(devices: Devices, meeting: int) -> list[int]:
    """The ranks that have come to a meeting, ascending."""
    found, number = [], int(devices.meeting["first"][meeting])
    while number >= 0:
        found.append(int(devices.stream["rank"][devices.operation["stream"][number]]))
        number = int(devices.operation["following"][number])
    return sorted(found)
