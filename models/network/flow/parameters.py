"""What the flow network reads of a machine: block ``network.flow``."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field, model_validator

from manyscale.models.machine.blocks import Block
from manyscale.models.workload.parameters import Bytes, Strict, TimePs


class SizeFactor(Strict):
    """A factor for messages of more than ``above`` bytes, envelope included."""

    above_bytes: Bytes = Field(alias="above")
    """The factor holds for messages of more bytes than this, envelope included."""
    factor: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    """The factor."""


class Flow(Block):
    """What the flow model has beyond plain max-min sharing; nothing by default. See network/flow/model.py.

    Factors hold from one ``above`` to the next. ``window``: TCP's, a flow has at most window / (2 latency).
    ``weight``: each link of B bytes/s counts as weight / B more latency where the sharing is weighted.
    ``cross_traffic``: share of a flow's rate that goes the opposite way. ``step``: rates are solved at its multiples.
    """

    key: ClassVar[str] = "network.flow"

    bandwidth_factors: tuple[SizeFactor, ...] = ()
    """Factors on the bandwidth, by size of message."""
    latency_factors: tuple[SizeFactor, ...] = ()
    """Factors on the latency, by size of message."""
    window_bytes: Bytes | None = Field(default=None, alias="window")
    """TCP's window: a flow has at most window / (2 latency). By default there is no limit."""
    weight_bytes: Bytes = Field(default=0, alias="weight")
    """Each link of B bytes/s counts as weight / B more latency where the sharing is weighted."""
    cross_traffic_ratio: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] = Field(
        default=0.0, alias="cross_traffic"
    )
    """The share of a flow's rate that goes the opposite way."""

    step_ps: Annotated[TimePs, Field(ge=0)] = Field(default=0, alias="step")
    """Solve the rates of transfers at multiples of this time alone, where very many share links: by default whenever
    one begins or ends. A transfer that shares a link waits for the next multiple to begin, and what one leaves when it
    ends is given to others at the next."""

    @model_validator(mode="after")
    def _sizes_rise(self) -> Flow:
        for key in ("bandwidth_factors", "latency_factors"):
            sizes = [one.above_bytes for one in getattr(self, key)]
            if sizes != sorted(set(sizes)):
                raise ValueError(f"{key}: 'above' must rise from one factor to the next")
        return self
