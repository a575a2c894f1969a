"""From what ranks give their GPUs to the arrays of ``state.py``; hosts and streams: ``hosts.py``.

A copy between host and GPU takes the latency of the host's link and its bytes at the link's bandwidth; one between two
GPUs the same of the peers' link (without one, of the host's). A copy inside a GPU's memory reads and writes each byte,
a set writes it, at the bandwidth of DRAM. What an engine does stands in ``_engines``. What takes a time of the trace
begins no sooner than Gpu.start_latency after it was given, and than Gpu.stream_gap behind what it waited for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from manyscale.models.gpu.device import state
from manyscale.models.gpu.device.hosts import NOWHERE, SIGNAL, Given, distinct, hosts_of, recorded, streams_of
from manyscale.models.gpu.device.state import NUM_OF_SM, NUM_RESOURCES, RESOURCES, Devices
from manyscale.models.gpu.parameters import WARP_THREADS, Gpu
from manyscale.models.workload.gpu_tables import GpuFlag, GpuOperationKind

MOST_AT_ONCE: Final = 128  # launches of a GPU (NVIDIA, CUDA C++ Programming Guide: compute capability 7.5 to 9.0)
# What DRAM gives of its bandwidth where more is asked for: between rows that conflict, reads that turn to writes, and
# refreshes. Measured on the cycle model's streams of reads and writes (tests/validation/gpu/RESULTS-STREAMS.md).
DRAM_EFFICIENCY: Final = 0.9

_G: Final = GpuOperationKind
_GIVES: Final = (*(int(kind) for kind in _G if kind < _G.synchronize_stream), SIGNAL)
_TAKE_TIME: Final = (*(int(kind) for kind in _G if kind <= _G.set), int(_G.communication))
ASSUMED_START_PS: Final = 8_000_000  # where a target does not say Gpu.start_latency
TO_HOST_ENGINE, TO_DEVICE_ENGINE, OUT_ENGINE, IN_ENGINE, LOCAL_ENGINE = range(5)
ENGINES: Final = ("copies to the host", "copies to the GPU", "copies to other GPUs", "copies from other GPUs",
                  "copies inside")  # fmt: skip


@dataclass(frozen=True)
class BlockTimes:
    """``begin_ps`` and ``end_ps`` float64[blocks], from the begin of their launch, and ``sm`` int32[blocks]."""

    begin_ps: np.ndarray
    end_ps: np.ndarray
    sm: np.ndarray


@dataclass(frozen=True)
class LaunchKind:
    """What a launch is to a GPU. Times in ps: ``latency_ps``, ``busy_ps`` behind it; ``warps`` and ``registers`` and
    ``shared_bytes`` of a block as they are allocated; ``at_once``: blocks that an SM holds of it alone.
    ``at_peak_ps`` float64[RESOURCES]: how long the whole GPU takes at its peak for what the launch asks of each. Where
    they are known (else None) the times of its blocks; launches that one stands for have the same, which take ``scale``
    times as long."""

    blocks: int
    warps: int
    registers: int
    shared_bytes: int
    at_once: int
    latency_ps: int
    busy_ps: int
    at_peak_ps: np.ndarray
    block_times: BlockTimes | None = None
    scale: float = 1.0


@dataclass(frozen=True)
class Meetings:
    """Collectives that streams take part in: ``of_given`` int32[given], the number of each, -1 for what is none;
    ``takes_ps`` int64[meetings], from the arrival of the last member; ``strand`` int32[meetings]: that of the network's
    which says when it ends, -1: ``takes_ps`` does."""

    of_given: np.ndarray
    takes_ps: np.ndarray
    strand: np.ndarray


@dataclass(frozen=True)
class Program:
    """``devices`` before anything is done; ``gpu_id`` int64[GPUs]: the machine's numbers of those that are used.
    ``of_given`` int64[given]: the operation of each row of Given, -1 for one at which the host waits."""

    devices: Devices
    gpu_id: np.ndarray
    of_given: np.ndarray


def build(
    given: Given,
    kinds: Sequence[LaunchKind],
    gpu: Gpu,
    rank_offsets: np.ndarray,
    compute_ps: np.ndarray,
    *,
    ranks_share: bool = False,
    in_stream: np.ndarray | None = None,
    takes_ps: np.ndarray | None = None,
    traced_ps: np.ndarray | None = None,
    meetings: Meetings | None = None,
    strand_of_row: np.ndarray | None = None,
) -> Program:
    """``rank_offsets`` int64[ranks + 1] and ``compute_ps`` int64[operations] of the workload; operations that are not
    in ``given`` are the host's own. ``ranks_share``: launches of several ranks run at the same time. ``in_stream``
    bool[given]: communications whose strands a stream begins (default: all that have a row). ``takes_ps`` int64[given]:
    what launches are known to take beside those that run with them; -1 of others. ``traced_ps`` int64[given]: what
    launches, copies and sets take by the trace, and -1 of others: a host's compute then has the time of its calls.
    ``strand_of_row`` int32[operations]: of the network's program (default: each its own). O(operations)."""
    gpu_id = distinct(given.gpu, given.peer[given.peer >= 0])
    gpu_id = gpu_id if len(gpu_id) else np.zeros(1, np.int64)
    gpu_index = np.searchsorted(gpu_id, given.gpu)
    streams, stream_of = streams_of(given, gpu_index)
    gives = np.isin(given.kind, _GIVES)
    of_given = np.where(gives, np.cumsum(gives, dtype=np.int32) - 1, NOWHERE).astype(np.int32)
    awaited = recorded(given, of_given)
    operation = _operations(given, gives, gpu_index, gpu_id, stream_of, awaited, gpu)
    communicates = gives & (given.kind == _G.communication) & (given.row >= 0)
    if in_stream is not None:
        communicates &= in_stream
    meeting = _meetings(operation, of_given, meetings)
    if meetings is not None:
        communicates &= meetings.of_given < 0
    rows = given.row[communicates]
    operation["strand"][of_given[communicates]] = rows if strand_of_row is None else strand_of_row[rows]
    for takes in (takes_ps, traced_ps):
        if takes is not None:
            known = gives & (takes >= 0)
            operation["takes"][of_given[known]] = takes[known]
    if traced_ps is not None:
        _trace(operation)
    call_ps = gpu.host_call_ps if traced_ps is None else 0
    host, item = hosts_of(given, of_given, awaited, stream_of, rank_offsets, compute_ps, call_ps, strand_of_row)
    most = _at_once(streams, operation, len(gpu_id), ranks_share=ranks_share)
    slots = most if len(kinds) else 1
    launch, need, use, begin, end, sm = _launches(kinds, gpu, keeps_blocks=slots > 1)
    record = np.zeros(len(gpu_id), state.GPU)
    record["owner"] = record["queue_first"] = record["queue_last"] = NOWHERE
    slot = np.zeros((len(gpu_id), slots), state.SLOT)
    slot["operation"] = NOWHERE
    sms = gpu.sms if slots > 1 else 1
    rate = np.ones(NUM_RESOURCES)
    rate[RESOURCES.index("dram")] = DRAM_EFFICIENCY
    edges = _most_edges(operation, streams, item)
    devices = Devices(
        host=host,
        item=item,
        operation=operation,
        stream=streams,
        launch=launch,
        need=need,
        use=use,
        block_begin=begin,
        block_end=end,
        block_sm=sm,
        gpu=record,
        slot=slot,
        group=np.zeros((len(gpu_id), slots, sms), state.GROUP),
        target=np.zeros((len(gpu_id), slots, sms, gpu.blocks if slots > 1 else 1)),
        used=np.zeros((len(gpu_id), sms, 4), np.int64),
        changed=np.zeros((len(gpu_id), sms), np.uint8),
        limit=np.array(
            [gpu.blocks, min(gpu.warps, gpu.threads // WARP_THREADS), gpu.registers, gpu.shared_memory.size_bytes]
        ),
        rate=rate,
        engine=np.zeros(len(ENGINES) * len(gpu_id), np.int64),
        engine_last=np.full(len(ENGINES) * len(gpu_id), NOWHERE, np.int32),
        meeting=meeting,
        delay=np.array([_start_latency_ps(gpu), gpu.stream_gap_ps]),
        edge=np.zeros((edges, 2), np.int32),
        work=np.zeros(len(operation) + 1, np.int32),
        mark=np.array([0, 0, 0, ranks_share, most]),
        begin=np.full(int(rank_offsets[-1]), -1, np.int64),
        end=np.full(int(rank_offsets[-1]), -1, np.int64),
    )
    return Program(devices, gpu_id, of_given)


def again(program: Program, meetings: Meetings | None) -> Program:
    """The program before anything is done, once it was used up; with collectives that take something else."""
    devices = program.devices
    devices.host["item"] = devices.host["first_item"]
    devices.host["end"] = NOWHERE
    devices.host["phase"] = devices.host["pending"] = 0
    devices.item["cause"] = NOWHERE
    operation = devices.operation
    for name in ("phase", "is_done", "pending"):
        operation[name] = 0
    for name in ("cause", "first_edge", "following", "given", "start", "end", "runs"):
        operation[name] = NOWHERE
    devices.stream["tail"], devices.stream["is_fresh"] = NOWHERE, 0
    for each in (devices.gpu, devices.slot, devices.group, devices.target, devices.used, devices.changed):
        each.fill(np.zeros((), each.dtype))
    for name in ("owner", "queue_first", "queue_last"):
        devices.gpu[name] = NOWHERE
    devices.slot["operation"] = NOWHERE
    devices.engine[:], devices.engine_last[:], devices.mark[:3] = 0, NOWHERE, 0
    devices.begin[:] = devices.end[:] = NOWHERE
    devices.meeting["arrived"], devices.meeting["first"] = 0, NOWHERE
    if meetings is not None:
        devices.meeting["takes"], devices.meeting["strand"] = meetings.takes_ps, meetings.strand
    return program


def _start_latency_ps(gpu: Gpu) -> int:
    return ASSUMED_START_PS if gpu.start_latency_ps is None else gpu.start_latency_ps


def heap_entries(devices: Devices) -> int:
    """The most that hosts, operations and GPUs have in the heap at a time: of each stream one operation is under way; a
    GPU leaves an entry for each launch that comes to it, and one for each time that a launch's blocks end together."""
    shares = int(np.count_nonzero(devices.operation["launch"] >= 0))
    return len(devices.host) + len(devices.stream) + 6 * shares + 4 * len(devices.gpu) + 16


def _most_edges(operation: np.ndarray, streams: np.ndarray, item: np.ndarray) -> int:
    """How many waits there may be: for the one before in a stream, for an event, by the rules of a default stream that
    is given something, and of hosts."""
    has_default = np.zeros(len(streams), np.bool_)
    used = np.unique(operation["stream"][operation["kind"] != SIGNAL])
    has_default[used[streams["is_default"][used] != 0]] = True
    of_default = int(np.count_nonzero(has_default[streams["default"]][operation["stream"]]))
    count = len(operation) + int(np.count_nonzero(operation["awaited"] >= 0)) + 2 * of_default + 1
    own = item["kind"] == _G.synchronize_device
    mine = streams[item["stream"][own]]
    count += int((mine["end"] - mine["first"]).sum())
    waits = np.isin(item["kind"], (int(_G.synchronize_stream), int(_G.synchronize_event), int(_G.await_thread)))
    return count + int(np.count_nonzero(waits | (item["waits"] != 0)))


def _trace(operation: np.ndarray) -> None:
    """Operations of a trace that has their times; what copies on a target without links does so on engines, too."""
    kind = operation["kind"]
    operation["is_traced"] = np.where(operation["launch"] < 0, np.isin(kind, _TAKE_TIME), 0)
    moves = (operation["engine"] < 0) & (operation["takes"] >= 0) & (kind > _G.launch) & (kind <= _G.set)
    engine = np.full(len(kind), LOCAL_ENGINE)
    engine[kind == _G.copy_to_device] = TO_DEVICE_ENGINE
    engine[kind == _G.copy_to_host] = TO_HOST_ENGINE
    operation["engine"][moves] = len(ENGINES) * operation["gpu"][moves] + engine[moves]


def _meetings(operation: np.ndarray, of_given: np.ndarray, meetings: Meetings | None) -> np.ndarray:
    """MEETING[], and the number of each in its operations."""
    if meetings is None:
        return np.zeros(0, state.MEETING)
    mine = np.flatnonzero(meetings.of_given >= 0)
    operation["meeting"][of_given[mine]] = meetings.of_given[mine]
    found = np.zeros(len(meetings.takes_ps), state.MEETING)
    found["size"] = np.bincount(meetings.of_given[mine], minlength=len(found))
    found["first"] = NOWHERE
    found["takes"], found["strand"] = meetings.takes_ps, meetings.strand
    return found


def _operations(
    given: Given,
    gives: np.ndarray,
    gpu_index: np.ndarray,
    gpu_id: np.ndarray,
    stream_of: np.ndarray,
    awaited: np.ndarray,
    gpu: Gpu,
) -> np.ndarray:
    found = np.zeros(int(gives.sum()), state.OPERATION)
    kind = given.kind[gives]
    found["kind"], found["stream"], found["gpu"] = kind, stream_of[gives], gpu_index[gives]
    found["launch"] = np.where(kind == _G.launch, given.launch[gives], NOWHERE)
    found["awaited"] = np.where(kind == _G.wait_event, awaited[gives], NOWHERE)
    for name in ("strand", "meeting", "engine", "other_engine", "first_edge", "following", "cause"):
        found[name] = NOWHERE
    for name in ("given", "start", "end", "takes", "runs"):
        found[name] = NOWHERE
    peer = given.peer[gives]
    peer = np.where(peer >= 0, np.searchsorted(gpu_id, peer), NOWHERE)
    _engines(found, given.bytes[gives], peer, given.flags[gives], gpu)
    return found


def _engines(found: np.ndarray, size: np.ndarray, peer: np.ndarray, flags: np.ndarray, gpu: Gpu) -> None:
    """Which engines an operation holds, and for how long. With one engine copies to and from the host share it."""
    kind, own = found["kind"], found["gpu"].astype(np.int64)
    is_peer = (kind == _G.copy_on_device) & (peer >= 0) & (peer != own)
    link, dram = gpu.host_link, gpu.dram.bandwidth_ps_per_byte
    if link is not None:
        took = link.copy_ps(size, flags & GpuFlag.pageable != 0)
        out = TO_HOST_ENGINE if link.engines > 1 else TO_DEVICE_ENGINE
        for of_kind, engine in ((_G.copy_to_device, TO_DEVICE_ENGINE), (_G.copy_to_host, out)):
            mine = kind == of_kind
            found["engine"][mine] = len(ENGINES) * own[mine] + engine
            found["takes"][mine] = took[mine]
    peers = gpu.peer_link or link
    if peers is not None and is_peer.any():
        has_own = gpu.peer_link is not None
        out, into = (OUT_ENGINE, IN_ENGINE) if has_own else (TO_HOST_ENGINE, TO_DEVICE_ENGINE)
        comes = (flags[is_peer] & GpuFlag.from_peer) != 0
        source, destination = np.where(comes, (peer[is_peer], own[is_peer]), (own[is_peer], peer[is_peer]))
        found["engine"][is_peer] = len(ENGINES) * source + out
        found["other_engine"][is_peer] = len(ENGINES) * destination + into
        found["takes"][is_peer] = peers.copy_ps(size[is_peer])
    for of_kind, passes in ((_G.copy_on_device, 2), (_G.set, 1)):
        mine = (kind == of_kind) & ~is_peer
        found["engine"][mine] = len(ENGINES) * own[mine] + LOCAL_ENGINE
        found["takes"][mine] = np.rint(passes * size[mine] * dram).astype(np.int64)


def _at_once(streams: np.ndarray, operation: np.ndarray, gpus: int, *, ranks_share: bool) -> int:
    """The most launches that a GPU runs at a time: one of each stream, of one rank or of all."""
    is_launch = (operation["kind"] == _G.launch) & ((operation["launch"] >= 0) | (operation["takes"] >= 0))
    of_launches = np.unique(operation["stream"][is_launch])
    if not len(of_launches):
        return 1
    rank = 0 if ranks_share else streams["rank"][of_launches].astype(np.int64)
    _, count = np.unique(rank * gpus + streams["gpu"][of_launches], return_counts=True)
    return min(int(count.max()), MOST_AT_ONCE)


def _launches(
    kinds: Sequence[LaunchKind], gpu: Gpu, *, keeps_blocks: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """LAUNCH[], what blocks need and use, and the times and SMs of those that are known."""
    found = np.zeros(len(kinds), state.LAUNCH)
    need, use = np.ones((len(kinds), 4), np.int64), np.zeros((len(kinds), NUM_RESOURCES))
    begin, end, sm = [np.zeros(0)], [np.zeros(0)], [np.zeros(0, np.int32)]
    place: dict[int, int] = {}
    first = 0
    for row, kind in enumerate(kinds):
        each, times = found[row], kind.block_times
        each["blocks"], each["latency"], each["busy"] = kind.blocks, kind.latency_ps, kind.busy_ps
        each["first_block"], each["scale"] = NOWHERE, kind.scale
        need[row] = 1, max(1, kind.warps), kind.registers, kind.shared_bytes
        each["at_once"] = max(1, min(kind.blocks, kind.at_once * gpu.sms))
        waves = -(-kind.blocks // int(each["at_once"]))
        each["block_ps"] = kind.busy_ps / max(1, waves)
        total = each["block_ps"] * kind.blocks
        if keeps_blocks and times is not None:
            if id(times) not in place:
                place[id(times)] = first
                first += len(times.sm)
                begin.append(times.begin_ps)
                end.append(times.end_ps)
                sm.append(times.sm)
            each["first_block"] = place[id(times)]
            each["tail"] = max(0, kind.busy_ps - round(kind.scale * float(times.end_ps.max())))
            total = kind.scale * float((times.end_ps - times.begin_ps).sum())
        if total > 0:
            use[row] = kind.at_peak_ps / total
            use[row, :NUM_OF_SM] *= gpu.sms
    parts = [np.concatenate(each) for each in (begin, end, sm)]
    return found, need, use, parts[0], parts[1], parts[2]
