"""Traces of kernel launches that are damaged, incomplete or for another GPU, as a user meets them: ``manyscale run``
says in one line which file and place is wrong and what to do, ends with status 2 and leaves nothing half-written.

The traces are real ones (tests/data/gpu/bfs: launches of 8 blocks of 16 warps), each damaged in one way.
"""

from __future__ import annotations

import json
import lzma
import re
from pathlib import Path

import pytest

BFS = Path(__file__).parents[3] / "data" / "gpu" / "bfs"
STUDY = """schema: 1
workload: {path: app}
target: {name: rtx3070, node: {gpu: {compute_capability: 86}}}
model: {gpu: detailed}
"""


@pytest.fixture
def app(tmp_path):
    """The folder ``app``: launches 1 and 2 as text, their list; and ``study.yaml``, which runs them."""
    folder = tmp_path / "app"
    folder.mkdir()
    for number in (1, 2):
        packed = (BFS / f"kernel-{number}.traceg.xz").read_bytes()
        (folder / f"kernel-{number}.traceg").write_bytes(lzma.decompress(packed))
    (folder / "kernelslist.g").write_text("kernel-1.traceg\nkernel-2.traceg\n")
    (tmp_path / "study.yaml").write_text(STUDY)
    return folder


def changed(path, change):
    text = path.read_text()
    path.write_text(change(text))
    assert path.read_text() != text


def cut(text):
    """In the middle of an instruction of the last block."""
    return text[: text.rindex(" LDG") + 2]


def without_warps(text):
    """Its first block has none."""
    first, end = text.index("warp = 0"), text.index("#END_TB")
    return text[:first] + text[end:]


def of_grid(size):
    return lambda text: re.sub(r"-grid dim = \(\d+", f"-grid dim = ({size}", text)


DAMAGED = {
    "cut short": (cut, r"kernel-2\.traceg:\d+: .*cut short: copy it again"),
    "cut between blocks": (
        lambda text: text[: text.rindex("#BEGIN_TB")],
        r"kernel-2\.traceg: thread block 7,0,0 is missing; the body has 7 of the 8 thread blocks of the grid.*copy it",
    ),
    "block without warps": (
        without_warps,
        r"kernel-2\.traceg:\d+: '#END_TB' ends a thread block without warps.*copy it",
    ),
    "larger grid": (of_grid(9), r"kernel-2\.traceg: thread block 8,0,0 is missing; the body has 8 of the 9.*copy it"),
    "smaller grid": (of_grid(7), r"kernel-2\.traceg:\d+: 'thread block = 7,0,0' names a thread block outside the grid"),
    "smaller blocks": (
        lambda text: re.sub(r"-block dim = \(\d+", "-block dim = (256", text),
        r"kernel-2\.traceg:\d+: 'warp = 8' names a warp that the block of the header does not have",
    ),
    "empty": (lambda text: "", r"kernel-2\.traceg:1: has no line '-grid dim = \(x,y,z\)'"),
    "block too large": (
        lambda text: re.sub(r"-nregs = \d+", "-nregs = 255", text),
        r"study\.yaml: .*launch 2 \(512 threads a block, 255 registers a thread, .*does not fit on rtx3070: "
        r"a block needs more registers than an SM has \(65,536\)",
    ),
    "too much shared memory": (
        lambda text: re.sub(r"-shmem = \d+", "-shmem = 102401", text),
        r"study\.yaml: .*launch 2 .*102401 B of shared memory\) does not fit on rtx3070: .*more shared memory",
    ),
}


@pytest.fixture
def refused_line(cli, refused, tmp_path, private_cache, foreseen):
    """``refused_line(words, *options)``: the run fails with one line of these words, and has left no results; of what
    it had stored before, nothing is half-written."""

    def check(words, *options):
        outcome = cli("run", "study.yaml", "-o", "out", *options)
        refused(outcome)
        assert re.search(words, outcome.err), outcome.err
        assert not outcome.out
        assert not list(tmp_path.glob("out*"))
        stored = private_cache / "launches"
        for folder in stored.iterdir() if stored.exists() else ():
            assert sorted(path.name for path in folder.iterdir()) == [
                "checksums", "instructions.parquet", "static.parquet",
            ]  # fmt: skip

    return check


@pytest.mark.parametrize("name", DAMAGED)
def test_a_trace_that_is_damaged_or_does_not_fit(app, refused_line, name):
    change, words = DAMAGED[name]
    changed(app / "kernel-2.traceg", change)
    refused_line(words)


