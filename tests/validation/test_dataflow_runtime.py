"""Predicted run times of C kernels against measured ones on AMD EPYC (Zen 4), with true inputs: traced at the size.

The constants come from micro-benchmarks (the target's ``sources``). While the model was made, stream, matmul and
black_scholes were looked at. Of the next three each showed one fault: gather how bandwidth was queued, lu at -O0 that
loads which updates of memory answer are tried again, stencil5 at -O3 that loads from two lines are two. histogram was
written to see what atomic operations cost; of several measured figures that of random places was taken because of it.
mandelbrot, prefix_sum, quicksort and transpose were written and measured after the model, which was not changed for
their sake (but for which part of the CPI stack a branch's cycles go to).

Left out are inputs so small that the branch predictor learns them by heart: 1000 numbers that are others each time
take quicksort up to three times as long as predicted (the model, too, runs its one input several times before it
looks), and 3000 that stay the same a third (the processor learns more than the model). A transposition of 64 x 64, the
rows of which all begin in the same sets and low bits of the address, takes twice as long as predicted. Beyond the
caches see the last two tests.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from memory_programs import need_measured_compiler, traced

from manyscale.models.cpu.dataflow import DataflowParameters, predict
from manyscale.models.machine import Node
from manyscale.runner.problems import load_yaml
from manyscale.runner.study.targets import build_machine, shipped_targets

DATA = Path(__file__).parents[1] / "data" / "memory"
MEASURED = DATA / "epyc_zen4_times.csv"
LARGE = DATA / "epyc_zen4_large_times.csv"
SEEN = ("stream", "matmul", "black_scholes", "stencil5", "lu", "gather", "histogram")
HELD_OUT = ("mandelbrot", "prefix_sum", "quicksort", "transpose")


def measured(path: Path) -> Iterator[tuple[str, int, int, float]]:
    """(program, level, size, best time in ns)."""
    with path.open() as file:
        for row in csv.DictReader(file):
            yield row["program"], int(row["level"]), int(row["n"]), float(row["best_ns"])


@cache
def node() -> Node:
    return build_machine(load_yaml(shipped_targets()["epyc-zen4"]), "epyc-zen4").node


def errors(program: str, most_size: int | None = None, path: Path = MEASURED) -> dict[tuple[int, int], float]:
    """Relative error by (level, size)."""
    need_measured_compiler()
    found = {}
    for name, level, size, time_ns in measured(path):
        if name == program and (most_size is None or size <= most_size):
            runtime = predict(traced(name, level, size), node(), DataflowParameters(most_instructions=2_000_000))
            found[level, size] = runtime.time_ps / 1000 / time_ns - 1
            print(f"{name} -O{level} {size}: {time_ns:.0f} ns, error {found[level, size]:+.1%}")
    return found


def check(found: dict[tuple[int, int], float], mean: float, worst: float) -> None:
    sizes = [abs(error) for error in found.values()]
    assert sizes
    assert sum(sizes) / len(sizes) <= mean, found
    assert max(sizes) <= worst, found


def test_the_comparison_can_fail():
    with pytest.raises(AssertionError):
        check({(0, 1): 0.1, (0, 2): 0.1}, 0.09, 1)
    with pytest.raises(AssertionError):
        check({(0, 1): -0.4, (0, 2): 0.1}, 1, 0.35)
    with pytest.raises(AssertionError):
        check({(0, 1): float("nan")}, 1, 1)
    with pytest.raises(AssertionError):
        check({}, 1, 1)


@pytest.mark.golden
def test_small_kernels():
    check(errors("black_scholes", 16) | errors("gather", 1000), 0.1, 0.2)


@pytest.mark.golden
@pytest.mark.slow
@pytest.mark.parametrize("program", SEEN)
def test_kernels_that_were_looked_at(program: str):
    check(errors(program), 0.12, 0.25)


@pytest.mark.golden
@pytest.mark.slow
@pytest.mark.parametrize("program", HELD_OUT)
def test_kernels_that_were_not(program: str):
    check(errors(program), 0.15, 0.35)


@pytest.mark.golden
@pytest.mark.slow
def test_streams_that_no_cache_holds():
    """What they need was measured by micro-benchmarks: prefetchers cross pages, lines are written back aside."""
    found = errors("stream", path=LARGE)
    check({case: error for case, error in found.items() if case[1] == 3_000_000}, 0.15, 0.25)


@pytest.mark.known_gap
@pytest.mark.slow
def test_what_other_guests_leave_of_the_last_cache_and_of_main_memory():
    """The machine's L3 is 32 MiB, which it shares with other virtual machines: arrays of 24 MB are predicted to stay
    in it, and are partly gone. Random lines of main memory come more slowly than in chains of loads, where latency and
    line fill buffers are measured."""
    found = {(program, *case): error for program in ("stream", "gather") for case, error in errors(
        program, path=LARGE).items()}  # fmt: skip
    assert -0.45 < found["stream", 3, 1_000_000] < -0.1
    assert -0.8 < found["gather", 1, 1_000_000] < -0.4
    assert -0.5 < found["gather", 1, 4_000_000] < -0.15
