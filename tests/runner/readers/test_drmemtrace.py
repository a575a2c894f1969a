"""DynamoRIO's traces: records written here by the description of the format, and two of DynamoRIO's own samples."""

from __future__ import annotations

import gzip
import zipfile
from pathlib import Path

import numpy as np
import pytest

from manyscale.models.workload import Workload
from manyscale.models.workload.detail_tables import InstructionClass
from manyscale.models.workload.notes import Severity
from manyscale.runner.errors import UserError
from manyscale.runner.readers import drmemtrace
from manyscale.runner.readers.drmemtrace import files
from manyscale.runner.readers.drmemtrace.files import RECORD

SAMPLES = Path(__file__).parents[2] / "data" / "drmemtrace"
READ, WRITE, PREFETCH, PLAIN, CALL, THREAD, PROCESS, HEADER, FOOTER, MARKER, AGAIN = (
    0, 1, 3, 10, 14, 22, 24, 25, 26, 28, 29,
)  # fmt: skip
ENCODING, TAKEN = 47, 48
TIME, FILE_TYPE, BRANCH_TARGET = 2, 9, 29
ENCODED_X86 = 0x240


def head(thread: int = 7, process: int = 7, kind: int = 0x40, version: int = 6) -> list[tuple[int, int, int]]:
    return [(HEADER, 0, version), (MARKER, FILE_TYPE, kind), (THREAD, 4, thread), (PROCESS, 4, process)]


def content(*records: tuple[int, int, int], ends: bool = True) -> bytes:
    return np.array([*records, *([(FOOTER, 0, 0)] if ends else [])], RECORD).tobytes()


def read(folder: Path, *records: tuple[int, int, int], name: str = "x.trace") -> Workload:
    (folder / name).write_bytes(content(*records))
    return drmemtrace.read(folder / name)


def executed(workload: Workload, segment: int = 0) -> tuple[list[int], list[int]]:
    assert workload.detail is not None
    batch = workload.detail.read(segment, segment + 1)
    return workload.column("blocks", "offset")[batch.block_ids].tolist(), batch.addresses.tolist()


LOOP = [
    (PLAIN, 3, 0x100), (READ, 8, 0x9000), (TAKEN, 2, 0x103),
    (PLAIN, 3, 0x100), (READ, 8, 0x9008), (TAKEN, 2, 0x103),
    (PLAIN, 3, 0x100), (READ, 8, 0x9010), (49, 2, 0x103),
    (PLAIN, 4, 0x105), (WRITE, 4, 0xA000),
]  # fmt: skip


@pytest.mark.theory
def test_blocks_accesses_and_times(tmp_path: Path) -> None:
    workload = read(
        tmp_path, *head(), (MARKER, TIME, 1_000_000), *LOOP, (PREFETCH, 1, 0xB000), (MARKER, TIME, 1_000_025)
    )
    assert executed(workload) == ([0x100, 0x100, 0x100, 0x105], [0x9000, 0x9008, 0x9010, 0xA000])
    accesses = [tuple(row.values()) for row in workload.tables["block_accesses"].to_pylist()]
    assert accesses == [(0, 0, False, 8), (1, 0, True, 4)]
    segment = workload.tables["segments"].to_pylist()[0]
    assert (segment["num_instructions"], segment["num_accesses"], segment["task_instance_id"]) == (7, 4, -1)
    assert workload.column("phases", "duration_ps").tolist() == [25_000_000]
    assert {note.code for note in workload.notes} == {"times-of-instrumented-run", "instructions-unknown"}


@pytest.mark.theory
def test_packed_files_say_the_same(tmp_path: Path) -> None:
    plain = read(tmp_path, *head(), *LOOP)
    whole = content(*head(), *LOOP)
    (tmp_path / "x.trace.gz").write_bytes(gzip.compress(whole))
    with zipfile.ZipFile(tmp_path / "x.trace.zip", "w") as archive:
        archive.writestr("chunk.0000", whole[: 12 * 7])
        archive.writestr("chunk.0001", whole[12 * 7 :])
    for name in ("x.trace.gz", "x.trace.zip"):
        assert drmemtrace.can_read(tmp_path / name)
        assert drmemtrace.read(tmp_path / name).digest == plain.digest


