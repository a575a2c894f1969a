"""What users name as a study or a trace: a file, a shipped name, a run directory, or a mapping."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Final, NamedTuple

from manyscale.models.workload import Workload
from manyscale.runner import shipped
from manyscale.runner.cache import default_cache
from manyscale.runner.errors import UserError
from manyscale.runner.storage.address import is_url, located, refuse
from manyscale.runner.storage.fetching import fetched_trace
from manyscale.runner.study import Study, WorkloadChoice, assign, load_study_content, parse_study, what_if
from manyscale.runner.study import traces as study_traces

StudyLike = Study | Mapping[str, Any] | str | PathLike[str]
TraceLike = str | PathLike[str]
TargetLike = str | PathLike[str] | Mapping[str, Any]

_STUDY_FILES: Final = (".yaml", ".yml")


class Asked(NamedTuple):
    """The content of a study, the place that it is from (for errors), and the folder its paths may be relative to."""

    content: dict[str, Any]
    place: str
    beside: Path | None


def load_study(study: str | PathLike[str]) -> Study:
    """The study in a YAML file, or the shipped one of this name. Raises UserError, one line, if it is none."""
    path = shipped.find(fspath(study))
    return parse_study(load_study_content(path), str(path))


def read_workload(
    trace: TraceLike | Mapping[str, Any] | WorkloadChoice,
    cache: str | PathLike[str] | None = None,
    *,
    format: str = "auto",
) -> Workload:
    """The workload of a trace: its path, the name of a shipped one, or what a study says under ``workload``. ``cache``:
    where it is kept once read (default: the user's cache). Raises UserError, one line, if it cannot be read."""
    if isinstance(trace, Mapping):
        trace = parse_study({"workload": dict(trace), "target": "-"}, "workload").workload
    choice = trace if isinstance(trace, WorkloadChoice) else WorkloadChoice(path=fspath(trace), format=format)
    return study_traces.read_workload(choice, cache_folder(cache))


def cache_folder(cache: str | PathLike[str] | None) -> Path:
    """Where results of work units and traces as read are kept."""
    return default_cache() if cache is None else located(cache)


def tools_folder(cache: str | PathLike[str] | None) -> Path:
    """Where tracers that are built for this machine are kept. Raises UserError for object storage."""
    refuse(cache, "--cache", "what is built for tracing is for this machine alone")
    return cache_folder(cache)


def asked_study(
    study: StudyLike,
    *,
    target: TargetLike | None = None,
    format: str | None = None,
    time: str | None = None,
    launches: Sequence[int] | None = None,
    model: Mapping[str, str] | None = None,
    sampling: Mapping[str, Any] | None = None,
    set: Mapping[str, Any] | None = None,
    seed: int | None = None,
    what_ifs: Sequence[str] | None = None,
) -> Asked:
    """The study that is named, with what the further arguments replace of it. Raises UserError."""
    content, place, beside = named_study(study, target)
    return Asked(
        changed(
            content, target=target, format=format, time=time, launches=launches, model=model, sampling=sampling,
            set=set, seed=seed, what_ifs=what_ifs,
        ), place, beside,
    )  # fmt: skip


def changed(
    content: dict[str, Any],
    *,
    target: TargetLike | None = None,
    format: str | None = None,
    time: str | None = None,
    launches: Sequence[int] | None = None,
    model: Mapping[str, str] | None = None,
    sampling: Mapping[str, Any] | None = None,
    set: Mapping[str, Any] | None = None,
    seed: int | None = None,
    what_ifs: Sequence[str] | None = None,
) -> dict[str, Any]:
    """A study's content with keys replaced: ``set`` by their dotted names, the others as the commands' options of the
    same names do. Raises UserError."""
    if target is not None:
        content = assign(content, "target", dict(target) if isinstance(target, Mapping) else fspath(target))
    whole = {"workload.format": format, "workload.time": time, "workload.launches": launches}
    whole |= {f"model.{level}": name for level, name in (model or {}).items()}
    whole |= {f"sampling.{level}": method for level, method in (sampling or {}).items()}
    for key, value in whole.items():
        if value is not None:
            content = assign(content, key, list(value) if isinstance(value, tuple | range) else value)
    for key, value in (set or {}).items():
        content = assign(content, key, value)
    if seed is not None:
        content = assign(content, "seed", seed)
    if what_ifs:
        content = assign(content, what_if.AXIS, list(what_ifs))
    return content


def named_study(study: StudyLike, target: TargetLike | None = None) -> Asked:
    """The study that is named; of a trace one without a target, which ``target`` must name. Raises UserError."""
    if isinstance(study, Study):
        return Asked(study.model_dump(mode="json", by_alias=True, exclude_unset=True), "study", None)
    if isinstance(study, Mapping):
        return Asked(dict(study), "study", None)
    text = fspath(study)
    if is_url(text):
        return _at_address(text, target)
    if shipped.exists(text):
        return _at_path(Path(text), target)
    if text in shipped.studies() or shipped.workload_named(text) is None:
        path = shipped.find(text)
        return Asked(_mapping(load_study_content(path), path), str(path), path.parent)
    return _of_trace(text, target)


def _at_address(text: str, target: TargetLike | None) -> Asked:
    from manyscale.runner.run import directory as rundir

    copy = located(text)
    if rundir.is_run(copy):
        return _at_path(copy, target)
    copy = fetched_trace(text)
    return _at_path(copy, target) if copy.suffix in _STUDY_FILES else _of_trace(text, target)


def _at_path(path: Path, target: TargetLike | None) -> Asked:
    from manyscale.runner.run import directory as rundir

    if rundir.is_run(path):
        from manyscale.runner.run.sweeps.point_files import opened

        place = path / rundir.RESOLVED
        return Asked(_mapping(rundir.read_resolved(opened(path)), place), str(place), None)
    if path.is_dir() and not study_traces.is_trace(path):
        raise UserError(
            f"{path}: is a directory with neither a run (manifest.json) nor a trace; a study is a YAML file"
        )
    if is_trace_path(path):
        return _of_trace(str(path), target)
    return Asked(_mapping(load_study_content(path), path), str(path), path.parent)


def required_target(target: TargetLike | None) -> str | Mapping[str, Any]:
    """The name or file of a target, or that with keys replaced. Raises UserError where none is named."""
    if target is None:
        raise UserError(f"--target: must be given: a YAML file, or one of {', '.join(shipped.shipped_targets())}")
    return target if isinstance(target, Mapping) else fspath(target)


def is_trace_path(path: Path) -> bool:
    """Whether there is a trace at a path, and not a study."""
    return shipped.exists(path) and path.suffix not in _STUDY_FILES and study_traces.is_trace(path)


def _of_trace(trace: str, target: TargetLike | None) -> Asked:
    if target is None:
        raise UserError(
            f"{trace}: is a trace, which needs a target: a YAML file, or one of {', '.join(shipped.shipped_targets())}"
        )
    return Asked({"schema": 1, "workload": {"path": trace}}, trace, None)


def _mapping(content: Any, path: Path) -> dict[str, Any]:
    if not isinstance(content, dict):
        raise UserError(f"{path}: a study is a mapping of keys (schema, workload, target, ...)")
    return content
