"""The study's block ``gpu``."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Final, Literal

from pydantic import Field

from manyscale.models.workload.parameters import Count, Strict

Rank = Annotated[int, Field(ge=0)]
Factor = Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)]
_OF_STEPS: Final = {"collectives", "skew", "slower"}  # keys of runs whose kernels have times


class GpuChoice(Strict):
    """How launches of kernels are predicted (models/gpu). ``caches`` at the beginning of a launch: as a simulation of
    the launch before left them (``kept``; where that one is not simulated in the same unit, as warm); as the accesses
    of launches before leave them, one after the other (``warm``): then launches are independent units; or ``cold``.
    Caches that the target does not keep between launches are empty in any case.

    Of model detailed: ``order``, in which the SMs' requests reach L2: ``strict``, or in ``windows`` no longer than the
    shortest way there and back, which ``groups`` of SMs simulate side by side; their number changes no result.
    Of model gpumech: its ``form``, as ``printed`` or ``extended``, and how the ``representative`` warp is chosen.
    """

    caches: Literal["kept", "warm", "cold"] = "kept"
    """The caches where a launch begins: `kept` from the launch before, `warm` (as the accesses of launches before leave
    them), or `cold`."""
    order: Literal["strict", "windows"] = "strict"
    """In which order requests of SMs reach L2: `strict`, or in `windows`, which groups of SMs simulate side by side."""
    groups: Literal["auto"] | Count = "auto"
    """How many groups of SMs run side by side. It changes no result."""
    mps: bool = False
    """Whether launches of several ranks run on one GPU at the same time (NVIDIA's MPS). Without it the ranks take
    turns, launch by launch."""
    collectives: Literal["auto", "traced", "model", "free"] = "auto"
    """What collectives and messages of NCCL take behind the arrival of their last member, where kernels have times: the
    `traced` time, what the `model` of NCCL says (`network.nccl` of the target), or, `free`, nothing. `auto`: the traced
    one where the group stands on the target as where it was traced, on the same GPUs with the same links (those of the
    shipped target that has these GPUs), and without `network.nccl`."""
    skew: bool = True
    """Whether ranks enter the first step as they were traced; without it all begin at once."""
    slower: dict[Rank, Factor] = Field(default_factory=dict)
    """Ranks whose kernels take so many times as long, by number: `{3: 1.2}`. Where the trace has times of kernels."""
    form: Literal["printed", "extended"] = "extended"
    """GPUMech as it was `printed`, or `extended` by queues."""
    representative: Literal["clustering", "max", "min"] = "clustering"
    """How GPUMech's representative warp is chosen."""

    def unread(self, features: Collection[str]) -> list[str]:
        """Keys with another value than by default that no run with these features reads."""
        read = {"mps"} if {"launches", "traced-kernels"} & set(features) else set()
        read |= _OF_STEPS if "traced-kernels" in features else set()
        read |= set(type(self).model_fields) - _OF_STEPS if "launches" in features else set()
        return [name for name, value in type(self)() if getattr(self, name) != value and name not in read]
