"""Small traces in Accel-Sim's format, written by hand for tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

WarpLines = Mapping[int, Sequence[str]]  # of a block, by warp


def head(
    *,
    grid: str = "(1,1,1)",
    block: str = "(32,1,1)",
    version: int = 3,
    binary: int = 80,
    shared_base: int = 0x7F00_0200_0000,
    local_base: int = 0x7F00_0000_0000,
    more: str = "",
) -> str:
    return (
        f"-kernel name = k\n-kernel id = 1\n-grid dim = {grid}\n-block dim = {block}\n-shmem = 48\n-nregs = 17\n"
        f"-binary version = {binary}\n-cuda stream id = 0\n-shmem base_addr = {shared_base:#018x}\n"
        f"-local mem base_addr = {local_base:#018x}\n-nvbit version = 1.5.3\n-accelsim tracer version = {version}\n"
        f"{more}\n#traces format = whatever\n\n\n"
    )


def block_text(name: str, warps: WarpLines) -> str:
    """A thread block as the post-processing writes it."""
    text = f"\n#BEGIN_TB\n\nthread block = {name}\n"
    for warp, lines in warps.items():
        text += f"\nwarp = {warp}\ninsts = {len(lines)}\n" + "".join(f"{line} \n" for line in lines)
    return f"{text}\n#END_TB\n"


def write_trace(path: Path, blocks: Mapping[str, WarpLines], **of_head: object) -> Path:
    """A ``.traceg`` of thread blocks by their "x,y,z"."""
    path.write_text(head(**of_head) + "".join(block_text(*item) for item in blocks.items()))  # type: ignore[arg-type]
    return path


def one_warp(path: Path, *lines: str, **of_head: object) -> Path:
    """A trace of one warp that executes these lines."""
    return write_trace(path, {"0,0,0": {0: lines}}, **of_head)
