"""Notes of one kind have one code and one severity, wherever they are raised."""

from __future__ import annotations

import ast
import re
from collections import defaultdict

import note_codes
import pytest

from manyscale.models.workload import Workload, WorkloadError
from manyscale.runner.readers.rank_tables import rank_tables
from manyscale.runner.readers.unreplayed import notes_on_calls


@pytest.mark.contract
def test_the_page_lists_them() -> None:
    assert (note_codes.ROOT / "docs" / "reference" / "notes.md").read_text() == note_codes.page()


@pytest.mark.contract
def test_a_code_has_one_severity() -> None:
    severities: dict[str, set[str]] = defaultdict(set)
    for maker, code, path, line in note_codes.raised():
        place = f"{path}:{line}"
        assert isinstance(code, ast.Constant), f"{place}: the code is no literal"
        assert re.fullmatch(r"[a-z]+(-[a-z]+)*", code.value), f"{place}: {code.value}"
        severities[code.value].add(maker)
    assert len(severities) > 50
    assert {code: makers for code, makers in severities.items() if len(makers) > 1} == {}


@pytest.mark.contract
def test_a_workload_takes_no_text_for_a_note() -> None:
    with pytest.raises(WorkloadError, match="w: 'lost' is no Note"):
        Workload("w", 1, rank_tables(1, {}), ("lost",))  # type: ignore[arg-type]


@pytest.mark.contract
def test_calls_that_may_wait_are_no_local_ones() -> None:
    """MPI 4.1 tells which procedures are local (section 2.4.2)."""
    waiting = ("MPI_Comm_dup", "MPI_Comm_split", "MPI_Cart_create", "MPI_Win_fence", "MPI_Get", "MPI_File_write_all",
               "MPI_Neighbor_alltoall", "MPI_Intercomm_merge", "MPI_Comm_spawn", "MPI_Get_accumulate",
               "MPI_Graph_create", "MPI_Dist_graph_create", "MPI_Comm_idup", "MPI_Psend", "?")  # fmt: skip
    local = ("MPI_Comm_rank", "MPI_Comm_size", "MPI_Wtime", "MPI_Type_commit", "MPI_Get_count", "MPI_Send_init",
             "MPI_Cart_coords", "MPI_Group_incl", "MPI_Op_create", "MPI_Test", "MPI_Iprobe", "MPI_Pack",
             "MPI_Graph_get")  # fmt: skip
    found = notes_on_calls(dict.fromkeys((*waiting, *local), 1))
    assert [(note.code, note.severity) for note in found] == [
        ("calls-left-out", "changes"), ("calls-left-out", "changes"), ("local-calls", "informs")
    ]  # fmt: skip
    assert sum(note.count for note in found[:2]) == len(waiting)
    assert set(found[2].text.split(": ")[1].replace(" 1", "").split(", ")) == set(local)
