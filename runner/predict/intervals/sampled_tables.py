"""What simulated intervals say of a program: time, CPI stack, caches, and tables of a result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa

from manyscale.models.node.memory.system import MISSED, SERVED
from manyscale.models.workload.columns import text_array, to_arrow
from manyscale.runner.predict.node.tables import CPI_STACKS_SCHEMA, INITIAL
from manyscale.runner.predict.statistic import Statistic
from manyscale.runner.predict.units import Arrays
from manyscale.sampling.estimate import IntervalEstimate, estimate
from manyscale.sampling.population import Choice, IntervalPopulation

_NOT_LEVELS: Final = 2  # rows of counts that are no cache: main memory, and from elsewhere
_CORE_PARTS: Final = 4  # of the CPI stack, before those of caches


class Cut(Protocol):
    """A program in intervals. ``begin`` int64[n + 1]: instructions before each."""

    @property
    def population(self) -> IntervalPopulation:
        """Of its intervals."""

    @property
    def begin(self) -> np.ndarray: ...


@dataclass(frozen=True)
class SampledProgram:
    """``results``: of the units, restored, in the order of the choice."""

    cut: Cut
    choice: Choice
    results: Sequence[Arrays]

    def joined(self, name: str) -> np.ndarray:
        """An array of all simulated intervals, in the order of the choice."""
        return np.concatenate([each[name] for each in self.results])

    @property
    def num_instructions(self) -> int:
        return int(self.cut.begin[-1])

    @cached_property
    def executed(self) -> np.ndarray:
        """float64[]: instructions of each simulated interval."""
        return self.cut.population.instructions[self.choice.element]

    @cached_property
    def cpi(self) -> IntervalEstimate:
        return estimate(self.choice, self.cut.population.instructions, self.joined("cycles") / self.executed)

    @property
    def relative_half_width(self) -> float:
        """Of CPI's interval; 0 where there is none, or nothing was left out."""
        if self.cpi.high is None or self.is_whole:
            return 0.0
        return (self.cpi.high - self.cpi.value) / self.cpi.value

    @property
    def is_whole(self) -> bool:
        return len(self.choice.element) == len(self.cut.population)

    @property
    def seconds(self) -> float:
        """That the program takes."""
        return self.cpi.value * self.num_instructions / self.frequency_hz

    @property
    def frequency_hz(self) -> float:
        return float(self.results[0]["frequency_hz"][0])

    @property
    def region_cycles(self) -> np.ndarray:
        """float64[n]: what each interval takes: its own cycles where all were simulated, else the CPI of those that
        stand for it; together the program's."""
        population, choice = self.cut.population, self.choice
        if self.is_whole:
            return np.asarray(self.joined("cycles"), np.float64)
        label = choice.label if len(choice.label) else np.zeros(len(population), np.int32)
        stratum = choice.stratum if len(choice.label) else np.zeros(len(choice.element), np.int32)
        size = int(max(label.max(), stratum.max())) + 1
        weight = np.bincount(stratum, choice.weight, size)
        cpi = np.bincount(stratum, choice.weight * self.joined("cycles") / self.executed, size)
        of_stratum = np.divide(cpi, weight, out=np.full(size, self.cpi.value), where=weight > 0)
        cycles = population.instructions * of_stratum[label]
        return np.asarray(cycles * (self.cpi.value * self.num_instructions / cycles.sum()))

    def estimated(self, name: str) -> np.ndarray:
        """Of the whole program: the sum of an array of intervals, each as often as it counts."""
        times = self.choice.weight * self.num_instructions / self.executed
        return np.asarray(np.tensordot(times, self.joined(name).astype(np.float64), 1))

    @property
    def parts(self) -> list[str]:
        """Of the CPI stack."""
        return [str(name) for name in self.results[0]["part"]]

    @property
    def caches(self) -> list[str]:
        return self.parts[_CORE_PARTS : _CORE_PARTS + self.joined("counts").shape[1] - _NOT_LEVELS]

    @cached_property
    def stack(self) -> np.ndarray:
        """float64[parts]: cycles per instruction of the program."""
        return np.asarray(self.choice.weight @ (self.joined("stack") / self.executed[:, None]))


