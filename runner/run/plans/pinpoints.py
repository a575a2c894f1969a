"""Regions of a run as PinPoints' and LoopPoint's tools read them: a CSV in one of two forms.

- With markers: where a region begins and ends as program counter, image and offset, and how often it was executed; read
  by ``-pcregions:in``, LoopPoint's run script and pinplay-scripts. Regions that warm caches come after those simulated.
- Else by instructions executed, from 1; read by ``-regions:in`` and pinplay-scripts.

Columns and header: pinplay-scripts' ``pcregions.py`` and ``readers/binaries/regions.py`` and LoopPoint's region
controllers. Their multiplier is the cluster's share times the number of intervals, which is right if these are equally
long; here it is the cluster's instructions by those of the region, so that times of regions of any length add up to the
run's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from manyscale.runner.readers.simpoint_bb.markers import Marker

_BY_COUNTER: Final = (
    "comment,thread-id,region-id,start-pc,start-image-name,start-image-offset,start-pc-count,end-pc,end-image-name,"
    "end-image-offset,end-pc-count,end-pc-relative-count,region-length,region-weight,region-multiplier,region-type"
)
_BY_INSTRUCTIONS: Final = (
    "comment,thread-id,region-id,simulation-region-start-icount,simulation-region-end-icount,region-weight"
)


@dataclass(frozen=True)
class Span:
    """Instructions [``first``, ``first`` + ``length``) of the run, and where they lie, if markers are known."""

    first: int
    length: int
    start: Marker | None = None
    end: Marker | None = None
    relative_count: int = 0


@dataclass(frozen=True)
class Region:
    """Interval ``interval`` stands for ``weight`` of the run's instructions, which are ``multiplier`` times its own;
    ``warmup`` is what to run before it."""

    interval: int
    cluster: int
    region_id: int
    weight: float
    multiplier: float
    span: Span
    warmup: Span | None = None


def regions_csv(regions: Sequence[Region], thread: str, instructions: int, intervals: int) -> str:
    """``thread``: number of the one that is counted, or ``global``. ``instructions`` and ``intervals`` of the run."""
    with_markers = bool(regions) and regions[0].span.start is not None
    lines = ["# Regions chosen by manyscale", f"# {_BY_COUNTER if with_markers else _BY_INSTRUCTIONS}", ""]
    for region in regions:
        span, name = region.span, f"cluster {region.cluster} from slice {region.interval}"
        lines.append(
            f"# RegionId = {region.region_id} Slice = {region.interval} Icount = {span.first} Length = {span.length} "
            f"Weight = {region.weight:.5f} Multiplier = {region.multiplier:.3f}"
        )
        values = [name, thread, str(region.region_id)]
        if with_markers:
            values += [*_place(span), f"{region.weight:.7f}", f"{region.multiplier:.3f}", "simulation"]
        else:
            values += [str(span.first + (span.first > 0)), str(span.first + span.length), f"{region.weight:.7f}"]
        lines += [",".join(values), ""]
    most = max((region.region_id for region in regions), default=0)
    for region in regions:
        if with_markers and region.warmup is not None:
            head = [f"Warmup for regionid {region.region_id}", thread, str(region.region_id + most)]
            lines += [
                ",".join([*head, *_place(region.warmup), "0.0000000", "0.000", f"warmup:{region.region_id}"]), "",
            ]  # fmt: skip
    simulated = sum(region.span.length for region in regions)
    lines += [
        f"# Total instructions in {len(regions)} regions = {simulated}",
        f"# Total instructions in workload = {instructions}",
        f"# Total slices in workload = {intervals}",
    ]
    return "\n".join(lines) + "\n"


def _place(span: Span) -> list[str]:
    assert span.start is not None
    assert span.end is not None
    values = []
    for marker in (span.start, span.end):
        values += [f"{marker.pc:#x}", marker.image, f"{marker.offset:#x}", str(marker.count)]
    return [*values, str(span.relative_count), str(span.length)]
