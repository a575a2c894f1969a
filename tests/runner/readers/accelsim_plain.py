"""A second reader of Accel-Sim's traces, line by line and thread by thread, that the real one is compared with.

Written from the description of the format and from the rules of GPGPU-Sim (``warp_inst_t::memory_coalescing_arch`` and
``generate_mem_accesses``), with sets and dictionaries. It knows only what the traces in ``tests/data/gpu`` hold.
"""

from __future__ import annotations

import lzma
import re
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class PlainInstruction:
    """``requests``: (sector, mask of written bytes), ascending, of global memory. ``words``: that a bank gives."""

    block: tuple[int, ...]
    warp: int
    pc: int
    active: int
    opcode: str
    destinations: tuple[int, ...]
    sources: tuple[int, ...]
    immediate: int
    addresses: tuple[int, ...]
    width: int

    @property
    def requests(self) -> list[tuple[int, int]]:
        if not self.opcode.startswith(("LDG", "STG")):
            return []
        touched: dict[int, int] = defaultdict(int)
        for address in self.addresses:
            for byte in range(address, address + self.width):
                touched[byte // 32] |= 1 << byte % 32
        return [(sector, mask if self.opcode.startswith("ST") else 0) for sector, mask in sorted(touched.items())]

    @property
    def words(self) -> int:
        if not self.opcode.startswith(("LDS", "STS")):
            return 0
        banks = defaultdict(set)
        for address in self.addresses:
            for byte in range(address, address + self.width):
                banks[byte // 4 % 32].add(byte // 4)
        return max(map(len, banks.values()), default=0)


def plain_instructions(path: Path) -> list[PlainInstruction]:
    text = lzma.decompress(path.read_bytes()).decode()
    version = int(re.search(r"tracer version = (\d+)", text)[1])  # type: ignore[index]
    found = []
    block: tuple[int, ...] = ()
    warp = -1
    for line in text[text.index("#BEGIN_TB") :].splitlines():
        if line.startswith("thread block"):
            block = tuple(map(int, line.split("=")[1].split(",")))
        elif line.startswith("warp"):
            warp = int(line.split("=")[1])
        elif line.strip() and not line.startswith(("#", "insts")):
            found.append(_instruction(block, warp, line.split(), version))
    return found


def _instruction(block: tuple[int, ...], warp: int, words: list[str], version: int) -> PlainInstruction:
    fields = iter(words)
    pc, mask = int(next(fields), 16), int(next(fields), 16)
    destinations = [next(fields) for _ in range(int(next(fields)))]
    opcode = next(fields)
    sources = [next(fields) for _ in range(int(next(fields)))]
    active = bin(mask).count("1")
    addresses: list[int] = []
    if int(next(fields)):
        mode = int(next(fields))
        if mode == 0:
            addresses = [int(next(fields), 16) for _ in range(active)]
        else:
            addresses = [int(next(fields), 16)]
            if mode == 1:
                stride = int(next(fields))
                addresses += [addresses[0] + lane * stride for lane in range(1, active)]
            for _ in range(active - 1 if mode == 2 else 0):
                addresses.append(addresses[-1] + int(next(fields)))
    immediate = int(next(fields)) if version == 5 else 0
    assert not list(fields)
    width = 4
    for part in opcode.split("."):
        if size := re.fullmatch(r"U?(8|16|32|64|128)", part):
            width = int(size[1]) // 8
    registers = [tuple(int(name[1:]) for name in side if name != "R255") for side in (destinations, sources)]
    return PlainInstruction(
        block, warp, pc, active, opcode, registers[0], registers[1], immediate, tuple(addresses[:active]), width
    )