def statistics(found: SampledProgram) -> dict[str, Statistic]:
    """Dotted name to figure."""
    estimated, whole = found.cpi, found.is_whole
    low, high = (None, None) if whole else (estimated.low, estimated.high)
    text = "cycles per instruction of the program, from its simulated intervals"
    if not whole and estimated.why:
        text += f" ({estimated.why})"
    figures = {
        "intervals.cpi": Statistic(estimated.value, "1", "mean", text, low, high),
        "intervals.total": Statistic(len(found.cut.population), "1", "count", "intervals of the program"),
        "intervals.simulated": Statistic(len(found.choice.element), "1", "count", "of these, simulated in detail"),
        "intervals.instructions": Statistic(
            found.num_instructions, "1", "count", "instructions of the program that were traced in detail"
        ),
        "intervals.share": Statistic(
            float(found.executed.sum()) / found.num_instructions, "1", "ratio", "share of them that was simulated"
        ),
    }
    for name, value in zip(found.parts, found.stack.tolist(), strict=True):
        figures[f"intervals.cpi.{name}"] = Statistic(value, "1", "mean", f"of the cycles per instruction: {name}")
    weight = found.choice.weight / found.executed
    counts = np.einsum("i,ijk->jk", weight, found.joined("counts").astype(np.float64))
    for level, name in enumerate(found.caches):
        served, missed = counts[level, SERVED], counts[level, MISSED]
        if served + missed > 0:
            text = f"lines asked of {name} that it holds"
            figures[f"intervals.hit_ratio.{name}"] = Statistic(served / (served + missed), "1", "ratio", text)
    return figures


def tables(found: SampledProgram) -> dict[str, Any]:
    """``intervals``, a row per interval of the program; ``cpi_stacks`` of the whole program."""
    return {"intervals": intervals(found), "cpi_stacks": _stacks(found)}


def intervals(found: SampledProgram) -> pa.Table:
    """Columns: ``interval``, ``begin_instruction``, ``instructions``, ``cluster`` (-1: the method makes none), and of
    those that were simulated, null of others: ``weight``, ``cycles``, ``cpi``, parts of it and hit ratios of caches."""
    population, choice = found.cut.population, found.choice
    count = len(population)
    label = choice.label if len(choice.label) else np.full(count, -1, np.int32)
    cycles, stack, counts = (found.joined(name) for name in ("cycles", "stack", "counts"))
    columns = {
        "interval": to_arrow(population.number.astype(np.int64)),
        "begin_instruction": to_arrow(found.cut.begin[:-1].astype(np.int64)),
        "instructions": to_arrow(population.instructions.astype(np.int64)),
        "cluster": to_arrow(label.astype(np.int32)),
    }
    simulated = {"weight": choice.weight, "cycles": cycles, "cpi": cycles / found.executed}
    for part, name in enumerate(found.parts):
        simulated[f"cpi_{name}"] = stack[:, part] / found.executed
    for level, name in enumerate(found.caches):
        served, missed = counts[:, level, SERVED], counts[:, level, MISSED]
        asked = served + missed
        simulated[f"hit_ratio_{name}"] = np.divide(served, asked, out=np.full(len(asked), np.nan), where=asked > 0)
    for name, values in simulated.items():
        spread = np.full(count, np.nan)
        spread[choice.element] = values
        columns[name] = pa.array(spread, from_pandas=True)
    return pa.table(columns)


def _stacks(found: SampledProgram) -> pa.Table:
    """Of the initial task of rank 0, in cycles of the whole program."""
    number = len(found.parts)

    def same(value: int, kind: type) -> pa.Array:
        return to_arrow(np.full(number, value, kind))

    columns = [
        same(0, np.int32), same(-1, np.int32), same(-1, np.int32),
        pa.DictionaryArray.from_arrays(same(0, np.int32), text_array([INITIAL])),
        pa.DictionaryArray.from_arrays(to_arrow(np.arange(number, dtype=np.int8)), text_array(found.parts)),
        to_arrow(found.stack * found.num_instructions), same(found.num_instructions, np.int64),
    ]  # fmt: skip
    return pa.Table.from_arrays(columns, schema=CPI_STACKS_SCHEMA)
