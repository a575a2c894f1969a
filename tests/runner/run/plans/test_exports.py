"""Plans as other simulators read them: the records of PinPoints' own tools, gem5's and Sniper's grammar."""

from __future__ import annotations

import csv
import lzma
import re
import shlex
import subprocess
from pathlib import Path

import numpy as np
import pytest

from manyscale.runner.errors import UserError
from manyscale.runner.readers import simpoint_bb
from manyscale.runner.readers.simpoint_bb import projection
from manyscale.runner.run.plans import exports
from manyscale.runner.run.plans.exports import Exported
from manyscale.sampling.population import Choice, IntervalPopulation, intervals_of
from manyscale.sampling.vectors import Vectors

DATA = Path(__file__).parents[3] / "data" / "simpoint"
SLICE = re.compile(r"cluster (\d+) from slice (\d+)")


def records(text: str) -> list[list[str]]:
    return [row for row in csv.reader(text.splitlines()) if row and not row[0].startswith("#")]


def theirs(name: str) -> list[list[str]]:
    return records((DATA / name).read_text())


@pytest.fixture(scope="module")
def points() -> Choice:
    """The points that pinplay-scripts were given."""
    found = [(*map(int, SLICE.fullmatch(row[0]).groups()), float(row[13])) for row in theirs("prog.pcregions.csv")
             if row[0].startswith("cluster")]  # fmt: skip
    cluster, element, weight = map(np.array, zip(*found, strict=True))
    order = np.argsort(element)
    return Choice(element[order], cluster[order].astype(np.int32), weight[order], np.zeros(20, np.int32))


def exported(path: Path, choice: Choice, names: str, warmup: int = 0) -> tuple[dict[str, str], list[str]]:
    plan = Exported("prog", path, intervals_of(simpoint_bb.read(path)), choice, warmup, False, None, (0, 15))
    exports.check_names(names.split(","))
    return exports.files(names.split(","), plan)


@pytest.mark.peer
def test_regions_by_markers_are_those_of_pcregions(points: Choice) -> None:
    """But for the first interval's length, which it counts one too long; multipliers, which here hold for unequal
    lengths, too; and how often a warm-up's end comes by in it, where it forgets the end itself."""
    expected = theirs("prog.pcregions.csv")
    found = records(exported(DATA / "prog.global.bb.xz", points, "pinpoints", 1)[0]["global.pinpoints.csv"])
    assert [row[0] for row in found] == [row[0] for row in expected]
    for row, other in zip(found, expected, strict=True):
        assert row[1:11] == other[1:11]
        is_first = other[3] == "0x400040" and other[6] == "1"
        assert int(row[12]) == int(other[12]) - is_first
        assert float(row[13]) == pytest.approx(float(other[13]), abs=5e-6)
        assert row[15] == other[15]
        is_warmup = other[15].startswith("warmup")
        assert int(row[11]) == int(other[11]) + (is_warmup and other[3] != other[7])


@pytest.mark.theory
def test_multipliers_add_up_to_the_run(points: Choice) -> None:
    text = exported(DATA / "prog.global.bb.xz", points, "pinpoints")[0]["global.pinpoints.csv"]
    rows = records(text)
    total = int(re.search(r"Total instructions in workload = (\d+)", text)[1])
    assert sum(int(row[12]) * float(row[14]) for row in rows) == pytest.approx(total, rel=1e-3)


def test_header_names_as_many_columns_as_records_have(points: Choice, unmarked: Path) -> None:
    """pinplay-scripts skip records that have others."""
    for path in (DATA / "prog.global.bb.xz", unmarked):
        (text,) = (text for name, text in exported(path, points, "pinpoints", 1)[0].items() if name.endswith(".csv"))
        (header,) = (line for line in text.splitlines() if "comment," in line)
        assert {len(row) for row in records(text)} == {len(header.split(","))}


@pytest.fixture
def unmarked(tmp_path: Path) -> Path:
    text = lzma.decompress((DATA / "prog.global.bb.xz").read_bytes()).decode()
    path = tmp_path / "prog.bb"
    path.write_text("".join(f"{line}\n" for line in text.splitlines() if line.startswith("T")))
    return path


@pytest.mark.peer
def test_regions_by_instructions_are_those_of_regions(points: Choice, unmarked: Path) -> None:
    found = records(exported(unmarked, points, "pinpoints")[0]["pinpoints.csv"])
    expected = theirs("prog.regions.csv")
    assert [row[:5] for row in found] == [row[:5] for row in expected]
    assert [float(row[5]) for row in found] == pytest.approx([float(row[5]) for row in expected], abs=5e-6)


