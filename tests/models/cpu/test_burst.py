"""The burst model: expected values by hand from duration x cpu_ratio x slowdown / ipc_factor."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from manyscale.models.cpu.burst import BurstParameters, predict
from manyscale.models.workload import PhaseKind

DURATION = np.array([1000, 3, 2000], np.int64)
KIND = np.array([PhaseKind.compute, PhaseKind.compute, PhaseKind.sleep], np.int8)
ONES = np.ones(3)


@pytest.mark.theory
def test_scales_compute_and_leaves_sleep():
    assert predict(BurstParameters(0.5), DURATION, KIND, ONES).tolist() == [500, 2, 2000]  # 1.5 rounds to even
    assert predict(BurstParameters(1.0, 3.0), DURATION, KIND, ONES).tolist() == [3000, 9, 2000]


@pytest.mark.theory
def test_higher_ipc_is_faster():
    assert predict(BurstParameters(), DURATION, KIND, np.array([2.0, 1.0, 2.0])).tolist() == [500, 3, 2000]


@pytest.mark.contract
def test_is_exact_without_scaling():
    long = np.array([2**53 - 1], np.int64)
    assert predict(BurstParameters(), long, KIND[:1], ONES[:1]).tolist() == [2**53 - 1]


@pytest.mark.contract
@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf")])
def test_refuses_senseless_parameters(value):
    with pytest.raises(ValueError, match="cpu_ratio is"):
        BurstParameters(cpu_ratio=value)
    with pytest.raises(ValueError, match="slowdown is"):
        BurstParameters(slowdown=value)


@pytest.mark.contract
def test_parameters_pickle():
    assert pickle.loads(pickle.dumps(BurstParameters(0.7, 2.0))) == BurstParameters(0.7, 2.0)
