"""Thread blocks of a launch: their sizes, and TBPoint's regions of them on a GPU; what they do there together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np

from manyscale.models.gpu.occupancy import resident_blocks
from manyscale.models.gpu.parameters import Gpu
from manyscale.models.gpu.roofline.counts import RowCounts, row_counts, static_rows
from manyscale.models.gpu.roofline.operations import work_of
from manyscale.models.gpu.roofline.waits import KINDS, knows_lines, row_weights
from manyscale.models.workload.launch_trace import LaunchTrace, Space
from manyscale.runner.predict.gpu.launch_results import LaunchResult
from manyscale.sampling.tbpoint.regions import BlockProfile, Regions, block_profile, find_regions
from manyscale.sampling.tbpoint.rules import RegionRules

_GLOBAL: Final = (Space.global_, Space.local)


def profile_of(trace: LaunchTrace) -> BlockProfile:
    """Sizes of the blocks of a launch. O(instructions)."""
    is_global = np.isin(trace.static.space, _GLOBAL)[trace.instruction]
    requests = np.where(is_global, trace.accesses, 0)
    return block_profile(trace.block_warps, trace.warp_instructions, trace.active, requests)


def regions_of(trace: LaunchTrace, profile: BlockProfile, gpu: Gpu, rules: Mapping[str, Any]) -> Regions:
    """Regions of a launch on a GPU, by the keys of RegionRules."""
    threads = trace.block[0] * trace.block[1] * trace.block[2]
    occupancy = gpu.sms * resident_blocks(gpu, threads, trace.registers, trace.shared_bytes)
    return find_regions(profile, occupancy, RegionRules.model_validate(rules))


def block_columns(trace: LaunchTrace, gpu: Gpu, rules: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The columns of LaunchResult that tell of blocks, but for when they ran, of all blocks. O(instructions)."""
    return columns_of_blocks(trace, profile_of(trace), gpu, rules)


def columns_of_blocks(
    head: LaunchTrace, profile: BlockProfile, gpu: Gpu, rules: Mapping[str, Any]
) -> dict[str, np.ndarray]:
    """The same from the sizes of all blocks; of ``head`` the instructions are not read."""
    return {
        "block": np.arange(profile.num_blocks),
        "block_warp_instructions": profile.warp_instructions,
        "block_thread_instructions": profile.thread_instructions,
        "block_requests": profile.memory_requests,
        "block_region": regions_of(head, profile, gpu, rules).of_block.astype(np.int64),
    }


def work_columns(trace: LaunchTrace, gpu: Gpu) -> dict[str, np.ndarray]:
    """The columns of LaunchResult that tell what a launch does, all of it, on a GPU. O(instructions)."""
    return columns_of_work(trace, row_counts(trace), gpu)


def columns_of_work(head: LaunchTrace, counts: RowCounts, gpu: Gpu) -> dict[str, np.ndarray]:
    """The same from what all its static instructions come to; of ``head`` the instructions are not read."""
    rows = static_rows(head, gpu)
    amount, cycles = work_of(head.static.opcodes, head.static.opcode, rows, counts)
    weights = row_weights(rows, counts) if knows_lines(head) else np.zeros((0, len(KINDS)))
    return {"work": amount, "work_cycles": cycles, "row_weights": weights}


def with_blocks(result: LaunchResult, columns: Mapping[str, np.ndarray]) -> LaunchResult:
    """``result`` with rows for all blocks of its launch."""
    ran: dict[str, Any] = dict(columns)
    for name in ("block_sm", "block_start", "block_end"):
        ran[name] = np.full(len(columns["block"]), -1, np.int64)
        ran[name][result.block] = getattr(result, name)
    return replace(result, **ran)
