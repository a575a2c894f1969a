"""The wheel holds every module and data file, and works outside the checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = ("runner", "models", "sampling", "cluster_configs")


def installed_name(path: Path) -> str:
    """Where a file of the checkout lies in the wheel."""
    parts = path.relative_to(ROOT).parts
    return "/".join(("manyscale", *parts[2:]) if parts[:2] == ("runner", "_root") else ("manyscale", *parts))


def package_files() -> set[str]:
    """Every file of the source folders that belongs into the wheel: all but pictures and caches."""
    files = (file for source in SOURCES for file in (ROOT / source).rglob("*") if file.is_file())
    return {installed_name(file) for file in files if "__pycache__" not in file.parts and file.suffix != ".png"}


@pytest.mark.contract
def test_every_package_is_listed() -> None:
    """A folder with modules that pyproject.toml does not list would be missing from the wheel."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    folders = {file.parent for source in SOURCES for file in (ROOT / source).rglob("*.py")}
    parts = {folder.relative_to(ROOT).parts for folder in folders}
    names = [each[2:] if each[:2] == ("runner", "_root") else each for each in parts]
    assert set(settings["packages"]) == {".".join(("manyscale", *name)) for name in names}


@pytest.mark.slow
@pytest.mark.contract
def test_wheel_is_whole_and_runs(tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    ignored = shutil.ignore_patterns(".git", "__pycache__", "*.egg-info", "build", "dist", "runs", ".venv", ".*_cache")
    shutil.copytree(ROOT, checkout, ignore=ignored)
    stale = checkout / "build" / "lib" / "manyscale" / "stale.py"  # of an earlier build
    stale.parent.mkdir(parents=True)
    stale.write_text("")
    command = [
        sys.executable,
        "-m",
        "build",
        "--wheel",
        "--no-isolation",
        "--outdir",
        str(tmp_path / "dist"),
        str(checkout),
    ]
    environment = {**os.environ, "MANYSCALE_KERNELS": "0"}  # see test_wheel.py for those
    subprocess.run(command, check=True, capture_output=True, env=environment)
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    held = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert held == package_files()

    target = tmp_path / "site"
    install = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "-q",
        "--no-deps",
        "--no-index",
        "--target",
        str(target),
        str(wheel),
    ]
    subprocess.run(install, check=True, capture_output=True)
    environment = {**os.environ, "PYTHONPATH": str(target), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    program = (
        "import manyscale, sys; from manyscale.runner.cli import main; "
        "print(manyscale.__file__); sys.exit(main(sys.argv[1:]))"
    )
    run = subprocess.run(
        [sys.executable, "-c", program, "run", "nas-is-A-8", "-o", "run"],
        check=True, capture_output=True, text=True, cwd=tmp_path, env=environment,
    )  # fmt: skip
    assert run.stdout.splitlines()[0].startswith(str(target))
    assert (tmp_path / "run" / "report.html").is_file()
