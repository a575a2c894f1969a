"""What every network model keeps: causality, the compute-only limit, and one answer to one question."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from manyscale.models.machine import Network, ideal_network
from manyscale.models.network.program import Program, build_program
from manyscale.models.network.replay.timeline import Placement, ReplayError, Timeline
from manyscale.models.workload import Workload
from manyscale.runner.study import parse_study
from manyscale.runner.study.targets import resolve_target
from manyscale.testing.contract import ContractError, name_of, require, require_nowhere, require_one_line
from manyscale.testing.workloads import compute_of, deadlock, known


def check_network(model: Any, network: Network | None = None, workloads: Sequence[Workload] = ()) -> None:
    """``model``: a module (or an object) with ``replay(program, compute_ps, network, placement) -> Timeline`` and
    ``VERSION``. ``network``: parameters that it is checked with, those of the target crossbar256 if none are given.
    ``workloads``: more of them than the small ones that are built in.

    Checked: the timeline has a row per operation and message; no message arrives before it is sent, and no operation
    ends before the one before it and the compute between; without latency, at infinite bandwidth, a run takes as long
    as its compute, which is known, and never longer than on ``network``; equal questions have equal answers; nothing
    that was handed in is changed; ranks of one node communicate, too; ranks that wait for each other are refused with
    ReplayError. Raises ContractError.
    """
    name = name_of(model)
    require(callable(getattr(model, "replay", None)), f"{name}: has no function replay")
    version = getattr(model, "VERSION", None)
    require(isinstance(version, int), f"{name}: VERSION is {version!r}, not an integer that is raised with the results")
    if network is None:
        network = _crossbar()
    if hasattr(model, "check"):
        model.check(network)
    for each in known():
        makespan = _check_workload(model, network, each.workload)
        require(
            makespan == each.compute_only_ps,
            f"{name}: {each.workload.name} takes {makespan} ps without latency and at infinite bandwidth; its compute "
            f"alone takes {each.compute_only_ps} ps",
        )
    for workload in workloads:
        _check_workload(model, network, workload)
    _check_deadlock(model, network)


def _crossbar() -> Network:
    study = parse_study({"workload": {"path": "-"}, "target": "crossbar256"}, "check_network")
    return resolve_target(study)[0].network


def _check_workload(model: Any, network: Network, workload: Workload) -> int:
    """All that holds for any workload. Returns the makespan on an ideal network in ps."""
    what = f"{name_of(model)}, {workload.name}"
    program = build_program(workload, network.collectives)
    compute = compute_of(workload)
    compute.flags.writeable = False
    apart = Placement.one_per_node(workload.num_ranks)
    real = _replayed(model, program, compute, network, apart, what)
    _check_causality(real, workload, compute, what)
    again = _replayed(model, program, compute, network, apart, what)
    for column in ("end_ps", "send_ps", "receive_ps"):
        same = np.array_equal(getattr(real, column), getattr(again, column))
        require(same, f"{what}: the same question has another {column} when it is asked again")
    together = Placement(np.zeros(workload.num_ranks, np.int32), 1)
    _check_causality(_replayed(model, program, compute, network, together, what), workload, compute, what)
    free = ideal_network(network)
    ideal = _replayed(model, program, compute, free, apart, what)
    _check_causality(ideal, workload, compute, what)
    require(
        ideal.makespan_ps <= real.makespan_ps,
        f"{what}: takes {ideal.makespan_ps} ps on an ideal network, longer than {real.makespan_ps} ps on a real one",
    )
    idle = _replayed(model, program, np.zeros_like(compute), free, apart, what).makespan_ps
    require(idle == 0, f"{what}: takes {idle} ps on an ideal network without any compute")
    return ideal.makespan_ps


def _replayed(
    model: Any, program: Program, compute: np.ndarray, network: Network, placement: Placement, what: str
) -> Timeline:
    try:
        timeline = model.replay(program, compute, network, placement)
    except ValueError as error:
        if "read-only" in str(error):
            raise ContractError(f"{what}: writes into an array that it was handed ({error})") from error
        raise ContractError(f"{what}: is refused ({error})") from error
    require(isinstance(timeline, Timeline), f"{what}: replay returns {type(timeline).__name__}, not a Timeline")
    return timeline


def _check_causality(timeline: Timeline, workload: Workload, compute: np.ndarray, what: str) -> None:
    num_messages = len(workload.send_rows)
    for column, count in (
        ("end_ps", workload.num_operations), ("send_ps", num_messages), ("receive_ps", num_messages),
    ):  # fmt: skip
        values = getattr(timeline, column)
        require(values.dtype == np.int64, f"{what}: {column} is {values.dtype}, not int64 (picoseconds)")
        require(len(values) >= count, f"{what}: {column} has {len(values)} values for {count}")
        require(np.all(values[:count] >= 0), f"{what}: {column} has a negative time")
    require(len(timeline.end_ps) == workload.num_operations, f"{what}: end_ps has more values than operations")
    require_nowhere(timeline.receive_ps < timeline.send_ps, f"{what}: message {{}} arrives before it is sent")
    start = np.concatenate(([0], timeline.end_ps[:-1]))
    start[workload.rank_offsets[:-1][np.diff(workload.rank_offsets) > 0]] = 0
    require_nowhere(
        timeline.end_ps < start + compute,
        f"{what}: operation {{}} ends before the operation before it and the compute between",
    )
    sends = workload.send_rows
    require_nowhere(
        timeline.send_ps[: len(sends)] < (start + compute)[sends],
        f"{what}: message {{}} is sent before its rank reaches its send",
    )


def _check_deadlock(model: Any, network: Network) -> None:
    workload = deadlock()
    program = build_program(workload, network.collectives)
    placement = Placement.one_per_node(workload.num_ranks)
    try:
        model.replay(program, compute_of(workload), network, placement)
    except ReplayError as error:
        require_one_line(error, f"{name_of(model)}, deadlock")
        return
    raise ContractError(f"{name_of(model)}: replays ranks that wait for each other; raise ReplayError for a deadlock")
