"""Calls of GPU libraries that a native trace holds between those of MPI, where stand-ins for these libraries ran: what
the stand-ins recorded through ``runner/tracers/native/gpu.c``.

Fields of their records, where they are not as those of MPI calls of their kind (``mpi_calls.py``):

- cudaLaunchKernel: ``bytes`` is the launch's number in its process, from 1. cudaMemcpy: ``bytes``, and as ``tag`` the
  direction as ``cudaMemcpyKind`` numbers it. cudaMemset: ``bytes``. cudaEventRecord, cudaStreamWaitEvent,
  cudaEventSynchronize: ``tag`` is the event's number. Of all, ``receive_bytes`` is the stream's number, and
  ``receive_tag`` what ``unpacked`` takes apart.
- NCCL's collectives and messages: as the MPI calls of their kinds; ``receive_tag`` is the stream's number. ncclGroupEnd
  completes the messages of its group, and stands behind a single message, too.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from manyscale.models.workload import OperationKind
from manyscale.models.workload.gpu_tables import GpuOperationKind

_K, _G = OperationKind, GpuOperationKind

# (name, what is replayed of it, what it is to the GPU: None for nothing, or where the direction says it)
_CALLS: Final = (
    ("cudaLaunchKernel", _K.other, _G.launch),
    ("cudaMemcpy", _K.other, None),
    ("cudaMemset", _K.other, _G.set),
    ("cudaLaunchHostFunc", _K.other, _G.host_function),
    ("cudaEventRecord", _K.other, _G.record_event),
    ("cudaStreamWaitEvent", _K.other, _G.wait_event),
    ("cudaStreamSynchronize", _K.other, _G.synchronize_stream),
    ("cudaEventSynchronize", _K.other, _G.synchronize_event),
    ("cudaDeviceSynchronize", _K.other, _G.synchronize_device),
    ("ncclAllReduce", _K.allreduce, _G.communication),
    ("ncclBroadcast", _K.bcast, _G.communication),
    ("ncclReduce", _K.reduce, _G.communication),
    ("ncclAllGather", _K.allgather, _G.communication),
    ("ncclReduceScatter", _K.reduce_scatter, _G.communication),
    ("ncclSend", _K.isend, _G.communication),
    ("ncclRecv", _K.irecv, _G.communication),
    ("ncclGroupEnd", _K.waitall, None),
    ("ncclCommInitRank", _K.barrier, None),
    ("ncclInProcess", _K.other, _G.communication),
)
COPY: Final = "cudaMemcpy"
COMPLETING: Final = "ncclGroupEnd"
GPU_NAMES: Final = tuple(name for name, *_ in _CALLS)
KINDS: Final = {name: kind for name, kind, _ in _CALLS}
OF_GPU: Final = {name: kind for name, _, kind in _CALLS if kind is not None}
# cudaMemcpyHostToHost, HostToDevice, DeviceToHost, DeviceToDevice
OF_DIRECTION: Final = (_G.copy_on_host, _G.copy_to_device, _G.copy_to_host, _G.copy_on_device)


def unpacked(packed: np.ndarray) -> dict[str, np.ndarray]:
    """int64 ``flags`` (GpuFlag), ``priority`` of the stream, ``device``, and ``peer`` of a copy between two (-1: none),
    as runtime/calls.c packs them."""
    packed = packed.astype(np.int64)
    return {
        "flags": packed & 31,
        "priority": -(packed >> 5 & 7),
        "device": packed >> 8 & 255,
        "peer": (packed >> 16 & 255) - 1,
    }
