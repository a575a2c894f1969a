"""Page of the machine instructions that the tracer of CUDA programs executes, from the decoder's own table."""

from __future__ import annotations

from typing import Final

from markdown_cells import cell, code, table

from manyscale.models.workload.launch_trace import Access, Space
from manyscale.runner.tracers.cuda.sass.instructions import Instruction, instructions

_HEAD: Final = """# Machine instructions

The instructions of NVIDIA's machine code (SASS) that [`manyscale trace --level gpu`](../howto/trace-cuda.md) executes.
Any other, and any modifier that an instruction's row does not list, stops the launch that comes to it. The page is made
from the table by which programs are decoded.

*Unit* is the functional unit on which timing models run an instruction; its latency stands in the target, under
`node.gpu.units`. *Accesses* says which memory it accesses, and how. *Since* is the compute capability that brought it,
if that is 7.5 or later. A row without modifiers has none, or takes those that the compiler gives it. What is without
effect here changes the time or what other threads see when, not what is computed: blocks and warps run one after the
other between barriers.

"""


def page() -> str:
    """Markdown of the whole page."""
    rows = [_row(each) for each in instructions()]
    return _HEAD + table(("instruction", "what it does", "unit", "accesses", "since", "modifiers"), rows)


def _row(each: Instruction) -> tuple[str, ...]:
    names = f"{code(each.root)} {code(each.uniform)}".strip()
    where = {Space.none: "", Space.global_: "global"}.get(each.space, each.space.name)
    accesses = f"{where}, {each.access.name}" if each.access is not Access.none else ""
    since = f"{each.since / 10:.1f}" if each.since else ""
    modifiers = " ".join(code(f".{one}") for one in each.modifiers)
    return names, cell(each.meaning), cell(each.unit.name.replace("_", " ")), accesses, since, modifiers
