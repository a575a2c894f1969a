"""Memory traces as NumPy archives."""

from __future__ import annotations

import gc
import os
import pickle
from pathlib import Path

import numpy as np
import pytest
from told import told

from manyscale.models.workload import Workload
from manyscale.runner.errors import UserError
from manyscale.runner.readers import sancov_npz

DATA = Path(__file__).parents[2] / "data" / "detail"
SHARED = os.environ.get("MANYSCALE_DATA")


def block(number: int) -> int:
    return 2 << 62 | number


def load(address: int, size_log2: int = 3) -> int:
    return size_log2 << 56 | address


def store(address: int, size_log2: int = 3) -> int:
    return 1 << 62 | size_log2 << 56 | address


def read(folder: Path, **arrays: np.ndarray) -> Workload:
    path = folder / "run.npz"
    np.savez(path, **arrays)
    assert sancov_npz.can_read(path)
    return sancov_npz.read(path)


def coverage(folder: Path, *words: int) -> Workload:
    return read(folder, rec=np.array(words, np.uint64))


def stream(workload: Workload) -> tuple[list[int], list[int]]:
    assert workload.detail is not None
    batches = list(workload.detail.batches(1 << 22))
    return (
        np.concatenate([batch.block_ids for batch in batches]).tolist(),
        np.concatenate([batch.addresses for batch in batches]).tolist(),
    )


def accesses(workload: Workload) -> list[tuple[int, int, bool, int]]:
    return [tuple(row.values()) for row in workload.tables["block_accesses"].to_pylist()]


def test_accesses_belong_to_the_block_before_them(tmp_path):
    workload = coverage(tmp_path, block(6), load(0x10), store(0x18, 2), block(9), block(6), load(0x20), store(0x28, 2))
    assert stream(workload) == ([0, 1, 0], [0x10, 0x18, 0x20, 0x28])
    assert accesses(workload) == [(0, -1, False, 8), (0, -1, True, 4)]
    assert workload.column("blocks", "offset").tolist() == [6, 9]
    assert workload.column("blocks", "num_instructions").tolist() == [-1, -1]


def test_a_block_with_other_accesses_is_another_block(tmp_path):
    """What a caller does behind a call counts as its callee's."""
    workload = coverage(tmp_path, block(6), load(0x10), block(6), load(0x10), store(0x20), block(6), load(0x10))
    assert stream(workload)[0] == [0, 1, 0]
    assert workload.column("blocks", "offset").tolist() == [6, 6]


def test_accesses_before_the_first_block_are_told(tmp_path):
    workload = coverage(tmp_path, load(0x10), block(6), load(0x18))
    assert stream(workload) == ([0], [0x18])
    assert told(workload.notes) == ("1 accesses stand before the first block: left out",)


@pytest.mark.parametrize(
    ("words", "what"),
    [
        ((block(1), 3 << 62), r"rec\[1\] .* neither load, store nor block"),
        ((block(1), load(0x10, 40)), r"rec\[1\] .* 2\^40 bytes"),
        ((load(0x10),), "no blocks"),
        ((), "is empty"),
    ],
)
def test_wrong_records_are_named(tmp_path, words, what):
    with pytest.raises(UserError, match=what):
        coverage(tmp_path, *words)


def test_accesses_without_instructions(tmp_path):
    kinds, sizes = np.array([1, 2, 3, 1], np.uint8), np.array([8, 4, 8, 8], np.uint8)
    workload = read(tmp_path, kind=kinds, addr=np.array([16, 24, 32, 40], np.uint64), size=sizes)
    assert stream(workload) == ([0, 1, 2, 0], [16, 24, 32, 32, 40])
    assert accesses(workload) == [(0, -1, False, 8), (1, -1, True, 4), (2, -1, False, 8), (2, -1, True, 8)]


def test_a_kind_that_is_not_known_is_named(tmp_path):
    one = np.ones(2, np.uint8)
    with pytest.raises(UserError, match="record 1 has kind 4"):
        read(tmp_path, kind=np.array([1, 4], np.uint8), addr=one.astype(np.uint64), size=one)


def test_arrays_of_different_lengths_are_refused(tmp_path):
    with pytest.raises(UserError, match="as many as of the others"):
        read(tmp_path, kind=np.ones(2, np.uint8), addr=np.ones(3, np.uint64), size=np.ones(2, np.uint8))


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"T:1:4\n"])
def test_other_files_are_not_taken_for_traces(tmp_path, content):
    path = tmp_path / "other.npz"
    path.write_bytes(content)
    assert not sancov_npz.can_read(path)


def test_another_archive_is_not_taken_for_a_trace(tmp_path):
    np.savez(tmp_path / "other.npz", x=np.ones(3))
    assert not sancov_npz.can_read(tmp_path / "other.npz")


def test_a_damaged_archive_is_one_line(tmp_path):
    content = bytearray((DATA / "bs16_clangO1_sancov.npz").read_bytes())
    content[120] ^= 0xFF
    (tmp_path / "run.npz").write_bytes(content)
    with pytest.raises(UserError, match=r"run\.npz: the archive is damaged"):
        sancov_npz.read(tmp_path / "run.npz")


def test_the_stream_s_folder_goes_with_the_workload(tmp_path):
    workload = coverage(tmp_path, block(6), load(0x10))
    assert workload.detail is not None
    folder = workload.detail.path.parent  # type: ignore[attr-defined]
    assert folder.is_dir()
    again = pickle.loads(pickle.dumps(workload.detail))
    assert again.digest == workload.detail.digest
    del again
    gc.collect()
    assert folder.is_dir()
    del workload
    gc.collect()
    assert not folder.exists()


@pytest.mark.golden
def test_black_scholes():
    """112 accesses of 16 options: libm was not rebuilt."""
    path = DATA / "bs16_clangO1_sancov.npz"
    workload = sancov_npz.read(path)
    records = np.load(path)["rec"]
    assert len(stream(workload)[1]) == 112
    assert (
        workload.column("blocks", "offset")[stream(workload)[0]].tolist()
        == (records[records >> np.uint64(62) == 2] & np.uint64((1 << 56) - 1)).tolist()
    )


@pytest.mark.golden
@pytest.mark.skipif(SHARED is None, reason="needs the collection of traces (MANYSCALE_DATA)")
def test_a_whole_program():
    """2,058,016 records of lackey, 25 of them modified operands."""
    workload = sancov_npz.read(Path(SHARED or "") / "mem" / "mm100_full_lackey.npz")
    segment = workload.tables["segments"].to_pylist()[0]
    assert (segment["num_blocks"], segment["num_accesses"]) == (2_058_016, 2_058_041)


def test_no_other_test_data_is_taken_for_one():
    files = [path for path in DATA.parent.rglob("*") if path.is_file()]
    assert {path.name for path in files if sancov_npz.can_read(path)} == {path.name for path in DATA.glob("*.npz")}
