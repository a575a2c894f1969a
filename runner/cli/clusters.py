"""``manyscale clusters``: phase clusters of a trace's bursts."""

from __future__ import annotations

import argparse
from pathlib import Path

from manyscale.runner.cli.options import add_cache, columns, read_trace


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("workload", metavar="TRACE", help="the trace")
    parser.add_argument("-o", "--output", type=Path, metavar="DIR", help="folder (default: runs/NAME-clusters-NNN)")
    parser.add_argument("--format", default="auto", metavar="NAME", help="format of the trace (default: found out)")
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
    from manyscale.runner.report import clusters_page
    from manyscale.runner.run import directory as rundir
    from manyscale.runner.run.clusters import cluster_rows, clusters_of, clusters_table
    from manyscale.runner.run.parquet import write_table

    workload = read_trace(options)
    found = clusters_of(
        workload, axes=options.axes, eps=options.eps, min_points=options.min_points, coverage=options.coverage
    )
    rows = cluster_rows(workload, found)
    with rundir.new_results(options.output, f"{workload.name}-clusters") as directory:
        write_table(clusters_table(found), directory / "clusters.parquet")
        clusters_page.write(workload, found, rows, directory / "clusters.html")
    print(f"{workload.name}: {found.num_clusters} phase clusters; axes {found.axes}, radius {found.eps:.4g}")
    header = ("cluster", "bursts", "time", "mean duration", "IPC", "ranks")
    print(columns([header, *map(clusters_page.row_text, rows)]))
    print(f"results: {directory}")
    return 0
