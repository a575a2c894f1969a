"""The reader of perf script's text."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from stack_counts import counters, leaves, stacks
from told import told

from manyscale.models.workload import Workload
from manyscale.runner.errors import UserError
from manyscale.runner.readers.stacks import perf_script
from manyscale.runner.readers.stacks.units import UnitRules

CASES = Path(__file__).parents[2] / "data" / "stacks"
FRAMES = "\t    55d0c0a1 inner+0x12 (/usr/bin/app)\n\t    55d0c0b1 main+0x3 (/usr/bin/app)\n\n"


def read(folder: Path, text: str, **rules: object) -> Workload:
    path = folder / "a.txt"
    path.write_text(text)
    return perf_script.read(path, rules=UnitRules(**rules))  # type: ignore[arg-type]


def sample(time: str, event: str = "cpu-clock", period: int = 1_000_000, thread: str = "app 7/7", cpu: int = 0) -> str:
    return f"{thread} [{cpu:03d}] {time}: {period:10d} {event}: \n{FRAMES}"


class TestHeader:
    @pytest.mark.parametrize(
        ("header", "name", "known"),
        [
            ("app 7 [001] 12.000250: 250000 cpu-clock: ", "app", True),
            ("app 7/8 [001] 12.000250: 250000 cpu-clock: ", "app", True),
            ("app     7 12.000250: 250000 cpu-clock:u: ", "app", True),
            ("app 7 12.000250123: 250000 task-clock:ppp:", "app", True),
            ("Web Content 12 7/8 [001] 12.000250: 250000 cpu-clock:", "Web Content 12", True),
            (":77 77 12.000250: 250000 task-clock/period=1/u:", ":77", True),
            ("7 12.000250: 250000 cpu-clock:", "7", True),
            ("            app 7/8 [001] 12.000250: 250000 cpu-clock:", "app", True),
            ("app 7 12.000250: cycles:", "app", False),
            ("app 7 12.000250: ", "app", False),
            ("app 7 cycles:", "app", False),
            ("            app 7 [001] cycles:u:", "app", False),
            ("app 7/8 250000 cpu-clock:", "app", True),
            ("app 7/8 U     12.000250: 250000 cpu-clock: ", "app", True),
            ("app 7/8 [001] KH 12.000250: 250000 cpu-clock: ", "app", True),
            ("app 12.000250: 250000 cpu-clock: ", "app", True),
            ("Web Content [001] 12.000250: 250000 cpu-clock: ", "Web Content", True),
            ("app 7 12.000250: 250000 cpu/event=0x3c,umask=0x0/:", "app", False),
            ("app 7 12.000250: 1 sched:sched_switch: prev_comm=app prev_pid=7 ==> next_comm=b", "app", False),
        ],
    )
    def test_variants(self, tmp_path, header, name, known):
        workload = read(tmp_path, f"{header}\n{FRAMES}")
        assert perf_script.can_read(tmp_path / "a.txt")
        assert stacks(workload) == [("main", "inner")]
        assert workload.tables["stack_units"].column("thread_name").to_pylist() == [name]
        assert workload.column("stack_units", "cpu_ps").tolist() == [250_000_000 if known else -1]

    def test_samples_without_a_thread_are_of_one_for_each_command(self, tmp_path):
        text = "".join(f"{comm} 1.00000{k}: 5 cycles:\n{FRAMES}" for k, comm in enumerate("abab"))
        workload = read(tmp_path, text, merge=False)
        assert workload.tables["stack_units"].column("thread_name").to_pylist() == ["a", "b"]
        assert any("name no thread" in note for note in told(workload.notes))

    def test_comments_of_the_recording_are_passed_over(self, tmp_path):
        text = "# ========\n# captured on    : Sun Nov 29\n# cmdline : /usr/bin/perf record -g\n#\n\n" + sample("1.000")
        assert stacks(read(tmp_path, text)) == [("main", "inner")]
        assert perf_script.can_read(tmp_path / "a.txt")

    def test_times_are_exact(self, tmp_path):
        text = "".join(
            f"a 7 {time}: 1 cycles:\n{FRAMES}" for time in ("8000000.000001", "8000000.000002500", "8000001.0")
        )
        with pytest.raises(UserError, match=":9: is neither"):
            read(tmp_path, text)
        workload = read(tmp_path, text.replace("8000001.0:", "8000001.000000:"))
        assert workload.column("stack_samples", "time_ps").tolist() == [0, 1_500_000, 999_999_000_000]

    def test_instructions_give_units_of_instructions(self, tmp_path):
        text = "".join(sample(f"1.{k:06d}", "instructions:u", 10_000_000) for k in range(25))
        units = read(tmp_path, text).tables["stack_units"]
        assert units.column("num_instructions").to_pylist() == [100_000_000, 100_000_000, 50_000_000]
        assert units.column("cpu_ps").to_pylist() == [-1] * 3
        halves = read(tmp_path, text, instructions=50_000_000).tables["stack_units"]
        assert halves.column("num_instructions").to_pylist() == [50_000_000] * 5

    def test_other_events_are_counters_of_the_unit_that_they_fall_into(self, tmp_path):
        text = sample("1.000000", "instructions/period=10/u", 10) + sample("1.000500", "cycles", 30)
        text += sample("1.001000", "instructions", 10) + sample("1.001000", "cpu/cycles/u", 7)
        text += (
            sample("1.001500", "cycles", 50) + sample("1.002000", "instructions", 10) + sample("1.009", "cycles:u", 5)
        )
        text += sample("1.000700", "cycles", 1000, "other 9/9")
        workload = read(tmp_path, text, snapshots=2)
        assert workload.column("stack_units", "num_instructions").tolist() == [20, 10]
        assert counters(workload) == {(0, 0, 0): {"cycles": 37.0}, (0, 0, 1): {"cycles": 55.0}}


class TestFrames:
    @pytest.mark.parametrize(
        ("line", "name"),
        [
            ("\t            11a9 alpha+0x28 (/tmp/p)", "alpha"),
            ("\t            11a9 alpha (/tmp/p)", "alpha"),
            ("\t            11a9 alpha", "alpha"),
            ("\t            11a9 std::map<int, char>::f(int) const+0x1 (/tmp/p)", "std::map<int, char>::f(int) const"),
            ("\t            11a9 operator()(int)+0x1 (/tmp/my app (1)/p)", "operator()(int)"),
            ("\t            11a9 main::{lambda()#1}::operator() (inlined)", "main::{lambda()#1}::operator()"),
            ("\t    7f0c2d5e1be4 Lorg/a/B;::run+0x44 (/tmp/perf-12.map)", "Lorg/a/B;::run"),
            ("\t               0 [unknown] ([unknown])", "[unknown]"),
            ("\t    7f0c2d5e1be4 [unknown] (/usr/lib/libc.so.6)", "[libc.so.6]"),
            ("\t    7f0c2d5e1be4 [unknown] (/dev/shm/a (deleted))", "[a]"),
            ("\tffffffff81a00191 asm_exc_page_fault+0x21 ([kernel.kallsyms])", "asm_exc_page_fault"),
            ("\tffffffff81a00191 [unknown] ([kernel.kallsyms])", "[kernel.kallsyms]"),
            ("\t    7f0c2d5e1be4 (/usr/lib/libc.so.6)", "[libc.so.6]"),
            ("\t    7f0c2d5e1be4", "[unknown]"),
        ],
    )
    def test_variants(self, tmp_path, line, name):
        workload = read(tmp_path, f"app 7 1.000000: 5 cycles:\n{line}\n{line.replace('11a9', '11b0')}\n\n")
        assert stacks(workload) == [(name, name)]

    def test_a_source_line_behind_a_frame_is_passed_over(self, tmp_path):
        text = (
            "app 7 1.000000: 5 cycles:\n\t    11a9 f+0x1 (/p)\n  app.c:12\n\t    11b9 main+0x1 (/p)\n  my app.c:20\n\n"
        )
        assert stacks(read(tmp_path, text)) == [("main", "f")]

    def test_without_call_stacks_the_only_frame_is_in_the_header(self, tmp_path):
        text = "app 7 1.000000: 5 cycles:  11a9 f+0x1 (/p)\napp 7 1.000100: 5 cycles:  ffff11a9 [unknown] (/q)\n"
        assert stacks(read(tmp_path, text)) == [("f",), ("[q]",)]

    @pytest.mark.parametrize(
        "branches",
        [
            " 0x4005d0/0x4005e0/P/-/-/0  0x4005d8/0x4005c0/M/-/-/12 ",
            "  0x4005d0/0x4005e0/P/X/A/3/COND/-",
            " inner+0x12/main+0x3/P/-/-/1  operator new(unsigned long)+0x1/f+0x0/-/-/-/0 ",
            " ABI:2    AX:0xffff    BX:0x1",
        ],
    )
    def test_branches_and_registers_are_no_frames(self, tmp_path, branches):
        text = sample("1.000").rstrip("\n") + f"\n{branches}\n\n" + sample("1.001")
        assert stacks(read(tmp_path, text)) == [("main", "inner")] * 2

    def test_branches_behind_the_only_frame(self, tmp_path):
        text = "app 7 1.000000: 5 cycles:  11a9 f+0x1 (/p)  0x4005d0/0x4005e0/P/-/-/0  0x1/0x2/M/-/-/0 \n"
        assert stacks(read(tmp_path, text)) == [("f",)]
        assert stacks(read(tmp_path, text.replace("1.000000: 5 ", ""))) == [("f",)]
        assert perf_script.can_read(tmp_path / "a.txt")

    def test_samples_without_a_stack_are_kept_and_told_of(self, tmp_path):
        workload = read(tmp_path, "app 7 1.000000: 5 cycles:\n\n" + sample("1.1", "cycles").replace("1.1:", "1.100:"))
        assert stacks(workload) == [("[unknown]",), ("main", "inner")]
        assert any("1 samples without a stack" in note for note in told(workload.notes))

    def test_no_blank_line_between_samples(self, tmp_path):
        text = "# a comment\n" + (sample("1.000") + sample("1.001")).replace("\n\n", "\n")
        assert stacks(read(tmp_path, text)) == [("main", "inner")] * 2


class TestThreads:
    def test_short_threads_of_a_core_are_merged(self, tmp_path):
        spans = [("exec 7/71", 0, 0), ("exec 7/72", 0, 20), ("exec 7/73", 1, 10), ("main 7/7", 0, 40)]
        text = "".join(
            sample(f"1.{begin + k:03d}", thread=thread, cpu=cpu) for thread, cpu, begin in spans for k in range(8)
        )
        workload = read(tmp_path, text)
        units = workload.tables["stack_units"].to_pylist()
        assert [(unit["thread"], unit["thread_name"], unit["cpu_ps"] // 10**9) for unit in units] == [
            (0, "exec", 10),
            (0, "exec", 6),
            (1, "exec", 8),
            (2, "main", 8),
        ]
        assert workload.column("phases", "duration_ps").tolist() == [47 * 10**9]
        apart = read(tmp_path, text, merge=False).tables["stack_units"]
        assert apart.column("thread").to_pylist() == [0, 1, 2, 3]

    def test_threads_chosen_by_name(self, tmp_path):
        text = sample("1.000", thread="exec 7/71") + sample("1.001", thread="main 7/7")
        workload = read(tmp_path, text, threads="^exec")
        assert workload.tables["stack_units"].column("thread_name").to_pylist() == ["exec"]
        assert workload.column("phases", "duration_ps").tolist() == [10**9]
        with pytest.raises(UserError, match="no thread's name matches 'worker'; there are exec, main"):
            read(tmp_path, text, threads="worker")


OLD = (
    "java 19983 cycles:\n\t    7f7241fbe6d8 a(B) const (/opt/libjvm.so)\n\t    7f7241239aec main (/opt/libjava.so)\n\n"
    "java 19983 cycles:\n\t    7f7241239aec main (/opt/libjava.so)\n\n"
)


def test_what_perf_printed_before_it_had_times(tmp_path):
    """perf 3.2, and -F comm,pid,event,ip,sym,dso of later ones."""
    for text in (OLD, OLD.replace("\t", " " * 8), OLD.replace("\n", "\r\n")):
        workload = read(tmp_path, text)
        assert perf_script.can_read(tmp_path / "a.txt")
        assert stacks(workload) == [("main", "a(B) const"), ("main",)]


@pytest.mark.peer
def test_a_real_recording():
    """As perf report counts it (SOURCES.md); the file itself says which threads switched how often."""
    path = CASES / "threads.perf.txt.gz"
    assert perf_script.can_read(path)
    workload = perf_script.read(path)
    assert leaves(workload) == {"beta": 71, "alpha": 52, "_raw_spin_unlock_irqrestore": 1, "page_counter_uncharge": 1}
    units = workload.tables["stack_units"]
    assert units.column("thread").to_pylist() == [0] * 13  # one after another on one core
    assert units.column("cpu_ps").to_pylist() == [10**10] * 12 + [5 * 10**9]
    text = gzip.decompress(path.read_bytes()).decode()
    headers = [line for line in text.splitlines() if not line.startswith("\t") and line.strip()]
    workers = {line.split()[1] for line in headers if "task-clock" in line}
    switches = sum("context-switches" in line and line.split()[1] in workers for line in headers)
    assert sum(values["context-switches"] for values in counters(workload).values()) == switches > 0
    # the threads run beta, alpha, beta, alpha
    order = [stack[-1] for stack in stacks(workload) if stack[-1] in ("alpha", "beta")]
    assert [name for index, name in enumerate(order) if index == 0 or order[index - 1] != name] == ["beta", "alpha"] * 2


@pytest.mark.contract
@pytest.mark.parametrize(
    ("text", "said"),
    [
        (sample("1.000") + "hello world\n", r":5: is neither the header of a sample .* got 'hello world'"),
        ("app 7 1.000000: 5 cycles:\n\t11a9 f (\n", r":2: is no frame"),
        ("app 7 1.000000: cycles:\n" + FRAMES + "app 7 1.000000: faults:\n" + FRAMES, "several events"),
        ("# only a comment\n", "has no samples"),
        ("PERFILE2\x00\x01", "perf script -i a.txt"),
    ],
)
def test_errors(tmp_path, text, said):
    with pytest.raises(UserError, match=said) as caught:
        read(tmp_path, text)
    assert "\n" not in str(caught.value)


def test_other_files_are_not_taken(tmp_path):
    path = tmp_path / "a.txt"
    for text in (
        "",
        "hello\n",
        "0 compute 5\n0 send 1 0 8\n",
        "a;b 3\n",
        "main: \n\tline\n",
        "num_ranks 2\nrank 0 {\n",
    ):
        path.write_text(text)
        assert not perf_script.can_read(path), text
    assert not perf_script.can_read(tmp_path)
    path.write_bytes(b"PERFILE2....")
    assert perf_script.can_read(path)
