"""bzip2 on four inputs under Callgrind: the profiles ``bzip2-*.stk.xz`` of tests/data/stacks.

``python -m simprof.record_bzip2 BZIP2 OUT`` in tests/validation, with manyscale importable and valgrind on the PATH,
makes the inputs, runs ``BZIP2 -1 -c`` on each, and writes of every unit that runner/readers/stacks/callgrind.py finds
20 call stacks, at equal distances in its instructions, and its counters. BZIP2 is built so that its functions stay
functions:

    cd bzip2 && gcc -O2 -g -fno-inline -DBZ_UNIX=1 -DBZ_LCCWIN32=0 -o bzip2x bzip2.c blocksort.c bzlib.c compress.c \
        crctable.c decompress.c huffman.c randtable.c

Inputs are 1.5 MB of words: with frequencies as in language (``zipf``, ``zipf2``: other words), with equal frequencies
(``even``), and lines of a log (``log``). Caches are 32 KiB, 8 ways, and 512 KiB, 8 ways, as in the project's other
profiles with modelled cycles.
"""

from __future__ import annotations

import argparse
import lzma
import random
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np

from manyscale.models.workload import Workload
from manyscale.runner.readers.stacks import callgrind

SIZE: Final = 1_500_000
SNAPSHOTS: Final = 20
VALGRIND: Final = [
    "valgrind",
    "-q",
    "--tool=callgrind",
    "--separate-callers=16",
    "--combine-dumps=yes",
    "--dump-line=no",
    "--dump-every-bb=15000",
    "--cache-sim=yes",
    "--branch-sim=yes",
    "--I1=32768,8,64",
    "--D1=32768,8,64",
    "--LL=524288,8,64",
]


def words(seed: int, exponent: float) -> bytes:
    """Of a vocabulary of 8,000, the k-th most frequent as often as k ** -exponent."""
    source = random.Random(seed)
    known = ["".join(source.choices("etaoinshrdlucmfwyp", k=source.randint(2, 9))) for _ in range(8000)]
    weight = [rank**-exponent for rank in range(1, len(known) + 1)]
    return " ".join(source.choices(known, weight, k=SIZE // 3)).encode()[:SIZE]


def log(seed: int) -> bytes:
    """Requests that four workers served, one each 20 ms."""
    source = random.Random(seed)
    lines = [
        f"2026-11-28T05:{time // 60000 % 60:02d}:{time // 1000 % 60:02d}.{time % 1000:03d}Z INFO "
        f"worker-{source.randrange(4)}: request served in {source.choice((1, 2, 3, 5, 8))} ms\n"
        for time in range(0, SIZE, 20)
    ]
    return "".join(lines).encode()[:SIZE]


INPUTS: Final = {
    "zipf": lambda: words(7, 1.0),
    "zipf2": lambda: words(8, 1.0),
    "even": lambda: words(9, 0.0),
    "log": lambda: log(7),
}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("program", type=Path, metavar="BZIP2")
    parser.add_argument("output", type=Path, metavar="OUT")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        for name, make in INPUTS.items():
            place, profile = Path(folder) / name, Path(folder) / f"{name}.out"
            place.write_bytes(make())
            command = [*VALGRIND, f"--callgrind-out-file={profile}", str(options.program.resolve()), "-1", "-c", place]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            workload = callgrind.read(profile)
            for suffix, text in {"stk": stacks(workload), "cpi.csv": counters(workload)}.items():
                (options.output / f"bzip2-{name}.{suffix}.xz").write_bytes(lzma.compress(text.encode(), preset=9))
            print(name, workload.tables["stack_units"].num_rows, "units")
    return 0


def stacks(workload: Workload) -> str:
    """SNAPSHOTS of each unit."""
    names = workload.tables["frames"].column("name").to_pylist()
    known = workload.tables["stacks"].column("frames").to_pylist()
    unit, stack, weight = (workload.column("stack_samples", name) for name in ("unit_id", "stack_id", "weight"))
    lines = [f"M\t{number}\t{name}" for number, name in enumerate(names)]
    for one in np.unique(unit).tolist():
        mine = np.flatnonzero(unit == one)
        ends = np.cumsum(weight[mine])
        places = (np.arange(SNAPSHOTS) + 0.5) * ends[-1] / SNAPSHOTS
        for row in mine[np.searchsorted(ends, places, side="right")].tolist():
            lines.append(f"S\t{one}\t1\t" + ",".join(map(str, reversed(known[stack[row]]))))
    return "\n".join(lines) + "\n"


def counters(workload: Workload) -> str:
    """A row per unit."""
    instructions = workload.column("stack_units", "num_instructions").tolist()
    cycles = {
        row["unit_id"]: row["value"]
        for row in workload.tables["unit_counters"].to_pylist()
        if row["counter"] == "cycles"
    }
    lines = [f"{unit},1,{count},{round(100 * cycles[unit])}" for unit, count in enumerate(instructions)]
    return "\n".join(["interval,tid,instrs,centicycles", *lines]) + "\n"


if __name__ == "__main__":
    sys.exit(main())
