"""The study's block ``tbpoint``."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from manyscale.models.workload.parameters import Strict
from manyscale.sampling.tbpoint.rules import LaunchSampling, RegionRules, RegionSamplingRules


class TbpointChoice(Strict):
    """Parameters of TBPoint. Of ``sampling: {launches: tbpoint}``: ``launches`` (clusters and their representatives;
    the seed is the study's). Of ``sampling: {blocks: tbpoint}``: ``regions`` of a launch, and ``warming``, when the IPC
    of a region is known."""

    launches: LaunchSampling = LaunchSampling()
    regions: RegionRules = RegionRules()
    warming: RegionSamplingRules = RegionSamplingRules()

    def is_used(self, study: Any, features: Collection[str]) -> bool:
        """Whether a run with these features reads it."""
        return "tbpoint" in (study.sampling.launches, study.sampling.blocks)
