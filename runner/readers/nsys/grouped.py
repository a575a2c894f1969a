"""Which of NCCL's ranges tells what each of its kernels is.

A call outside a group launches its kernel inside its own range. Between ncclGroupStart and ncclGroupEnd calls only
collect what is to be done; ncclGroupEnd launches it, with one kernel for all that a communicator has in the group, or
some (NCCL User Guide, "Group Calls"). What kernels of a group do is told where the calls and kernels match.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from manyscale.runner.readers.kineto.collectives import MESSAGES, element_bytes, kind_of, of_kernel
from manyscale.runner.readers.kineto.events import Args, Event
from manyscale.runner.readers.nsys.ranges import Range, collective_args, group_call

_TOLD: Final = ("collective", "in_elements", "out_elements", "element_type", "group", "place")
_SEVERAL: Final = Args(collective="coalesced")  # of which Kineto's traces do not tell more, either
_BYTES: Final = "char"


@dataclass
class _Group:
    """``calls`` that the range of ncclGroupEnd from ``begin`` to ``end`` launches, and the ``kernels`` launched in
    it."""

    begin: int
    end: int
    calls: list[Range]
    kernels: list[Event]


def tell(ranges: Sequence[Range], launches: Sequence[tuple[int, Event]]) -> int:
    """Give NCCL's kernels that a thread launched, with the times of their launches, what the ranges of the thread tell;
    of how many they do. O((ranges + launches) log of these)."""
    ordered = sorted(ranges, key=lambda each: each.begin)
    groups, alone = _parted(ordered)
    told = begun = opened = 0
    around: list[Range] = []  # the innermost last
    for at, event in sorted(launches, key=lambda each: each[0]):
        while opened < len(groups) and groups[opened].end < at:
            opened += 1
        if opened < len(groups) and groups[opened].begin <= at:
            groups[opened].kernels.append(event)
            continue
        while begun < len(alone) and alone[begun].begin <= at:
            around.append(alone[begun])
            begun += 1
        while around and around[-1].end < at:
            around.pop()
        told += _give(event, collective_args(around[-1]) if around else None)
    return told + sum(map(_tell_group, groups))


def _parted(ranges: Sequence[Range]) -> tuple[list[_Group], list[Range]]:
    """Groups, and calls in none. Only the end of an outermost group launches."""
    groups: list[_Group] = []
    alone: list[Range] = []
    waiting: list[Range] = []
    depth = 0
    for each in ranges:
        call = group_call(each.text)
        if call == "Start":
            depth += 1
        elif call == "End":
            depth = max(depth - 1, 0)
            if not depth:
                groups.append(_Group(each.begin, each.end, waiting, []))
                waiting = []
        else:
            (waiting if depth else alone).append(each)
    return groups, alone


def _tell_group(group: _Group) -> int:
    calls = [args for each in group.calls if (args := collective_args(each)) is not None]
    if len(calls) == len(group.kernels) and all(map(_fits, calls, group.kernels)):
        return sum(map(_give, group.kernels, calls))
    if len(group.kernels) != 1 or not calls:
        return 0
    kinds = {kind_of(str(each.collective)) for each in calls}
    if kinds <= {*MESSAGES}:
        _give(group.kernels[0], _SEVERAL)
        return 0
    if len(kinds) > 1 or len({each.group for each in calls}) > 1:
        return 0
    return _give(group.kernels[0], _sum(calls))


def _fits(args: Args, kernel: Event) -> bool:
    """Whether a kernel can be a call's, by its name: SendRecv is one of messages and of all-to-alls."""
    own, told = of_kernel(str(kernel.name)).kind, kind_of(str(args.collective))
    return own is None or own == told or (told in MESSAGES and "SendRecv" in str(kernel.name))


def _sum(calls: Sequence[Args]) -> Args:
    """Several collectives of one kind as one."""
    found = Args(collective=calls[0].collective, group=calls[0].group, place=calls[0].place)
    for name in ("in_elements", "out_elements"):
        each = [getattr(call, name) for call in calls]
        if all(type(elements) is int for elements in each):
            sizes = [element_bytes(str(call.element_type)) for call in calls]
            setattr(found, name, sum(elements * size for elements, size in zip(each, sizes, strict=True)))
            found.element_type = _BYTES
    return found


def _give(event: Event, args: Args | None) -> int:
    if args is None or event.args is None:
        return 0
    for name in _TOLD:
        setattr(event.args, name, getattr(args, name))
    return 1
