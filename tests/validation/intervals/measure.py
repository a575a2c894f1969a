"""Programs from some of their intervals against all of them in detail: the tables of RESULTS.md.

``python -m intervals.measure TRACES OUT [NAME ...]`` in tests/validation, with manyscale importable, TRACES as
trace_programs.py writes them, simulates each program whole (``sampling: {intervals: full}``, stitched: the detailed
model as it is) and by SimPoint with one and three intervals of each cluster, seeds 0 to 2, with caches cold, stitched,
filled by last uses, and warmed by ever more instructions. ``OUT/NAME.csv``: a row per run; ``OUT/tables.md`` of all
programs in OUT.

Columns: ``error`` of CPI; ``choice_error`` of the same intervals with the cycles that they have in the whole run, so
what choosing alone costs; ``begin_error``: the rest, which comes from beginning in other caches; ``half_width`` of the
interval of 95 % (empty where there is none); ``cpu_seconds`` of the units, if none of them was there yet.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow.parquet as pq

import manyscale
from manyscale.models.workload.columns import to_numpy
from manyscale.runner.run.results import Result

from .trace_programs import PROGRAMS

TARGET: Final = "epyc-zen4"
INSTRUCTIONS: Final = 1_000_000
SEEDS: Final = 3
WARM_UPS: Final = (1_000_000, 20_000_000, 100_000_000)
MOST_OF_SEVERAL: Final = 20_000_000  # instructions that warm up where several of each cluster are simulated
BEGINS: Final[dict[str, dict[str, Any]]] = {
    "cold": {"caches": "cold"},
    "stitched": {"caches": "stitched"},
    "last uses": {"caches": "last-uses"},
    **{f"warm {each / 1e6:g} M": {"caches": "warm", "warm_up": each} for each in WARM_UPS},
}
COLUMNS: Final = (
    "program", "begin", "per_cluster", "seed", "intervals", "of", "cpi", "error", "choice_error", "begin_error",
    "half_width", "holds", "cpu_seconds", "whole_cpu_seconds",
)  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("traces", type=Path, metavar="TRACES")
    parser.add_argument("output", type=Path, metavar="OUT")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"default: all of {', '.join(PROGRAMS)}")
    options = parser.parse_args(arguments)
    options.output.mkdir(parents=True, exist_ok=True)
    for name in options.names or PROGRAMS:
        rows = measured(name, options.traces / name, options.output / name)
        with (options.output / f"{name}.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
    (options.output / "tables.md").write_text(tables(options.output))
    return 0


def measured(name: str, trace: Path, folder: Path) -> list[dict[str, Any]]:
    _run(trace, folder / "first", "second", {"intervals": 1}, 0, folder / "first" / "cache")  # compiles
    whole = _run(trace, folder / "whole", "full", {"caches": "stitched"}, 0, folder / "whole" / "cache")
    true_cpi = to_numpy(whole.intervals.column("cpi"))
    truth = float(whole.statistics["intervals.cpi"].value)
    whole_cpu = _cpu_seconds(folder / "whole")
    rows = []
    for begin, options in BEGINS.items():
        for per_cluster in (1,) if options.get("warm_up", 0) > MOST_OF_SEVERAL else (1, 3):
            for seed in range(SEEDS):
                place = folder / f"{begin.replace(' ', '-')}-{per_cluster}-{seed}"
                chosen = options | ({"per_cluster": per_cluster} if per_cluster > 1 else {})
                found = _run(trace, place, "simpoint", chosen, seed, place / "cache")
                cpi = found.statistics["intervals.cpi"]
                plan = pq.read_table(place / "run" / "plan.parquet")
                element, weight = (to_numpy(plan.column(column)) for column in ("element_id", "weight"))
                chosen_cpi = float(weight @ true_cpi[element])
                row = {
                    "program": name, "begin": begin, "per_cluster": per_cluster, "seed": seed,
                    "intervals": len(element), "of": len(true_cpi), "cpi": f"{cpi.value:.6g}",
                    "error": f"{cpi.value / truth - 1:.5g}", "choice_error": f"{chosen_cpi / truth - 1:.5g}",
                    "begin_error": f"{(cpi.value - chosen_cpi) / truth:.5g}", "half_width": "", "holds": "",
                    "cpu_seconds": f"{_cpu_seconds(place):.3g}", "whole_cpu_seconds": f"{whole_cpu:.3g}",
                }  # fmt: skip
                if cpi.ci_low is not None and cpi.ci_high is not None:
                    row["half_width"] = f"{(cpi.ci_high - cpi.ci_low) / 2 / truth:.5g}"
                    row["holds"] = int(cpi.ci_low <= truth <= cpi.ci_high)
                rows.append(row)
        print(name, begin, flush=True)
    return rows


def _run(trace: Path, place: Path, method: str, options: Mapping[str, Any], seed: int, cache: Path) -> Result:
    study = {
        "workload": {"path": str(trace)},
        "target": TARGET,
        "model": {"cpu": "detailed"},
        "sampling": {"intervals": method},
        "intervals": {"instructions": INSTRUCTIONS, **options},
        "seed": seed,
    }
    return manyscale.run(study, place / "run", executor="local", report=False, cache=cache)


def _cpu_seconds(place: Path) -> float:
    return float(json.loads((place / "run" / "simulator.json").read_text())["unit_cpu_seconds"])


def tables(output: Path) -> str:
    """Markdown: a table for each number of intervals of a cluster, of all programs that were measured."""
    rows = []
    for name in PROGRAMS:
        if (output / f"{name}.csv").exists():
            with (output / f"{name}.csv").open() as file:
                rows += list(csv.DictReader(file))
    names = list(dict.fromkeys(row["program"] for row in rows))
    text = []
    for per_cluster in ("1", "3"):
        text += [f"**{per_cluster} of each cluster**", "", f"| | {' | '.join(names)} |"]
        text.append("| --- " * (len(names) + 1) + "|")
        mine = [row for row in rows if row["per_cluster"] == per_cluster]
        of_choice = [_mean(mine, "choice_error", program=name) for name in names]
        taken = [f"{np.mean([int(row['intervals']) for row in mine if row['program'] == name]):.0f}" for name in names]
        text.append(f"| intervals | {' | '.join(taken)} |")
        text.append(f"| error of choosing | {' | '.join(of_choice)} |")
        begins = [begin for begin in BEGINS if any(row["begin"] == begin for row in mine)]
        for begin in begins:
            cells = [_mean(mine, "begin_error", program=name, begin=begin) for name in names]
            text.append(f"| error of beginning {begin} | {' | '.join(cells)} |")
        for begin in begins:
            cells = [_mean(mine, "error", program=name, begin=begin) + _held(mine, name, begin) for name in names]
            text.append(f"| error, {begin} | {' | '.join(cells)} |")
        for begin in begins:
            cells = [_seconds(mine, name, begin) for name in names]
            text.append(f"| CPU seconds, {begin} | {' | '.join(cells)} |")
        text.append("")
    return "\n".join(text)


def _mean(rows: Sequence[Mapping[str, str]], column: str, **values: str) -> str:
    """Mean of absolute values over seeds."""
    mine = [abs(float(row[column])) for row in rows if all(row[key] == value for key, value in values.items())]
    return f"{np.mean(mine):.2%}"


def _seconds(rows: Sequence[Mapping[str, str]], program: str, begin: str) -> str:
    """Of the units, mean over seeds, and of the whole program in detail."""
    mine = [row for row in rows if row["program"] == program and row["begin"] == begin]
    own, whole = (np.mean([float(row[key]) for row in mine]) for key in ("cpu_seconds", "whole_cpu_seconds"))
    return f"{own:.1f} of {whole:.1f}"


def _held(rows: Sequence[Mapping[str, str]], program: str, begin: str) -> str:
    """How often intervals held, and the mean half-width."""
    mine = [row for row in rows if row["program"] == program and row["begin"] == begin and row["holds"]]
    if not mine:
        return ""
    half = np.mean([float(row["half_width"]) for row in mine])
    return f" (± {half:.1%}, {sum(int(row['holds']) for row in mine)} of {len(mine)})"


if __name__ == "__main__":
    sys.exit(main())
