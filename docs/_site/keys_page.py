"""Pages of every key of a study, a target machine and a host, from their JSON schemas."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from markdown_cells import cell, code, table

from manyscale.runner.schemas import schema_of

Schema = dict[str, Any]
_EDITORS: Final = """
Editors check and complete such a file if its first line names the schema of it:

```yaml
# yaml-language-server: $schema=KIND.schema.json
```

The schema is published with this site as [KIND.schema.json](../schemas/KIND.schema.json) and lies in the folder of
`manyscale.runner.schemas`. `python -m manyscale.runner.schemas KIND > KIND.schema.json` writes it with everything that
is plugged in. A schema cannot know what several keys must have in common: a command may still refuse, in one line, what
it accepts.

Quantities are written with a unit, as `1.5 us` or `64 KiB`. Decimal prefixes are powers of ten (1 MB is 10^6 bytes),
binary prefixes powers of two (1 MiB is 2^20 bytes). A key without a default must be given, unless it is marked as
optional. Every section names the module that defines its keys.
"""
_HEADS: Final = {
    "study": """# Keys of a study

A study is a YAML file that says what is to be predicted: which trace, on which machine, by which models. The page
[Studies](studies.md) explains it with an example; this page lists every key. It is made from the classes that read
studies.
""",
    "target": """# Keys of a target machine

A target is a YAML file that describes the machine whose time is predicted: its nodes, and the network between them. The
page [Networks and machines](../models/networks.md) explains how models use these keys; this page lists all of them. It
is made from the classes that read targets. Which model reads which key, [Domains](../models/domains.md) says.
""",
    "host": """# Keys of a host

A host file says where the simulator itself runs: with how many processes, and with how much memory. This page lists the
keys of our own format, which describes this machine. A cluster file of Ray, a Slurm script and a Kubernetes resource
are host files, too, with the keys of those tools; see [On a cluster](../howto/cluster.md).
""",
}
_TOPS: Final = {"study": "of the study", "target": "of the machine", "host": "of the host"}


def page(kind: str) -> str:
    """Markdown of the keys of ``kind``: study, target or host."""
    schema = schema_of(kind)
    parts = [_HEADS[kind], _EDITORS.replace("KIND", kind)]
    for place, model in _models(schema, kind):
        parts.append(f"\n## {place}\n\n{_intro(model)}\n")
        required = set(model.get("required", ()))
        rows = [(code(key), *_row(field, key in required, schema)) for key, field in model["properties"].items()]
        if rows:
            parts.append(table(("key", "value", "default", "meaning"), rows))
    return "\n".join(parts)


def _models(schema: Schema, kind: str) -> Iterator[tuple[str, Schema]]:
    """(heading, model) of the file and of every part of it, each once, where it is first met."""
    waiting, seen = [(f"Keys {_TOPS[kind]}", schema, "")], set()
    while waiting:
        title, model, prefix = waiting.pop(0)
        yield title, model
        inner = []
        for key, field in model["properties"].items():
            for name in _references(field):
                if name not in seen and not name.startswith("target"):
                    seen.add(name)
                    found = schema["$defs"][name]
                    place = f"{prefix}.{key}".lstrip(".") + _suffix(field, found)
                    inner.append((f"`{place}`", found, place))
        waiting = inner + waiting


def _suffix(field: Schema, found: Schema) -> str:
    kind = found["properties"].get("kind", {}).get("const")
    if kind is not None:
        return f" (kind: {kind})"
    return ".NAME" if "additionalProperties" in field and isinstance(field["additionalProperties"], dict) else ""


def _references(field: Any) -> Iterator[str]:
    if isinstance(field, dict):
        if isinstance(field.get("$ref"), str):
            yield field["$ref"].rpartition("/")[2]
        for key, each in field.items():
            if key != "discriminator":
                yield from _references(each)
    elif isinstance(field, list):
        for each in field:
            yield from _references(each)


def _intro(model: Schema) -> str:
    return f"Defined in `{model['x-source']}`." if "x-source" in model else ""


def _row(field: Schema, is_required: bool, schema: Schema) -> tuple[str, str, str]:
    default = _shown(field["default"]) if "default" in field else ("" if is_required else "optional")
    text = field.get("description", "")
    if not text:
        referred = [schema["$defs"][name].get("description", "") for name in _references(field)]
        text = _first_sentence(referred[0]) if referred else ""
    return cell(_value(field)), default if default == "optional" else code(default), cell(text)


def _first_sentence(text: str) -> str:
    return text.split(". ")[0].rstrip(".") + "."


def _shown(value: object) -> str:
    return {True: "true", False: "false"}[value] if isinstance(value, bool) else str(value)


def _value(field: Schema) -> str:
    """What may stand there, in words."""
    if "anyOf" in field or "oneOf" in field:
        choices = [_value(each) for each in field.get("anyOf", field.get("oneOf"))]
        return " or ".join(dict.fromkeys(each for each in choices if each != "nothing"))
    if "$ref" in field:
        return "keys, see below"
    if "enum" in field:
        return ", ".join(f"`{each}`" for each in field["enum"])
    if "const" in field:
        return f"`{field['const']}`"
    if "x-dimension" in field:
        name = field["x-dimension"].partition(" in ")[0]
        return f"{name} with a unit, as `{field['examples'][0]}`"
    kind = field.get("type")
    if kind == "array":
        inner = field.get("items") or next(iter(field.get("prefixItems", ())), {})
        return f"list of: {_value(inner)}"
    if kind == "object":
        inner = field.get("additionalProperties")
        return f"mapping to: {_value(inner)}" if isinstance(inner, dict) else "mapping"
    words = {
        "integer": "whole number",
        "number": "number",
        "string": "text",
        "boolean": "true or false",
        "null": "nothing",
    }
    return words.get(str(kind), "any value") + _range(field)


def _range(field: Schema) -> str:
    low = next(
        (f"{sign} {field[key]:g}" for key, sign in (("minimum", ">="), ("exclusiveMinimum", ">")) if key in field), ""
    )
    most = field.get("maximum", field.get("exclusiveMaximum"))
    high = f"{'<=' if 'maximum' in field else '<'} {most:g}" if most is not None and most < 1e9 else ""
    return f" {', '.join(each for each in (low, high) if each)}".rstrip()
