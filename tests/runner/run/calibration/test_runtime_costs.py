"""What is made of the times of OpenMP's constructs."""

from __future__ import annotations

import shutil

import pytest

from manyscale.runner.run.calibration.measure import QUICK
from manyscale.runner.run.calibration.runtime_costs import RuntimeTimes, measure_runtime, runtime_costs


@pytest.mark.theory
def test_costs_are_what_several_threads_take_more() -> None:
    """Of a runtime system of four cores that takes so much of each by construction, two doublings."""
    create, schedule, work = 70.0, 130.0, 2000.0
    one = {"region": 300.0, "loop": 200.0, "chunk": 1.0, "empty": 25.0, "filled": 25.0 + work, "lock": 20.0}
    every = {
        "region": 300.0 + 2 * (150 + 40),
        "loop": 200.0 + 2 * 150,
        "chunk": 1.0 + 90,
        "empty": 25.0 + create,
        "filled": (25.0 + work + create + schedule) / 4,
        "lock": 20.0 + 60,
    }
    found = runtime_costs(RuntimeTimes("a compiler", 4, one, every))
    assert found == {
        "create": "70 ns", "schedule": "130 ns", "chunk": "90 ns",
        "fork": "40 ns", "barrier": "150 ns", "lock": "60 ns",
    }  # fmt: skip


def test_nothing_is_measured_on_one_core() -> None:
    found = measure_runtime([0], QUICK)
    assert isinstance(found, str)
    assert "one core" in found


def test_without_a_compiler_with_openmp_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", shutil.which("false") or "false")
    found = measure_runtime([0, 1], QUICK)
    assert isinstance(found, str)
    assert "OpenMP" in found
