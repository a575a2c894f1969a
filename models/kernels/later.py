"""Kernels as they stand in modules until the first of them is called: then Numba is loaded.

Loading Numba and declaring all kernels takes a quarter of a CPU second, which commands that reuse results, list or
compare need not spend. What a decorator of this package gives back is a ``Later``; when something first calls one, all
of them are made, and each takes its Later's place in every module that has it, so that kernels find each other.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

_lock = threading.RLock()
_actions: list[Callable[[], None]] = []
_is_loaded = False


class Later:
    """A function of Numba's that is made when it is needed."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._made: Any = None

    def made(self) -> Any:
        with _lock:
            _load()
            if self._made is None:
                self._made = self._make()
            return self._made

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self.made()(*arguments, **named)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.made(), name)

    @property
    def _numba_type_(self) -> Any:  # in compiled code, where it is no module's: an element of a tuple
        from numba import typeof

        return typeof(self.made())

    def __reduce__(self) -> Any:
        return self.made().__reduce__()


def later(make: Callable[[], Any]) -> Any:
    """What ``make`` makes, at once if Numba is loaded."""
    with _lock:
        return make() if _is_loaded else Later(make)


def when_loaded(action: Callable[[], None]) -> None:
    """Do this once kernels are needed, before the first is made."""
    with _lock:
        if _is_loaded:
            action()
        else:
            _actions.append(action)


def _load() -> None:
    global _is_loaded
    if _is_loaded:
        return
    _is_loaded = True  # from here on nothing is put off
    for action in _actions:
        action()
    for module in list(sys.modules.values()):
        namespace = getattr(module, "__dict__", {})
        for name, value in list(namespace.items()):
            if type(value) is Later:
                namespace[name] = value.made()
