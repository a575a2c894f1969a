"""The reader of Java Flight Recorder's samples: recordings, printed JSON, lists with tasks beside them."""

from __future__ import annotations

import csv
import gzip
import io
import json
import lzma
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import zstandard
from stack_counts import counters, leaves, stacks
from told import told

from manyscale.models.workload import Workload
from manyscale.runner.errors import UserError
from manyscale.runner.readers.stacks import jfr
from manyscale.runner.readers.stacks.units import UnitRules

CASES = Path(__file__).parents[2] / "data" / "stacks"
LISTED = "M\t0\tA.main\nM\t1\tA.f\nM\t2\tsun.nio.ch.Net.accept\nM\t3\tjava.util.zip.Inflater.inflateBytesBytes\n"


def event(
    time: str, methods: list[str], thread: str = "main", kind: str = "jdk.ExecutionSample", **changes: Any
) -> dict[str, Any]:
    """An event with the fields that the reader wants, and some more."""
    frames = [
        {"method": {"type": {"name": name.rpartition(".")[0].replace(".", "/")}, "name": name.rpartition(".")[2]}}
        for name in methods
    ]
    values = {
        "startTime": time,
        "sampledThread": {"osName": thread, "javaName": thread, "javaThreadId": len(thread), "group": None},
        "stackTrace": {"truncated": False, "frames": frames},
        "state": "STATE_RUNNABLE",
    }
    return {"type": kind, "values": values | changes}


def printed(*events: dict[str, Any], indent: int | None = 2) -> str:
    return json.dumps({"recording": {"events": list(events)}}, indent=indent)


def read(folder: Path, text: str, name: str = "a.json", **rules: Any) -> Workload:
    path = folder / name
    path.write_text(text)
    assert jfr.can_read(path)
    return jfr.read(path, rules=UnitRules(**rules))


@pytest.mark.parametrize("indent", [None, 2])
def test_events(tmp_path, indent):
    text = printed(
        event("2026-11-28T05:54:01.626651045Z", ["a.b.C.leaf", "a.b.C$D.main"]),
        event("2026-11-28T06:54:01.626652+01:00", ["a.b.C$D.main"]),
        indent=indent,
    )
    workload = read(tmp_path, text)
    assert stacks(workload) == [("a.b.C$D.main", "a.b.C.leaf"), ("a.b.C$D.main",)]
    assert workload.column("stack_samples", "time_ps").tolist() == [0, 955_000]
    assert workload.column("stack_units", "cpu_ps").tolist() == [-1]
    assert workload.tables["stack_units"].column("thread_name").to_pylist() == ["main"]


def test_events_longer_than_what_is_read_at_once(tmp_path, monkeypatch):
    text = printed(*(event(f"2026-11-28T05:54:01.{k:03d}Z", [f"A.m{k % 7}", "A.main"]) for k in range(50)))
    whole = read(tmp_path, text)
    monkeypatch.setattr(jfr, "_CHUNK_CHARACTERS", 17)
    assert read(tmp_path, text).digest == whole.digest


def test_waiting_threads_do_not_count(tmp_path):
    native = "jdk.NativeMethodSample"
    text = printed(
        event("2026-11-28T05:54:01.1Z", ["A.work"], "worker"),
        event("2026-11-28T05:54:01.2Z", ["java.util.zip.Inflater.inflateBytesBytes"], "worker", native),
        event("2026-11-28T05:54:01.3Z", ["sun.nio.ch.EPoll.wait"], "worker", native),
        event("2026-11-28T05:54:01.4Z", ["A.work"], "worker", state="STATE_SLEEPING"),
        event("2026-11-28T05:54:01.5Z", ["some.Native.call"], "another", native),
    )
    workload = read(tmp_path, text)
    assert leaves(workload) == {"A.work": 1, "java.util.zip.Inflater.inflateBytesBytes": 1}
    assert any("3 samples of waiting threads" in note for note in told(workload.notes))
    chosen = read(tmp_path, text, threads="another")
    assert leaves(chosen) == {"some.Native.call": 1}


def of_states(*states: object, kind: str = "jdk.ExecutionSample", **changes: Any) -> str:
    """A thread's samples in these states, one after another; without the field where a state is left out."""
    events = [event(f"2026-11-28T05:54:{k:02d}.1Z", ["A.work"], kind=kind, state=state, **changes)
              for k, state in enumerate(states)]  # fmt: skip
    for each in events:
        if each["values"]["state"] is Ellipsis:
            del each["values"]["state"]
    return printed(*events)


