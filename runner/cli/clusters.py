"""``manyscale clusters``: phase clusters of a trace's bursts."""

from __future__ import annotations

import argparse

from manyscale.runner.cli.figures import add_json, show
from manyscale.runner.cli.options import add_cache, add_format, add_output, at, columns


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("workload", metavar="TRACE", help="the trace")
    add_output(parser, "runs/NAME-clusters-NNN")
    add_format(parser)
    add_json(parser)
    parser.add_argument(
        "--axes", default="auto", choices=("auto", "instructions", "ipc", "duration"),
        help="what stands beside duration (default: auto)",
    )  # fmt: skip
    parser.add_argument("--eps", type=float, metavar="X", help="radius, of axes scaled to 0..1 (default: found)")
    parser.add_argument("--min-points", type=int, default=10, metavar="N", help="bursts that are dense (default: 10)")
    parser.add_argument(
        "--coverage", type=float, default=0.99, metavar="X", help="share of the time that is clustered (default: 0.99)"
    )
    add_cache(parser)


def run(options: argparse.Namespace) -> int:
    """Find, write and print them."""
    from manyscale.runner.api.folders import NUMBERED
    from manyscale.runner.api.repeats import clusters
    from manyscale.runner.report import clusters_page
    from manyscale.runner.run.questions.clusters import cluster_rows

    made = clusters(
        options.workload, options.output or NUMBERED, format=options.format, axes=options.axes, eps=options.eps,
        min_points=options.min_points, coverage=options.coverage, cache=options.cache,
    )  # fmt: skip
    show(options, made)
    found = made.found
    print(f"{made.workload.name}: {found.num_clusters} phase clusters; axes {found.axes}, radius {found.eps:.4g}")
    header = ("cluster", "bursts", "time", "mean duration", "IPC", "ranks")
    print(columns([header, *map(clusters_page.row_text, cluster_rows(made.workload, found))]))
    print(f"results: {at(made.directory)}")
    return 0
