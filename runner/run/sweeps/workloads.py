"""The workloads of a sweep's points: one of all, or, where shapes of a step are swept, one that is made at each point.
Of these whoever predicts points holds one at a time, with what its points share; no file is written."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from manyscale.models.workload import Workload
from manyscale.runner import kept
from manyscale.runner.errors import UserError
from manyscale.runner.predict.phase_source import FILE, SweepShared
from manyscale.runner.study import Study, Sweep, shapes, what_if
from manyscale.runner.study.targets import MachineFile, machine_file
from manyscale.runner.study.traces import read_workload


def of_point(
    sweep: Sweep, index: int, study: Study, workload: Workload | None, memory: dict[str, Any], known: Mapping[Any, Any]
) -> tuple[Workload, SweepShared]:
    """The workload of a point, and what it shares with others of the same one. ``workload``: that of all, where shapes
    are not swept; ``memory``: of whoever prepares the points; ``known``: what was read of files."""
    shape = sweep.shape(index) if sweep.has_shapes else ()
    if memory.get("shape", shape) != shape:
        known = {**known, **memory["shared"].of_files()}
        for name in ("shared", "programs", "workload"):
            memory.pop(name, None)
    memory["shape"] = shape
    if "shared" not in memory:
        memory["shared"] = SweepShared(known)
    shared: SweepShared = memory["shared"]
    if not sweep.has_shapes:
        assert workload is not None
        return workload, shared
    if "workload" not in memory:
        memory["workload"] = read_workload(study.workload, None, lambda name: _machine(name, shared))
    found: Workload = memory["workload"]
    return found, shared


def digest(sweep: Sweep, study: Study, first: Workload, shared: SweepShared) -> str:
    """Of all that the workloads follow from, beside the study: that of the one that all points have, or the first one's
    and what the files of machines hold whose GPUs they are made for. These are known to ``shared`` from then on."""
    made = study.workload.synthesise
    if not sweep.has_shapes or made is None:
        return first.digest
    names = sweep.axes.get(f"{shapes.PREFIX}target", [made.target])
    contents = [_machine(name, shared)[1] for name in names]
    return kept.checksum_of_text(json.dumps([first.digest, contents], default=str))


def machines(sweep: Sweep, study: Study, beside: Path | None, shared: SweepShared) -> str:
    """Digest of what the files of the points' targets hold, which are known to ``shared`` from then on, and those that
    place ranks and launches; of what cannot be read, its points tell."""
    named = [study.target, *sweep.axes.get("target", ()), *sweep.axes.get("target.name", ())]
    for text in sweep.axes.get(what_if.AXIS, ()):
        named += [each.value for each in what_if.changes(text) if each.keys in (("target",), ("target", "name"))]
    names = {str(each.get("name")) if isinstance(each, Mapping) else str(each) for each in named}
    contents = []
    for name in sorted(names):
        with suppress(UserError, OSError):
            made = shared.once((FILE, "target", name), partial(machine_file, name, beside))
            contents.append([name, made[1]])
    placed = [study.mapping.placement, *sweep.axes.get("mapping.placement", ())]
    paths = [each.get("file") if isinstance(each, Mapping) else getattr(each, "file", None) for each in placed]
    paths += [study.mapping.launches, *sweep.axes.get("mapping.placement.file", ())]
    for path in sorted({*map(str, filter(None, [*paths, *sweep.axes.get("mapping.launches", ())]))}):
        with suppress(OSError):
            contents.append([path, kept.checksum(Path(path).expanduser())])
    return kept.checksum_of_text(json.dumps(contents, default=str))


def _machine(name: str, shared: SweepShared) -> MachineFile:
    return shared.once((FILE, "synthesised", name), lambda: machine_file(name, None))
