"""The reader of Callgrind's parts: units, stacks of callers, cycles."""

from __future__ import annotations

import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from stack_counts import counters, stacks
from told import told

from manyscale.runner.errors import UserError
from manyscale.runner.readers.stacks import callgrind
from manyscale.sampling.simprof.stack_population import stack_units_of

EVENTS = "Ir I1mr D1mr D1mw ILmr DLmr DLmw Bcm Bim"
HEAD = f"# callgrind format\nversion: 1\ncreator: callgrind-3.19.0\npositions: line\nevents: {EVENTS}\n"
MAIN = "fn=(1) main\n0 4000 1 2 3 1 1 1 4\ncfn=(2) work'main\ncalls=1 0\n0 9000 9 9 9 9 9 9 9 9\n"
WORK = "fn=(2)\n0 6000\n+3 1000 0 10\n* 1000\nfn=(3) leaf'work'2'main\n0 8000 0 0 0 0 0 5\n"


def written(folder: Path, text: str) -> Path:
    path = folder / "callgrind.out"
    path.write_text(text)
    return path


def test_a_part(tmp_path: Path) -> None:
    """What a call cost is not counted at the caller; a level of recursion is no frame."""
    workload = callgrind.read(
        written(tmp_path, f"{HEAD}\nob=(1) /bin/a\nfl=(1) a.c\n{MAIN}fl=(1)\n{WORK}\ntotals: 9\n")
    )
    assert stacks(workload) == [("main",), ("main", "work"), ("main", "work", "leaf")]
    assert workload.column("stack_samples", "weight").tolist() == [4, 8, 8]
    assert workload.column("stack_units", "num_instructions").tolist() == [20_000]
    (found,) = counters(workload).values()
    # 20,000 + 10 x (1 + 12 + 3 L1 misses + 4 mispredicted) + 100 x (1 + 6 + 1 last-level misses)
    assert found["cycles"] == 20_000 + 10 * (1 + 12 + 3 + 4) + 100 * (1 + 6 + 1)
    assert found["D1mr"] == 12
    assert any("one part" in note for note in told(workload.notes))


def test_parts_make_units_of_nearly_one_length(tmp_path: Path) -> None:
    """As many as have the instructions of the largest (10,000); the last, of less than half, joins the one before."""
    sizes = [3000, 5000, 4000, 10_000, 6000, 3000, 2000, 4000]
    parts = [f"part: {k}\npositions: line\nevents: Ir\nfn=(1) f'main\n0 {size}\n" for k, size in enumerate(sizes, 1)]
    workload = callgrind.read(written(tmp_path, "# callgrind format\nversion: 1\n" + "".join(parts)))
    assert workload.column("stack_units", "num_instructions").tolist() == [12_000, 10_000, 15_000]
    assert workload.column("stack_samples", "weight").tolist() == [12, 10, 15]
    assert any("cycles are not known" in note for note in told(workload.notes))
    assert stack_units_of(workload).cpi is None


# of `valgrind --tool=callgrind --dump-every-bb=20000` on a program of three loops: instructions of its 17 parts
MEASURED = [111424, 724602, *[801287] * 4, 801279, 801287, 801278, 801287, 801295, *[801287] * 4, 650617, 1257]


@pytest.mark.parametrize(
    ("sizes", "units"),
    [
        (MEASURED, [111424 + 724602, *MEASURED[2:15], 650617 + 1257]),
        ([1000, 999, 1001, 1000], [1000, 999, 1001, 1000]),
        ([500, 500, 1000, 400, 500, 1001, 100], [1000, 1000, 900, 1101]),
        ([1000], [1000]),
        ([1000, 1], [1001]),
    ],
)
def test_parts_a_little_below_the_largest_are_units(tmp_path: Path, sizes: list[int], units: list[int]) -> None:
    """None is joined with the next one because it is some instructions shorter than the largest."""
    parts = [f"part: {k}\npositions: line\nevents: Ir\nfn=(1) f'main\n0 {size}\n" for k, size in enumerate(sizes, 1)]
    workload = callgrind.read(written(tmp_path, "# callgrind format\nversion: 1\n" + "".join(parts)))
    assert workload.column("stack_units", "num_instructions").tolist() == units


