"""What is given as a file is one, and decompresses to no more than is allowed: else one line, at once."""

from __future__ import annotations

import gzip
import io
import lzma
import os
import socket
import tarfile

import pytest
import zstandard

from manyscale.models.workload.columns import text_array
from manyscale.runner.cli import main
from manyscale.runner.errors import UserError
from manyscale.runner.plain_files import parse_json
from manyscale.runner.readers import archive
from manyscale.runner.readers.simpoint_bb import projection
from manyscale.runner.readers.stacks import callgrind, jfr, speedscope, unit_counts

_FOLDED = b"main;work 1\n" * 200_000  # 2.4 MB


def _tar_of(content: bytes) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as made:
        member = tarfile.TarInfo("x.folded")
        member.size = len(content)
        made.addfile(member, io.BytesIO(content))
    return file.getvalue()


@pytest.fixture
def line(capsys):
    def of(*words: object) -> str:
        assert main([str(word) for word in words]) == 2
        told = capsys.readouterr().err
        assert told.count("\n") == 1
        return told

    return of


@pytest.mark.parametrize("compress", [gzip.compress, lzma.compress, zstandard.compress])
@pytest.mark.parametrize("command", ["convert", "run", "plan"])
def test_a_bomb_is_refused_by_every_command(command, compress, tmp_path, line):
    path = tmp_path / "bomb"
    path.write_bytes(compress(_FOLDED))
    trace = [path] if command == "convert" else ["--workload", path, "--target", "laptop"]
    told = line(command, *trace, "-o", tmp_path / "out", "--max-gb", "0.002")
    assert "bomb: decompresses to more than 0.002 GB" in told
    assert "--max-gb" in told
    assert archive.MOST_GB not in os.environ


def test_the_limit_is_of_the_content_to_the_byte(tmp_path, monkeypatch):
    path = tmp_path / "x.gz"
    path.write_bytes(gzip.compress(_FOLDED))
    monkeypatch.setenv(archive.MOST_GB, "0.0024")
    with archive.open_stream(path) as stream:
        assert stream.read() == _FOLDED
    monkeypatch.setenv(archive.MOST_GB, "0.002399999")
    with archive.open_stream(path) as stream, pytest.raises(UserError, match=r"more than 0\.0024 GB"):
        stream.read()


def test_members_of_a_compressed_archive_count_together(tmp_path, monkeypatch):
    path = tmp_path / "x.tar.gz"
    path.write_bytes(gzip.compress(_tar_of(_FOLDED)))
    monkeypatch.setenv(archive.MOST_GB, "0.002")
    with pytest.raises(UserError, match="--max-gb"):
        [member.read() for _, member in archive.tar_members(path)]


def test_a_sparse_member_is_as_large_as_it_reads(tmp_path, monkeypatch):
    path = tmp_path / "x.tar"
    member = tarfile.TarInfo("x")
    member.pax_headers = {
        "GNU.sparse.major": "0", "GNU.sparse.minor": "1", "GNU.sparse.name": "x", "GNU.sparse.size": str(10**13),
        "GNU.sparse.map": "0,1", "GNU.sparse.numblocks": "1",
    }  # fmt: skip
    member.size = 1
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as made:
        made.addfile(member, io.BytesIO(b"a"))
    monkeypatch.delenv(archive.MOST_GB, raising=False)
    with pytest.raises(UserError, match="member 'x': decompresses to more than"):
        list(archive.tar_members(path))


def test_a_frame_that_holds_more_than_it_should_is_not_decompressed():
    compressor = zstandard.ZstdCompressor()
    assert archive.unpacked(compressor.compress(_FOLDED), len(_FOLDED)) == _FOLDED
    frame = bytearray(compressor.compress(bytes(1 << 20)))
    frame[5:9] = (2**31).to_bytes(4, "little")  # what the frame says that it holds; 4 bytes behind its descriptor
    assert zstandard.frame_content_size(bytes(frame)) == 2**31
    with pytest.raises(zstandard.ZstdError, match="holds 2147483648 bytes"):
        archive.unpacked(bytes(frame), 1 << 20)


