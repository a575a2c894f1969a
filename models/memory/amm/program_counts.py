"""What a traced run did, counted: executions of blocks, instructions by class, accesses and bytes.

Source: AMM (section 3.3) counts the memory and the CPU operations of a program with Byfl; here they follow from the
detailed level: what an execution of a block does stands in the static tables, so executions alone are counted. Counts
at another input are those of the same blocks with that input's executions (``with_executions``).

A vector instruction counts once, whatever its lanes: costs of a machine are per instruction.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from manyscale.models.memory.access_stream import Sites, sites_of
from manyscale.models.workload import Workload
from manyscale.models.workload.detail_tables import InstructionClass


@dataclass(frozen=True)
class ProgramCounts:
    """Executions, and what each does.

    ``executions`` float64[blocks] (whole numbers where they were counted). ``sites``: the static accesses. Rows of
    instructions, one per (block, class, lanes), sorted: ``block`` int32[n], ``instruction_class`` int8[n]
    (InstructionClass), ``lanes`` int8[n], ``per_execution`` int64[n]. ``shows_instructions`` bool[blocks]: whether the
    trace's format recorded the block's instructions.
    """

    executions: np.ndarray
    sites: Sites
    block: np.ndarray
    instruction_class: np.ndarray
    lanes: np.ndarray
    per_execution: np.ndarray
    shows_instructions: np.ndarray

    def with_executions(self, executions: np.ndarray) -> ProgramCounts:
        """The same blocks, executed as often as float64[blocks] says."""
        if np.shape(executions) != self.executions.shape:
            raise ValueError(f"{len(self.executions)} blocks need as many executions, not {np.shape(executions)}")
        return replace(self, executions=np.asarray(executions, np.float64))

    @property
    def accesses_by_site(self) -> np.ndarray:
        """float64[sites]."""
        return self.executions[self.sites.block]

    @property
    def num_accesses(self) -> float:
        return float(self.accesses_by_site.sum())

    @property
    def bytes_accessed(self) -> float:
        """Bytes that all accesses load and store: the paper's total_mem, which eq. 7 multiplies by a time per byte
        accessed (distinct bytes would count a use of memory once, however often it is used)."""
        return float(self.accesses_by_site @ self.sites.bytes)

    def instructions(self) -> np.ndarray:
        """float64[rows]: how many instructions of each row were executed.

        Raises ValueError where an executed block's instructions are not known.
        """
        unknown = np.flatnonzero((self.executions > 0) & ~self.shows_instructions)
        if len(unknown):
            raise ValueError(
                f"{len(unknown)} of the blocks that were executed, the first is block {unknown[0]}, show no "
                "instructions: the trace's format does not record them; trace the program by a route that does (QEMU), "
                "or give the number of instructions of each class"
            )
        return np.asarray(self.executions[self.block] * self.per_execution)

    def instructions_by_class(self) -> dict[str, float]:
        """Instructions of each class that occurs, by InstructionClass' names. Raises ValueError as ``instructions``."""
        total = np.bincount(self.instruction_class, self.instructions(), len(InstructionClass))
        return {each.name: float(total[each]) for each in InstructionClass if total[each] > 0}


def program_counts(workload: Workload, executions: np.ndarray) -> ProgramCounts:
    """Counts where each of a workload's blocks is executed as often as float64[blocks] says. O(static tables)."""
    columns = (workload.column("instructions", name) for name in ("block_id", "instruction_class", "lanes"))
    rows, times = np.unique(np.stack([c.astype(np.int64) for c in columns]), axis=1, return_counts=True)
    return ProgramCounts(
        executions,
        sites_of(workload),
        rows[0].astype(np.int32),
        rows[1].astype(np.int8),
        rows[2].astype(np.int8),
        times.astype(np.int64),
        shows_instructions(workload),
    )


def shows_instructions(workload: Workload) -> np.ndarray:
    """bool[blocks]: whether the trace's format recorded the block's instructions. O(static tables)."""
    stated = workload.column("blocks", "num_instructions")
    recorded = np.bincount(workload.column("instructions", "block_id"), minlength=len(stated))
    return np.asarray((recorded == stated) | ((stated < 0) & (recorded > 0)))
