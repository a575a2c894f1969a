"""The head of an Accel-Sim trace: lines ``-key = value`` before the first line of the body."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from manyscale.models.workload.notes import Note, changes, informs
from manyscale.runner.errors import UserError

MAX_HEADER_BYTES: Final = 1 << 16
_TRIPLE: Final = re.compile(r"\((\d+),\s*(\d+),\s*(\d+)\)")
_MAX_THREADS: Final = 1024  # of a block
_MAX_WARPS: Final = 1 << 37  # of a launch: 2^32 blocks of 32 warps; addresses of local memory fit into 63 bits
_NEWEST_TRACER: Final = 6


@dataclass(frozen=True)
class Header:
    """What the head says. ``other``: lines of keys that are not known. ``is_raw``: instructions stand in the order of
    their arrival, each with its thread block and warp. ``lines``: of the head."""

    kernel_name: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int = 0
    registers: int = 0
    binary_version: int = 0
    stream: int = 0
    shared_base: int = 0
    local_base: int = 0
    tracer_version: int = 0
    has_source_lines: bool = False
    is_raw: bool = False
    other: tuple[str, ...] = ()
    notes: tuple[Note, ...] = field(default=())

    @property
    def num_blocks(self) -> int:
        x, y, z = self.grid
        return x * y * z

    @property
    def warps_per_block(self) -> int:
        x, y, z = self.block
        return -(-x * y * z // 32)


def split_header(path: Path, head: bytes) -> tuple[Header, int]:
    """(header, bytes of it) from the first bytes of a trace. Raises UserError for what is no such trace."""
    values: dict[str, tuple[str, int]] = {}
    other: list[str] = []
    offset, number = 0, 0
    while (end := head.find(b"\n", offset)) >= 0:
        line = head[offset:end].decode(errors="replace").strip()
        if line and not line.startswith("-"):
            break
        number += 1
        offset = end + 1
        if not line:
            continue
        key, equals, value = line[1:].partition("=")
        if not equals:
            raise UserError(f"{path}:{number}: {line[:60]!r} is no line '-key = value'; trace the kernel again")
        if key.strip() in _KEYS:
            values[key.strip()] = (value.strip(), number)
        else:
            other.append(key.strip())
    return _header(path, values, tuple(other), _is_raw(head[offset:])), offset


_KEYS: Final = {
    "kernel name", "kernel id", "grid dim", "block dim", "shmem", "nregs", "binary version", "cuda stream id",
    "shmem base_addr", "local mem base_addr", "nvbit version", "accelsim tracer version", "enable lineinfo",
}  # fmt: skip


def _is_raw(body: bytes) -> bool:
    """Whether the body begins with an instruction, not with a thread block."""
    for line in body.split(b"\n"):
        word = line.strip()
        if word.startswith(b"#BEGIN_TB"):
            return False
        if word and not word.startswith(b"#"):
            return b"=" not in word
    return False


def _header(path: Path, values: dict[str, tuple[str, int]], other: tuple[str, ...], is_raw: bool) -> Header:
    notes: list[Note] = []

    def number(key: str, base: int = 10, bits: int = 31) -> int:
        if key not in values:
            return 0
        text, line = values[key]
        try:
            value = int(text, base)
        except ValueError:
            value = -1
        if not 0 <= value < 1 << bits:
            raise UserError(f"{path}:{line}: {key} = {text[:40]!r} is no number that fits; trace the kernel again")
        return value

    def triple(key: str) -> tuple[int, int, int]:
        if key not in values:
            raise UserError(
                f"{path}:1: has no line '-{key} = (x,y,z)'; it is no trace of Accel-Sim, or its head is cut"
            )
        text, line = values[key]
        match = _TRIPLE.fullmatch(text)
        if match is None or not all(0 < int(size) < 1 << 31 for size in match.groups()):
            raise UserError(f"{path}:{line}: {key} = {text!r} is no (x,y,z) of numbers from 1; trace the kernel again")
        return int(match[1]), int(match[2]), int(match[3])

    header = Header(
        kernel_name=values.get("kernel name", ("", 0))[0],
        grid=triple("grid dim"),
        block=triple("block dim"),
        shared_bytes=number("shmem"),
        registers=number("nregs"),
        binary_version=number("binary version"),
        stream=number("cuda stream id", 0, 63),
        shared_base=number("shmem base_addr", 16, 62),
        local_base=number("local mem base_addr", 16, 62),
        tracer_version=number("accelsim tracer version"),
        has_source_lines=bool(number("enable lineinfo")),
        is_raw=is_raw,
        other=other,
    )
    threads = header.block[0] * header.block[1] * header.block[2]
    if threads > _MAX_THREADS:
        line = values["block dim"][1]
        raise UserError(
            f"{path}:{line}: a block of {threads} threads; no GPU has more than {_MAX_THREADS}: mend the line"
        )
    if header.num_blocks * header.warps_per_block > _MAX_WARPS:
        line = values["grid dim"][1]
        raise UserError(
            f"{path}:{line}: a grid of {header.num_blocks} blocks is larger than GPUs launch; mend the line"
        )
    if "binary version" not in values:
        text = "the head does not name the binary version: opcodes classed without regard to a generation"
        notes.append(changes("binary-version-unknown", text))
    if header.tracer_version > _NEWEST_TRACER:
        text = f"tracer version {header.tracer_version} is newer than {_NEWEST_TRACER}: read as that"
        notes.append(informs("newer-tracer", text))
    return Header(**{**header.__dict__, "notes": tuple(notes)})
