"""Valgrind lackey's traces: how blocks are cut out of a stream of instructions."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from told import told

from manyscale.models.workload import Workload
from manyscale.runner.errors import UserError
from manyscale.runner.readers import lackey

DATA = Path(__file__).parents[2] / "data" / "detail"
SHARED = os.environ.get("MANYSCALE_DATA")


def read(folder: Path, text: str, **options: int) -> Workload:
    path = folder / "run.lk"
    path.write_text(text)
    return lackey.read(path, **options)


def stream(workload: Workload) -> tuple[list[int], list[int]]:
    """Addresses of the blocks executed, and the addresses accessed."""
    assert workload.detail is not None
    batches = list(workload.detail.batches(1 << 20))
    blocks = np.concatenate([batch.block_ids for batch in batches])
    return (
        workload.column("blocks", "offset")[blocks].tolist(),
        np.concatenate([batch.addresses for batch in batches]).tolist(),
    )


def accesses(workload: Workload) -> list[tuple[int, int, bool, int]]:
    return [tuple(row.values()) for row in workload.tables["block_accesses"].to_pylist()]


def instructions(*addresses: int) -> str:
    return "".join(f"I  {address:08x},1\n" for address in addresses)


def test_a_run_of_instructions_is_a_block(tmp_path):
    workload = read(tmp_path, "I  00000100,5\n L 00002000,8\nI  00000105,1\n S 00003000,4\n")
    assert stream(workload) == ([0x100], [0x2000, 0x3000])
    assert accesses(workload) == [(0, 0, False, 8), (0, 1, True, 4)]
    assert workload.column("blocks", "num_instructions").tolist() == [2]
    segment = workload.tables["segments"].to_pylist()[0]
    assert (segment["num_blocks"], segment["num_accesses"], segment["num_instructions"]) == (1, 2, 2)
    assert segment["operation_id"] == 0
    assert workload.num_operations == 1


def test_what_is_modified_is_loaded_and_stored(tmp_path):
    workload = read(tmp_path, "I  00000100,5\n M 00002000,8\n")
    assert accesses(workload) == [(0, 0, False, 8), (0, 0, True, 8)]
    assert stream(workload)[1] == [0x2000, 0x2000]


def test_lanes_of_a_vector_are_one_access(tmp_path):
    lanes = " L 00002000,8\n L 00002008,8\n L 00002010,8\n L 00002018,8\n"
    workload = read(tmp_path, f"I  00000100,5\n{lanes}I  00000105,1\n L 00002020,8\n")
    assert accesses(workload) == [(0, 0, False, 32), (0, 1, False, 8)]


def test_a_block_is_cut_where_control_ever_arrives(tmp_path):
    """A loop entered from above: its first round falls into what later rounds jump to."""
    workload = read(tmp_path, instructions(0, 1, 2, 3, 2, 3, 2, 3, 4))
    assert stream(workload)[0] == [0, 2, 2, 2, 4]
    assert workload.column("blocks", "num_instructions").tolist() == [2, 2, 1]


def test_a_block_is_cut_behind_what_ever_branches(tmp_path):
    """An if without else: taken the first time, not the second."""
    workload = read(tmp_path, instructions(0, 1, 5, 6, 0, 1, 2, 3))
    assert stream(workload)[0] == [0, 5, 0, 2]


def test_a_call_ends_a_block(tmp_path):
    assert stream(read(tmp_path, instructions(0, 1, 0x50, 0x51, 2, 3)))[0] == [0, 0x50, 2]


def test_a_block_with_other_accesses_is_another_block(tmp_path):
    """A conditional move from memory."""
    taken, other = "I  00000000,1\n L 00000900,8\nI  00000001,1\n", "I  00000000,1\nI  00000001,1\n"
    workload = read(tmp_path, taken + other + taken)
    assert stream(workload)[0] == [0, 0, 0]
    assert workload.tables["blocks"].num_rows == 2
    assert accesses(workload) == [(0, 0, False, 8)]


def test_valgrind_s_messages_are_left_out_and_told(tmp_path):
    text = (
        "==12== Lackey, an example Valgrind tool\n==12== \n--12-- note\n### form 0x25\n"
        + instructions(0, 1)
        + "==12== \n"
    )
    workload = read(tmp_path, text)
    assert lackey.can_read(tmp_path / "run.lk")
    assert stream(workload)[0] == [0]
    assert told(workload.notes) == ("5 lines are messages of Valgrind: left out",)


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("hello", "no record"),
        ("= 12 =", "no record"),
        ("== 12 ==", "no record"),
        (" X 00000000,1", "no record"),
        ("I  ,1", "address"),
        ("I  00000000000000000,1", "address"),
        ("I  00000000", "address"),
        ("I  00000000,0", "size"),
        (" L 00000000,99999", "size"),
        (" L 00000000,1 2", "size"),
    ],
)
def test_a_wrong_line_is_named(tmp_path, line, what):
    with pytest.raises(UserError, match=rf"run\.lk:3: .*{what}"):
        read(tmp_path, instructions(0, 1) + line + "\n" + instructions(2))


def test_a_trace_cut_short_is_read_and_told(tmp_path):
    workload = read(tmp_path, instructions(0, 1) + "I  0000")
    assert workload.column("blocks", "num_instructions").tolist() == [2]
    assert "cut short: left out" in told(workload.notes)[0]


def test_accesses_before_the_first_instruction_are_told(tmp_path):
    workload = read(tmp_path, " L 00000100,8\n" + instructions(0))
    assert stream(workload) == ([0], [])
    assert told(workload.notes) == ("1 accesses stand before the first instruction: left out",)


@pytest.mark.parametrize("text", ["", " L 00000100,8\n", "==1== nothing\n"])
def test_a_trace_without_instructions_is_refused(tmp_path, text):
    with pytest.raises(UserError, match="no instructions"):
        read(tmp_path, text)


@pytest.mark.parametrize(
    "text", ["", "T:1:4\n", "a;b 4\n", "0 send 1 5\n", "==1== Memcheck, a memory error detector\n"]
)
def test_other_files_are_not_taken_for_traces(tmp_path, text):
    path = tmp_path / "other"
    path.write_text(text)
    assert not lackey.can_read(path)


def test_no_other_test_data_is_taken_for_a_trace():
    files = [path for path in DATA.parent.rglob("*") if path.is_file()]
    assert {path.name for path in files if lackey.can_read(path)} == {path.name for path in DATA.glob("*.lk.xz")}


class TestFunction:
    """Only what runs from a function's entry (0x50) until it returns: the load of what its call stored."""

    CALL = "I  00000001,5\n S 00008ff8,8\n"
    BODY = "I  00000050,1\n S 00008ff0,8\n"
    NESTED = "I  00000051,5\n S 00008fe8,8\nI  00000070,1\nI  00000071,1\n L 00008fe8,8\n"
    RETURN = "I  00000056,1\n L 00008ff0,8\nI  00000057,1\n L 00008ff8,8\n"
    AROUND = "I  00000000,1\n" + CALL + BODY + NESTED + RETURN + "I  00000006,1\n"

    def test_it_begins_at_the_entry_and_ends_with_the_return(self, tmp_path):
        workload = read(tmp_path, self.AROUND + self.AROUND, entry=0x50)
        blocks, addresses = stream(workload)
        assert blocks == [0x50, 0x70, 0x56] * 2
        assert addresses == [0x8FF0, 0x8FE8, 0x8FE8, 0x8FF0, 0x8FF8] * 2

    def test_recursion_does_not_end_it(self, tmp_path):
        inner = "I  00000051,5\n S 00008fe8,8\n" + "I  00000050,1\n S 00008fe0,8\nI  00000057,1\n L 00008fe8,8\n"
        workload = read(tmp_path, self.CALL + self.BODY + inner + self.RETURN + "I  00000006,1\n", entry=0x50)
        assert stream(workload)[0] == [0x50, 0x51, 0x50, 0x57, 0x56, 0x57]

    def test_one_that_never_ran_is_refused(self, tmp_path):
        with pytest.raises(UserError, match="0x99 was never entered"):
            read(tmp_path, self.AROUND, entry=0x99)


