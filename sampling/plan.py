"""A plan: which elements of a population are simulated, by which model, and what each stands for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from manyscale.models.workload.columns import text_array, to_arrow

PLAN_SCHEMA = pa.schema(
    [
        pa.field("element_kind", pa.string(), nullable=False),
        pa.field("element_id", pa.int64(), nullable=False),
        pa.field("stratum", pa.int32(), nullable=False),
        pa.field("weight", pa.float64(), nullable=False),
        pa.field("model", pa.string(), nullable=False),
    ]
)


@dataclass(frozen=True)
class Plan:
    """Chosen elements: ``element_kind`` (rank, interval, ...), ``element_id`` int64 (the workload's row), ``stratum``
    int32, ``weight`` float64 (how many elements each stands for) and ``model``. Raises ValueError unless weights are
    positive and sum to ``population`` within 1e-9 relative."""

    element_kind: str
    element_id: np.ndarray
    stratum: np.ndarray
    weight: np.ndarray
    model: str
    population: int

    def __post_init__(self) -> None:
        if len(self.element_id) == 0:
            raise ValueError(f"the plan chooses no {self.element_kind}")
        if not np.all(self.weight > 0):
            raise ValueError("a weight is not positive")
        if abs(float(self.weight.sum()) - self.population) > 1e-9 * self.population:
            raise ValueError(f"weights sum to {self.weight.sum()}, the population is {self.population}")

    @property
    def is_census(self) -> bool:
        """Whether every element is chosen, so that nothing is estimated."""
        return len(self.element_id) == self.population

    def table(self) -> pa.Table:
        count = len(self.element_id)
        return pa.Table.from_arrays(
            [
                text_array([self.element_kind] * count),
                to_arrow(self.element_id.astype(np.int64)),
                to_arrow(self.stratum.astype(np.int32)),
                to_arrow(self.weight.astype(np.float64)),
                text_array([self.model] * count),
            ],
            schema=PLAN_SCHEMA,
        )
