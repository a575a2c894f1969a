"""DUMPI files that are damaged, of another version, or no DUMPI files; and the record of every function."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from manyscale.models.workload import WorkloadError
from manyscale.runner.errors import UserError
from manyscale.runner.readers import dumpi
from manyscale.runner.readers.dumpi.head import MAGIC
from manyscale.runner.readers.dumpi.layouts import LAYOUTS, NUMBER
from manyscale.runner.readers.dumpi.records import read_rank_file

sys.path.insert(0, str(Path(__file__).parent))
from dumpi_writer import Call, dumpi_file, dumpi_trace, isend, record, recv, send

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """``write([calls of rank 0], [calls of rank 1], ...)`` writes a trace and returns its .meta file."""
    return partial(dumpi_trace, tmp_path)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda content: content[:30], "is too short for a DUMPI file"),
        (lambda content: b"x" + content[1:], "byte 0: does not start as a DUMPI file does"),
        (lambda content: content[:-8], r"byte \d+: no index at the end"),
        (lambda content: content[:16] + b"\x02\x00" + content[18:], "byte 16: function number 512 is not known"),
        (lambda content: content[:17] + b"\x01" + content[18:], r"byte \d+: .*damaged; copy"),  # Recv, not Send
    ],
)
def test_damaged_file_is_refused_with_its_place(tmp_path: Path, damage: Callable[[bytes], bytes], message: str) -> None:
    path = tmp_path / "t-0000.bin"
    path.write_bytes(damage(dumpi_file([send(0), recv(0), Call("MPI_Finalize")])))

    with pytest.raises(UserError, match=message) as caught:
        dumpi.read(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.property
def test_any_byte_may_be_wrong(tmp_path: Path) -> None:
    """A file with one wrong byte is read or refused; it never ends in another error."""
    content = dumpi_file([send(0), isend(2, 0), Call("MPI_Wait", {"request": 2, "status": [(1, 0, 0, 0, 0)]}), recv(0)])
    path = tmp_path / "t-0000.bin"
    end = len(content) - 64
    for place in [*range(8, 200), *range(end, len(content))]:
        path.write_bytes(content[:place] + bytes([content[place] ^ 0x80]) + content[place + 1 :])
        with contextlib.suppress(UserError, WorkloadError):
            dumpi.read(path)


def test_old_version_is_refused(write: Write) -> None:
    with pytest.raises(UserError, match=r"version 0\.6\.8 of DUMPI stored some calls wrongly"):
        dumpi.read(write([Call("MPI_Finalize")], version=(0, 6, 8)))


def test_missing_rank_is_refused(write: Write) -> None:
    meta = write([Call("MPI_Finalize")], [Call("MPI_Finalize")])
    meta.with_name("t-0001.bin").unlink()

    with pytest.raises(UserError, match=r"the file of rank 1 \(t-0001.bin\) is missing"):
        dumpi.read(meta)


def test_several_threads_are_refused(write: Write) -> None:
    with pytest.raises(UserError, match="is of thread 1, earlier ones of 0"):
        dumpi.read(write([Call("MPI_Wtime"), Call("MPI_Wtime", thread=1)]))


def test_file_without_times_is_refused(write: Write) -> None:
    with pytest.raises(UserError, match="call 0 has no time"):
        dumpi.read(write([Call("MPI_Wtime", mask=0x43)]))


def test_other_files_are_not_taken(tmp_path: Path) -> None:
    (tmp_path / "a.meta").write_text("key=value\n")
    (tmp_path / "b.bin").write_bytes(b"\xff" * 100)
    (tmp_path / "c.meta").write_bytes(b"\xff\xfe=")

    assert not any(dumpi.can_read(path) for path in (tmp_path, *tmp_path.iterdir(), tmp_path / "absent"))


@pytest.mark.property
@pytest.mark.parametrize("number", range(290))
def test_record_of_every_function_is_read_to_its_end(number: int, tmp_path: Path) -> None:
    name = LAYOUTS[number].name
    if name == "MPI_Pcontrol":
        pytest.skip("has no record")
    content = dumpi_file(record(Call(name)) + record(Call("MPI_Wtick")), with_footer=False)
    (tmp_path / "t-0000.bin").write_bytes(content)

    calls = read_rank_file(tmp_path / "t-0000.bin").calls

    assert calls.function.tolist() == [number, NUMBER["MPI_Wtick"]]
    assert content.startswith(MAGIC)
