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
    """Clusters of launches and their representatives, for `sampling: {launches: tbpoint}`."""
    regions: RegionRules = RegionRules()
    """Homogeneous regions of a launch, for `sampling: {blocks: tbpoint}`."""
    warming: RegionSamplingRules = RegionSamplingRules()
    """How much of a region is simulated before the rest is skipped."""

    def is_used(self, study: Any, features: Collection[str]) -> bool:
        """Whether a run with these features reads it."""
        return "tbpoint" in (study.sampling.launches, study.sampling.blocks)
