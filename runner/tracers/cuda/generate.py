"""The part of the runtime that is made of the toolkit's own headers: names and words of its errors, and an entry for
every call of the documented interface that is not there, which says so and fails."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from manyscale.runner.errors import UserError

_API: Final = "cuda_runtime_api.h"
_INTERFACES: Final = (_API, "cuda_profiler_api.h", "cuda_gl_interop.h", "cuda_egl_interop.h", "cuda_vdpau_interop.h")
_DECLARED: Final = re.compile(r"\bcudaError_t\s+CUDARTAPI(?:_CDECL)?\s+(cuda\w+)\s*\(")
_DEFINED: Final = re.compile(r"^[a-z][\w ]*[ *](_*cuda[A-Z]\w*)\(", re.MULTILINE)
_BY_MACRO: Final = re.compile(r"^(?:ADDS|SETS)\((cuda\w+),", re.MULTILINE)
_RENAMED: Final = re.compile(r"#\s*define\s+(cuda\w+)\s+(cuda\w+)\s*$", re.MULTILINE)
_BY_STREAM: Final = re.compile(r"#\s*define\s+(cuda\w+)\s+__CUDART_API_(PTDS|PTSZ)\(\s*(cuda\w+)\s*\)")
_ERROR: Final = re.compile(r"^\s*(cudaError\w+|cudaSuccess)\s*=\s*(\d+)", re.MULTILINE)
_VERSION: Final = re.compile(r"#\s*define\s+CUDART_VERSION\s+(\d+)")


def version(include: Path) -> int:
    """Of the toolkit whose headers stand in a folder: 13050 for 13.5. Raises UserError."""
    header = include / _API
    try:
        found = _VERSION.search(header.read_text(errors="replace"))
    except OSError as error:
        raise UserError(f"{header}: {error.strerror or error}; pip install 'manyscale[cuda]'") from None
    if found is None:
        raise UserError(f"{header}: has no CUDART_VERSION; it is no header of CUDA's runtime")
    return int(found[1])


def soname(cuda_version: int) -> str:
    """The name of the toolkit's own shared runtime: that of its main version, 11.0 for all of 11."""
    main = cuda_version // 1000
    return "libcudart.so.11.0" if main == 11 else f"libcudart.so.{main}"


def version_script(cuda_version: int) -> str:
    """For the linker: all calls have the library's name as their version."""
    return f"{soname(cuda_version)} {{ global: cuda*; __cuda*; manyscale_*; InitializeInjectionNvtx2; local: *; }};\n"


def aliases(include: Path) -> dict[str, str]:
    """The names of calls for programs with a default stream for each thread, with those of the calls themselves."""
    text = (include / _API).read_text(errors="replace")
    return {f"{name}_{kind.lower()}": name for _, kind, name in _BY_STREAM.findall(text)}


def refused(include: Path, written: Iterable[str]) -> set[str]:
    """Calls that the toolkit's headers declare and ``written``, sources in C, do not define."""
    defined = {name for text in written for name in (*_DEFINED.findall(text), *_BY_MACRO.findall(text))}
    return {name for text in _headers(include) for name in _DECLARED.findall(text)} - defined


def _headers(include: Path) -> list[str]:
    return [(include / name).read_text(errors="replace") for name in _INTERFACES if (include / name).is_file()]


def source(include: Path, written: Iterable[str]) -> str:
    """C for what ``written``, the other sources, do not define."""
    headers = _headers(include)
    exported = {name: name for name in refused(include, written)}
    for text in headers:
        exported |= {name: symbol for name, symbol in _RENAMED.findall(text) if name in exported}
        exported |= {name: symbol for name, _, symbol in _BY_STREAM.findall(text) if name in exported}
    symbols = {symbol: name for name, symbol in exported.items()}
    errors = {int(number): name for name, number in _ERROR.findall((include / "driver_types.h").read_text())}
    lines = [
        "#include <stddef.h>",
        "int not_supported(const char *name);",
        *(f'int {symbol}(void) {{ return not_supported("{name}"); }}' for symbol, name in sorted(symbols.items())),
        *_texts("error_name", errors),
        *_texts("error_words", {number: _words(name) for number, name in errors.items()}),
    ]
    return "\n".join(lines) + "\n"


def _texts(function: str, texts: dict[int, str]) -> list[str]:
    cases = [f'case {number}: return "{text}";' for number, text in sorted(texts.items())]
    return [f"const char *{function}(int error) {{ switch (error) {{", *cases, "} return NULL; }"]


def _words(name: str) -> str:
    """cudaErrorInvalidGraphicsContext: "invalid graphics context"."""
    return " ".join(re.findall(r"[A-Z]+(?![a-z])|[A-Z][a-z0-9]*", name.removeprefix("cudaError"))).lower()
