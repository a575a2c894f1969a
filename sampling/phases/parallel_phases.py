"""Phases of parallel programs: vectors of what all threads of an interval execute, and what they do to each other.

Method: Hung, "Automatic phase detection for parallel applications on shared memory architectures" (National Taiwan
University, 2010), chapters 5 and 7. Intervals are of a fixed *global* number of instructions, so that those of all
threads lie side by side in time. A vector joins parts:

- ``sbbv``: basic blocks of all threads side by side, by their instructions, sampled.
- ``ccv``: coherence messages that each core answers: reads of lines that it holds, and lines that others take from it.
- ``mcv``: misses of the last cache, of each core.
- ``icv``: instructions of each core; ``tcv``: requests of each core that leave its private caches. Both together are
  the baseline (Zhang et al., whose packets of a network on chip section 7.2.1 replaces by these requests).

Clusters and representatives are SimPoint's (simpoint/__init__.py). What the thesis leaves open is done so:

- The thesis interrupts each processor at regular intervals and takes the block it is in. A profile that counts all
  blocks is sampled alike: one instruction of ``sampling_period``, of which each falls into a block by the block's share
  of the interval, since the order within an interval is not known. With a period of 1 all instructions count.
- Each part is made to sum to 1 in each interval and multiplied by a weight, equal ones by default. Counts then say how
  the cores share what they do, not how much there is. With ``scale: joint`` each part is relative to its rate per
  instruction in the whole run instead, which says both, and the vector of all parts is made to sum to 1, as SimPoint
  does if it is given all parts as one vector.
- Of the parts only SBBV is projected (it alone has many dimensions), by numbers in [-1, 1) that are scaled so that
  expected squared distances stay what they were; weights would mean something else with each number of dimensions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Annotated, Final, Literal

import numpy as np
from pydantic import Field

from manyscale.models.workload.notes import informs
from manyscale.models.workload.parameters import Count, Strict
from manyscale.sampling import simpoint
from manyscale.sampling.population import Choice, IntervalPopulation
from manyscale.sampling.simpoint import SimPointRules
from manyscale.sampling.vectors import Vectors

PARTS: Final = ("sbbv", "ccv", "mcv", "icv", "tcv")
_READS: Final = re.compile(r"readfrom(\d+)")

PartWeight = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class PartWeights(Strict):
    """What the parts weigh beside each other."""

    sbbv: PartWeight = 1.0
    ccv: PartWeight = 1.0
    mcv: PartWeight = 1.0
    icv: PartWeight = 1.0
    tcv: PartWeight = 1.0


class PhaseRules(SimPointRules):
    """``sampling_period``: instructions per sample of SBBV. ``part_weights`` of the parts; ``scale``: what is made to
    sum to 1, each part or the whole vector, see the module."""

    sampling_period: Count = 1
    part_weights: PartWeights = PartWeights()
    scale: Literal["interval", "joint"] = "interval"


def parts_of(method: str) -> tuple[str, ...] | None:
    """The parts that a method such as ``sbbv+ccv`` joins; None if its name is none of these."""
    parts = tuple(method.split("+"))
    return parts if set(parts) <= set(PARTS) and len(set(parts)) == len(parts) else None


def choose(population: IntervalPopulation, parts: tuple[str, ...], rules: PhaseRules, seed: int) -> Choice:
    """Simulation points by vectors of ``parts``. Raises ValueError where the profile does not say what they need."""
    points = points_of(population, parts, rules, seed)
    found = simpoint.choose(points, population.instructions, rules, seed)
    silent = [part for part in parts if part != "sbbv" and not np.any(counts_of(population, part))]
    text = "all of its counts are 0, so it tells no intervals apart"
    notes = tuple(informs("part-without-counts", text, part) for part in silent)
    is_random = rules.per_cluster > 1
    return Choice(found.point, found.cluster, found.weight, found.label, is_random=is_random, notes=notes)


def points_of(population: IntervalPopulation, parts: tuple[str, ...], rules: PhaseRules, seed: int) -> np.ndarray:
    """float64[n, dimensions]: vectors of all parts, weighed, SBBV projected. O(values x dimensions)."""
    columns = []
    mass = np.zeros(len(population))
    for part in parts:
        weight = float(getattr(rules.part_weights, part))
        if part == "sbbv":
            vectors = sampled(population.vectors, rules.sampling_period, seed).normalised()
            keep = np.sqrt(3 / rules.dimensions)  # a number in [-1, 1) has a mean square of 1/3
            columns.append(weight * keep * vectors.projected(seed, rules.dimensions))
            mass += weight * vectors.sums()
        else:
            counts = weight * _scaled(counts_of(population, part), population.instructions, rules.scale)
            if np.any(counts):  # else they would only add dimensions to BIC
                columns.append(counts)
            mass += counts.sum(axis=1)
    points = np.ascontiguousarray(np.hstack(columns or [np.zeros((len(population), 1))]))
    return points / np.where(mass > 0, mass, 1.0)[:, None] if rules.scale == "joint" else points


def _scaled(counts: np.ndarray, instructions: np.ndarray, scale: str) -> np.ndarray:
    """``counts`` [n, cores] of each interval relative to their sum; or their rates relative to the run's rate."""
    expected = instructions * (counts.sum() / max(instructions.sum(), 1.0))
    base = counts.sum(axis=1) if scale == "interval" else expected
    return np.asarray(counts / np.where(base > 0, base, 1.0)[:, None])


