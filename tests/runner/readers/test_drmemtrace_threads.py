"""How threads of DynamoRIO's traces wait for each other: by the kernel's rules for futexes, and in one of its
samples."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from manyscale.models.workload import Workload
from manyscale.models.workload.task_tables import DependenceKind
from manyscale.runner.readers import drmemtrace
from manyscale.runner.readers.drmemtrace.files import RECORD

SAMPLES = Path(__file__).parents[2] / "data" / "drmemtrace"
Records = list[tuple[int, int, int]]
PLAIN, THREAD, PROCESS, HEADER, FOOTER, MARKER = 10, 22, 24, 25, 26, 28
TIME, FUNCTION, ARGUMENT, RETURNED, KIND, WINDOW, CALL, BLOCKS, FAILED, SWITCH, UNSCHEDULE, SCHEDULE = (
    2, 4, 6, 7, 9, 14, 25, 26, 30, 31, 37, 38,
)  # fmt: skip
READ, FUTEX, CLONE = 0, 202, 56
WAIT, WAKE, REQUEUE, CMP_REQUEUE, WAIT_PRIVATE, WAKE_BITS_PRIVATE = 0, 1, 3, 4, 0x80, 0x8A
LOCK, OTHER = 0x7000, 0x7100


def begin(thread: int, time: int, version: int = 6) -> Records:
    return [
        (HEADER, 0, version), (MARKER, KIND, 0x40), (THREAD, 4, thread), (PROCESS, 4, 1), (MARKER, TIME, time)
    ]  # fmt: skip


def work(*addresses: int) -> Records:
    return [(PLAIN, 4, address) for address in addresses]


def call(number: int, from_us: int, to_us: int, *markers: tuple[int, int], at: int = 0x500) -> Records:
    """The instruction that calls, and markers (kind, value) between its two times."""
    inside = [(MARKER, kind, value) for kind, value in markers]
    return [(PLAIN, 2, at), (MARKER, TIME, from_us), (MARKER, CALL, number), *inside, (MARKER, TIME, to_us)]


def futex(from_us: int, to_us: int, address: int, operation: int, value: int, returned: int, other: int = 0) -> Records:
    of = (FUNCTION, (1 << 32) + FUTEX)
    arguments = [(ARGUMENT, each) for each in (address, operation, value, 0, other, 0)]
    failed = [(FAILED, -returned)] if returned < 0 else []
    markers = [(BLOCKS, 0), of, *arguments, of, (RETURNED, returned & (1 << 64) - 1), *failed]
    return call(FUTEX, from_us, to_us, *markers)


def read(folder: Path, *threads: Records) -> Workload:
    for number, records in enumerate(threads):
        (folder / f"{number}.trace").write_bytes(np.array([*records, (FOOTER, 0, 0)], RECORD).tobytes())
    return drmemtrace.read(folder)


def pieces(workload: Workload) -> list[tuple[int, int]]:
    """(thread, instructions) of each piece, in the order of task instances."""
    rows = workload.tables["segments"].to_pylist()
    assert [row["task_instance_id"] for row in rows] == list(range(1, len(rows) + 1))
    return [(row["thread"], row["num_instructions"]) for row in rows]


def follows(workload: Workload) -> dict[int, list[int]]:
    """The task instances that each follows, by the rules of OpenMP's dependences."""
    written: dict[int, int] = {}
    found: dict[int, list[int]] = {}
    for row in workload.tables["task_dependences"].to_pylist():
        if row["kind"] == DependenceKind.depend_in:
            found.setdefault(row["task_instance_id"], []).append(written[row["address"]])
        else:
            written[row["address"]] = row["task_instance_id"]
    return found


def codes(workload: Workload) -> dict[str, int | None]:
    return {note.code: note.count for note in workload.notes}


