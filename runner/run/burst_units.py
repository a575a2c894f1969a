"""Work units that turn the times of phases into predicted ones: a unit per group of consecutive ranks.

Up to MOST_GROUPS ranks each has a unit of its own. Of more, several share one, so that a run of many ranks does not
have as many units, files and mappings as ranks. A group's key is of the content of all its phases, so that equal groups
are computed once, as equal ranks are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np

from manyscale.models.workload import PhaseKind
from manyscale.runner.predict.ipc import ipc_factors
from manyscale.runner.predict.phase_source import Case, PhaseSource
from manyscale.runner.predict.units import Arrays, Executes, WorkUnit, array_digest, unit_function, unit_key
from manyscale.runner.registry import lookup, names

MOST_GROUPS: Final = 256
_OF_GROUP: Final = "burst-group"


def rank_groups(num_ranks: int) -> np.ndarray:
    """int64[groups + 1]: group g holds ranks [g, g + 1) of these bounds, nearly as many each."""
    count = min(MOST_GROUPS, num_ranks)
    return np.arange(count + 1) * num_ranks // count


def key_of_ranks(keys: Sequence[str], num_ranks: int, ranks: np.ndarray) -> list[str]:
    """The key of the unit that computed each of the given ranks, of the ``keys`` of all groups."""
    group = np.searchsorted(rank_groups(num_ranks), ranks, "right") - 1
    return [keys[each] for each in group.tolist()]


def phase_inputs(case: Case, source: PhaseSource, duration_ps: np.ndarray | None = None) -> dict[str, np.ndarray]:
    """Arrays of all phases that the burst model reads, with the IPC factor of each phase. ``duration_ps``: predicted
    before any correction (None: as traced). Phases of which the source says so take what it predicts, as sleep does."""
    workload, fixed = case.workload, source.fixed_phases()
    kind = workload.column("phases", "kind")
    return {
        "duration_ps": workload.column("phases", "duration_ps") if duration_ps is None else duration_ps,
        "kind": kind if fixed is None else np.where(fixed, np.int8(PhaseKind.sleep), kind),
        "ipc_factor": ipc_factors(case, duration_ps),
    }


def phase_digests(case: Case, source: PhaseSource, time_units: Sequence[WorkUnit]) -> list[str]:
    """Digest of what the phases of each group of ranks follow from, known before ``time_units`` have run."""
    workload = case.workload
    columns = phase_inputs(case, source).values()
    groups = rank_groups(workload.num_ranks).tolist()
    offsets = workload.phase_offsets
    digests = []
    for first_rank, end_rank in pairwise(groups):
        first, last = offsets[first_rank], offsets[end_rank]
        parts = [column[first:last] for column in columns]
        if end_rank - first_rank > 1:  # whose phases they are counts, too
            parts.append(np.diff(offsets[first_rank : end_rank + 1]))
        digests.append(array_digest(*parts))
    beside = [*source.content(), *(unit.key for unit in time_units)]
    if beside:  # a predicted time depends on which phase it is of, and on those that are like it
        content = array_digest(np.array([workload.digest, *beside]))
        digests = [f"{digest} {rank} {content}" for digest, rank in zip(digests, groups, strict=False)]
    return digests


def burst_units(
    case: Case, source: PhaseSource, ranks_per_core: np.ndarray, digests: Sequence[str], shared_name: str
) -> list[WorkUnit]:
    """The units of all groups under the case's CPU model, all their phases as arrays. ``ranks_per_core``
    float64[ranks]: that share one; ``digests``: of each group; ``shared_name``: of the input."""
    offsets, num_ranks = case.workload.phase_offsets, case.workload.num_ranks
    name = case.study.model.cpu
    kind = name if name in names("unit") else "burst"
    version = lookup("cpu", name).VERSION
    units = []
    for digest, (first_rank, end_rank) in zip(digests, pairwise(rank_groups(num_ranks).tolist()), strict=True):
        first, last = int(offsets[first_rank]), int(offsets[end_rank])
        slowdown = ranks_per_core[first_rank:end_rank]
        parameters: dict[str, Any] = {"cpu_ratio": source.cpu_ratio, "slowdown": float(slowdown[0])}
        own: dict[str, Any] = {"first": first, "last": last}
        if len(slowdown) > 1:
            # stretches of ranks that lack an equal share of their cores: how many ranks, and the share
            borders = [0, *(np.flatnonzero(np.diff(slowdown)) + 1).tolist(), len(slowdown)]
            parameters["slowdown"] = [[end - begin, float(slowdown[begin])] for begin, end in pairwise(borders)]
            own = {"of": kind, "bounds": offsets[first_rank : end_rank + 1].tolist()}
        key = unit_key(name, version, parameters, [digest], seed=0)
        run = kind if len(slowdown) == 1 else _OF_GROUP
        units.append(WorkUnit(key, run, parameters | own, {"phases": shared_name}, last - first))
    return units


def of_group(parameters: Mapping[str, Any], inputs: Mapping[str, Any]) -> Arrays:
    """The phases of several ranks under a model whose units are of one: ``duration_ps`` int64, one per phase.

    Parameters: ``cpu_ratio``; ``slowdown``, a list of (ranks, slowdown) that covers the group; ``of``, the kind of unit
    that computes one rank; ``bounds``, where the phases of each rank begin, and where they end. Input ``phases`` as the
    unit of one rank takes it. The burst model looks at each phase alone, so that ranks of equal slowdown are computed
    together; another model rank by rank. Raises ValueError as the unit of one rank does.
    """
    function, bounds = unit_function(parameters["of"]), parameters["bounds"]
    at_once = function is unit_function("burst")
    found = []
    first = 0
    for count, slowdown in parameters["slowdown"]:
        ranks = bounds[first : first + count + 1]
        common = {"cpu_ratio": parameters["cpu_ratio"], "slowdown": slowdown}
        try:
            spans = [(ranks[0], ranks[-1])] if at_once else list(pairwise(ranks))
            found += [function(common | {"first": begin, "last": end}, inputs) for begin, end in spans]
        except ValueError:  # the limit on the compute of a rank was passed by that of all of them
            if not at_once:
                raise
            found += [function(common | {"first": begin, "last": end}, inputs) for begin, end in pairwise(ranks)]
        first += count
    return {"duration_ps": np.concatenate([each["duration_ps"] for each in found])}


def times_of_phases(keys: Sequence[str], execution: Executes) -> np.ndarray:
    """int64[phases]: the predicted time of each, from the finished units of all groups."""
    return np.concatenate([execution.result(key)["duration_ps"] for key in keys])
