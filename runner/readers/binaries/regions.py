"""Which machine instructions belong to which basic block of the compiler, and where calls end it.

Each block of the coverage's table has a label in the code; code generation may have cut it into several pieces and have
added others on its edges. The *region* of a block is what can be reached from its label without passing another label.
The pieces that lie on every path through the region are the block's own: they are executed whenever the block is; the
others (arms of a conditional move made of branches, moves on one edge) are left out. Found by counting paths. A call on
some of the paths alone was put there by code generation, since in the compiler's own blocks nothing is conditional: a
square root is an instruction, and a call of the library where its operand is negative, for errno's sake (LLVM's
PartiallyInlineLibCalls). Such paths do not count, so that the instruction is the block's own.

The sequence of a block's own instructions is cut behind each call of the program into *parts*: blocks in the sense of
AMM (section 3.1). Calls of the coverage's callbacks are none, and neither they nor what sets up their argument count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

from manyscale.models.workload.detail_tables import InstructionClass
from manyscale.runner.readers.binaries.elf import Elf
from manyscale.runner.readers.binaries.instructions import FLAGS, Flow, Instruction

_CALLBACK: Final = "__sanitizer_cov_"
_ARGUMENT: Final = 7  # rdi


class Ends(IntEnum):
    """How a part ends."""

    jumps = 0  # to another block of the function
    returns = 1
    calls_known = 2  # an instrumented function
    calls_foreign = 3  # a function of a library without coverage
    calls_any = 4  # through a pointer
    leaves = 5  # jumps to another function, which returns in its place


@dataclass
class Part:
    """``accesses``: (place, is_store, bytes) of each access in order; place: address behind the callback's call.
    ``callee``: what it calls or jumps to, as ``Elf.callee`` says."""

    instructions: list[Instruction] = field(default_factory=list)
    accesses: list[tuple[int, bool, int]] = field(default_factory=list)
    ends: Ends = Ends.jumps
    callee: str | int | None = None


def function_parts(elf: Elf, function: int) -> dict[int, list[Part]]:
    """The parts of each block of a function, by the block's index in the table. O(instructions)."""
    code = elf.function_code(function)
    labels = {int(elf.blocks[block]): int(block) for block in elf.function_blocks(function)}
    callbacks = _callbacks(elf, code)
    pieces = _pieces(code, labels)
    starts = {code[first].address: number for number, (first, _) in enumerate(pieces)}
    targets = [_targets(code, piece, starts, number) for number, piece in enumerate(pieces)]
    labelled = {starts[label]: block for label, block in labels.items() if label in starts}
    skipped = _skipped(elf, code, callbacks)
    calls = {index for index, each in enumerate(code) if each.flow == Flow.call} - callbacks.keys()
    calling = {number for number, piece in enumerate(pieces) if any(index in calls for index in range(*piece))}
    found: dict[int, list[Part]] = {block: [Part()] for block in labels.values()}
    for piece, block in labelled.items():
        own, exits = _region(piece, targets, labelled, calling)
        sequence = [index for number in own for index in range(*pieces[number])]
        parts = _cut(elf, code, sequence, callbacks, skipped)
        _end(elf, code, parts, sequence, [pieces[number] for number in exits], labels)
        found[block] = parts
    return found


def _callbacks(elf: Elf, code: Sequence[Instruction]) -> dict[int, str]:
    """Names of the coverage's functions that are called, by index of the instruction."""
    found = {}
    for index, each in enumerate(code):
        if each.flow == Flow.call:
            callee = elf.callee(each)
            name = elf.functions.get(callee, ("", 0))[0] if isinstance(callee, int) else callee
            if name and name.startswith(_CALLBACK):
                found[index] = name.removeprefix(_CALLBACK)
    return found


def _pieces(code: Sequence[Instruction], labels: Mapping[int, int]) -> list[tuple[int, int]]:
    """Ranges of instructions that are entered at their first and left at their last."""
    begins = {*labels, *(each.target for each in code if each.flow in (Flow.branch, Flow.jump))}
    cuts = [0]
    for index in range(1, len(code)):
        if code[index].address in begins or code[index - 1].flow not in (Flow.on, Flow.call):
            cuts.append(index)
    return list(zip(cuts, [*cuts[1:], len(code)], strict=True)) if code else []


def _targets(
    code: Sequence[Instruction], piece: tuple[int, int], starts: Mapping[int, int], number: int
) -> tuple[int, ...]:
    """Pieces that may follow; -1 is another function, or a place that the instruction does not tell."""
    last = code[piece[1] - 1]
    following = number + 1 if piece[1] < len(code) else -1
    jumped = starts.get(last.target, -1) if last.target is not None else -1
    if last.flow in (Flow.on, Flow.call):
        return (following,)
    if last.flow == Flow.branch:
        return (jumped, following)
    return (jumped,) if last.flow == Flow.jump else (-1,)