def test_files_of_threads_are_counted_globally(points: Choice, tmp_path: Path) -> None:
    """LoopPoint's NAME.T.N.bb: global markers, and blocks of all threads, of which the end's had 4 + 5 runs."""
    for thread, counts in enumerate(((10, 20), (0, 25))):
        rows = ["GS: 0x400040 1 /bin/p 0x400000 + 0x40", f"S: 0x{400080 + thread} 7 /bin/p 0x400000 + 0x80"]
        for number, count in enumerate(counts):
            rows += ["T" + (f":3:{count} " if count else ""), f"GS: 0x400080 {number + 4} /bin/p 0x400000 + 0x80",
                     "S: 0x400081 9 /bin/p 0x400000 + 0x81"]  # fmt: skip
        rows.append("Block id: 3 0x400078:0x400090 static instructions: 5 block count: 9 block size: 20")
        (tmp_path / f"prog.T.{thread}.bb").write_text("\n".join(rows) + "\n")
    choice = Choice(np.array([1]), np.zeros(1, np.int32), np.ones(1))
    (row,) = records(exported(tmp_path / "prog.T.0.bb", choice, "pinpoints")[0]["global.pinpoints.csv"])
    assert row[1:13] == ["global", "1", "0x400080", "p", "0x80", "4", "0x400080", "p", "0x80", "5", "9", "45"]


def equal_lengths(count: int, length: int, drift: int = 0) -> IntervalPopulation:
    """Intervals that end with the block that passes a multiple of ``length``, ``drift`` too late at most."""
    late = np.random.default_rng(0).integers(0, drift + 1, count)
    ends = np.arange(1, count + 1) * length + late
    own = np.diff(np.append(0, ends)).astype(np.float64)
    vectors = Vectors(np.arange(count + 1), np.zeros(count, np.int64), own)
    return IntervalPopulation(np.arange(count), own, vectors, 1)


@pytest.mark.parametrize(("length", "drift"), [(1_000_000, 0), (1_000_000, 30), (100_000_000, 90), (12_345, 0)])
def test_gem5_is_told_the_length_that_was_asked_for(tmp_path: Path, length: int, drift: int) -> None:
    choice = Choice(np.array([0, 7, 30]), np.array([2, 0, 1], np.int32), np.array([0.5, 0.499999, 1e-6]))
    plan = Exported("a", tmp_path / "a.bb", equal_lengths(60, length, drift), choice, 2, False, None, None)
    files, _ = exports.files(["gem5"], plan)
    assert files["gem5"] == f"--take-simpoint-checkpoints=a.simpoints,a.weights,{length},{2 * length}\n"
    # what configs/common/Simulation.py matches, line by line
    points = [re.match(r"(\d+)\s+(\d+)", line) for line in files["simpoints"].splitlines()]
    weights = [re.match(r"([0-9\.e\-]+)\s+(\d+)", line) for line in files["weights"].splitlines()]
    assert [(int(point[1]), float(weight[1])) for point, weight in zip(points, weights, strict=True)] == [
        (0, 0.5), (7, 0.499999), (30, 1e-6)
    ]  # fmt: skip
    assert [point[2] for point in points] == [weight[2] for weight in weights] == ["2", "0", "1"]


def test_several_points_of_a_cluster_have_names_of_their_own(tmp_path: Path) -> None:
    choice = Choice(np.array([3, 5, 9]), np.array([1, 1, 0], np.int32), np.array([0.25, 0.25, 0.5]))
    plan = Exported("a", tmp_path / "a.bb", equal_lengths(10, 100), choice, 0, True, None, None)
    files, notes = exports.files(["gem5"], plan)
    assert files["simpoints"] == "3 0\n5 1\n9 2\n"
    assert "may not be the program's begin" in notes[0].text


RUN_SNIPER = """#!/bin/sh
printf '%s\\n' "$@" END
"""


def asked_of_sniper(script: str, folder: Path, **environment: str) -> list[list[str]]:
    """The arguments of every call of run-sniper."""
    (folder / "run-sniper").write_text(RUN_SNIPER)
    (folder / "run-sniper").chmod(0o755)
    (folder / "prog.sniper.sh").write_text(script)
    done = subprocess.run(
        ["sh", "prog.sniper.sh", "-n", "4", "--", "./prog", "an input"], cwd=folder, check=True, text=True,
        capture_output=True, env={"SNIPER_ROOT": str(folder), "PATH": "/usr/bin:/bin", **environment},
    )  # fmt: skip
    return [call.splitlines() for call in done.stdout.split("END\n") if call]


def test_sniper_simulates_regions_by_instructions(points: Choice, unmarked: Path, tmp_path: Path) -> None:
    """Region 1 is instructions 2530 to 3693 (prog.regions.csv); before it lie 2529, of which the interval before has
    693."""
    script = exported(unmarked, points, "sniper", 1)[0]["sniper.sh"]
    calls = asked_of_sniper(script, tmp_path)
    assert len(calls) == 14
    assert calls[0] == shlex.split(
        "-d prog-r1 --roi-script --no-cache-warming -s roi-icount:1836:693:1164 -g core/hook_periodic_ins/ins_global=6 "
        "-g core/hook_periodic_ins/ins_per_core=1 -n 4 -- ./prog 'an input'"
    )
    assert "roi-icount:0:0:846" in calls[13]