class TestStates:
    @pytest.mark.parametrize(
        ("states", "kept"),
        [
            (["STATE_DEFAULT"] * 40, 40),  # async-profiler, CPU time
            (["STATE_DEFAULT"] * 35 + ["STATE_RUNNABLE"] * 5, 40),
            (["STATE_RUNNABLE", "STATE_SLEEPING", "STATE_SLEEPING"], 1),  # async-profiler, wall-clock time
            (["STATE_RUNNABLE", "STATE_IN_OBJECT_WAIT", "STATE_IN_OBJECT_WAIT_TIMED", "STATE_PARKED",
              "STATE_PARKED_TIMED", "STATE_BLOCKED_ON_MONITOR_ENTER", "STATE_NEW", "STATE_TERMINATED"], 1),  # the JDK
            (["RUNNABLE", "runnable", "WAITING", "TIMED_WAITING", "BLOCKED", "PARKED"], 2),  # java.lang.Thread.State
            ([None, "", ..., "STATE_UNKNOWN"], 4),
            ([{"name": "STATE_DEFAULT"}, {"name": "STATE_SLEEPING"}], 1),
        ],
    )  # fmt: skip
    def test_only_what_waits_is_left_out(self, tmp_path, states, kept):
        workload = read(tmp_path, of_states(*states))
        assert leaves(workload) == {"A.work": kept}
        lost = len(states) - kept
        assert any(f"{lost} samples of waiting threads" in note for note in told(workload.notes)) is bool(lost)
        assert all(note.code == "waiting-left-out" for note in workload.notes)

    def test_a_state_that_nobody_knows_is_told_of(self, tmp_path):
        workload = read(tmp_path, of_states("STATE_DEFAULT", "STATE_SPINNING", "STATE_SPINNING", 7))
        assert leaves(workload) == {"A.work": 4}
        (note,) = workload.notes
        assert str(note.severity) == "changes"
        assert "3 samples in states that are not known count as running (7 1, SPINNING 2)" in note.text

    def test_a_thread_that_runs_does_not_wait_whatever_its_method(self, tmp_path):
        """async-profiler takes samples of CPU time of threads on a core alone; the JDK takes them of all."""
        park = ["sun.misc.Unsafe.park", "java.util.concurrent.locks.LockSupport.park", "A.work"]
        states = ["STATE_DEFAULT", "STATE_RUNNABLE", "STATE_DEFAULT"]
        text = printed(*(event(f"2026-11-28T05:54:0{k}.1Z", park[k // 2 :], state=state)
                         for k, state in enumerate(states)))  # fmt: skip
        assert sum(leaves(read(tmp_path, text)).values()) == 2
        with pytest.raises(UserError, match="in all its samples threads wait"):
            read(tmp_path, text, idle="park")

    def test_native_methods_in_any_running_state(self, tmp_path):
        native = json.loads(of_states("STATE_DEFAULT", ..., "STATE_SLEEPING", kind="jdk.NativeMethodSample"))
        java = json.loads(of_states("STATE_DEFAULT"))
        workload = read(tmp_path, printed(*java["recording"]["events"], *native["recording"]["events"]))
        assert leaves(workload) == {"A.work": 3}

    def test_lists(self, tmp_path):
        text = LISTED + "".join(f"S\t{k}\tt\t0\t{state}\t1,0\n" for k, state in
                                enumerate(["STATE_DEFAULT", "", "RUNNABLE", "STATE_PARKED"]))  # fmt: skip
        assert leaves(read(tmp_path, text, "a_jfr_stacks.tsv")) == {"A.f": 3}


class TestKinds:
    WALL, CPU = "profiler.WallClockSample", "jdk.CPUTimeSample"

    def test_wall_clock_samples_that_stand_for_several(self, tmp_path):
        text = of_states("STATE_RUNNABLE", "STATE_SLEEPING", "STATE_RUNNABLE", kind=self.WALL, samples=3)
        workload = read(tmp_path, text)
        assert leaves(workload) == {"A.work": 6}
        assert any("3 samples of waiting threads" in note for note in told(workload.notes))

    def test_samples_of_cpu_time_name_their_thread_otherwise(self, tmp_path):
        content = json.loads(of_states(..., ..., kind=self.CPU))
        for each in content["recording"]["events"]:
            each["values"]["eventThread"] = each["values"].pop("sampledThread")
        assert leaves(read(tmp_path, json.dumps(content))) == {"A.work": 2}

    def test_the_same_work_counts_once(self, tmp_path):
        both = [json.loads(of_states("STATE_RUNNABLE", kind=kind)) for kind in (self.WALL, "jdk.ExecutionSample")]
        workload = read(tmp_path, printed(*(each for one in both for each in one["recording"]["events"])))
        assert leaves(workload) == {"A.work": 1}
        assert any("1 samples of other kinds" in note for note in told(workload.notes))


def test_a_method_without_a_name_is_unknown(tmp_path):
    content = json.loads(of_states("STATE_DEFAULT"))
    content["recording"]["events"][0]["values"]["stackTrace"]["frames"].append({"method": None})
    assert stacks(read(tmp_path, json.dumps(content))) == [("[unknown]", "A.work")]


def test_names_of_lambdas_are_those_of_every_run(tmp_path):
    names = ["W$$Lambda$129+0x00007f2824007a08.1162918744.run", "W$$Lambda$14/0x0000000800c03000.run"]
    names += ["W$$Lambda/0x00007f2824007a08.run"]
    text = printed(*(event(f"2026-11-28T05:54:01.{k}Z", [name]) for k, name in enumerate(names)))
    assert leaves(read(tmp_path, text)) == {"W$$Lambda.run": 3}


def test_stacks_cut_by_the_printer_are_told_of(tmp_path):
    workload = read(tmp_path, printed(event("2026-11-28T05:54:01Z", [f"A.f{k}" for k in range(5)])))
    assert any("--stack-depth" in note for note in told(workload.notes))
    workload = read(tmp_path, printed(event("2026-11-28T05:54:01Z", [f"A.f{k}" for k in range(6)])))
    assert not workload.notes


@pytest.mark.peer
def test_what_the_jdk_printed():
    """193 execution samples (jfr summary); those of native methods are of a thread that waits for a connection."""
    path = CASES / "threads.jfr.json.xz"
    assert jfr.can_read(path)
    workload = jfr.read(path)
    assert sum(leaves(workload).values()) == 193
    assert set(leaves(workload)) == {"T.alpha", "T.beta"}
    assert any("225 samples of waiting threads" in note for note in told(workload.notes))
    order = [stack[-1] for stack in stacks(workload)]
    assert order == sorted(order)  # alpha, then beta; its thread is merged with the first
    assert set(workload.column("stack_units", "thread").tolist()) == {0}
    apart = jfr.read(path, rules=UnitRules(merge=False))
    assert apart.tables["stack_units"].column("thread_name").unique().to_pylist() == ["pool-0", "pool-1"]


class TestLists:
    def test_samples(self, tmp_path):
        text = LISTED + "S\t1000\tt1\t0\tSTATE_RUNNABLE\t1,0\nS\t2500\tt1\t1\tSTATE_RUNNABLE\t2,0\n"
        text += "S\t2000\tt1\t1\tSTATE_RUNNABLE\t3,0\n"
        workload = read(tmp_path, text, "a_jfr_stacks.tsv")
        assert workload.name == "a"
        assert stacks(workload) == [("A.main", "A.f"), ("A.main", "java.util.zip.Inflater.inflateBytesBytes")]
        assert workload.column("stack_samples", "time_ps").tolist() == [0, 1_000_000]

    def test_tasks_are_shared_among_the_units_of_their_thread(self, tmp_path):
        times = range(0, 100, 10)
        text = LISTED + "".join(f"S\t{time}\tx-{t}\t0\tSTATE_RUNNABLE\t1,0\n" for t in (1, 2) for time in times)
        (tmp_path / "a_tasks.csv").write_text(
            "stage,task,thread,start_ns,end_ns,items\nmap,0,x-1,30,50,20\nmap,1,y,0,9,5\n"
        )
        workload = read(tmp_path, text, "a_jfr_stacks.tsv", snapshots=5)
        # units of x-1: from 0 to 40, and from there to 90
        assert counters(workload) == {(0, 0, 0): {"task_items": 10.0}, (0, 0, 1): {"task_items": 10.0}}
        assert any("1 tasks ran on threads without samples" in note for note in told(workload.notes))

    def test_tasks_of_a_merged_thread_go_with_it(self, tmp_path):
        text = LISTED + "".join(f"S\t{k}\tx-{k // 10}\t0\tSTATE_RUNNABLE\t1,0\n" for k in range(20))
        (tmp_path / "a_tasks.csv").write_text("thread,start_ns,end_ns,items\nx-0,0,9,3\nx-1,10,19,4\n")
        workload = read(tmp_path, text, "a_jfr_stacks.tsv", snapshots=20)
        assert counters(workload) == {(0, 0, 0): {"task_items": 7.0}}

    def test_tasks_without_threads_are_told_of(self, tmp_path):
        (tmp_path / "a_tasks.csv").write_text("stage,launch_ms\n1,2\n")
        workload = read(tmp_path, LISTED + "S\t1000\tt1\t0\tSTATE_RUNNABLE\t1,0\n", "a_jfr_stacks.tsv")
        assert any("cannot be joined" in note for note in told(workload.notes))

    @pytest.mark.peer
    def test_a_real_word_count(self):
        workload = jfr.read(CASES / "wc2_jfr_stacks.tsv.gz")
        lines = [line.split(b"\t") for line in lzma_or_gzip(CASES / "wc2_jfr_stacks.tsv.gz").splitlines()]
        samples = [line for line in lines if line[0] == b"S"]
        assert workload.tables["stack_samples"].num_rows == len(samples) == 400
        assert set(workload.tables["stack_units"].column("thread_name").to_pylist()) == {"exec-15", "exec-16", "main"}
        tasks = list(csv.DictReader(io.StringIO((CASES / "wc2_tasks.csv").read_text())))
        total = sum(values.get("task_items", 0.0) for values in counters(workload).values())
        # tasks before the first or after the last sample of their thread are lost
        assert total == pytest.approx(sum(float(task["items"]) for task in tasks), rel=0.02)


def lzma_or_gzip(path: Path) -> bytes:
    from manyscale.runner.readers.archive import open_stream

    with open_stream(path) as stream:
        return stream.read()


JAVA = """
public class Two {
    static double alpha(long n) { double s = 0; for (long i = 1; i < n; i++) s += 1.0 / i; return s; }
    public static void main(String[] words) { System.out.println(alpha(150000000L)); }
}
"""


@pytest.mark.peer
@pytest.mark.slow
def test_a_recording_is_printed_by_the_jdk(tmp_path):
    for tool in ("java", "jfr"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    (tmp_path / "Two.java").write_text(JAVA)
    command = ["java", "-XX:StartFlightRecording=settings=profile,filename=a.jfr", "Two.java"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    path = tmp_path / "a.jfr"
    assert jfr.can_read(path)
    workload = jfr.read(path)
    summary = subprocess.run(["jfr", "summary", path], capture_output=True, text=True, check=True).stdout
    taken = {words[0]: int(words[1]) for words in map(str.split, summary.splitlines()) if len(words) == 3}
    note = next((note for note in workload.notes if "waiting" in note), "x: 0 samples")
    waiting = int(note.split(": ")[1].split()[0])
    total = sum(leaves(workload).values()) + waiting
    assert total == taken["jdk.ExecutionSample"] + taken["jdk.NativeMethodSample"]
    assert leaves(workload)["Two.alpha"] > 0
    whole = leaves(workload)
    for name, pack in (("a.jfr.gz", gzip.compress), ("b.jfr.xz", lzma.compress), ("c.jfr.zst", zstandard.compress)):
        packed = tmp_path / name
        packed.write_bytes(pack(path.read_bytes()))
        assert jfr.can_read(packed)
        assert leaves(jfr.read(packed)) == whole
    path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(UserError, match=r"a\.jfr: 'jfr print' cannot read the recording") as caught:
        jfr.read(path)
    assert "\n" not in str(caught.value)


def test_without_the_tool_its_package_is_named(tmp_path, monkeypatch):
    path = tmp_path / "a.jfr"
    path.write_bytes(b"FLR\0\0\2\0\1" + bytes(100))
    monkeypatch.setenv("PATH", os.fspath(tmp_path))
    with pytest.raises(UserError, match="default-jdk-headless"):
        jfr.read(path)


GOOD = event("2026-11-28T05:54:01Z", ["A.f"])


@pytest.mark.contract
@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.json", printed(GOOD, GOOD)[:-60], r"event 2 is damaged or cut short"),
        ("a.json", printed(GOOD).rsplit("]", 1)[0], r"event 2 is damaged or cut short"),
        ("a.json", printed(GOOD, event("yesterday", ["A.f"])), r"event 2 is no sample .*yesterday"),
        ("a.json", printed(GOOD, {"type": "jdk.ExecutionSample"}), r"event 2 is no sample"),
        ("a.json", printed(), "has no samples"),
        ("a.json", printed({"type": "jdk.CPULoad", "values": {}}), "has no samples"),
        ("a_jfr_stacks.tsv", LISTED + "S\t1\tt\t0\tX\t1,9\n", r":5: no line before names frame '9'"),
        ("a_jfr_stacks.tsv", LISTED + "S\t1\tt\t0\tX\t1\nS\tx\tt\t0\tX\t1\n", r":6: a sample is 'S time_ns"),
        ("a_jfr_stacks.tsv", LISTED + "S\t1\tt\t0\tX\t1\nwhat\n", r":6: is neither a frame"),
    ],
)
def test_errors(tmp_path, name, text, said):
    with pytest.raises(UserError, match=said) as caught:
        read(tmp_path, text, name)
    assert "\n" not in str(caught.value)


def test_a_cut_archive(tmp_path):
    path = tmp_path / "a.json.xz"
    path.write_bytes(lzma.compress(printed(*[GOOD] * 50).encode())[:-30])
    with pytest.raises(UserError, match="damaged or cut short"):
        jfr.read(path)


def test_other_files_are_not_taken(tmp_path):
    path = tmp_path / "a"
    for text in ("", "{}", '{"events": []}', "M\t1\n", "M\t0\tf\nS\t0\t1\t0\n", "hello\n"):
        path.write_text(text)
        assert not jfr.can_read(path), text
    assert not jfr.can_read(tmp_path)
