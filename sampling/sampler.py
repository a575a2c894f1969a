"""What a sampler is: a way to choose elements of a population, which the runner finds by its name (registry: a seam for
each level).

| level | population | answer |
| --- | --- | --- |
| rank | ranks/rank_samplers.py: RankPopulation | Plan; ranks that are left out take times of their representatives |
| iteration | ranks/iteration_samplers.py: IterationPopulation, of one rank | Plan |
| launch | tbpoint/launch_samplers.py: LaunchPopulation | Choice |
| interval | population.py: IntervalPopulation | Choice |

Weights of a Plan are numbers of elements, those of a Choice shares of the instructions. Levels at which what is
simulated decides what is simulated next (task instances, thread blocks of a launch) have samplers that the simulation
asks while it runs: predict/node/cells/task_sampling.py and predict/gpu/block_sampling.py in the runner.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from manyscale.models.workload.parameters import Strict


@dataclass(frozen=True)
class Sampler:
    """``choose(population, rules, seed)``, the same for the same arguments. ``rules``: the class of what may be set of
    it, with ``preset`` values that its name brings; ``options``: the dotted key of a study under which its rules stand
    (registry: seam ``options``), empty if it takes the defaults."""

    choose: Callable[[Any, Any, int], Any]
    rules: type[Strict] = Strict
    options: str = ""
    preset: dict[str, Any] = field(default_factory=dict)