def _region(
    start: int, targets: Sequence[tuple[int, ...]], labelled: Mapping[int, int], calling: Set[int]
) -> tuple[list[int], list[int]]:
    """(pieces on every path from ``start`` in order, pieces with an edge that leaves the region). Paths through pieces
    of ``calling``, which call something, do not count where there are others."""
    own, exits, reached = _on_every_path(start, targets, labelled, frozenset())
    if rare := calling & set(reached) - set(own):
        without, _, _ = _on_every_path(start, targets, labelled, rare)
        own = without or own
    return own, exits


def _on_every_path(
    start: int, targets: Sequence[tuple[int, ...]], labelled: Mapping[int, int], closed: Set[int]
) -> tuple[list[int], list[int], list[int]]:
    """(pieces on every path from ``start`` that does not go through ``closed``, in order; pieces with an edge that
    leaves the region; all that are reached). The first are none where there is no such path."""
    order: list[int] = []
    state: dict[int, int] = {}
    pending = [(start, False)]
    while pending:  # depth first, a piece after those that follow it
        piece, done = pending.pop()
        if done:
            order.append(piece)
            state[piece] = 2
        elif piece not in state:
            state[piece] = 1
            pending.append((piece, True))
            pending += [
                (each, False) for each in targets[piece] if each >= 0 and each not in labelled and each not in closed
            ]
    order.reverse()
    place = {piece: index for index, piece in enumerate(order)}
    forward = {start: 1}  # paths from the start; edges that go back in this order are left out
    for piece in order:
        for each in targets[piece]:
            if place.get(each, -1) > place[piece]:
                forward[each] = forward.get(each, 0) + forward[piece]
    backward: dict[int, int] = {}  # paths to where the region is left
    exits = []
    for piece in reversed(order):
        outside = sum(each < 0 or each in labelled for each in targets[piece])
        if outside:
            exits.append(piece)
        backward[piece] = outside + sum(backward[each] for each in targets[piece] if place.get(each, -1) > place[piece])
    every = backward[start]
    own = [piece for piece in order if every and forward[piece] * backward[piece] == every]
    return own, exits, order


def _skipped(elf: Elf, code: Sequence[Instruction], callbacks: Mapping[int, str]) -> set[int]:
    """Instructions that are there for the coverage only: its calls, what sets their argument, its counters."""
    skipped = {
        index
        for index, each in enumerate(code)
        if each.kind == InstructionClass.nop or (each.counter is not None and each.counter in elf.counters)
    }
    for index in callbacks:
        skipped.add(index)
        at = index - 1
        while at >= 0 and code[at].flow == Flow.on and set(code[at].destinations) - {FLAGS} == {_ARGUMENT}:
            skipped.add(at)
            if _ARGUMENT not in code[at].sources:
                break
            at -= 1
    return skipped


def _cut(
    elf: Elf, code: Sequence[Instruction], sequence: Sequence[int], callbacks: Mapping[int, str], skipped: set[int]
) -> list[Part]:
    parts = [Part()]
    for index in sequence:
        each, name = code[index], callbacks.get(index)
        if name is not None and name.startswith(("load", "store")):
            is_store = name.startswith("store")
            parts[-1].accesses.append((each.address + each.size, is_store, int(name.lstrip("loadstre"))))
        if index in skipped:
            continue
        parts[-1].instructions.append(each)
        if each.flow == Flow.call:
            parts[-1].callee = elf.callee(each)
            parts[-1].ends = Ends.calls_any if parts[-1].callee is None else Ends.calls_foreign
            parts.append(Part())
    return parts


def _end(
    elf: Elf,
    code: Sequence[Instruction],
    parts: list[Part],
    sequence: Sequence[int],
    exits: Sequence[tuple[int, int]],
    labels: Mapping[int, int],
) -> None:
    """Say how the last part ends, from where the region is left."""
    lasts = [code[end - 1] for _, end in exits]
    if not parts[-1].instructions and len(parts) > 1 and all(last.flow == Flow.call for last in lasts):
        parts.pop()  # a call that does not return
        return
    first, last = code[0].address, code[-1].address + code[-1].size
    if lasts and all(each.flow == Flow.back for each in lasts):
        parts[-1].ends = Ends.returns
    elif lasts and all(each.flow == Flow.jump and _leaves(each, first, last) for each in lasts):
        parts[-1].ends = Ends.leaves
        parts[-1].callee = elf.callee(lasts[0])


def _leaves(jump: Instruction, first: int, last: int) -> bool:
    """Whether a jump goes to another function. One through a table stays inside."""
    return jump.target is not None and not first < jump.target < last
