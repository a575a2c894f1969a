"""What is published installs and runs in an empty environment of each Python that pyproject.toml names, outside the
checkout: the source archive, and the wheel that is made of it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CLASSIFIERS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["classifiers"]
VERSIONS = re.findall(r"^Programming Language :: Python :: (3\.\d+)$", "\n".join(CLASSIFIERS), re.MULTILINE)
HERE = "{}.{}".format(*sys.version_info)
WITHOUT = "manyscale: charts are left out of pages: Plotly is not installed (pip install plotly)\n"


def interpreter(version: str) -> Path | None:
    """A Python of this version: this one, one on PATH, or one of pyenv's."""
    here = Path(sys.base_prefix, "bin", f"python{version}")
    on_path = shutil.which(f"python{version}")
    pyenv = sorted(Path("~/.pyenv/versions").expanduser().glob(f"{version}.*/bin/python"))
    for found in (here, *([Path(on_path)] if on_path else []), *pyenv):
        question = [str(found), "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
        answer = subprocess.run(question, capture_output=True, text=True, check=False) if found.exists() else None
        if answer is not None and answer.stdout.strip() == version:
            return found
    return None


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the source archive and the wheel that was made of it."""
    folder = tmp_path_factory.mktemp("published")
    checkout = folder / "checkout"
    ignored = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "build", "dist", "runs", "site")
    shutil.copytree(ROOT, checkout, ignore=ignored)
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder / "dist"), str(checkout)]
    environment = {name: value for name, value in os.environ.items() if name != "MANYSCALE_KERNELS"}
    subprocess.run(command, check=True, capture_output=True, env=environment)
    shutil.rmtree(checkout)
    return folder / "dist"


@pytest.mark.slow
@pytest.mark.contract
def test_without_being_asked_for_kernels_a_wheel_is_for_any_machine(published: Path) -> None:
    names = sorted(re.sub(r"-\d[\w.]*?(?=-|\.tar)", "", file.name) for file in published.iterdir())
    assert names == ["manyscale-py3-none-any.whl", "manyscale.tar.gz"]
    (wheel,) = published.glob("*.whl")
    assert not [name for name in zipfile.ZipFile(wheel).namelist() if name.endswith((".nbc", ".so"))]


@pytest.mark.slow
@pytest.mark.contract
@pytest.mark.parametrize("version", VERSIONS)
def test_the_wheel_installs_and_runs_in_an_empty_environment(published: Path, version: str, tmp_path: Path) -> None:
    python = interpreter(version)
    if python is None:
        pytest.skip(f"there is no Python {version}")
    if version == HERE and any(interpreter(other) for other in VERSIONS if other != HERE):
        pytest.skip("all tests run in this one, and others are empty environments")
    (wheel,) = published.glob("*.whl")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL"))}
    environment |= {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()

    def call(*words: str | Path, status: int = 0) -> subprocess.CompletedProcess[str]:
        command = [str(word) for word in words]
        done = subprocess.run(
            command,
            cwd=elsewhere,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        assert done.returncode == status, done.stderr
        return done

    call(python, "-m", "venv", tmp_path / "venv")
    own = tmp_path / "venv" / "bin"
    call(own / "python", "-m", "pip", "install", "-q", "--no-compile", "-c", ROOT / "constraints.txt", wheel)
    call(own / "python", "-m", "pip", "check")
    assert call(own / "manyscale", "--version").stdout == f"manyscale {wheel.name.split('-')[1]}\n"
    where = call(own / "python", "-c", "import manyscale; print(manyscale.__file__)").stdout
    assert where.startswith(str(tmp_path / "venv"))
    call(own / "manyscale", "run", "lulesh-8", "-o", "run")
    assert "<script" in (elsewhere / "run" / "report.html").read_text()
    call(own / "manyscale", "accuracy", "lulesh-8")  # against SimGrid
    call(own / "python", "-m", "pip", "uninstall", "-q", "-y", "plotly", "ray")
    assert call(own / "manyscale", "run", "lulesh-8", "--set", "cpu_ratio=2", "-o", "bare").stderr == WITHOUT
    asked = call(own / "manyscale", "run", "lulesh-8", "--executor", "ray", "-o", "asked", status=2)
    assert asked.stderr == "manyscale: --executor ray needs Ray, which is not installed; pip install 'manyscale[ray]'\n"
