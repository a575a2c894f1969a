"""A plan: which elements of a population are simulated, by which model, and what each stands for."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pyarrow as pa

from manyscale.models.workload.columns import text_array, to_arrow

PLAN_SCHEMA = pa.schema(
    [
        pa.field("element_kind", pa.string(), nullable=False),  # rank, iteration, interval, launch, block or task
        pa.field("element_id", pa.int64(), nullable=False),  # the element's row in the workload
        # the elements that a chosen element of the same stratum stands for
        pa.field("stratum", pa.int32(), nullable=False),
        pa.field("weight", pa.float64(), nullable=False),  # how many elements it stands for, or its share
        pa.field("model", pa.string(), nullable=False),  # the model that simulates it
    ]
)


@dataclass(frozen=True)
class Plan:
    """Chosen elements: ``element_kind`` (rank, interval, ...), ``element_id`` int64 (the workload's row), ``stratum``
    int32, ``weight`` float64 (how many elements each stands for) and ``model``, which the runner fills in. ``label``
    int32[population]: the stratum of every element, in their order; empty: not told, which is enough where all are of
    one stratum or nothing is left out. ``is_random``: elements were drawn at random in each stratum, so that they tell
    how sure they are.

    What an element that is left out takes over, it takes from one chosen element of its stratum, its
    ``representative``: each chosen one stands for itself and for as many others as its weight says, so that a total
    over all elements is the weighted sum over the chosen ones, and yet each has a time of its own in a timeline. The
    others are dealt out in turn, in their order; of weights that are no whole numbers, as nearly as whole elements can.

    Raises ValueError unless weights are positive and sum to ``population`` within 1e-9 relative, with ``label`` those
    of each stratum to its size.
    """

    element_kind: str
    element_id: np.ndarray
    stratum: np.ndarray
    weight: np.ndarray
    model: str
    population: int
    label: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int32))
    is_random: bool = False

    def __post_init__(self) -> None:
        if len(self.element_id) == 0:
            raise ValueError(f"the plan chooses no {self.element_kind}")
        if not np.all(self.weight > 0):
            raise ValueError("a weight is not positive")
        if abs(float(self.weight.sum()) - self.population) > 1e-9 * self.population:
            raise ValueError(f"weights sum to {self.weight.sum()}, the population is {self.population}")
        if len(self.label):
            self._check_label()

    def _check_label(self) -> None:
        if len(self.label) != self.population:
            raise ValueError(
                f"label names the strata of {len(self.label)} elements, the population is {self.population}"
            )
        if len(np.unique(self.element_id)) < len(self.element_id):
            raise ValueError(f"the plan chooses a {self.element_kind} twice")
        if not np.array_equal(self.label[self.element_id], self.stratum):
            raise ValueError("label and stratum name different strata of an element that is chosen")
        most = int(self.label.max())
        size, weight = np.bincount(self.label), np.bincount(self.stratum, self.weight, most + 1)
        wrong = np.abs(weight - size) > 1e-9 * size
        if np.any(wrong):
            which = int(np.argmax(wrong))
            raise ValueError(f"weights of stratum {which} sum to {weight[which]}, it has {size[which]} elements")

    @classmethod
    def of_strata(cls, element_kind: str, element_id: np.ndarray, label: np.ndarray) -> Plan:
        """Of a whole population, whose elements are numbered from 0: those chosen share what their stratum has.
        ``label`` int[population]. Raises ValueError for a stratum without one."""
        label = np.asarray(label, np.int32)
        stratum = label[element_id]
        weight = (np.bincount(label) / np.maximum(np.bincount(stratum, minlength=int(label.max()) + 1), 1))[stratum]
        return cls(element_kind, np.asarray(element_id, np.int64), stratum, weight, "", len(label), label)

    @property
    def is_census(self) -> bool:
        """Whether every element is chosen, so that nothing is estimated."""
        return len(self.element_id) == self.population

    @cached_property
    def representative(self) -> np.ndarray:
        """int64[population]: index, among the chosen elements, of the one that stands for each, chosen ones for
        themselves. Elements are numbered from 0. Raises ValueError where it is not known which stratum one that is left
        out is of. O(population log population)."""
        found = np.full(self.population, -1)
        found[self.element_id] = np.arange(len(self.element_id))
        label = self.label if len(self.label) else np.full(self.population, self.stratum[0])
        if not len(self.label) and not self.is_census and np.any(self.stratum != self.stratum[0]):
            raise ValueError(f"its plan has several strata, and no label that tells which one each {self.element_kind} "
                             "is of")  # fmt: skip
        left = np.flatnonzero(found < 0)
        left = left[np.argsort(label[left], kind="stable")]
        # a chosen element's k-th other is due at (k - 1/2) / its number of others: whoever is due next takes the next
        others = np.maximum(self.weight - 1, 0)
        number = np.ceil(others - 1e-9).astype(np.int64)
        owner = np.repeat(np.arange(len(number)), number)
        nth = np.arange(len(owner)) - np.repeat(np.cumsum(number) - number, number)
        due = (nth + 0.5) / others[owner]
        order = np.lexsort((owner, due, self.stratum[owner]))
        owner = owner[order]
        place = np.arange(len(left)) - np.searchsorted(label[left], label[left])
        found[left] = owner[np.searchsorted(self.stratum[owner], label[left]) + place]
        return found

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
