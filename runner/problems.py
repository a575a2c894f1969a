"""Problems of YAML files in one line: file, place, what is wrong, what to do."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, get_args

import yaml

from manyscale.models.spelling import closest
from manyscale.runner.errors import UserError, WrongKeyError
from manyscale.runner.plain_files import refuse_special

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError
    from pydantic_core import ErrorDetails

# pydantic adds the type it tried last to the path of a key that may be of several types
_TRIED_TYPE: Final = re.compile(
    r"str|(list|dict|literal|tuple|function-[a-z]+|constrained-[a-z]+)\[.*|constrained-[a-z]+"
)
_KEY_FIRST: Final = re.compile(r"([a-z_]+(?:\.[a-z_]+)*): (.*)", re.DOTALL)


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Refuses a key that stands twice in a mapping; YAML's own loader takes the last without a word."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> Any:
        seen = set()
        for key, _ in node.value:
            name = key.value if isinstance(key, yaml.ScalarNode) else None
            if name is not None and name != "<<" and name in seen:
                raise yaml.constructor.ConstructorError(None, None, f"the key {name!r} stands twice", key.start_mark)
            seen.add(name)
        return super().construct_mapping(node, deep=deep)


def load_yaml(path: Path) -> Any:
    """A YAML file's content. Raises UserError with file and line."""
    try:
        return yaml.load(refuse_special(path).read_text(), Loader=_Loader)
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise UserError(f"{path}: is not a text file; a YAML file is expected") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: a date or number that is none
        mark = getattr(error, "problem_mark", None)
        place = f"{path}:{mark.line + 1}" if mark is not None else str(path)
        what = getattr(error, "problem", None) or getattr(error, "reason", None) or error
        raise UserError(f"{place}: is not valid YAML ({what})") from None


# what pydantic calls an error of a type, in words
_EXPECTED: Final = {
    "int_type": "a whole number", "int_parsing": "a whole number", "int_from_float": "a whole number",
    "int_parsing_size": "a whole number", "float_type": "a number", "float_parsing": "a number",
    "finite_number": "a finite number", "bool_type": "true or false", "bool_parsing": "true or false",
    "string_type": "a text", "list_type": "a list", "tuple_type": "a list", "set_type": "a list",
    "iterable_type": "a list", "dict_type": "a mapping of keys", "mapping_type": "a mapping of keys",
    "model_type": "a mapping of keys", "model_attributes_type": "a mapping of keys",
    "is_instance_of": "a mapping of keys", "none_required": "empty", "path_type": "a path",
}  # fmt: skip
_LONGEST_SHOWN: Final = 60  # characters of a value


def wrong_key(error: ValidationError, kind: type[BaseModel], place: str, key: str = "") -> WrongKeyError:
    """The first problem of pydantic's, of a ``kind`` that stands in ``place`` under ``key``, as one line."""
    inner, message = _first(error, kind)
    return WrongKeyError(place, ".".join(part for part in (key, inner) if part), message)


def first_problem(error: ValidationError, kind: type[BaseModel]) -> str:
    """The same without a place: key, what is wrong, what to do."""
    inner, message = _first(error, kind)
    return f"{inner}: {message}" if inner else message


def _first(error: ValidationError, kind: type[BaseModel]) -> tuple[str, str]:
    problems = [(_key(problem["loc"]), problem) for problem in error.errors()]
    key = problems[0][0]
    mine = [problem for each, problem in problems if each == key]  # several where a key may be of several types
    nouns = list(dict.fromkeys(_EXPECTED[each["type"]] for each in mine if each["type"] in _EXPECTED))
    telling = next((each for each in mine if each["type"] not in _EXPECTED), None)
    if telling is None:
        return key, f"{_shown(mine[0]['input'])} is not {' or '.join(nouns)}"
    message = _message(telling, kind)
    if not key and (named := _KEY_FIRST.fullmatch(message)):  # a check of all keys says itself which it is about
        return named[1], named[2]
    return key, message


def _key(loc: Sequence[int | str]) -> str:
    return ".".join(str(part) for part in loc if not _TRIED_TYPE.fullmatch(str(part)))


def _message(problem: ErrorDetails, kind: type[BaseModel]) -> str:
    shown, context = _shown(problem["input"]), problem.get("ctx", {})
    match problem["type"]:
        case "extra_forbidden":
            near = closest(problem["loc"][-1], _known_keys(kind, problem["loc"][:-1]))
            mend = "remove it or mend its spelling" if near is None else f"did you mean {near!r}?"
            return f"unknown key; {mend}"
        case "missing":
            return "this key is missing; add it"
        case "literal_error" | "enum":
            near = closest(problem["input"], re.findall(r"'([^']*)'", context["expected"]))
            return f"{shown} is not one of {context['expected']}" + (
                "" if near is None else f"; did you mean {near!r}?"
            )
        case "greater_than":
            return f"{shown} is not above {context['gt']}"
        case "greater_than_equal":
            return f"{shown} is below {context['ge']}, the least that it may be"
        case "less_than":
            return f"{shown} is not below {context['lt']}"
        case "less_than_equal":
            return f"{shown} is above {context['le']}, the most that it may be"
        case "too_short" | "string_too_short":
            return f"{shown} is too short; at least {context['min_length']} must stand here"
        case "too_long" | "string_too_long":
            return f"{shown} is too long; at most {context['max_length']} may stand here"
        case "string_pattern_mismatch":
            return f"{shown} does not have the form {context['pattern']}"
        case "value_error" | "assertion_error":
            return str(context["error"])
    text = problem["msg"].removeprefix("Value error, ")
    return text.replace("Input should be ", f"{shown} is not ").replace("Input should ", f"{shown} should ")


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]} ..."


def _known_keys(kind: type[BaseModel], path: Sequence[int | str]) -> list[str]:
    """The keys that may stand under ``path`` of a mapping that is to be a ``kind``."""
    here = [kind]
    for part in path:
        fields = [field for each in here for name, field in each.model_fields.items() if part in (name, field.alias)]
        if fields:  # else the number of a list's element, a free key of a mapping, or a type that was tried
            here = [inner for field in fields for inner in _models_in(field.annotation)]
    return [field.alias or name for each in here for name, field in each.model_fields.items()]


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    from pydantic import BaseModel

    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _models_in(inner)
