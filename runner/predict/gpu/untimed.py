"""Notes on the instructions of kernel launches that no timing of the target is for: opcodes that no table knows, and
matrix instructions whose shape or types ``node.gpu.matrix`` does not tell the rate or the latency of. Each takes what
its class of instructions takes; above 1 % of what is executed that is no prediction any more. Nor is it where any
multiply matrices for a group of warps (``*GMMA``) or a block (``UTC*MMA`` of compute capability 10.0, one thread's
instruction for 128 rows and more): a few of them are all of a kernel's work."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Final

import numpy as np

from manyscale.models.gpu.matrix.shapes import parse
from manyscale.models.gpu.matrix.timing import untimed
from manyscale.models.gpu.parameters import Gpu
from manyscale.models.workload import Workload
from manyscale.models.workload.notes import Note, changes, forbids, percent
from manyscale.runner.predict.phase_source import Case
from manyscale.runner.readers.accelsim.opcodes import is_known_root

MOST: Final = 0.01  # of the executed warp instructions
_SHOWN: Final = 4  # opcodes that a note names
_MATRIX: Final = "MMA"
_LARGE: Final = re.compile(r"UTC\w*MMA|[A-Z]GMMA")


def untimed_notes(case: Case, launches: Workload) -> list[Note]:
    """A note, or none. O(launches)."""
    gpu = Gpu.of(case.machine.node)
    if gpu is None or launches.gpu is None:
        return []
    executed, total = case.shared.once(("untimed opcodes", launches.digest), lambda: _executed(launches))
    found = {opcode: count for opcode, count in executed.items() if parse(opcode) is None or untimed(opcode, gpu)}
    number = sum(found.values())
    if not number:
        return []
    share = number / total
    text = (
        f"{percent(share)} of the warp instructions have no timing on this target and take what their class takes: "
        f"{_named(found)}"
    )
    large = sum(count for opcode, count in found.items() if _LARGE.match(opcode))
    if large and share <= MOST:
        text += f"; {large:,} of them are products of a group of warps or of a block, each as much work as thousands"
    if share > MOST or large:
        return [forbids("too-many-untimed-instructions", text, "target.node.gpu", number)]
    return [changes("untimed-instructions", text, "target.node.gpu", number)]


def _executed(launches: Workload) -> tuple[dict[str, int], int]:
    """Warp instructions by opcode, of those that a target may have no timing of, and of all."""
    found: Counter[str] = Counter()
    total = 0
    streams = launches.gpu
    assert streams is not None
    for launch_id in launches.column("launches", "launch_id").tolist():
        of_root = streams.executed(launch_id)
        total += sum(of_root.values())
        found.update({root: count for root, count in of_root.items() if count and not is_known_root(root)})
        if any(root.endswith(_MATRIX) and is_known_root(root) for root in of_root):
            static, counts = streams.instruction_counts(launch_id)
            executed = np.bincount(static.opcode, counts.executed, minlength=len(static.opcodes)).astype(np.int64)
            for opcode, count in zip(static.opcodes, executed.tolist(), strict=True):
                root = opcode.split(".")[0]
                if count and root.endswith(_MATRIX) and is_known_root(root):
                    found[opcode] += count
    return dict(found), total


def _named(found: Mapping[str, int]) -> str:
    """The most frequent first."""
    first = sorted(found, key=lambda opcode: (-found[opcode], opcode))
    others = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return ", ".join(f"{opcode} {found[opcode]:,}" for opcode in first[:_SHOWN]) + others