# The same costs in ways that the grammar allows: 5 + 6 instructions of main, 7 of work
SAME = {
    "ids": "events: Ir\nfl=(1) a.c\nfn=(1) main\n3 5\ncfn=(2) work'main\ncalls=1 9\n4 7\n+1 6\nfn=(2)\n9 7\n",
    "ids at once": "events: Ir\nfn= (1)main\n3 5\ncfn=(2)work'main\ncalls=1 9\n4 7\n* 6\nfn=(2)\n9 7\n",
    "no ids": "events: Ir\nfn=main\n3 5\ncfi=b.c\ncfn=work'main\ncalls=1 9\n4 7\n5 6\nfl=b.c\nfn=work'main\n9 7\n",
    "tabs": "events: Ir\nfn=main\n3\t5\n4\t6\nfn=work'main\n9\t7\n",
    "hexadecimal": "positions: instr\nevents: Ir\nfn=main\n0xbadcafe 5\n+0x1f 0x6\nfn=work'main\n-0x10 7\n",
    "two positions": "positions: instr line\nevents: Ir\nob=/bin/a\nfn=main\n0x10 3 5\njump=2 0x30 4\n0x14 *\n"
    "jcnd=1/5 +3 +1\n* *\ncob=/bin/a\ncfn=work'main\ncalls=1 0x90 9\n0x18 4 7\n+4 * 6\nfn=work'main\n0x90 9 7\n",
    "events in another order": "events: Dr Ir\nfn=main\n3 1 5\n4 0 6\n5 9\nfn=work'main\n9 2 7\n",
    "derived events": "event: sum = Ir + Dr : All\nevents: Ir Dr\nfn=main\n3 5 1\n4 6\nfn=work'main\n9 7 0\n",
    "parts without numbers": "events: Ir\nfn=main\n3 5\ntotals: 5\n\nevents: Ir\nfn=main\n3 6\nfn=work'main\n9 7\n",
    "events of all parts": "events: Ir\npart: 1\nfn=main\n3 5\n4 6\npart: 2\nfn=work'main\n9 7\n",
    "sums": "summary: 18\nevents: Ir\nsummary: 18\nfn=main\n3 11\nfn=work'main\n9 7\ntotals: 18\n",
    "comments": "# by hand\n\nevents:  Ir \n# more\nfn=main\n\n3 11\n# and more\nfn=work'main\n9 7\n",
    "cachegrind": "desc: I1 cache: 1\ncmd: a\nevents: Ir\nfl=a.c\nfn=main\n3 11\nfn=work'main\n9 7\nsummary: 18\n",
}


@pytest.mark.parametrize("how", SAME)
def test_optional_parts_of_the_grammar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    monkeypatch.setattr(callgrind, "SNAPSHOT", 1)
    for ending in ("\n", "\r\n"):
        path = written(tmp_path, SAME[how].replace("\n", ending))
        assert callgrind.can_read(path)
        workload = callgrind.read(path)
        found: Counter[tuple[str, ...]] = Counter()
        for stack, weight in zip(stacks(workload), workload.column("stack_samples", "weight").tolist(), strict=True):
            found[stack] += weight
        assert found == {("main",): 11, ("main", "work"): 7}
        assert not any("are not there" in note for note in told(workload.notes))


@pytest.mark.parametrize(
    "name", ["(below main)", "(anonymous namespace)::f(int)", "operator new(unsigned long)", "0x12"]
)
def test_names_without_numbers(tmp_path: Path, name: str) -> None:
    workload = callgrind.read(written(tmp_path, f"events: Ir\nfn={name}'main\n0 5000\n"))
    assert stacks(workload) == [("main", name)]


@pytest.mark.parametrize("sums", ["summary: 9000", "totals: 9000", "summary: 8000\nfn=g\n0 0\ntotals: 9000"])
def test_costs_that_a_file_lost_are_told_of(tmp_path: Path, sums: str) -> None:
    """As of a file that was cut short."""
    workload = callgrind.read(written(tmp_path, f"events: Ir\nfn=f\n0 6000\n{sums}\n"))
    assert any("3000 of 9000 instructions" in note for note in told(workload.notes))


def test_threads_have_units_of_their_own(tmp_path: Path) -> None:
    parts = [f"part: {k}\nthread: {thread}\npositions: line\nevents: Ir\nfn=(1) f'main\n0 5000\n"
             for k, thread in enumerate((1, 2, 1), 1)]  # fmt: skip
    workload = callgrind.read(written(tmp_path, "# callgrind format\nversion: 1\n" + "".join(parts)))
    assert workload.column("stack_units", "thread").tolist() == [0, 0, 1]
    assert workload.column("stack_units", "unit_id").tolist() == [0, 1, 0]


