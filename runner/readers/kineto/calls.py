"""What calls of the CUDA and HIP runtimes and drivers are to a rank, by their names.

A call that gives a GPU work is known by its correlation, whatever its name; those at which a host or a stream waits are
known by name alone: ``cudaStreamSynchronize``, ``hipStreamSynchronize``, ``cuStreamSynchronize``, with the suffixes
that versions of the interfaces have (``_ptsz``, ``_v10000``).
"""

from __future__ import annotations

import re
from typing import Final

import numpy as np

from manyscale.models.workload.gpu_tables import GpuOperationKind

_G: Final = GpuOperationKind
GIVES, OTHER = -1, -2  # a call that is known by what it gives, and one that is not of the kinds below
_KINDS: Final = (
    (re.compile(r"(cuda|hip|cu)StreamSynchronize"), int(_G.synchronize_stream)),
    (re.compile(r"(cuda|hip|cu)EventSynchronize"), int(_G.synchronize_event)),
    (re.compile(r"(cuda|hip)DeviceSynchronize|cuCtxSynchronize|hipCtxSynchronize"), int(_G.synchronize_device)),
    (re.compile(r"(cuda|hip|cu)StreamWaitEvent"), int(_G.wait_event)),
    (re.compile(r"(cuda|hip|cu)EventRecord"), int(_G.record_event)),
)
# copies that return when they are done, whatever their direction (cuMemcpyHtoD_v2, hipMemcpyWithStream)
_WAITS: Final = re.compile(r"(cuda|hip)Memcpy(2D|3D|WithStream)?(_v\d+)?$|cuMemcpy(HtoD|DtoH|DtoD|)(_v\d+)?$")
_DIRECTIONS: Final = (
    (re.compile("HtoD|HostToDevice"), int(_G.copy_to_device)),
    (re.compile("DtoH|DeviceToHost"), int(_G.copy_to_host)),
    (re.compile("HtoH|HostToHost"), int(_G.copy_on_host)),
)
_NCCL: Final = re.compile(r"(void )?(nccl|msccl|rccl)\w*[Kk]ernel|ncclDev|mscclKernel")


def kind_of_call(name: str) -> int:
    """GpuOperationKind of a call that waits or records, else OTHER."""
    return next((kind for pattern, kind in _KINDS if pattern.match(name)), OTHER)


def waits_by_itself(name: str) -> bool:
    """Whether a call that copies returns when the copy is done."""
    return _WAITS.match(name) is not None


def kind_of_copy(name: str) -> int:
    """GpuOperationKind of a copy as Kineto names it: ``Memcpy HtoD (Pinned -> Device)``."""
    return next((kind for pattern, kind in _DIRECTIONS if pattern.search(name)), int(_G.copy_on_device))


def is_pageable(name: str) -> bool:
    return "Pageable" in name


def is_communication(name: str) -> bool:
    """Whether a kernel is one of NCCL's or RCCL's."""
    return _NCCL.match(name) is not None


def by_name(names: list[str], of: np.ndarray, function) -> np.ndarray:  # type: ignore[no-untyped-def]
    """int64[]: what a function says of each name, for an array of numbers of names."""
    used = np.unique(of)
    values = np.zeros(len(names) + 1, np.int64)
    values[used] = [int(function(names[each])) for each in used.tolist()]
    return values[of]
