"""The suites that TaskPoint is evaluated on have as many task instances and iterations as their description says."""

from __future__ import annotations

import inspect

import pytest
from programs import counts

from .trace_kernels import SUITES


@pytest.mark.theory
@pytest.mark.parametrize("suite", SUITES)
def test_every_kernel_has_two_iterations_of_enough_task_instances(suite: str) -> None:
    assert set(SUITES[suite]) == set(counts.KERNELS)
    for name, values in SUITES[suite].items():
        named = inspect.signature(counts.KERNELS[name]).bind(*values).arguments
        (both,) = counts.expected(name, values)
        assert named["iterations"] == 2, name
        assert 20_000 <= both.tasks.total() / 2 <= 103_000, name
