"""Traces of Kineto's made by hand: partners of messages, roots of collectives, and clocks of nodes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from kineto_traces import MAIN, Recorded, codes, gpu_rows, host_trace, told

from manyscale.models.workload.gpu_tables import GpuOperationKind
from manyscale.runner.readers import kineto
from manyscale.runner.readers.options import ReadOptions

_US = 1_000_000
_G = GpuOperationKind
COLLECTIVE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*)"
SEND_RECEIVE = "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclWork*)"


def test_messages_of_a_pipeline(tmp_path: Path) -> None:
    """Rank 0 sends activations, rank 1 sends gradients back; a stream waits behind each message until it is done."""
    kinds = (("send", "recv"), ("recv", "send"))
    for rank in range(2):
        made = Recorded(rank, 2)
        for at, pair in enumerate(kinds):
            partner = {"Dst Rank" if pair[rank] == "send" else "Src Rank": 1 - rank}
            made.launch(100 * at + 10, 100 * at + 20 + 5 * rank, 30 - 5 * rank, 20, "ncclDevKernel_SendRecv(x)",
                        **told(pair[rank], 16, **partner))  # fmt: skip
        made.write(tmp_path / f"rank{rank}.json")
    found = kineto.read(tmp_path)
    rows = found.tables["operations"].to_pylist()
    own = [(each["rank"], each["kind"], each["peer"], each["request"], each["completes"]) for each in rows]
    assert [each for each in own if each[1] != "other"] == [
        (0, "isend", 1, 0, None), (0, "waitall", -2, -1, [0]), (0, "irecv", 1, 1, None), (0, "waitall", -2, -1, [1]),
        (1, "irecv", 0, 0, None), (1, "waitall", -2, -1, [0]), (1, "isend", 0, 1, None), (1, "waitall", -2, -1, [1]),
    ]  # fmt: skip
    assert [each["duration_ps"] for each in gpu_rows(found, _G.communication)] == [25 * _US] * 4
    assert [each["bytes"] + each["receive_bytes"] for each in rows if each["kind"] in ("isend", "irecv")] == [64] * 4


def test_messages_whose_partners_are_not_known_take_their_time(tmp_path: Path) -> None:
    made = Recorded(0, 2)
    made.launch(10, 20, 30, 20, "ncclDevKernel_SendRecv(x)", **told("coalesced", 16))
    made.launch(110, 120, 40, 20, "ncclDevKernel_SendRecv(x)", **told("send", 16, **{"Dst Rank": 1}))
    found = kineto.read(made.write(tmp_path / "a.json"))
    assert [(each["kind"], each["duration_ps"]) for each in gpu_rows(found)] == [(0, 30 * _US), (0, 40 * _US)]
    assert codes(found) == ["ranks-missing", "communication-alone"]


def partners(folder: Path) -> list[tuple[int, str, int, int]]:
    """(rank, kind, partner, bytes) of messages."""
    rows = kineto.read(folder).tables["operations"].to_pylist()
    return [
        (each["rank"], each["kind"], each["peer"], each["bytes"] + each["receive_bytes"])
        for each in rows if each["kind"] in ("isend", "irecv")
    ]  # fmt: skip


def test_partners_that_marks_name(tmp_path: Path) -> None:
    """``nccl:send 0->1`` of the world's group; of another group's, where a rank has another number, they are not
    known."""
    for first in (0, 1):
        for place in range(2):
            made = Recorded(first + place, 2 + first)
            shape = {"Input Dims": [[8]], "Input type": ["float"]}
            made.add("user_annotation", ("nccl:send 0->1", "nccl:recv 1<-0")[place], 8, 10, MAIN, **shape)
            made.launch(10, 20, 30, 20, SEND_RECEIVE)
            made.write(tmp_path / f"{first}" / f"rank{first + place}.json")
    assert partners(tmp_path / "0") == [(0, "isend", 1, 32), (1, "irecv", 0, 32)]
    assert partners(tmp_path / "1") == []
    assert "communication-alone" in codes(kineto.read(tmp_path / "1"))


def test_marks_of_groups_in_which_a_rank_has_its_own_number(tmp_path: Path) -> None:
    """Groups of ranks 0 and 2, and 1 and 3: rank 0 is the first of its group, too, and sends nothing to rank 1."""
    for rank in range(4):
        made = Recorded(rank, 4)
        made.add("user_annotation", "nccl:recv 1<-0" if rank > 1 else "nccl:send 0->1", 8, 10, MAIN,
                 **{"Input Dims": [[8]], "Input type": ["float"]})  # fmt: skip
        made.launch(10, 20, 30, 20, SEND_RECEIVE)
        made.write(tmp_path / f"rank{rank}.json")
    assert partners(tmp_path) == []
    assert "communication-alone" in codes(kineto.read(tmp_path))


def test_places_in_a_group_of_which_not_all_ranks_were_traced(tmp_path: Path) -> None:
    """Ranks 0, 2 and 4 of 6, and nobody tells the members: the rank at place 2 is rank 2, not the third that was
    traced."""
    for rank in (0, 2, 4):
        made = Recorded(rank, 6)
        name = {0: "send", 2: "recv", 4: "send"}[rank]
        made.launch(10, 20, 30, 20, SEND_RECEIVE, **told(name, 4, "a", members="", Rank={0: 2, 2: 0, 4: 0}[rank]))
        made.write(tmp_path / f"rank{rank}.json")
    assert partners(tmp_path) == []


@pytest.mark.parametrize("are_world_ranks", [False, True])
def test_partners_are_those_of_the_group(tmp_path: Path, are_world_ranks: bool) -> None:
    """Groups of ranks 0 and 2, and 1 and 3: ``Rank`` is a place in the group, ``Dst Rank`` a rank of the world
    (PyTorch, profiler/util.cpp: saveNcclMeta)."""
    for rank in range(4):
        made = Recorded(rank, 4)
        name = "recv" if rank > 1 else "send"
        partner = {"Src Rank" if rank > 1 else "Dst Rank": (rank + 2) % 4} if are_world_ranks else {}
        made.launch(10, 20, 30, 20, SEND_RECEIVE, **told(
            name, 4, str(rank % 2), f"[{rank % 2}, {rank % 2 + 2}]", Rank=int(rank < 2), **partner))  # fmt: skip
        made.write(tmp_path / f"rank{rank}.json")
    assert partners(tmp_path) == [(0, "isend", 2, 16), (1, "isend", 3, 16), (2, "irecv", 0, 16), (3, "irecv", 1, 16)]


def test_partners_that_host_execution_traces_name(tmp_path: Path) -> None:
    """Of kernels of which only the name is known, SendRecv; their records have the partner's place, and the address of
    the group in their process."""
    for rank in range(2):
        made = Recorded(rank, 2)
        made.launch(10, 20, 30, 20, SEND_RECEIVE)
        made.write(tmp_path / f"rank{rank}.json")
        path = tmp_path / f"et_{rank}.json"
        host_trace(path, (("send", "recv")[rank], 6, 6, [], []), place=1 - rank)
    path.write_text(path.read_text().replace("94594108284448", "94594108284999"))
    assert partners(tmp_path) == [(0, "isend", 1, 24), (1, "irecv", 0, 24)]


@pytest.mark.parametrize("root", [0, 1, None])
def test_roots_are_places_in_their_groups(tmp_path: Path, root: int | None) -> None:
    """Ranks 1 and 3 of 4, which alone were traced, of a group of 0, 1 and 3 (``Rank``: the root's place)."""
    place = {} if root is None else {"Rank": 1 + root}
    for rank in (1, 3):
        made = Recorded(rank, 4)
        of = told("broadcast", 10, members="[0, 1, 3]", **{"Group size": 3}, **place)
        made.launch(10, 20, 30, 20, "ncclDevKernel_Broadcast_RING_LL(x)", **of)
        made.write(tmp_path / f"rank{rank}.json")
    left, kept = (kineto.read(tmp_path, ReadOptions(missing_ranks=choice)) for choice in ("drop", "keep"))
    peers = [[each["peer"] for each in found.tables["operations"].to_pylist() if each["kind"] == "bcast"]
             for found in (left, kept)]  # fmt: skip
    assert peers == [[root or 0] * 2, [1 + (root or 0)] * 2]
    assert ("roots-assumed" in codes(left)) == (root is None)


def test_clocks_of_nodes_are_aligned_on_the_ends_of_collectives(tmp_path: Path) -> None:
    """The second rank's clock is 5 s ahead; its trace begins when the first one's does."""
    for rank, clock in enumerate((0, 5_000_000)):
        made = Recorded(rank, 2)
        made.step(1, clock, 200)
        made.launch(clock + 10, clock + 50, 30, 20, COLLECTIVE, **told("allreduce", 10))
        made.write(tmp_path / f"rank{rank}.json")
    found = kineto.read(tmp_path)
    assert codes(found) == ["clocks-aligned"]
    assert not np.any(found.column("phases", "kind") == 1)


def test_clocks_along_collectives_and_messages(tmp_path: Path) -> None:
    """Clocks of three nodes are 0, 5 s and -3 s ahead. Ranks 0 and 1 have all-reduces in common, ranks 1 and 2 messages
    alone, which end within 4 us of each other. Rank 1 begins 30 us later than rank 0, and rank 2 70 us."""
    noise = (0, 3, -4, 2, 1)
    for rank, (clock, late) in enumerate(((0, 0), (5_000_000, 30), (-3_000_000, 70))):
        made = Recorded(rank, 3)
        made.step(1, clock + late, 900)
        for at, wrong in enumerate(noise):
            begin = clock + 200 + 100 * at + late
            off = 0 if rank == 0 else wrong
            if rank < 2:
                collective = told("allreduce", 10, members="[0, 1]")
                made.launch(begin - 40, begin, 50 - late + off, 20, COLLECTIVE, **collective)
            if rank:
                partner = {"Dst Rank": 2} if rank == 1 else {"Src Rank": 1}
                of = told(("send", "recv")[rank - 1], 8, "1", "[1, 2]", **partner)
                made.launch(begin - 30, begin + 10, 90 - late + (wrong if rank == 2 else 0), 24, SEND_RECEIVE, **of)
        made.write(tmp_path / f"rank{rank}.json")
    found = kineto.read(tmp_path)
    assert codes(found) == ["clocks-aligned"]
    phases = [each for each in found.tables["phases"].to_pylist() if each["kind"] == 1]
    assert [(each["rank"], each["duration_ps"] // _US) for each in phases] == [(1, 29), (2, 68)]


def test_clocks_that_nothing_compares(tmp_path: Path) -> None:
    for rank in range(2):
        made = Recorded(rank, 2)
        made.launch(10 + 7_000 * rank, 20 + 7_000 * rank, 30)
        made.write(tmp_path / f"rank{rank}.json")
    notes = [note for note in kineto.read(tmp_path).notes if note.code == "clocks-apart"]
    assert [(note.count, "7 ms apart" in note.text) for note in notes] == [(2, True)]
