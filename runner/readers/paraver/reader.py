"""The records of a Paraver trace as a workload."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from manyscale.models.workload import MAX_RANKS, Workload
from manyscale.models.workload.notes import Errs, Note, changes, forbids, informs
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
from manyscale.runner.readers.paraver.task_levels import FIRST
from manyscale.runner.readers.unreplayed import calls_left_out, notes_on_calls

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
    labels = labels_beside(path)
    reader = OperationReader(records, groups, labels, num_ranks, header.ps_per_unit)
    tables = reader.tables()
    name = path.name.removesuffix(".gz").removesuffix(".prv")
    notes = _notes(header, records, reader.counts, groups, application)
    plain = Workload(name, num_ranks, tables, notes, NAME)
    if FIRST not in labels.types:
        return plain
    from manyscale.runner.readers.paraver import task_records  # Arrow's reader of text, which few traces need

    return task_records.with_tasks(plain, task_records.tables(path, labels, options.application))


def _notes(
    header: Header, records: Records, counts: Counts, groups: Communicators, application: int
) -> tuple[Note, ...]:
    return (
        *_notes_on_the_file(header, records, application),
        *_notes_on_calls(records, counts),
        *_notes_on_messages(records, counts),
        *_notes_on_collectives(counts, groups),
    )


def _notes_on_the_file(header: Header, records: Records, application: int) -> list[Note]:
    tally = records.tally
    notes = []
    if len(header.threads) > 1:
        text = (
            f"application {application + 1} of {len(header.threads)} is read; the records of the others "
            f"({tally[kernels.OTHER_APPLICATIONS]}) are not"
        )
        notes.append(informs("applications-not-chosen", text, count=len(header.threads) - 1))
    last = int(records.last_time.max(initial=0))
    if last != header.end and len(header.threads) == 1:
        text = f"line 1 says that the trace ends at {header.end}, its records end at {last}, which is taken"
        notes.append(informs("end-of-records", text))
    if header.comments:
        notes.append(changes("trace-cut", f"the trace was cut or filtered: {'; '.join(header.comments)[:200]}"))
    if number := int(tally[kernels.OTHER_THREADS]):
        text = (
            f"only the first thread of each task is read: {number} records of other threads (OpenMP, tasks, GPU "
            "streams) are not"
        )
        notes.append(changes("threads-left-out", text, count=number))
    if number := int(tally[kernels.CALLS_OF_OTHER_THREADS]):
        text = f"{number} MPI calls of threads other than the first are left out"
        notes.append(forbids("calls-lost", text, count=number, errs=Errs.short))
    if number := int(tally[kernels.MESSAGES_OF_OTHER_THREADS]):
        text = f"{number} messages of threads other than the first are left out"
        notes.append(changes("messages-left-out", text, count=number, errs=Errs.short))
    if number := int(tally[kernels.LATE_LINES]):
        text = (
            f"{number} event lines go back in time within their thread; their counters are left out where they precede "
            "an MPI call that was read before them"
        )
        notes.append(changes("counts-incomplete", text, count=number))
    if number := int(tally[kernels.BACKWARD_STATES]):
        text = f"{number} states end before they begin and are left out"
        notes.append(changes("states-left-out", text, count=number))
    if number := int(tally[kernels.RECORDS + 4]):
        text = f"{number} records of type 4 are not read: events tell the same collectives"
        notes.append(informs("records-left-out", text, count=number))
    return notes


def _notes_on_calls(records: Records, counts: Counts) -> list[Note]:
    tally = records.tally
    notes: list[Note] = []
    if not (records["call_group"] > 0).any():
        text = "the trace holds no MPI call: every rank only computes, without communication"
        notes.append(informs("no-mpi-calls", text))
    notes += notes_on_calls(counts.others)
    cut = int(tally[kernels.CUT_AT_BEGIN]), int(tally[kernels.CUT_AT_END])
    if any(cut):
        text = f"{cut[0]} calls began before the trace (not replayed) and {cut[1]} went on after it"
        notes.append(changes("trace-cut", text, count=sum(cut)))
    if number := int(tally[kernels.NEVER_ENDED]):
        text = f"{number} MPI calls have no end and are taken to last until the next one"
        notes.append(changes("ends-guessed", text, count=number))
    return notes


def _notes_on_messages(records: Records, counts: Counts) -> list[Note]:
    tally = records.tally
    messages = int(tally[kernels.RECORDS + 3])
    notes = []
    if counts.point_to_point and not messages:
        text = (
            f"the trace holds no message (no record of type 3) although it has {counts.point_to_point} point-to-point "
            "calls: they are kept with their times, but a replay of it leaves all messages out"
        )
        notes.append(forbids("no-messages", text, count=counts.point_to_point, errs=Errs.short))
    elif counts.alone:
        notes.append(calls_left_out("calls without a message in the trace (to no rank, or beyond a cut)", counts.alone))
    if counts.halves:
        text = (
            f"{counts.halves} sendrecvs have one message in the trace: the other half (to no rank, or lost) is not "
            "replayed"
        )
        notes.append(changes("calls-left-out", text, count=counts.halves, errs=Errs.short))
    if number := counts.homeless + counts.one_end:
        text = (
            f"{number} of {messages} messages are left out: no MPI call of the trace sends or receives them (cut off, "
            "doubled, persistent requests, or a runtime other than MPI)"
        )
        notes.append(changes("messages-left-out", text, count=number, errs=Errs.short))
    if number := int(tally[kernels.MESSAGES_BETWEEN_APPLICATIONS]):
        text = f"{number} messages between applications are left out"
        notes.append(changes("messages-left-out", text, count=number, errs=Errs.short))
    if messages > counts.homeless + counts.one_end:
        text = "the communicator of messages is not recorded: all are on the world"
        notes.append(informs("messages-on-the-world", text))
    if counts.overtaking:
        text = (
            f"{counts.overtaking} messages are received in another order than sent by the same rank with the same tag: "
            "they were on different communicators; a replay matches them in the order of the sends"
        )
        notes.append(changes("messages-in-order-of-sends", text, count=counts.overtaking))
    if counts.guessed_waits:
        text = f"{counts.guessed_waits} receives were completed by the first wait that ended after their message"
        notes.append(changes("waits-guessed", text, count=counts.guessed_waits))
    if counts.never_completed:
        text = f"{counts.never_completed} requests are never waited for in the trace"
        notes.append(changes("waits-missing", text, count=counts.never_completed, errs=Errs.short))
    return notes


def _notes_on_collectives(counts: Counts, groups: Communicators) -> list[Note]:
    cut = len(groups.cut)
    found = (
        changes("communicators-cut", f"{cut} communicators list tasks that the application does not have; these are "
                "left out of them", count=cut),
        changes("collectives-without-communicator", f"{counts.undeclared} collectives are on a communicator that is "
                "not declared; the world is taken", count=counts.undeclared),
        changes("collectives-left-out", f"{counts.collectives_cut} collectives lack some of their members (cut off) "
                "and are not replayed", count=counts.collectives_cut, errs=Errs.short),
        changes("roots-guessed", f"{counts.without_root} rooted collectives have no root in the trace; the first "
                "member is taken", count=counts.without_root),
        changes("sizes-spread", f"{counts.spread} calls of alltoallv record totals only, which are spread evenly over "
                "the members", count=counts.spread),
    )  # fmt: skip
    return [note for note in found if note.count]
