"""Target machines: YAML files to models.machine.Machine, with one-line errors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from pydantic import ValidationError

from manyscale.models.machine import Machine, Network, Node
from manyscale.models.machine.blocks import Extensible
from manyscale.models.spelling import closest, unknown
from manyscale.runner.errors import UserError, WrongKeyError
from manyscale.runner.plain_files import refuse_special
from manyscale.runner.problems import load_yaml, wrong_key
from manyscale.runner.registry import lookup, names
from manyscale.runner.shipped import shipped_targets as shipped_targets
from manyscale.runner.study import dimemas_cfg
from manyscale.runner.study.schema import Study, parse_study

_NVLINK = ("network", "nccl", "nvlink")
MachineFile: TypeAlias = tuple[str, dict[str, Any]]  # its path, and what it holds


def resolve_target(
    study: Study, beside: Path | None = None, read: Callable[[str, Path | None], MachineFile] | None = None
) -> tuple[Machine, dict[str, Any]]:
    """The machine that a study names, and the content it was built from (quantities with their units). ``read``: in
    place of ``machine_file``, for whoever knows what the files hold.

    A name is that of a shipped machine, or a file (YAML, or a Dimemas configuration) relative to ``beside`` or to the
    working directory; a mapping replaces keys of the machine it names, or, with a ``schema``, is a whole machine.
    Raises UserError, also for a study without a mapping where a Dimemas configuration has another than the default.
    """
    if isinstance(study.target, dict) and "schema" in study.target:
        return build_machine(study.target, "target"), study.target
    place, content = (read or machine_file)(study.target_name, beside)
    if "mapping" not in study.model_fields_set and dimemas_cfg.can_read(Path(place)):
        dimemas_cfg.check_mapping(Path(place))
    if not study.target_overrides:
        return build_machine(content, place), content
    content = _merged(content, study.target_overrides)
    try:
        return build_machine(content, ""), content
    except WrongKeyError as error:
        raise error.within("", "target") from None


def shipped_content(name: str) -> dict[str, Any] | None:
    """The content of the shipped machine of this name, None if there is none."""
    path = shipped_targets().get(name)
    return None if path is None else machine_file(path.stem, None)[1]


def target_named(name: str | Mapping[str, Any], place: str = "--target") -> tuple[Machine, dict[str, Any]]:
    """The same of a name, or a file relative to the working directory, or a mapping with keys of it replaced; ``place``
    says who names it."""
    return resolve_target(parse_study({"workload": {"path": "-"}, "target": name}, place))


def machine_file(name: str, beside: Path | None) -> MachineFile:
    """Where the machine of a name stands, and what is there. Raises UserError."""
    shipped = shipped_targets()
    if name in shipped:
        path = shipped[name]
    else:
        candidates = [Path(name)] if beside is None else [beside / name, Path(name)]
        found = next((candidate for candidate in candidates if candidate.is_file()), None)
        if found is None:
            raise WrongKeyError("", "target", f"{unknown('target', name, shipped, ', or a YAML file')}")
        path = found
    content = dimemas_cfg.read(path) if dimemas_cfg.can_read(path) else load_yaml(path)
    if not isinstance(content, dict):
        raise UserError(f"{path}: a machine is a mapping of keys (schema, name, nodes, node, network, ...)")
    return str(path), _with_link_matrix(content, path)


def _with_link_matrix(content: dict[str, Any], path: Path) -> dict[str, Any]:
    """With the text of the file that `network.nccl.nvlink.topology_file` names, beside the machine's. Raises
    UserError."""
    inner: Any = content
    for key in _NVLINK:
        inner = inner.get(key) if isinstance(inner, Mapping) else None
    if not isinstance(inner, Mapping) or not isinstance(inner.get("topology_file"), str):
        return content
    file = path.parent / inner["topology_file"]
    try:
        text = refuse_special(file).read_text(errors="replace")
    except OSError as error:
        raise WrongKeyError(str(path), f"{'.'.join(_NVLINK)}.topology_file", f"{file}: {error.strerror}") from None
    link = {key: value for key, value in inner.items() if key != "topology_file"} | {"topology": text}
    network = content["network"]
    return {**content, "network": {**network, "nccl": {**network["nccl"], "nvlink": link}}}


def build_machine(content: Mapping[str, Any], place: str) -> Machine:
    """Validate a mapping as a machine, with the blocks of all models; errors name ``place`` and the key."""
    parts: dict[str, type[Extensible]] = {"node": Node, "network": Network}
    try:
        built = {name: _with_blocks(name, part, content, place) for name, part in parts.items() if name in content}
        return Machine.model_validate({**content, **built})
    except ValidationError as error:
        raise wrong_key(error, Machine, place) from None


def _with_blocks(name: str, part: type[Extensible], content: Mapping[str, Any], place: str) -> Any:
    """The content of a part of a machine, its blocks validated by the models that read them."""
    own = content[name]
    if not isinstance(own, Mapping):
        return own
    basics = {field.alias or each for each, field in part.model_fields.items()}
    built = dict(own)
    for key, value in own.items():
        block = f"{name}.{key}"
        if block in names("machine-block") and value is not None:
            try:
                built[key] = lookup("machine-block", block).model_validate(value)
            except ValidationError as error:
                raise wrong_key(error, lookup("machine-block", block), place, block) from None
        elif key not in basics and block not in names("machine-block"):
            blocks = [each.rpartition(".")[2] for each in names("machine-block") if each.startswith(f"{name}.")]
            near = closest(key, [*basics, *blocks])
            mend = "remove it or mend its spelling" if near is None else f"did you mean {near!r}?"
            raise WrongKeyError(place, block, f"unknown key; {mend}")
    return built


def _merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """``base`` with keys replaced; what is of another ``kind`` is replaced whole."""
    if changes.get("kind", base.get("kind")) != base.get("kind"):
        return dict(changes)
    result = dict(base)
    for key, value in changes.items():
        inner = result.get(key)
        result[key] = _merged(inner, value) if isinstance(value, Mapping) and isinstance(inner, Mapping) else value
    return result
