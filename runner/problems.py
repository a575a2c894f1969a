"""Problems of YAML files in one line: file, place, what is wrong, what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from manyscale.runner.errors import UserError


def load_yaml(path: Path) -> Any:
    """A YAML file's content. Raises UserError with file and line."""
    try:
        return yaml.load(path.read_text(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise UserError(f"{path}: is not a text file; a YAML file is expected") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f"{path}:{mark.line + 1}" if mark is not None else str(path)
        raise UserError(f"{place}: is not valid YAML ({getattr(error, 'problem', error)})") from None


def first_problem(error: ValidationError) -> str:
    """The first problem of a pydantic error in one line: key, what is wrong, what to do."""
    problem = error.errors()[0]
    key = ".".join(str(part) for part in problem["loc"])
    message = problem["msg"].removeprefix("Value error, ")
    if problem["type"] == "extra_forbidden":
        message = "unknown key; remove it or mend its spelling"
    elif problem["type"] == "missing":
        message = "this key is missing; add it"
    elif problem["type"] == "literal_error":
        message = f"{problem['input']!r} is not one of {problem['ctx']['expected']}"
    return f"{key}: {message}" if key else message
