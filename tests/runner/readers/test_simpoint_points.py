"""Chosen intervals as files, SimPoint's own among them."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest

from manyscale.models.workload.parameters import Strict
from manyscale.runner.errors import UserError
from manyscale.runner.readers import simpoint_bb
from manyscale.runner.readers.simpoint_bb import points as simpoint_points
from manyscale.runner.run.plans.intervals import method_named
from manyscale.sampling.population import intervals_of

DATA = Path(os.environ.get("MANYSCALE_DATA", "/nonexistent")) / "phase"


def written(folder: Path, points: str, weights: str | None, labels: str | None = None) -> Path:
    for suffix, text in (("simpoints", points), ("weights", weights), ("labels", labels)):
        if text is not None:
            (folder / f"a.{suffix}").write_text(text)
    return folder / "a.simpoints"


def test_lines_are_joined_by_cluster(tmp_path: Path) -> None:
    """As SimPoint does: the order of weights may be another."""
    found = simpoint_points.read(written(tmp_path, "40 2\n7 0\n12 1\n", "0.5 0\n0.2 1\n0.3 2\n", "0 0.25\n1\n"))
    assert found.interval.tolist() == [7, 12, 40]
    assert found.cluster.tolist() == [0, 1, 2]
    assert found.weight.tolist() == [0.5, 0.2, 0.3]
    assert found.label.tolist() == [0, 1]


def test_several_of_a_cluster_are_joined_by_line(tmp_path: Path) -> None:
    found = simpoint_points.read(written(tmp_path, "40 1\n7 0\n12 0\n", "0.5 1\n0.2 0\n0.3 0\n"))
    assert found.weight.tolist() == [0.2, 0.3, 0.5]
    assert len(found.label) == 0


@pytest.mark.parametrize(
    ("points", "weights"),
    [
        ("results.simpts", "results.weights"),
        ("simpoints", "weights"),
        ("simpoints", "weights.gz"),
        ("simpoints.lpt0.9", "weights.lpt0.9"),
        ("prog.simpoints.lpt0.9", "prog.weights.lpt0.9"),
        ("t.simpoints.gz", "t.weights.gz"),
        ("simpoints.txt", "weights.txt"),
        ("chosen", "shares"),  # by the lines alone
        ("a.out", "b.out"),
    ],
)
def test_a_file_is_what_its_lines_say(tmp_path: Path, points: str, weights: str) -> None:
    contents = {points: "5 0\n12 1\n22 2\n35 3\n", weights: "0.25 0\n0.2 1\n0.3 2\n0.25 3\n"}
    for name, text in contents.items():
        content = text.encode()
        (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    rows = [f"T:{k // 10 + 1}:1000" for k in range(40)]
    (tmp_path / "a.any").write_text("\n".join(rows) + "\n")
    (tmp_path / "notes.txt").write_text("not 4 numbers\n")
    assert simpoint_bb.can_read(tmp_path / "a.any")
    assert simpoint_points.is_points(tmp_path / points)
    method = method_named(str(tmp_path / points))
    choice = method.choose(intervals_of(simpoint_bb.read(tmp_path / "a.any")), Strict(), 0)
    assert choice.element.tolist() == [5, 12, 22, 35]
    assert choice.weight.tolist() == pytest.approx([0.25, 0.2, 0.3, 0.25])
    assert not simpoint_points.is_points(tmp_path / "a.any")
    assert not simpoint_points.is_points(tmp_path / "notes.txt")


@pytest.mark.contract
def test_weights_that_may_be_in_two_files(tmp_path: Path) -> None:
    for name, text in (("chosen", "5 0\n12 1\n"), ("a", "0.5 0\n0.5 1\n"), ("b", "0.25 1\n0.75 0\n")):
        (tmp_path / name).write_text(text)
    with pytest.raises(UserError, match=r"its weights may be in a, b; name them chosen\.weights"):
        simpoint_points.read(tmp_path / "chosen")
    with pytest.raises(UserError, match="is it the file of weights"):
        simpoint_points.read(tmp_path / "a")


@pytest.mark.contract
@pytest.mark.parametrize(
    ("points", "weights", "message"),
    [
        ("7 0\n", None, "a.weights: there is no such file"),
        ("", "1 0\n", "a.simpoints: is empty"),
        ("7 0\n8\n", "1 0\n", "a.simpoints:2: '8' is no line of 2 numbers"),
        ("7 zero\n", "1 0\n", "a.simpoints:1: '7 zero' is no line"),
        ("7 0\n8 1\n", "1 0\n", "a.weights: has 1 weights for 2 intervals"),
        ("7 0\n8 1\n", "0.5 0\n0.5 2\n", "a.weights: names other clusters"),
        ("7 0\n8 0\n", "0.5 0\n0.5 1\n", "a.weights: names other clusters"),
        ("7 0\n7 1\n", "0.5 0\n0.5 1\n", "a.simpoints: names an interval twice"),
        ("7.5 0\n", "1 0\n", "a.simpoints: names an interval that is no number"),
        ("7 0\n", "-1 0\n", "a.weights: weights are shares"),
        ("7 0\n", "nan 0\n", "a.weights:1: 'nan 0' is no line"),
    ],
)
def test_damaged_files_are_refused(tmp_path: Path, points: str, weights: str | None, message: str) -> None:
    with pytest.raises(UserError) as caught:
        simpoint_points.read(written(tmp_path, points, weights))
    assert message in str(caught.value)


@pytest.mark.peer
@pytest.mark.skipif(not DATA.is_dir(), reason="MANYSCALE_DATA does not name the folder of the profiles")
@pytest.mark.parametrize(
    ("name", "count", "error"), [("phases", 15, 2.40), ("gzip", 15, 0.88), ("sqlite", 13, 0.20), ("python", 15, 4.37)]
)
def test_what_simpoint_chose(name: str, count: int, error: float) -> None:
    """Errors of CPI, in %, that were computed from SimPoint 3.2's files by other code (README of the data)."""
    population = intervals_of(simpoint_bb.read(DATA / f"{name}.m.bb.xz"))
    method = method_named(str(DATA / "simpoint32" / f"{name}_m.simpoints"))
    choice = method.choose(population, Strict(), 0)
    assert population.cpi is not None
    assert len(choice.element) == count
    assert len(choice.label) == len(population)
    truth = population.instructions @ population.cpi / population.instructions.sum()
    assert abs(choice.weight @ population.cpi[choice.element] / truth - 1) * 100 == pytest.approx(error, abs=0.006)


