"""What ``manyscale profile`` finds of a trace, as tables and figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from manyscale.models.columns import to_arrow
from manyscale.models.machine import Machine
from manyscale.models.memory.access_stream import Sites
from manyscale.models.memory.reuse_profile import COLD, ReuseProfile
from manyscale.models.workload import Workload
from manyscale.runner.memory.hit_rates import Level, conditional, hits_by_label, miss_ratio_curve
from manyscale.runner.memory.streams import Stream
from manyscale.runner.results import Statistic


@dataclass(frozen=True)
class ProfileResult:
    """Profiles of a workload's streams and what follows for a machine's caches.

    ``profiles``: of each stream, by site, in units of ``granularity_bytes``; ``method``: how they were obtained.
    ``levels`` are empty where units are not the caches' lines. ``simulated``: float64[levels] global hit ratios of the
    simulated caches, where asked for, and ``simulated_blocks`` float64[levels, blocks] hits.
    """

    workload: Workload
    machine: Machine
    streams: Sequence[Stream]
    sites: Sites
    profiles: Sequence[ReuseProfile]
    granularity_bytes: int
    method: str
    steady: bool
    levels: Sequence[Level] = ()
    executions: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    simulated: np.ndarray | None = None
    simulated_blocks: np.ndarray | None = None
    notes: Sequence[str] = ()

    @property
    def whole(self) -> ReuseProfile:
        """The profile of all streams, each for itself, by site."""
        columns = [np.concatenate([getattr(p, c) for p in self.profiles]) for c in ("site", "distance", "count")]
        return ReuseProfile.of(self.granularity_bytes, *columns)

    def by_block(self) -> ReuseProfile:
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
    by_block = result.by_block()
    number = blocks.num_rows
    count = np.bincount(by_block.site, by_block.count, number)
    cold = by_block.distance == COLD
    first_uses = np.bincount(by_block.site[cold], by_block.count[cold], number)
    order = np.argsort(-count, kind="stable")
    order = order[count[order] > 0]
    columns: dict[str, pa.Array] = {"block_id": to_arrow(order.astype(np.int32))}
    for name in ("function", "file", "line", "offset"):
        columns[name] = blocks.column(name).combine_chunks().take(pa.array(order))
    columns["executions"] = to_arrow(result.executions[order])
    columns["accesses"] = to_arrow(count[order])
    columns["share"] = to_arrow(count[order] / count.sum())
    columns["first_uses"] = to_arrow(first_uses[order])
    if result.levels:
        hits = hits_by_label(by_block, list(result.levels), number)
        for row, level in enumerate(result.levels):
            columns[f"{level.name}_hit_ratio"] = to_arrow(hits[row, order] / count[order])
            if result.simulated_blocks is not None:
                columns[f"{level.name}_simulated_hit_ratio"] = to_arrow(
                    result.simulated_blocks[row, order] / count[order]
                )
    return pa.table(columns)


def hit_rates_table(result: ProfileResult) -> pa.Table:
    """``hit_rates.parquet``: a row per level and model (sdcm, and simulated where asked for): ``hit_ratio`` of all
    accesses (global), and of those that reach the level (conditional)."""
    rows: list[dict[str, object]] = []
    for model, ratios in hit_ratios(result).items():
        given = conditional(ratios)
        for index, level in enumerate(result.levels):
            size = level.cache.size_bytes
            rows.append(
                {
                    "level": level.name, "model": model, "size_bytes": size, "ways": level.ways,
                    "line_bytes": level.cache.line_bytes, "hit_ratio": float(ratios[index]),
                    "conditional_hit_ratio": float(given[index]),
                }
            )  # fmt: skip
    return pa.Table.from_pylist(rows, schema=_HIT_RATES) if rows else _HIT_RATES.empty_table()


_HIT_RATES = pa.schema(
    [
        ("level", pa.string()), ("model", pa.string()), ("size_bytes", pa.int64()), ("ways", pa.int64()),
        ("line_bytes", pa.int64()), ("hit_ratio", pa.float64()), ("conditional_hit_ratio", pa.float64()),
    ]
)  # fmt: skip


def hit_ratios(result: ProfileResult) -> Mapping[str, np.ndarray]:
    """By model: float64[levels], global hit ratios."""
    if not result.levels:
        return {}
    whole = result.whole.whole()
    found = {"sdcm": hits_by_label(whole, list(result.levels), 1)[:, 0] / whole.num_accesses}
    if result.simulated is not None:
        found["simulated"] = result.simulated
    return found


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
            int(np.count_nonzero(result.executions)), "1", "count", "basic blocks that were executed"
        ),
    }
    for model, ratios in hit_ratios(result).items():
        for level, ratio, given in zip(result.levels, ratios.tolist(), conditional(ratios).tolist(), strict=True):
            name = f"memory.{level.name}.{model}"
            figures[f"{name}.hit_ratio"] = Statistic(ratio, "1", "ratio", f"{model}: hits of all accesses")
            figures[f"{name}.conditional_hit_ratio"] = Statistic(
                given, "1", "ratio", f"{model}: hits of the accesses that reach the level"
            )
    return figures


def _whole(value: float) -> float | int:
    return int(value) if value == int(value) else value


def _table(columns: Mapping[str, np.ndarray]) -> pa.Table:
    return pa.table({name: to_arrow(values) for name, values in columns.items()})
