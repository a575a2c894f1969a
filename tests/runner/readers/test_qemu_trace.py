"""What the QEMU plugin records, read from files that are written here by its description."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard
from told import told

from manyscale.models.workload import PhaseKind, Workload
from manyscale.models.workload.detail_tables import InstructionClass
from manyscale.runner.errors import UserError
from manyscale.runner.readers import qemu_trace

DEFINITIONS, BLOCKS, WORDS, END = range(4)
CODE = {
    "mov": b"\x48\x8b\x07",  # mov rax, [rdi]
    "add": b"\x48\x01\xc8",  # add rax, rcx
    "vector": b"\x0f\x10\x07",  # movups xmm0, [rdi]
    "jump": b"\x75\xfa",  # jne
    "call": b"\xe8\x00\x00\x00\x00",
    "indirect": b"\x41\xff\xd0",  # call r8
    "return": b"\xc3",
}
THE_END = {"end": True, "program": "", "code": 0, "entries": -1, "lost": 0, "other_threads": 0, "stopped": ""}


def block(address: int, *names: str) -> bytes:
    codes = [CODE[name] for name in names]
    return struct.pack("<QII", address, len(codes), sum(map(len, codes))) + bytes(map(len, codes)) + b"".join(codes)


def runs(number: int) -> int:
    return 1 << 63 | number


def access(instruction: int, distance: int, size_log2: int = 3, is_store: bool = False) -> int:
    return distance & (1 << 48) - 1 | size_log2 << 48 | is_store << 51 | instruction << 52


def chunk(kind: int, content: bytes, codec: int = 1) -> bytes:
    stored = zstandard.compress(content) if codec else content
    return struct.pack("<IHHQQ", 0x4B51534D, kind, codec, len(content), len(stored)) + stored


def write(folder: Path, blocks: Sequence[bytes], *words: Sequence[int], codec: int = 1, **end: Any) -> Path:
    path = folder / "x.qemu"
    content = b"MSQEMU1\0" + chunk(BLOCKS, b"".join(blocks), codec)
    content += b"".join(chunk(WORDS, np.array(part, np.uint64).tobytes(), codec) for part in words)
    path.write_bytes(content + chunk(END, json.dumps({**THE_END, **end}).encode() + b"\n", codec))
    return path


def read(folder: Path, blocks: Sequence[bytes], *words: Sequence[int], codec: int = 1, **end: Any) -> Workload:
    return qemu_trace.read(write(folder, blocks, *words, codec=codec, **end))


def stream(workload: Workload) -> tuple[list[int], list[int]]:
    assert workload.detail is not None
    batches = list(workload.detail.batches(1 << 20))
    blocks = np.concatenate([batch.block_ids for batch in batches])
    return (
        workload.column("blocks", "offset")[blocks].tolist(),
        np.concatenate([batch.addresses for batch in batches]).tolist(),
    )


def accesses(workload: Workload) -> list[tuple[int, int, bool, int]]:
    return [tuple(row.values()) for row in workload.tables["block_accesses"].to_pylist()]


@pytest.mark.parametrize("codec", [0, 1])
def test_blocks_and_accesses(tmp_path, codec):
    blocks = [block(0x100, "mov", "add", "jump")]
    words = [[runs(0), access(0, 0x2000)], [runs(0), access(0, 8), runs(0), access(0, -16)]]
    workload = read(tmp_path, blocks, *words, codec=codec)
    assert stream(workload) == ([0x100] * 3, [0x2000, 0x2008, 0x1FF8])
    assert accesses(workload) == [(0, 0, False, 8)]
    assert workload.tables["segments"]["num_instructions"].to_pylist() == [9]
    assert workload.notes == ()


def test_instructions_are_disassembled(tmp_path):
    pytest.importorskip("capstone")
    workload = read(tmp_path, [block(0x100, "mov", "add", "jump")], [runs(0), access(0, 8)])
    assert workload.column("instructions", "instruction_class").tolist() == [
        InstructionClass.move,
        InstructionClass.int_alu,
        InstructionClass.branch,
    ]
    # rdi is register 7, rax 0, rcx 1, the flags 16
    assert workload.tables["instructions"]["sources"].to_pylist() == [[7], [0, 1], [16]]
    assert workload.tables["instructions"]["destinations"].to_pylist() == [[0], [0, 16], []]


def test_blocks_that_overlap_are_cut(tmp_path):
    """A loop entered from above: the first translation holds what the second begins with."""
    blocks = [block(0x100, "add", "mov", "jump"), block(0x103, "mov", "jump")]
    workload = read(tmp_path, blocks, [runs(0), access(1, 0x2000), runs(1), access(0, 0x2008), runs(1), access(0, 8)])
    assert stream(workload) == ([0x100, 0x103, 0x103, 0x103], [0x2000, 0x2008, 0x2010])
    assert workload.column("blocks", "num_instructions").tolist() == [1, 2]
    assert accesses(workload) == [(1, 0, False, 8)]


def test_an_instruction_that_crosses_a_page_is_executed_once(tmp_path):
    """QEMU shows what it read of it, at the end of the block before, too."""
    whole = CODE["vector"] + CODE["jump"]
    begun = CODE["add"] + CODE["vector"][:2]
    blocks = [
        struct.pack("<QII", 0xFFB, 2, 5) + bytes((3, 2)) + begun,
        struct.pack("<QII", 0xFFE, 2, 5) + bytes((3, 2)) + whole,
    ]
    workload = read(tmp_path, blocks, [runs(0), runs(1), access(0, 0x2000, 4)])
    assert stream(workload) == ([0xFFB, 0xFFE], [0x2000])
    assert workload.column("blocks", "num_instructions").tolist() == [1, 2]
    assert workload.tables["segments"]["num_instructions"].to_pylist() == [3]


def test_the_program_is_a_compute_phase_without_time(tmp_path):
    workload = read(tmp_path, [block(0x100, "add")], [runs(0)])
    assert workload.tables["phases"].to_pylist() == [
        {"rank": 0, "operation_id": 0, "kind": PhaseKind.compute, "region_id": -1, "duration_ps": 0}
    ]
    assert workload.column("segments", "operation_id").tolist() == [0]


def test_a_block_with_other_accesses_is_another_block(tmp_path):
    workload = read(tmp_path, [block(0x100, "mov")], [runs(0), access(0, 8), runs(0), runs(0), access(0, 8)])
    assert workload.tables["blocks"].num_rows == 2
    assert stream(workload)[0] == [0x100] * 3


def test_pieces_of_a_vector_are_one_access(tmp_path):
    words = [runs(0), access(0, 0x2000), access(0, 8), access(1, 0x2010), access(1, 64)]
    assert accesses(read(tmp_path, [block(0x100, "vector", "mov")], words)) == [
        (0, 0, False, 16),
        (0, 1, False, 8),
        (0, 1, False, 8),
    ]


def test_code_translated_again_is_the_same_block(tmp_path):
    one = block(0x100, "mov")
    workload = read(tmp_path, [one, one], [runs(0), access(0, 8), runs(1), access(0, 24)])
    assert workload.tables["blocks"].num_rows == 1
    assert stream(workload) == ([0x100, 0x100], [8, 24])


@pytest.mark.parametrize("call", ["call", "indirect"])
def test_what_is_called_is_an_entry(tmp_path, call):
    blocks = [block(0x100, call), block(0x200, "add", "return"), block(0x300, "jump")]
    workload = read(tmp_path, blocks, [runs(0)], [runs(1), runs(2), runs(1)])
    assert workload.tables["blocks"]["is_entry"].to_pylist() == [False, True, False]


def test_a_function_s_trace_begins_with_its_entry(tmp_path):
    workload = read(tmp_path, [block(0x100, "add", "return")], [runs(0)], entries=1)
    assert workload.tables["blocks"]["is_entry"].to_pylist() == [True]


def test_how_the_trace_ended_is_told(tmp_path):
    workload = read(tmp_path, [block(0x100, "mov")], [runs(0)], lost=3, other_threads=4, stopped="the disk is full")
    words = " ".join(told(workload.notes))
    for part in ("the disk is full", "3 accesses", "4 blocks"):
        assert part in words


def test_a_trace_cut_short_is_read_and_told(tmp_path):
    path = write(tmp_path, [block(0x100, "mov")], [runs(0), access(0, 8)])
    path.write_bytes(path.read_bytes()[:-5])
    workload = qemu_trace.read(path)
    assert stream(workload)[1] == [8]
    assert any("killed" in note for note in told(workload.notes))


def test_a_function_that_never_ran_is_refused(tmp_path):
    with pytest.raises(UserError, match="never entered"):
        read(tmp_path, [block(0x100, "mov")], entries=0)


@pytest.mark.parametrize(
    ("words", "what"),
    [
        ([runs(7)], "word 0 names no block"),
        ([access(0, 8)], "word 0 names no block"),
        ([runs(0), access(5, 8)], "word 1 is of no instruction"),
    ],
)
def test_words_that_contradict_the_blocks_are_refused(tmp_path, words, what):
    with pytest.raises(UserError, match=what):
        read(tmp_path, [block(0x100, "mov")], words)


def test_a_damaged_chunk_is_refused(tmp_path):
    path = write(tmp_path, [block(0x100, "mov")], [runs(0), access(0, 8)])
    content = bytearray(path.read_bytes())
    content[8] ^= 1
    path.write_bytes(content)
    with pytest.raises(UserError, match="chunk at byte 8 is damaged"):
        qemu_trace.read(path)


def test_a_block_that_contradicts_itself_is_refused(tmp_path):
    with pytest.raises(UserError, match="block at 0x100 contradicts itself"):
        read(tmp_path, [block(0x100, "mov")[:-1]], [runs(0)])


def test_other_files_are_not_taken_for_traces(tmp_path):
    path = tmp_path / "other"
    path.write_bytes(b"MSTAIL1\0")
    assert not qemu_trace.can_read(path)
    assert qemu_trace.can_read(write(tmp_path, [block(0x100, "mov")], [runs(0)]))
