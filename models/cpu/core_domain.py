"""What models of cores take of a target's core, and what its file leaves out: notes of every model that executes
instructions on it (cpu/dataflow.py, cpu/interval.py, cpu/amm_phases.py, node/detailed.py)."""

from __future__ import annotations

from manyscale.models.machine.processor import Core
from manyscale.models.workload.notes import Errs, Note, changes

# what has no unit in most cores, so that a file may say that it costs nothing
_MAY_BE_FREE = frozenset({"nop", "other", "move"})


def core_notes(core: Core, target: str) -> tuple[Note, ...]:
    """Of a core whose instructions, or some classes of them, cost nothing, and of one that predicts every branch.
    ``target``: its name, where the notes are."""
    notes = []
    if core.costs_nothing:
        text = "no instruction of the target's core takes time: its width, its reorder buffer and memory alone limit it"
        notes.append(changes("free-instructions", text, target, len(core.instructions), Errs.short))
    elif free := sorted(core.free_classes - _MAY_BE_FREE):
        text = f"{len(free)} classes of instructions take no time on the target's core: {', '.join(free)}"
        notes.append(changes("free-instructions", text, target, len(free), Errs.short))
    if not core.misprediction_cycles:
        text = "the target's core has no misprediction: every branch is taken to be predicted"
        notes.append(changes("no-mispredictions", text, target, errs=Errs.short))
    return tuple(notes)
