"""What every network model must keep: causality, the compute-only limit, and one answer for one question."""

from __future__ import annotations

import numpy as np
import pytest

from manyscale.models.machine import ideal_network
from manyscale.models.network.program import build_program
from manyscale.models.network.replay.timeline import Placement
from manyscale.runner.readers import simgrid_ti
from manyscale.runner.registry import lookup, names
from manyscale.runner.run.pipeline import compute_per_operation
from manyscale.runner.study import parse_study, shipped
from manyscale.runner.study.targets import resolve_target

pytestmark = [pytest.mark.contract, pytest.mark.parametrize("name", names("network"))]


@pytest.fixture(scope="module", params=["comd-8", "nas-is-A-8", "lulesh-8"])
def case(request):
    workload = simgrid_ti.read(shipped.folder() / f"{request.param}.tar.zst")
    network = resolve_target(parse_study({"workload": {"path": "-"}, "target": "crossbar256"}, "test"))[0].network
    compute = compute_per_operation(workload, workload.column("phases", "duration_ps"))
    return workload, network, build_program(workload, network.collectives), compute


def test_causality(name, case):
    workload, network, program, compute = case
    timeline = lookup("network", name).replay(program, compute, network, Placement.one_per_node(workload.num_ranks))
    assert np.all(timeline.receive_ps >= timeline.send_ps)
    own = np.add.reduceat(compute, workload.rank_offsets[:-1])
    assert np.all(timeline.end_ps[workload.rank_offsets[1:] - 1] >= own)


def test_ideal_network_never_takes_longer(name, case):
    workload, network, program, compute = case
    model = lookup("network", name)
    placement = Placement.one_per_node(workload.num_ranks)
    real = model.replay(program, compute, network, placement).makespan_ps
    ideal = model.replay(program, compute, ideal_network(network), placement).makespan_ps
    assert np.add.reduceat(compute, workload.rank_offsets[:-1]).max() <= ideal <= real


def test_without_compute_an_ideal_network_takes_no_time(name, case):
    workload, network, program, compute = case
    model, placement = lookup("network", name), Placement.one_per_node(workload.num_ranks)
    assert model.replay(program, np.zeros_like(compute), ideal_network(network), placement).makespan_ps == 0


def test_same_question_same_answer(name, case):
    workload, network, program, compute = case
    model, placement = lookup("network", name), Placement.one_per_node(workload.num_ranks)
    first, second = (model.replay(program, compute, network, placement) for _ in range(2))
    assert np.array_equal(first.end_ps, second.end_ps)
    assert np.array_equal(first.receive_ps, second.receive_ps)
