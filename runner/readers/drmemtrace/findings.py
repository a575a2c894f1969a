"""What is to be said about a drmemtrace: what it leaves out, and what was assumed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from manyscale.models.workload.notes import Errs, Note, changes, forbids, informs
from manyscale.runner.readers.drmemtrace import files
from manyscale.runner.readers.drmemtrace.calls import Calls
from manyscale.runner.readers.drmemtrace.code import is_decoded
from manyscale.runner.readers.drmemtrace.order import Order


class Traced(Protocol):
    """What is asked of a thread."""

    path: Path
    kind: int
    calls: Calls
    is_ended: bool
    num_unsized: int


def notes_of(
    threads: Sequence[Traced], vectors: set[int], orders: Sequence[Order], *, has_encodings: bool
) -> list[Note]:
    """``vectors``: lengths of SVE's registers in bytes; ``orders``: of processes with several threads."""
    text = "times are of the run that recorded accesses, many times slower than the program by itself, waits and all"
    notes = [changes("times-of-instrumented-run", text, errs=Errs.long)]
    kinds = {thread.kind for thread in threads}
    if any(kind & files.FILTERED for kind in kinds):
        text = "what hits a small cache was left out when it was recorded (filtered)"
        notes.append(forbids("trace-filtered", text, errs=Errs.short))
    if any(kind & files.INSTRUCTIONS_ONLY for kind in kinds):
        notes.append(changes("accesses-missing", "loads and stores were not recorded", errs=Errs.short))
    unsized = sum({thread.path: thread.num_unsized for thread in threads}.values())
    if unsized:
        text = f"{unsized} accesses without a size (xsave and its kin) are left out"
        notes.append(changes("accesses-missing", text, count=unsized, errs=Errs.short))
    cut = [thread for thread in threads if not thread.is_ended]
    if cut:
        text = f"{len(cut)} files have no end: the trace was cut short"
        notes.append(changes("trace-cut", text, cut[0].path.name, len(cut), Errs.short))
    if not has_encodings or not is_decoded(kinds):
        text = "the trace has no bytes of its code (version 4 or later has): classes and registers are not known"
        notes.append(changes("instructions-unknown", text, errs=Errs.short))
    if len(vectors) > 1:
        text = (
            f"threads have vectors of {' and '.join(map(str, sorted(vectors)))} bytes: lanes are those of the longest"
        )
        notes.append(changes("vector-lengths-differ", text, count=len(vectors), errs=Errs.long))
    return [*notes, *_of_markers([thread.calls for thread in threads]), *_of_waits(orders)]


def _of_markers(calls: Sequence[Calls]) -> list[Note]:
    notes = []
    of_kernel = sum(each.num_of_kernel for each in calls)
    if of_kernel:
        text = (
            f"{of_kernel} instructions are the kernel's, of system calls and switches of threads: they count as others"
        )
        notes.append(informs("kernel-instructions", text, count=of_kernel))
    windows = max(each.num_windows for each in calls)
    if windows:
        text = f"the trace is of {windows + 1} windows: what the program did between them is not there"
        notes.append(changes("trace-cut", text, count=windows, errs=Errs.short))
    others = sum(each.num_others for each in calls)
    if others:
        text = f"{others} markers are the user's own, or of a later version: left out"
        notes.append(informs("markers-left-out", text, count=others))
    return notes


def _of_waits(orders: Sequence[Order]) -> list[Note]:
    """What is known of how threads wait for each other, over processes with several."""
    if not orders:
        return []
    waits, unknown, blocking, loose = (
        sum(counts) for counts in zip(*((o.num_waits, o.num_unknown, o.num_blocking, o.num_loose) for o in orders),
                                      strict=True)
    )  # fmt: skip
    notes = []
    if waits:
        text = (
            f"threads wait for each other where the kernel let them sleep ({waits} times); what they do until then, as "
            "spin, is work"
        )
        notes.append(informs("thread-waits-recorded", text, count=waits))
    else:
        text = "threads do not wait for each other: the trace does not say where they do"
        notes.append(changes("thread-waits-unknown", text, errs=Errs.short))
    if unknown:
        text = f"{unknown} waits of threads end by what the trace does not show: nothing waits there"
        notes.append(changes("thread-waits-unknown", text, count=unknown, errs=Errs.short))
    if blocking:
        text = f"{blocking} other system calls may wait (input, output, time): nothing waits there"
        notes.append(changes("system-calls-free", text, count=blocking, errs=Errs.short))
    if loose and waits:
        text = f"the trace does not say who created {loose} threads: they begin with the program"
        notes.append(changes("thread-waits-unknown", text, count=loose, errs=Errs.short))
    return notes
