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
    representatives: Count | Literal["auto"] = 1
    bbv_scale: Distance = 0.0
    seed: CountOrNone = 0


class RegionRules(Strict):
    """``threshold`` between epochs of a cluster, on the given ``scale``; ``variation``: factor above which an epoch is
    in no region."""

    threshold: Distance = 0.2
    variation: Distance = 0.3
    scale: Literal["mean", "none"] = "mean"


class RegionSamplingRules(Strict):
    """``rules``: spread (samples of each run of a region's blocks, spread over it) or source (a region is skipped once
    two units agree). Of spread: ``share`` of a run's blocks that is simulated, and in how many ``samples`` at least. Of
    source: ``difference`` between the IPCs of consecutive units, relative, below which a region is warm; ``units`` that
    must agree."""

    rules: Literal["spread", "source"] = "spread"
    share: Annotated[float, Field(gt=0, le=1)] = 0.03
    samples: Annotated[int, Field(ge=2)] = 8
    difference: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 0.1
    units: Annotated[int, Field(ge=2)] = 2
