"""Which snapshots are of threads that wait, and which threads run a framework's tasks."""

from __future__ import annotations

from pathlib import Path

import pytest
from stack_counts import leaves
from test_jfr import event, printed
from told import told

from manyscale.models.workload import Workload
from manyscale.runner.errors import UserError
from manyscale.runner.readers.options import ReadOptions
from manyscale.runner.readers.stacks import folded, jfr
from manyscale.runner.readers.stacks.idle import executor_stacks, idle_stacks
from manyscale.runner.study import WorkloadChoice
from manyscale.runner.study.traces import read_workload

POOL = ("java.lang.Thread.run", "java.util.concurrent.ThreadPoolExecutor.runWorker")
TASK = "org.apache.spark.executor.Executor$TaskRunner.run"


@pytest.mark.parametrize(("stack", "is_idle"), [
    ((*POOL, "java.util.concurrent.ThreadPoolExecutor.getTask", "java.util.concurrent.LinkedBlockingQueue.poll"), True),
    (POOL, True),  # between two tasks
    ((*POOL, "A.run", "A.compute"), False),
    ((*POOL, "A.run", "java.lang.Object.wait"), True),
    (("java/lang/Thread/run", "jdk/internal/misc/Unsafe.park"), True),  # as async-profiler writes names
    (("A.main", "java.util.concurrent.locks.LockSupport.parkNanos", "jdk.internal.misc.Unsafe.park"), True),
    (("A.main", "java.util.concurrent.locks.AbstractQueuedSynchronizer.acquire"), False),  # takes a lock
    (("io.netty.channel.nio.NioEventLoop.run", "sun.nio.ch.EPollSelectorImpl.doSelect", "sun.nio.ch.EPoll.wait"), True),
    (("io.netty.channel.nio.NioEventLoop.run", "A.channelRead"), False),
    (("A.main", "java.util.PriorityQueue.poll"), False),
    (("A.main", "java.util.concurrent.ForkJoinPool.awaitWork"), True),
    (("main", "poll"), False),  # C: time of a processor was counted, so it worked
    ((), False),
])  # fmt: skip
def test_stacks_on_which_a_thread_waits(stack: tuple[str, ...], is_idle: bool) -> None:
    names = list(dict.fromkeys(stack))
    assert idle_stacks([[names.index(one) for one in stack]], names).tolist() == [is_idle]


def test_a_pattern_of_the_user() -> None:
    names = ["A.main", "A.spin", "A.work"]
    assert idle_stacks([[0, 1], [0, 2]], names, r"\.spin$").tolist() == [True, False]


def test_executors_of_a_framework() -> None:
    names = ["java.lang.Thread.run", TASK, "A.work"]
    framework, runs = executor_stacks([[0, 1, 2], [0, 2]], names)
    assert (framework, runs.tolist()) == ("Spark", [True, False])
    assert executor_stacks([[0, 2]], names) == ("", pytest.approx([False]))


def spark(folder: Path, options: ReadOptions) -> Workload:
    """Two executors, one of which waits at times, and two other threads."""
    times = [f"2026-11-28T05:54:01.{k:03d}Z" for k in range(40)]
    task, idle = ["A.work", TASK, "java.lang.Thread.run"], [POOL[1], POOL[0]]
    events = [event(time, task, "worker-1") for time in times[:10]] + [event(times[10], idle, "worker-1")]
    events += [event(time, task, "worker-22") for time in times[:5]]
    events += [event(time, ["B.schedule", "java.lang.Thread.run"], "dag-scheduler") for time in times[:7]]
    events += [event(time, ["B.main"], "main") for time in times[:3]]
    path = folder / "a.json"
    path.write_text(printed(*events))
    return jfr.read(path, options)


def test_threads_beside_the_executors_are_left_out(tmp_path: Path) -> None:
    workload = spark(tmp_path, ReadOptions())
    assert leaves(workload) == {"A.work": 15}
    assert set(workload.tables["stack_units"].column("thread_name").to_pylist()) == {"worker-1", "worker-22"}
    notes = "\n".join(told(workload.notes))
    assert "a.json: 1 samples of waiting threads are left out" in notes
    assert "10 samples of 2 threads that run no task of Spark are left out (dag-scheduler 7, main 3)" in notes
    assert "--set workload.threads=. keeps them" in notes


@pytest.mark.parametrize(("options", "expected"), [
    (ReadOptions(threads="."), {"A.work": 15, "B.schedule": 7, "B.main": 3}),
    (ReadOptions(threads="^main"), {"B.main": 3}),
    (ReadOptions(threads=".", idle="B[.]schedule"), {"A.work": 15, "B.main": 3}),
])  # fmt: skip
def test_what_a_user_chooses(tmp_path: Path, options: ReadOptions, expected: dict[str, int]) -> None:
    assert leaves(spark(tmp_path, options)) == expected


@pytest.mark.contract
@pytest.mark.parametrize(("options", "said"), [
    (ReadOptions(threads="nobody"), "no thread's name matches 'nobody'; there are dag-scheduler, main, worker-1"),
    (ReadOptions(threads=".", idle="."), r"in all its samples threads wait; is workload.idle \('.'\) too wide"),
])  # fmt: skip
def test_choices_that_leave_nothing(tmp_path: Path, options: ReadOptions, said: str) -> None:
    with pytest.raises(UserError, match=said):
        spark(tmp_path, options)


def test_other_formats_take_the_same_choice(tmp_path: Path) -> None:
    path = tmp_path / "a.folded"
    path.write_text("main;work 7\nmain;java.lang.Thread.sleep 5\nmain;spin 3\n")
    assert leaves(folded.read(path)) == {"work": 7, "spin": 3}
    assert leaves(folded.read(path, ReadOptions(idle="^spin"))) == {"work": 7}


def test_units_that_are_cut_lose_no_snapshots(tmp_path: Path) -> None:
    path = tmp_path / "a.stk"
    path.write_text("M\t0\tf\nS\t0\t1\t0\n")
    for choice in (WorkloadChoice(path=str(path), idle="f"), WorkloadChoice(path=str(path), threads="1")):
        with pytest.raises(UserError, match="format unit-stacks has none, or in units that are cut already"):
            read_workload(choice)
