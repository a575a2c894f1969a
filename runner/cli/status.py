"""``manyscale status``: how far a run is."""

from __future__ import annotations

import argparse
from pathlib import Path


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("directory", type=Path, help="run directory")


def run(options: argparse.Namespace) -> int:
    """Count what the journal says."""
    from manyscale.runner.run import directory as rundir

    manifest = rundir.read_manifest(options.directory)
    entries, num_damaged = rundir.read_journal(options.directory)
    latest = {entry["key"]: entry["status"] for entry in entries}
    counted = ", ".join(
        f"{sum(value == name for value in latest.values())} {name}" for name in ("simulated", "reused", "failed")
    )
    print(f"{options.directory}: {manifest['status']}; {len(latest)} units finished ({counted})")
    if num_damaged:
        print(f"{num_damaged} damaged lines of units.jsonl are left out")
    points = sorted((options.directory / "points").glob("*/manifest.json"))
    if points:
        print(f"{len(points)} sweep points written")
    return 0
