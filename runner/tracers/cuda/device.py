"""The GPU that a traced program is shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

DEVICE: Final = "device"  # the file that the runtime reads


@dataclass(frozen=True)
class Device:
    """``target``: its name here; ``name``: NVIDIA's. Of an SM: ``warps``, ``threads_per_sm`` and so on; of a block:
    ``shared_per_block`` bytes of shared memory without and ``shared_optin`` with its asking for more. ``gpus``:
    how many are shown, all alike."""

    target: str
    name: str
    capability: int  # 86: 8.6
    sms: int
    clock_khz: int
    memory_clock_khz: int
    bus_bits: int
    memory_bytes: int
    l2_bytes: int
    warps: int
    threads_per_sm: int
    blocks_per_sm: int
    registers_per_sm: int
    register_unit: int
    shared_per_sm: int
    shared_per_block: int
    shared_optin: int
    shared_reserved: int
    shared_unit: int
    gpus: int = 1

    def write(
        self,
        folder: Path,
        *,
        checks_memory: bool = False,
        keeps_lanes: bool = False,
        regions: Sequence[str] = (),
        workers: int = 1,
        chunk: int = 0,
    ) -> None:
        """Write it as the runtime reads it: a line for each key. ``checks_memory``: a launch stops at an access to what
        is not allocated, even where hardware would not notice; ``keeps_lanes``: which lanes of a warp execute, and the
        address of each, are recorded, too; ``regions``: their names, outside of which launches are not recorded;
        ``workers``: threads that run the blocks of a launch, which change nothing of what is recorded,
        and ``chunk``: instructions of each before they are compared, 0 for some million."""
        values = {key: value for key, value in asdict(self).items() if key not in ("target", "capability")}
        values |= {"major": self.capability // 10, "minor": self.capability % 10}
        values |= {
            "checks_memory": int(checks_memory),
            "keeps_lanes": int(keeps_lanes),
            "workers": workers,
            "chunk": chunk,
        }
        lines = [f"{key} {value}\n" for key, value in values.items()]
        lines += [f"regions {','.join(regions)}\n"] if regions else []
        (folder / DEVICE).write_text("".join(lines))
