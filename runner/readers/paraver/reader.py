"""The records of a Paraver trace as a workload."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from manyscale.models.workload import MAX_RANKS, Workload
from manyscale.models.workload.quantities import MOST_PS
from manyscale.runner.errors import UserError
from manyscale.runner.readers.archive import guarded, open_stream
from manyscale.runner.readers.options import DEFAULT_OPTIONS, ReadOptions
from manyscale.runner.readers.paraver import record_kernels as kernels
from manyscale.runner.readers.paraver.collectives import Communicators, communicators
from manyscale.runner.readers.paraver.header import Header, read_header
from manyscale.runner.readers.paraver.label_files import labels_beside
from manyscale.runner.readers.paraver.operations import Counts, OperationReader
from manyscale.runner.readers.paraver.records import RecordReader, Records

NAME: Final = "paraver"


def read(path: Path, options: ReadOptions = DEFAULT_OPTIONS) -> Workload:
    """The workload of ``options.application``. Memory: that of the tables and the trace's messages and states, not of
    the text. Raises UserError, one line with the file and the line in it, for anything that cannot be read."""
    with guarded(path), open_stream(path) as stream:
        header = read_header(path, stream)
        application = options.application - 1
        if not 0 <= application < len(header.threads):
            raise UserError(
                f"{path}: there is no application {options.application}; the trace has {len(header.threads)}"
            )
        num_ranks = len(header.threads[application])
        if num_ranks > MAX_RANKS:
            raise UserError(f"{path}:1: {num_ranks} tasks; at most {MAX_RANKS} ranks can be replayed")
        records = RecordReader(str(path), header, application).read(header.first, stream)
    last = int(records.last_time.max(initial=0))
    if last > MOST_PS // header.ps_per_unit:
        raise UserError(f"{path}: the trace goes on for more than 53 days; its times or its unit are wrong")
    groups = communicators(header.communicators[application], num_ranks)
    reader = OperationReader(records, groups, labels_beside(path), num_ranks, header.ps_per_unit)
    tables = reader.tables()
    name = path.name.removesuffix(".gz").removesuffix(".prv")
    notes = _notes(header, records, reader.counts, groups, application)
    return Workload(name, num_ranks, tables, notes, NAME)


def _notes(
    header: Header, records: Records, counts: Counts, groups: Communicators, application: int
) -> tuple[str, ...]:
    return (
        *_notes_on_the_file(header, records, application),
        *_notes_on_calls(records, counts),
        *_notes_on_messages(records, counts),
        *_notes_on_collectives(counts, groups),
    )


def _notes_on_the_file(header: Header, records: Records, application: int) -> list[str]:
    tally = records.tally
    notes = []
    if len(header.threads) > 1:
        notes.append(
            f"application {application + 1} of {len(header.threads)} is read; the records of the others "
            f"({tally[kernels.OTHER_APPLICATIONS]}) are not"
        )
    last = int(records.last_time.max(initial=0))
    if last != header.end and len(header.threads) == 1:
        notes.append(f"line 1 says that the trace ends at {header.end}, its records end at {last}, which is taken")
    if header.comments:
        notes.append(f"the trace was cut or filtered: {'; '.join(header.comments)[:200]}")
    if tally[kernels.OTHER_THREADS]:
        notes.append(
            f"only the first thread of each task is read: {tally[kernels.OTHER_THREADS]} records of other threads "
            "(OpenMP, tasks, GPU streams) are not"
        )
    calls, messages = tally[kernels.CALLS_OF_OTHER_THREADS], tally[kernels.MESSAGES_OF_OTHER_THREADS]
    if calls or messages:
        notes.append(f"{calls} MPI calls and {messages} messages of threads other than the first are left out")
    if tally[kernels.LATE_LINES]:
        notes.append(
            f"{tally[kernels.LATE_LINES]} event lines go back in time within their thread; their counters are left out "
            "where they precede an MPI call that was read before them"
        )
    if tally[kernels.BACKWARD_STATES]:
        notes.append(f"{tally[kernels.BACKWARD_STATES]} states end before they begin and are left out")
    if tally[kernels.RECORDS + 4]:
        notes.append(f"{tally[kernels.RECORDS + 4]} records of type 4 are not read: events tell the same collectives")
    return notes


def _notes_on_calls(records: Records, counts: Counts) -> list[str]:
    tally = records.tally
    notes = []
    if not (records["call_group"] > 0).any():
        notes.append("the trace holds no MPI call: every rank only computes, without communication")
    if counts.others:
        listed = ", ".join(f"{name} ({number})" for name, number in sorted(counts.others.items()))
        notes.append(f"MPI calls that are kept with their times but not replayed: {listed}")
    cut = tally[kernels.CUT_AT_BEGIN], tally[kernels.CUT_AT_END]
    if any(cut):
        notes.append(f"{cut[0]} calls began before the trace (not replayed) and {cut[1]} went on after it")
    if tally[kernels.NEVER_ENDED]:
        notes.append(f"{tally[kernels.NEVER_ENDED]} MPI calls have no end and are taken to last until the next one")
    return notes


def _notes_on_messages(records: Records, counts: Counts) -> list[str]:
    tally = records.tally
    messages = int(tally[kernels.RECORDS + 3])
    notes = []
    if counts.point_to_point and not messages:
        notes.append(
            f"THE TRACE HOLDS NO MESSAGE (no record of type 3) although it has {counts.point_to_point} point-to-point "
            "calls: they are kept with their times, but a replay of it leaves all messages out"
        )
    elif counts.alone:
        listed = ", ".join(f"{number} {name}" for name, number in counts.alone.items())
        notes.append(f"calls without a message in the trace (to no rank, or beyond a cut), not replayed: {listed}")
    if counts.homeless or counts.one_end:
        notes.append(
            f"{counts.homeless + counts.one_end} of {messages} messages are left out: no MPI call of the trace sends "
            "or receives them (cut off, persistent requests, or a runtime other than MPI)"
        )
    if tally[kernels.MESSAGES_BETWEEN_APPLICATIONS]:
        notes.append(f"{tally[kernels.MESSAGES_BETWEEN_APPLICATIONS]} messages between applications are left out")
    if messages > counts.homeless + counts.one_end:
        notes.append("the communicator of messages is not recorded: all are on the world")
    if counts.overtaking:
        notes.append(
            f"{counts.overtaking} messages are received in another order than sent by the same rank with the same tag: "
            "they were on different communicators; a replay matches them in the order of the sends"
        )
    if counts.guessed_waits:
        notes.append(f"{counts.guessed_waits} receives were completed by the first wait that ended after their message")
    if counts.never_completed:
        notes.append(f"{counts.never_completed} requests are never waited for in the trace")
    return notes


def _notes_on_collectives(counts: Counts, groups: Communicators) -> list[str]:
    notes = []
    if groups.cut:
        notes.append(
            f"{len(groups.cut)} communicators list tasks that the application does not have; these are left out of them"
        )
    if counts.undeclared:
        notes.append(f"{counts.undeclared} collectives are on a communicator that is not declared; the world is taken")
    if counts.collectives_cut:
        notes.append(f"{counts.collectives_cut} collectives lack some of their members (cut off) and are not replayed")
    if counts.without_root:
        notes.append(f"{counts.without_root} rooted collectives have no root in the trace; the first member is taken")
    if counts.spread:
        notes.append(f"{counts.spread} calls of alltoallv record totals only, which are spread evenly over the members")
    return notes
