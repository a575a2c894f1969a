"""What ``manyscale profile`` finds of a trace, as tables and figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from manyscale.models.machine import Machine
from manyscale.models.machine.processor import Cache
from manyscale.models.memory.access_stream import Sites
from manyscale.models.memory.amm.block_probabilities import Transitions
from manyscale.models.memory.amm.sdcm import HitRates, geometry_of, hit_rate_by_label, hit_rates
from manyscale.models.memory.caches.counts import Counter
from manyscale.models.memory.reuse_profile import COLD, ReuseProfile
from manyscale.models.workload import Workload
from manyscale.models.workload.columns import to_arrow
from manyscale.models.workload.notes import Note
from manyscale.runner.predict.memory.hit_rates import miss_ratio_curve
from manyscale.runner.predict.memory.simulated import Simulated
from manyscale.runner.predict.memory.streams import Stream
from manyscale.runner.predict.statistic import Statistic


@dataclass(frozen=True)
class ProfileResult:
    """Profiles of the streams of a workload, read from ``trace``, and what follows for a machine's caches.

    ``profiles``: of each stream, by site, in units of ``granularity_bytes``; ``method``: how they were obtained.
    ``transitions``: of their blocks. ``caches`` are empty where units are not their lines. ``concurrent``: for streams
    that run together, the profile that a shared cache sees, by its name. ``simulated``: hit rates with the caches' real
    sets, where asked for.
    """

    trace: str
    workload: Workload
    machine: Machine
    streams: Sequence[Stream]
    sites: Sites
    profiles: Sequence[ReuseProfile]
    granularity_bytes: int
    method: str
    steady: bool
    transitions: Transitions
    caches: Mapping[str, Cache] = field(default_factory=dict)
    concurrent: Mapping[str, ReuseProfile] = field(default_factory=dict)
    simulated: Simulated | None = None
    notes: Sequence[Note] = ()

    @cached_property
    def whole(self) -> ReuseProfile:
        """The profile of all streams, each for itself, by site."""
        columns = [np.concatenate([getattr(p, c) for p in self.profiles]) for c in ("site", "distance", "count")]
        return ReuseProfile.of(self.granularity_bytes, *columns)

    def profile_at(self, level: str) -> ReuseProfile:
        """What a cache sees."""
        return self.concurrent.get(level, self.whole)

    @cached_property
    def by_block(self) -> ReuseProfile:
        """The same by block."""
        return self.whole.relabelled(self.sites.block)


def profile_table(result: ProfileResult) -> pa.Table:
    """``profile.parquet``: rank, thread, block_id, site (row of the workload's block_accesses), is_store, distance
    (distinct units between two uses, -1 for a first use), count."""
    parts = []
    for stream, profile in zip(result.streams, result.profiles, strict=True):
        count = len(profile.site)
        columns = {
            "rank": np.full(count, stream.rank, np.int32),
            "thread": np.full(count, stream.thread, np.int32),
            "block_id": result.sites.block[profile.site],
            "site": profile.site,
            "is_store": result.sites.is_store[profile.site],
            "distance": profile.distance,
            "count": profile.count,
        }
        parts.append(_table(columns))
    return pa.concat_tables(parts)


def blocks_table(result: ProfileResult) -> pa.Table:
    """``blocks.parquet``: a row per block that accesses memory, most accesses first: where it is, how often it was
    executed, its accesses, first uses, and hit ratio at each level (global: of all its accesses)."""
    blocks = result.workload.tables["blocks"]
    by_block = result.by_block
    number = blocks.num_rows
    count = np.bincount(by_block.site, by_block.count, number)
    cold = by_block.distance == COLD
    first_uses = np.bincount(by_block.site[cold], by_block.count[cold], number)
    order = np.argsort(-count, kind="stable")
    order = order[count[order] > 0]
    columns: dict[str, pa.Array] = {"block_id": to_arrow(order.astype(np.int32))}
    for name in ("function", "file", "line", "offset"):
        columns[name] = blocks.column(name).combine_chunks().take(pa.array(order))
    columns["executions"] = to_arrow(result.transitions.executions[order])
    columns["accesses"] = to_arrow(count[order])
    columns["share"] = to_arrow(count[order] / count.sum())
    columns["first_uses"] = to_arrow(first_uses[order])
    for row, (name, cache) in enumerate(result.caches.items()):
        seen = result.profile_at(name).relabelled(result.sites.block)
        labels, ratio = hit_rate_by_label(seen, geometry_of(cache, name))
        columns[f"{name}_hit_ratio"] = to_arrow(ratio[np.searchsorted(labels, order)])
        if result.simulated is not None:
            columns[f"{name}_simulated_hit_ratio"] = to_arrow(result.simulated.by_block[row, order])
    return pa.table(columns)


def place(row: Mapping[str, Any]) -> str:
    """Where the block of a row of ``blocks_table`` is: function and line, else its address, as the format knows it."""
    where = f"{row['function']}:{row['line']}" if row["function"] and row["line"] else row["function"]
    return where or (f"at {row['offset']:#x}" if row["offset"] else "-")


def hit_rates_table(result: ProfileResult) -> pa.Table:
    """``hit_rates.parquet``: a row per level and model (sdcm, and simulated where asked for): ``hit_ratio`` of all
    accesses (global), and of those that reach the level (conditional)."""
    rows = []
    for model, rates in models(result).items():
        for name, whole, given in zip(rates.names, rates.whole, rates.conditional, strict=True):
            cache = result.caches[name]
            rows.append(
                {
                    "level": name, "model": model, "size_bytes": cache.size_bytes, "ways": cache.ways,
                    "line_bytes": cache.line_bytes, "hit_ratio": whole, "conditional_hit_ratio": given,
                }
            )  # fmt: skip
    return pa.Table.from_pylist(rows, schema=_HIT_RATES)


_HIT_RATES = pa.schema(
    [
        ("level", pa.string()), ("model", pa.string()), ("size_bytes", pa.int64()), ("ways", pa.int64()),
        ("line_bytes", pa.int64()), ("hit_ratio", pa.float64()), ("conditional_hit_ratio", pa.float64()),
    ]
)  # fmt: skip


def models(result: ProfileResult) -> dict[str, HitRates]:
    """Hit rates by the model that they come from; none where units are not lines."""
    if not result.caches:
        return {}
    rates = [hit_rates(result.profile_at(name), {name: cache}).whole[0] for name, cache in result.caches.items()]
    found = {"sdcm": HitRates(tuple(result.caches), tuple(rates))}
    return found if result.simulated is None else {**found, "simulated": result.simulated.rates}


def transitions_table(result: ProfileResult) -> pa.Table:
    """``transitions.parquet``: which block followed which, how often, and with what probability (AMM, eq. 2)."""
    found = result.transitions
    columns = {"source_block_id": found.source, "target_block_id": found.target, "count": found.count}
    return _table({**columns, "probability": found.probability})


def counters_table(counters: np.ndarray, result: ProfileResult) -> pa.Table:
    """``counters.parquet``: what the simulated caches counted: level (main memory last), block_id, counter
    (models/memory/caches/counts.py), count; no row where it is 0."""
    level, counter, block = np.nonzero(counters)
    names = np.array([*result.caches, "memory"])
    return pa.table(
        {
            "level": pa.array(names[level].tolist(), pa.string()),
            "block_id": pa.array(block.astype(np.int32)),
            "counter": pa.array([Counter(value).name for value in counter.tolist()], pa.string()),
            "count": pa.array(counters[level, counter, block]),
        }
    )


def curve_table(result: ProfileResult) -> pa.Table:
    """``miss_ratio_curve.parquet``: miss ratio of a fully associative LRU cache of each size."""
    capacity, ratio = miss_ratio_curve(result.whole)
    return _table({"size_bytes": capacity * result.granularity_bytes, "units": capacity, "miss_ratio": ratio})


def statistics(result: ProfileResult) -> dict[str, Statistic]:
    """The figures of ``stats.json``."""
    whole = result.whole.whole()
    cold = float(whole.count[whole.distance == COLD].sum())
    stores = float(result.whole.count[result.sites.is_store[result.whole.site]].sum())
    unit = f"units of {result.granularity_bytes} B"
    figures = {
        "memory.accesses": Statistic(_whole(whole.num_accesses), "1", "count", f"accesses, in {unit}"),
        "memory.stores": Statistic(_whole(stores), "1", "count", "accesses that store"),
        "memory.first_uses": Statistic(_whole(cold), "1", "count", f"accesses to {unit} not used before"),
        "memory.blocks": Statistic(
            int(np.count_nonzero(result.transitions.executions)), "1", "count", "basic blocks that were executed"
        ),
    }
    for model, rates in models(result).items():
        for index, level in enumerate(rates.names):
            ratio, given, half = rates.whole[index], rates.conditional[index], half_width(result, model, index)
            low, high = (None, None) if half is None else (max(0.0, ratio - half), min(1.0, ratio + half))
            name = f"memory.{level}.{model}"
            figures[f"{name}.hit_ratio"] = Statistic(ratio, "1", "ratio", f"{model}: hits of all accesses", low, high)
            figures[f"{name}.conditional_hit_ratio"] = Statistic(
                given, "1", "ratio", f"{model}: hits of the accesses that reach the level"
            )
    return figures


def half_width(result: ProfileResult, model: str, index: int) -> float | None:
    """Of the 95 % interval of the index-th level's hit ratio, where sets were sampled; else None."""
    if model != "simulated" or result.simulated is None or result.simulated.errors is None:
        return None
    return float(1.96 * result.simulated.errors[index])


def _whole(value: float) -> float | int:
    return int(value) if value == int(value) else value


def _table(columns: Mapping[str, np.ndarray]) -> pa.Table:
    return pa.table({name: pa.array(values) for name, values in columns.items()})
