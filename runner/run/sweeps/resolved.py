"""The study of a run, or of a point, with every default filled in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from manyscale.runner.predict.phase_source import FILE, Case, SweepShared
from manyscale.runner.storage.address import is_url
from manyscale.runner.study import Study
from manyscale.runner.study.targets import shipped_targets


def resolved_study(study: Study, name: str, shared: SweepShared) -> dict[str, Any]:
    """What ``resolved.yaml`` holds: it can be run again as it stands. Of a sweep; a point is ``resolved_point``."""
    filled = study.model_dump(mode="json", by_alias=True)
    filled["name"] = study.name or name
    jobs = zip(
        (study.workload, *study.workload.beside), (filled["workload"], *filled["workload"]["beside"]), strict=True
    )
    for job, content in jobs:
        if job.synthesise is None:
            content["path"] = _absolute(job.path, shared)
        elif job.synthesise.target not in shipped_targets():
            content["synthesise"]["target"] = _absolute(job.synthesise.target, shared)
        for key in ("detail", "gpu_trace"):
            if content[key] is not None:
                content[key] = _absolute(content[key], shared)
    if study.mapping.launches is not None:
        filled["mapping"]["launches"] = _absolute(study.mapping.launches, shared)
    return filled


def resolved_point(case: Case) -> dict[str, Any]:
    """The same of one point, its machine in full."""
    return resolved_study(case.study, case.workload.name, case.shared) | {"target": dict(case.machine_content)}


def _absolute(path: str, shared: SweepShared) -> str:
    if is_url(path):
        return path
    return shared.once((FILE, "absolute", path), lambda: str(Path(path).expanduser().resolve()))
