"""One dotted key of a study's content, as ``--set KEY=VALUE``, a sweep and a what-if change it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import yaml

from manyscale.runner.errors import UserError
from manyscale.runner.study import what_if


def assign(content: dict[str, Any], dotted: str, value: Any) -> dict[str, Any]:
    """``content`` with one dotted key set; a target that is a name becomes a mapping to take keys of the machine."""
    return _assign(content, dotted.split("."), value, dotted)


def _assign(content: dict[str, Any], keys: Sequence[Any], value: Any, place: str) -> dict[str, Any]:
    head, *rest = keys
    if head == "":
        raise UserError(f"{place!r} is not a dotted key such as target.network.latency")
    if not rest:
        return {**content, head: value}
    inner = content.get(head, {})
    if head == "target" and isinstance(inner, str):
        inner = {"name": inner}
    if inner is None:
        inner = {}
    if not isinstance(inner, dict):
        raise UserError(f"{place!r}: {head!r} holds no keys")
    return {**content, head: _assign(inner, rest, value, place)}


def apply_what_if(content: dict[str, Any], text: str) -> dict[str, Any]:
    """``content`` with what a what-if changes. Raises UserError."""
    for change in what_if.changes(text):
        value = change.value
        if change.multiplies:
            inner: Any = content
            for key in change.keys:
                inner = inner.get(key) if isinstance(inner, dict) else None
            value = value * inner if isinstance(inner, int | float) else value
        content = _assign(content, change.keys, value, ".".join(map(str, change.keys)))
    return content


def parse_assignment(text: str, option: str = "--set") -> tuple[str, Any]:
    """KEY=VALUE of the command line; the value is YAML. ``option`` is the one that took it, for errors."""
    key, separator, value = text.partition("=")
    if not separator:
        form = "KEY=VALUE, for example target.network.latency='2 us'" if option == "--set" else "LEVEL=NAME"
        raise UserError(f"{option} {text!r}: write {form}")
    try:
        return key.strip(), yaml.safe_load(value)
    except (yaml.YAMLError, ValueError, RecursionError):
        raise UserError(f"{option} {text!r}: the value is not valid YAML") from None
