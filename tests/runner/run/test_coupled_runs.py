"""Units and tables of runs whose task graphs communicate."""

from __future__ import annotations

import numpy as np
import pytest

from manyscale.models.network import latency_bandwidth
from manyscale.models.network.program import build_program
from manyscale.models.network.replay.timeline import Placement
from manyscale.models.node.program.build import build_program as build_node_program
from manyscale.models.node.scheduler.runtime_system import RuntimeSystem
from manyscale.runner import shipped
from manyscale.runner.readers import workload_folder
from manyscale.runner.run import coupled, results
from manyscale.runner.run.pipeline import compute_per_operation
from manyscale.runner.study import parse_study
from manyscale.runner.study.targets import resolve_target


@pytest.mark.contract
@pytest.mark.parametrize(("name", "schedule"), [("cholesky-8", "0 us"), ("jacobi-8", "0.5 us")])
def test_a_unit_and_its_tables(name: str, schedule: str) -> None:
    """On one core, where Cholesky overlaps nothing, the states are those of every replay."""
    workload = workload_folder.read(shipped.folder() / f"{name}.tar.zst")
    machine, content = resolve_target(parse_study({"workload": {"path": "-"}, "target": "crossbar256"}, "test"))
    network = machine.network
    program = build_program(workload, network.collectives)
    compute = compute_per_operation(workload, workload.column("phases", "duration_ps"))
    nodes = [build_node_program(workload, rank, 1) for rank in range(workload.num_ranks)]
    parameters = {
        "model": "latency-bandwidth", "network": content["network"], "node_of_rank": list(range(8)),
        "num_nodes": 8, "num_point_to_point": len(workload.send_rows), "num_cores": 1, "seed": 0,
        "runtime": RuntimeSystem(schedule=schedule).model_dump(mode="json", by_alias=True), "share_group": None,
        "keep_ranks": [3],
    }  # fmt: skip
    inputs = {"program": program, "compute_ps": compute, "nodes": (nodes, [node.piece_ps for node in nodes])}
    arrays = coupled.replay_point(parameters, inputs)
    assert arrays["ideal_makespan_ps"][0] <= arrays["rank_end_ps"].max()
    table = coupled.ranks_table(workload, arrays["exposed_ps"], arrays["end_ps"], arrays["rank_end_ps"])
    if name == "cholesky-8":
        replayed = latency_bandwidth.replay(program, compute, network, Placement.one_per_node(8))
        assert table.equals(results.ranks_table(workload, compute, replayed.end_ps))
    messages = results.messages_table(workload, arrays["send_ps"], arrays["receive_ps"])
    figures = results.statistics(
        workload, machine, table, messages, arrays["rank_end_ps"], int(arrays["ideal_makespan_ps"][0])
    )
    assert figures["application.makespan"].value == arrays["rank_end_ps"].max() / 1e12
    cores = coupled.statistics(arrays)
    assert (cores["cores.overhead"].value > 0) == (schedule != "0 us")
    assert cores["cores.busy"].value == pytest.approx(compute.sum() / 1e12)
    assert sum(cores[f"cores.{name}"].value for name in ("busy", "overhead", "blocked", "idle")) == pytest.approx(
        arrays["rank_end_ps"].sum() / 1e12
    )
    assert np.all(arrays["rows_rank"] == 3)
    computes = arrays["rows_operation"] < 0
    assert (arrays["rows_end_ps"] - arrays["rows_start_ps"])[computes].sum() == arrays["cores_busy_ps"][3]
