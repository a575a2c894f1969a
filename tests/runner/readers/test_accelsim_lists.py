"""Lists of launches, what the host copied, the store of what was read, and notes."""

from __future__ import annotations

import gzip
import lzma
from pathlib import Path

import numpy as np
import pytest
import zstandard
from accelsim_writer import one_warp, write_trace
from told import told

from manyscale.models.workload import Workload
from manyscale.models.workload.launch_trace import LaunchTrace
from manyscale.runner.errors import UserError
from manyscale.runner.readers import accelsim, workload_folder
from manyscale.runner.readers.accelsim import launch as accelsim_launch
from manyscale.runner.readers.options import ReadOptions
from manyscale.runner.readers.stores.launches import LaunchStore
from manyscale.runner.registry import lookup, names

DATA = Path(__file__).parents[2] / "data" / "gpu"
EXIT = "0000 ffffffff 0 EXIT 0 0"
LOAD = "0000 ffffffff 1 R2 LDG.E 1 R4 4 1 0x1000 4"


@pytest.fixture(autouse=True)
def cache(private_cache: Path) -> Path:
    return private_cache / "launches"


def launches(workload: Workload) -> list[tuple[int, int]]:
    """(launch, warp instructions) of each."""
    columns = [workload.column("launches", name).tolist() for name in ("launch_id", "warp_instructions")]
    return list(zip(*columns, strict=True))


def folder_of(path: Path, number: int) -> Path:
    """A folder of so many launches, the k-th of k instructions, and their list."""
    path.mkdir()
    for k in range(1, number + 1):
        one_warp(path / f"kernel-{k}.traceg", *[LOAD] * (k - 1), EXIT)
    (path / "kernelslist.g").write_text("".join(f"kernel-{k}.traceg\n" for k in range(1, number + 1)))
    return path


def test_a_list_gives_launches_and_copies_in_order(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "app", 2)
    (folder / "kernelslist.g").write_text(
        "MemcpyHtoD,0x00007fc841500000,32768\n\nkernel-2.traceg\r\nMemcpyDtoH,0x1,4\nMemcpyHtoD,0xff,1\nkernel-1.traceg\n"
        "kernel-2.traceg\nMemcpyHtoD,0xffffffffffffff00,16\nncclAllReduce\nncclAllReduce\n"
    )
    workload = accelsim.read(folder)
    assert launches(workload) == [(1, 2), (2, 1), (3, 2)]
    copies = [tuple(row.values()) for row in workload.tables["copies"].to_pylist()]
    assert copies == [(1, 0x7FC841500000, 32768), (2, 255, 1), (4, -256, 16)]
    assert told(workload.notes) == (
        "kernelslist.g: 3 lines are neither launches nor MemcpyHtoD, left out: ncclAllReduce 2, MemcpyDtoH 1",
    )
    assert workload.name == "app"
    assert workload.num_ranks == 1
    assert accelsim.read(folder / "kernelslist.g").digest == workload.digest


def test_the_table_says_what_a_launch_comes_to(tmp_path: Path) -> None:
    """Blocks of 1 and 3 thread instructions of 32: mean 64, deviation 32."""
    blocks = {"0,0,0": {0: [EXIT]}, "1,0,0": {0: [LOAD, LOAD, EXIT], 1: []}}
    write_trace(tmp_path / "kernel-1.traceg", blocks, grid="(2,1,1)", block="(64,1,1)", binary=75)
    row = accelsim.read(tmp_path).tables["launches"].to_pylist()[0]
    digest = row.pop("digest")
    assert len(digest) == 40
    assert row == {
        "launch_id": 1, "kernel_name": "k", "grid_x": 2, "grid_y": 1, "grid_z": 1, "block_x": 64, "block_y": 1,
        "block_z": 1, "shared_bytes": 48, "registers": 17, "binary_version": 75, "stream": 0, "blocks": 2, "warps": 3,
        "warp_instructions": 4, "thread_instructions": 128, "memory_requests": 8, "block_size_cov": 0.5,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("listed", "there"),
    [
        ("./kernel-2.traceg", "kernel-2.traceg"),
        ("b/kernel-2.traceg", "b/kernel-2.traceg"),
        ("b/kernel-2.traceg.xz", "b/kernel-2.traceg"),
        ("./traces/kernel-2.traceg", "kernel-2.traceg"),  # the list was copied out of the traced run
        ("/no/such/place/kernel-2.traceg", "kernel-2.traceg"),
    ],
)
def test_a_list_may_name_paths(tmp_path: Path, listed: str, there: str) -> None:
    folder = folder_of(tmp_path / "app", 2)
    (folder / there).parent.mkdir(exist_ok=True)
    (folder / "kernel-2.traceg").rename(folder / there)
    (folder / "kernelslist.g").write_text(f"kernel-1.traceg\n{listed}\n")
    workload = accelsim.read(folder)
    assert launches(workload) == [(1, 1), (2, 2)]
    moved = any(note.code == "traces-beside-the-list" for note in workload.notes)
    assert moved == ("no/such" in listed or "traces/" in listed)
    (folder / "kernelslist.g").write_text(f"{listed}\n")
    assert accelsim.can_read(folder / "kernelslist.g")
    assert launches(accelsim.read(folder / "kernelslist.g")) == [(1, 2)]


