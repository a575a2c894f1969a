"""What clang needs to build a program for the detailed level: words for its command line, to compile and to link.

The *instrumented* build calls the tracer at each basic block, load and store; the *counting* build only increments a
counter in each block, and is disassembled, not run. Everything else about the two must be equal. ``no-prune`` keeps the
callbacks of blocks whose execution follows from others'.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

_COMMON: Final = "bb,no-prune,pc-table"
_INSTRUMENTED: Final = f"{_COMMON},trace-pc-guard,trace-loads,trace-stores"
_COUNTING: Final = f"{_COMMON},inline-8bit-counters"


def flags(stub: Path, counting: bool = False) -> list[str]:
    """Words to add to a clang command that compiles, links, or both. ``stub``: the library with the callbacks
    (``build.coverage_stub``)."""
    return [
        "-g",
        f"-fsanitize-coverage={_COUNTING if counting else _INSTRUMENTED}",
        "-fno-sanitize-link-runtime",  # else clang links a runtime of its own, whose callbacks come before the tracer's
        "--start-no-unused-arguments",  # where nothing is linked, the rest is not used
        f"-L{stub.parent}",
        f"-Wl,-rpath,{stub.parent},--push-state,--no-as-needed",
        f"-l{stub.stem.removeprefix('lib')}",
        "-Wl,--pop-state",
        "--end-no-unused-arguments",
    ]
