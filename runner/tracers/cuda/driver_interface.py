"""The part of the driver's replacement that is made of the toolkit's own headers: names of its results, the table in
which ``cuGetProcAddress`` looks for calls by their versions, and an entry for every call that is not there, which
says so and fails."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path
from typing import Final

_INTERFACES: Final = ("cuda.h", "cudaProfiler.h", "cudaGL.h", "cudaEGL.h", "cudaVDPAU.h")
_TYPEDEFS: Final = ("cudaTypedefs.h", "cudaProfilerTypedefs.h")
_DECLARED: Final = re.compile(r"\bCUresult\s+CUDAAPI\s+(cu[A-Z]\w+)\s*\(")
_RENAMED: Final = re.compile(r"#\s*define\s+(cu[A-Z]\w+)\s+(cu[A-Z]\w+)\s*$", re.MULTILINE)
_BY_STREAM: Final = re.compile(r"#\s*define\s+(cu[A-Z]\w+)\s+__CUDA_API_(PTDS|PTSZ)\(\s*(cu[A-Z]\w+)\s*\)")
_VERSIONED: Final = re.compile(r"\bPFN_(cu[A-Z]\w+?)_v(\d+)\)")
_RESULT: Final = re.compile(r"^\s*(CUDA_SUCCESS|CUDA_ERROR_\w+)\s*=\s*(\d+)", re.MULTILINE)
_MOST_FORMS: Final = 6
_HEADER: Final = """// Made of the toolkit's headers.
typedef struct {
    const char *name;  // NULL ends the table
    int version;       // of CUDA, from which on the call has this form
    void *address;
} ProcAddress;
extern const ProcAddress proc_addresses[];
"""


def version_script() -> str:
    """For the linker: the driver's calls, in the library of the runtime."""
    return "libcuda.so.1 { global: cu[A-Z]*; };\n"


def aliases(include: Path) -> dict[str, str]:
    """The names of calls for programs with a default stream for each thread, with those of the calls themselves."""
    found = {f"{name}_{kind.lower()}": name for _, kind, name in _BY_STREAM.findall(_text(include, _INTERFACES))}
    return found | {"cuGetProcAddress_v2_ptsz": "cuGetProcAddress_v2"}


def symbols(include: Path) -> set[str]:
    """All calls by the names under which they are exported, but for the aliases."""
    text = _text(include, _INTERFACES)
    found = set(_DECLARED.findall(text)) | {symbol for _, symbol in _RENAMED.findall(text)}
    return (found | {symbol for _, _, symbol in _BY_STREAM.findall(text)}) - set(aliases(include))


def sources(include: Path) -> dict[str, str]:
    """C files by name. Entries of calls are weak, so that one that is written takes its place."""
    exported = symbols(include)
    results = {int(number): name for name, number in _RESULT.findall((include / "cuda.h").read_text(errors="replace"))}
    lines = [
        "#include <stddef.h>",
        '#include "driver/generated.h"',
        "int refused(const char *name);",
        *(f'__attribute__((weak)) int {symbol}(void) {{ return refused("{symbol}"); }}' for symbol in sorted(exported)),
        "const ProcAddress proc_addresses[] = {",
        *(f'    {{"{name}", {version}, {symbol}}},' for name, version, symbol in _table(include, exported)),
        "    {NULL, 0, NULL},",
        "};",
        "const char *result_name(int result) { switch (result) {",
        *(f'case {number}: return "{name}";' for number, name in sorted(results.items())),
        "} return NULL; }",
    ]
    return {"driver/generated.c": "\n".join(lines) + "\n", "driver/generated.h": _HEADER}


def _table(include: Path, exported: set[str]) -> list[tuple[str, int, str]]:
    """(name, version of CUDA, symbol) of each form of a call: the forms in the order of their versions."""
    versions: dict[str, set[int]] = defaultdict(set)
    for name, version in _VERSIONED.findall(_text(include, _TYPEDEFS)):
        versions[name].add(int(version))
    found = []
    for name, known in sorted(versions.items()):
        forms = [name, *(f"{name}_v{number}" for number in range(2, _MOST_FORMS))]
        there = [form for form in forms if form in exported]
        # of a call whose first forms are gone, its last versions are those of what is left
        found += [(name, version, form) for version, form in zip(sorted(known)[-len(there) :], there, strict=False)]
    return found


def _text(include: Path, names: tuple[str, ...]) -> str:
    paths = [include / name for name in names]
    return "\n".join(path.read_text(errors="replace") for path in paths if path.is_file())
