"""The detailed level of several processes under QEMU, whose tracer inside said which segment is of which operation,
event and task instance (``runner/tracers/native/emulated.c``)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from manyscale.models.workload.notes import Errs, Note, changes
from manyscale.runner.errors import UserError
from manyscale.runner.readers.qemu_trace.reader import Executions, KnownCode, Traced
from manyscale.runner.readers.raw_trace.detail import task_stacks
from manyscale.runner.readers.raw_trace.files import Process
from manyscale.runner.readers.stores.detail_store import DetailStore, DetailWriter
from manyscale.runner.readers.stores.traced_blocks import TracedBlocks

ENDING: Final = ".emulated"
_MARK: Final = np.dtype([("num_operations", "<u4"), ("num_events", "<u4"), ("task", "<u4")])


def build(processes: Sequence[Process], store: Path) -> tuple[dict[str, pa.Table], DetailStore, list[Note]]:
    """(tables ``blocks``, ``instructions``, ``block_accesses``, ``segments``, ``task_stacks``; the stream, written to
    ``store``; notes). The emulator's file of a process lies beside its own, named by its number.

    ``operation_id`` and ``event_id`` of the segments count the process's own records of calls and events. Raises
    UserError for damaged files.
    """
    known, blocks, writer = KnownCode(), TracedBlocks(), DetailWriter(store)
    notes: list[Note] = []
    entries: set[int] = set()
    for process in processes:
        path = process.path.parent / f"{process.start.get('process')}{ENDING}"
        if not path.is_file():
            raise UserError(f"{path}: the emulator left no trace of rank {process.rank}; trace the program again")
        trace = Traced(path)
        executed = Executions(trace, known, blocks, writer)
        _read(process, executed, writer, notes)
        entries |= executed.entries
        where = f"rank {process.rank}"
        notes += [Note(each.code, each.severity, each.text, where, each.count, each.errs)
                  for each in (*executed.notes, *trace.endings())]  # fmt: skip
    tables = known.tables(blocks, entries, notes)
    segments, detail = writer.close()
    return {**tables, "segments": segments, "task_stacks": task_stacks(processes, segments)}, detail, notes


def _read(process: Process, executed: Executions, writer: DetailWriter, notes: list[Note]) -> None:
    content = b"".join(process.detail_chunks())
    if len(content) % _MARK.itemsize:
        raise UserError(f"{process.path}: a mark of the detailed level is cut short; trace the program again")
    marks = np.frombuffer(content, _MARK)
    counted = written = lost = 0
    for number, _ in enumerate(executed.segments()):
        counted += 1
        if executed.num_instructions == written:
            continue  # nothing was executed since the one before
        if number >= len(marks):
            lost += 1
            continue
        operations, events, task = (int(each) for each in marks[number])
        count = executed.num_instructions - written
        writer.end_segment(process.rank, 0, operations, events, task, count)
        written = executed.num_instructions
    if executed.num_instructions > written:  # killed or stopped, or its last marks are lost
        last = marks[-1] if len(marks) else np.zeros(1, _MARK)[0]
        events = min(int(last["num_events"]), len(process.events))
        operations = min(int(last["num_operations"]), len(process.operations))
        writer.end_segment(process.rank, 0, operations, events, int(last["task"]), executed.num_instructions - written)
    if lost:
        text = f"{lost} segments that the tracer did not write down stand with the last one it did"
        notes.append(changes("segments-lost", text, f"rank {process.rank}", lost, Errs.unknown))
