"""Traces of a multiplication of matrices that no program had to run for, at any input, with instructions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from manyscale.models.workload import Workload
from manyscale.models.workload.detail_tables import (
    BLOCK_ACCESSES_SCHEMA,
    BLOCKS_SCHEMA,
    INSTRUCTIONS_SCHEMA,
    InstructionClass,
)
from manyscale.runner.readers import workload_folder
from manyscale.runner.readers.rank_tables import rank_tables
from manyscale.runner.readers.stores.detail_store import DetailWriter

# Of each block its instructions, and its accesses as (instruction, whether it stores)
BLOCKS = {
    "begin": (("move", "int_alu"), ()),
    "row": (("int_alu", "move"), ()),
    "column": (("int_alu",), ()),
    "inner": (("move", "fp_mul", "fp_add", "int_alu", "branch"), ((0, False), (1, False))),
    "store": (("move", "int_alu", "branch"), ((0, True),)),
    "end": (("call_return",), ()),
}
BEGIN, ROW, COLUMN, INNER, STORE, END = range(6)
ELEMENT_BYTES = 8
PAGE_BYTES = 4096


def accesses_of(block: int) -> tuple[tuple[int, bool], ...]:
    return tuple(BLOCKS.values())[block][1]


def executed(n: int) -> tuple[np.ndarray, np.ndarray]:
    """(block ids, addresses) of C = A B for n x n matrices, each at the begin of a page."""
    room = (-(-n * n * ELEMENT_BYTES // PAGE_BYTES) + 1) * PAGE_BYTES
    first = [0x10000000 + number * room for number in range(3)]
    of_element = np.concatenate(([COLUMN], np.full(n, INNER), [STORE]))
    of_row = np.concatenate(([ROW], np.tile(of_element, n)))
    block_ids = np.concatenate(([BEGIN], np.tile(of_row, n), [END])).astype(np.int32)
    i, j, k = np.meshgrid(*[np.arange(n)] * 3, indexing="ij")
    a, b = first[0] + ELEMENT_BYTES * (n * i + k), first[1] + ELEMENT_BYTES * (n * k + j)
    read = np.stack([a, b], axis=3).reshape(n * n, 2 * n)
    written = first[2] + ELEMENT_BYTES * np.arange(n * n)
    return block_ids, np.column_stack([read, written]).ravel().astype(np.uint64)


def num_executions(n: int) -> list[int]:
    """Of each block."""
    return [1, n, n * n, n**3, n * n, 1]


def num_instructions(n: int) -> int:
    return sum(len(code) * number for (code, _), number in zip(BLOCKS.values(), num_executions(n), strict=True))


def write_trace(folder: Path, n: int, program: str = "mm", passes: int = 1) -> Path:
    """The folder of a trace at input n, under the name of its program and input."""
    path = folder / f"{program}-{n}"
    path.mkdir()
    block_ids, addresses = executed(n)
    counts = np.array([len(accesses) for _, accesses in BLOCKS.values()], np.int32)
    writer = DetailWriter(path / "detail.stream")
    for _ in range(passes):
        writer.add(block_ids, counts[block_ids], addresses)
    writer.end_segment(0, 0, 0, -1, -1, passes * num_instructions(n))
    segments, store = writer.close()
    tables = rank_tables(1, {}) | _static(program) | {"segments": segments}
    workload_folder.write(Workload(f"{program}-{n}", 1, tables, (), "made", store), path)
    return path


def _static(program: str) -> dict[str, pa.Table]:
    blocks, instructions, accesses = [], [], []
    for block, (code, its_accesses) in enumerate(BLOCKS.values()):
        blocks.append(
            {
                "function": "kernel", "file": "mm.c", "line": 10 + block, "module": program, "offset": 16 * block,
                "is_entry": block == BEGIN, "num_instructions": len(code),
            }
        )  # fmt: skip
        for name in code:
            kind = int(InstructionClass[name])
            instructions.append(
                {"block_id": block, "instruction_class": kind, "lanes": 1, "sources": [1], "destinations": [2]}
            )
        accesses += [
            {"block_id": block, "instruction": place, "is_store": is_store, "bytes": ELEMENT_BYTES}
            for place, is_store in its_accesses
        ]
    return {
        "blocks": pa.Table.from_pylist(blocks, schema=BLOCKS_SCHEMA),
        "instructions": pa.Table.from_pylist(instructions, schema=INSTRUCTIONS_SCHEMA),
        "block_accesses": pa.Table.from_pylist(accesses, schema=BLOCK_ACCESSES_SCHEMA),
    }
