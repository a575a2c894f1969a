"""Recording of call stacks: SimProf's thread profiler (Huang, Georgia Tech 2015, section 5.3.1) with the profilers that
Linux has.

=========  ===============================================================================================
perf       native programs; a snapshot every so many instructions, and cycles with each, where the machine
           has hardware counters; else every so much CPU time (software clock)
py-spy     Python programs; a snapshot at a fixed rate of those threads that are not idle
jfr        Java programs, by the Flight Recorder of their virtual machine, at a fixed rate
=========  ===============================================================================================

SimProf's snapshots are 10 M instructions apart, ten in a unit. Where instructions cannot be counted, a snapshot is
taken each 10 ms: what 10 M instructions take at 1 GHz and an IPC of 1, and the shorter of the two periods that the Java
Flight Recorder's own settings have.

Each rank of an MPI program is profiled by itself: ``prefix`` is what to put before the program in the launcher's
command line. The shell in it names the rank's folder after the environment that the launcher sets, and prints perf's
recording as text where the program ran, so that symbols are at hand.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from manyscale.models.spelling import unknown
from manyscale.models.workload.quantities import PS_PER_SECOND
from manyscale.runner.errors import RunError, UserError
from manyscale.runner.readers.stacks.folder import FORMAT, HEADER, PERF_TEXT, SPEEDSCOPE, VERSION
from manyscale.runner.readers.stacks.units import UnitRules

SOURCES: Final = ("perf", "py-spy", "jfr")
_PACKAGES: Final = {
    "perf": "Debian: linux-perf",
    "py-spy": "PyPI: py-spy",
    "java": "Debian: default-jdk-headless",
}
_RANK: Final = "${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-${PMIX_RANK:-${SLURM_PROCID:-0}}}}"
_JFC: Final = "stacks.jfc"
_FIELDS: Final = "comm,pid,tid,cpu,time,period,event,ip,sym,symoff,dso"
_CYCLE_SAMPLES: Final = 100
_MAX_RATE_HZ: Final = 10_000


@dataclass(frozen=True)
class Sampling:
    """How often stacks are taken.

    ``unit_instructions``: length of a unit where instructions can be counted; ``unit_ps``: length of a unit of CPU time
    elsewhere; ``snapshots`` in a unit. ``call_graph``: how perf walks a stack, "dwarf" (copies of the stack, programs
    as they are) or "fp" (smaller, for programs built with -fno-omit-frame-pointer). Raises ValueError.
    """

    unit_instructions: int = 100_000_000
    unit_ps: int = PS_PER_SECOND // 10
    snapshots: int = 10
    call_graph: str = "dwarf"

    def __post_init__(self) -> None:
        if self.call_graph not in ("dwarf", "fp"):
            raise ValueError(f"call_graph is {self.call_graph!r}; it must be 'dwarf' or 'fp'")
        if self.snapshots < 1 or self.unit_instructions < self.snapshots:
            raise ValueError("a unit must hold at least one snapshot, and each stand for an instruction or more")
        if self.unit_ps < self.snapshots * PS_PER_SECOND // _MAX_RATE_HZ:
            raise ValueError(f"more than {_MAX_RATE_HZ} snapshots a second disturb the program; take longer units")

    @property
    def period_ps(self) -> int:
        return self.unit_ps // self.snapshots


DEFAULT_SAMPLING: Final = Sampling()


def choose_source(program: str) -> str:
    """The profiler for a program: by its name, or by the interpreter that its first line names."""
    words = [os.path.basename(program)]
    path = shutil.which(program)
    if path is not None:
        with open(path, "rb") as file:
            first = file.readline(256)
        if first.startswith(b"#!"):
            words += [os.path.basename(word) for word in first[2:].decode(errors="replace").split()]
    for word in words:
        if word in ("java", "jshell"):
            return "jfr"
        if word.rstrip("0123456789.") in ("python", "pypy"):
            return "py-spy"
    return "perf"


def prefix(output: Path, source: str, sampling: Sampling = DEFAULT_SAMPLING) -> list[str]:
    """The words to put before each rank's program; ``output`` is the folder that ``prepare`` made, which every node
    must see. Raises UserError where the profiler is missing or cannot write there."""
    output = output.resolve()
    if source == "perf":
        events = _perf_events(sampling)
        walk = "dwarf,16384" if sampling.call_graph == "dwarf" else "fp"
        # (perf's watch over BPF programs makes it end a second late)
        recording = ["perf", "record", "-q", "--no-bpf-event", "--sample-cpu", *events, "--call-graph", walk]
        script = (
            f'{{ {_quoted(recording)} -o "$to/perf.data" -- "$@"; status=$?; }}; '
            f'perf script --ns -F {_FIELDS} -i "$to/perf.data" >"$to/{PERF_TEXT}" 2>"$to/perf.log" && '
            f'rm -f "$to/perf.data" || rm -f "$to/{PERF_TEXT}"; exit $status'
        )
    elif source == "py-spy":
        rate = max(round(PS_PER_SECOND / sampling.period_ps), 1)
        _need("py-spy")
        script = f'exec py-spy record --subprocesses --format speedscope --rate {rate} -o "$to/{SPEEDSCOPE}" -- "$@"'
    elif source == "jfr":
        _need("java")
        if any(letter in str(output) for letter in " \t\n,'\""):
            raise UserError(f"{output}: Java's options take no path with blanks, commas or quotes; name another folder")
        options = f"-XX:StartFlightRecording=filename=$to,settings=$0/{_JFC},dumponexit=true "
        options += "-XX:FlightRecorderOptions=stackdepth=256 -Xlog:jfr+startup=error"
        script = f'JAVA_TOOL_OPTIONS="${{JAVA_TOOL_OPTIONS:+$JAVA_TOOL_OPTIONS }}{options}" exec "$@"'
    else:
        raise UserError(unknown("profiler", source, SOURCES))
    return ["/bin/sh", "-c", f'to="$0/rank-{_RANK}"; mkdir "$to" || exit 2; {script}', str(output)]


def prepare(output: Path, source: str, command: Sequence[str], sampling: Sampling = DEFAULT_SAMPLING) -> None:
    """Write what belongs to all ranks into the new folder: ``stacks.json``, which makes it readable, and settings."""
    output.mkdir(parents=True, exist_ok=True)
    if source == "jfr":
        (output / _JFC).write_text(_settings(sampling))
    rules = UnitRules(snapshots=sampling.snapshots)
    header = {
        "format": FORMAT,
        "version": VERSION,
        "name": output.resolve().name,
        "source": source,
        "command": list(command),
        "sampling": asdict(sampling),
        "rules": asdict(rules),
    }
    (output / HEADER).write_text(json.dumps(header, indent=1) + "\n")


def record(
    command: Sequence[str],
    output: Path,
    source: str = "auto",
    sampling: Sampling = DEFAULT_SAMPLING,
    programs: Sequence[int] = (0,),
) -> int:
    """Run a command under the profiler; its exit status, negative for a signal (always 0 under py-spy).

    ``programs``: where in the command its programs stand: 0 without a launcher. ``output``: a new or empty folder;
    ``stack_folder.read`` reads it. Raises UserError where the command or the profiler cannot be run, and RunError where
    the profiler left nothing.
    """
    if not command or shutil.which(command[0]) is None:
        raise UserError(f"{command[0] if command else 'no command'}: no such program; give its path or mend PATH")
    if output.is_dir() and any(output.iterdir()):
        raise UserError(f"{output}: is not empty; name a new folder")
    if source == "auto":
        source = choose_source(command[programs[0]])
    before = prefix(output, source, sampling)
    prepare(output, source, command, sampling)
    words: list[str] = []
    for index, word in enumerate(command):
        words += [*before, word] if index in programs else [word]
    status = subprocess.run(words, check=False).returncode
    check(output, source)
    return status


def check(output: Path, source: str) -> None:
    """Raises RunError, with what the profiler said, where a rank has no profile."""
    pattern = {"perf": PERF_TEXT, "py-spy": SPEEDSCOPE, "jfr": "*.jfr"}[source]
    ranks = sorted(output.glob("rank-*"))
    if not ranks:
        raise RunError(f"{output}: no rank started under {source}; see what the command said")
    for rank in ranks:
        if any(rank.glob(pattern)):
            continue
        log = rank / "perf.log"
        said = log.read_text(errors="replace").strip().splitlines() if log.is_file() else []
        advice = {
            "perf": "may this user profile? see kernel.perf_event_paranoid (2 or lower is needed)",
            "py-spy": "may this user trace processes? see kernel.yama.ptrace_scope; did the program start a Python?",
            "jfr": "did the program start a Java virtual machine of version 11 or later, and end by itself?",
        }[source]
        raise RunError(f"{rank}: {source} left no profile{': ' + said[-1] if said else ''}; {advice}")


def _perf_events(sampling: Sampling) -> list[str]:
    """Options of ``perf record`` for the best event that the machine has."""
    _need("perf")
    tried = subprocess.run(
        ["perf", "stat", "-x,", "-e", "instructions:u,cycles:u", "true"], capture_output=True, text=True, check=False
    )
    if tried.returncode == 0 and "not supported" not in tried.stderr and "not counted" not in tried.stderr:
        period = sampling.unit_instructions // sampling.snapshots
        # A group would read both counters at once, but follows no threads. A hundred samples of cycles in a unit of
        # CPI 1 measure it to a percent.
        cycles = max(sampling.unit_instructions // _CYCLE_SAMPLES, 1000)
        return ["-e", f"instructions/period={period}/u", "-e", f"cycles/period={cycles},call-graph=no/u"]
    return ["-e", "task-clock", "-c", str(sampling.period_ps // 1000)]


def _settings(sampling: Sampling) -> str:
    """Settings of the Flight Recorder that record nothing but samples."""
    period = f"{max(sampling.period_ps // 10**9, 1)} ms"
    events = "".join(
        f'  <event name="jdk.{name}"><setting name="enabled">true</setting><setting name="period">{period}</setting>'
        "</event>\n"
        for name in ("ExecutionSample", "NativeMethodSample")
    )
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<configuration version="2.0">\n{events}</configuration>\n'


def _need(tool: str) -> None:
    if shutil.which(tool) is None:
        raise UserError(f"{tool} is not on the PATH; install it ({_PACKAGES[tool]})")


def _quoted(words: Sequence[str]) -> str:
    return " ".join(f"'{word}'" for word in words)
