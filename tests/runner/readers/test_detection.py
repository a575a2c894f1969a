"""Finding a trace's format asks every reader, and so loads only how traces begin."""

from __future__ import annotations

import gzip
import subprocess
import sys
from pathlib import Path

import pytest

from manyscale.runner.errors import UserError
from manyscale.runner.study.traces import read_workload
from manyscale.runner.study.workload import WorkloadChoice

CODE = """
import sys
from pathlib import Path
from manyscale.runner.registry import lookup, names
found = [name for name in names("reader") if lookup("reader", name).can_read(Path(sys.argv[1]))]
heavy = {"numba", "pyarrow", "pandas", "manyscale.models.workload"} & sys.modules.keys()
print(*found, *heavy)
"""


def test_no_reader_loads_what_reading_needs(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("main;work 10\nmain;rest 5\n")
    done = subprocess.run([sys.executable, "-c", CODE, path], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["folded"]


PERF = "app 7 1.000000: 5 cycles:\n\t    11a9 f+0x1 (/p)\n\n"
NEAR = {
    "perf-script": (f"warning: no symbols\n{PERF}", 1, 2, "neither the header of a sample"),
    "perf-script of comm, ip and sym": (
        "app \n\t    55ec736fa1b1 main (/p)\n\n",
        1,
        2,
        "neither the header of a sample",
    ),
    "folded": ("main;a 3\n 4\nmain;b 2\n", 2, 1, "a line is frames"),
    "folded behind a title": ("profile of a\nmain;a 3\n", 1, 2, "a line is frames"),
    "lackey": ("starting\nI  0400d7d4,8\n L 1ffefff000,8\n", 1, 3, "'starting' is no"),
    "simpoint-bb": ("bbv 1.0\nT:1:1008 :2:1036\n", 1, 2, "is no interval"),
    "callgrind": ("by hand\nevents: Ir\nfl=a.c\n0 5\n", 1, 2, "no line of callgrind's"),
    "unit-stacks": ("frames\nM\t0\tf\nS\t0\t1\t0\n", 1, 3, "neither a frame"),
    "launch-counters": (
        "Start (ns),Duration (ns),CorrId,GrdX,Name\n1,2,3,4,add\n",
        0,
        1,
        "has no warp instructions; collect",
    ),
}


@pytest.mark.contract
@pytest.mark.parametrize("case", NEAR)
def test_what_is_nearly_in_a_format_is_refused_by_its_reader(tmp_path: Path, case: str) -> None:
    """With the line that does not fit, and the line by which the format was found."""
    text, wrong, told_by, said = NEAR[case]
    path = tmp_path / "a.txt"
    path.write_text(text)
    name = case.split()[0]
    with pytest.raises(UserError) as caught:
        read_workload(WorkloadChoice(path=str(path)))
    message = str(caught.value)
    assert message.startswith(f"{path}:{wrong}: " if wrong else f"{path}: ")
    assert said in message
    assert message.endswith(f"(it looks like {name} in line {told_by}; if it is none, name its format with --format)")
    assert "\n" not in message


@pytest.mark.contract
def test_nothing_that_is_known(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("hello, world\n")
    with pytest.raises(UserError, match="is in no format that is known"):
        read_workload(WorkloadChoice(path=str(path)))
    (tmp_path / "cut" / "raw" / "burst").mkdir(parents=True)
    with pytest.raises(UserError, match="cut: is a trace that was not finished"):
        read_workload(WorkloadChoice(path=str(tmp_path / "cut")))
    for name, content in (("empty", b""), ("empty.gz", gzip.compress(b""))):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(UserError, match=f"{name}: is empty; did the program"):
            read_workload(WorkloadChoice(path=str(tmp_path / name)))
