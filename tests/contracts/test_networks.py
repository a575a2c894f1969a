"""Every network model keeps its contract, on small workloads and on traced ones; those that do not are found out."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from manyscale.models.network import latency_bandwidth
from manyscale.runner import shipped
from manyscale.runner.readers import simgrid_ti
from manyscale.runner.registry import lookup, names
from manyscale.testing import ContractError, check_network

pytestmark = pytest.mark.contract


@pytest.fixture(scope="module")
def traced():
    return [simgrid_ti.read(shipped.folder() / f"{name}.tar.zst") for name in ("comd-8", "nas-is-A-8", "lulesh-8")]


@pytest.mark.parametrize("name", names("network"))
def test_built_in(name, traced):
    check_network(lookup("network", name), workloads=traced)


def model(replay, **more) -> SimpleNamespace:
    return SimpleNamespace(**{"NAME": "broken", "VERSION": 1, "replay": replay} | more)


def changed(**columns):
    """The latency-bandwidth model with columns of its timelines changed."""

    def replay(program, compute_ps, network, placement):
        right = latency_bandwidth.replay(program, compute_ps, network, placement)
        return replace(right, **{name: change(getattr(right, name)) for name, change in columns.items()})

    return replay


def in_place(program, compute_ps, network, placement):
    compute_ps += 1
    return latency_bandwidth.replay(program, compute_ps, network, placement)


def by_accident(program, compute_ps, network, placement):
    right = latency_bandwidth.replay(program, compute_ps, network, placement)
    ends = right.end_ps.copy()
    ends[-1] += np.random.default_rng().integers(1, 10**6)
    return replace(right, end_ps=ends)


def swallowing(program, compute_ps, network, placement):
    try:
        return latency_bandwidth.replay(program, compute_ps, network, placement)
    except ValueError:
        return None


def with_overhead(program, compute_ps, network, placement):
    return latency_bandwidth.replay(program, compute_ps + 100, network, placement)


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        (SimpleNamespace(NAME="broken", VERSION=1), "broken: has no function replay"),
        (model(latency_bandwidth.replay, VERSION="1"), "VERSION is '1'"),
        (model(changed(receive_ps=lambda each: each - 10**9)), "negative time|arrives before it is sent"),
        (model(changed(send_ps=lambda each: each // 2)), "message 0 is sent before its rank reaches its send"),
        (model(changed(end_ps=lambda each: each // 2)), "ends before the operation before it"),
        (model(changed(end_ps=lambda each: each.astype(float))), "end_ps is float64, not int64"),
        (model(changed(end_ps=lambda each: each[:-1])), "end_ps has 15 values for 16"),
        (model(in_place), "writes into an array that it was handed"),
        (model(by_accident), "the same question has another end_ps when it is asked again"),
        (model(with_overhead), "without any compute|its compute alone takes 6000000 ps"),
        (model(swallowing), "replays ranks that wait for each other"),
        (model(lambda *_: None), "returns NoneType, not a Timeline"),
    ],
)
def test_broken(broken, reason):
    with pytest.raises(ContractError, match=reason):
        check_network(broken)
