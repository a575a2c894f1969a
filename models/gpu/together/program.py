"""Programs of several launches as one, whose blocks are those of the first, then those of the second, and so on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from manyscale.models.gpu.launch_pieces import joined_offsets
from manyscale.models.gpu.launch_program import LaunchProgram, launch_program, read_only
from manyscale.models.gpu.parameters import Gpu
from manyscale.models.gpu.sm.control.parameters import CODE_LINE, CONSTANT_BLOCK
from manyscale.models.gpu.sm.control.rows import code_lines, constant_lines
from manyscale.models.workload.launch_trace import LaunchTrace

_SPACE_SHIFT: Final = 42  # bytes: addresses of one process, as far as launches are told apart
_LINE_INSTRUCTIONS: Final = CODE_LINE // 16


def joined_program(
    traces: Sequence[LaunchTrace], spaces: Sequence[int], gpu: Gpu, *, controlled: bool
) -> tuple[LaunchProgram, tuple[int, int]]:
    """The program, and lines of code and of constants of all. ``spaces``: of launches in processes of different numbers
    equal addresses are not the same memory. O(instructions + requests)."""
    parts, rows, operands, requests = [], 0, 0, 0
    code = _Lines()
    constants = blocks = 0
    for trace, space in zip(traces, spaces, strict=True):
        own = launch_program(trace, gpu, asynchronous=True, controlled=controlled)
        static = own.static.copy()
        for name in ("first", "written", "end"):
            static[name] += operands
        if controlled:
            static["place"] += _LINE_INSTRUCTIONS * code.first_of(trace)
            static["constant"][static["constant"] >= 0] += constants
            static["constant_block"][static["constant_block"] >= 0] += blocks
            constants += constant_lines(trace.static)[1]
            blocks += constant_lines(trace.static, CONSTANT_BLOCK)[1]
        request = own.request + ((space << _SPACE_SHIFT) // gpu.l1.sector_bytes) if space else own.request
        parts.append(own._replace(static=static, instruction=own.instruction + np.int32(rows), request=request))
        rows, operands, requests = rows + len(static), operands + len(own.operand), requests + len(own.request)
    joined = {name: np.concatenate([getattr(part, name) for part in parts]) for name in _COLUMNS}
    joined |= {name: joined_offsets([getattr(part, name) for part in parts]) for name in _OFFSETS}
    program = LaunchProgram(**joined, first_block=np.zeros(1, np.int64))
    return LaunchProgram(*map(read_only, program)), (code.count, constants) if controlled else (0, 0)


_COLUMNS: Final = ("static", "operand", "instruction", "active", "requests", "request", "written", "words")
_OFFSETS: Final = ("block_warps", "warp_instructions", "warp_requests", "warp_words")


class _Lines:
    """Lines of code, which launches of one kernel have in common; ``count`` of all."""

    def __init__(self) -> None:
        self.count = 0
        self._first: dict[tuple[str, bytes], int] = {}

    def first_of(self, trace: LaunchTrace) -> int:
        key = trace.kernel_name, trace.static.pc.tobytes()
        if key not in self._first:
            self._first[key] = self.count
            self.count += code_lines(trace.static)
        return self._first[key]
