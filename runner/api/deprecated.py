"""Names that go: they work for one more release, with a warning that says what to write instead."""

from __future__ import annotations

import functools
import sys
import warnings
from collections.abc import Callable
from typing import ParamSpec, TypeVar

_P = ParamSpec("_P")
_R = TypeVar("_R")


def renames(**former: tuple[str, str]) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Of a function some of whose parameters had other names: former name to (present name, the release in which the
    former one is no longer taken)."""

    def decorate(function: Callable[_P, _R]) -> Callable[_P, _R]:
        @functools.wraps(function)
        def with_former_names(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            for name in former.keys() & kwargs.keys():
                present, release = former[name]
                if present in kwargs:
                    raise TypeError(f"{function.__name__}() got both {present!r} and its former name {name!r}")
                warn(f"{function.__name__}({name}=...)", f"{present}=...", release)
                kwargs[present] = kwargs.pop(name)
            return function(*args, **kwargs)

        return with_former_names

    return decorate


def warn(former: str, present: str, release: str) -> None:
    """DeprecationWarning where a program calls manyscale: what was written, what to write instead, the release in which
    it goes."""
    text = f"{former} goes in manyscale {release}; write {present}"
    level, frame = 1, sys._getframe(0)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "manyscale":
        level, frame = level + 1, frame.f_back
    warnings.warn(text, DeprecationWarning, stacklevel=level)
