"""Examples that come with the package: studies on real traces, the references they are validated against, and memory
traces of programs at several inputs; and machines."""

from __future__ import annotations

import os
from importlib.resources import files
from pathlib import Path
from typing import Any

from manyscale.models.spelling import unknown
from manyscale.runner.errors import UserError
from manyscale.runner.problems import load_yaml

VALIDATION = "validation.yaml"


def folder() -> Path:
    """The folder of the shipped studies and traces."""
    return Path(str(files("manyscale.runner").joinpath("examples")))


def studies() -> dict[str, Path]:
    """Name to study file of every example."""
    return {file.stem: file for file in sorted(folder().glob("*.yaml")) if file.name != VALIDATION}


def described() -> dict[str, str]:
    """Name to the first comment line of every example."""
    return {name: path.read_text().splitlines()[0].lstrip("# ") for name, path in studies().items()}


def memory_traces() -> dict[str, dict[int, Path]]:
    """Name to {input size: trace} of every program whose memory traces at several inputs are shipped."""
    found: dict[str, dict[int, Path]] = {}
    for file in folder().glob("*.tar.zst"):
        name, _, size = file.name.removesuffix(".tar.zst").rpartition("-")
        if size.isdecimal() and not (folder() / f"{name}-{size}.yaml").exists():
            found.setdefault(name, {})[int(size)] = file
    return {name: dict(sorted(found[name].items())) for name in sorted(found)}


def traces() -> dict[str, Path]:
    """Name to file or folder of every trace."""
    found = {file.name.removesuffix(".tar.zst"): file for file in folder().glob("*.tar.zst")}
    found |= {file.parent.name: file.parent for file in folder().glob("*/kernelslist.g")}
    return dict(sorted(found.items()))


def programs() -> dict[str, Path]:
    """Name to source of every program that can be traced."""
    return {file.name: file for file in sorted(folder().glob("*.cu"))}


def program_path(text: str) -> str:
    """The source of the shipped program of this name, unless a file of that name exists; any other text as it is."""
    return str(programs()[text]) if text in programs() and not exists(text) else text


def workload_named(name: str) -> dict[str, Any] | None:
    """What a study says of its workload (its key ``workload``) where ``name`` is that of a shipped study or trace, with
    absolute paths. None where it is a path that exists, which goes before a name, or neither. Raises UserError for the
    name of memory traces at several inputs, of which one is wanted."""
    if os.path.sep in name or exists(name):
        return None
    if name in studies():
        content = load_yaml(studies()[name])["workload"]
        return {key: str(folder() / each) if key in ("path", "detail") else each for key, each in content.items()}
    if name in traces():
        return {"path": str(traces()[name])}
    if name in memory_traces():
        sizes = ", ".join(f"{name}-{size}" for size in memory_traces()[name])
        raise UserError(f"{name}: is shipped as traces at several inputs; name one of them: {sizes}")
    return None


def trace_path(text: str) -> str:
    """The path of a shipped study's trace, or of a shipped trace, of this name; any other ``text`` as it is. Raises
    UserError as ``workload_named`` does."""
    found = workload_named(text)
    return text if found is None else str(found["path"])


def exists(path: str | Path) -> bool:
    """Whether there is something at a path, whatever text it is."""
    try:
        return os.path.exists(path)
    except (OSError, ValueError):  # too long to be a name, or no text that can be one
        return False


def find(study: str) -> Path:
    """The study file of a path or of an example's name. Raises UserError, listing the examples, if it is neither."""
    path = Path(study)
    if path.is_dir():
        raise UserError(
            f"{path}: is a directory; a study is a YAML file (for a trace: --workload {path} --target NAME)"
        )
    if path.exists():
        return path
    if study in studies():
        return studies()[study]
    raise UserError(unknown("study", study, studies(), ", or the path of a study file"))


def without_folders(text: str) -> str:
    """``text``, where files that come with the package stand without the folder that it is installed in."""
    for place in (folder(), *{path.parent for path in shipped_targets().values()}):
        text = text.replace(f"{place}{os.sep}", "shipped ")
    return text


def validation_cases() -> dict[str, dict[str, object]]:
    """Name to case: a study, the reference makespan in seconds, its tolerance and source."""
    cases: dict[str, dict[str, object]] = load_yaml(folder() / VALIDATION)
    return cases


def shipped_targets() -> dict[str, Path]:
    """Name to file of every machine that comes with the package."""
    folder = Path(str(files("manyscale.cluster_configs").joinpath("target")))
    return {file.stem: file for file in sorted(folder.glob("*.yaml"))}