def test_sniper_simulates_regions_by_markers(points: Choice, tmp_path: Path) -> None:
    """As LoopPoint's run script: nothing begins the first region."""
    script = exported(DATA / "prog.global.bb.xz", points, "sniper")[0]["sniper.sh"]
    for environment, controller in ({}, "-pinplay:control"), ({"CONTROLLER": "-control"}, "-control"):
        calls = asked_of_sniper(script, tmp_path, **environment)
        assert [word for word in calls[0] if word.startswith("--trace-args")] == [
            f"--trace-args={controller} start:address:prog+0xc0:count7:global",
            f"--trace-args={controller} stop:address:prog+0xc0:count83:global",
        ]
        assert calls[0][calls[0].index("-s") + 1] == "simuserroi"
        assert [word for word in calls[13] if word.startswith("--trace-args")] == [
            f"--trace-args={controller} stop:address:prog+0x40:count65:global"
        ]


def test_the_matrix_that_is_written_projects_alike(tmp_path: Path) -> None:
    path = DATA / "lengths.bb.xz"
    population = intervals_of(simpoint_bb.read(path))
    choice = Choice(np.array([1]), np.zeros(1, np.int32), np.ones(1))
    plan = Exported("a", path, population, choice, 0, False, None, (5, 7))
    (tmp_path / "a.proj").write_text(exports.files(["projection"], plan)[0]["proj"])
    matrix = projection.read(tmp_path / "a.proj")
    assert matrix.shape == (12, 7)
    assert np.array_equal(population.vectors.normalised().times(matrix), population.projected(5, 7))


@pytest.mark.parametrize(("names", "path", "line"), [
    ("gem6", "lengths.bb.xz", "--export 'gem6': unknown; did you mean 'gem5'? known are gem5, pinpoints, sniper"),
    ("gem5", "lengths.bb.xz", "have different lengths, gem5 knows one; --export pinpoints tells"),
    ("bb", "lengths.bb.xz", "is a profile of basic-block vectors already"),
])  # fmt: skip
def test_what_is_refused(names: str, path: str, line: str) -> None:
    choice = Choice(np.array([1]), np.zeros(1, np.int32), np.ones(1))
    with pytest.raises(UserError, match=re.escape(line)):
        exported(DATA / path, choice, names)


def test_intervals_that_are_left_out_hide_where_others_begin(tmp_path: Path) -> None:
    (tmp_path / "prog.bb").write_text("T:1:10\nT:1:10\n")
    (tmp_path / "prog.cpi.csv").write_text("interval,cycles\n0,5\n4,5\n")
    choice = Choice(np.array([1]), np.zeros(1, np.int32), np.ones(1))
    with pytest.raises(UserError, match="leaves intervals out"):
        exported(tmp_path / "prog.bb", choice, "pinpoints")


@pytest.mark.parametrize(("arguments", "line"), [
    (["--method", "sbbv", "--export", "projection"], "the method projects no vectors"),
    (["--method", "sbbv", "--projection", DATA / "lengths.proj"], "--projection: method sbbv projects no vectors"),
    (["--method", "simpoint", "--warmup", "1"], "--warmup: says what --export writes"),
    (["--method", "simpoint", "--warmup", "-1", "--export", "gem5"], "--warmup -1: is negative"),
    (["--method", "simpoint", "--projection", "none.proj"], "none.proj: there is no such file"),
    (["--export", "gem5"], "are for intervals; choose them with --method"),
    (["--method", "simprof", "--export", "gem5"], "simprof chooses sampling units here"),
])  # fmt: skip
def test_what_the_command_refuses(cli, tmp_path: Path, arguments: list[object], line: str) -> None:
    done = cli("plan", *arguments, DATA / "lengths.bb.xz", "-o", tmp_path / "out")
    assert (done.status, line in done.err) == (2, True), done.err
    assert not (tmp_path / "out").exists()


def test_a_profile_that_was_converted_has_no_markers(cli, tmp_path: Path) -> None:
    assert cli("convert", DATA / "prog.global.bb.xz", "-o", tmp_path / "workload").status == 0
    done = cli("plan", "--method", "full", tmp_path / "workload", "--export", "pinpoints", "-o", tmp_path / "plan")
    assert done.status == 0, done.err
    (file,) = (tmp_path / "plan").glob("*.csv")
    rows = records(file.read_text())
    assert [int(row[1 + 3]) for row in rows[:-1]] == [int(row[3]) - 1 for row in rows[1:]]
    assert rows[-1][4] == "16793"


def test_the_command_writes_them_all_beside_the_plan(cli, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = cli("plan", "--method", "simpoint", DATA / "prog.global.bb.xz", "--export", "pinpoints,sniper,projection",
               "-o", out)  # fmt: skip
    assert done.status == 0, done.err
    assert {path.name for path in out.iterdir()} == {
        "plan.parquet", "report.html", "prog.global.labels", "prog.global.pinpoints.csv", "prog.global.proj",
        "prog.global.simpoints", "prog.global.sniper.sh", "prog.global.weights",
    }  # fmt: skip
