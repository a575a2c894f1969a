"""The detailed level's stream on disk: what is written is read back, however it is cut up, and damage is named."""

from __future__ import annotations

import os
import pickle
import time
from importlib.machinery import SourceFileLoader
from pathlib import Path

import numpy as np
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from manyscale.runner.errors import UserError
from manyscale.runner.readers.stores import detail_store
from manyscale.runner.readers.stores.detail_store import DetailStore, DetailWriter, pack, unpack

DATA = os.environ.get("MANYSCALE_DATA")
COUNTS = np.array([0, 1, 3, 70, 2, 0, 5, 64], np.int32)  # accesses of each block that is made up here


def stream(seed: int, num_executions: int, spread: int = 20) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Executions with addresses that are strides at times, and anything at others."""
    random = np.random.default_rng(seed)
    blocks = random.integers(0, len(COUNTS), num_executions).astype(np.int32)
    counts = COUNTS[blocks]
    total = int(counts.sum())
    addresses = random.integers(0, 1 << spread, total).astype(np.uint64)
    addresses[: total // 2] = np.arange(total // 2) * 8
    return blocks, counts, addresses


def write(path: Path, blocks, counts, addresses, ends) -> DetailStore:
    writer = DetailWriter(path)
    offsets = np.concatenate(([0], np.cumsum(counts)))
    first = 0
    for index, end in enumerate([*ends, len(blocks)]):
        writer.add(blocks[first:end], counts[first:end], addresses[offsets[first] : offsets[end]])
        writer.end_segment(1, 0, index, 2 * index, 3 * index, 4 * index)
        first = end
    return writer.close()[1]


@st.composite
def streams(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    counts = np.array(draw(st.lists(st.integers(0, 70), min_size=1, max_size=6)), np.int32)
    blocks = np.array(draw(st.lists(st.integers(0, len(counts) - 1), max_size=60)), np.int32)
    total = int(counts[blocks].sum())
    values = st.one_of(st.integers(0, 2**64 - 1), st.integers(0, 300), st.integers(2**46, 2**46 + 70000))
    few = draw(st.lists(values, min_size=1, max_size=40))
    return blocks, counts[blocks], np.resize(np.array(few, np.uint64), total)


@pytest.mark.property
@settings(max_examples=200, deadline=None)
@given(streams())
def test_columns_are_unpacked_as_they_were(made):
    blocks, counts, addresses = made
    local = np.full(6, -1, np.int32)
    again = unpack(pack(blocks, counts, addresses, local))
    assert again is not None
    assert np.array_equal(again[0], blocks)
    assert np.array_equal(again[1], addresses)
    assert (local == -1).all()


@pytest.mark.property
@settings(max_examples=40, deadline=None)
@given(st.integers(0, 5), st.lists(st.integers(0, 300), max_size=8), st.integers(1, 2000), st.data())
def test_segments_come_back_from_whatever_chunks(tmp_path_factory, seed, cuts, chunk_size, data):
    path = tmp_path_factory.mktemp("store") / "detail"
    made = stream(seed, 300)
    ends = sorted(cuts)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(detail_store, "CHUNK_SIZE", max(chunk_size, 70))
        store = write(path, *made, ends)
    blocks, counts, addresses = made
    offsets = np.concatenate(([0], np.cumsum(counts)))
    bounds = [0, *ends, 300]
    first = data.draw(st.integers(0, len(ends)))
    end = data.draw(st.integers(first, len(ends) + 1))
    batch = store.read(first, end)
    assert np.array_equal(batch.block_ids, blocks[bounds[first] : bounds[end]])
    assert np.array_equal(batch.addresses, addresses[offsets[bounds[first]] : offsets[bounds[end]]])
    assert batch.block_offsets.tolist() == [bound - bounds[first] for bound in bounds[first : end + 1]]
    most = data.draw(st.integers(0, 3000))
    parts = list(store.batches(most))
    assert np.array_equal(np.concatenate([part.addresses for part in parts]), addresses)
    assert np.array_equal(np.concatenate([part.block_ids for part in parts]), blocks)
    assert all(len(part.addresses) <= most or len(part.block_offsets) == 2 for part in parts)


@pytest.mark.property
@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.lists(st.integers(0, 300), max_size=6), st.data())
def test_any_executions_are_read_wherever_segments_and_chunks_end(tmp_path_factory, seed, cuts, data):
    blocks, counts, addresses = stream(seed, 300)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(detail_store, "CHUNK_SIZE", data.draw(st.sampled_from([70, 100, 1000])))  # blocks make up to 70
        store = write(tmp_path_factory.mktemp("store") / "s", blocks, counts, addresses, sorted(cuts))
    first = data.draw(st.integers(0, len(blocks)))
    end = data.draw(st.integers(first, len(blocks)))
    batch = store.read_executions(first, end)
    offsets = np.concatenate(([0], np.cumsum(counts)))
    assert np.array_equal(batch.block_ids, blocks[first:end])
    assert np.array_equal(batch.addresses, addresses[offsets[first] : offsets[end]])
    ends = np.array([0, *sorted(cuts), len(blocks)])
    for index, (low, high) in enumerate(zip(batch.block_offsets[:-1], batch.block_offsets[1:], strict=True)):
        segment = batch.first_segment + index
        assert first + low == np.clip(ends[segment], first, end)
        assert first + high == np.clip(ends[segment + 1], first, end)
    assert np.array_equal(batch.access_offsets, offsets[first + batch.block_offsets] - offsets[first])
    assert np.array_equal(np.diff(store.execution_bounds()).cumsum()[-1:], [len(blocks)][: len(blocks)])


@pytest.mark.contract
def test_segments_at_once_are_those_one_by_one(tmp_path):
    blocks, counts, addresses = stream(3, 500)
    ends = np.array([0, 10, 10, 250, 400], np.int64)
    writer = DetailWriter(tmp_path / "all")
    values = np.stack(
        [np.full(5, 1), np.zeros(5), np.arange(5), 2 * np.arange(5), 3 * np.arange(5), np.arange(5)], axis=1
    )
    writer.add_segments(blocks, counts, addresses, ends, values.astype(np.int64))
    writer.end_segment(1, 0, 9, 9, 9)
    table, store = writer.close()
    assert table["num_blocks"].to_pylist() == [10, 240, 150, 100]
    assert table["operation_id"].to_pylist() == [1, 3, 4, 9]
    assert table["num_accesses"].to_pylist() == [
        int(counts[a:b].sum()) for a, b in ((0, 10), (10, 250), (250, 400), (400, 500))
    ]
    assert np.array_equal(store.read(1, 2).block_ids, blocks[10:250])


@pytest.mark.contract
def test_the_digest_is_that_of_the_stream(tmp_path):
    made = stream(1, 400)
    one = write(tmp_path / "one", *made, [100])
    assert write(tmp_path / "two", *made, [100]).digest == one.digest
    assert write(tmp_path / "three", *made, [101]).digest != one.digest
    other = made[2].copy()
    other[7] += 1
    assert write(tmp_path / "four", made[0], made[1], other, [100]).digest != one.digest
    assert one.copy(tmp_path / "copy").digest == one.digest
    again = pickle.loads(pickle.dumps(one))
    assert np.array_equal(again.read(0, 2).addresses, made[2])


@pytest.mark.contract
def test_a_damaged_file_is_named(tmp_path):
    """Whatever byte is lost or changed: an error that names the file, never other numbers."""
    path = tmp_path / "detail"
    made = stream(2, 400)
    write(path, *made, [100, 300])
    content = path.read_bytes()
    for cut in (0, 7, 20, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:cut])
        with pytest.raises(UserError, match=r"detail: .*(cut short|damaged|of this version)"):
            DetailStore(path)
    for at in range(0, len(content), max(1, len(content) // 97)):
        path.write_bytes(content[:at] + bytes([content[at] ^ 0x10]) + content[at + 1 :])
        with pytest.raises(UserError, match="detail: "):
            DetailStore(path).read(0, 3)
    with pytest.raises(UserError, match="absent: cannot be read"):
        DetailStore(tmp_path / "absent")


@pytest.mark.contract
def test_a_damaged_chunk_is_numbered_and_others_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr(detail_store, "CHUNK_SIZE", 500)
    path = tmp_path / "detail"
    made = stream(2, 400)
    store = write(path, *made, [100, 300])
    content = bytearray(path.read_bytes())
    at = int(store._chunks["offset"][-1])
    content[at + 30] ^= 0xFF
    path.write_bytes(content)
    again = DetailStore(path)
    assert np.array_equal(again.read(0, 1).block_ids, made[0][:100])
    with pytest.raises(UserError, match=f"chunk {len(store._chunks) - 1} is damaged"):
        again.read(2, 3)


@pytest.mark.contract
def test_what_does_not_fit_together_is_refused(tmp_path):
    writer = DetailWriter(tmp_path / "detail")
    one = np.ones(1, np.int32)
    with pytest.raises(ValueError, match="do not fit together"):
        writer.add(one, one, np.empty(0, np.uint64))
    with pytest.raises(ValueError, match="negative"):
        writer.add(-one, one, np.zeros(1, np.uint64))
    writer.add(one, one, np.zeros(1, np.uint64))
    writer.add(one, 2 * one, np.zeros(2, np.uint64))
    with pytest.raises(ValueError, match="not ended"):
        writer.close()
    writer.end_segment(0, 0, 0, 0, 0)
    with pytest.raises(ValueError, match="block 1 has executions with different numbers"):
        writer.close()


@pytest.mark.theory
def test_an_empty_stream(tmp_path):
    table, store = DetailWriter(tmp_path / "detail").close()
    assert table.num_rows == store.num_segments == 0
    assert list(store.batches(10)) == []
    assert len(store.read(0, 0).addresses) == 0


@pytest.mark.theory
def test_a_regular_loop_takes_almost_nothing(tmp_path):
    """Strides and successors that repeat are told once."""
    executions = 100_000
    blocks = np.tile(np.array([1, 4], np.int32), executions)
    counts = COUNTS[blocks]
    addresses = np.zeros((executions, 3), np.uint64)
    addresses[:] = np.arange(executions)[:, None] * 8 + np.array([1 << 40, 2 << 40, 3 << 40])
    write(tmp_path / "detail", blocks, counts, addresses.reshape(-1), [])
    assert (tmp_path / "detail").stat().st_size < 1000


def recorded_streams() -> list[Path]:
    return sorted(Path(DATA, "mem").glob("*sancov.npz")) + sorted(Path(DATA, "tasks").glob("*.omt.xz")) if DATA else []


def load(path: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Executions of a recorded stream; a block that accesses now more, now less stands for several."""
    if path.suffix == ".npz":
        record = np.load(path)["rec"]
        is_block = record >> np.uint64(62) == 2
        content = record & np.uint64((1 << 56) - 1)
        blocks, addresses = content[is_block], content[~is_block]
    else:
        reader = SourceFileLoader("read_trace", str(path.with_name("read_trace.py"))).load_module()
        _, arrays = reader.load(path)
        is_block = arrays["rec_kind"] == 2
        blocks, addresses = arrays["rec_block"], reader.addresses(arrays).astype(np.uint64)
    counts = np.diff(np.append(np.flatnonzero(is_block), len(is_block))) - 1
    _, blocks = np.unique(blocks.astype(np.int64) * 4096 + counts, return_inverse=True)
    return blocks.astype(np.int32), counts.astype(np.int32), addresses


