"""Phases of a rank on simulated cores by the analytical model: pieces progress at rates that follow from what they use
and from what runs beside them, as time passes.

When a core begins a piece, the caches say which level serves its lines (occupancy.py), and so what it takes
(costs.py). Whenever a piece begins or ends, what all cores ask of DRAM and of shared caches is weighed anew
(queues.py), and each goes on at its new rate. What comes next says the scheduler of the detailed model, so barriers,
dependences, creation of task instances and policies are the same.

Cost: O(lines of a piece x cache levels + cores x steps) a piece, with some 5 steps; no instruction is looked at.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from manyscale.models.cpu import domains
from manyscale.models.kernels import read_only
from manyscale.models.machine import Node
from manyscale.models.machine.processor import data_caches, needed
from manyscale.models.node.program.node_program import NodeProgram
from manyscale.models.node.scheduler.held_data import HeldData
from manyscale.models.node.scheduler.runtime_system import RuntimeSystem
from manyscale.models.node.scheduler.scheduler import new_scheduler, why_stuck
from manyscale.models.node.shared import run_kernel as kernel
from manyscale.models.node.shared.costs import PieceCosts
from manyscale.models.node.shared.occupancy import COLUMNS, Occupancy
from manyscale.models.node.shared.piece_lines import PieceLines
from manyscale.models.node.shared.queues import shared_memory
from manyscale.models.workload import WorkloadError

NAME: Final = "interval"
VERSION: Final = 4
DOMAIN: Final = domains.INTERVAL


@dataclass(frozen=True)
class AnalyticalPhases:
    """``makespan_ps`` int64[phases]; ``piece_ps`` int64[pieces], 0 for those of other phases; ``instances``: records
    (start_ps of its first piece, -1 if it did not run, end_ps and core of its last, cycles, of which ``alone`` if it
    waited for nobody, and of these ``base`` in the core and ``cache``), since the first phase's begin. ``served``
    float64[levels + COLUMNS]: first uses of lines by the
    level that served them, see occupancy.py."""

    makespan_ps: np.ndarray
    piece_ps: np.ndarray
    instances: np.ndarray
    served: np.ndarray
    overhead_ps: np.ndarray


def run_phases(
    program: NodeProgram,
    node: Node,
    num_cores: int,
    runtime: RuntimeSystem,
    instructions: np.ndarray,
    sample: np.ndarray,
    costs: PieceCosts,
    lines: PieceLines,
    caches: Occupancy,
    *,
    opened: np.ndarray | None = None,
    given_ps: np.ndarray | None = None,
    beside_ps: np.ndarray | None = None,
    first_phase: int = 0,
    end_phase: int | None = None,
    seed: int = 0,
    share_group: np.ndarray | None = None,
    held: HeldData | None = None,
) -> AnalyticalPhases:
    """Phases [``first_phase``, ``end_phase``) one after the other. ``instructions`` int64[pieces]; ``sample``
    int32[pieces]: row of ``costs`` of those that have some; the others take ``given_ps`` int64[pieces] (0 by default).
    ``beside_ps`` int64[pieces]: what each of those that have some takes beside (nothing by default).
    ``caches``: what they hold at first; changed. ``held``: what the policy data-reuse knows. Raises
    WorkloadError if a phase cannot end, ValueError for arguments that make no sense or a node that lacks a
    parameter."""
    end = program.num_phases if end_phase is None else end_phase
    if not 0 <= first_phase <= end <= program.num_phases:
        raise ValueError(f"phases {first_phase} to {end} of {program.num_phases}")
    if num_cores < 1:
        raise ValueError(f"a rank cannot run on {num_cores} cores; give it 1 or more")
    if opened is None and lines.every > 1:
        raise ValueError("where lines are left out, opened_rows of all of them is needed")
    if np.any((np.asarray(instructions) > 0) & (np.asarray(sample) < 0)):
        raise ValueError("a piece with instructions has no sample that stands for it")
    given = np.zeros(program.num_pieces, np.int64) if given_ps is None else given_ps
    beside = np.zeros(program.num_pieces, np.int64) if beside_ps is None else beside_ps
    control = np.zeros(1, kernel.CONTROL)
    control["cycle_ps"] = 1e12 / needed(node.frequency_hz, "node.frequency")
    control["per_speedup"], control["first_phase"] = 1.0 / runtime.creator_speedup, first_phase
    control["every"] = lines.every
    instances = np.zeros(program.num_instances, kernel.INSTANCE)
    instances["start_ps"] = -1
    levels = len(data_caches(node.caches))
    result = AnalyticalPhases(
        np.zeros(end - first_phase, np.int64), np.zeros(program.num_pieces, np.int64), instances,
        np.zeros(levels + COLUMNS), np.zeros(num_cores, np.int64),
    )  # fmt: skip
    core = np.zeros(num_cores, kernel.CORE)
    rough = np.rint(np.asarray(instructions) * control["cycle_ps"][0]).astype(np.int64) + given
    scheduler = new_scheduler(
        program, num_cores, runtime, seed, share_group=share_group, predicted_ps=read_only(rough, np.int64), held=held,
        size=np.bincount(program.piece_instance, instructions, program.num_instances),
    )  # fmt: skip
    state = kernel.Run(
        control, scheduler, core, np.zeros((num_cores, len(costs.wait))),
        shared_memory(node, num_cores, lines.line_bytes), caches, costs, lines.first, lines.end, lines.line, lines.use,
        lines.visits, np.zeros(0, np.int8), np.ascontiguousarray(instructions, np.int64),
        np.ascontiguousarray(sample, np.int64), result.piece_ps, np.ascontiguousarray(given, np.int64),
        np.ascontiguousarray(beside, np.int64), np.zeros(0) if opened is None else opened, instances,
        np.zeros(levels + COLUMNS), result.served, result.makespan_ps,
    )  # fmt: skip
    if not kernel.run_phases(state):
        raise WorkloadError(why_stuck(program, scheduler))
    result.overhead_ps[:] = scheduler.core["overhead_ps"]
    return result
