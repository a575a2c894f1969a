"""How many thread blocks an SM holds at once (NVIDIA's occupancy rules: warps, blocks, registers, shared memory)."""

from __future__ import annotations

from manyscale.models.gpu.parameters import WARP_THREADS, Gpu


class DoesNotFitError(ValueError):
    """A block needs more than an SM has: the message says of what."""


def resident_blocks(gpu: Gpu, threads_per_block: int, registers: int, shared_bytes: int) -> int:
    """Blocks of ``threads_per_block`` threads of ``registers`` registers each that are resident on an SM together.

    Raises DoesNotFitError where not even one is. ``shared_bytes``: of a block.
    """
    warps, of_block, shared = allocated(gpu, threads_per_block, registers, shared_bytes)
    limits = {
        "threads": gpu.threads // (warps * WARP_THREADS),
        "warps": gpu.warps // warps,
        "blocks": gpu.blocks,
        "registers": gpu.registers // of_block if of_block else gpu.blocks,
        "shared memory": gpu.shared_memory.size_bytes // shared if shared else gpu.blocks,
    }
    least = min(limits, key=lambda name: limits[name])
    if not limits[least]:
        have = {"threads": gpu.threads, "warps": gpu.warps, "registers": gpu.registers}
        size = have.get(least, gpu.shared_memory.size_bytes)
        raise DoesNotFitError(f"a block needs more {least} than an SM has ({size:,})")
    return limits[least]


def allocated(gpu: Gpu, threads_per_block: int, registers: int, shared_bytes: int) -> tuple[int, int, int]:
    """Warps, registers and bytes of shared memory that a block takes of an SM."""
    warps = -(-threads_per_block // WARP_THREADS)
    shared = _up(shared_bytes + gpu.shared_memory.reserved_bytes, gpu.shared_memory.unit_bytes) if shared_bytes else 0
    return warps, warps * _up(registers * WARP_THREADS, gpu.register_unit), shared


def l1_bytes(gpu: Gpu, blocks: int, shared_bytes: int) -> int:
    """Size of L1 beside the shared memory of ``blocks`` resident blocks."""
    splits = gpu.shared_memory.splits_bytes
    if not splits:
        return gpu.l1.size_bytes
    needed = blocks * (shared_bytes + gpu.shared_memory.reserved_bytes if shared_bytes else 0)
    enough = [size for size in sorted(splits) if size >= needed]
    taken = enough[0] if enough else max(splits)
    sets = gpu.l1.num_sets * gpu.l1.line_bytes
    return max(sets, (gpu.l1.size_bytes - taken) // sets * sets)


def _up(amount: int, unit: int) -> int:
    return -(-amount // unit) * unit