@pytest.mark.contract
@pytest.mark.parametrize(("text", "said"), [
    (HEAD, "has no costs"),
    (f"{HEAD}0 17\n", r":6: is no cost of a function; got '0 17'"),
    (f"{HEAD}fn=(7)\n0 5\n", r":6: no line before names function \(7\)"),
    (f"{HEAD}fn=(1) f\n0 1 2 3 4 5 6 7 8 9 10\n", r":7: is no cost of a function"),
    (HEAD.replace("Ir ", "Dr ") + MAIN, r":5: no event is Ir, instructions, but Dr, I1mr"),
    (f"{HEAD}{MAIN}what is this\n", r":11: is no line of callgrind's; got 'what is this'"),
    (f"{HEAD}fn=(1) f\n0 5\ncalls=1 0\nfn=(2) g\n0 5\n", r":9: 'calls=' is not followed by what they cost"),
    (f"{HEAD}fn=f\n0 -5\n", r":7: is no cost of a function"),
    (f"{HEAD}fn=f\n0 {2**63}\n", r":7: is no cost of a function"),
    (f"{HEAD}thread: x\nfn=f\n0 5\n", r":6: names no thread by its number"),
    (HEAD.replace("line", "instr line") + "fn=f\n0\n", r":7: is no cost of a function"),
])  # fmt: skip
def test_errors(tmp_path: Path, text: str, said: str) -> None:
    path = written(tmp_path, text)
    assert callgrind.can_read(path)
    with pytest.raises(UserError, match=said) as caught:
        callgrind.read(path)
    assert "\n" not in str(caught.value)


PROGRAM = """
#include <stdio.h>
__attribute__((noipa)) double inner(int n) { double s = 0;
  for (int i = 1; i < n; i++) s += 1.0 / i; return s; }
__attribute__((noipa)) double outer(int n) { double s = 0;
  for (int i = 0; i < n; i++) s += inner(900 + i % 100); return s; }
int main(void) { printf("%f\\n", outer(6000)); return 0; }
"""


@pytest.mark.peer
def test_what_valgrind_writes(tmp_path: Path) -> None:
    """All instructions that it counted are in units, nearly all in inner, called by outer, called by main."""
    for tool in ("valgrind", "gcc"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    (tmp_path / "p.c").write_text(PROGRAM)
    subprocess.run(["gcc", "-O1", "-g", "-o", "p", "p.c"], cwd=tmp_path, check=True)
    command = ["valgrind", "--tool=callgrind", "--separate-callers=8", "--combine-dumps=yes", "--dump-every-bb=100000"]
    command += ["--cache-sim=yes", "--branch-sim=yes", "--callgrind-out-file=p.out", "./p"]
    said = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True).stderr
    counted = int(next(line for line in said.splitlines() if "Collected" in line).split(":")[1].split()[0])
    workload = callgrind.read(tmp_path / "p.out")
    lengths = workload.column("stack_units", "num_instructions")
    assert lengths.sum() == counted
    assert len(lengths) > 5
    units = stack_units_of(workload)
    assert units.cpi is not None
    assert units.vectors[3:-1, units.methods.index("inner")].min() > 0.9
    deep = [stack[-3:] for stack in stacks(workload) if stack[-1] == "inner"]
    assert set(deep) == {("main", "outer", "inner")}


WAYS = ("", "--compress-strings=no", "--dump-instr=yes --collect-jumps=yes", "--compress-strings=no --compress-pos=no",
        "--dump-instr=yes --dump-line=no --collect-jumps=yes --compress-strings=no --compress-pos=no")  # fmt: skip


@pytest.mark.peer
def test_ways_in_which_valgrind_writes_the_same(tmp_path: Path) -> None:
    for tool in ("valgrind", "gcc"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    (tmp_path / "p.c").write_text(PROGRAM.replace("6000", "600"))
    subprocess.run(["gcc", "-O1", "-g", "-o", "p", "p.c"], cwd=tmp_path, check=True)
    read = []
    for number, options in enumerate(WAYS):
        command = ["valgrind", "--tool=callgrind", "--separate-callers=8", *options.split(), "./p"]
        command.insert(2, f"--callgrind-out-file={number}.out")
        subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
        workload = callgrind.read(tmp_path / f"{number}.out")
        assert not any("are not there" in note for note in told(workload.notes))
        found: Counter[tuple[str, ...]] = Counter()
        for stack, weight in zip(stacks(workload), workload.column("stack_samples", "weight").tolist(), strict=True):
            found[stack[-3:]] += weight
        read.append((workload.column("stack_units", "num_instructions").tolist(), found["main", "outer", "inner"]))
    assert read[0][1] > 1000
    for length, inner in read[1:]:
        assert length == read[0][0]
        assert inner == pytest.approx(read[0][1], abs=2)  # snapshots are rounded in the order of functions
