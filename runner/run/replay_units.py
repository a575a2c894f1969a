"""What each kind of work unit computes: plain functions from parameters and inputs to named arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from manyscale.models.cpu.burst import BurstParameters, predict
from manyscale.models.machine import Network, ideal_network
from manyscale.models.network import latency_bandwidth
from manyscale.models.network.critical_path import (
    CriticalPath,
    ThroughCall,
    critical_path,
    eager_messages,
    path_from,
    starting_at_send,
)
from manyscale.models.network.program import Program
from manyscale.models.network.replay.timeline import Placement
from manyscale.runner.predict.units import Arrays
from manyscale.runner.registry import lookup
from manyscale.runner.run import links
from manyscale.runner.run.critical_path import to_arrays


def burst(parameters: Mapping[str, Any], inputs: Mapping[str, Any]) -> Arrays:
    """One rank's phases under the burst model: ``duration_ps`` int64, one per phase of the rank.

    Input ``phases``: arrays ``duration_ps``, ``kind`` and ``ipc_factor`` of all ranks; ``first`` and ``last`` bound
    the rank's rows.
    """
    rows = slice(parameters["first"], parameters["last"])
    phases = inputs["phases"]
    model = BurstParameters(parameters["cpu_ratio"], parameters["slowdown"])
    return {
        "duration_ps": predict(model, phases["duration_ps"][rows], phases["kind"][rows], phases["ipc_factor"][rows])
    }


def replay_point(parameters: Mapping[str, Any], inputs: Mapping[str, Any]) -> Arrays:
    """One sweep point's communication: the timeline, its critical path, and the makespan on an ideal network beside it.

    Inputs: ``program``, and ``compute_ps`` int64 per operation. Results: ``end_ps`` per operation, ``send_ps`` and
    ``receive_ps`` per point-to-point message, ``ideal_makespan_ps`` (one value), ``path_*`` per segment of the path
    (none for graphs of operations without an order), ``link_*`` where the model knows links.
    """
    program = inputs["program"]
    if program.calls is None:
        return _replayed(parameters, program, inputs["compute_ps"])
    from manyscale.models.network.replay import calls  # few runs need it

    try:
        return _replayed(parameters, program, inputs["compute_ps"])
    except calls.EntangledCallsError:
        return _replayed(parameters, calls.written_out(program), inputs["compute_ps"])


def _replayed(parameters: Mapping[str, Any], program: Program, compute_ps: np.ndarray) -> Arrays:
    network = Network.model_validate(parameters["network"])
    placement = Placement(np.asarray(parameters["node_of_rank"], np.int32), parameters["num_nodes"])
    model = lookup("network", parameters["model"])
    ideal_model = latency_bandwidth if program.graph_is_ordered else model
    # first, and nothing but its end is kept: a timeline of many ranks is large
    ideal_ps = ideal_model.replay(program, compute_ps, ideal_network(network), placement).makespan_ps
    timeline = model.replay(program, compute_ps, network, placement)
    count = parameters["num_point_to_point"]
    path: Arrays = {}
    if program.graph_is_ordered:  # a path needs an order to go back along
        eager = eager_messages(program, network.eager_threshold_bytes)
        at_send = starting_at_send(eager, getattr(model, "TRANSFER_START", network.transfer_start))
        through = None if program.calls is None else _through_calls(program, network, placement)
        found = critical_path(program, compute_ps, timeline, eager, at_send, count, through)
        path = to_arrays(found)
        if timeline.links is not None:
            path |= links.path_arrays(found, program, network, placement)
    return {
        "end_ps": timeline.end_ps,
        "send_ps": timeline.send_ps[:count].copy(),
        "receive_ps": timeline.receive_ps[:count].copy(),
        "ideal_makespan_ps": np.array([ideal_ps], np.int64),
        **path,
        **links.to_arrays(timeline.links),
    }


def _through_calls(program: Program, network: Network, placement: Placement) -> ThroughCall:
    """The critical path through a collective that is called: its one instance is replayed again."""
    from manyscale.models.network.replay.calls import called_replays  # few runs need it

    replay_of = called_replays(latency_bandwidth.called(program, network, placement))
    kind = np.empty(0, np.int32) if program.calls is None else program.calls.kind

    def through(instance: int, entered_ps: np.ndarray, last: int) -> tuple[CriticalPath, int]:
        replay = replay_of(int(kind[instance]))
        is_eager = replay.law.is_eager
        at_send = starting_at_send(is_eager, network.transfer_start)
        return path_from(replay.part, entered_ps, replay.timeline(entered_ps), is_eager, at_send, last)

    return through
