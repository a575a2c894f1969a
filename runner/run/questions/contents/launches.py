"""Of a workload: kernel launches by kernel, and what ranks gave their GPUs."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from manyscale.models.workload import Workload
from manyscale.models.workload.columns import one_chunk, to_numpy
from manyscale.models.workload.gpu_tables import GpuOperationKind
from manyscale.runner.run.questions.contents.section import Section, Value, columns, shares


def launches(workload: Workload) -> Section | None:
    """Launches, their blocks and instructions, by kernel."""
    table = workload.tables["launches"]
    if not table.num_rows:
        return None
    names = one_chunk(table.column("kernel_name").dictionary_encode())
    kernel, kernels = to_numpy(names.indices).astype(np.int64), names.dictionary.to_pylist()
    sums = {}
    for name in ("blocks", "warps", "warp_instructions", "thread_instructions", "memory_requests"):
        sums[name] = np.zeros(len(kernels), np.int64)
        np.add.at(sums[name], kernel, workload.column("launches", name))
    facts: dict[str, Value] = {
        "launches": table.num_rows,
        "kernels": len(kernels),
        "streams": len(np.unique(workload.column("launches", "stream"))),
        "thread_blocks": int(sums["blocks"].sum()),
        "warp_instructions": int(sums["warp_instructions"].sum()),
        "launches_with_instructions": 0 if workload.gpu is None else len(workload.gpu.launch_ids),
    }
    if workload.tables["copies"].num_rows:
        facts["copies_to_gpu"] = workload.tables["copies"].num_rows
        facts["copied_bytes"] = int(workload.column("copies", "bytes").sum())
    return Section(
        "launches", facts, {"kernels": _kernels(table, kernel, kernels, sums), "grid_sizes": _grids(workload)},
        "Threads: of an executed instruction, the mean of a warp's that take part in it. Instructions are executed "
        "instructions of warps.",
        {"grid_sizes": "Launches by the number of their thread blocks, to the power of two below."},
    )  # fmt: skip


def _kernels(table: pa.Table, kernel: np.ndarray, kernels: list[str], sums: dict[str, np.ndarray]) -> pa.Table:
    count = np.bincount(kernel, minlength=len(kernels))
    order = np.lexsort((np.arange(len(kernels)), -count, -sums["warp_instructions"]))
    work = sums["warp_instructions"]

    def largest(name: str) -> np.ndarray:
        found = np.zeros(len(kernels), np.int64)
        np.maximum.at(found, kernel, to_numpy(table.column(name)).astype(np.int64))
        return found[order]

    return columns(
        kernel=[kernels[each] for each in order],
        launches=count[order],
        mean_blocks=(sums["blocks"] / count)[order],
        warps_of_a_block=(sums["warps"] / np.maximum(sums["blocks"], 1))[order],
        warp_instructions=work[order],
        instructions_share=shares(work)[order],
        threads=(sums["thread_instructions"] / np.maximum(work, 1))[order],
        memory_requests=sums["memory_requests"][order],
        most_registers=largest("registers"),
        most_shared_bytes=largest("shared_bytes"),
    )


def _grids(workload: Workload) -> pa.Table:
    blocks = np.maximum(workload.column("launches", "blocks"), 1)
    power = np.frexp(blocks.astype(np.float64))[1] - 1
    count = np.bincount(power)
    there = np.flatnonzero(count)
    return columns(blocks_from=np.int64(1) << there, launches=count[there], launches_share=shares(count[there]))


def host_calls(workload: Workload) -> Section | None:
    """What ranks gave their GPUs, by kind."""
    table = workload.tables["gpu_operations"]
    if not table.num_rows:
        return None
    kind, size, rank, stream, device = (
        workload.column("gpu_operations", name) for name in ("kind", "bytes", "rank", "stream", "device")
    )
    kinds = np.unique(kind)
    moved = [int(size[kind == each].sum()) for each in kinds]
    rows = columns(
        call=[GpuOperationKind(each).name for each in kinds],
        calls=np.array([np.count_nonzero(kind == each) for each in kinds]),
        moved_bytes=np.array(moved),
    )
    places = np.unique(np.stack((rank.astype(np.int64), device.astype(np.int64), stream)), axis=1)
    facts: dict[str, Value] = {
        "calls": table.num_rows,
        "ranks": len(np.unique(rank)),
        "devices_of_a_process": len(np.unique(device)),
        "streams": places.shape[1],
    }
    return Section("gpu calls", facts, {"gpu_calls": rows})
