"""SimProf: phases of managed run times by what is on their call stacks, and a stratified sample of their units.

Huang (Georgia Tech, 2015), chapter 5. A unit's vector says how often each method is on the stacks of its snapshots; of
all methods those are kept whose presence goes with IPC (section 5.3.2: univariate linear regression); k-means makes
phases of the units, as few as reach 90 % of the best silhouette. A stratified random sample of the phases estimates
CPI (sampling/stratified.py); phases whose mean or deviation moves with another input are sensitive to it (eq. 38).

The silhouette is not defined for one phase. One is taken where no number of phases explains more of the variance of
CPI than phases of the same sizes would by chance.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final

import numpy as np
from pydantic import Field

from manyscale.models.parameters import Count, Strict
from manyscale.sampling import kmeans, stratified
from manyscale.sampling.interval_population import Choice
from manyscale.sampling.kmeans import Clusters
from manyscale.sampling.simpoint import hash_of
from manyscale.sampling.stack_population import StackPopulation

SILHOUETTE_POINTS: Final = 2_000  # units that the silhouette is computed of; of more, as many are drawn
SENSITIVE: Final = 0.1  # section 5.3.4: a mean or deviation that moves by more


class SimProfRules(Strict):
    """``methods`` that are kept; up to ``max_k`` phases, tried ``seeds`` times each; ``threshold``: share of the best
    silhouette that suffices; ``chance``: level of the test against phases of the same sizes made by chance. ``units``
    that are drawn, or as many as it takes for an interval of ``confidence`` that is at most ``error`` (a share of CPI)
    to each side; ``pilot`` of each phase where CPIs are not known."""

    methods: Count = 100
    max_k: Count = 20
    seeds: Count = 5
    threshold: Annotated[float, Field(ge=0, le=1)] = 0.9
    chance: Annotated[float, Field(gt=0, lt=1)] = 0.01
    units: Count = 20
    error: Annotated[float, Field(gt=0, lt=1)] | None = None
    confidence: Annotated[float, Field(gt=0, lt=1)] = 0.95
    pilot: Count = 2


@dataclass(frozen=True)
class Phases:
    """``label`` int32[units]; ``centre`` float64[phases, methods kept]; ``methods`` int64[], the columns of those;
    ``silhouettes`` float64[max_k + 1]: of each number of phases, NaN where there is none."""

    label: np.ndarray
    centre: np.ndarray
    methods: np.ndarray
    silhouettes: np.ndarray

    @property
    def num_phases(self) -> int:
        return len(self.centre)

    def of(self, vectors: np.ndarray) -> np.ndarray:
        """int32[units]: the phase whose centre is nearest, of units of another run (section 5.3.4)."""
        return kmeans.nearest(np.ascontiguousarray(vectors[:, self.methods]), self.centre).label


def choose_methods(vectors: np.ndarray, ipc: np.ndarray | None, count: int) -> np.ndarray:
    """int64[]: the ``count`` columns whose linear regression on ``ipc`` has the largest F (where it is not known: that
    vary most), ascending; of equal ones the first. Columns that do not vary are left out."""
    from sklearn.feature_selection import f_regression

    varies = np.flatnonzero(np.ptp(vectors, axis=0) > 0)
    if ipc is None or np.ptp(ipc) == 0:
        score = vectors[:, varies].var(axis=0)
    elif len(varies):
        score, _ = f_regression(vectors[:, varies], ipc)
        score = np.where(np.isnan(score), 0.0, score)
    else:
        score = np.empty(0)
    return np.sort(varies[np.argsort(-score, kind="stable")[:count]])


def find_phases(vectors: np.ndarray, cpi: np.ndarray | None, rules: SimProfRules, seed: int) -> Phases:
    """Phases of units with ``vectors`` float64[units, methods] and ``cpi`` float64[units], if it is known."""
    methods = choose_methods(vectors, None if cpi is None else 1 / cpi, rules.methods)
    points = np.ascontiguousarray(vectors[:, methods])
    weight = np.ones(len(points))
    silhouettes = np.full(rules.max_k + 1, np.nan)
    found: dict[int, Clusters] = {}
    for k in range(2, min(rules.max_k, len(points) - 1) + 1 if len(methods) else 2):
        tried = [kmeans.cluster(points, weight, k, hash_of(seed, k, number)) for number in range(rules.seeds)]
        best = min(tried, key=lambda each: each.distortion(weight))
        if best.num_clusters == k:
            found[k] = best
            silhouettes[k] = _silhouette(points, best.label, seed)
    real = {
        k: clusters
        for k, clusters in found.items()
        if cpi is None or _explains(cpi, clusters.label, rules.chance, seed)
    }
    if not real:
        label = np.zeros(len(points), np.int32)
        return Phases(label, points.mean(axis=0, keepdims=True), methods, silhouettes)
    enough = rules.threshold * np.nanmax(silhouettes)
    k = min((k for k in real if silhouettes[k] >= enough), default=max(real, key=lambda each: silhouettes[each]))
    return Phases(found[k].label, found[k].centre, methods, silhouettes)


def _silhouette(points: np.ndarray, label: np.ndarray, seed: int) -> float:
    from sklearn.metrics import silhouette_score

    if len(points) <= SILHOUETTE_POINTS:
        return float(silhouette_score(points, label))
    some = np.random.default_rng(seed).choice(len(points), SILHOUETTE_POINTS, replace=False)
    return float(silhouette_score(points[some], label[some])) if len(np.unique(label[some])) > 1 else np.nan


def _explains(cpi: np.ndarray, label: np.ndarray, level: float, seed: int) -> bool:
    """Whether phases explain more of the variance of CPI than ``level`` of those whose units are shuffled."""
    sizes = np.bincount(label)
    rounds = round(2 / level)
    random = np.random.default_rng(seed)

    def between(values: np.ndarray) -> float:
        return float((np.bincount(label, values) ** 2 / sizes).sum())

    own = between(cpi - cpi.mean())
    above = sum(between(random.permutation(cpi - cpi.mean())) >= own for _ in range(rounds))
    return above < rounds * level


def choose(population: StackPopulation, rules: SimProfRules, seed: int) -> tuple[Choice, Phases]:
    """Units drawn at random in each phase, optimally allocated (eq. 33); where CPIs are not known, a pilot of each
    phase to measure deviations with (two-phase sampling). Raises ValueError if there are fewer units to draw than two
    of each phase."""
    phases = find_phases(population.vectors, population.cpi, rules, seed)
    label, cpi = phases.label, population.cpi
    sizes = np.bincount(label)
    notes: list[str] = []
    if cpi is None:
        count = np.minimum(rules.pilot, sizes)
        notes.append("cycles are not known of all units: a pilot of each phase, to measure the deviations of CPI with")
    else:
        deviations = np.array([cpi[label == phase].std() for phase in range(len(sizes))])
        n = rules.units
        if rules.error is not None:
            n = stratified.enough(sizes, deviations, float(cpi.mean()), rules.error, rules.confidence)
        count = stratified.allocate(sizes, deviations, n)
    random = np.random.default_rng(seed)
    drawn = [np.sort(random.choice(np.flatnonzero(label == phase), n, replace=False)) for phase, n in enumerate(count)]
    expected = None
    if cpi is not None:
        found = stratified.estimate(sizes, [cpi[each] for each in drawn], rules.confidence, deviations)
        expected = (found.high - found.mean) / found.mean
    row = np.concatenate(drawn)
    stratum = np.repeat(np.arange(len(sizes)), count)
    weight = (sizes / count / sizes.sum())[stratum]
    order = np.argsort(row, kind="stable")
    choice = Choice(
        row[order], stratum[order].astype(np.int32), weight[order], label.astype(np.int32), expected, tuple(notes)
    )
    return choice, phases


@dataclass(frozen=True)
class Variation:
    """Coefficients of variation of CPI: of the ``population``, the phases' mean ``weighted`` by their sizes, and their
    ``largest`` (section 5.4.1)."""

    population: float
    weighted: float
    largest: float


def variation(cpi: np.ndarray, label: np.ndarray) -> Variation:
    """Of units with ``cpi`` in phases ``label``."""
    sizes = np.bincount(label)
    mean = np.bincount(label, cpi) / sizes
    deviation = np.sqrt(np.maximum(np.bincount(label, cpi**2) / sizes - mean**2, 0))
    each = deviation / mean
    return Variation(float(cpi.std() / cpi.mean()), float(sizes @ each / sizes.sum()), float(each.max()))


def sensitive_phases(label: np.ndarray, cpi: np.ndarray, other_label: np.ndarray, other_cpi: np.ndarray) -> np.ndarray:
    """bool[phases]: whether the mean or the standard deviation of a phase's CPI is more than SENSITIVE off what it is
    with the training input (eq. 38); that of a phase that the other input does not visit is not."""
    count = int(max(label.max(), other_label.max())) + 1
    found = np.zeros(count, np.bool_)
    for phase in range(count):
        own, other = cpi[label == phase], other_cpi[other_label == phase]
        if len(own) and len(other):
            mean, deviation = abs(other.mean() - own.mean()), abs(other.std() - own.std())
            found[phase] = mean > SENSITIVE * own.mean() or deviation > SENSITIVE * own.std()
    return found


def names_of_phases(phases: Phases, methods: list[str], vectors: np.ndarray, count: int = 3) -> list[list[str]]:
    """Of each phase the ``count`` methods that tell it from the others: those whose mean share exceeds that of all
    units most, of equal ones the first (section 5.4.5 names phases by their dominant methods)."""
    overall = vectors.mean(axis=0)
    found = []
    for phase in range(phases.num_phases):
        more = vectors[phases.label == phase].mean(axis=0) - overall
        if phases.num_phases == 1:
            more = overall
        best = np.argsort(-more, kind="stable")[:count]
        found.append([methods[each] for each in best if more[each] > 0])
    return found
