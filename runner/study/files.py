"""A study as a file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

from manyscale.runner.problems import load_yaml

TARGET_SUFFIXES: Final = (".yaml", ".cfg")


def load_study_content(path: Path) -> Any:
    """A study file's content, paths of its workload and target made absolute if they are relative to the file."""
    content = load_yaml(path)
    if not isinstance(content, dict):
        return content
    inner_paths = (
        ("workload", "path", ""),
        ("workload", "detail", ""),
        ("workload", "gpu_trace", ""),
        ("mapping", "launches", ""),
        ("target", "name", TARGET_SUFFIXES),
    )
    for key, inner, suffix in inner_paths:
        value = content.get(key)
        if isinstance(value, dict) and inner in value:
            content[key] = {**value, inner: _beside(path, value[inner], suffix)}
    mapping = content.get("mapping")
    if isinstance(mapping, dict) and isinstance(mapping.get("placement"), dict) and "file" in mapping["placement"]:
        placement = {**mapping["placement"], "file": _beside(path, mapping["placement"]["file"])}
        content["mapping"] = {**mapping, "placement": placement}
    if isinstance(content.get("target"), str):
        content["target"] = _beside(path, content["target"], TARGET_SUFFIXES)
    if isinstance(content.get("sweep"), dict) and isinstance(content["sweep"].get("target"), list):
        targets = [_beside(path, target, TARGET_SUFFIXES) for target in content["sweep"]["target"]]
        content["sweep"] = {**content["sweep"], "target": targets}
    return content


def _beside(study: Path, given: Any, suffix: str | tuple[str, ...] = "") -> Any:
    """The path ``given`` in a study file, absolute if it stands beside the file; anything else as it is."""
    is_path = isinstance(given, str) and given.endswith(suffix) and not Path(given).is_absolute()
    return str((study.parent / given).resolve()) if is_path and os.path.exists(study.parent / given) else given