@pytest.mark.parametrize("entry", [None, 0x40184F])
def test_pieces_of_a_file_give_the_same_as_the_whole(entry, monkeypatch):
    path = DATA / "matmul25_O1.lk.xz"
    entry = entry and int(lackey.read(path).column("blocks", "offset")[3])
    whole = lackey.read(path, entry=entry)
    monkeypatch.setattr("manyscale.runner.readers.lackey.reader.CHUNK_BYTES", 997)
    assert lackey.read(path, entry=entry).digest == whole.digest


def test_many_instructions_are_told_apart(tmp_path):
    """More than the tables of code and of blocks hold at first: each instruction a block of its own."""
    addresses = (np.arange(40_000) * 64).tolist()
    workload = read(tmp_path, instructions(*addresses, *addresses))
    assert stream(workload)[0] == addresses * 2
    assert workload.tables["blocks"].num_rows == len(addresses)


@pytest.mark.golden
@pytest.mark.parametrize(
    ("name", "num_records", "num_modified", "num_blocks"),
    [("bs16_O0", 3466, 16, 32), ("bs16_O1", 2168, 0, 26), ("matmul25_O1", 32504, 0, 9)],
)
def test_kernels_of_the_amm_paper(name, num_records, num_modified, num_blocks):
    """Counts of the collection they come from, where a modified operand counts once."""
    assert lackey.can_read(DATA / f"{name}.lk.xz")
    check(lackey.read(DATA / f"{name}.lk.xz"), num_records + num_modified, num_blocks)


@pytest.mark.golden
@pytest.mark.skipif(SHARED is None, reason="needs the collection of traces (MANYSCALE_DATA)")
@pytest.mark.parametrize(
    ("name", "num_records", "num_modified", "num_blocks"),
    [
        ("stream10000_O1", 100_003, 0, 10),
        ("matmul50_O1", 255_004, 0, 8),
        ("bs32_O1", 4354, 0, 26),
        ("stream10000_O0", 300_014, 40_000, 14),
        ("matmul25_O0", 165_110, 16_275, 11),
        ("bs32_O0", 6956, 32, 32),
    ],
)
def test_larger_kernels_of_the_amm_paper(name, num_records, num_modified, num_blocks):
    workload = lackey.read(Path(SHARED or "") / "mem" / f"{name}.lk.xz")
    check(workload, num_records + num_modified, num_blocks)


def check(workload: Workload, num_accesses: int, num_blocks: int) -> None:
    assert workload.tables["segments"]["num_accesses"].to_pylist() == [num_accesses]
    assert workload.tables["blocks"].num_rows == num_blocks
    assert len(np.unique(workload.column("blocks", "offset"))) == num_blocks
    assert workload.notes == ()
