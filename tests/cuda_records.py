"""A folder as the tracer of CUDA programs leaves it, with one kernel of four instructions, launched twice."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from manyscale.models.workload.launch_trace import MAX_OPERANDS, NO_REGISTER, Access, Space, UnitClass

EVENTS = """\
copy 1 35184372088832 256
launch 1 0 2 1 1 64 1 1 0 0 14 whole recorded
launch 2 0 1 1 1 64 1 1 128 3 7 whole recorded
note cuda-not-supported 2 cudaCreateTextureObject
end 2
"""
OPCODES = ("S2R", "LDG.E", "STG.E", "EXIT")


def _head(kind: int, warps: int, instructions: int, accesses: int, *counts: int) -> bytes:
    """``counts``: the block's number; warp instructions, thread instructions and requests that it executed."""
    return np.array([kind, warps, instructions, accesses], "<u4").tobytes() + np.array(counts, "<u8").tobytes()


def end(warp_instructions: int) -> bytes:
    """Of a launch that ran to its end."""
    return _head(2, 0, 0, 0, 0, warp_instructions, 0, 0)


def block(base: int, number: int = 0) -> bytes:
    """Of two warps: the first executes S2R, LDG, STG, EXIT with all threads, the second S2R, LDG, EXIT with 16; a load
    or a store of 4 bytes a thread takes four sectors, or two."""
    columns = (
        np.array([4, 3], "<i4"),  # instructions of each warp
        np.array([8, 2], "<i4"),  # accesses
        np.array([0, 1, 2, 3, 0, 1, 3], "<i4"),
        np.array([32, 32, 32, 32, 32, 16, 32], np.uint8),
        np.array([0, 4, 4, 0, 0, 2, 0], np.uint8),
        np.array([base, base + 1, base + 2, base + 3] * 2 + [base + 4, base + 5], "<i8"),
        np.array([0] * 4 + [0xFFFFFFFF] * 4 + [0] * 2, "<u4"),
    )
    return _head(1, 2, 7, 10, number, 7, 208, 10) + b"".join(column.tobytes() for column in columns)


def write(folder: Path) -> Path:
    """The folder that it makes in ``folder``."""
    made = folder / "app"
    process = made / "process-7"
    process.mkdir(parents=True)
    registers = np.full((4, MAX_OPERANDS), NO_REGISTER, np.int16)
    destinations, sources = registers.copy(), registers.copy()
    destinations[:2, 0] = (0, 4)
    sources[1, 0] = 2
    sources[2, :2] = (2, 4)
    columns = {
        "pc": np.arange(4, dtype=np.int64) * 16,
        "opcode": np.arange(4, dtype=np.int32),
        "unit": np.array([UnitClass.int, UnitClass.load_store, UnitClass.load_store, UnitClass.exit], np.uint8),
        "space": np.array([Space.none, Space.global_, Space.global_, Space.none], np.uint8),
        "access": np.array([Access.none, Access.load, Access.store, Access.none], np.uint8),
        "immediate": np.zeros(4, np.int32),
        "bypasses_l1": np.zeros(4, np.bool_),
        "destinations": destinations,
        "sources": sources,
    }
    np.savez(made / "kernels.npz", **columns)
    described = {
        "name": "_Z3addPf", "registers": 8, "shared_bytes": 512, "architecture": 80, "opcodes": OPCODES, "rows": 4,
    }  # fmt: skip
    (made / "kernels.json").write_text(json.dumps([described]) + "\n")
    (process / "events").write_text(EVENTS)
    (process / "launch-1").write_bytes(block(1000) + block(2000, 1) + end(14))
    (process / "launch-2").write_bytes(block(3000) + end(7))
    return made
