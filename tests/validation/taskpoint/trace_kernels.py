"""Detailed traces of the twelve kernels of tests/programs at two sizes, as TaskPoint's evaluation takes them.

``python -m taskpoint.trace_kernels OUT [--suite resident|beyond] [KERNEL ...]`` in tests/validation, with manyscale
importable and clang installed, writes the workload folders ``OUT/SUITE/KERNEL``, and of each a row of
``OUT/SUITE/traces.json`` (which keeps rows of kernels that were not asked for). The binaries go to ``OUT/bin``.

``resident``: what tasks touch in an iteration stays in the caches of the target grass-high-performance-tasksim (20 MiB
that all share, 2 MiB more for each core): at most 20 MB of lines. ``beyond``: it is at least three times the cache that
the cores of grass-low-power-tasksim share (1 MiB), mostly a hundred times. Neighbouring tasks write no line in common,
but for the stencil and the convolution, whose blocks end where they end: what cores do to each other there drifts as
the program goes on, and shows nothing of sampling.

One iteration has 20,000 to 100,000 task instances, or a few more: 64 cores that sample anew every 250 instances need
some 40,000 to skip most of them. The median instance of a type has 2,000 to 10,000 instructions, as fine-grained tasks
have (types that only join or hand out may have fewer: ``move`` of n_body, ``transpose_diagonal`` of fft, ``collect`` of
k_means). An iteration has 100 to 450 million instructions, so that all of it in detail takes 2 to 25 seconds. (The
source takes 16,000 to 25,000 instances of at least 100,000 instructions.) Where so many instances do not fit into the
caches if each element is used once, a task uses its own several times: ``updates``, ``shares``, ``vectors``, ``levels``
of the programs; ``rounds`` are more tasks on the same elements. There are two iterations; the second one counts, the
first one is there so that the program's arrays have their pages and addresses. Addresses depend on the C library's
placement of large blocks: traces are equal but for them.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from manyscale.models.workload import Workload
from manyscale.runner.readers import workload_folder
from manyscale.runner.tracers import build

PROGRAMS: Final = Path(__file__).parents[2] / "programs"
MANYSCALE: Final = (sys.executable, "-c", "import sys; from manyscale.runner.cli import main; sys.exit(main())")
_LINE_SHIFT: Final = 6
_ACCESSES_AT_ONCE: Final = 20_000_000


# of each program its arguments, in their order
SUITES: Final[dict[str, dict[str, tuple[int, ...]]]] = {
    "resident": {
        "convolution_2d": (250, 4, 2, 2),
        "fft": (180, 64, 16, 1, 2),
        "histogram": (80000, 48, 4096, 2, 6),
        "k_means": (30000, 16, 8, 2, 2, 50),
        "matrix_multiply": (46, 8, 2),
        "merge_sort": (524288, 32, 256, 2),
        "monte_carlo": (100000, 200, 131072, 2),
        "n_body": (10000, 10, 4, 2),
        "reduction": (32000, 1, 30, 2, 32),
        "sparse_matrix_vector": (44000, 1, 12, 2048, 2, 24),
        "stencil": (16, 16, 16, 4, 2, 12),
        "vector_operation": (80000, 8, 2, 100),
    },
    "beyond": {
        "convolution_2d": (300, 7, 1, 2, 2),
        "fft": (900, 32, 16, 1, 2),
        "histogram": (80000, 256, 4194304, 2),
        "k_means": (100000, 8, 2, 16, 2, 50),
        "matrix_multiply": (110, 8, 2, 8),
        "merge_sort": (524288, 32, 256, 2),
        "monte_carlo": (100000, 200, 8388608, 2),
        "n_body": (16000, 10, 2, 2),
        "reduction": (40000, 2, 104, 2, 8),
        "sparse_matrix_vector": (60000, 4, 24, 1048576, 2, 4),
        "stencil": (36, 36, 36, 5, 2),
        "vector_operation": (100000, 104, 2, 8),
    },
}


def main(arguments: Sequence[str] | None = None) -> int:
    names = list(SUITES["resident"])
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("output", type=Path, metavar="OUT")
    parser.add_argument("--suite", choices=list(SUITES), action="append", help="default: both")
    parser.add_argument("kernels", nargs="*", metavar="KERNEL", help=f"default: all of {', '.join(names)}")
    options = parser.parse_intermixed_args(arguments)
    unknown = sorted(set(options.kernels) - set(names))
    if unknown:
        parser.error(f"no kernel {unknown[0]}; there are {', '.join(names)}")
    kernels = options.kernels or names
    build_kernels(kernels, options.output / "bin")
    for suite in options.suite or SUITES:
        for name in kernels:
            print(json.dumps(trace_kernel(suite, name, options.output)), flush=True)
    return 0


def build_kernels(kernels: Sequence[str], binaries: Path) -> None:
    """The two builds that the detailed level needs, iterations marked. The tracer's stub is kept beside them."""
    stub = build.coverage_stub(binaries)
    for variant in ("coverage", "counting"):
        added = build.coverage_flags(stub, counting=variant == "counting")
        command = [PROGRAMS / "build.sh", binaries / variant, "--variant", variant, "--marks", *kernels]
        subprocess.run(command, check=True, env={**os.environ, "VARIANT_FLAGS": " ".join(added)})


