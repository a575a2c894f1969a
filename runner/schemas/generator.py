"""How pydantic's models become JSON schemas here: fields described by the text below them, quantities with a unit."""

from __future__ import annotations

import ast
import inspect
import sys
from functools import cache
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaWarningKind

Schema = dict[str, Any]
# base units in which fields keep what is written with a unit of any size
_BASE_UNIT: Final = {
    "time in s": "ps", "size in B": "B", "rate in B/s": "B/s", "frequency in Hz": "Hz", "count in cycles": "cycles",
    "rate in flop/s": "flop/s",
}  # fmt: skip


class Generator(GenerateJsonSchema):
    """Adds to each field its description, and to each model the module that defines it (``x-source``)."""

    def model_schema(self, schema: Any) -> Schema:
        """The schema of one model."""
        made: Schema = super().model_schema(schema)
        model: type[BaseModel] = schema["cls"]
        texts = field_texts(model)
        made["x-source"] = source_of(model)
        if model.__doc__:
            made["description"] = " ".join(inspect.cleandoc(model.__doc__).replace("``", "`").split())
        for name, field in model.model_fields.items():
            found = made["properties"].get(field.alias or name)
            if found is None:
                continue
            found.pop("title", None)
            if name in texts:
                found["description"] = texts[name]
            _write_default(found)
        return made

    def emit_warning(self, kind: JsonSchemaWarningKind, detail: str) -> None:
        """Defaults that JSON cannot say are left out, as ``_write_default`` leaves out those that are models."""


def _write_default(field: Schema) -> None:
    """A default as a file would say it: with its unit; what is a model, or nothing at all, is left out."""
    default = field.get("default")
    if isinstance(default, dict) or ("default" in field and default in (None, [], "")):
        del field["default"]
        return
    dimensions = [each["x-dimension"] for each in (field, *field.get("anyOf", ())) if "x-dimension" in each]
    if dimensions and isinstance(default, int | float):
        field["default"] = _with_unit(default, dimensions[0])


def _with_unit(value: float, dimension: str) -> str:
    if dimension == "rate in B/s":  # kept as picoseconds per byte
        return f"{1e12 / value:g} B/s" if value else "inf B/s"
    return f"{value:g} {_BASE_UNIT[dimension]}"


def source_of(model: type[BaseModel]) -> str:
    """The module of a model, as a path in the repository."""
    module = model.__module__.removeprefix("manyscale.").replace(".", "/")
    return f"{module}/__init__.py" if hasattr(sys.modules[model.__module__], "__path__") else f"{module}.py"


def field_texts(model: type[BaseModel]) -> dict[str, str]:
    """The text that stands below each field, of the model or of a class that it is derived from."""
    texts: dict[str, str] = {}
    for each in reversed(model.__mro__):
        if each is not BaseModel and issubclass(each, BaseModel):
            texts |= _module_texts(each.__module__).get(each.__name__, {})
    return texts


@cache
def _module_texts(module: str) -> dict[str, dict[str, str]]:
    """Class to field to text, of a module's source."""
    file = getattr(sys.modules.get(module), "__file__", None)
    if file is None:
        return {}
    found: dict[str, dict[str, str]] = {}
    for node in ast.parse(Path(file).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef):
            found[node.name] = dict(_texts_of(node))
    return found


def _texts_of(node: ast.ClassDef) -> list[tuple[str, str]]:
    pairs = zip(node.body, node.body[1:], strict=False)
    return [
        (field.target.id, " ".join(text.value.value.split()))
        for field, text in pairs
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant) and isinstance(text.value.value, str)
    ]  # fmt: skip
