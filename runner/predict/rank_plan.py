"""Which ranks are simulated, or take their traced times, and which of these stands for each of the others."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from manyscale.models.workload import PhaseKind, Workload
from manyscale.runner.study import Study
from manyscale.runner.study.samplers import chosen_sampler, rules_of
from manyscale.sampling.plan import Plan
from manyscale.sampling.ranks.rank_samplers import RankPopulation, given_ranks

CONFIDENCE: Final = 0.95


def plan_ranks(workload: Workload, study: Study, traced: np.ndarray, auto: str) -> Plan:
    """By the study's sampler, ``auto`` where it names none. ``traced`` int64[]: ranks with a detailed level. Raises
    UserError for a sampler that is not known, ValueError for ranks that there are not, and a plan that does not tell
    which rank stands for which."""
    method = study.sampling.ranks
    population = RankPopulation(workload, traced)
    if isinstance(method, str):
        sampler = chosen_sampler("rank", auto if method == "auto" else method)
        plan = sampler.choose(population, rules_of(sampler, study), study.seed)
        if not isinstance(plan, Plan) or plan.population != workload.num_ranks:
            raise ValueError(f"sampling.ranks: {method} returns no Plan of its {workload.num_ranks} ranks")
    else:
        plan = given_ranks(population, method)
    plan.representative  # noqa: B018 - refuses what it does not tell
    return replace(plan, model=study.model.cpu)


def times_of_representatives(workload: Workload, plan: Plan, duration_ps: np.ndarray) -> np.ndarray:
    """int64[phases]: each rank's phases take those of the rank that stands for it, one by one. ``duration_ps``
    int64[phases], read of the chosen ranks alone. Raises ValueError, naming the first, for a rank whose phases are not
    as many and of the same kinds as those of its representative."""
    if plan.is_census:
        return duration_ps
    offsets, kind = workload.phase_offsets, workload.column("phases", "kind")
    length, stands = np.diff(offsets), plan.element_id[plan.representative]
    rank = np.repeat(np.arange(workload.num_ranks), length)
    row = offsets[stands[rank]] + np.arange(len(kind)) - offsets[rank]
    fits = length == length[stands]
    inside = np.flatnonzero(fits[rank])
    fits[rank[inside[kind[inside] != kind[row[inside]]]]] = False
    if not np.all(fits):
        other = int(np.argmin(fits))
        raise ValueError(
            f"sampling.ranks: rank {stands[other]} cannot stand for rank {other}, whose phases are not as many or of "
            "other kinds; choose both, or a sampler that tells them apart"
        )
    return np.asarray(duration_ps[row])


def sampled_ranks(workload: Workload, plan: Plan, duration_ps: np.ndarray) -> tuple[float, str]:
    """(relative half-width of the compute time of all ranks, 95 %; why it is not known, if it is not) from those of the
    chosen ones. ``duration_ps`` int64[phases]."""
    of_chosen = [plan.weight[plan.stratum == each] for each in np.unique(plan.stratum)]
    if not plan.is_random or any(np.ptp(weight) > 0 for weight in of_chosen):
        return 0.0, "they were not drawn at random and do not say how sure the figures are"
    if any(len(weight) < 2 and weight[0] > 1 for weight in of_chosen):
        return 0.0, "one of a stratum does not say how sure the figures are"
    from manyscale.sampling.stratified import estimate  # loads SciPy's distributions

    computing = workload.column("phases", "kind") == PhaseKind.compute
    rank = workload.column("phases", "rank")[computing]
    compute = np.bincount(rank, duration_ps[computing], minlength=workload.num_ranks)[plan.element_id]
    drawn = [compute[plan.stratum == each] for each in np.unique(plan.stratum)]
    sizes = np.array([round(float(weight.sum())) for weight in of_chosen])
    found = estimate(sizes, drawn, CONFIDENCE, pooled=len(sizes) > 1)
    return ((found.high - found.low) / 2 / found.mean if found.mean else 0.0), ""
