"""The reader of Callgrind's parts: units, stacks of callers, cycles."""

from __future__ import annotations

import shutil
import subprocess
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
    (HEAD.replace("Ir ", "Dr ") + MAIN, r":5: its first event is not Ir"),
    (f"{HEAD}{MAIN}what is this\n", r":11: is no line of callgrind's; got 'what is this'"),
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
