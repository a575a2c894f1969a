"""Traces programs of Rodinia with ``--launches tbpoint`` and whole, and compares what is predicted.

    python tests/validation/cuda/launch_sampling.py SOURCES [--only NAME] [--scratch FOLDER]

SOURCES is as rodinia.py has it. The truth is the whole trace, of which every launch is simulated; both are simulated in
detail on rtx3070. ``RESULTS-SAMPLING.md`` is written where all programs are run.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from programs import PROGRAMS
from rodinia import compiled, prepare, short_name
from tracing import HERE, MANYSCALE, called, children_seconds

from manyscale.runner.readers import workload_folder

LONGER = {
    "bfs": None, "cfd (euler3d)": None, "gaussian": "-s 96 -q", "hotspot": "64 2 40 {0}/temp_64 {0}/power_64 out",
    "lud": "-s 256", "srad (v1)": "30 0.5 64 32", "srad (v2)": "64 64 0 31 0 31 0.5 20",
}  # fmt: skip
"""Arguments that make more launches of the programs; None: those that rodinia.py gives."""


SAMPLED = ("--set", "sampling.launches=tbpoint", "--set", "tbpoint.launches.representatives=auto")


@dataclass(frozen=True)
class Traced:
    """``recorded`` of ``launches``; ``size`` bytes of the launches; CPU seconds to ``trace`` and to ``run``; ``cycles``
    of all launches without launch latencies, and the half-width of their interval (None: none is given)."""

    launches: int
    recorded: int
    size: int
    trace: float
    run: float
    cycles: float
    half: float | None


def measured(program: Path, arguments: list[str], folder: Path, *options: str) -> Traced:
    """Raises RuntimeError with what the command says."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    traced = folder / "traced"
    words = ["trace", "--level", "gpu", "--as", "rtx3070", *options, "-o", str(traced), "--", str(program), *arguments]
    before = children_seconds()
    status, _, told = called([*MANYSCALE, *words], folder, COPIES=str(folder / "copies"))
    if status:
        raise RuntimeError(told)
    between = children_seconds()
    cycles, half = cycles_of(traced, folder / "run")
    found = workload_folder.read(traced)
    size = sum(path.stat().st_size for path in (traced / "launches").rglob("*") if path.is_file())
    return Traced(
        found.tables["launches"].num_rows, len(found.gpu.launch_ids), size, between - before,
        children_seconds() - between, cycles, half,
    )  # fmt: skip


def cycles_of(traced: Path, made: Path, *options: str) -> tuple[float, float | None]:
    """(cycles of all launches without launch latencies, half-width of their interval). Raises RuntimeError."""
    words = ["run", "--workload", str(traced), "--target", "rtx3070", "--cache", f"{made}-cache", "-o", str(made)]
    status, _, told = called([*MANYSCALE, *words, *options], traced)
    if status:
        raise RuntimeError(told)
    figures = json.loads((made / "stats.json").read_text())
    cycles = figures["gpu.cycles"]
    half = None if cycles["ci_low"] is None else cycles["value"] - cycles["ci_low"]
    return cycles["value"] - figures["gpu.launch_latency"]["value"], half


def report(results: dict[str, tuple[Traced, Traced, float]]) -> str:
    """RESULTS-SAMPLING.md."""
    lines = [
        "# Representatives of launches while tracing",
        "",
        "Programs of Rodinia, built as `rodinia.py` builds them, traced whole and with `--launches tbpoint`, and"
        " simulated in detail on `rtx3070`, all launches of the whole trace. Made by"
        " `python tests/validation/cuda/launch_sampling.py SOURCES`.",
        "",
        "Cycles are those of all launches, without launch latencies. *Interval*: half-width at 95 %, of the estimate;"
        " *holds*: whether it holds the cycles of the whole trace. Sizes are those of the folder `launches`. CPU"
        " seconds (of tracing: the program, its emulation, storing; of two runs for `tbpoint`) were measured while"
        " others used the machine, too.",
        "",
        "*Sampled*: the cycles that TBPoint estimates by the whole trace, with the same rules. Where an interval does"
        " not hold the truth, or there is none, the recorded launches of each cluster take nearly the same cycles, and"
        " the error is that of the caches: in the whole trace a launch finds what the launches before it left there,"
        " in a sample what their accesses leave, or those of the launches that stand for them. Where each launch finds"
        " cold caches (`gpu.caches: cold`), the errors of hotspot, lud and srad (v2) were -0.05 %, +0.01 % and 0.",
        "",
        "| program | launches | recorded | cycles, whole | estimated | sampled | error | interval | holds | MB, whole"
        " | MB | trace, CPU s | tbpoint | run, CPU s | tbpoint |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, (whole, chosen, sampled) in results.items():
        error = chosen.cycles / whole.cycles - 1
        half = chosen.half
        holds = "" if half is None else "yes" if abs(chosen.cycles - whole.cycles) <= half else "no"
        cells = [name, str(whole.launches), str(chosen.recorded), f"{whole.cycles:,.0f}",
                 f"{chosen.cycles:,.0f}", f"{sampled:,.0f}", f"{error:+.2%}",
                 "none" if half is None else f"{half / chosen.cycles:.2%}", holds,
                 f"{whole.size / 1e6:.2f}", f"{chosen.size / 1e6:.2f}", f"{whole.trace:.1f}", f"{chosen.trace:.1f}",
                 f"{whole.run:.1f}", f"{chosen.run:.1f}"]  # fmt: skip
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", type=Path)
    parser.add_argument("--only", help="names that contain this")
    parser.add_argument("--scratch", type=Path)
    options = parser.parse_args()
    scratch = (options.scratch or Path(tempfile.mkdtemp(prefix="rodinia-"))).resolve()
    scratch.mkdir(parents=True, exist_ok=True)
    prepare(options.sources, scratch)
    results = {}
    for program in PROGRAMS:
        if program.name not in LONGER or (options.only and options.only not in program.name):
            continue
        made = scratch / "programs" / short_name(program)
        problem = compiled(scratch / "sources", program.folder, program.sources, program.words, [86], made)
        if problem:
            raise RuntimeError(f"{program.name}: {problem}")
        arguments = (LONGER[program.name] or program.arguments).format(scratch).split()
        place = scratch / "sampling" / short_name(program)
        whole = measured(made, arguments, place / "whole")
        chosen = measured(made, arguments, place / "tbpoint", "--launches", "tbpoint")
        sampled, _ = cycles_of(place / "whole" / "traced", place / "sampled", *SAMPLED)
        results[program.name] = (whole, chosen, sampled)
        print(report({program.name: results[program.name]}).splitlines()[-1], flush=True)
    if options.only is None:
        (HERE / "RESULTS-SAMPLING.md").write_text(report(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
