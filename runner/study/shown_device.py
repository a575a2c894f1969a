"""The GPU of a target as a traced CUDA program is shown it: as many SMs, clocks and caches as the target's description
says; what an SM holds, as hardware of its compute capability has it; and what only NVIDIA's data sheets say."""

from __future__ import annotations

from typing import Final

from manyscale.models.gpu.parameters import Gpu
from manyscale.runner.errors import UserError
from manyscale.runner.shipped import shipped_targets
from manyscale.runner.study.targets import target_named
from manyscale.runner.tracers.cuda.capabilities import capability
from manyscale.runner.tracers.cuda.device import Device

_KIB: Final = 1 << 10
_GIB: Final = 1 << 30
# NVIDIA's data sheets: name as CUDA gives it, memory, clock of the memory (kHz), width of its bus (bits)
_SPECIFIED: Final = {
    "rtx3070": ("NVIDIA GeForce RTX 3070", 8 * _GIB, 7_001_000, 256),
    "a100": ("NVIDIA A100-SXM4-40GB", 40 * _GIB, 1_215_000, 5120),
    "h100": ("NVIDIA H100 80GB HBM3", 80 * _GIB, 2_619_000, 5120),
    "h100-pcie": ("NVIDIA H100 PCIe", 80 * _GIB, 1_593_000, 5120),
}
_OF_OTHERS: Final = 8 * _GIB  # memory of a GPU of the user's own, which no key of a target says
MOST_GPUS: Final = 16
_SHARED_PER_BLOCK: Final = 48 * _KIB  # unless a kernel asks for more: of every compute capability


def shown_device(target: str, gpus: int | None = None) -> Device:
    """``gpus``: how many are shown; default: as many as a node of the target has. Raises UserError for an unknown
    target, and for one without a GPU that CUDA's machine code can be run for."""
    machine, _ = target_named(target, "--as")
    gpu = Gpu.of(machine.node)
    if gpu is None:
        raise UserError(f"--as {target}: has no GPU; targets with one are {', '.join(_with_gpus())}")
    number = gpus if gpus is not None else machine.node.num_gpus or 1
    if not 1 <= number <= MOST_GPUS:
        raise UserError(f"--gpus {number}: a traced program is shown 1 to {MOST_GPUS} GPUs; name one of these numbers")
    hardware = capability(gpu.compute_capability, f"--as {target}")
    name, memory, memory_clock, bus = _SPECIFIED.get(target, (machine.name, _OF_OTHERS, 0, 0))
    return Device(
        target=target,
        name=name,
        capability=gpu.compute_capability,
        sms=gpu.sms,
        clock_khz=round(gpu.frequency_hz / 1000),
        memory_clock_khz=memory_clock,
        bus_bits=bus,
        memory_bytes=memory,
        l2_bytes=gpu.l2.size_bytes,
        warps=hardware.warps,
        threads_per_sm=hardware.threads,
        blocks_per_sm=hardware.blocks,
        registers_per_sm=hardware.registers,
        register_unit=hardware.register_unit,
        shared_per_sm=hardware.shared,
        shared_per_block=_SHARED_PER_BLOCK,
        shared_optin=hardware.shared_optin,
        shared_reserved=hardware.shared_reserved,
        shared_unit=hardware.shared_unit,
        gpus=number,
    )


def _with_gpus() -> list[str]:
    return [name for name in sorted(shipped_targets()) if name in _SPECIFIED]
