"""What is to be said of MPI calls that a trace names and that no operation stands for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from manyscale.models.workload.notes import Errs, Note, changes, informs

_ONE_SIDED: Final = (
    "MPI_Put", "MPI_Get", "MPI_Accumulate", "MPI_Get_accumulate", "MPI_Fetch_and_op", "MPI_Compare_and_swap",
    "MPI_Rput", "MPI_Rget", "MPI_Raccumulate", "MPI_Rget_accumulate",
)  # fmt: skip
_WINDOWS_AND_FILES: Final = ("MPI_Win_", "MPI_File_", "MPIO_")  # how their names start
_LOCAL: Final = re.compile(  # calls that wait for nobody, or (probes) whose receive waits in their stead
    r"MPI_((Attr|Buffer|Errhandler|Error|Get|Group|Info|Keyval|Op|Status|T|Type)_\w+|W(time|tick)|Cartdim_get|Graphdims_get|Graph_(get|map|neighbors)\w*"
    r"|Comm_(attach|call|compare|create_(errhandler|keyval)|delete|detach|free|get|group|rank|remote|set|size|test)\w*"
    r"|Cart_(coords|get|map|rank|shift)|Topo_test|Dims_create|Dist_graph_neighbors\w*|(Alloc|Free)_mem|Address"
    r"|Aint_\w+|Init(_thread|ialized)?|Finalized?|Is_thread_main|Query_thread|Pcontrol|Abort|(Un)?[Pp]ack\w*"
    r"|Request_(free|get_status)|Grequest_\w+|Cancel|Test(all|any|some|_cancelled)?|I?m?[Pp]robe|\w+_init)"
)


def notes_on_calls(counts: Mapping[str, int]) -> list[Note]:
    """Notes on calls that are not replayed, ``counts`` of them by name. Whatever may have waited for others takes time
    that is missing."""
    of_memory = [name for name in counts if name in _ONE_SIDED or name.startswith(_WINDOWS_AND_FILES)]
    local = [name for name in counts if name not in of_memory and _LOCAL.fullmatch(name)]
    rest = [name for name in counts if name not in of_memory and name not in local]
    found = []
    if of_memory:
        found.append(calls_left_out("one-sided communication and file access are not replayed", _of(counts, of_memory)))
    if rest:
        found.append(calls_left_out("calls that may wait for other ranks are not replayed", _of(counts, rest)))
    if local:
        text = f"local calls take no part in the replay: {listed(_of(counts, local))}"
        found.append(informs("local-calls", text, count=sum(_of(counts, local).values())))
    return found


def calls_left_out(text: str, counts: Mapping[str, int]) -> Note:
    """The note on calls whose communication is missing, ``counts`` of them by name."""
    return changes("calls-left-out", f"{text}: {listed(counts)}", count=sum(counts.values()), errs=Errs.short)


def listed(counts: Mapping[str, int]) -> str:
    """``MPI_Get 2, MPI_Put 4``: by name."""
    return ", ".join(f"{name} {counts[name]}" for name in sorted(counts))


def _of(counts: Mapping[str, int], names: Iterable[str]) -> dict[str, int]:
    return {name: counts[name] for name in names}
