"""Regions of a run as options of Sniper's ``run-sniper``, in a script that simulates one after the other.

With markers a region is what LoopPoint's run script asks for: ``-s simuserroi`` and a controller of PinPlay or SDE that
begins and ends it where a place in the program has been executed so often. Else ``-s roi-icount:X:Y:Z``: X instructions
fast-forward, Y that warm caches, Z in detail (scripts/roi-icount.py), which looks at the count so often as
``core/hook_periodic_ins/ins_global`` says.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Final

from manyscale.runner.readers.simpoint_bb.markers import Marker
from manyscale.runner.run.plans.pinpoints import Region

CHECKS_PER_SPAN: Final = 100  # so that the begin and the end of a region are at most a hundredth of it off
_HEAD: Final = """#!/bin/sh
# Representative regions of {name} for Sniper; the run's time is the sum of each one's time by its multiplier.
# usage: SNIPER_ROOT=... [CONTROLLER=-control] sh {file} [options of run-sniper] -- COMMAND
# CONTROLLER: -pinplay:control (default) for Pin, -control for SDE; only where regions have markers
set -e
: "${{SNIPER_ROOT:?the folder of run-sniper}}"
: "${{CONTROLLER:=-pinplay:control}}"
"""


def script(regions: Sequence[Region], name: str, file: str) -> str:
    """``name`` of the program, from which folders of results take theirs; ``file``: how the script will be called."""
    lines = [_HEAD.format(name=name, file=file)]
    for region in regions:
        lines.append(f"# interval {region.interval}: weight {region.weight:.7f}, multiplier {region.multiplier:.6g}")
        by = _by_counter(region) if region.span.start is not None else _by_instructions(region)
        folder = shlex.quote(f"{name}-r{region.region_id}")
        lines.append(f'"$SNIPER_ROOT/run-sniper" -d {folder} --roi-script {by} "$@"\n')
    return "\n".join(lines)


def _by_instructions(region: Region) -> str:
    span, warmup = region.span, region.warmup
    before = 0 if warmup is None else warmup.length
    every = max(1, min(span.length, before or span.length) // CHECKS_PER_SPAN)
    return (
        f"--no-cache-warming -s roi-icount:{span.first - before}:{before}:{span.length} "
        f"-g core/hook_periodic_ins/ins_global={every} -g core/hook_periodic_ins/ins_per_core={max(1, every // 10)}"
    )


def _by_counter(region: Region) -> str:
    first = region.span if region.warmup is None else region.warmup
    assert first.start is not None
    assert region.span.start is not None
    assert region.span.end is not None
    events = []
    if region.warmup is not None:
        events.append(("warmup-start", first.start))
    if first.first > 0 or region.warmup is not None:
        events.append(("start", region.span.start))
    if region.span.end.pc:
        events.append(("stop", region.span.end))
    options = ["-s simuserroi", "-g general/inst_mode_init=detailed"]
    options += [f'--trace-args="$CONTROLLER {event}:address:{_address(at)}:count{at.count}:global"'
                for event, at in events]  # fmt: skip
    return " ".join(options)


def _address(marker: Marker) -> str:
    return f"{marker.pc:#x}" if marker.image == "no_image" else f"{marker.image}+{marker.offset:#x}"