def test_gpumech_tells_the_same(app, refused_line):
    changed(app / "kernel-2.traceg", lambda text: re.sub(r"-nregs = \d+", "-nregs = 255", text))
    refused_line("launch 2 .*does not fit on rtx3070: .*more registers", "--model", "gpu=gpumech")


def test_an_archive_that_is_cut_short(app, refused_line):
    (app / "kernel-2.traceg").unlink()
    (app / "kernel-2.traceg.xz").write_bytes((BFS / "kernel-2.traceg.xz").read_bytes()[:-40])
    refused_line(r"kernel-2\.traceg\.xz: the archive is damaged or cut short .*; copy or download it again")


def test_a_folder_without_a_list(app, refused_line):
    (app / "kernelslist.g").unlink()
    refused_line(r"app: has 2 traces of kernels and no list of their order \(kernelslist\.g\); copy the list")


def test_a_list_that_names_a_kernel_that_is_not_there(app, refused_line):
    (app / "kernelslist.g").write_text("kernel-1.traceg\nkernel-9.traceg\n")
    refused_line(r"kernelslist\.g:2: names kernel-9\.traceg, which does not stand beside it .*; copy the file, or take")


def test_a_launch_that_the_list_does_not_have(app, refused_line):
    refused_line(r"kernelslist\.g: has no launch 3; its launches are 1 to 2", "--launch", "3")


def test_launches_before_a_bad_one_are_kept(app, cli, refused_line, tmp_path, private_cache, foreseen):
    """The first launch is stored, and not read again once the second was mended: its trace is damaged meanwhile, but
    looks the same from outside."""
    good = (app / "kernel-2.traceg").read_text()
    changed(app / "kernel-2.traceg", cut)
    refused_line("cut short")
    (stored,) = (private_cache / "launches").iterdir()
    before = {path: path.stat().st_mtime_ns for path in stored.iterdir()}
    (app / "kernel-2.traceg").write_text(good)
    outcome = cli("run", "study.yaml", "-o", "out")
    assert outcome.status == 0
    assert {path: path.stat().st_mtime_ns for path in stored.iterdir()} == before
    assert len(list((private_cache / "launches").iterdir())) == 2
    assert (tmp_path / "out" / "timeline" / "launches.parquet").exists()


def test_code_of_hopper_on_volta_is_told_and_counted(app, cli, tmp_path, foreseen):
    """And opcodes that no table knows are named in the report, with how often each is executed."""
    study = tmp_path / "study.yaml"
    changed(study, lambda text: text.replace("compute_capability: 86", "compute_capability: 70"))
    changed(app / "kernel-2.traceg", lambda text: text.replace("-binary version = 80", "-binary version = 90"))
    changed(app / "kernel-2.traceg", lambda text: text.replace(" S2R ", " XYZZY.U32 ").replace(" IMAD ", " VIADDMNMX "))
    outcome = cli("run", study, "--accept", "too-many-untimed-instructions", "-o", "out")
    assert outcome.status == 0
    (told,) = [line for line in outcome.out.splitlines() if "[later-code]" in line]
    assert "instructions of a later architecture take what those of their class take here" in told
    (note,) = [
        note
        for note in json.loads((tmp_path / "out" / "stats.json").read_text())["notes"]["list"]
        if note["code"] == "later-code"
    ]
    assert note["count"] == 2
    assert re.search(r"gpu\.newer_binaries +2 ", (tmp_path / "out" / "stats.txt").read_text())
    report = (tmp_path / "out" / "report.html").read_text()
    assert re.search(r"opcodes[^<]*XYZZY 256", report), re.findall(r"[^<>]*XYZZY[^<>]*", report)
    assert "VIADDMNMX" not in report


def test_opcodes_that_came_after_the_launch_s_architecture_are_told(app, cli, tmp_path, foreseen):
    """A Volta binary with Hopper's instructions: they are classed all the same."""
    changed(app / "kernel-2.traceg", lambda text: text.replace("-binary version = 80", "-binary version = 70"))
    changed(app / "kernel-2.traceg", lambda text: text.replace(" IMAD ", " VIADDMNMX "))
    assert cli("run", "study.yaml", "-o", "out").status == 0
    report = (tmp_path / "out" / "report.html").read_text()
    assert re.search(r"newer than the binary version[^<]*VIADDMNMX \(sm_90\) 128", report)
