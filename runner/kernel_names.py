"""Names of kernels as people read them: C++ names are mangled in the traces (Itanium C++ ABI), as linkers see them.

What demangles is ``__cxa_demangle`` of the C++ runtime, the one function that c++filt, debuggers and profilers call,
too. The runtime is there wherever this package runs, since Arrow is linked against it. It needs no further package (the
one in pure Python knows neither lambdas with captures nor newer templates; bindings look for the library by running a
compiler) and starts no process. Where it is missing after all, names stay as they are.
"""

from __future__ import annotations

import ctypes
from functools import cache, lru_cache
from typing import Any, Final

_RUNTIMES: Final = ("libstdc++.so.6", "libc++abi.dylib", "/usr/lib/libc++abi.dylib", "libc++abi.so.1", "libc++.so.1")
_PAIRS: Final = {")": "(", ">": "<", "]": "[", "}": "{"}


@cache
def _runtime() -> tuple[Any, Any] | None:
    """``__cxa_demangle`` and ``free``."""
    for name in _RUNTIMES:
        try:
            demangle = ctypes.CDLL(name).__cxa_demangle
            free = ctypes.CDLL(None).free
        except (OSError, AttributeError):
            continue
        demangle.restype, free.restype = ctypes.c_void_p, None
        demangle.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.POINTER(ctypes.c_int)]
        free.argtypes = [ctypes.c_void_p]
        return demangle, free
    return None


@lru_cache(maxsize=1 << 14)
def demangled(name: str) -> str:
    """``void add<float>(float*, int)`` of ``_Z3addIfEvPT_i``; a name that is not mangled as it is."""
    runtime = _runtime()
    if runtime is None or not name.startswith("_Z") or "\0" in name:
        return name
    demangle, free = runtime
    status = ctypes.c_int()
    found = demangle(name.encode(errors="surrogateescape"), None, None, ctypes.byref(status))
    if not found:
        return name
    try:
        text: str = ctypes.string_at(found).decode(errors="replace")
    finally:
        free(found)
    return text


@lru_cache(maxsize=1 << 14)
def function_name(name: str) -> str:
    """The function alone, without what it returns and takes: ``add<float>``. ``name``: mangled or not."""
    text = demangled(name).strip()
    while (end := text.rpartition(" "))[2] in ("const", "volatile", "&", "&&"):
        text = end[0]
    if text.endswith("]") and (clone := _opening(text, len(text) - 1)) > 0:  # [clone .part.0]
        text = text[:clone].rstrip()
    if text.endswith(")"):
        begin = _opening(text, len(text) - 1)
        if begin > 0 and not text[:begin].endswith("operator"):
            text = text[:begin]
    return text[_first_of_name(text) :] or demangled(name)


def _opening(text: str, end: int) -> int:
    """Where the bracket opens that closes at ``end``; -1: nowhere."""
    depth = 0
    for place in range(end, -1, -1):
        depth += (text[place] == text[end]) - (text[place] == _PAIRS[text[end]])
        if not depth:
            return place
    return -1


def _first_of_name(text: str) -> int:
    """Behind the last space outside of all brackets, at which a returned type ends."""
    if "operator" in text:
        return text.find(" ") + 1 if 0 < text.find(" ") < text.find("operator") else 0
    depth, begin = 0, 0
    for place, letter in enumerate(text):
        if letter in "(<[{":
            depth += 1
        elif letter in _PAIRS:
            depth -= 1
        elif letter == " " and not depth:
            begin = place + 1
    return begin
