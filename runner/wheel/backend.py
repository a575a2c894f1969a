"""The build backend: setuptools, whose wheel is given compiled kernels on demand.

The wheel is for any machine, and a kernel is compiled when it is first used, and kept: an installation takes less than
a minute, and the first commands some seconds more. ``MANYSCALE_KERNELS=all``, for releases, containers and tests,
compiles all kernels into it: the wheel that setuptools made is unpacked, its kernels are compiled by running commands
(``exercises``; two minutes and more on two cores), and it is packed again with them, as one for this CPython on x86-64
Linux. What an earlier build or run compiled from the same sources is taken from the user's cache directory
(``models/kernels/compiled.py``). Where that cannot be, the wheel stays what setuptools made.
"""

from __future__ import annotations

import base64
import hashlib
import os
import platform
import re
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from pathlib import Path
from typing import Any, Final

from setuptools import build_meta
from setuptools.build_meta import *  # noqa: F403  # the other hooks are setuptools' own

Settings = dict[str, Any] | None
_PROCESSOR: Final = {"NUMBA_CPU_NAME": "x86-64-v3", "NUMBA_CPU_FEATURES": ""}
_FLAGS: Final = {"avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave"}  # of x86-64-v3, as Linux names them
_NOT_TO_COMPILE: Final = ("ray",)  # dependencies that the commands of the build do not need
_KERNELS: Final = "manyscale/models/kernels/compiled"


def get_requires_for_build_wheel(config_settings: Settings = None) -> list[str]:
    """What setuptools needs, and what commands need that compile kernels."""
    required: list[str] = build_meta.get_requires_for_build_wheel(config_settings)
    if _is_asked_for() and not _reason_against():
        project = tomllib.loads(Path("pyproject.toml").read_text("utf-8"))["project"]
        names = [(re.match(r"[\w-]+", line), line) for line in project["dependencies"]]
        required += [line for name, line in names if name and name[0] not in _NOT_TO_COMPILE]
    return required


def build_wheel(wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None) -> str:
    """A wheel with kernels, or setuptools' own."""
    with tempfile.TemporaryDirectory() as scratch:  # setuptools would pack what an earlier build left in build/, too
        settings = Path(scratch, "settings.cfg")
        settings.write_text(f"[build]\nbuild_base = {scratch}/build\n", "utf-8")
        os.environ["DIST_EXTRA_CONFIG"] = str(settings)
        name: str = build_meta.build_wheel(wheel_directory, config_settings, metadata_directory)
    if not _is_asked_for():
        return name
    if reason := _reason_against():
        print(f"manyscale: the wheel holds no compiled kernels ({reason}); they are compiled at first use", flush=True)
        return name
    plain = Path(wheel_directory, name)
    with tempfile.TemporaryDirectory() as scratch:
        _compile(plain, Path(scratch))
        name = _packed(plain, Path(scratch))
        plain.unlink()
    return name


def _is_asked_for() -> bool:
    value = os.environ.get("MANYSCALE_KERNELS", "0")
    if value not in ("0", "all"):
        raise SystemExit(f"MANYSCALE_KERNELS={value}: is neither all nor 0")
    return value == "all"


def _reason_against() -> str:
    if sys.platform != "linux" or platform.machine() != "x86_64" or platform.python_implementation() != "CPython":
        return f"only for CPython on x86-64 Linux, this is {platform.python_implementation()} on {platform.platform()}"
    if not set(Path("/proc/cpuinfo").read_text().split()) >= _FLAGS:
        return "this processor is no x86-64-v3"
    return ""


def _compile(wheel: Path, scratch: Path) -> None:
    """Compile into ``scratch``, which gets what the wheel holds. A command that fails ends the build: the wheel would
    lack the kernels that it and those after it need, and nobody would see it before they are compiled at first use."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(scratch)
    path = os.pathsep.join(filter(None, [str(scratch), os.environ.get("PYTHONPATH")]))
    command = [sys.executable, "-m", "manyscale.runner.wheel.exercises", "--into", str(scratch / _KERNELS)]
    data = Path("tests/data")
    if data.is_dir():
        command += ["--data", str(data.absolute())]
    environment = {**os.environ, **_PROCESSOR, "PYTHONPATH": path}
    done = subprocess.run(command, env=environment, stderr=subprocess.PIPE, text=True)
    print(done.stderr, end="", flush=True)
    if done.returncode:
        reason = done.stderr.strip().rpartition("\n")[2]
        raise SystemExit(f"kernels: {reason or f'the process that compiles them ended with {done.returncode}'}")


def _packed(plain: Path, scratch: Path) -> str:
    """The wheel of ``plain`` with the kernels of ``scratch``, beside it. Returns its name."""
    python = f"cp{sys.version_info[0]}{sys.version_info[1]}"
    tag = f"{python}-{python}-linux_x86_64"
    name = plain.name.replace("py3-none-any", tag)
    record = []
    with zipfile.ZipFile(plain) as old, zipfile.ZipFile(plain.with_name(name), "w", zipfile.ZIP_DEFLATED) as new:
        members = [member for member in old.infolist() if not member.filename.endswith("/RECORD")]
        (listing,) = [member for member in old.infolist() if member.filename.endswith("/RECORD")]
        for member in members:
            content = old.read(member)
            if member.filename.endswith(".dist-info/WHEEL"):
                content = content.replace(b"py3-none-any", tag.encode()).replace(b"Purelib: true", b"Purelib: false")
            new.writestr(member, content, zipfile.ZIP_DEFLATED)
            record.append(_recorded(member.filename, content))
        for file in sorted((scratch / _KERNELS).rglob("*.nbc")):
            member = zipfile.ZipInfo(file.relative_to(scratch).as_posix(), members[0].date_time)
            member.external_attr = 0o644 << 16
            new.writestr(member, file.read_bytes(), zipfile.ZIP_DEFLATED)
            record.append(_recorded(member.filename, file.read_bytes()))
        new.writestr(listing, "".join(record) + f"{listing.filename},,\n", zipfile.ZIP_DEFLATED)
    return name


def _recorded(name: str, content: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(content)}\n"
