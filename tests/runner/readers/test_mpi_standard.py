"""The table of all MPI functions: what the standard has, and what the headers of the installed libraries have."""

from __future__ import annotations

import re
from pathlib import Path

import mpi_functions
import pytest

from manyscale.runner.readers.raw_trace.mpi_calls import CALLS
from manyscale.runner.readers.raw_trace.mpi_standard import Role, role_of, roles

pytestmark = pytest.mark.contract

HEADERS = {
    "mpich": Path("/usr/include/x86_64-linux-gnu/mpich"),
    "openmpi": Path("/usr/lib/x86_64-linux-gnu/openmpi/include"),
}


@pytest.mark.parametrize("library", HEADERS)
def test_every_function_of_a_header_has_a_role(library: str) -> None:
    folder = HEADERS[library]
    if not folder.is_dir():
        pytest.skip(f"the headers of {library} are not installed")
    text = "".join(path.read_text() for path in sorted(folder.glob("*.h")))
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    declared = set(re.findall(r"\b(?:int|double|MPI_\w+)\s+(MPI_[A-Z][a-z_]\w*)\s*\(", text))
    assert len(declared) > 380  # MPI 3.1 has some 400 functions
    assert [name for name in sorted(declared) if role_of(name) is None] == []


def test_the_documented_lists_are_those_of_the_table() -> None:
    page = Path(__file__).parents[3] / "docs" / "reference" / "mpi.md"
    assert page.read_text().endswith("\n\n" + mpi_functions.lists())


def test_roles() -> None:
    """Some of each, as the standard describes them; every recorded call has one."""
    assert role_of("MPI_Send_c") is role_of("MPI_Ibcast") is role_of("MPI_Pready") is Role.replayed
    assert role_of("MPI_Comm_dup") is role_of("MPI_File_write_all") is Role.synchronising  # 7.4.2, 14.4.2
    assert role_of("MPI_Comm_rank") is role_of("MPI_Wtime") is role_of("MPI_T_cvar_read") is Role.local
    assert role_of("MPI_Comm_spawn") is Role.refused
    assert role_of("MPI_Status_get_source") is Role.local  # new in 4.1
    assert role_of("MPIX_Comm_agree") is role_of("main") is None
    assert {call.name for call in CALLS} <= set(roles())
    # what is recorded and of no effect is not taken for replayed
    silent = {call.name for call in CALLS if not call.recipe and not call.around}
    assert {name for name in silent if roles()[name] is Role.replayed} == {"MPI_Finalize"}
