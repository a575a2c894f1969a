"""``manyscale predict``: hit rates and time of a program at input sizes that never ran, from traces of small ones."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from manyscale.runner.cli.options import (
    add_cache,
    add_executor,
    add_notes,
    admit,
    check_executor,
    print_notes,
    workers_of,
)
from manyscale.runner.cli.progress import progress_bar
from manyscale.runner.errors import UserError

if TYPE_CHECKING:
    from manyscale.models.memory.amm.amm import AmmParameters


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
    from manyscale.runner.predict.memory.training import parse_inputs, parse_sizes
    from manyscale.runner.report import predict_page
    from manyscale.runner.run import directory as rundir
    from manyscale.runner.run.memory import predict, read_measured

    inputs, sizes = parse_inputs(options.traces), parse_sizes(options.sizes)
    amm = amm_parameters(options.amm)
    measured = read_measured(options.measured) if options.measured is not None else {}
    check_executor(options.executor, options.workers)
    with progress_bar() as progress:
        result = predict(
            inputs, sizes, options.target, form=options.format, recipe=options.recipe, steady=options.steady, amm=amm,
            measured=measured, workers=workers_of(options, progress),
        )  # fmt: skip
    admit(result.notes, options)
    with rundir.new_results(options.output, f"{result.name}-predict") as directory:
        predict_page.write(result, directory, page=not options.no_report)
    print("\n".join(predict_page.summary(result)))
    print(f"results: {directory}")
    print_notes(result.notes)
    return 0


def amm_parameters(assignments: Sequence[str]) -> AmmParameters:
    """AMM's parameters from KEY=VALUE of the command line. Raises UserError."""
    from dataclasses import fields

    from manyscale.models.memory.amm.amm import AmmParameters
    from manyscale.runner.study import parse_assignment

    given = dict(parse_assignment(text, "--amm") for text in assignments)
    known = [field.name for field in fields(AmmParameters) if field.name not in ("form", "shares")]
    unknown = [key for key in given if key not in known]
    if unknown:
        raise UserError(f"--amm {unknown[0]}: unknown; known are {', '.join(known)}")
    try:
        for key, value in given.items():
            is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
            if key not in ("bound", "operations") and not is_number:
                raise ValueError(f"{key}: {value!r} is no number")
        return AmmParameters(**given)
    except ValueError as error:
        raise UserError(f"--amm: {error}") from None
