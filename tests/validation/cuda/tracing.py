"""What the scripts here share: building CUDA programs for the tracer, and the names of the targets they are shown."""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

from manyscale.runner import cli
from manyscale.runner.shipped import shipped_targets
from manyscale.runner.tracers.cuda import session  # noqa: F401 - that it is there before a process is forked

HERE = Path(__file__).parent
SHOWN = {75: "turing", 80: "a100", 86: "rtx3070", 90: "h100"}
MANYSCALE = [sys.executable, "-m", "manyscale"]
REMOVED = {
    "cudaThreadSynchronize": "cudaDeviceSynchronize",
    "cudaThreadExit": "cudaDeviceReset",
    "deviceOverlap": "asyncEngineCount",
    "clockRate": "warpSize",
    "computeMode": "integrated",
}
"""What CUDA 13 has no more, and what stands for it; the fields of cudaDeviceProp are printed at most."""


def called(
    command: list[str], folder: Path, *, time_limit: float = 900, cpu_limit: int | None = None, **environment: str
) -> tuple[int, str, str]:
    """Exit status, standard output and error of a command; -9 or -24 where it takes more than ``cpu_limit`` seconds."""

    def limited() -> None:
        if cpu_limit is not None:
            resource.setrlimit(resource.RLIMIT_CPU, (cpu_limit, cpu_limit + 1))

    done = subprocess.run(command, cwd=folder, env={**os.environ, **environment}, capture_output=True, text=True,
                          errors="replace", timeout=time_limit, check=False, preexec_fn=limited)  # fmt: skip
    return done.returncode, done.stdout, done.stderr


def checkout(sources: Path, name: str, url: str) -> Path:
    """A suite's checkout among the sources, cloned where it is not there; where that fails, the script ends."""
    found = (sources / name).resolve()
    if not found.exists():
        status, _, told = called(["git", "clone", url, str(found)], sources)
        if status:
            sys.exit(told)
    return found


def traced(words: list[str], folder: Path, cpu_limit: int, **environment: str) -> tuple[int, str, str]:
    """``manyscale trace`` with further words, in a process that is forked from this one, where all is imported: exit
    status (negative: a signal), standard output and error."""
    with tempfile.TemporaryDirectory() as scratch:
        out, err = Path(scratch, "out"), Path(scratch, "err")
        child = os.fork()
        if child == 0:
            status = 70
            try:
                for path, number in ((out, 1), (err, 2)):
                    os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), number)
                os.chdir(folder)
                os.environ.update(environment)
                resource.setrlimit(resource.RLIMIT_CPU, (cpu_limit, cpu_limit + 1))
                status = cli.main(["trace", *words])
                sys.stdout.flush()
                sys.stderr.flush()
            finally:
                os._exit(status)
        _, waited = os.waitpid(child, 0)
        return os.waitstatus_to_exitcode(waited), out.read_text(errors="replace"), err.read_text(errors="replace")


def write_section(name: str, title: str, body: str) -> None:
    """Puts a section under its title into a page here, in place of the one that is there; else at the end."""
    page = HERE / name
    parts = re.split(r"^(?=# )", page.read_text(), flags=re.MULTILINE) if page.exists() else []
    parts = [part for part in parts if part.strip()]
    section = f"# {title}\n\n{body.strip()}\n"
    titles = [part.split("\n", 1)[0] for part in parts]
    at = titles.index(f"# {title}") if f"# {title}" in titles else len(parts)
    parts[at : at + 1] = [section]
    page.write_text("\n".join(part.strip() + "\n" for part in parts))


def first_error(text: str) -> str:
    lines = [line for line in text.splitlines() if "error" in line or "undefined" in line]
    return (lines or text.splitlines() or ["no message"])[0].strip()


@cache
def nvcc() -> tuple[str, list[str]]:
    """Where nvcc stands, and the words that link a program for the tracer."""
    _, path, _ = called([*MANYSCALE, "trace", "--nvcc", "path"], HERE)
    _, words, _ = called([*MANYSCALE, "trace", "--nvcc"], HERE)
    return path.strip(), words.split()


def object_file(source: str, folder: Path) -> Path:
    """A C file that stands here, compiled. Raises RuntimeError."""
    made = folder / f"{Path(source).stem}.o"
    if made.exists() and made.stat().st_mtime > (HERE / source).stat().st_mtime:
        return made
    status, _, told = called(["cc", "-O2", "-c", str(HERE / source), "-o", str(made)], folder)
    if status:
        raise RuntimeError(told)
    return made


def write_turing(folder: Path) -> Path:
    """A target of compute capability 7.5, as none is shipped. Raises RuntimeError."""
    text = shipped_targets()["rtx3070"].read_text()
    for old, new in (("compute_capability: 86", "compute_capability: 75"), ("size: 100 KiB", "size: 64 KiB"),
                     ("64 KiB, 100 KiB]", "64 KiB]"), ("name: rtx3070", "name: turing")):  # fmt: skip
        if old not in text:
            raise RuntimeError(f"rtx3070 has no `{old}`")
        text = text.replace(old, new)
    (folder / "turing.yaml").write_text(text)
    return folder / "turing.yaml"


def children_seconds() -> float:
    """CPU time of the processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def range_of(values: list[float], form: str = ",.0f") -> str:
    low, high = format(min(values), form), format(max(values), form)
    return low if low == high else f"{low} to {high}"
