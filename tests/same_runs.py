"""Whether a change left every prediction as it was: runs of all examples, before and after, file by file.

``python tests/same_runs.py run OUT`` runs every shipped example, and each model beside its default, into OUT;
``python tests/same_runs.py compare BEFORE AFTER`` names every file that differs, but for host times, versions and
places.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pyarrow.parquet as pq

from manyscale.runner import shipped

VARIANTS: Final = {
    "lulesh-64-flow": "run lulesh-64 --target fattree256 --model network=flow",
    "lulesh-8-loggops": "run lulesh-8 --model network=loggops",
    "lulesh-8-dimemas": "run lulesh-8 --model network=dimemas --target marenostrum3",
    "cholesky-8-cores": "run cholesky-8 --target marenostrum3 --set mapping.cores_per_rank=8",
    "bfs-16-gpumech": "run bfs-16 --model gpu=gpumech",
    "bfs-16-tbpoint": "run bfs-16 --sampling launches=tbpoint",
    "lulesh-64-what-if": "what-if lulesh-64",
    "matmul-cold": "predict matmul --sizes 100",
    "matmul-steady": "predict matmul --sizes 60 --target epyc-zen4 --steady",
}
OF_THE_HOST: Final = ("manifest.json", "simulator.json", "status.json", "units.jsonl")
VOLATILE_COLUMNS: Final = ("cpu_seconds", "result_path", "status", "attempts")
PLACES: Final = re.compile(
    rb"/[\w./-]*/(?=runner/examples|manyscale/runner/examples)|manyscale/(?=runner/examples)"
    rb"|(?<=nonce-)[0-9a-f]{32}|(?<=nonce=.)[0-9a-f]{32}"  # of pages, which contain places
)


def run(output: Path) -> int:
    """Every example and variant; how many failed."""
    commands = {name: f"run {name}" for name in shipped.studies()} | VARIANTS
    failed = 0
    for name, command in commands.items():
        words = [sys.executable, "-m", "manyscale", *command.split(), "--executor", "local", "-o", str(output / name)]
        if subprocess.run(words, stdout=subprocess.DEVNULL).returncode:
            print(f"failed: {name}")
            failed += 1
    return failed


def compare(before: Path, after: Path) -> int:
    """How many files differ, or stand on one side only; they are printed."""
    found = differing(before, after)
    for name in found:
        print(name)
    return len(found)


def differing(before: Path, after: Path) -> list[Path]:
    """Files that differ, or stand on one side only."""
    files = {side: {file.relative_to(side) for file in side.rglob("*") if file.is_file()} for side in (before, after)}
    common = [name for name in files[before] & files[after] if name.name not in OF_THE_HOST]
    one_sided = [name for name in files[before] ^ files[after] if name.name not in OF_THE_HOST]
    return sorted(one_sided + [name for name in common if _content(before / name) != _content(after / name)])


def _content(file: Path) -> object:
    if file.name == "units.parquet":
        table = pq.read_table(file)
        return table.drop_columns([name for name in VOLATILE_COLUMNS if name in table.column_names]).to_pylist()
    if file.name == "points.jsonl":  # in the order in which they were finished
        return sorted(file.read_text().splitlines())
    if file.suffix in (".yaml", ".html"):
        return PLACES.sub(b"", file.read_bytes())
    return file.read_bytes()


if __name__ == "__main__":
    task, *folders = sys.argv[1:]
    sys.exit({"run": run, "compare": compare}[task](*map(Path, folders)) > 0)