@pytest.mark.theory
def test_a_thread_is_created_waits_is_woken_and_joined(tmp_path: Path) -> None:
    """Thread 1 creates 2, which waits for a futex that 1 wakes; then 1 waits for the end of 2. The pieces of 1: [work,
    clone] [work, wake] [work, join] [work]; of 2: [work, wait] [work]."""
    workload = read(
        tmp_path,
        [
            *begin(1, 100), *work(0x10, 0x14), *call(CLONE, 110, 112), *work(0x20), *futex(150, 151, LOCK, WAKE, 1, 1),
            *work(0x30), *futex(155, 175, OTHER, WAIT, 2, 0), *work(0x40), (MARKER, TIME, 180),
        ],
        [*begin(2, 115), *work(0x60), *futex(130, 152, LOCK, WAIT, 7, 0), *work(0x70, 0x74), (MARKER, TIME, 170)],
    )  # fmt: skip
    assert pieces(workload) == [(0, 3), (0, 2), (1, 2), (0, 2), (1, 2), (0, 1)]
    assert follows(workload) == {2: [1], 3: [1], 4: [2], 5: [2, 3], 6: [4, 5]}
    # from 100 to 110, 110 to 150, 115 to 130, 150 to 155, 152 to 170, 175 to 180: waits take no time of their own
    assert [each // 10**6 for each in workload.column("tasks", "cpu_ps")] == [0, 10, 40, 15, 5, 18, 5]
    assert codes(workload)["thread-waits-recorded"] == 2
    assert "thread-waits-unknown" not in codes(workload)
    assert workload.detail is not None
    batch = workload.detail.read(4, 5)
    assert workload.column("blocks", "offset")[batch.block_ids].tolist() == [0x70]


@pytest.mark.theory
def test_the_kernel_wakes_who_came_first(tmp_path: Path) -> None:
    """3 came before 2, so that the first wake is its; 4 left without having slept (EAGAIN), 5 was interrupted (EINTR),
    and both wait for nobody. The second wake is of all (two asked for, one there). That the value which 2 waits with is
    a thread's number is chance: ends of threads wake none that waits privately."""
    workload = read(
        tmp_path,
        [
            *begin(1, 100), *work(0x10), *futex(200, 201, LOCK, WAKE_BITS_PRIVATE, 1, 1),
            *futex(210, 211, LOCK, WAKE, 2, 1), *work(0x14), (MARKER, TIME, 220),
        ],
        [*begin(2, 100), *futex(150, 215, LOCK, WAIT_PRIVATE, 1, 0), *work(0x20)],
        [*begin(3, 100), *futex(140, 205, LOCK, WAIT, 7, 0), *work(0x30)],
        [*begin(4, 100), *futex(130, 131, LOCK, WAIT, 7, -11), *work(0x40)],
        [*begin(5, 100), *futex(120, 190, LOCK, WAIT, 7, -4), *work(0x50)],
    )  # fmt: skip
    told, after = pieces(workload), follows(workload)
    assert [sum(thread == one for thread, _ in told) for one in range(5)] == [3, 2, 2, 1, 1]
    place = {(thread, [t for t, _ in told[:number]].count(thread)): number + 1
             for number, (thread, _) in enumerate(told)}  # fmt: skip
    assert after == {
        place[0, 1]: [place[0, 0]],
        place[0, 2]: [place[0, 1]],
        place[2, 1]: sorted([place[0, 0], place[2, 0]]),
        place[1, 1]: sorted([place[0, 1], place[1, 0]]),
    }
    # what interrupted 5; nobody was seen to create the others
    assert [note.count for note in workload.notes if note.code == "thread-waits-unknown"] == [1, 4]


@pytest.mark.theory
@pytest.mark.parametrize("operation", [REQUEUE, CMP_REQUEUE])
def test_waiters_that_are_moved_are_woken_elsewhere(tmp_path: Path, operation: int) -> None:
    """Of two waiters one is woken at once, the other one moved to the second futex, which thread 4 wakes."""
    workload = read(
        tmp_path,
        [*begin(1, 100), *futex(120, 121, LOCK, operation, 1, 2, OTHER), *work(0x10)],
        [*begin(2, 100), *futex(110, 125, LOCK, WAIT, 7, 0), *work(0x20)],
        [*begin(3, 100), *futex(111, 140, LOCK, WAIT, 7, 0), *work(0x30)],
        [*begin(4, 100), *futex(130, 131, OTHER, WAKE, 1, 1), *work(0x40)],
    )
    threads = [thread for thread, _ in pieces(workload)]
    after = follows(workload)
    woken_by = {
        threads[number - 1]: threads[other - 1]
        for number, others in after.items()
        for other in others
        if threads[other - 1] != threads[number - 1]
    }
    assert woken_by == {1: 0, 2: 3}


@pytest.mark.theory
def test_switches_of_the_program_itself(tmp_path: Path) -> None:
    """Thread 1 lets 2 go on and sleeps; 2 lets 1 go on, and sleeps for ever."""
    workload = read(
        tmp_path,
        [*begin(1, 100), *work(0x10), *call(READ, 120, 140, (BLOCKS, 0), (SWITCH, 2)), *work(0x20)],
        [
            *begin(2, 100), *call(READ, 105, 125, (BLOCKS, 0), (UNSCHEDULE, 0)), *work(0x30),
            *call(READ, 135, 136, (SCHEDULE, 1)), *work(0x40),
        ],
    )  # fmt: skip
    assert pieces(workload) == [(0, 2), (1, 1), (1, 2), (1, 1), (0, 1)]
    assert follows(workload) == {3: [1, 2], 4: [3], 5: [1, 3]}
    assert "system-calls-free" not in codes(workload)


@pytest.mark.theory
def test_older_traces_have_one_time_behind_a_call(tmp_path: Path) -> None:
    """Before version 6 the time behind a call is that before it, and the next one that of its end."""

    def old(from_us: int, to_us: int, *rest: tuple[int, int, int]) -> Records:
        made = futex(0, from_us, *rest[0], *rest[1])  # type: ignore[misc]
        return [*made[:1], *made[2:], (MARKER, TIME, to_us)]

    workload = read(
        tmp_path,
        [*begin(1, 100, 5), *work(0x10), *old(150, 150, (LOCK, WAKE, 1), (1, 0)), *work(0x14)],
        [*begin(2, 100, 5), *old(120, 160, (LOCK, WAIT, 7), (0, 0)), *work(0x20)],
    )
    assert pieces(workload) == [(0, 2), (1, 1), (0, 1), (1, 1)]
    assert follows(workload) == {3: [1], 4: [1, 2]}


@pytest.mark.theory
def test_waits_that_would_close_a_circle_are_unknown(tmp_path: Path) -> None:
    """Damaged times: each of two threads was woken by what the other one did behind its own wait. All pieces are there,
    and what is left of the order has no circle."""
    workload = read(
        tmp_path,
        [*begin(1, 100), *futex(110, 110, LOCK, WAIT, 7, 0), *futex(110, 110, OTHER, WAKE, 1, 1), *work(0x10)],
        [*begin(2, 100), *futex(110, 110, OTHER, WAIT, 7, 0), *futex(110, 110, LOCK, WAKE, 1, 1), *work(0x20)],
    )
    assert sorted(pieces(workload)) == [(0, 1)] * 3 + [(1, 1)] * 3
    assert all(other < number for number, others in follows(workload).items() for other in others)
    assert codes(workload)["thread-waits-recorded"] == 1


@pytest.mark.theory
def test_what_else_markers_say_is_a_note(tmp_path: Path) -> None:
    """Two of six instructions are the kernel's, of a trace that begins where a call ends; the second window begins
    after a gap; one marker is the user's own."""
    workload = read(
        tmp_path,
        [
            *begin(1, 100), (MARKER, 28, 0), (MARKER, WINDOW, 0), *work(0x10, 0x14), *call(READ, 110, 112, (BLOCKS, 0)),
            (MARKER, 27, 0), *work(0xFFFFFFFF81000000, 0xFFFFFFFF81000004), (MARKER, 28, 0), *work(0x18),
            (MARKER, WINDOW, 1), (MARKER, 101, 5),
        ],
    )  # fmt: skip
    assert workload.column("segments", "num_instructions").tolist() == [6]
    found = codes(workload)
    assert (found["kernel-instructions"], found["trace-cut"], found["markers-left-out"]) == (2, 1, 1)


@pytest.mark.peer
def test_who_woke_whom_in_a_sample_of_dynamorio() -> None:
    """Nine threads after 2,000 iterations with signals. By the times and arguments in the files: at one futex 902, 901,
    903, 894 and 884 begin to wait in this order (...270223, 270242, 270260, 270318 and 275653 us); 904 wakes one, and
    each that goes on wakes the next, the last one nobody. At another 903 and 905 wait, 904 and 906 wake one each. The
    first thread waits for the end of 884."""
    workload = drmemtrace.read(SAMPLES / "threadsig-calls.trace.gz")
    names = [805, 884, 894, 901, 902, 903, 904, 905, 906]
    threads = [names[thread] for thread, _ in pieces(workload)]
    woken = sorted(
        (threads[number - 1], threads[other - 1])
        for number, others in follows(workload).items()
        for other in others
        if threads[other - 1] != threads[number - 1]
    )
    chain = [(902, 904), (901, 902), (903, 901), (894, 903), (884, 894)]
    assert woken == sorted([*chain, (903, 904), (905, 906), (805, 884)])
    assert codes(workload)["thread-waits-recorded"] == 8
