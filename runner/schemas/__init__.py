"""JSON schemas of the files that users write: a study, a target, a host. Editors check and complete files by them.

They are made from the classes that read the files, with what is plugged in: ``python -m manyscale.runner.schemas
study`` prints one. Those of the built-in keys lie beside this module as files (``path``). A schema refuses unknown and
missing keys, wrong types and units, and unknown names. What several keys must have in common, the reader alone checks,
which is why a file that a schema accepts may still be refused.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any, Final

from pydantic.json_schema import models_json_schema

from manyscale.models.machine import Machine
from manyscale.runner.registry import lookup, names
from manyscale.runner.run.execute.hosts import LocalHost
from manyscale.runner.schemas.generator import Generator
from manyscale.runner.study.samplers import LEVELS
from manyscale.runner.study.schema import Study
from manyscale.runner.study.what_if import AXIS

Schema = dict[str, Any]
_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_NUMBER: Final = "-N"  # ends the names of methods that are written with a number


def path(kind: str) -> Path:
    """The file of a shipped schema: ``kind`` is study, target or host."""
    return Path(__file__).parent / f"{kind}.schema.json"


def schema_of(kind: str) -> Schema:
    """The JSON schema (draft 2020-12) of a file: ``kind`` is study, target or host. Raises KeyError for another."""
    return {"$schema": _DIALECT, **KINDS[kind]()}


def target_schema() -> Schema:
    """Of a target machine, with the blocks of every model that is known."""
    blocks = {name: lookup("machine-block", name) for name in names("machine-block")}
    models = [(model, "validation") for model in (Machine, *blocks.values())]
    references, shared = models_json_schema(models, by_alias=True, schema_generator=Generator)  # type: ignore[arg-type]
    defs = shared["$defs"]
    for name, block in blocks.items():
        part, _, key = name.partition(".")
        owner = defs[{"node": "Node", "network": "Network"}[part]]
        owner["properties"][key] = {**references[block, "validation"], **_described(owner["properties"].get(key, {}))}
    for part in ("Node", "Network"):
        defs[part]["additionalProperties"] = False
    rules = defs["Network"]["properties"]["collectives"]
    preset = defs["CollectiveRules"]["properties"]["preset"]
    defs["Network"]["properties"]["collectives"] = {
        "anyOf": [{"type": "string", "enum": preset["enum"]}, {"$ref": rules["$ref"]}], **_described(rules),
    }  # fmt: skip
    return _whole(defs, "Machine", "A target machine of manyscale")


def study_schema() -> Schema:
    """Of a study, with the blocks of options of every method that is known."""
    schema = Study.model_json_schema(by_alias=True, schema_generator=Generator)
    defs = schema.pop("$defs")
    for level, field in defs["ModelChoice"]["properties"].items():
        _choose_from(field, names(level))
    for key, level in LEVELS.items():
        if key in defs["SamplingChoice"]["properties"] and key != "intervals":  # those may be files
            _choose_from(defs["SamplingChoice"]["properties"][key], ["auto", *names(f"{level}-sampler")])
    for choice in ("WorkloadChoice", "TraceChoice"):
        _choose_from(defs[choice]["properties"]["format"], ["auto", *names("reader")])
    machine = target_schema()
    defs |= {f"target-{name}": _partial(each) for name, each in machine.pop("$defs").items()}
    defs["target"] = _partial({key: value for key, value in machine.items() if key not in ("title", "description")})
    target = schema["properties"]["target"]
    target["anyOf"] = [{"type": "string"}, {"$ref": "#/$defs/target"}]
    schema["properties"][AXIS] = {
        "type": "array",
        "items": {"type": "string"},
        "description": "What-ifs, as points of the sweep beside the study.",
    }
    return {**schema, "title": "A study of manyscale", "$defs": defs}


def host_schema() -> Schema:
    """Of this machine as a host. Host files of Ray, Slurm and Kubernetes are theirs, and have their own schemas."""
    schema = LocalHost.model_json_schema(by_alias=True, schema_generator=Generator)
    workers = schema["properties"]["workers"]
    schema["properties"]["workers"] = {
        "anyOf": [{"const": "cores"}, {"type": "integer", "minimum": 1}], "default": "cores", **_described(workers),
    }  # fmt: skip
    return {**schema, "title": "A host of manyscale: this machine"}


KINDS: Final[dict[str, Callable[[], Schema]]] = {"study": study_schema, "target": target_schema, "host": host_schema}


def _described(field: Schema) -> Schema:
    return {"description": field["description"]} if "description" in field else {}


def _whole(defs: Schema, name: str, title: str) -> Schema:
    top = defs.pop(name)
    return {**top, "title": title, "$defs": defs}


def _choose_from(field: Schema, known: list[str] | tuple[str, ...]) -> None:
    """Restricts what is a string in a field to known names; ``NAME-N`` stands for any number."""
    plain = [name for name in known if not name.endswith(_NUMBER)]
    numbered = [name.removesuffix(_NUMBER) for name in known if name.endswith(_NUMBER)]
    allowed: Schema = {"enum": plain}
    if numbered:
        allowed = {"anyOf": [allowed, {"pattern": f"^({'|'.join(numbered)})-[1-9][0-9]*$"}]}
    for place in field.get("anyOf", [field]):
        if place.get("type") == "string":
            place.update(allowed)


def _partial(schema: Schema) -> Schema:
    """The same with no key required, for a study that replaces some keys of a target; its own parts refer to each
    other under names that begin with ``target-``."""
    changed = deepcopy(schema)

    def visit(node: Any) -> None:
        if isinstance(node, dict):
            node.pop("required", None)
            node.pop("discriminator", None)
            if "oneOf" in node:
                node["anyOf"] = node.pop("oneOf")
            if isinstance(node.get("$ref"), str):
                node["$ref"] = node["$ref"].replace("#/$defs/", "#/$defs/target-")
        for each in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
            visit(each)

    visit(changed)
    if "name" in changed.get("properties", {}):
        changed["required"] = ["name"] if "schema" in changed["properties"] else []
    return changed
