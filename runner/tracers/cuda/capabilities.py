"""What an SM of each compute capability holds, as hardware has it: what a traced program is shown, whatever a target's
description simulates (that of ``rtx3070`` has Accel-Sim's 32 blocks and 128 registers, for 16 and 256 of hardware).

Sources: NVIDIA, "CUDA Programming Guide", 5.1 "Compute Capabilities" (technical specifications), whose figures NVIDIA's
CCCL repeats in ``cuda/__device/arch_traits.h``; "CUDA C++ Best Practices Guide", 10.1 (registers are given to a warp in
units of 256); units of shared memory: Nsight Compute's "Occupancy Calculator".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from manyscale.runner.errors import UserError

_KIB: Final = 1 << 10


@dataclass(frozen=True)
class Capability:
    """Of an SM: ``warps`` and ``blocks`` at once, ``registers`` of 32 bits, given to warps in units of
    ``register_unit``; bytes of ``shared`` memory, given to blocks in units of ``shared_unit``, of which the system
    takes ``shared_reserved`` for each block."""

    warps: int
    blocks: int
    shared: int
    shared_unit: int = 128
    shared_reserved: int = _KIB
    registers: int = 64 * _KIB
    register_unit: int = 256

    @property
    def threads(self) -> int:
        return 32 * self.warps

    @property
    def shared_optin(self) -> int:
        """Bytes that a block may ask for."""
        return self.shared - self.shared_reserved


_OF: Final = {
    75: Capability(32, 16, 64 * _KIB, shared_unit=256, shared_reserved=0),
    80: Capability(64, 32, 164 * _KIB),
    86: Capability(48, 16, 100 * _KIB),
    87: Capability(48, 16, 164 * _KIB),
    89: Capability(48, 24, 100 * _KIB),
    90: Capability(64, 32, 228 * _KIB),
    100: Capability(64, 32, 228 * _KIB),
    103: Capability(64, 32, 228 * _KIB),
    110: Capability(48, 24, 228 * _KIB),
    120: Capability(48, 24, 100 * _KIB),
    121: Capability(48, 24, 100 * _KIB),
}


def capability(number: int, place: str) -> Capability:
    """Of a compute capability (86: 8.6) that ``place`` names. Raises UserError for one that is not published."""
    if number not in _OF:
        known = ", ".join(str(each / 10) for each in _OF)
        raise UserError(f"{place}: is of compute capability {number / 10}; CUDA programs are traced for {known}")
    return _OF[number]
