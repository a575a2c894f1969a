"""Golden data of the programs: traces and SimGrid's times, so that they can be compared where it is not installed.

``python -m simgrid.golden`` in tests/validation, with manyscale importable and SimGrid 3.32 installed, makes them anew.
``tests/data/simgrid/ends.json`` holds per program and start of small messages (match, eager) the end of each rank in
seconds; ``NAME.txt`` is the trace of all ranks, ``NAME.eager.txt`` that of the eager run where it differs.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from simgrid import peer

PROGRAMS: Final = Path(__file__).parent / "programs"
DATA: Final = Path(__file__).parents[2] / "data" / "simgrid"
NUM_RANKS: Final = {"ssend": 3, "test_poll": 2}  # of all others:
USUAL_NUM_RANKS: Final = 5
STARTS: Final = ("match", "eager")


def names() -> list[str]:
    return sorted(path.stem for path in PROGRAMS.glob("*.c"))


def make(folder: Path, name: str, start: str) -> tuple[str, list[float]]:
    """Trace (one text for all ranks) and end of each rank, in seconds, by SimGrid; ``folder`` is for its files."""
    num_ranks = NUM_RANKS.get(name, USUAL_NUM_RANKS)
    ends = peer.run_program(folder, PROGRAMS / f"{name}.c", num_ranks, start == "eager")
    return "".join((folder / f"rank{rank}.txt").read_text() for rank in range(num_ranks)), ends


def trace(name: str, start: str) -> Path:
    """The stored trace of a program."""
    own = DATA / f"{name}.eager.txt"
    return own if start == "eager" and own.exists() else DATA / f"{name}.txt"


def ends(name: str, start: str) -> Sequence[float]:
    """The stored end of each rank, in seconds."""
    found: Sequence[float] = json.loads((DATA / "ends.json").read_text())[name][start]
    return found


def main() -> None:
    DATA.mkdir(parents=True, exist_ok=True)
    for old in (*DATA.glob("*.txt"), *DATA.glob("*.json")):
        old.unlink()
    lines = []
    for name in names():
        stored = {}
        for start in STARTS:
            with tempfile.TemporaryDirectory() as folder:
                text, times = make(Path(folder), name, start)
            stored[start] = [round(time, 12) for time in times]
            path = DATA / f"{name}.txt"
            if start == "match":
                path.write_text(text)
            elif text != path.read_text():
                (DATA / f"{name}.eager.txt").write_text(text)
        lines.append(f' "{name}": {json.dumps(stored)}')
    (DATA / "ends.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
