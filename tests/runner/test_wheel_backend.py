"""The build backend: whether a wheel gets kernels, what it is called then, and what it says of its members."""

from __future__ import annotations

import base64
import hashlib
import platform
import sys
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.tags import sys_tags
from packaging.utils import parse_wheel_filename

from manyscale.runner.wheel import backend

ROOT = Path(__file__).parents[2]
PLAIN = "manyscale-0.1.0-py3-none-any.whl"
KERNEL = "manyscale/models/kernels/compiled/somewhere/kernel.nbc"


@pytest.fixture
def build(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The folder of a build whose wheel has one module, and whose only kernel is four bytes."""

    def plain(directory: str, *_: object) -> str:
        with zipfile.ZipFile(Path(directory, PLAIN), "w") as wheel:
            wheel.writestr("manyscale/__init__.py", "")
            wheel.writestr("manyscale-0.1.0.dist-info/WHEEL", "Root-Is-Purelib: true\nTag: py3-none-any\n")
            wheel.writestr("manyscale-0.1.0.dist-info/RECORD", "")
        return PLAIN

    def compiled(_wheel: Path, scratch: Path) -> None:
        (scratch / KERNEL).parent.mkdir(parents=True)
        (scratch / KERNEL).write_bytes(b"code")

    monkeypatch.setattr(backend.build_meta, "build_wheel", plain)
    monkeypatch.setattr(
        backend.build_meta, "get_requires_for_build_wheel", lambda *_: []
    )  # it writes into the checkout
    monkeypatch.setattr(backend, "_compile", compiled)
    monkeypatch.delenv("MANYSCALE_KERNELS", raising=False)
    monkeypatch.delenv("DIST_EXTRA_CONFIG", raising=False)
    monkeypatch.chdir(ROOT)
    return tmp_path


@pytest.mark.parametrize("value", [None, "0"])
def test_a_wheel_without_kernels_is_what_setuptools_made(
    build: Path, value: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if value is not None:
        monkeypatch.setenv("MANYSCALE_KERNELS", value)
    assert backend.build_wheel(str(build)) == PLAIN
    assert [file.name for file in build.iterdir()] == [PLAIN]
    assert "numba" not in {Requirement(line).name for line in backend.get_requires_for_build_wheel()}


@pytest.fixture
def x86_linux(monkeypatch: pytest.MonkeyPatch) -> None:
    if platform.machine() != "x86_64" or sys.platform != "linux":
        pytest.skip("wheels with kernels are for x86-64 Linux")
    if not set(Path("/proc/cpuinfo").read_text().split()) >= backend._FLAGS:
        pytest.skip("this processor is no x86-64-v3")


@pytest.mark.usefixtures("x86_linux")
def test_a_wheel_with_kernels_is_for_this_python_and_names_them(build: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MANYSCALE_KERNELS", "all")
    name = backend.build_wheel(str(build))
    assert [file.name for file in build.iterdir()] == [name]
    (tag,) = parse_wheel_filename(name)[3]
    assert tag in sys_tags()  # pip takes it here
    python = f"cp{sys.version_info.major}{sys.version_info.minor}"
    assert (tag.interpreter, tag.abi, tag.platform) == (python, python, "linux_x86_64")
    with zipfile.ZipFile(build / name) as wheel:
        held = {member: wheel.read(member) for member in wheel.namelist()}
    assert held[KERNEL] == b"code"
    assert held["manyscale-0.1.0.dist-info/WHEEL"] == f"Root-Is-Purelib: false\nTag: {tag}\n".encode()
    record = dict(line.split(",", 1) for line in held.pop("manyscale-0.1.0.dist-info/RECORD").decode().splitlines())
    assert record.pop("manyscale-0.1.0.dist-info/RECORD") == ","
    for member, content in held.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
        assert record.pop(member) == f"sha256={digest},{len(content)}"
    assert record == {}


def test_a_command_that_fails_ends_the_build(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / PLAIN, "w") as wheel:
        for package in ("manyscale", "manyscale/runner", "manyscale/runner/wheel"):
            wheel.writestr(f"{package}/__init__.py", "")
        exercises = "import sys\nsys.exit('failed: one\\ntwo is not installed')\n"
        wheel.writestr("manyscale/runner/wheel/exercises.py", exercises)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    with pytest.raises(SystemExit, match=r"^kernels: two is not installed$"):
        backend._compile(tmp_path / PLAIN, tmp_path / "scratch")


@pytest.mark.usefixtures("x86_linux")
def test_compiling_needs_the_dependencies_but_not_ray(build: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MANYSCALE_KERNELS", "all")
    required = {Requirement(line).name for line in backend.get_requires_for_build_wheel()}
    assert {"numba", "numpy", "pyarrow"} <= required
    assert "ray" not in required


@pytest.mark.parametrize(("system", "machine"), [("darwin", "arm64"), ("linux", "aarch64")])
def test_elsewhere_a_wheel_has_no_kernels_and_says_so(
    build: Path, system: str, machine: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MANYSCALE_KERNELS", "all")
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(platform, "machine", lambda: machine)
    monkeypatch.setattr(platform, "platform", lambda: f"{system}-{machine}")
    assert backend.build_wheel(str(build)) == PLAIN
    assert "numba" not in {Requirement(line).name for line in backend.get_requires_for_build_wheel()}
    line = f"only for CPython on x86-64 Linux, this is CPython on {system}-{machine}"
    assert capsys.readouterr().out == (
        f"manyscale: the wheel holds no compiled kernels ({line}); they are compiled at first use\n"
    )


def test_a_value_that_means_nothing_ends_the_build(build: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MANYSCALE_KERNELS", "some")
    with pytest.raises(SystemExit, match=r"^MANYSCALE_KERNELS=some: is neither all nor 0$"):
        backend.build_wheel(str(build))
