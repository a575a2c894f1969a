"""What an extrapolation by roles says of itself: its notes, ``extrapolation.json`` and the printed table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from manyscale.models.workload.notes import Errs, Note, changes, informs, percent
from manyscale.runner.run.extrapolation.roles.families import Span
from manyscale.runner.run.extrapolation.roles.layout import dimensions_meant
from manyscale.runner.run.extrapolation.roles.result import Scaled
from manyscale.runner.run.extrapolation.roles.speeds import Straggler

_MOST_LISTED: Final = 8


def notes(found: Scaled) -> tuple[Note, ...]:
    """What every report of the workload has to repeat."""
    old, layout, sources = found.old, found.layout, found.sources
    grew = [(name, before, after) for name, before, after in zip(layout.names, old.sizes, layout.sizes, strict=True)
            if before != after]  # fmt: skip
    said = [
        changes(
            "extrapolated",
            f"EXTRAPOLATED, not traced: {layout.num_ranks} ranks ({layout}), {_behind(found)} of {found.path} "
            f"({found.traced}, digest {found.trace.digest}); a rank's work stays, sizes of collectives follow from "
            "their members",
        )
    ]
    if found.wanted.stand_ins:
        listed = _listed([f"{rank} as {other}" for rank, other in found.wanted.stand_ins.items()])
        count = len(found.wanted.stand_ins)
        said.append(
            changes("ranks-stood-in", f"not traced, they behave as others that were: ranks {listed}", count=count)
        )
    if grew:
        said += _speed_notes(found)
    for name, before, after in grew:
        dimension = layout.names.index(name)
        spanning = [family for family in found.families.families if family.spans[dimension] is not Span.place]
        own = [family for family in spanning if name in dimensions_meant(family.name, layout.names)]
        if before == 1 and not own and not sources.chains[dimension]:
            text = (
                f"{name} grew from 1 rank to {after}, and the trace has no collective of it: what its ranks exchange "
                "is missing"
            )
            said.append(changes("group-not-traced", text, errs=Errs.short))
        if sources.chains[dimension]:
            text = (
                f"the pipeline {name} grew from {before} to {after} stages: those between have the order of traced "
                f"stages, which start fewer micro batches ahead than stages of {after} would"
            )
            said.append(changes("pipeline-grown", text, errs=Errs.long))
    ratio = np.unique(found.optimiser[np.unique(sources.rank)])
    if ratio[0] < 1.0:
        shares = f"{ratio[0]:.4g}" + (f" to {ratio[-1]:.4g}" if len(ratio) > 1 else "")
        text = f"kernels of optimisers work on shards: they take {shares} of their traced time"
        said.append(informs("optimiser-sharded", text))
    if found.traced.names != layout.names and _order(found.traced) != _order(layout):
        text = f"the trace's ranks are laid out as {found.traced}, those of the workload as {layout}"
        said.append(informs("layout-differs", text))
    lost = [level for level in ("counters", "measured", "phase_times") if found.trace.tables[level].num_rows]
    if lost:
        said.append(informs("counters-missing", f"the trace's {' and '.join(lost)} are not extrapolated: left out"))
    if found.trace.tables["gpu_memory"].num_rows:
        text = "what steps keep in GPUs' memory is not extrapolated: whether they fit there is not known"
        said.append(informs("memory-not-extrapolated", text))
    return tuple(said)


def _order(layout: Any) -> list[str]:
    return [name for name, size in zip(layout.names, layout.sizes, strict=True) if size > 1]


def _behind(found: Scaled) -> str:
    count = len(np.unique(found.sources.rank))
    return f"after {count} ranks" if count > 1 else "all after one rank"


def _listed(texts: list[str]) -> str:
    return ", ".join(texts[:_MOST_LISTED]) + (", ..." if len(texts) > _MOST_LISTED else "")


def _speed_notes(found: Scaled) -> list[Note]:
    known = [speed for speed in found.speeds if speed.spread.is_known]
    if not known or found.wanted.spread == "none":
        why = "the trace has no times of two like ranks" if not known else "no spread is asked for"
        text = f"{why}: new ranks are as fast as those that they take after, and none is slower than the slowest traced"
        return [changes("spread-unknown", text, errs=Errs.short)]
    measured = "; ".join(
        f"{speed.what} times of like ranks differ by {percent(speed.spread.deviation)} (standard deviation, "
        f"{speed.spread.num_ranks} ranks in {speed.spread.num_roles} roles)"
        if speed.spread.deviation
        else f"{speed.what} times of like ranks are equal"
        for speed in known
    )
    largest: dict[str, Straggler] = {}
    for each in found.stragglers:
        if each.what not in largest or each.members > largest[each.what].members:
            largest[each.what] = each
    slowest = "; ".join(
        f"the slowest {each.what} of {each.members} ranks ({each.group}) is expected at {each.expected:.4g} times its "
        f"role's, drawn (seed {found.wanted.seed}): {each.drawn:.4g}"
        for each in largest.values()
    )
    return [informs("stragglers", f"{measured}; {slowest}")]


def figures(found: Scaled) -> dict[str, Any]:
    """The content of ``extrapolation.json``."""
    workload = found.workload
    return {
        "schema": 1,
        "ranks": found.layout.num_ranks,
        "groups": dict(zip(found.layout.names, found.layout.sizes, strict=True)),
        "digest": workload.digest,
        "trace": {
            "path": found.path,
            "ranks": found.trace.num_ranks,
            "groups": dict(zip(found.traced.names, found.traced.sizes, strict=True)),
            "digest": found.trace.digest,
        },
        "seed": found.wanted.seed,
        "spread": found.wanted.spread,
        "sources": found.sources.rank.tolist(),
        "workload": {
            "operations": workload.num_operations,
            "gpu_operations": workload.tables["gpu_operations"].num_rows,
            "communicators": workload.tables["communicators"].num_rows,
        },
        "communicators": [
            {
                "name": family.name,
                "traced_members": family.traced_members,
                "members": family.members,
                "count": family.count(found.layout),
            }
            for family in found.families.families
        ],
        "speeds": [
            {
                "of": speed.what,
                "deviation": speed.spread.deviation if speed.spread.is_known else None,
                "traced_ranks": speed.spread.num_ranks,
                "roles": speed.spread.num_roles,
                "slowest_drawn": float(speed.factor.max()),
            }
            for speed in found.speeds
        ],
        "stragglers": [
            {
                "group": each.group,
                "of": each.what,
                "traced_members": each.traced_members,
                "members": each.members,
                "expected_slowest": each.expected,
                "expected_slowest_of_traced": each.of_traced,
                "drawn_slowest": each.drawn,
            }
            for each in found.stragglers
        ],
    }


def printed(found: Scaled) -> str:
    """The tables to read."""
    rows = [("communicators", "traced members", "members", "how many")]
    rows += [
        (family.name, str(family.traced_members), str(family.members), str(family.count(found.layout)))
        for family in found.families.families
    ]
    lines = [f"{found.traced} -> {found.layout}", *_columns(rows)]
    if found.stragglers:
        head = ("slowest of a group, times its role's", "of", "members", "expected", "of traced ranks", "drawn")
        lines += ["", *_columns([head, *(_straggler(each) for each in found.stragglers)])]
    made = found.workload
    lines.append(f"{found.layout.num_ranks} ranks, {made.num_operations} operations, "
                 f"{made.tables['gpu_operations'].num_rows} of them given to GPUs")  # fmt: skip
    return "\n".join(lines)


def _straggler(each: Straggler) -> tuple[str, ...]:
    numbers = (f"{each.expected:.4f}", f"{each.of_traced:.4f}", f"{each.drawn:.4f}")
    return (each.group, each.what, str(each.members), *numbers)


def _columns(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
