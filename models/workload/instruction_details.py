"""What is known of static instructions beyond what timing models read: their text, the control bits of their words,
operands that Accel-Sim's traces leave out, and the lines of source that they come from. Predictions depend on the
control bits, texts and constant operands, on targets whose SMs issue by control bits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final, Self

import numpy as np

MAX_UNIFORM: Final = 8  # uniform registers of an instruction that are read, or written
MAX_CONSTANTS: Final = 2
NO_BARRIER: Final = -1
NONE: Final = -1
UNIFORM_PREDICATE: Final = 8  # bit of UP0 among predicates; that of P0 is 0

COLUMNS: Final[Mapping[str, Any]] = {  # one number for each instruction
    "stall": np.uint8,
    "yields": np.uint8,
    "write_barrier": np.int8,
    "read_barrier": np.int8,
    "waits": np.uint8,
    "reuse": np.uint8,
    "predicates_written": np.uint16,
    "predicates_read": np.uint16,
    "source_file": np.int32,
    "source_line": np.int32,
}
LISTS: Final[Mapping[str, tuple[Any, int]]] = {  # so many numbers for each instruction
    "uniform_written": (np.int16, MAX_UNIFORM),
    "uniform_read": (np.int16, MAX_UNIFORM),
    "constant_bank": (np.int16, MAX_CONSTANTS),
    "constant_offset": (np.int32, MAX_CONSTANTS),
}
KINDS: Final = dict(COLUMNS) | {name: kind for name, (kind, _) in LISTS.items()}


@dataclass(frozen=True)
class InstructionDetails:
    """Rows as those of ``StaticInstructions``.

    ``text``: as ``cuobjdump -sass`` prints it; ``listed``: its registers, opcode and width as Accel-Sim's traces have
    them. Of the 128-bit word: ``stall`` cycles before the warp's next instruction; ``yields``: whether the scheduler
    prefers another warp then; ``write_barrier`` and ``read_barrier``: which of six barriers is set until results are
    written, or operands read (NO_BARRIER: none); ``waits``: bit k where it waits for barrier k; ``reuse``: bit k where
    operand k stays in the operand cache. ``predicates_written`` and ``predicates_read``: bit k for Pk, bit 8 + k for
    UPk, the guard among those read. ``uniform_written`` and ``uniform_read``: the first uniform register of each
    operand, and ``constant_bank`` and ``constant_offset`` (bytes) of operands in constant memory, without what a
    register adds; filled with NONE. ``source_file``: of ``files``, and ``source_line`` (NONE and 0: not known); an
    inlined function's instructions have the line in that function, not that of the call."""

    text: tuple[str, ...]
    listed: tuple[str, ...]
    files: tuple[str, ...]
    stall: np.ndarray
    yields: np.ndarray
    write_barrier: np.ndarray
    read_barrier: np.ndarray
    waits: np.ndarray
    reuse: np.ndarray
    predicates_written: np.ndarray
    predicates_read: np.ndarray
    source_file: np.ndarray
    source_line: np.ndarray
    uniform_written: np.ndarray
    uniform_read: np.ndarray
    constant_bank: np.ndarray
    constant_offset: np.ndarray

    def rows(self, places: Any) -> InstructionDetails:
        """Those at ``places``, an array of row numbers or a slice."""
        at = np.arange(len(self.text))[places]
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        chosen: dict[str, Any] = {name: each[at] for name, each in values.items() if isinstance(each, np.ndarray)}
        chosen |= {name: tuple(values[name][k] for k in at.tolist()) for name in ("text", "listed")}
        return InstructionDetails(files=self.files, **chosen)

    def source(self, row: int) -> str:
        """``file:line``, or nothing."""
        return f"{self.files[self.source_file[row]]}:{self.source_line[row]}" if self.source_file[row] >= 0 else ""


@dataclass(frozen=True)
class InstructionCounts:
    """int64[rows] each, of a launch's static instructions: warp instructions, thread instructions, and how often the
    lanes of a warp parted there (None: the trace does not tell)."""

    executed: np.ndarray
    threads: np.ndarray
    diverged: np.ndarray | None

    @classmethod
    def of_rows(cls, rows: int, executed: np.ndarray, threads: np.ndarray, diverged: np.ndarray | None) -> Self:
        """Filled up with zeros."""

        def filled(values: np.ndarray) -> np.ndarray:
            return np.concatenate([values, np.zeros(max(0, rows - len(values)), np.int64)])

        return cls(filled(executed), filled(threads), None if diverged is None else filled(diverged))

    def plus(self, other: Self) -> Self:
        """Both together."""
        has_all = self.diverged is not None and other.diverged is not None
        diverged = self.diverged + other.diverged if has_all else None  # type: ignore[operator]
        return type(self)(self.executed + other.executed, self.threads + other.threads, diverged)