@pytest.mark.parametrize("suffix", ["", ".xz", ".gz", ".zst"])
def test_compressed_traces_are_found(tmp_path: Path, suffix: str) -> None:
    folder = folder_of(tmp_path / "app", 1)
    text = (folder / "kernel-1.traceg").read_bytes()
    (folder / "kernel-1.traceg").unlink()
    pack = {"": bytes, ".xz": lzma.compress, ".gz": gzip.compress, ".zst": zstandard.compress}[suffix]
    (folder / f"kernel-1.traceg{suffix}").write_bytes(pack(text))
    assert launches(accelsim.read(folder)) == [(1, 1)]
    (folder / "kernelslist.g").write_text("kernel-1.traceg.xz\n")  # whatever the list says
    assert launches(accelsim.read(folder)) == [(1, 1)]
    (folder / "kernelslist.g").unlink()
    assert launches(accelsim.read(folder)) == [(1, 1)]
    assert launches(accelsim.read(folder / f"kernel-1.traceg{suffix}")) == [(1, 1)]


def test_only_chosen_launches_are_read(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "app", 4)
    (folder / "kernel-3.traceg").write_text("nothing of a trace")
    workload = accelsim.read(folder, ReadOptions(launches=(4, 2, 4)))
    assert launches(workload) == [(2, 2), (4, 4)]
    assert workload.gpu is not None
    assert workload.gpu.launch_ids == (2, 4)
    assert workload.gpu.trace(4).launch_id == 4
    with pytest.raises(UserError, match=r"kernelslist.g: has no launch 5; its launches are 1 to 4"):
        accelsim.read(folder, ReadOptions(launches=(5,)))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("kernel-1.traceg\nkernel-7.traceg\n", ":2: names kernel-7.traceg, which does not stand beside it"),
        ("MemcpyHtoD,0x1\nkernel-1.traceg\n", ":1: 'MemcpyHtoD,0x1' is no 'MemcpyHtoD,0xADDRESS,BYTES'"),
        ("kernel-1.traceg\nb/kernel-7.traceg\n", ":2: names b/kernel-7.traceg, which does not stand beside it"),
        ("a/kernel-1.traceg\nb/kernel-1.traceg\n", ":2: names b/kernel-1.traceg, which does not exist"),
        ("kernel-1.traceg\nKernel-1.traceg\n", ":2: names Kernel-1.traceg, which does not stand beside it"),
        ("kernel-1.traceg\n'kernel-1.traceg'\n", ":2: \"'kernel-1.traceg'\" is neither a launch"),
        ("kernel-1.traceg\nlaunch kernel-1.traceg 3\n", ":2: 'launch kernel-1.traceg 3' is neither a launch"),
        ("kernel-1.traceg\nKERNEL 1\n", ":2: 'KERNEL 1' is neither a launch"),
        ("MemcpyHtoD,0x1,4\n", ": names no kernel"),
        ("", ": names no kernel"),
    ],
)
def test_a_list_that_is_wrong(tmp_path: Path, text: str, expected: str) -> None:
    folder = folder_of(tmp_path / "app", 1)
    (folder / "kernelslist.g").write_text(text)
    with pytest.raises(UserError) as error:
        accelsim.read(folder)
    assert str(error.value).startswith(f"{folder / 'kernelslist.g'}{expected}")


