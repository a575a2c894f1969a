"""The analytical model of a node against the detailed one.

``python -m interval.measure reference TRACES`` in tests/validation, with manyscale importable, simulates every case of
cases.py in detail (``trace_programs.py`` makes TRACES) and writes ``references.csv`` here: cycles, and CPU seconds of
one simulation, half of the two that bring caches to their state and count, in a process that has loaded the kernels.
``python -m interval.measure predict TRACES`` predicts them by
``cpu: interval`` and writes ``results.csv``, with CPU seconds, taken one after the other in this process: of the
detailed model, of opening the instructions for it, of the prediction from what is kept (its opening included), of the
costs of samples on the machine's cores, and of the profile (its opening of the instructions included). Cases with equal
``cut_for`` share a profile, and on one target the costs. ``summary`` prints the tables of RESULTS.md. Cases that have a
row already are not done again (``--again``: they are).
"""

from __future__ import annotations

import argparse
import csv
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from interval.cases import MACHINES, Program, cycles_of, machine, run
from manyscale.runner.predict.units import Arrays

HERE: Final = Path(__file__).parent
KEY: Final = ("suite", "program", "target", "cores")
REFERENCE: Final = (*KEY, "instances", "million_instructions", "detailed_cycles", "detailed_seconds")
RESULT: Final = (*KEY, "detailed_cycles", "interval_cycles", "error_percent", "detailed_seconds", "open_seconds",
                 "interval_seconds", "costs_seconds", "profile_seconds", "cut_for")  # fmt: skip
Row = dict[str, str]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=["reference", "predict", "summary"])
    parser.add_argument("traces", type=Path, metavar="TRACES", nargs="?")
    parser.add_argument("--only", default="", help="cases whose name SUITE/PROGRAM/TARGET/CORES has this in it")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--output", type=Path, default=HERE)
    options = parser.parse_args(arguments)
    if options.what == "summary":
        print(summary(read(options.output / "results.csv")))
        return 0
    name = "references.csv" if options.what == "reference" else "results.csv"
    known = {key_of(row): row for row in read(options.output / name)}
    make = reference if options.what == "reference" else predicted(read(HERE / "references.csv"))
    columns = REFERENCE if options.what == "reference" else RESULT
    for suite, program, target, cores in cases(options.traces, options.only):
        key = (suite, program.folder.name, target, str(cores))
        if key in known and not options.again:
            continue
        row = make(program, target, cores)
        known[key] = dict(zip(KEY, key, strict=True)) | row
        print(*known[key].values(), flush=True)
        write(options.output / name, columns, [known[each] for each in sorted(known)])
    return 0


def cases(traces: Path, only: str) -> Iterator[tuple[str, Program, str, int]]:
    """A program stays open for all of its cases."""
    for suite in ("apps", "resident", "beyond", "held_out"):
        where = traces / suite
        for folder in sorted(each for each in where.iterdir() if each.is_dir()) if where.is_dir() else ():
            program = Program(folder)
            for target, (_, numbers) in MACHINES.items():
                for cores in numbers:
                    if only in f"{suite}/{folder.name}/{target}/{cores}":
                        yield suite, program, target, cores


def reference(program: Program, target: str, cores: int) -> Row:
    on = machine(target)
    cell = program.open(cores, on)
    found, seconds = timed(lambda: run(cell, cores, "detailed", None))
    return {
        "instances": str(len(found.row)),
        "million_instructions": f"{cell.instructions.sum() / 1e6:.2f}",
        "detailed_cycles": f"{cycles_of(found, on):.0f}",
        "detailed_seconds": f"{seconds / 2:.3f}",
    }


def predicted(references: Sequence[Row]) -> Callable[[Program, str, int], Row]:
    known = {key_of(row): row for row in references}
    kept = _Kept()
    is_warm: set[str] = set()

    def predict(program: Program, target: str, cores: int) -> Row:
        on = machine(target)
        truth = known[program.folder.parent.name, program.folder.name, target, str(cores)]
        if not is_warm:  # kernels
            both, _, _ = _Kept().of(program, target, cores)
            run(program.open_profiled(cores, on, both), cores, "interval", both)
            run(program.open(cores, on), cores, "detailed", None)
            is_warm.add("once")
        both, costs, collected = kept.of(program, target, cores)
        found, seconds = timed(lambda: run(program.open_profiled(cores, on, both), cores, "interval", both))
        cell, opening = timed(lambda: program.open(cores, on))
        in_detail, detailed = timed(lambda: run(cell, cores, "detailed", None))
        cycles, true = cycles_of(found, on), cycles_of(in_detail, on)
        if f"{true:.0f}" != truth["detailed_cycles"]:
            raise ValueError(f"{program.folder}: {true:.0f} cycles in detail, references.csv has others")
        return {
            "detailed_cycles": f"{true:.0f}",
            "interval_cycles": f"{cycles:.0f}",
            "error_percent": f"{100 * (cycles / true - 1):.2f}",
            "detailed_seconds": f"{detailed / 2:.4f}",  # as in ``reference``
            "open_seconds": f"{opening:.4f}",
            "interval_seconds": f"{seconds:.4f}",
            "costs_seconds": f"{costs:.4f}",
            "profile_seconds": f"{collected:.4f}",
            "cut_for": str(program.cut_for(cores)),
        }

    return predict


