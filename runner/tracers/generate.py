"""C source of the MPI wrappers, from the table of calls.

Every wrapper stands under two names, MPI_X and PMPI_X, and calls the MPI library's PMPI_X, found at run time. The
second name is for Fortran: mpif.h and mpi_f08 are libraries that call the C functions by either name, as the MPI
library and the call want it (Debian's MPICH 4.0 both, its Open MPI 4.1 the second only). So no Fortran interface, with
its own sentinels and logicals, has to be known. Calls that the MPI library makes itself are nested in one that is
recorded, and are not recorded again. (Another tool that stands between the program and PMPI_X is passed by.)
"""

from __future__ import annotations

from typing import Final

from manyscale.runner.readers.raw_trace.mpi_calls import CALLS, NAMES, UNREPEATED, Call

_NAMES_A_LINE: Final = 100
_BUFFERS: Final = ("buf", "cbuf", "sendbuf", "recvbuf", "origin_addr", "result_addr")
_HEAD: Final = """/* Made by runner/tracers/generate.py from the table in readers/raw_trace/mpi_calls.py. */
#include "record.h"

#define SECOND_NAME(name) \\
    extern __typeof__(MPI_##name) PMPI_##name __attribute__((alias("MPI_" #name), visibility("default")))
"""


def wrappers(library: str) -> str:
    """The C source of all wrappers, for "mpich" or "openmpi" (the same today: see the module's docstring).

    Raises ValueError for a library that is not known.
    """
    if library not in ("mpich", "openmpi"):
        raise ValueError(f"unknown MPI library {library!r}; known: mpich, openmpi")
    parts = [_HEAD]
    for number, call in enumerate(CALLS):
        parts.append(_guarded(call.since, _wrapper(call, number, large=False)))
        if call.has_large_counts:
            parts.append(_guarded(4, _wrapper(call, number, large=True)))
    return "\n".join(parts)


def names() -> str:
    """The C source that tells a trace the names of calls by their numbers."""
    lines = ["    static int is_told;", "    if (is_told++) return;"]
    for first in range(0, len(NAMES), _NAMES_A_LINE):
        listed = ", ".join(f'\\"{name}\\"' for name in NAMES[first : first + _NAMES_A_LINE])
        lines.append(f'    ms_define("%s", "{{\\"calls\\": [{listed}]}}");')
    head = [
        '#include "trace.h"',
        "extern const unsigned ms_first_gpu_call MS_HIDDEN;",
        f"const unsigned ms_first_gpu_call = {len(CALLS)};",
        "void ms_define_calls(void) MS_HIDDEN;",
        "void ms_define_calls(void) {",
    ]
    return "\n".join([*head, *lines, "}", ""])


def _guarded(since: int, text: str) -> str:
    return text if since == 3 else f"#if MPI_VERSION >= {since}\n{text}#endif\n"


def _wrapper(call: Call, number: int, *, large: bool) -> str:
    name = call.name + ("_c" if large else "")
    types = [wide if large else narrow for narrow, wide, _ in call.parameters]
    words = [word for *_, word in call.parameters]
    declared = ", ".join(
        f"{kind}{'' if kind.endswith('*') else ' '}{word}" for kind, word in zip(types, words, strict=True)
    )
    passed = ", ".join(words)
    lines = [
        f'__attribute__((visibility("default"))) int {name}({declared or "void"}) {{',
        f"    static __typeof__({name}) *real;",
        f'    if (MS_UNLIKELY(!real)) real = (__typeof__(real))ms_real("P{name}");',
    ]
    if name.startswith(("MPI_Init", "MPI_Session_init")):
        lines.append("    ms_start_thread();")
    lines.append(f"    struct ms_operation *operation = ms_begin({number});")
    lines += [f"    ms_buffer(operation, {word});" for word in words if word in _BUFFERS]
    if call.around:
        wide = "_c" if large else ""
        lines.append(f"    int code = operation ? ms_{call.around}{wide}(operation, real, {passed}) : real({passed});")
    else:
        if "status" in words and call.recipe:
            lines += [
                "    MPI_Status own;",
                "    if (operation && status == MPI_STATUS_IGNORE) status = &own;",
            ]
        lines.append(f"    int code = real({passed});")
        lines += _recorded(call, words)
    lines += [
        f"    ms_end(operation, {int(call.name not in UNREPEATED)});",
        "    return code;",
        "}",
        f"SECOND_NAME({name[4:]});",
        "",
    ]
    return "\n".join(lines)


def _recorded(call: Call, words: list[str]) -> list[str]:
    if not call.recipe:
        return ["    if (operation) ms_returned(operation, code);"]
    lines = ["    if (operation && ms_returned(operation, code)) {", "        ms_lock();"]
    places = [word for word in ("sendbuf", "recvbuf") if word in words]
    if places:
        asked = " || ".join(f"{word} == MPI_IN_PLACE" for word in places)
        lines.append(f"        if ({asked}) operation->flags |= MS_IN_PLACE;")
    for step in call.recipe.split("; "):
        function, _, rest = step.partition("(")
        lines.append(f"        ms_{function}(operation{', ' if rest != ')' else ''}{rest};")
    return [*lines, "        ms_unlock();", "    }"]