def trace_kernel(suite: str, name: str, output: Path) -> dict[str, Any]:
    """Trace one kernel, all its iterations, on one thread; the row that describes the trace."""
    values, binaries = SUITES[suite][name], output / "bin"
    folder = output / suite / name
    start = time.perf_counter()
    subprocess.run(
        [
            *MANYSCALE, "trace", "--level", "detailed", "--iterations", "all", "--max-gb", "20",
            "--counting", str(binaries / "counting" / name), "-o", str(folder),
            "--", str(binaries / "coverage" / name), *map(str, values),
        ],
        check=True, env={**os.environ, "OMP_NUM_THREADS": "1"}, stdout=sys.stderr,
    )  # fmt: skip
    seconds = round(time.perf_counter() - start, 1)
    row = {"suite": suite, "kernel": name, "arguments": values}
    row |= description(workload_folder.read(folder))
    row |= {"trace_MB": round(sum(file.stat().st_size for file in folder.iterdir()) / 1e6, 1), "seconds": seconds}
    table = output / suite / "traces.json"
    rows = json.loads(table.read_text()) if table.exists() else []
    rows = [*(other for other in rows if other["kernel"] != name), row]
    table.write_text(json.dumps(sorted(rows, key=lambda other: str(other["kernel"])), indent=1) + "\n")
    return row


def description(workload: Workload) -> dict[str, Any]:
    """Of the last iteration: task instances by type with their median instructions, accesses, and the lines of 64 B
    that tasks touch."""
    iterations = workload.tables["iterations"]
    first, end = (iterations.column(f"{name}_event_id")[-1].as_py() for name in ("first", "end"))
    segments, tasks = (workload.tables[name].to_pandas() for name in ("segments", "tasks"))
    types = workload.tables["task_types"].to_pandas()
    type_of = tasks.set_index("task_instance_id")["task_type_id"]
    segments["task_type_id"] = segments["task_instance_id"].map(type_of)
    of_task = segments[segments["task_type_id"].isin(types.index[types["construct"] == "task"])]
    last = of_task[of_task["event_id"].between(first, end - 1)]
    instances = last.groupby(["task_type_id", "task_instance_id"])["num_instructions"].sum()
    of_type = instances.groupby("task_type_id").agg(["size", "median", "sum"]).astype(int)
    by_type = {
        f"{types['file'][number].rsplit('/', 1)[-1]}:{types['line'][number]}": [int(row["size"]), int(row["median"])]
        for number, row in of_type.iterrows()
    }
    return {
        "iterations": iterations.num_rows,
        "instances": len(instances),
        "instances_and_median_instructions": by_type,
        "mean_instructions": round(float(instances.mean())),
        "million_instructions": round(float(instances.sum()) / 1e6, 1),
        "million_accesses": round(float(last["num_accesses"].sum()) / 1e6, 1),
        "lines_MB": round(num_lines(workload, last.index.to_numpy()) * 2**_LINE_SHIFT / 1e6, 2),
    }


def num_lines(workload: Workload, wanted: np.ndarray) -> int:
    """Distinct lines that the wanted segments (rows of the table, in order) access."""
    assert workload.detail is not None
    accesses = workload.column("segments", "num_accesses").astype(np.int64)
    before = np.concatenate(([0], np.cumsum(accesses)))
    pages = np.searchsorted(before, np.arange(0, before[-1] + _ACCESSES_AT_ONCE, _ACCESSES_AT_ONCE))
    lines = np.zeros(0, np.uint64)
    is_wanted = np.zeros(len(accesses), bool)
    is_wanted[wanted] = True
    for first, end in zip(pages[:-1], np.minimum(pages[1:], len(accesses)), strict=True):
        if first < end:
            addresses = workload.detail.read(int(first), int(end)).addresses
            kept = np.repeat(is_wanted[first:end], accesses[first:end])
            lines = np.union1d(lines, np.unique(addresses[kept] >> np.uint64(_LINE_SHIFT)))
    return len(lines)


if __name__ == "__main__":
    sys.exit(main())