def test_a_size_that_python_cannot_print_is_refused(tmp_path):
    path = tmp_path / "x.proj"
    path.write_text("7" * 5000 + ":w\n1 1: 1\n")
    with pytest.raises(UserError, match="the number of rows"):
        projection.read(path)


@pytest.mark.parametrize("given", ["0", "-1", "nan", "x", "1e300", ""])
def test_a_limit_is_a_number_of_gigabytes(given, tmp_path, line):
    assert "a number of gigabytes" in line("convert", tmp_path, "-o", tmp_path / "out", f"--max-gb={given}")


def test_pipes_devices_and_sockets_are_refused(tmp_path, line):
    os.mkfifo(tmp_path / "pipe.yaml")
    with socket.socket(socket.AF_UNIX) as listening:
        before = os.getcwd()
        os.chdir(tmp_path)  # the path of a socket has up to 107 bytes
        listening.bind("socket")
        os.chdir(before)
    for path in (tmp_path / "pipe.yaml", tmp_path / "socket", "/dev/zero"):
        assert "is a pipe, a device or a socket" in line("convert", path, "-o", tmp_path / "out")
    assert "is a pipe" in line("run", tmp_path / "pipe.yaml")


@pytest.mark.parametrize(
    ("name", "format"), [("workload.json", "workload"), ("stacks.json", "stacks"), ("x.goal", "goal")]
)
def test_pipes_in_folders_are_refused(name, format, tmp_path, line):
    os.mkfifo(tmp_path / name)
    assert f"{name}: is a pipe" in line("convert", tmp_path, "--format", format, "-o", tmp_path / "out")
    assert "is in no format" in line("convert", tmp_path, "-o", tmp_path / "out") or name != "x.goal"


def test_names_of_files_need_not_be_utf_8(tmp_path):
    trace = tmp_path / os.fsdecode(b"\xff.folded")
    trace.write_bytes(b"a;\xff 1\na;b 2\n")
    words = [
        "--target",
        "laptop",
        "--accept",
        "no-times",
        "--cache",
        str(tmp_path / "cache"),
        "-o",
        str(tmp_path / "out"),
    ]
    assert main(["run", "--workload", str(trace), *words]) == 0
    assert (tmp_path / "out" / "report.html").is_file()


def test_names_of_results_are_utf_8(tmp_path, line):
    (tmp_path / "a.folded").write_bytes(b"a;b 2\n")
    words = [
        "--workload",
        tmp_path / "a.folded",
        "--target",
        "laptop",
        "--accept",
        "no-times",
        "-o",
        tmp_path / os.fsdecode(b"\xff"),
    ]
    assert "not in UTF-8" in line("run", *words)


def test_half_a_character_is_written_as_its_escape():
    assert text_array(["\ud800", "\u00e9"]).to_pylist() == ["\\ud800", "\u00e9"]


def test_json_that_is_nested_too_deeply_is_no_json():
    with pytest.raises(ValueError, match="nested"):
        parse_json("[" * 100_000)


@pytest.mark.parametrize("reader", [jfr, speedscope])
@pytest.mark.parametrize("content", ["[" * 100_000, '{"a":' * 100_000, "7" * 100_000])
def test_profiles_in_json_that_python_cannot_hold_are_refused(reader, content, tmp_path):
    path = tmp_path / "x.json"
    path.write_text('{"recording": {"events": [' + content)
    with pytest.raises(UserError, match=r"damaged|cut short|speedscope"):
        reader.read(path)


def test_a_thread_of_a_unit_has_63_bits(tmp_path):
    path = tmp_path / "x.stk"
    path.write_text("M\t0\tmain\nS\t0\t9223372036854775808\t0\n")
    with pytest.raises(UserError, match=r":2: the thread is '9223372036854775808'"):
        unit_counts.read(path)


def test_costs_before_the_names_of_events_are_refused(tmp_path):
    path = tmp_path / "x.out"
    path.write_text("# callgrind format\nfn=(1) main\n0 4000\n")
    with pytest.raises(UserError, match=":3: no line before says what is counted"):
        callgrind.read(path)
