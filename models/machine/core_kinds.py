"""Cores of several kinds in one node: what the cores of a kind have that others have not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final

from pydantic import Field, WithJsonSchema

from manyscale.models.machine.processor import Cache, Core, data_caches
from manyscale.models.spelling import unknown
from manyscale.models.workload.parameters import Count, FrequencyHz, Strict

_MAY_DIFFER: Final = {
    "size": "size_bytes",
    "ways": "ways",
    "latency": "latency_cycles",
    "bandwidth": "ps_per_byte",
    "shared_bandwidth": "shared_ps_per_byte",
    "prefetcher": "prefetcher",
}
_DIFFERENCES: Final = WithJsonSchema({"type": "object"})


class CoreKind(Strict):
    """Cores of one kind, in a node whose cores are not all alike. Simulated cores are those of the node, but for what
    ``frequency``, ``core`` and ``caches`` say: keys of ``node.core``, and of caches that the cores do not share."""

    cores: Count
    """How many cores of a node are of this kind. Those of the first kind are the first cores."""
    speed: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    """How fast they execute what was traced, relative to the core that `cpu_ratio` is of: 0.5 takes twice as long.
    Where cores are simulated in detail, it is of the phases that are not, and says which cores are slower."""
    frequency_hz: FrequencyHz | None = Field(default=None, alias="frequency")
    """Their clock, where they are simulated. By default that of the node, in whose cycles results count."""
    core: Annotated[Core, _DIFFERENCES] | None = None
    """What differs from `node.core`, where they are simulated."""
    caches: dict[str, Annotated[Cache, _DIFFERENCES]] = {}
    """What differs from caches of `node.caches` that no two kinds share, where they are simulated: their size, ways,
    latency, bandwidths and prefetcher."""


def spelled_out(kind: Any, node: Mapping[str, Any]) -> Any:
    """What a file says of a kind, with what it leaves to the ``node`` that the file describes."""
    if not isinstance(kind, Mapping):
        return kind
    found = dict(kind)
    core, common = kind.get("core"), node.get("core")
    if isinstance(core, Mapping) and isinstance(common, Mapping):
        found["core"] = {**common, **core}
        costs = common.get("instructions"), core.get("instructions")
        if all(isinstance(each, Mapping) for each in costs):
            found["core"]["instructions"] = {**costs[0], **costs[1]}  # type: ignore[dict-item]
    caches, levels = kind.get("caches"), node.get("caches")
    if isinstance(caches, Mapping) and isinstance(levels, Mapping):
        found["caches"] = {
            name: {**levels[name], **changes}
            if isinstance(changes, Mapping) and isinstance(levels.get(name), Mapping)
            else changes
            for name, changes in caches.items()
        }
    return found


def check_caches(kind: CoreKind, caches: Mapping[str, Cache]) -> None:
    """Raises ValueError for what cores of one node cannot have."""
    nearest = next((cache.shared_by_cores for cache in data_caches(caches).values()), 1)
    if kind.cores % nearest:
        raise ValueError(f"cores: {nearest} cores share their first cache, {kind.cores} is no multiple of that")
    for name, own in kind.caches.items():
        if name not in caches:
            raise ValueError(f"caches: {unknown('cache', name, sorted(caches))}")
        if caches[name].shared_by_cores != nearest:
            raise ValueError(f"caches.{name}: cores of other kinds share it; leave it out")
        wrong = [
            key
            for key in Cache.model_fields
            if key not in _MAY_DIFFER.values() and getattr(own, key) != getattr(caches[name], key)
        ]
        if wrong:
            known = ", ".join(_MAY_DIFFER)
            key = Cache.model_fields[wrong[0]].alias or wrong[0]
            raise ValueError(f"caches.{name}.{key}: is the same for all kinds; what may differ: {known}")
