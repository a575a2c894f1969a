"""``manyscale predict``: hit rates and time of a program at input sizes that never ran, from traces of small ones."""

from __future__ import annotations

import argparse
from pathlib import Path

from manyscale.runner.cli.options import add_cache, add_executor, add_notes, print_notes
from manyscale.runner.cli.progress import progress_bar


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "traces", nargs="+", metavar="SIZE=TRACE", help="traces of a program at small inputs (or a shipped one's name)"
    )
    parser.add_argument("--sizes", required=True, metavar="LIST", help="inputs to predict, such as 100,200,400")
    parser.add_argument("--format", default="auto", metavar="NAME", help="format of the traces (default: found out)")
    parser.add_argument("--target", default="xeon-e5-2695", metavar="NAME", help="machine (default: xeon-e5-2695)")
    parser.add_argument("--measured", type=Path, metavar="FILE", help="CSV (size, seconds) to compare with")
    parser.add_argument("--steady", action="store_true", help="as if the same had run just before (default: cold)")
    parser.add_argument(
        "--recipe", default="operands", choices=("operands", "paper"),
        help="how profiles are extrapolated: per operand in many bins, or as AMM was published (default: operands)",
    )  # fmt: skip
    parser.add_argument(
        "--amm", action="append", default=[], metavar="KEY=VALUE",
        help="a parameter of AMM, such as bound=latency, block_bytes=8 or gap_bytes=56",
    )  # fmt: skip
    add_executor(parser)
    add_cache(parser)
    add_notes(parser)
    parser.add_argument("--no-report", action="store_true", help="write statistics and Parquet only")
    parser.add_argument("-o", "--output", type=Path, metavar="DIR", help="folder (default: runs/NAME-predict-NNN)")


def run(options: argparse.Namespace) -> int:
    """Predict, write and print."""
    from manyscale.runner.api.folders import NUMBERED
    from manyscale.runner.api.memory import predict
    from manyscale.runner.predict.memory.training import parse_sizes
    from manyscale.runner.study import parse_assignment

    with progress_bar() as progress:
        found = predict(
            options.traces, parse_sizes(options.sizes), options.output or NUMBERED, target=options.target,
            format=options.format, measured=options.measured, steady=options.steady, recipe=options.recipe,
            amm=dict(parse_assignment(text, "--amm") for text in options.amm), executor=options.executor,
            address=options.address, workers=options.workers, cache=options.cache, report=not options.no_report,
            accept=options.accept, strict=options.strict, progress=progress,
        )  # fmt: skip
    print(found.summary())
    print(f"results: {found.directory}")
    print_notes(found.notes)
    return 0
