"""The study's block ``amm``."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Literal

from manyscale.models.workload.parameters import Strict


class AmmChoice(Strict):
    """How ``model: {cpu: amm}`` predicts detailed phases: ``overlap``, the dataflow model of a core, or AMM's equations
    (models/memory/amm/amm.py), ``corrected`` or as ``printed``."""

    form: Literal["overlap", "corrected", "printed"] = "overlap"
    """`overlap`, the dataflow model of a core, in which memory and computation overlap; or AMM's equations, `corrected`
    or as `printed`."""

    def is_used(self, study: Any, features: Collection[str]) -> bool:
        """Whether a run with these features reads it."""
        return bool(study.model.cpu == "amm")
