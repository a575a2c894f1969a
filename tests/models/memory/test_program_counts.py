"""Counts of a traced program: by hand from a small trace with instructions, and from shipped traces."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from manyscale.models.memory.amm.block_probabilities import count_transitions
from manyscale.models.memory.amm.program_counts import ProgramCounts, program_counts
from manyscale.models.workload import SCHEMAS, Workload
from manyscale.models.workload.detail_tables import (
    BLOCK_ACCESSES_SCHEMA,
    BLOCKS_SCHEMA,
    INSTRUCTIONS_SCHEMA,
    InstructionClass,
)
from manyscale.runner.readers import lackey, omt
from manyscale.runner.readers.stores.detail_store import DetailWriter

DATA = Path(__file__).parents[2] / "data" / "detail"
ADD, MUL, DIV, MOVE = (int(InstructionClass[name]) for name in ("fp_add", "fp_mul", "fp_div", "move"))


def table(schema: pa.Schema, *rows: tuple[object, ...]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
    return pa.table([pa.array(list(c), f.type) for c, f in zip(columns, schema, strict=True)], schema=schema)


def counted(workload: Workload) -> ProgramCounts:
    return program_counts(workload, count_transitions(workload).executions.astype(float))


@pytest.fixture
def workload(tmp_path) -> Workload:
    """Blocks: 0 (load of 8 B; three additions, one of 4 lanes), 1 (store of 16 B, load of 4 B; multiplication,
    division), 2 (never executed, and unknown). Executions: 0 1 1 0."""
    writer = DetailWriter(tmp_path / "stream")
    addresses = np.array([0x100, 0x200, 0x300, 0x238, 0x300, 0x108], np.uint64)
    writer.add(np.array([0, 1, 1, 0], np.int32), np.array([1, 2, 2, 1], np.int32), addresses)
    writer.end_segment(0, 0, 0, -1, -1, 8)
    segments, detail = writer.close()
    blocks = [("f", "f.c", 0, "m", i, i == 0, n) for i, n in enumerate([4, 2, -1])]
    instructions = [(0, MOVE, 1), (0, ADD, 1), (0, ADD, 4), (0, ADD, 1), (1, MUL, 1), (1, DIV, 1)]
    tables = {
        **{
            level: pa.Table.from_batches([], SCHEMAS[level])
            for level in ("operations", "phases", "regions", "communicators")
        },
        "blocks": table(BLOCKS_SCHEMA, *blocks),
        "instructions": table(INSTRUCTIONS_SCHEMA, *((*each, [], []) for each in instructions)),
        "block_accesses": table(BLOCK_ACCESSES_SCHEMA, (0, 0, False, 8), (1, 0, True, 16), (1, 1, False, 4)),
        "segments": segments,
    }
    return Workload("made", 1, tables, detail=detail)


@pytest.mark.theory
def test_counts_by_hand(workload):
    counts = counted(workload)
    assert counts.executions.tolist() == [2, 2, 0]
    assert counts.accesses_by_site.tolist() == [2, 2, 2]
    assert (counts.num_accesses, counts.bytes_accessed) == (6, 2 * 8 + 2 * 16 + 2 * 4)
    # a vector instruction is one, apart by its lanes
    assert counts.instructions_by_class() == {"move": 2, "fp_add": 6, "fp_mul": 2, "fp_div": 2}
    rows = zip(counts.block.tolist(), counts.instruction_class.tolist(), counts.lanes.tolist(), strict=True)
    assert list(rows) == [(0, MOVE, 1), (0, ADD, 1), (0, ADD, 4), (1, MUL, 1), (1, DIV, 1)]
    assert counts.instructions().tolist() == [2, 4, 2, 2, 2]


@pytest.mark.theory
def test_counts_at_other_executions(workload):
    counts = counted(workload).with_executions(np.array([1, 10, 0]))
    assert (counts.num_accesses, counts.bytes_accessed) == (21, 8 + 200)
    assert counts.instructions_by_class() == {"move": 1, "fp_add": 3, "fp_mul": 10, "fp_div": 10}
    with pytest.raises(ValueError, match="3 blocks need as many executions"):
        counts.with_executions(np.ones(2))
    with pytest.raises(ValueError, match=r"1 of the blocks .* first is block 2, show no instructions: .*QEMU"):
        counts.with_executions(np.ones(3)).instructions_by_class()


@pytest.mark.theory
def test_matrix_multiply_accesses_what_its_loops_say():
    counts = counted(lackey.read(DATA / "matmul25_O1.lk.xz"))
    # two loads for each of n^3 products, two accesses for each element of the result, and a few of the call
    assert counts.num_accesses == 2 * 25**3 + 2 * 25**2 + 4
    assert counts.bytes_accessed == 8 * counts.num_accesses
    with pytest.raises(
        ValueError, match="9 of the blocks that were executed, the first is block 0, show no instructions"
    ):
        counts.instructions_by_class()


def test_accesses_are_those_of_the_stream():
    workload = omt.read(DATA / "cholesky-4.omt.xz")
    counts = counted(workload)
    assert counts.num_accesses == workload.column("segments", "num_accesses").sum()
    assert counts.executions.sum() == workload.column("segments", "num_blocks").sum()
