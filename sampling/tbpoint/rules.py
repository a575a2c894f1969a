"""Parameters of TBPoint (tbpoint.py, tbpoint/regions.py, tbpoint/state.py), apart from what computes with them, which
takes longer to load."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from manyscale.models.workload.parameters import Count, CountOrNone, Strict

Distance = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class LaunchSampling(Strict):
    """``threshold`` between launches of a cluster; ``representatives`` of each; ``bbv_scale``: of the basic-block
    vector, 0 leaves it out. ``seed``: of the draws, where there are several representatives."""

    threshold: Distance = 0.1
    """The distance up to which launches are of one cluster."""
    representatives: Count | Literal["auto"] = 1
    """How many launches of each cluster are simulated. `auto` takes several, which give an interval of confidence."""
    bbv_scale: Distance = 0.0
    """The weight of the basic-block vector. 0 leaves it out."""
    seed: CountOrNone = 0
    """The seed of the draws, where there are several representatives."""


class RegionRules(Strict):
    """``threshold`` between epochs of a cluster, on the given ``scale``; ``variation``: factor above which an epoch is
    in no region."""

    threshold: Distance = 0.2
    """The distance up to which epochs are of one cluster."""
    variation: Distance = 0.3
    """The factor of variation above which an epoch belongs to no region."""
    scale: Literal["mean", "none"] = "mean"
    """Whether features of epochs are divided by their `mean`."""


class RegionSamplingRules(Strict):
    """``rules``: spread (samples of each run of a region's blocks, spread over it) or source (a region is skipped once
    two units agree). Of spread: ``share`` of a run's blocks that is simulated, and in how many ``samples`` at least. Of
    source: ``difference`` between the IPCs of consecutive units, relative, below which a region is warm; ``units`` that
    must agree."""

    rules: Literal["spread", "source"] = "spread"
    """`spread`: samples lie all over a region; `source`: the region is skipped once consecutive units agree."""
    share: Annotated[float, Field(gt=0, le=1)] = 0.05
    """Of `spread`: the share of a run's blocks that is simulated."""
    samples: Annotated[int, Field(ge=2)] = 8
    """Of `spread`: the least number of samples."""
    difference: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 0.1
    """Of `source`: the relative difference of consecutive units' IPC below which a region is warm."""
    units: Annotated[int, Field(ge=2)] = 2
    """Of `source`: how many units must agree."""