@pytest.mark.theory
def test_pieces_of_any_length_say_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever a file is cut: between an instruction and its bytes or accesses, around a switch of threads."""
    turns = [*head(kind=ENCODED_X86), (ENCODING, 3, 0x078B48), *LOOP, (THREAD, 4, 9), *LOOP[:2], (THREAD, 4, 7), *LOOP]
    whole = read(tmp_path, *turns)
    for records in range(1, len(turns)):
        monkeypatch.setattr(files, "_PIECE", records * RECORD.itemsize)
        assert read(tmp_path, *turns).digest == whole.digest


@pytest.mark.theory
def test_instructions_are_told_by_their_bytes(tmp_path: Path) -> None:
    """mov rax, [rdi]; a movabs of ten bytes in two records; a call whose target a marker names in between."""
    workload = read(
        tmp_path, *head(kind=ENCODED_X86),
        (ENCODING, 3, 0x078B48), (PLAIN, 3, 0x100), (READ, 8, 0x9000),
        (ENCODING, 8, int.from_bytes(b"\x48\xb8" + bytes(6), "little")), (ENCODING, 2, 0), (PLAIN, 10, 0x103),
        (ENCODING, 2, 0xD0FF), (MARKER, BRANCH_TARGET, 0x200), (15, 2, 0x10D), (WRITE, 8, 0xA000),
    )  # fmt: skip
    kinds = [InstructionClass(kind).name for kind in workload.column("instructions", "instruction_class")]
    assert [kinds[0], *kinds[2:]] == ["move", "call"]
    assert [row["destinations"] for row in workload.tables["instructions"].to_pylist()[:2]] == [[0], [0]]
    assert {note.code for note in workload.notes} == {"times-of-instrumented-run"}


@pytest.mark.theory
def test_instructions_of_aarch64(tmp_path: Path) -> None:
    """ldr d2, [x2, x0]; fmadd d0, d2, d1, d0."""
    workload = read(
        tmp_path, *head(kind=0x208),
        (ENCODING, 4, 0xFC606842), (PLAIN, 4, 0x100), (READ, 8, 0x9000), (ENCODING, 4, 0x1F410040), (PLAIN, 4, 0x104),
    )  # fmt: skip
    kinds = [InstructionClass(kind).name for kind in workload.column("instructions", "instruction_class")]
    assert kinds == ["move", "fp_fma"]
    assert workload.tables["instructions"].to_pylist()[1]["destinations"] == [32]  # the first vector register
    assert {note.code for note in workload.notes} == {"times-of-instrumented-run"}


@pytest.mark.theory
def test_vectors_of_sve_have_the_length_of_their_trace(tmp_path: Path) -> None:
    """ld1d {z1.d}, p0/z, [x1, x4, lsl #3] and fmul z1.s, z2.s, z3.s with vectors of 512 bits: 8 and 16 lanes, and an
    access of 64 bytes."""
    vectors = (MARKER, 36, 64)
    workload = read(
        tmp_path, *head(kind=0x208), vectors,
        (ENCODING, 4, 0xA5E44021), (PLAIN, 4, 0x100), (READ, 64, 0x9000), (ENCODING, 4, 0x65830841), (PLAIN, 4, 0x104),
    )  # fmt: skip
    assert workload.column("instructions", "lanes").tolist() == [8, 16]
    assert workload.tables["block_accesses"].column("bytes").to_pylist() == [64]
    found = {note.code: note for note in workload.notes}
    assert "of 512 bits" in found["vector-length"].text
    assert found["predicates-free"].count == 1  # the load's


@pytest.mark.theory
def test_threads_are_task_instances(tmp_path: Path) -> None:
    """Two files of a process with three threads, of which one file holds two, in turns; and another process."""
    folder = tmp_path / "app" / "trace"
    folder.mkdir(parents=True)
    turns = [*head(7), (MARKER, TIME, 10), *LOOP[:3], (THREAD, 4, 9), (MARKER, TIME, 20), *LOOP[9:]]
    turns += [(THREAD, 4, 7), *LOOP[3:6], (MARKER, TIME, 14), (THREAD, 4, 9), (MARKER, TIME, 27)]
    (folder / "a.trace").write_bytes(content(*turns))
    (folder / "b.trace").write_bytes(content(*head(8), *LOOP))
    (folder / "c.trace").write_bytes(content(*head(99, 99), *LOOP[9:]))
    workload = drmemtrace.read(tmp_path / "app")
    assert drmemtrace.can_read(tmp_path / "app")
    segments = workload.tables["segments"].to_pylist()
    told = [(row["rank"], row["thread"], row["task_instance_id"], row["num_instructions"]) for row in segments]
    # in order of their first times; one without any comes first
    assert told == [(0, 1, 1, 7), (0, 0, 2, 4), (0, 2, 3, 1), (1, 0, -1, 1)]
    assert executed(workload, 1) == ([0x100, 0x100], [0x9000, 0x9008])
    assert executed(workload, 2) == ([0x105], [0xA000])
    # from 10 to 14 us and from 20 to 27; when the others ran is not known
    assert workload.column("tasks", "cpu_ps").tolist() == [0, 0, 4_000_000, 7_000_000, 0]
    assert workload.column("phases", "duration_ps").tolist() == [11_000_000, 0]
    assert "thread-waits-unknown" in {note.code for note in workload.notes}


@pytest.mark.theory
def test_what_is_left_out_is_said(tmp_path: Path) -> None:
    workload = read(tmp_path, *head(kind=0x40 | 0x100), *LOOP, (PLAIN, 4, 0x109), (WRITE, 0, 0xA000))
    by_code = {note.code: note for note in workload.notes}
    assert by_code["trace-filtered"].severity is Severity.forbids
    assert by_code["accesses-missing"].count == 1
    (tmp_path / "cut.trace").write_bytes(content(*head(), *LOOP, ends=False))
    assert "trace-cut" in {note.code for note in drmemtrace.read(tmp_path / "cut.trace").notes}


@pytest.mark.theory
def test_damaged_and_other_traces_are_refused_in_one_line(tmp_path: Path) -> None:
    wrong = {
        "of 32 bits": content(*head(kind=0x20), *LOOP),
        "is of cores": content(*head(kind=0x10040), *LOOP),
        "record 4: type 17 with size 2": content(*head(), (17, 2, 0), *LOOP),
        "record 15: type 60 with size 0": content(*head(), *LOOP, (60, 0, 0)),
        "record 16: the file ends inside": content(*head(), *LOOP) + b"\1\0",
        "record 0: version 9": content(*head(version=9), *LOOP),
        "record 0: is no header": content(*LOOP),
        "holds no instructions": content(*head()),
    }
    for message, written in wrong.items():
        (tmp_path / "x.trace").write_bytes(written)
        with pytest.raises(UserError, match=f"x.trace: .*{message}") as raised:
            drmemtrace.read(tmp_path / "x.trace")
        assert "\n" not in str(raised.value)
    raw = tmp_path / "raw-only"
    (raw / "raw").mkdir(parents=True)
    (raw / "raw" / "modules.log").write_text("")
    assert drmemtrace.can_read(raw)
    with pytest.raises(UserError, match="drraw2trace -indir"):
        drmemtrace.read(raw)


@pytest.mark.peer
def test_samples_of_dynamorio() -> None:
    """What DynamoRIO's own tests say of the first: 42 loads (suite/tests/CMakeLists.txt,
    schedule_stats_noise_generator). The second is in chunks of 20 instructions, of which seven are there."""
    small = drmemtrace.read(SAMPLES / "drmemtrace.small.x64.trace")
    is_store = np.array(small.tables["block_accesses"]["is_store"].to_pylist(), np.bool_)
    assert small.detail is not None
    executions = np.bincount(small.detail.read(0, 1).block_ids, minlength=small.tables["blocks"].num_rows)
    assert executions[small.column("block_accesses", "block_id")[~is_store]].sum() == 42
    encoded = drmemtrace.read(SAMPLES / "drmemtrace.allasm_x86_64.trace.zip")
    assert 6 * 20 < encoded.column("segments", "num_instructions")[0] <= 7 * 20
    assert encoded.tables["instructions"].num_rows == encoded.column("blocks", "num_instructions").sum()