def test_launches_without_a_list(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "app", 2)
    (folder / "kernelslist.g").unlink()
    assert accelsim.can_read(folder)
    with pytest.raises(UserError, match=r"app: has 2 traces of kernels and no list of their order"):
        accelsim.read(folder)


def test_this_reader_takes_such_traces(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "app", 1)
    raw = tmp_path / "raw"
    raw.mkdir()
    (raw / "kernelslist").write_text("kernel-1.trace\n")
    for path in (folder, folder / "kernelslist.g", folder / "kernel-1.traceg", raw, DATA / "vectoradd", DATA / "ffma"):
        assert next(name for name in names("reader") if lookup("reader", name).can_read(path)) == "accelsim", path
    (tmp_path / "other").mkdir()
    assert not accelsim.can_read(tmp_path / "other")
    for name in ("x.txt", "kernel-x.trace"):
        (tmp_path / name).write_text("kernel-1.traceg\n")
        assert not accelsim.can_read(tmp_path / name)
    assert not accelsim.can_read(tmp_path)


def test_finished_launches_are_kept(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second is cut; once it was mended only it and the third are parsed, and then none."""
    folder = folder_of(tmp_path / "app", 3)
    whole = (folder / "kernel-2.traceg").read_text()
    (folder / "kernel-2.traceg").write_text(whole[:-10])
    with pytest.raises(UserError, match=r"kernel-2.traceg: ends inside thread block 0,0,0"):
        accelsim.read(folder)
    assert len(list(cache.iterdir())) == 1
    (folder / "kernel-2.traceg").write_text(whole)
    parsed = []
    read_launch = accelsim_launch.read_launch
    monkeypatch.setattr(
        "manyscale.runner.readers.accelsim.reader.read_launch",
        lambda *paths: parsed.append(paths[0].name) or read_launch(*paths),
    )
    first = accelsim.read(folder)
    assert parsed == ["kernel-2.traceg", "kernel-3.traceg"]
    again = accelsim.read(folder)
    assert len(parsed) == 2
    assert again.digest == first.digest
    assert again.tables["launches"].equals(first.tables["launches"])
    assert again.notes == first.notes


def test_a_damaged_store_is_read_anew(tmp_path: Path, cache: Path) -> None:
    path = one_warp(tmp_path / "k.traceg", LOAD, EXIT)
    digest = accelsim.read(path).digest
    (stored,) = cache.iterdir()
    (stored / "static.parquet").write_bytes(b"PAR1")
    assert accelsim.read(path).digest == digest
    workload = accelsim.read(path)
    (stored / "instructions.parquet").write_bytes(b"PAR1")
    assert workload.gpu is not None
    with pytest.raises(UserError, match=r"the stored launch is damaged .*; remove it and read the trace again"):
        workload.gpu.trace(1)


def test_a_store_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(UserError, match=r"launches cannot be stored there .*; set XDG_CACHE_HOME"):
        accelsim.read(one_warp(tmp_path / "k.traceg", EXIT))


def test_notes_say_what_is_not_known(tmp_path: Path) -> None:
    """Once for all launches, with the warp instructions that they concern; also when read from the store."""
    lines = [
        "0000 ffffffff 1 R2 FNEW.X 0 0",
        "0010 ffffffff 1 R2 LDQ 1 R4 4 1 0x1000 4",
        "0020 0000ffff 1 R2 VIADD 0 0",
        EXIT,
    ]
    folder = tmp_path / "app"
    folder.mkdir()
    one_warp(folder / "kernel-1.traceg", *lines, binary=70)
    one_warp(folder / "kernel-2.traceg", *lines, *lines[:1], binary=70, more="-cluster dim = (1,1,1)\n")
    (folder / "kernelslist.g").write_text("kernel-1.traceg\nkernel-2.traceg\n")
    expected = (
        "opcodes in no table, classed by their names' families: FNEW 3, LDQ 2",
        "opcodes newer than the binary version of their launch, classed all the same: VIADD (sm_90) 2",
        "lines of keys that are not known, left out: cluster dim 1",
    )
    assert told(accelsim.read(folder).notes) == expected
    assert told(accelsim.read(folder).notes) == expected


def assert_equal(one: LaunchTrace, other: LaunchTrace) -> None:
    for name in (
        "block_warps",
        "warp_instructions",
        "warp_accesses",
        "instruction",
        "active",
        "accesses",
        "sector",
        "written",
    ):
        assert np.array_equal(getattr(one, name), getattr(other, name)), name
    for name in ("pc", "opcode", "unit", "space", "access", "immediate", "bypasses_l1", "destinations", "sources"):
        assert np.array_equal(getattr(one.static, name), getattr(other.static, name)), name
    assert one.static.opcodes == other.static.opcodes


def test_row_groups_do_not_show(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    """A launch written early in many groups equals one in one; so does its digest."""
    path = DATA / "vectoradd" / "kernel-1.traceg.xz"
    whole = LaunchStore({1: accelsim_launch.read_launch(path, cache / "whole")})
    monkeypatch.setattr(accelsim_launch, "BATCH_INSTRUCTIONS", 1000)
    monkeypatch.setattr("manyscale.runner.readers.accelsim.parser._FIRST_INSTRUCTIONS", 1500)
    parts = LaunchStore({1: accelsim_launch.read_launch(path, cache / "parts")})
    assert len(list(parts.block_batches(1, 1 << 30))) > 15
    assert len(list(whole.block_batches(1, 1 << 30))) == 1
    assert_equal(parts.trace(1), whole.trace(1))
    assert parts.digest == whole.digest


def test_blocks_come_in_pieces() -> None:
    workload = accelsim.read(DATA / "vectoradd")
    assert workload.gpu is not None
    whole = workload.gpu.trace(1)
    sizes = np.diff(whole.warp_instructions[whole.block_warps])
    pieces = list(workload.gpu.block_batches(1, 400))
    assert [piece.num_instructions for piece in pieces] == [
        int(sizes[first : first + 2].sum()) for first in range(0, 196, 2)
    ]  # blocks of 136 instructions, of which two fit
    for name in ("instruction", "active", "accesses", "sector", "written"):
        assert np.array_equal(np.concatenate([getattr(piece, name) for piece in pieces]), getattr(whole, name))
    assert [piece.num_blocks for piece in workload.gpu.block_batches(1, 1)] == [1] * 196


def test_blocks_that_come_late_are_sorted_after_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first blocks were written before the last one came, which belongs before them."""
    monkeypatch.setattr(accelsim_launch, "BATCH_INSTRUCTIONS", 2)
    monkeypatch.setattr("manyscale.runner.readers.accelsim.parser._FIRST_INSTRUCTIONS", 2)
    blocks = {f"{k},0,0": {0: [LOAD] * k + [EXIT]} for k in (1, 2, 3, 0)}
    workload = accelsim.read(write_trace(tmp_path / "k.traceg", blocks, grid="(4,1,1)"))
    assert workload.gpu is not None
    assert np.diff(workload.gpu.trace(1).warp_instructions).tolist() == [1, 2, 3, 4]


def test_launches_that_execute_the_same_have_one_digest(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "app", 2)
    (folder / "kernel-3.traceg.xz").write_bytes(lzma.compress((folder / "kernel-2.traceg").read_bytes()))
    (folder / "kernelslist.g").write_text("kernel-1.traceg\nkernel-2.traceg\nkernel-3.traceg\n")
    workload = accelsim.read(folder)
    digests = workload.tables["launches"].column("digest").to_pylist()
    assert digests[1] == digests[2] != digests[0]
    assert workload.gpu is not None
    assert [workload.gpu.launch_digest(k) for k in (1, 2, 3)] == digests
    assert workload.digest != accelsim.read(folder, ReadOptions(launches=(1, 2))).digest
    with pytest.raises(KeyError):
        workload.gpu.trace(4)


@pytest.mark.parametrize("archived", [False, True])
def test_a_workload_folder_holds_launches(tmp_path: Path, archived: bool) -> None:
    workload = accelsim.read(DATA / "vectoradd")
    workload_folder.write(workload, tmp_path / "kept")
    path = tmp_path / "kept"
    if archived:
        import tarfile

        path = tmp_path / "kept.tar"
        with tarfile.open(path, "w") as tar:
            tar.add(tmp_path / "kept", "kept")
    assert workload_folder.can_read(path)
    again = workload_folder.read(path)
    assert again.digest == workload.digest
    assert again.gpu is not None
    assert workload.gpu is not None
    assert_equal(again.gpu.trace(1), workload.gpu.trace(1))
    assert again.tables["copies"].equals(workload.tables["copies"])