class _Kept:
    """Profiles and costs of one program at a time."""

    def __init__(self) -> None:
        self._program: Program | None = None
        self._profiles: dict[int, tuple[Arrays, float]] = {}
        self._costs: dict[tuple[str, int], tuple[Arrays, float]] = {}

    def of(self, program: Program, target: str, cores: int) -> tuple[Arrays, float, float]:
        """(both, CPU seconds of the costs, of the profile)."""
        if self._program is not program:
            self.__init__()  # type: ignore[misc]
            self._program = program
        on, cut = machine(target), program.cut_for(cores)
        if cut not in self._profiles:
            self._profiles[cut] = timed(lambda: program.profile(cores, on))
        profile, collected = self._profiles[cut]
        if (target, cut) not in self._costs:
            self._costs[target, cut] = timed(lambda: program.costs(on, profile))
        costs, seconds = self._costs[target, cut]
        return profile | costs, seconds, collected


def timed(make: Callable[[], Any]) -> tuple[Any, float]:
    """A result and its CPU seconds."""
    start = time.process_time()
    result = make()
    return result, time.process_time() - start


def summary(rows: Sequence[Mapping[str, str]]) -> str:
    """Errors by program and number of cores, speed-ups, ranks of design points."""
    lines = ["| mean / worst error, % | 1 core | 4 | 16 | 64 | all |", "| --- | --- | --- | --- | --- | --- |"]
    every, rows = rows, [row for row in rows if row["suite"] != "held_out"]
    groups = {"all": list(rows)}
    for suite in ("apps", "resident", "beyond"):
        groups[suite] = [row for row in rows if row["suite"] == suite]
    for target in MACHINES:
        groups[target] = [row for row in rows if row["target"] == target]
    groups["held_out"] = [row for row in every if row["suite"] == "held_out"]
    for suite, program in dict.fromkeys((row["suite"], row["program"]) for row in every):
        groups[f"{suite}/{program}"] = [r for r in every if (r["suite"], r["program"]) == (suite, program)]
    for name, mine in groups.items():
        cells = [[row for row in mine if row["cores"] == cores] for cores in ("1", "4", "16", "64")]
        lines.append(f"| {name} | " + " | ".join(_errors(each) for each in [*cells, mine]) + " |")
    lines += ["", *_speed_ups(rows), "", f"rank correlation: {_ranks(rows)}"]
    return "\n".join(lines)


def _errors(rows: Sequence[Mapping[str, str]]) -> str:
    errors = [abs(float(row["error_percent"])) for row in rows]
    return f"{np.mean(errors):.1f} / {max(errors):.0f}" if errors else ""


def _speed_ups(rows: Sequence[Mapping[str, str]]) -> list[str]:
    """A table by program: CPU time of the detailed model over that of the prediction, in sum, lowest and highest; the
    same with all that is collected, each once for the cases that share it, or all of it for each case, on both sides
    with the opening of the instructions."""
    lines = [
        "| times as fast | alone | lowest | highest | with costs, once each | with profiles, too, once each | all for "
        "each case |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    programs = dict.fromkeys((row["suite"], row["program"]) for row in rows)
    groups = {"all": list(rows)}
    groups |= {f"{s}/{p}": [row for row in rows if (row["suite"], row["program"]) == (s, p)] for s, p in programs}
    for name, mine in groups.items():
        detailed, opening, alone, costs, profile = (
            np.array([float(row[f"{each}_seconds"]) for row in mine])
            for each in ("detailed", "open", "interval", "costs", "profile")
        )
        once = [(row["suite"], row["program"], row["cut_for"]) for row in mine]
        of_costs = dict(zip(zip([row["target"] for row in mine], once, strict=True), costs, strict=True))
        of_profiles = dict(zip(once, profile, strict=True))
        with_costs = alone.sum() + sum(of_costs.values())
        each = (detailed + opening).sum() / (alone + costs + profile).sum()
        ratio = detailed / alone
        values = (
            detailed.sum() / alone.sum(), ratio.min(), ratio.max(), detailed.sum() / with_costs,
            detailed.sum() / (with_costs + sum(of_profiles.values())), each,
        )  # fmt: skip
        lines.append(f"| {name} | " + " | ".join(f"{value:.1f}" for value in values) + " |")
    return lines


def _ranks(rows: Sequence[Mapping[str, str]]) -> str:
    """Spearman's correlation over machines and cores of each program."""
    found = []
    for suite, program in dict.fromkeys((row["suite"], row["program"]) for row in rows):
        mine = [r for r in rows if (r["suite"], r["program"]) == (suite, program)]
        ranks = [
            np.argsort(np.argsort([float(r[f"{name}_cycles"]) for r in mine])) for name in ("detailed", "interval")
        ]
        found.append((float(np.corrcoef(ranks)[0, 1]) if len(mine) > 1 else 1.0, f"{suite}/{program}"))
    return f"mean {np.mean([each for each, _ in found]):.3f}, lowest {min(found)[0]:.3f} ({min(found)[1]})"


def key_of(row: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(row[name] for name in KEY)


def read(path: Path) -> list[Row]:
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def write(path: Path, columns: Sequence[str], rows: Sequence[Row]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    sys.exit(main())
