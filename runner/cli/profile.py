"""``manyscale profile``: stack distances of a memory trace, and what a machine's caches make of them; or, with
``--interval``, intervals of a traced parallel program on a target's cores."""

from __future__ import annotations

import argparse
from typing import Final

from manyscale.runner.cli.figures import add_json, show
from manyscale.runner.cli.options import (
    add_cache,
    add_executor,
    add_format,
    add_notes,
    add_output,
    add_report,
    add_seed,
    add_set,
    add_target,
    at,
    print_notes,
    target_of,
)
from manyscale.runner.cli.parser import Parser
from manyscale.runner.cli.progress import progress_bar
from manyscale.runner.errors import UserError

FORMER_TARGET: Final = "laptop"


def arguments(parser: Parser) -> None:
    parser.add_argument("trace", metavar="TRACE", help="a trace with memory accesses")
    add_format(parser)
    add_target(parser, "machine with caches", former=FORMER_TARGET)
    add_set(parser, "target.node.caches.L2.size='1 MiB'", "of the target")
    parser.add_argument(
        "--granularity", default="line", metavar="SIZE", help="units: byte, word, line or a size (default: line)"
    )
    parser.add_argument("--steady", action="store_true", help="as if the same had run just before (default: cold)")
    parser.add_argument(
        "--method", default="exact", dest="sampling",
        choices=("exact", "blocks", "blocks-statstack", "statstack", "shards"),
        help="how distances are found (default: exact)",
    )  # fmt: skip
    parser.add_former("--sampling", "--method")
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
        help="instead, simulate the target's cores in detail, or take samples that perf script printed, and write "
        "blocks and counters of every N instructions of all threads, for plan --method sbbv+ccv",
    )  # fmt: skip
    parser.add_argument("--cores", type=int, metavar="N", help="cores that --interval simulates (default: 4)")
    parser.add_argument("--rank", type=int, metavar="N", help="one rank only")
    parser.add_argument("--thread", type=int, metavar="N", help="one thread only")
    add_executor(parser)
    add_seed(parser)
    add_cache(parser)
    add_notes(parser)
    add_report(parser)
    add_json(parser)
    add_output(parser, "runs/NAME-profile-NNN")


def run(options: argparse.Namespace) -> int:
    """Measure, write and print."""
    from manyscale.runner.api.folders import NUMBERED
    from manyscale.runner.api.memory import IntervalsResult, profile
    from manyscale.runner.run.questions.sampled_intervals import is_sampled

    for text in options.assignments:
        if not text.startswith("target."):
            raise UserError(f"--set {text}: profile reads keys of the target, such as target.node.caches.L2.size")
    has_samples = options.interval is not None and is_sampled(options.trace)
    target = None if has_samples and options.target is None else target_of(options, FORMER_TARGET)
    with progress_bar() as progress:
        found = profile(
            options.trace, options.output or NUMBERED, target=target, format=options.format,
            granularity=options.granularity, steady=options.steady, sampling=options.sampling, rate=options.rate,
            simulate=options.simulate, prefetch=options.prefetch, together=options.together, frames=options.frames,
            interval=options.interval, cores=options.cores, rank=options.rank, thread=options.thread, seed=options.seed,
            executor=options.executor, address=options.address, workers=options.workers, cache=options.cache,
            report=not options.no_report, accept=options.accept, strict=options.strict, progress=progress,
        )  # fmt: skip
    show(options, found)
    print(found.summary())
    print(f"results: {found.file if isinstance(found, IntervalsResult) else at(found.directory)}")
    print_notes(found.notes)
    return 0
