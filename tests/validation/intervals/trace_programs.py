"""Detailed traces of programs of one thread whose intervals are sampled.

``python -m intervals.trace_programs OUT [NAME ...]`` in tests/validation, with manyscale importable and QEMU's user
emulation, gcc, gzip, bzip2 and sqlite3 installed, writes the workload folders ``OUT/NAME``. Programs run as they are,
whole, libraries and all; ``loops`` is phases/loops.c without OpenMP. What is compressed is this project's sources.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

MANYSCALE: Final = (sys.executable, "-c", "from manyscale.runner.cli import main; raise SystemExit(main())")
_SQL: Final = (
    "create table t(a integer, b text); "
    "with recursive c(x) as (select 1 union all select x + 1 from c where x < 30000) "
    "insert into t select (x * 7919) % 30011, hex(x * x) from c; "
    "create index i on t(a); select count(*) from t x join t y on x.a = y.a + 1; "
    "select sum(length(b)) from t group by a % 7; select count(distinct b) from t; "
    "update t set b = b || 'x' where a % 3 = 0; select max(b) from t;"
)
# of each program its words; TEXT is a file of text, BIN a folder of binaries
PROGRAMS: Final[dict[str, tuple[str, ...]]] = {
    "gzip": ("gzip", "-c", "TEXT"),
    "bzip2": ("bzip2", "-c", "TEXT"),
    "sqlite": ("sqlite3", ":memory:", _SQL),
    "loops": ("BIN/loops", "512", "6"),
}
_TEXT_BYTES: Final = 400_000
_ROOT: Final = Path(__file__).resolve().parents[3]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("output", type=Path, metavar="OUT")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"default: all of {', '.join(PROGRAMS)}")
    options = parser.parse_args(arguments)
    unknown = sorted(set(options.names) - set(PROGRAMS))
    if unknown:
        parser.error(f"no program {unknown[0]}; there are {', '.join(PROGRAMS)}")
    output = options.output.resolve()
    binaries, text = output / "bin", output / "text"
    binaries.mkdir(parents=True, exist_ok=True)
    sources = b"".join(path.read_bytes() for path in sorted((_ROOT / "models").rglob("*.py")))
    text.write_bytes(sources[:_TEXT_BYTES])
    loops = Path(__file__).parents[1] / "phases" / "loops.c"
    command = ["gcc", "-std=gnu11", "-O2", "-g", "-Wno-unknown-pragmas", loops, "-o", binaries / "loops", "-lm"]
    subprocess.run([str(word) for word in command], check=True)
    for name in options.names or PROGRAMS:
        words = [word.replace("BIN", str(binaries)).replace("TEXT", str(text)) for word in PROGRAMS[name]]
        traced = [*MANYSCALE, "trace", "--level", "detailed", "--route", "qemu", "-o", str(output / name), "--", *words]
        subprocess.run(traced, check=True, stdout=subprocess.DEVNULL)
    return 0


if __name__ == "__main__":
    sys.exit(main())
