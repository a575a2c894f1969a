"""SimProf: phases of managed run times by what is on their call stacks, and a stratified sample of their units.

Huang (Georgia Tech, 2015), chapter 5. A unit's vector says how often each method is on the stacks of its snapshots; of
all methods those are kept whose presence goes with IPC (section 5.3.2: univariate linear regression); k-means makes
phases of the units, as few as reach 90 % of the best silhouette. A stratified random sample of the phases estimates
CPI (sampling/stratified.py); inside chosen units short pieces may stand for the whole (sampling/simprof/two_stage.py);
phases whose mean or deviation moves with another input are sensitive to it (sampling/simprof/input_sensitivity.py).

The silhouette is not defined for one phase. One is taken where no number of phases explains more of the variance of
CPI than phases of the same sizes would by chance.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Annotated, Final, Literal

import numpy as np
from pydantic import AfterValidator, Field

from manyscale.models.workload.notes import Note, informs
from manyscale.models.workload.parameters import Count, CountOrNone, Strict
from manyscale.sampling import stratified
from manyscale.sampling.population import Choice
from manyscale.sampling.simpoint import hash_of, kmeans
from manyscale.sampling.simpoint.kmeans import Clusters
from manyscale.sampling.simprof.stack_population import StackPopulation
from manyscale.sampling.stratified import StratifiedEstimate

SILHOUETTE_POINTS: Final = 2_000  # units that the silhouette is computed of; of more, as many are drawn
_ALIKE: Final = 0.2  # of the largest excess: shares that differ by less tell a phase equally well
_PASSES_ON: Final = re.compile(
    r"\$\$Lambda|(^|[.$])lambda\$|\$anonfun\$|\.access\$\d|\$adapted|\.<init>|\$$|\$\$anon\$"
    r"|^java\.lang\.(Thread|reflect\.|invoke\.)|^jdk\.internal\.|^sun\.reflect\.|^\[?unknown|^0x|^\(below main\)"
)


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"{text!r} is no regular expression ({error})") from None
    return text


class SimProfRules(Strict):
    """``methods`` that are kept; up to ``max_k`` phases, tried ``seeds`` times each; ``threshold``: share of the best
    silhouette that suffices; ``chance``: level of the test against phases of the same sizes made by chance. ``units``
    that are drawn, or as many as it takes for an interval of ``confidence`` that is at most ``error`` (a share of CPI)
    to each side; ``pilot`` of each phase where CPIs are not known. ``pieces``: instead of each chosen unit as a whole
    so many short pieces of it, each of ``piece_instructions`` behind ``warm_up_instructions`` that are not counted
    (those of SMARTS). ``tolerance``: by how much the mean or deviation of a phase may move with another input (eq. 38),
    the mean alone with ``sensitive_by: mean``. ``operations``: patterns of methods by kind of operation, before those
    that are known (stack_population.py)."""

    methods: Count = 100
    max_k: Count = 20
    seeds: Count = 5
    threshold: Annotated[float, Field(ge=0, le=1)] = 0.9
    chance: Annotated[float, Field(gt=0, lt=1)] = 0.01
    units: Count = 20
    error: Annotated[float, Field(gt=0, lt=1)] | None = None
    confidence: Annotated[float, Field(gt=0, lt=1)] = 0.95
    pilot: Annotated[int, Field(ge=2)] = 2
    pieces: CountOrNone = 0
    piece_instructions: Count = 1000
    warm_up_instructions: CountOrNone = 2000
    tolerance: Annotated[float, Field(gt=0)] = 0.1
    sensitive_by: Literal["both", "mean"] = "both"
    operations: dict[str, Annotated[str, AfterValidator(_pattern)]] = {}


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
    notes: list[Note] = []
    if cpi is None:
        count = np.minimum(rules.pilot, sizes)
        text = "cycles are not known of all units: a pilot of each phase, to measure the deviations of CPI with"
        notes.append(informs("pilot", text))
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
    return _chosen(phases.label, drawn, expected, notes), phases


def _chosen(label: np.ndarray, drawn: list[np.ndarray], expected: float | None, notes: list[Note]) -> Choice:
    """Of the units drawn in each phase, each of which stands for as many as all of its phase."""
    sizes, count = np.bincount(label), np.array([len(each) for each in drawn])
    row = np.concatenate(drawn)
    stratum = np.repeat(np.arange(len(sizes)), count)
    weight = (sizes / count / sizes.sum())[stratum]
    order = np.argsort(row, kind="stable")
    label = label.astype(np.int32)
    return Choice(
        row[order], stratum[order].astype(np.int32), weight[order], label, expected, tuple(notes), is_random=True
    )


@dataclass(frozen=True)
class Progress:
    """What simulated units say: ``found``, with Student's interval; whether that is ``enough`` for the error that was
    asked for, None if none was; ``choice``: these units and those to simulate next, ``further`` of them."""

    found: StratifiedEstimate
    enough: bool | None
    choice: Choice
    further: np.ndarray


def go_on(
    phases: Phases,
    measured: np.ndarray,
    values: np.ndarray,
    rules: SimProfRules,
    seed: int,
    known: bool,
    found: StratifiedEstimate | None = None,
) -> Progress:
    """After units ``measured`` int64[] were simulated and have CPI ``values`` float64[]: the estimate, and which units
    are next, until ``rules.error`` is reached, or there are ``rules.units`` of them (section 5.3.3: simulate, estimate
    the error, and take more until it is acceptable). ``known``: the sample was allocated by the deviations of another
    machine, not by its own values. ``found``: the estimate, where values are of pieces of units (simprof/two_stage.py).
    Raises ValueError for a phase with fewer measured units than two.

    Each phase's further units are drawn among those that are left, so that both together are a random sample."""
    sizes = np.bincount(phases.label)
    members = [np.flatnonzero(phases.label == phase) for phase in range(len(sizes))]
    done = [measured[phases.label[measured] == phase] for phase in range(len(sizes))]
    drawn = [values[phases.label[measured] == phase] for phase in range(len(sizes))]
    for phase, (own, size) in enumerate(zip(done, sizes.tolist(), strict=True)):
        if len(own) < min(2, size):
            raise ValueError(f"of phase {phase} {len(own)} units are measured; {min(2, size)} are needed at least")
    if found is None:
        found = stratified.estimate(sizes, drawn, rules.confidence, pooled=not known)
    enough = None if rules.error is None else bool(found.high - found.mean <= rules.error * abs(found.mean))
    n = max(rules.units, len(measured))
    if rules.error is not None:
        deviations = stratified.pilot_deviations(sizes, drawn)
        n = len(measured)
        if not enough:
            n = max(n + 1, stratified.enough(sizes, deviations, found.mean, rules.error, rules.confidence))
    count = stratified.second_phase(sizes, drawn, n) if n > len(measured) else np.array(list(map(len, done)))
    random = np.random.default_rng(hash_of(seed, len(measured)))
    more = [
        np.sort(random.choice(np.setdiff1d(all_of, own), target - len(own), replace=False))
        for all_of, own, target in zip(members, done, count.tolist(), strict=True)
    ]
    both = [np.sort(np.concatenate(pair)) for pair in zip(done, more, strict=True)]
    return Progress(found, enough, _chosen(phases.label, both, None, []), np.sort(np.concatenate(more)))


