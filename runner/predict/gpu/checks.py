"""Whether a target can run the launches of a study: one line that says why not, or a note."""

from __future__ import annotations

import numpy as np

from manyscale.models.gpu.clusters import check_room
from manyscale.models.gpu.occupancy import DoesNotFitError, resident_blocks
from manyscale.models.gpu.parameters import Gpu
from manyscale.models.machine import Machine
from manyscale.models.workload import Workload
from manyscale.runner.errors import UserError
from manyscale.runner.study import Study


def gpu_of(machine: Machine) -> Gpu:
    """The GPU of a target's nodes. Raises UserError where they have none."""
    gpu = Gpu.of(machine.node)
    if gpu is None:
        raise UserError(
            f"{machine.name}: its nodes have no GPU, which kernel launches need; choose a target that has one, such as "
            "rtx3070, or add node.gpus and node.gpu to the machine"
        )
    return gpu


def runs_clusters(study: Study, gpu: Gpu | None) -> bool:
    """Whether blocks of a cluster run together. (GPUMech has no blocks that wait for each other.)"""
    is_detailed = (study.model.gpu or "detailed") == "detailed"
    return gpu is not None and gpu.clusters is not None and is_detailed


def check_fit(launches: Workload, rows: np.ndarray, machine: Machine, place: str, *, clusters: bool) -> None:
    """Raises UserError for the first launch of which not one block fits on an SM, or, where blocks of ``clusters`` run
    together, not one of these. O(launches)."""
    gpu, streams = gpu_of(machine), launches.gpu
    assert streams is not None
    names = ("block_x", "block_y", "block_z", "registers", "shared_bytes", "launch_id")
    x, y, z, registers, shared, ids = (launches.column("launches", name)[rows].astype(np.int64) for name in names)
    together = np.array([streams.cluster_blocks(each) if clusters else 1 for each in ids.tolist()], np.int64)
    shapes, first = np.unique(np.stack((x * y * z, registers, shared, together)), axis=1, return_index=True)
    for row in sorted(range(len(first)), key=lambda each: int(first[each])):
        threads, of_thread, of_block, cluster = shapes[:, row].tolist()
        try:
            slots = resident_blocks(gpu, threads, of_thread, of_block)
            if cluster > 1:
                check_room(gpu, cluster, slots)
        except DoesNotFitError as error:
            raise UserError(
                f"{place}: launch {ids[first[row]]} ({threads} threads a block, {of_thread} registers a thread, "
                f"{of_block} B of shared memory) does not fit on {machine.name}: {error}"
            ) from None


def newer_launches(launches: Workload, rows: np.ndarray, gpu: Gpu) -> np.ndarray:
    """``launch_id`` int32[] of launches whose code is for a later SM version than the GPU runs."""
    version = launches.column("launches", "binary_version")[rows]
    is_newer = version > gpu.compute_capability
    return np.asarray(launches.column("launches", "launch_id")[rows[is_newer]])
