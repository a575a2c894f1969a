"""Commands where Ray or Plotly is not installed: its import fails, in a process of their own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

WITHOUT = """
import sys
for name in {packages}:
    sys.modules[name] = None  # its import fails, as where it is not installed
from manyscale.runner.run.execute import choice
choice.RAY_PAYS_ABOVE_SECONDS = {pays}
from manyscale.runner.cli import main
sys.exit(main(sys.argv[1:]))
"""
Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def command(tmp_path: Path, private_cache: Path) -> Command:
    """``command("run", ..., without=["ray"])`` in the test's folder."""

    def run(*words: str, without: list[str], pays: float = 30.0) -> subprocess.CompletedProcess[str]:
        program = WITHOUT.format(packages=without, pays=pays)
        arguments = [sys.executable, "-c", program, *words]
        return subprocess.run(arguments, cwd=tmp_path, capture_output=True, text=True, check=False)

    return run


def test_a_run_and_its_report_need_no_ray(command: Command, tmp_path: Path) -> None:
    done = command("run", "lulesh-8", "-o", "run", "--no-report", without=["ray"])
    assert (done.returncode, done.stderr) == (0, "")
    done = command("report", "run", without=["ray"])
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "run" / "report.html").is_file()


@pytest.mark.slow
def test_a_sweep_that_would_repay_ray_stays_in_one_process_and_says_so(command: Command, tmp_path: Path) -> None:
    sweep = ["run", "lulesh-8", "--set", "sweep={cpu_ratio: [1, 2]}", "-o", "sweep", "--no-report"]
    done = command(*sweep, without=["ray"], pays=0.0)
    assert done.returncode == 0, done.stderr
    (line,) = done.stderr.splitlines()
    assert line.endswith("s of computing on one core; on all cores with Ray: pip install 'manyscale[ray]'")
    assert (tmp_path / "sweep" / "sweep.parquet").is_file()


@pytest.mark.parametrize("option", [["--executor", "ray"], ["--address", "127.0.0.1:1"]])
def test_ray_asked_for_by_name_is_refused_in_one_line(command: Command, tmp_path: Path, option: list[str]) -> None:
    done = command("run", "lulesh-8", *option, "-o", "run", without=["ray"])
    assert done.returncode == 2
    asked = " ".join(option)
    assert done.stderr == f"manyscale: {asked} needs Ray, which is not installed; pip install 'manyscale[ray]'\n"
    assert not (tmp_path / "run").exists()


NO_CHARTS = "manyscale: charts are left out of pages: Plotly is not installed (pip install plotly)\n"


@pytest.mark.slow
def test_a_run_and_its_report_without_plotly_have_everything_but_charts(command: Command, tmp_path: Path) -> None:
    done = command("run", "lulesh-8", "-o", "run", without=["plotly", "ray"])
    assert (done.returncode, done.stderr) == (0, NO_CHARTS)
    files = {file.name for file in (tmp_path / "run").iterdir()}
    assert {"stats.json", "timeline", "trace.prv", "trace.json.gz", "report.html"} <= files
    page = (tmp_path / "run" / "report.html").read_text()
    assert "Plotly was not installed where this page was written" in page
    assert "<table" in page
    assert "<script" not in page


@pytest.mark.slow
def test_the_pages_of_a_sweep_without_plotly_refer_to_no_script(command: Command, tmp_path: Path) -> None:
    done = command("run", "lulesh-8", "--set", "sweep={cpu_ratio: [1, 2]}", "-o", "sweep", without=["plotly"])
    assert (done.returncode, done.stderr) == (0, NO_CHARTS)
    done = command("report", "sweep", "--point", "all", without=["plotly"])
    assert (done.returncode, done.stderr) == (0, NO_CHARTS)
    pages = [tmp_path / "sweep" / "report.html", *(tmp_path / "sweep" / "points").glob("*/report.html")]
    assert len(pages) == 3
    assert not [page for page in pages if "<script" in page.read_text()]
    assert not list((tmp_path / "sweep").glob("*.js"))


@pytest.mark.slow
def test_a_page_of_another_command_without_plotly(command: Command, tmp_path: Path) -> None:
    done = command("clusters", "lulesh-8", "-o", "found", without=["plotly"])
    assert (done.returncode, done.stderr) == (0, NO_CHARTS)
    assert "<table" in (tmp_path / "found" / "clusters.html").read_text()
