"""How fast each new rank is: the speeds of like traced ranks, drawn again.

A rank has two speeds: that of its CPU (the phases of its threads between what they give to the GPU) and that of its GPU
(kernels, copies; not collectives, which are the network's). Both are what the rank takes over what ranks of its role
take (sampling/ranks/stragglers.py). Ranks of the trace keep theirs. Others draw one from a log-normal distribution with
the measured standard deviation (``fitted``), or that of a traced rank drawn with replacement (``measured``: no new rank
is slower than the slowest traced), or have that of their source (``none``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from manyscale.models.workload import PhaseKind, Workload
from manyscale.models.workload.gpu_tables import GpuOperationKind
from manyscale.runner.run.extrapolation.roles.families import Families, Span
from manyscale.runner.run.extrapolation.roles.layout import Layout
from manyscale.runner.run.extrapolation.roles.sources import Sources
from manyscale.sampling.ranks.stragglers import Spread, largest_lognormal, largest_measured, spread

How = Literal["fitted", "measured", "none"]
HOWS: Final = ("fitted", "measured", "none")
CPU: Final = "CPU"
GPU: Final = "GPU"


@dataclass(frozen=True)
class Speed:
    """Of ``what`` (CPU or GPU): the measured spread, float64[new ranks] ``factor`` of each new rank's time over its
    role's, and ``ratio`` of it over its source's."""

    what: str
    spread: Spread
    factor: np.ndarray
    ratio: np.ndarray


@dataclass(frozen=True)
class Straggler:
    """Of groups with so many members: the expected factor of their slowest one, where speeds are drawn as they were
    (``expected``) and from the traced ranks alone (``of_traced``), and the mean over the groups of what was drawn."""

    group: str
    what: str
    traced_members: int
    members: int
    expected: float
    of_traced: float
    drawn: float


def find_speeds(workload: Workload, sources: Sources, how: How, seed: int) -> tuple[Speed, Speed]:
    """Of CPUs and of GPUs."""
    generator = np.random.default_rng(seed)
    normal = generator.standard_normal((len(sources.rank), 2))
    drawn = generator.random(len(sources.rank))
    return (
        _speed(CPU, cpu_times(workload), sources, how, normal[:, 0], drawn),
        _speed(GPU, gpu_times(workload), sources, how, normal[:, 1], drawn),
    )


def cpu_times(workload: Workload) -> np.ndarray:
    """float64[ranks] in ps"""
    kind, rank, duration = (workload.column("phases", name) for name in ("kind", "rank", "duration_ps"))
    computes = np.isin(kind, (int(PhaseKind.compute), int(PhaseKind.polled_compute)))
    return np.bincount(rank[computes], duration[computes], minlength=workload.num_ranks)


def gpu_times(workload: Workload) -> np.ndarray:
    """float64[ranks] in ps"""
    kind, rank, duration = (workload.column("gpu_operations", name) for name in ("kind", "rank", "duration_ps"))
    works = (kind != int(GpuOperationKind.communication)) & (duration > 0)
    return np.bincount(rank[works], duration[works], minlength=workload.num_ranks)


def _speed(what: str, times: np.ndarray, sources: Sources, how: How, normal: np.ndarray, drawn: np.ndarray) -> Speed:
    found = spread(times, sources.role)
    own = found.distances[sources.rank]
    if how == "none" or not found.is_known:
        distance = own
    elif how == "fitted":
        distance = np.where(sources.is_traced, own, found.deviation * normal)
    else:
        values = measured(found)
        distance = np.where(sources.is_traced, own, values[(drawn * len(values)).astype(np.int64)])
    return Speed(what, found, np.exp(distance), np.exp(distance - own))


def measured(found: Spread) -> np.ndarray:
    """float64[ranks]: distances of ranks that are not alone in their role, widened to the variance that they tell of
    (those from a mean of few are too short)."""
    values = found.distances[found.says]
    if not len(values):
        return np.zeros(1)
    return values * np.sqrt(found.num_ranks / (found.num_ranks - found.num_roles))


def stragglers(layout: Layout, families: Families, speeds: tuple[Speed, Speed], how: How) -> list[Straggler]:
    """Of the groups that do not span one rank alone, those of one shape once."""
    at = layout.coordinates(np.arange(layout.num_ranks))
    found, seen = [], set()
    for family in families.families:
        if family.members < 2 or family.spans in seen:
            continue
        seen.add(family.spans)
        inside = np.ones(layout.num_ranks, np.bool_)
        for dimension, span in enumerate(family.spans):
            if span is Span.ends:
                inside &= np.isin(at[:, dimension], (0, layout.sizes[dimension] - 1))
        number = family.number(layout, at)
        for speed in speeds:
            if not speed.spread.is_known:
                continue
            slowest = np.zeros(family.count(layout))
            np.maximum.at(slowest, number[inside], speed.factor[inside])
            of_traced = largest_measured(np.exp(measured(speed.spread)), family.members)
            expected = largest_lognormal(family.members, speed.spread.deviation) if how == "fitted" else of_traced
            found.append(
                Straggler(
                    family.name,
                    speed.what,
                    family.traced_members,
                    family.members,
                    expected,
                    of_traced,
                    float(slowest.mean()),
                )
            )
    return found
