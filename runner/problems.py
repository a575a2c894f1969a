"""Problems of YAML files in one line: file, place, what is wrong, what to do."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml

from manyscale.runner.errors import UserError
from manyscale.runner.plain_files import refuse_special

if TYPE_CHECKING:
    from pydantic import ValidationError

# pydantic adds the type it tried last to the path of a key that may be of several types
_TRIED_TYPE: Final = re.compile(r"str|(list|dict|literal)\[.*")


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


def first_problem(error: ValidationError) -> str:
    """The first problem of a pydantic error in one line: key, what is wrong, what to do."""
    problem = error.errors()[0]
    key = ".".join(str(part) for part in problem["loc"] if not _TRIED_TYPE.fullmatch(str(part)))
    message = problem["msg"].removeprefix("Value error, ")
    if problem["type"] == "extra_forbidden":
        message = "unknown key; remove it or mend its spelling"
    elif problem["type"] == "missing":
        message = "this key is missing; add it"
    elif problem["type"] == "literal_error":
        message = f"{problem['input']!r} is not one of {problem['ctx']['expected']}"
    return f"{key}: {message}" if key else message
