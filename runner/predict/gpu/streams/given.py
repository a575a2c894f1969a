"""What the replay of a run whose ranks give GPUs work is given (models/network/devices)."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Final

import numpy as np

from manyscale.models.gpu.device.hosts import Given, distinct
from manyscale.models.gpu.device.program import BlockTimes, LaunchKind
from manyscale.models.gpu.device.state import RESOURCES
from manyscale.models.gpu.occupancy import allocated, resident_blocks
from manyscale.models.gpu.parameters import Gpu
from manyscale.models.workload import OperationKind, Workload
from manyscale.models.workload.gpu_tables import GpuFlag, GpuOperationKind
from manyscale.models.workload.quantities import PS_PER_SECOND
from manyscale.runner.predict.gpu.launch_results import LaunchResult
from manyscale.runner.predict.gpu.predictions import Predictions
from manyscale.runner.predict.gpu.resources import NAMES, resources_of
from manyscale.runner.predict.gpu.streams.copies import copies_before

_G: Final = GpuOperationKind
_K: Final = OperationKind
_MANY: Final = 1 << 20
_SHARED: Final = np.array([NAMES.index(name) for name in RESOURCES])


def given_of(workload: Workload) -> Given:
    """What ranks give their GPUs. ``launch``: rows of the table of launches; ``gpu`` and ``peer``: devices of their
    processes. A trace that tells launches and their streams alone is one rank, which gives them all at once, but waits
    for the copies before them."""
    if not workload.tables["gpu_operations"].num_rows:
        return _of_stream(workload)
    names = ("rank", "operation_id", "kind", "stream", "launch_id", "bytes", "event", "device", "peer", "priority",
             "flags", "thread")  # fmt: skip
    given = workload.column("gpu_operations", "kind") != _G.device_buffer
    # as they stand, where there are many: each column is a word less of every operation
    column = {name: _wide(workload.column("gpu_operations", name)[given]) for name in names}
    known = np.append(workload.column("launches", "launch_id"), 0)
    at = np.searchsorted(known[:-1], column["launch_id"])
    found = Given(
        rank=column["rank"],
        row=workload.rank_offsets[column["rank"]] + column["operation_id"],
        kind=column["kind"],
        stream=column["stream"],
        launch=np.where((column["launch_id"] > 0) & (known[at] == column["launch_id"]), at, -1).astype(
            column["launch_id"].dtype
        ),
        bytes=column["bytes"],
        event=column["event"],
        gpu=column["device"],
        peer=column["peer"],
        priority=column["priority"],
        flags=np.where(column["stream"] == 0, column["flags"] | GpuFlag.default_stream, column["flags"]),
        thread=column["thread"],
    )
    return _with_waits_of_groups(workload, found)


def _wide(values: np.ndarray) -> np.ndarray:
    return values if len(values) > _MANY else values.astype(np.int64)


def traced_columns(workload: Workload) -> tuple[np.ndarray, np.ndarray]:
    """Of rows of `given_of`: int32, the row of kernels (-1: none), and int64, what each took where it was traced (-1:
    unknown). The waits that end groups of NCCL's messages take none."""
    given = workload.column("gpu_operations", "kind") != _G.device_buffer
    columns = [workload.column("gpu_operations", name)[given] for name in ("kernel_id", "duration_ps")]
    own, ends = _waits_of_groups(workload, *_own_rows(workload, given))
    if not len(own):
        return columns[0], columns[1]
    rows = _own_rows(workload, given)[1]
    order = np.argsort(np.concatenate((rows, ends)), kind="stable")
    return tuple(np.append(each, np.full(len(ends), -1, each.dtype))[order] for each in columns)  # type: ignore[return-value]