@pytest.mark.peer
@pytest.mark.skipif(not DATA, reason="MANYSCALE_DATA is not set")
@pytest.mark.parametrize("path", recorded_streams(), ids=lambda path: path.name.split(".")[0])
def test_recorded_streams_take_less_than_half_a_byte_an_access(tmp_path, path):
    blocks, counts, addresses = load(path)
    store = write(tmp_path / "detail", blocks, counts, addresses, [len(blocks) // 3])
    batch = store.read(0, 2)
    assert np.array_equal(batch.block_ids, blocks)
    assert np.array_equal(batch.addresses, addresses)
    assert store.path.stat().st_size < 0.5 * len(addresses) + 300  # bytes, the table's included


@pytest.mark.bench
@pytest.mark.skipif(not DATA, reason="MANYSCALE_DATA is not set")
@pytest.mark.parametrize("name", ["cholesky-24", "nbody-48", "stencil-16x16x8"])
def test_packing_and_unpacking_are_fast(tmp_path, name):
    """Each way, compression included, takes hardly longer than zstd alone, at the same level, for the addresses as
    they are."""
    blocks, counts, addresses = load(Path(DATA or "", "tasks", f"{name}.omt.xz"))
    best = [float("inf"), float("inf")]
    for _ in range(5):
        start = time.process_time()
        store = write(tmp_path / "detail", blocks, counts, addresses, [])
        middle = time.process_time()
        store.read(0, 1)
        best = [min(best[0], middle - start), min(best[1], time.process_time() - middle)]
    start = time.process_time()
    zstandard.ZstdCompressor(level=3).compress(addresses.tobytes())
    alone = time.process_time() - start
    rates = " and ".join(f"{len(addresses) / each / 1e6:.0f} M/s ({each / alone:.2f})" for each in best)
    print(f"\n{name}: {rates} of zstd's time alone, writing and reading")
    assert max(best) < 1.5 * alone
