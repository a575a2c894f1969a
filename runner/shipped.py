"""Examples that come with the package: studies on real traces, the references they are validated against, and memory
traces of programs at several inputs; and machines."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

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
    raise UserError(f"unknown study {study!r}: no such file, and shipped examples are {', '.join(studies())}")


def validation_cases() -> dict[str, dict[str, object]]:
    """Name to case: a study, the reference makespan in seconds, its tolerance and source."""
    cases: dict[str, dict[str, object]] = load_yaml(folder() / VALIDATION)
    return cases


def shipped_targets() -> dict[str, Path]:
    """Name to file of every machine that comes with the package."""
    folder = Path(str(files("manyscale.cluster_configs").joinpath("target")))
    return {file.stem: file for file in sorted(folder.glob("*.yaml"))}
