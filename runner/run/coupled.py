"""Work units and tables of runs in which ranks communicate inside their task graphs (models/network/coupled/model.py).

The states of such a rank: *compute* as long as any of its cores executes something, else that of the MPI operation
whose end let it go on. So communication counts as far as no computation hides it, and a rank of one core has the states
that every replay gives it. What each core did stands in the table of cores.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from manyscale.models.machine import Network, ideal_network
from manyscale.models.network.coupled.model import CoreRows, CoupledTimeline, replay_coupled
from manyscale.models.network.replay.timeline import Placement
from manyscale.models.node.scheduler.runtime_system import RuntimeSystem
from manyscale.models.workload import Workload
from manyscale.models.workload.columns import text_array, to_arrow
from manyscale.runner.predict.statistic import Statistic
from manyscale.runner.predict.units import Arrays
from manyscale.runner.run import links
from manyscale.runner.run.results import RANKS_SCHEMA, STATES, states_array

_CORE_ROWS: Final = ("rank", "core", "instance", "operation", "start_ps", "end_ps", "created_ps", "ready_ps")
_PER_CORE: Final = ("core_rank", "busy_ps", "overhead_ps", "blocked_ps")


def replay_point(parameters: Mapping[str, Any], inputs: Mapping[str, Any]) -> Arrays:
    """As replay_units.replay_point, for ranks with node programs: no critical path, but what overlap needs.

    Inputs: ``program``; ``compute_ps`` int64 per operation; ``nodes``: (list of node programs, list of times of their
    pieces), an entry per rank, None for ranks without. Parameters beside those of replay_point: ``runtime`` (a
    RuntimeSystem, by ``model_dump(mode="json", by_alias=True)``), ``num_cores`` (of each rank), ``seed``,
    ``share_group`` (a number per core, or None), ``keep_ranks``, and ``speeds`` by rank and core where cores are not
    all alike. Of the run on an ideal network there are
    ``ideal_compute_ps`` int64[ranks] and what its cores did, since computing itself takes longer where messages come
    late: cores then work one after the other, and not at the same time.
    """
    network = Network.model_validate(parameters["network"])
    placement = Placement(np.asarray(parameters["node_of_rank"], np.int32), parameters["num_nodes"])
    runtime = RuntimeSystem.model_validate(parameters["runtime"])
    programs, piece_ps = inputs["nodes"]
    group = parameters["share_group"]
    share_group = None if group is None else np.asarray(group, np.int32)
    speeds = np.asarray(parameters["speeds"]) if "speeds" in parameters else None

    def replay(model: str, law: Network, keep_ranks: Sequence[int]) -> CoupledTimeline:
        return replay_coupled(
            inputs["program"], inputs["compute_ps"], programs, piece_ps, parameters["num_cores"], runtime, law,
            placement, model=model, seed=parameters["seed"], share_group=share_group, speeds=speeds,
            keep_ranks=keep_ranks,
        )  # fmt: skip

    result = replay(parameters["model"], network, parameters["keep_ranks"])
    ideal = replay("latency-bandwidth", ideal_network(network), ())
    rank = np.repeat(np.arange(len(ideal.rank_end_ps)), np.diff(inputs["program"].rank_offsets))
    in_mpi = np.bincount(rank, ideal.timeline.end_ps - ideal.exposed_ps, minlength=len(ideal.rank_end_ps))
    return to_arrays(result, parameters["num_point_to_point"]) | {
        "ideal_makespan_ps": np.array([ideal.makespan_ps], np.int64),
        "ideal_compute_ps": ideal.rank_end_ps - np.rint(in_mpi).astype(np.int64),
        **{f"ideal_cores_{name}": getattr(ideal, name) for name in ("busy_ps", "overhead_ps")},
        "rows_task_instance": _of_instances(result.cores, programs, "instance_id"),
        "rows_task_type": _of_instances(result.cores, programs, "task_type"),
        "rows_creator": _of_instances(result.cores, programs, "parent"),
    }


def _of_instances(rows: CoreRows, programs: Sequence[Any], name: str) -> np.ndarray:
    """int32[rows]: a column of the instances that cores executed, -1 where they communicated."""
    found = np.full(len(rows.rank), -1, np.int32)
    for rank in np.unique(rows.rank).tolist():
        mine = np.flatnonzero((rows.rank == rank) & (rows.instance >= 0))
        found[mine] = getattr(programs[rank], name)[rows.instance[mine]]
    return found


def to_arrays(result: CoupledTimeline, num_point_to_point: int) -> Arrays:
    """Named arrays, as results of work units are stored."""
    timeline = result.timeline
    return {
        "end_ps": timeline.end_ps,
        "send_ps": timeline.send_ps[:num_point_to_point].copy(),
        "receive_ps": timeline.receive_ps[:num_point_to_point].copy(),
        "begin_ps": result.begin_ps,
        "exposed_ps": result.exposed_ps,
        "rank_end_ps": result.rank_end_ps,
        **{f"cores_{name}": getattr(result, name) for name in _PER_CORE},
        **{f"rows_{name}": getattr(result.cores, name) for name in _CORE_ROWS},
        **links.to_arrays(timeline.links),
    }


def ranks_table(
    workload: Workload, exposed_ps: np.ndarray, end_ps: np.ndarray, rank_end_ps: np.ndarray,
    rows: np.ndarray | None = None,
) -> pa.Table:  # fmt: skip
    """States of every rank, without those of no duration, sorted by rank and time. O(operations x log operations).
    ``rows``: operations (default: all) that ``exposed_ps`` and ``end_ps`` are of; the others are compute.

    The compute before an operation in the order of their *ends* stands with it; that after the last, with the last.
    """
    rows = np.arange(workload.num_operations) if rows is None else rows
    rank = workload.column("operations", "rank")[rows]
    order = np.lexsort((exposed_ps, end_ps, rank))
    rank, end, exposed = rank[order], end_ps[order], exposed_ps[order]
    first = np.flatnonzero(np.diff(rank, prepend=-1))
    before = np.roll(end, 1)
    before[first] = 0
    last = np.append(first[1:], len(rank))[: len(first)] - 1
    # compute, the operation, and after a rank's last operation compute again
    since, until = np.stack((before, exposed, end), axis=1), np.stack((exposed, end, end), axis=1)
    until[last, 2] = rank_end_ps[rank[last]]
    since, until = since.ravel(), until.ravel()
    kept = np.flatnonzero(until > since)
    row = rows[order[kept // 3]]
    state = states_array(workload, row)
    state[kept % 3 != 1] = STATES.index("compute")
    columns = [
        to_arrow(rank[kept // 3]),
        to_arrow(since[kept]),
        to_arrow(until[kept]),
        pa.DictionaryArray.from_arrays(to_arrow(state), text_array(STATES)),
        to_arrow((row - workload.rank_offsets[rank[kept // 3]]).astype(np.int32)),
    ]
    return pa.Table.from_arrays(columns, schema=RANKS_SCHEMA)


def statistics(arrays: Mapping[str, np.ndarray]) -> dict[str, Statistic]:
    """Figures of the cores of ranks that communicate inside tasks, summed over cores."""
    meanings = {
        "busy": "executing task instances",
        "overhead": "in the runtime system",
        "blocked": "blocked by MPI operations, while other cores may compute",
    }
    figures = {
        f"cores.{name}": Statistic(int(arrays[f"cores_{name}_ps"].sum()) / 1e12, "s", "total", f"all cores: {meaning}")
        for name, meaning in meanings.items()
    }
    ends = arrays["rank_end_ps"][arrays["cores_core_rank"]]
    used = sum(int(arrays[f"cores_{name}_ps"].sum()) for name in meanings)
    figures["cores.idle"] = Statistic((int(ends.sum()) - used) / 1e12, "s", "total", "all cores: without work")
    return figures
