"""Errors in the words of whoever called: a command line says ``--draws 0``, a program ``draws 0``."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Collection
from typing import Final, ParamSpec, TypeVar

from manyscale.runner.errors import UserError

_P = ParamSpec("_P")
_R = TypeVar("_R")

_OPTION: Final = re.compile(r"(?<![\w-])--([a-z]+(?:-[a-z]+)*)")
_OUTPUT: Final = re.compile(r"(?<![\w-])-o\b(?: DIR)?")
_OTHERWISE: Final = {"cache-size": "caches", "what-if": "what"}  # arguments that are not called as their options


def in_python_words(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """``function``, whose UserErrors name its arguments instead of the options of the command line."""
    known = inspect.signature(function).parameters.keys()

    @functools.wraps(function)
    def called(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return function(*args, **kwargs)
        except UserError as error:
            error.args = (translated(str(error), known),)
            raise

    return called


def translated(text: str, arguments: Collection[str]) -> str:
    """``text`` with options that are ``arguments`` of a function as these are called; others stay as they are."""

    def name(match: re.Match[str]) -> str:
        word = match[1].replace("-", "_")
        names = (word, f"{word}s", _OTHERWISE.get(match[1], word))  # a list of what an option gives one by one
        return next((each for each in names if each in arguments), str(match[0]))

    text = _OPTION.sub(name, text)
    return _OUTPUT.sub("output", text) if "output" in arguments else text
