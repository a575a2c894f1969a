"""``manyscale predict``: hit rates and time of a program at input sizes that never ran, from traces of small ones."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from manyscale.runner.cli.figures import add_json, show
from manyscale.runner.cli.options import (
    add_cache,
    add_executor,
    add_format,
    add_notes,
    add_output,
    add_report,
    add_set,
    add_target,
    at,
    print_notes,
    target_of,
)
from manyscale.runner.cli.parser import Parser
from manyscale.runner.cli.progress import progress_bar
from manyscale.runner.errors import UserError

FORMER_TARGET: Final = "xeon-e5-2695"


def arguments(parser: Parser) -> None:
    parser.add_argument(
        "traces", nargs="+", metavar="SIZE=TRACE", help="traces of a program at small inputs (or a shipped one's name)"
    )
    parser.add_argument("--sizes", required=True, metavar="LIST", help="inputs to predict, such as 100,200,400")
    add_format(parser)
    add_target(parser, former=FORMER_TARGET)
    parser.add_argument("--measured", type=Path, metavar="FILE", help="CSV (size, seconds) to compare with")
    parser.add_argument("--steady", action="store_true", help="as if the same had run just before (default: cold)")
    parser.add_argument(
        "--transitions", type=Path, metavar="FILE",
        help="CSV (size, source, target, probability): how often which block follows a block",
    )  # fmt: skip
    parser.add_argument(
        "--recipe", default="operands", choices=("operands", "paper"),
        help="how profiles are extrapolated: per operand in many bins, or as AMM was published (default: operands)",
    )  # fmt: skip
    add_set(parser, "amm.bound=latency, amm.gap_bytes=56 or target.node.frequency='3 GHz'", "of amm or target")
    parser.add_former("--amm", "--set", "amm.")
    add_executor(parser)
    add_cache(parser)
    add_notes(parser)
    add_report(parser)
    add_json(parser)
    add_output(parser, "runs/NAME-predict-NNN")


def run(options: argparse.Namespace) -> int:
    """Predict, write and print."""
    from manyscale.runner import shipped
    from manyscale.runner.api.folders import NUMBERED
    from manyscale.runner.api.memory import predict
    from manyscale.runner.predict.memory.training import parse_sizes

    is_shipped = options.traces[0] in shipped.memory_traces()  # one that was traced for this machine
    amm = _amm(options.assignments)
    target = target_of(options, FORMER_TARGET, names_it=is_shipped)
    with progress_bar() as progress:
        found = predict(
            options.traces, parse_sizes(options.sizes), options.output or NUMBERED, target=target,
            format=options.format, measured=options.measured, steady=options.steady, recipe=options.recipe,
            transitions=options.transitions,
            amm=amm, executor=options.executor, address=options.address, workers=options.workers, cache=options.cache,
            report=not options.no_report,
            accept=options.accept, strict=options.strict, progress=progress,
        )  # fmt: skip
    show(options, found)
    print(found.summary())
    print(f"results: {at(found.directory)}")
    print_notes(found.notes)
    return 0


def _amm(assignments: Sequence[str]) -> dict[str, Any]:
    """Parameters of AMM from ``--set amm.KEY=VALUE``. Raises UserError for another key."""
    from manyscale.runner.study import parse_assignment

    found = {}
    for text in assignments:
        key, value = parse_assignment(text)
        block, _, name = key.partition(".")
        if block not in ("amm", "target") or not name:
            raise UserError(f"--set {key}: predict reads keys of amm and target, such as amm.bound=latency")
        if block == "amm":
            found[name] = value
    return found
