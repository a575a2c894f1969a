"""Intervals of a program on one and two workers: results byte for byte, CPU and wall time.

``python -m intervals.measure_actors TRACES OUT [NAME ...]`` in tests/validation, with manyscale importable and TRACES
as trace_programs.py writes them: SimPoint with three intervals of each cluster behind last uses, which one unit finds
before the others can begin, and with one of each behind 100 M instructions, on the local executor and on Ray with one
and two workers, each with an empty cache. Writes ``OUT/actors.md``.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import manyscale

from .measure import INSTRUCTIONS, TARGET
from .trace_programs import PROGRAMS

EXECUTORS: Final[dict[str, dict[str, Any]]] = {
    "local": {"executor": "local"},
    "ray, 1 worker": {"executor": "ray", "num_workers": 1},
    "ray, 2 workers": {"executor": "ray", "num_workers": 2},
}
CHOICES: Final[dict[str, dict[str, Any]]] = {
    "last uses, 3 of each": {"per_cluster": 3},
    "warm 100 M, 1 of each": {"caches": "warm", "warm_up": 100_000_000},
}
OUTPUTS: Final = ("stats.json", "plan.parquet", "timeline/intervals.parquet", "timeline/ranks.parquet", "report.html")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("traces", type=Path, metavar="TRACES")
    parser.add_argument("output", type=Path, metavar="OUT")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"default: all of {', '.join(PROGRAMS)}")
    options = parser.parse_args(arguments)
    text = ["| program | intervals | units | executor | CPU s of units | wall s | bytes |", "| --- " * 7 + "|"]
    for name in options.names or PROGRAMS:
        for number, (choice, rules) in enumerate(CHOICES.items()):
            study = {
                "workload": {"path": str(options.traces / name)},
                "target": TARGET,
                "model": {"cpu": "detailed"},
                "sampling": {"intervals": "simpoint"},
                "intervals": {"instructions": INSTRUCTIONS, **rules},
            }
            first: list[bytes] = []
            for executor, chosen in EXECUTORS.items():
                place = options.output / f"{name}-{number}-{executor.replace(', ', '-').replace(' ', '-')}"
                manyscale.run(study, place / "run", cache=place / "cache", **chosen)
                found = json.loads((place / "run" / "simulator.json").read_text())
                contents = [(place / "run" / output).read_bytes() for output in OUTPUTS]
                first = first or contents
                same = "equal" if contents == first else "DIFFERENT"
                times = f"{found['unit_cpu_seconds']:.1f} | {found['wall_seconds']:.1f}"
                text.append(f"| {name} | {choice} | {found['units']['total']} | {executor} | {times} | {same} |")
                print(text[-1], flush=True)
    (options.output / "actors.md").write_text("\n".join(text) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
