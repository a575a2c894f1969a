"""``manyscale profile``: stack distances of a memory trace, and what a machine's caches make of them; or, with
``--interval``, intervals of a traced parallel program on a target's cores."""

from __future__ import annotations

import argparse
from pathlib import Path

from manyscale.runner.cli.options import add_cache, add_executor, add_notes, print_notes
from manyscale.runner.cli.progress import progress_bar


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("trace", metavar="TRACE", help="a trace with memory accesses")
    parser.add_argument("--format", default="auto", metavar="NAME", help="format of the trace (default: found out)")
    parser.add_argument("--target", default="laptop", metavar="NAME", help="machine with caches (default: laptop)")
    parser.add_argument(
        "--granularity", default="line", metavar="SIZE", help="units: byte, word, line or a size (default: line)"
    )
    parser.add_argument("--steady", action="store_true", help="as if the same had run just before (default: cold)")
    parser.add_argument(
        "--sampling", default="exact", choices=("exact", "blocks", "blocks-statstack", "statstack", "shards"),
        help="how distances are found (default: exact)",
    )  # fmt: skip
    parser.add_argument("--rate", default="1 %", metavar="SHARE", help="what is sampled (default: 1 %%)")
    parser.add_argument(
        "--simulate", nargs="?", const="100 %", metavar="SHARE",
        help="simulate the caches with their real sets, too, or a share of the sets, such as 2%%",
    )  # fmt: skip
    parser.add_argument(
        "--prefetch", action="store_true", help="simulated caches prefetch as the machine says (default: off)"
    )
    parser.add_argument(
        "--together", action="store_true", help="threads run at the same time and share caches (default: each alone)"
    )
    parser.add_argument(
        "--frames", default="virtual", choices=("virtual", "random"),
        help="where simulated pages lie (default: virtual)",
    )  # fmt: skip
    parser.add_argument(
        "--interval", type=int, metavar="N",
        help="instead, simulate the target's cores in detail and write the blocks and counters of every N instructions "
        "of all cores, for plan --method sbbv+ccv",
    )  # fmt: skip
    parser.add_argument("--cores", type=int, metavar="N", help="cores that --interval simulates (default: 4)")
    parser.add_argument("--rank", type=int, metavar="N", help="one rank only")
    parser.add_argument("--thread", type=int, metavar="N", help="one thread only")
    add_executor(parser)
    parser.add_argument("--seed", type=int, metavar="N", help="seed of everything random")
    add_cache(parser)
    add_notes(parser)
    parser.add_argument("--no-report", action="store_true", help="write statistics and Parquet only")
    parser.add_argument("-o", "--output", type=Path, metavar="DIR", help="folder (default: runs/NAME-profile-NNN)")


def run(options: argparse.Namespace) -> int:
    """Measure, write and print."""
    from manyscale.runner.api.folders import NUMBERED
    from manyscale.runner.api.memory import IntervalsResult, profile

    with progress_bar() as progress:
        found = profile(
            options.trace, options.output or NUMBERED, target=options.target, format=options.format,
            granularity=options.granularity, steady=options.steady, sampling=options.sampling, rate=options.rate,
            simulate=options.simulate, prefetch=options.prefetch, together=options.together, frames=options.frames,
            interval=options.interval, cores=options.cores, rank=options.rank, thread=options.thread, seed=options.seed,
            executor=options.executor, address=options.address, workers=options.workers, cache=options.cache,
            report=not options.no_report, accept=options.accept, strict=options.strict, progress=progress,
        )  # fmt: skip
    print(found.summary())
    print(f"results: {found.file if isinstance(found, IntervalsResult) else found.directory}")
    print_notes(found.notes)
    return 0
