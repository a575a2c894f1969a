"""In which order the pieces of a program run, if every instruction takes as long as any other: what lies in caches when
an instance begins depends on it, and a runtime system's order is not that of the traced run."""

from __future__ import annotations

import numpy as np

from manyscale.models.node.burst import run_phases
from manyscale.models.node.program.node_program import Action, NodeProgram
from manyscale.models.node.scheduler.runtime_system import RuntimeSystem


def run_order(
    program: NodeProgram, num_cores: int, runtime: RuntimeSystem, piece_ps: np.ndarray, first_phase: int,
    end_phase: int, *, seed: int = 0,
) -> np.ndarray | None:  # fmt: skip
    """int64[]: pieces of phases [``first_phase``, ``end_phase``) by when they begin if each takes ``piece_ps`` int64[];
    None where phases call MPI, so that the replay schedules them. O(pieces x log)."""
    if np.any(program.step_action == Action.operation):
        return None
    found = run_phases(program, num_cores, runtime, piece_ps, first_phase, end_phase, seed=seed, keep=True)
    stretch = found.stretches
    begin = (np.cumsum(found.makespan_ps[0]) - found.makespan_ps[0])[stretch["phase"]] + stretch["start_ps"]
    by_instance = np.lexsort((begin, stretch["instance"]))
    owner, begin = stretch["instance"][by_instance].astype(np.int64), begin[by_instance]
    length = (stretch["end_ps"] - stretch["start_ps"])[by_instance]
    pieces = np.flatnonzero(np.isin(program.piece_instance, owner))
    pieces = pieces[np.argsort(program.piece_instance[pieces], kind="stable")]
    piece_owner = program.piece_instance[pieces].astype(np.int64)
    # of both, time of the instance from the begin on until it ends: what the runtime system takes, which stretches have
    # and pieces have not, lies in front of most of it
    left, piece_left = _until_end(owner, length), _until_end(piece_owner, piece_ps[pieces])
    scale = np.int64(max(left.max(initial=0), piece_left.max(initial=0)) + 1)
    place = np.searchsorted(owner * scale + scale - 1 - left, piece_owner * scale + scale - 1 - piece_left, "right") - 1
    at = np.maximum(place, np.searchsorted(owner, piece_owner, side="left"))
    order = np.lexsort((-piece_left, begin[at]))
    return np.asarray(pieces[order])


def _until_end(owner: np.ndarray, value: np.ndarray) -> np.ndarray:
    """int64[]: sum of each value and those behind it of the same owner, whose rows are together."""
    total = np.append(0, np.cumsum(value))
    last = np.searchsorted(owner, owner, side="right")
    return np.asarray(total[last] - total[:-1])