def sampled(vectors: Vectors, period: int, seed: int) -> Vectors:
    """How often each block is met by an interrupt after every ``period`` instructions, which go on counting from row to
    row; rows keep no order of their blocks, so an interrupt meets one with the probability of its share of the row.
    ``period`` 1: the vectors themselves. O(values + samples log values)."""
    if period == 1:
        return vectors
    sums = vectors.sums()
    ends = np.cumsum(sums)
    met = np.diff(np.floor(ends / period), prepend=0.0).astype(np.int64)
    row = np.repeat(np.arange(len(vectors)), met)
    position = ends[row] - sums[row] * (1 - np.random.default_rng(seed).random(len(row)))
    at = np.searchsorted(np.cumsum(vectors.value), position, side="right")
    at = np.clip(at, vectors.first[row], vectors.first[row + 1] - 1)  # sums are rounded
    value = np.bincount(at, minlength=len(vectors.value)).astype(np.float64)
    kept = np.flatnonzero(value)
    return Vectors(np.searchsorted(kept, vectors.first), vectors.column[kept], value[kept])


def counts_of(population: IntervalPopulation, part: str) -> np.ndarray:
    """float64[n, cores]: the counts of a part other than SBBV, 0 where a core did not run. Columns of a profile that
    are known, the first that are there:

    - ccv: ``coherence_answers``; or what others read of lines that core K wrote last (their ``readfromK``, cores from
      1) and lines that others took from it (its ``invalidated_by_others``).
    - mcv: ``llc_misses``, ``l3_miss``, ``l2_miss``.
    - tcv: ``offcore_requests``; or the misses of the level before the last: ``l2_miss`` if there is ``l3_miss``, else
      ``l1i_miss`` and ``l1d_miss``.

    Raises ValueError, saying which columns are missing."""
    if part == "icv":
        return population.thread_instructions
    measured = {name: np.nan_to_num(values) for name, values in population.thread_counters.items()}
    read, wanted = _READERS[part]
    found = read(measured)
    if found is None:
        there = ", ".join(sorted(measured)) or "none"
        raise ValueError(f"{part} needs a column {wanted} for each thread beside the profile; there are: {there}")
    return found


def _answers(measured: Mapping[str, np.ndarray]) -> np.ndarray | None:
    if "coherence_answers" in measured:
        return measured["coherence_answers"]
    reads = {int(name[1]) - 1: values for key, values in measured.items() if (name := _READS.fullmatch(key))}
    taken = measured.get("invalidated_by_others")
    if not reads and taken is None:
        return None
    found = np.zeros_like(next(iter(measured.values()))) if taken is None else taken.copy()
    for core, values in reads.items():
        if core < found.shape[1]:
            found[:, core] += values.sum(axis=1) - values[:, core]
    return found


def _misses(measured: Mapping[str, np.ndarray]) -> np.ndarray | None:
    return next((measured[name] for name in ("llc_misses", "l3_miss", "l2_miss") if name in measured), None)


def _requests(measured: Mapping[str, np.ndarray]) -> np.ndarray | None:
    if "offcore_requests" in measured:
        return measured["offcore_requests"]
    if "l3_miss" in measured and "l2_miss" in measured:
        return measured["l2_miss"]
    first = [measured[name] for name in ("l1i_miss", "l1d_miss") if name in measured]
    return np.sum(first, axis=0) if first else None


_READERS: Final[dict[str, tuple[Callable[[Mapping[str, np.ndarray]], np.ndarray | None], str]]] = {
    "ccv": (_answers, "'coherence_answers' (or 'readfrom1', 'readfrom2' ..., 'invalidated_by_others')"),
    "mcv": (_misses, "'llc_misses' (or 'l3_miss', 'l2_miss')"),
    "tcv": (_requests, "'offcore_requests' (or 'l1d_miss', and 'l2_miss' where there is 'l3_miss')"),
}
