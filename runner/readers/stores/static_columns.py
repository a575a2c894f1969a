"""Static instructions of a stored launch as a table: what models read; how often each was executed; and, where the
trace tells them, their details (text, control bits, operands, lines of source). Older folders have the first alone.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

from manyscale.models.workload.columns import text_array, to_arrow, to_numpy
from manyscale.models.workload.instruction_details import COLUMNS, LISTS, InstructionCounts, InstructionDetails
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
    table = pa.table(columns)
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