@pytest.mark.contract
def test_points_of_another_profile_are_refused(cli, tmp_path: Path) -> None:
    profile = tmp_path / "a.bb"
    profile.write_text("".join(f"T:1:{9 + k}   :2:1   \n" for k in range(3)))
    points = written(tmp_path, "7 0\n", "1 0\n")
    outcome = cli("plan", "--method", points, profile, "-o", tmp_path / "plan")
    assert outcome.status == 2
    assert "has no interval 7, which" in outcome.err
    assert "but 0 to 2" in outcome.err
    assert not (tmp_path / "plan").exists()


def test_a_plan_is_read_back(cli, tmp_path: Path) -> None:
    """What ``plan`` wrote is a method of the same plan."""
    profile = tmp_path / "a.bb"
    profile.write_text("".join(f"T:{1 + k % 3}:{50 + k}   :9:5   \n" for k in range(30)))
    assert cli("plan", "--method", "simpoint", profile, "-o", tmp_path / "one").status == 0
    points = tmp_path / "one" / "a.simpoints"
    assert cli("plan", "--method", points, profile, "-o", tmp_path / "two").status == 0
    for suffix in ("simpoints", "labels"):
        assert (tmp_path / "two" / f"a.{suffix}").read_bytes() == points.with_suffix(f".{suffix}").read_bytes()
