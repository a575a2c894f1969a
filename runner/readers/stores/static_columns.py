"""Static instructions of a stored launch as a table: what models read; how often each was executed; and, where the
trace tells them, their details (text, control bits, operands, lines of source). Older folders have the first alone.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from manyscale.models.workload.columns import text_array, to_arrow, to_numpy
from manyscale.models.workload.instruction_details import (
    COLUMNS,
    LISTS,
    MAX_CONSTANTS,
    MAX_UNIFORM,
    InstructionCounts,
    InstructionDetails,
)
from manyscale.models.workload.launch_trace import MAX_OPERANDS, StaticInstructions

STATIC_COLUMNS: Final = {
    "pc": np.int64,
    "opcode": np.int32,
    "unit": np.uint8,
    "space": np.uint8,
    "access": np.uint8,
    "immediate": np.int32,
    "bypasses_l1": np.uint8,
}
# From ``executed`` on none of older folders; ``diverged`` where the trace tells it; from ``text`` on where manyscale's
# own tracer recorded the launch.
STATIC_SCHEMA: Final = pa.schema(
    [
        pa.field("pc", pa.int64(), nullable=False),  # bytes from the kernel's begin
        pa.field("opcode", pa.int32(), nullable=False),  # number among the opcodes, which stand in the file's metadata
        pa.field("unit", pa.uint8(), nullable=False),  # that executes it (UnitClass)
        pa.field("space", pa.uint8(), nullable=False),  # of memory that it accesses (Space)
        pa.field("access", pa.uint8(), nullable=False),  # how it accesses memory (Access)
        pa.field("immediate", pa.int32(), nullable=False),  # the first whole number among its operands
        pa.field("bypasses_l1", pa.uint8(), nullable=False),  # whether it does not look in L1
        pa.field(
            "destinations", pa.list_(pa.int16(), MAX_OPERANDS), nullable=False
        ),  # registers that it writes; -1 for none
        pa.field("sources", pa.list_(pa.int16(), MAX_OPERANDS), nullable=False),  # registers that it reads; -1 for none
        pa.field("executed", pa.int64(), nullable=False),  # how many warp instructions of the launch it is
        pa.field("threads", pa.int64(), nullable=False),  # how many thread instructions
        pa.field(
            "diverged", pa.int64(), nullable=False
        ),  # how often some threads of a warp went on elsewhere behind it
        pa.field("text", pa.string(), nullable=False),  # as cuobjdump -sass prints it
        pa.field("listed", pa.string(), nullable=False),  # registers, opcode and width as Accel-Sim's traces have them
        pa.field("stall", pa.uint8(), nullable=False),  # cycles before the warp's next instruction
        pa.field("yields", pa.uint8(), nullable=False),  # whether another warp is preferred then
        pa.field("write_barrier", pa.int8(), nullable=False),  # of six, set until results are written; -1 for none
        pa.field("read_barrier", pa.int8(), nullable=False),  # of six, set until operands are read; -1 for none
        pa.field("waits", pa.uint8(), nullable=False),  # bit k where it waits for barrier k
        pa.field("reuse", pa.uint8(), nullable=False),  # bit k where operand k stays in the operand cache
        pa.field("predicates_written", pa.uint16(), nullable=False),  # bit k for Pk, bit 8 + k for UPk
        pa.field("predicates_read", pa.uint16(), nullable=False),  # likewise, with the guard
        pa.field(
            "source_file", pa.int32(), nullable=False
        ),  # number among the files in the column's metadata; -1 where not known
        pa.field(
            "source_line", pa.int32(), nullable=False
        ),  # of an inlined function in that function; 0 where not known
        pa.field(
            "uniform_written", pa.list_(pa.int16(), MAX_UNIFORM), nullable=False
        ),  # first uniform register of each; -1 for none
        pa.field(
            "uniform_read", pa.list_(pa.int16(), MAX_UNIFORM), nullable=False
        ),  # first uniform register of each; -1 for none
        pa.field(
            "constant_bank", pa.list_(pa.int16(), MAX_CONSTANTS), nullable=False
        ),  # of operands in constant memory; -1 for none
        pa.field(
            "constant_offset", pa.list_(pa.int32(), MAX_CONSTANTS), nullable=False
        ),  # bytes, without what a register adds
    ]
)
_REGISTERS: Final = ("destinations", "sources")
_FILES: Final = b"files"  # of source, in the metadata of the column ``source_file``


def static_table(static: StaticInstructions, counts: InstructionCounts) -> pa.Table:
    """Columns of all three kinds."""
    columns: dict[str, Any] = {
        name: to_arrow(getattr(static, name).astype(kind)) for name, kind in STATIC_COLUMNS.items()
    }
    columns |= {name: _lists(getattr(static, name), MAX_OPERANDS) for name in _REGISTERS}
    columns |= {"executed": to_arrow(counts.executed), "threads": to_arrow(counts.threads)}
    if counts.diverged is not None:
        columns["diverged"] = to_arrow(counts.diverged)
    details = static.details
    if details is not None:
        columns |= {"text": text_array(details.text), "listed": text_array(details.listed)}
        columns |= {
            name: to_arrow(np.ascontiguousarray(getattr(details, name), kind)) for name, kind in COLUMNS.items()
        }
        columns |= {name: _lists(getattr(details, name).astype(kind), most) for name, (kind, most) in LISTS.items()}
    table = pa.table(columns, pa.schema([field for field in STATIC_SCHEMA if field.name in columns]))
    if details is not None:
        field = table.schema.field("source_file").with_metadata({_FILES: "\0".join(details.files)})
        table = table.cast(table.schema.set(table.schema.get_field_index("source_file"), field))
    return table


def _lists(values: np.ndarray, most: int) -> pa.FixedSizeListArray:
    return pa.FixedSizeListArray.from_arrays(to_arrow(np.ascontiguousarray(values).reshape(-1)), most)


def static_instructions(table: pa.Table, opcodes: tuple[str, ...]) -> StaticInstructions:
    """Raises KeyError and ValueError where a column is missing or of another form."""
    columns = {name: to_numpy(table.column(name)) for name in STATIC_COLUMNS}
    columns["bypasses_l1"] = columns["bypasses_l1"].view(np.bool_)
    columns |= {name: _rows(table, name, MAX_OPERANDS) for name in _REGISTERS}
    return StaticInstructions(opcodes, **columns, details=_details(table) if "text" in table.column_names else None)


def _rows(table: pa.Table, name: str, most: int) -> np.ndarray:
    return to_numpy(table.column(name).combine_chunks().flatten()).reshape(-1, most)


def _details(table: pa.Table) -> InstructionDetails:
    columns: dict[str, Any] = {name: to_numpy(table.column(name)) for name in COLUMNS}
    columns |= {name: _rows(table, name, most) for name, (_, most) in LISTS.items()}
    columns |= {name: tuple(table.column(name).to_pylist()) for name in ("text", "listed")}
    named = (table.schema.field("source_file").metadata or {}).get(_FILES, b"").decode()
    return InstructionDetails(files=tuple(named.split("\0")) if named else (), **columns)


def stored_counts(table: pa.Table) -> InstructionCounts | None:
    """None of folders that older versions wrote."""
    if "threads" not in table.column_names:
        return None
    has = "diverged" in table.column_names
    diverged = to_numpy(table.column("diverged")) if has else None
    return InstructionCounts(to_numpy(table.column("executed")), to_numpy(table.column("threads")), diverged)


def detailed_counts(path: Path) -> tuple[bytes, InstructionCounts] | None:
    """Counts of a file whose launch has details, and the key of its code. Few columns are read."""
    with pq.ParquetFile(path) as file:
        names = file.schema_arrow.names
        if "text" not in names:
            return None
        wanted = ["pc", "opcode", "source_line", "executed", "threads", "diverged"]
        table = file.read([name for name in wanted if name in names], use_threads=False)
    counts = stored_counts(table)
    if counts is None:
        return None
    return b"".join(to_numpy(table.column(name)).tobytes() for name in wanted[:3]), counts


def code_key(static: StaticInstructions) -> bytes:
    """The same key, of static instructions with details."""
    assert static.details is not None
    return b"".join(each.tobytes() for each in (static.pc, static.opcode, static.details.source_line))
