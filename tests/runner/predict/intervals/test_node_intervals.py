"""``manyscale profile --interval``: a traced program on a target's cores, as a profile that plan and evaluate read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from manyscale.models.node import interval_watch
from manyscale.runner.readers import simpoint_bb
from manyscale.runner.shipped import folder
from manyscale.sampling.population import intervals_of

EXAMPLE = folder() / "multizone-8-detail.tar.zst"
TARGET = "grass-high-performance"


@pytest.mark.slow
def test_points_of_one_machine_judged_on_another(cli, tmp_path: Path) -> None:
    """What is written is the whole run: its instructions do not depend on the machine."""
    found = {}
    for name in (TARGET, "grass-low-power"):
        given = ("--interval", 20_000, "--cores", 2, "--target", name)
        done = cli("profile", EXAMPLE, *given, "--steady", "-o", tmp_path / name)
        assert done.status == 0, done.err
        assert f"on 2 cores of {name}: " in done.out
        file = tmp_path / name / "multizone-8-detail.bb"
        found[name] = intervals_of(simpoint_bb.read(file))
    one, other = found.values()
    assert len(one) == len(other)
    assert one.num_threads == 2
    assert one.instructions == pytest.approx(20_000, rel=0.02)
    assert one.vectors.sums() == pytest.approx(one.instructions)
    assert one.cpi is not None
    assert other.cpi is not None
    assert np.all(one.cpi < other.cpi)
    files = [tmp_path / name / "multizone-8-detail.bb" for name in found]
    done = cli("plan", "--method", "sbbv+ccv", files[0], "-o", tmp_path / "plan")
    assert done.status == 0, done.err
    done = cli("evaluate", files[0], "--on", files[1], "--method", "sbbv+ccv,full", "-o", tmp_path / "e")
    assert done.status == 0, done.err
    error = pq.read_table(tmp_path / "e" / "evaluation.parquet").to_pandas().groupby("method").error
    assert abs(error.max()["full"]) < 1e-3  # intervals differ by a block at their ends
    assert error.max()["sbbv+ccv"] < 0.1


@pytest.mark.slow
@pytest.mark.parametrize(("interval", "status", "needles"), [
    (10**12, 2, ["--interval 1000000000000: the trace has not half as many instructions"]),
    (1, 1, ["instructions are", "make them longer"]),
])  # fmt: skip
def test_intervals_of_odd_lengths(cli, refused, tmp_path: Path, interval, status, needles, monkeypatch) -> None:
    monkeypatch.setattr(interval_watch, "_MOST_LOOKS", 10_000)
    given = ("--interval", interval, "--cores", 2, "--target", TARGET, "--executor", "local")
    refused(cli("profile", EXAMPLE, *given, "-o", tmp_path / "out"), *needles, status=status)
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
@pytest.mark.contract
def test_the_same_bytes_again(cli, tmp_path: Path) -> None:
    given = ("profile", EXAMPLE, "--interval", 50_000, "--cores", 2, "--target", TARGET)
    for name in ("one", "two"):
        assert cli(*given, "--cache", tmp_path / f"cache-{name}", "-o", tmp_path / name).status == 0
    for file in sorted((tmp_path / "one").iterdir()):
        assert file.read_bytes() == (tmp_path / "two" / file.name).read_bytes(), file.name


@pytest.mark.contract
@pytest.mark.parametrize(("arguments", "needles"), [
    (["--interval", 0], ["--interval 0", "at least one"]),
    (["--interval", 100, "--cores", 0], ["--cores 0"]),
    (["--interval", 100, "--cores", 1000], ["--cores 1000: the target has"]),
    (["--interval", 100, "--rank", 5], ["multizone-8-detail.tar.zst: nothing of rank 5 was traced in detail"]),
    (["--interval", 100, "--simulate"], ["--simulate: is of stack distances"]),
    (["--cores", 2], ["--cores: are those that --interval simulates"]),
    (["--interval", 100, "--target", "laptop"], ["laptop: simulated cores need", "node."]),
])  # fmt: skip
def test_what_is_refused(cli, refused, tmp_path: Path, arguments, needles) -> None:
    refused(cli("profile", EXAMPLE, "--target", TARGET, *arguments, "-o", tmp_path / "out"), *needles)
    assert not (tmp_path / "out").exists()
