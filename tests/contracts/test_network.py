"""What every network model must keep: causality, the compute-only limit, and one answer for one question."""

from __future__ import annotations

import numpy as np
import pytest

from manyscale.models.machine import ideal_network
from manyscale.models.network.program import build_program
from manyscale.models.network.replay import replay
from manyscale.runner import shipped
from manyscale.runner.pipeline import compute_per_operation
from manyscale.runner.readers import simgrid_ti
from manyscale.runner.registry import lookup, names
from manyscale.runner.study import parse_study
from manyscale.runner.targets import resolve_target

pytestmark = [pytest.mark.contract, pytest.mark.parametrize("name", names("network"))]


@pytest.fixture(scope="module", params=["comd-8", "nas-is-A-8", "lulesh-8"])
def case(request):
    workload = simgrid_ti.read(shipped.folder() / f"{request.param}.tar.zst")
    network = resolve_target(parse_study({"workload": {"path": "-"}, "target": "crossbar256"}, "test"))[0].network
    compute = compute_per_operation(workload, workload.column("phases", "duration_ps"))
    return workload, network, build_program(workload, network.collectives), compute


def test_causality(name, case):
    workload, network, program, compute = case
    law = lookup("network", name).message_law(program, network, np.arange(workload.num_ranks))
    timeline = replay(program, compute, law)
    assert np.all(timeline.receive_ps >= timeline.send_ps)
    own = np.add.reduceat(compute, workload.rank_offsets[:-1])
    assert np.all(timeline.end_ps[workload.rank_offsets[1:] - 1] >= own)


def test_ideal_network_never_takes_longer(name, case):
    workload, network, program, compute = case
    model = lookup("network", name)
    nodes = np.arange(workload.num_ranks)
    real = replay(program, compute, model.message_law(program, network, nodes)).makespan_ps
    ideal = replay(program, compute, model.message_law(program, ideal_network(network), nodes)).makespan_ps
    assert np.add.reduceat(compute, workload.rank_offsets[:-1]).max() <= ideal <= real


def test_without_compute_an_ideal_network_takes_no_time(name, case):
    workload, network, program, compute = case
    law = lookup("network", name).message_law(program, ideal_network(network), np.arange(workload.num_ranks))
    assert replay(program, np.zeros_like(compute), law).makespan_ps == 0


def test_same_question_same_answer(name, case):
    workload, network, program, compute = case
    law = lookup("network", name).message_law(program, network, np.arange(workload.num_ranks))
    first, second = replay(program, compute, law), replay(program, compute, law)
    assert np.array_equal(first.end_ps, second.end_ps)
    assert np.array_equal(first.receive_ps, second.receive_ps)
