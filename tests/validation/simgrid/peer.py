"""Run SimGrid 3.32's ``smpirun``: replays of action traces, and MPI programs, on a network without contention.

The platform is a full mesh of links that are never shared, 10 us and 1.25 GB/s between hosts, 5 us from a host to
itself; all correction factors of SimGrid's network model are off. That is the latency-bandwidth law of the target
``crossbar256``.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from simgrid_platform import CONTENTION_FREE, write_platform

NETWORK_FLAGS: Final = (*CONTENTION_FREE, "--cfg=surf/precision:1e-13")
# Tests and probes take no time: the trace does not say how long the program's own did.
POLLING_FLAGS: Final = ("--cfg=smpi/test:0", "--cfg=smpi/iprobe:0")
EAGER_FLAG: Final = "--cfg=smpi/async-small-thresh:65536"  # small messages leave before their receive is posted
PROGRAM_FLAGS: Final = ("--cfg=smpi/simulate-computation:no", "--cfg=smpi/wtime:0")
# time, actor and message of every log line, with picoseconds
LOG_FLAGS: Final = ("--log=smpi_replay.thres:verbose", "--log=root.fmt:[%.12r]|%a|%m%n")

_LINE: Final = re.compile(r"^\[ *([0-9.]+)\]\|([^|]*)\|(.*)$")


def available() -> bool:
    return shutil.which("smpirun") is not None and shutil.which("smpicc") is not None


@dataclass(frozen=True)
class Replayed:
    """``makespan_s``; per rank the actions that took place, as SimGrid read them, with their end in seconds."""

    makespan_s: float
    actions: tuple[tuple[tuple[str, float], ...], ...]


class PeerError(RuntimeError):
    """SimGrid refused or failed; holds the end of what it printed."""


def write_trace(folder: Path, actions: Sequence[Sequence[str]]) -> Path:
    """Write one file of actions per rank and the list that names them; the list's path."""
    for rank, lines in enumerate(actions):
        (folder / f"rank{rank}.txt").write_text("".join(f"{rank} {line}\n" for line in lines))
    listed = folder / "ti.txt"
    listed.write_text("".join(f"rank{rank}.txt\n" for rank in range(len(actions))))
    return listed


def replay(
    folder: Path,
    actions: Sequence[Sequence[str]],
    eager: bool = False,
    flags: Sequence[str] = (),
    platform: Callable[[Path, int], list[str]] = write_platform,
) -> Replayed:
    """Write the actions of every rank (without the leading rank) to ``folder`` and let SimGrid replay them there."""
    write_trace(folder, actions)
    arguments = [*platform(folder, len(actions)), "-replay", "ti.txt", *NETWORK_FLAGS, *LOG_FLAGS, *flags]
    output = _run(["smpirun", *arguments, *([EAGER_FLAG] if eager else [])], folder)
    makespan = None
    ends: list[list[tuple[str, float]]] = [[] for _ in actions]
    for line in output.splitlines():
        found = _LINE.match(line)
        if not found:
            continue
        time, actor, text = found.groups()
        if text.startswith("Simulation time"):
            makespan = float(time)
        elif actor.isdigit() and int(actor) < len(actions):
            action, _, duration = text.rpartition(" ")
            rank, _, action = action.partition(" ")
            if rank == actor and duration:
                ends[int(actor)].append((action, float(time)))
    if makespan is None:
        raise PeerError(output[-1000:])
    return Replayed(makespan, tuple(tuple(rank) for rank in ends))


def run_program(folder: Path, source: Path, num_ranks: int, eager: bool) -> list[float]:
    """Compile an MPI program, run and trace it into ``folder`` (ti.txt and one file per rank); the end of each rank.

    The program prints ``end RANK SECONDS`` just before MPI_Finalize.
    """
    include = f"-I{source.parent}"
    _run(["smpicc", "-O0", "-w", include, "-o", "program", str(source)], folder)
    arguments = [*write_platform(folder, num_ranks), *NETWORK_FLAGS, *POLLING_FLAGS, *PROGRAM_FLAGS]
    trace = ["-trace-ti", "-trace-file", "traced.txt"]
    log = "--log=root.thres:critical"
    output = _run(["smpirun", *arguments, log, *trace, *([EAGER_FLAG] if eager else []), "./program"], folder)
    ends = {int(line.split()[1]): float(line.split()[2]) for line in output.splitlines() if line.startswith("end ")}
    if sorted(ends) != list(range(num_ranks)):
        raise PeerError(output[-1000:])
    files = [Path(name) for name in (folder / "traced.txt").read_text().split()]
    if len(files) != num_ranks:
        raise PeerError(f"{len(files)} rank files were traced, not {num_ranks}")
    write_trace(folder, [[line.split(" ", 1)[1].rstrip() for line in _lines(folder / file)] for file in files])
    return [ends[rank] for rank in range(num_ranks)]


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines()


def _run(command: Sequence[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode:
        raise PeerError(f"{' '.join(command)}: status {done.returncode}\n{(done.stdout + done.stderr)[-1500:]}")
    return done.stdout + done.stderr
