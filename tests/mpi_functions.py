"""The end of docs/reference/mpi.md, made from the table of MPI functions.

``python tests/mpi_functions.py`` prints it.
"""

from __future__ import annotations

import textwrap

from manyscale.runner.readers.raw_trace.mpi_standard import Role, roles


def lists() -> str:
    """A paragraph for each role; the tool interface, all of it local, by its prefix."""
    parts = []
    for role in Role:
        names = sorted(name.removeprefix("MPI_") for name in roles() if roles()[name] is role)
        text = ", ".join(["T_*"] * (role is Role.local) + [name for name in names if not name.startswith("T_")])
        parts.append("\n".join([f"**{role.capitalize()}** ({len(names)}):", *textwrap.wrap(text, 118)]))
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    print(lists(), end="")
