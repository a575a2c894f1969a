"""The reader of ASTRA-sim's and SimAI's text workloads: order of passes, groups, sizes, and errors with their line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from reader_samples import SIMAI

from manyscale.models.workload import Workload
from manyscale.models.workload.gpu_tables import GpuOperationKind as G
from manyscale.runner.errors import UserError
from manyscale.runner.readers import simai
from manyscale.runner.readers.options import ReadOptions

HEAD = "HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 2 ep: 2 pp: 1 all_gpus: 8 checkpoints: 0"


def read(folder: Path, head: str, *rows: str, ranks: int = 0) -> Workload:
    path = folder / "w.txt"
    path.write_text("\n".join((head, str(len(rows)), *rows)))
    assert simai.can_read(path)
    return simai.read(path, ReadOptions(ranks=ranks))


def given(workload: Workload, rank: int = 0) -> list[dict[str, Any]]:
    operations = workload.tables["operations"].to_pylist()
    first = int(workload.rank_offsets[rank])
    return [
        {**row, "kind": G(row["kind"]), "of": operations[first + row["operation_id"]]}
        for row in workload.tables["gpu_operations"].to_pylist() if row["rank"] == rank
    ]  # fmt: skip


def names(workload: Workload) -> list[str]:
    """What the compute stream and collectives of a rank are, in order."""
    kernels = workload.tables["kernels"].column("kernel_name").to_pylist()
    return [
        kernels[row["kernel_id"]] if row["kind"] == G.launch else row["of"]["kind"] for row in given(workload)
        if row["kind"] in (G.launch, G.communication)
    ]  # fmt: skip


def test_passes_are_in_the_order_of_the_training_loop(tmp_path):
    rows = ("a -1 10 ALLREDUCE 64 20 NONE 0 30 ALLGATHER 32 0", "b -1 11 NONE 0 21 ALLREDUCE 64 31 NONE 0 0")
    workload = read(tmp_path, HEAD, *rows)
    assert names(workload) == [
        "a forward", "allreduce", "b forward", "b input gradient", "allreduce", "b weight gradient",
        "a input gradient", "a weight gradient", "allgather",
    ]  # fmt: skip
    rows_of = given(workload)
    # the pass behind a collective waits for it, unless it is of weights
    wait = next(at for at, row in enumerate(rows_of) if row["kind"] == G.wait_event and row["stream"] == 1)
    assert rows_of[wait - 2]["kind"] == G.communication
    assert rows_of[wait + 1]["duration_ps"] == 11_000
    assert [row["kind"] for row in rows_of[-2:]] == [G.communication, G.synchronize_device]
    gather = rows_of[-2]["of"]
    assert (gather["bytes"], gather["receive_bytes"]) == (8, 8)  # 32 bytes of a dp of 4


def test_groups_are_megatron_s(tmp_path):
    row = "a -1 0 ALLREDUCE 8 0 ALLTOALL_EP 8 0 ALLREDUCE_DP_EP 8 0"
    workload = read(tmp_path, HEAD, row)
    members = workload.tables["communicators"].column("members").to_pylist()
    of = {each["communicator_id"]: each["group_name"] for each in workload.tables["groups"].to_pylist()}
    assert [members[at] for at in of if of[at] == "tp"] == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert [members[at] for at in of if of[at] == "ep"] == [[0, 2], [1, 3], [4, 6], [5, 7]]
    assert [members[at] for at in of if of[at] == "dp_ep"] == [[0, 4], [1, 5], [2, 6], [3, 7]]
    plain = read(tmp_path, HEAD, "a -1 0 NONE 0 0 NONE 0 0 ALLREDUCE 8 0").tables["communicators"]
    assert plain.column("members").to_pylist()[1:] == [[0, 2, 4, 6], [1, 3, 5, 7]]  # dp
    for rank in range(8):
        used = [row["of"]["communicator_id"] for row in given(workload, rank) if row["kind"] == G.communication]
        assert all(rank in members[each] for each in used)
        assert [of[each] for each in used] == ["tp", "ep", "dp_ep"]


def test_layers_behind_a_checkpoint_are_done_anew(tmp_path):
    head = "HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 1 all_gpus: 1 checkpoints: 1 0 "
    rows = [f"{name} -1 5 NONE 0 5 NONE 0 0 NONE 0 0" for name in "abc"]
    workload = read(tmp_path, head + "checkpoint_initiates: 1 2", *rows)
    assert names(workload) == [
        "a forward", "b forward", "c forward", "a forward again", "b forward again", "c input gradient",
        "b input gradient", "a input gradient",
    ]  # fmt: skip


def test_plain_collectives_of_as_many_ranks_as_are_said(tmp_path):
    rows = ("m -1 1 NONE 0 1 NONE 0 1 ALLGATHER 4096 1", "m -1 1 NONE 0 1 NONE 0 1 ALLTOALL 4096 1")
    workload = read(tmp_path, "MICRO", *rows, ranks=4)
    assert names(workload) == ["allgather", "update", "alltoall", "update"]
    assert [row["of"]["bytes"] for row in given(workload) if row["kind"] == G.communication] == [1024, 1024]


def test_what_the_text_leaves_open_is_told(tmp_path):
    head = "HYBRID_TRANSFORMER model_parallel_NPU_group: 2 pp: 2 all_gpus: 4 pp_comm 77"
    notes = {each.code: each for each in read(tmp_path, head, "a -1 1 NONE 0 1 NONE 0 1 ALLREDUCE 8 0").notes}
    assert "(77 bytes each)" in notes["pipeline-left-out"].text
    assert notes["collectives-of-one"].count == 1
    assert "head-words-unknown" not in notes
    (note,) = (each for each in read(tmp_path, head + " ga: 2 tensor: 4", "a -1 1 NONE 0 1 NONE 0 1 NONE 0 0").notes
               if each.code == "head-words-unknown")  # fmt: skip
    assert note.text.endswith(": 'tensor:', '4'")


@pytest.mark.parametrize(
    ("head", "row", "reason"),
    [
        ("HYBRID_DLRM", "a -1 1 NONE 0 1 NONE 0 1 NONE 0 0", ":1: of policy HYBRID_DLRM"),
        ("MICRO", "a -1 1 NONE 0 1 NONE 0 1 NONE 0 0", ":1: .* does not say how many GPUs"),
        (HEAD.replace("all_gpus: 8", "all_gpus: 7"), "a -1 1 NONE 0 1 NONE 0 1 NONE 0 0", ":1: 7 GPUs are no whole"),
        (HEAD, "a -1 1 NONE 0 1 NONE 0 1 NONE 0", ":3: 11 words"),
        (HEAD, "a -1 x NONE 0 1 NONE 0 1 NONE 0 0", ":3: a time in ns is 'x'"),
        (HEAD, "a -1 1 ALLSHUFFLE 0 1 NONE 0 1 NONE 0 0", ":3: 'ALLSHUFFLE' is no collective"),
        (HEAD + " checkpoint_initiates: 1 0", "a -1 1 NONE 0 1 NONE 0 1 NONE 0 0", "no checkpoint is before it"),
    ],
)
def test_errors_name_the_line(head, row, reason, tmp_path):
    with pytest.raises(UserError, match=reason):
        read(tmp_path, head, row)


def test_a_file_that_lacks_lines_is_refused(tmp_path):
    (tmp_path / "w.txt").write_text(SIMAI.replace("\n2\n", "\n3\n"))
    with pytest.raises(UserError, match="3 layers are told, and 2 lines"):
        simai.read(tmp_path / "w.txt")