def _own_rows(workload: Workload, given: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Kinds and rows of operations that are ``given`` (bool[gpu_operations])."""
    rank, operation = (workload.column("gpu_operations", name)[given] for name in ("rank", "operation_id"))
    return workload.column("gpu_operations", "kind")[given], workload.rank_offsets[rank] + operation


def _of_stream(workload: Workload) -> Given:
    """Copies are those of cuMemcpyHtoD, which Accel-Sim's tracer records: of the default stream, and the host waits."""
    count = workload.tables["launches"].num_rows
    before, size = copies_before(workload)
    order = np.argsort(np.concatenate((np.arange(count) + 0.5, before, [count])), kind="stable")
    nothing = np.zeros(len(order), np.int64)

    def column(of_launches: np.ndarray | int, of_copies: np.ndarray | int, at_end: int) -> np.ndarray:
        parts = np.broadcast_to(of_launches, count), np.broadcast_to(of_copies, len(size)), [at_end]
        return np.concatenate(parts).astype(np.int64)[order]

    stream = column(workload.column("launches", "stream"), 0, 0)
    is_default = np.where(stream == 0, int(GpuFlag.default_stream), 0)
    return Given(
        rank=nothing,
        row=nothing - 1,
        kind=column(int(_G.launch), int(_G.copy_to_device), int(_G.synchronize_device)),
        stream=stream,
        launch=column(np.arange(count), -1, -1),
        bytes=column(0, size, 0),
        event=nothing,
        gpu=nothing,
        peer=nothing - 1,
        priority=nothing,
        flags=is_default | column(0, int(GpuFlag.waits | GpuFlag.pageable), 0),
        thread=nothing,
    )


def _with_waits_of_groups(workload: Workload, given: Given) -> Given:
    """With the waits that end groups of NCCL's messages: it is their stream that waits, not the host."""
    like, after = _waits_of_groups(workload, given.kind, given.row)
    if not len(like):
        return given
    order = np.argsort(np.concatenate((given.row, after)), kind="stable")
    joined = {
        field.name: np.concatenate((getattr(given, field.name), getattr(given, field.name)[like]))
        for field in fields(given)
    }
    joined["row"][len(given) :] = after
    return Given(**{name: values[order] for name, values in joined.items()})


def _waits_of_groups(
    workload: Workload, given_kind: np.ndarray, given_row: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(indices of messages behind which a group ends, rows of the waits that end it)."""
    kind, rank = workload.column("operations", "kind"), workload.column("operations", "rank")
    mine = given_kind == _G.communication
    sends = np.isin(kind[given_row[mine]], (int(_K.isend), int(_K.irecv)))
    before = given_row[mine][sends]
    after = before + 1
    ends = after < len(kind)
    ends[ends] &= (kind[after[ends]] == _K.waitall) & (rank[after[ends]] == rank[before[ends]])
    return np.flatnonzero(mine)[sends][ends], after[ends]


def device_rows(workload: Workload, given: Given) -> np.ndarray:
    """bool[operations of the workload]: those that send what is in memory of a GPU, by MPI or NCCL."""
    found = np.zeros(workload.num_operations, np.bool_)
    found[given.row[(given.kind == _G.communication) & (given.row >= 0)]] = True
    marked = workload.column("gpu_operations", "kind") == _G.device_buffer
    rank, operation = (workload.column("gpu_operations", name)[marked] for name in ("rank", "operation_id"))
    found[workload.rank_offsets[rank] + operation] = True
    return found


@dataclass(frozen=True)
class Devices:
    """What devices ranks run something on, int64[pairs of rank and device that differ], by rank and device;
    ``has_peers``: whether some are at the other end of a copy."""

    rank: np.ndarray
    device: np.ndarray
    has_peers: bool

    @classmethod
    def of(cls, given: Given) -> Devices:
        """O(given + pairs log pairs)."""
        most = int(given.gpu.max(initial=0)) + 1
        runs = (given.kind <= _G.set) | (given.kind == _G.communication)
        key = distinct(given.rank[runs].astype(np.int64) * most + given.gpu[runs])
        return cls(key // most, key % most, bool(np.any(given.peer > 0)))

    def in_turn(self, node_of_rank: np.ndarray, num_gpus: int) -> np.ndarray | None:
        """int64[ranks]: the GPU of its node that each rank has whose device says nothing of it, by its place among the
        ranks of the node that use GPUs; None where a device is the node's GPU of its number. Ranks with one device each
        go in turn where they would share GPUs else while their node has some to spare: all use the first, as processes
        that see one GPU each, or they stand on other nodes than where they were traced."""
        if self.has_peers or len(self.rank) != len(np.unique(self.rank)):
            return None
        node, own = node_of_rank[self.rank].astype(np.int64), self.device % num_gpus
        ranks = np.bincount(node)
        used = np.bincount(np.unique(node * num_gpus + own) // num_gpus, minlength=len(ranks))
        if np.all(used >= np.minimum(ranks, num_gpus)):
            return None
        order = np.argsort(node, kind="stable")
        found = np.zeros(len(node_of_rank), np.int64)
        found[self.rank[order]] = np.arange(len(order)) - np.searchsorted(node[order], node[order], "left")
        return found % num_gpus

    def first(self, node_of_rank: np.ndarray, num_gpus: int) -> np.ndarray:
        """int64[ranks]: the GPU of its node that each has, of several the one of the lowest device; 0 of those that
        have none."""
        found = self.in_turn(node_of_rank, num_gpus)
        if found is None:
            found = np.zeros(len(node_of_rank), np.int64)
            rank, first = np.unique(self.rank, return_index=True)
            found[rank] = self.device[first] % num_gpus
        return found


def on_machine(given: Given, node_of_rank: np.ndarray, num_gpus: int) -> Given:
    """``gpu`` and ``peer`` as numbers of the machine's GPUs, as Devices has them; what threads tell each other has the
    first of its rank."""
    devices = Devices.of(given)
    turn = devices.in_turn(node_of_rank, num_gpus)
    own = (given.gpu if turn is None else turn.astype(given.gpu.dtype)[given.rank]) % given.gpu.dtype.type(num_gpus)
    of_threads = np.isin(given.kind, (int(_G.signal_thread), int(_G.await_thread)))
    if turn is None and of_threads.any():
        first_of = devices.first(node_of_rank, num_gpus).astype(own.dtype)
        own = np.where(of_threads, first_of[given.rank], own)
    num_gpus, peer = given.gpu.dtype.type(num_gpus), given.peer
    first = node_of_rank.astype(given.gpu.dtype)[given.rank] * num_gpus
    return replace(given, gpu=first + own, peer=np.where(peer >= 0, first + peer % num_gpus, -1))


def shares_gpu(given: Given) -> int:
    """Of ``given`` on the machine: how many ranks use a GPU that others do."""
    pairs = Devices.of(given)
    _, of, count = np.unique(pairs.device, return_inverse=True, return_counts=True)
    return len(np.unique(pairs.rank[count[of] > 1]))


def launch_kinds(workload: Workload, given: Given, predicted: Predictions, gpu: Gpu) -> tuple[list[LaunchKind], Given]:
    """What each launch that is given is to the GPU, and ``given`` with ``launch`` as their indices."""
    rows = np.unique(given.launch[given.launch >= 0])
    names = ("block_x", "block_y", "block_z", "registers", "shared_bytes", "blocks", "warp_instructions")
    column = {name: workload.column("launches", name)[rows].astype(np.int64) for name in names}
    threads = column["block_x"] * column["block_y"] * column["block_z"]
    place = np.searchsorted(predicted.plan.row, rows)
    ps = PS_PER_SECOND / gpu.frequency_hz
    latency_ps = round(predicted.latency_cycles * ps)
    at_peak = resources_of([predicted.result[index] for index in place.tolist()], gpu).cycles[:, _SHARED] * ps
    times: dict[int, BlockTimes | None] = {}
    kinds = []
    for number, index in enumerate(place.tolist()):
        result = predicted.result[index]
        shape = [int(column[name][number]) for name in ("registers", "shared_bytes")]
        warps, registers, shared = allocated(gpu, int(threads[number]), *shape)
        size = int(column["warp_instructions"][number])
        part = size / result.warp_instructions if result.warp_instructions else 1.0
        blocks = int(column["blocks"][number])
        if result.launch_id not in times:
            times[result.launch_id] = _block_times(result, ps)
        own = times[result.launch_id]
        busy = int(predicted.duration_ps[index]) - latency_ps
        kinds.append(
            LaunchKind(
                blocks=blocks,
                warps=warps,
                registers=registers,
                shared_bytes=shared,
                at_once=resident_blocks(gpu, int(threads[number]), *shape),
                latency_ps=latency_ps,
                busy_ps=busy,
                at_peak_ps=part * at_peak[number],
                block_times=own if own is not None and len(own.sm) == blocks else None,
                scale=busy / (result.cycles * ps) if result.cycles else 1.0,
            )
        )
    known = np.minimum(np.searchsorted(rows, given.launch), max(0, len(rows) - 1))
    return kinds, replace(given, launch=np.where(given.launch >= 0, known, -1))


def _block_times(result: LaunchResult, ps: float) -> BlockTimes | None:
    """None where not all blocks were simulated."""
    if not len(result.block) or result.block_sm.min() < 0:
        return None
    return BlockTimes(result.block_start * ps, result.block_end * ps, result.block_sm.astype(np.int32))