def first_of_code(population: StackPopulation, rules: SimProfRules, seed: int) -> Choice:
    """CODE (section 5.4.1): phases by call stacks alone, of each the unit nearest its centre."""
    phases = find_phases(population.vectors, None, rules, seed)
    off = ((population.vectors[:, phases.methods] - phases.centre[phases.label]) ** 2).sum(axis=1)
    members = [np.flatnonzero(phases.label == phase) for phase in range(phases.num_phases)]
    nearest = [each[np.argmin(off[each])][None] for each in members]
    return replace(_chosen(phases.label, nearest, None, []), is_random=False)


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


def names_of_phases(phases: Phases, population: StackPopulation, count: int = 3) -> list[list[str]]:
    """Of each phase up to ``count`` methods that tell it from the others: those whose mean share exceeds that of all
    units most, of nearly equal ones the innermost, since every method is on the stacks together with its callers
    (section 5.4.5 names phases by their dominant methods). What compilers and reflection put between methods is left
    out, unless there is nothing else."""
    overall = population.vectors.mean(axis=0)
    depth = population.depth if len(population.depth) else np.zeros(len(overall))
    passes_on = np.array([_PASSES_ON.search(name) is not None for name in population.methods])
    found = []
    for phase in range(phases.num_phases):
        more = population.vectors[phases.label == phase].mean(axis=0) - overall
        if phases.num_phases == 1:
            more = overall
        able = np.flatnonzero(more > 0)
        named = able[~passes_on[able]]
        able = named if len(named) else able
        step = np.floor(more[able] / (_ALIKE * more[able].max(initial=1e-300)))
        best = able[np.lexsort((able, -depth[able], -step))[:count]]
        found.append([population.methods[each] for each in best])
    return found


def kinds_of_phases(phases: Phases, population: StackPopulation) -> list[str]:
    """The kind of operation that most snapshots of each phase are in (section 5.4.3)."""
    means = [population.operations[phases.label == phase].mean(axis=0) for phase in range(phases.num_phases)]
    return [population.kinds[int(np.argmax(each))] for each in means]
