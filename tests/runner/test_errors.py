"""Traces that cannot be read or replayed: one line that names the file, the place and the mend; exit status 2 (1 where
the run failed); nothing written."""

from __future__ import annotations

import gzip
import json
import lzma
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import zstandard

from manyscale.runner.errors import UserError
from manyscale.runner.readers import simgrid_ti

# -- lines of a trace: what stands in ranks 0 and 1, where the error is, and words of the message -------------------

BAD_LINES: dict[str, tuple[Mapping[int, list[str]], str, str]] = {
    "unknown verb": (
        {0: ["init", "frobnicate 1"], 1: ["init"]}, "rank-0.txt:2: ", "unknown verb 'frobnicate'; known are ",
    ),
    "one-sided": (
        {0: ["init", "Win_fence 0"], 1: ["init"]}, "rank-0.txt:2: ", "one-sided communication cannot be replayed",
    ),
    "put": ({0: ["init"], 1: ["init", "Put 0 8 6"]}, "rank-1.txt:2: ", "one-sided"),
    "file input": ({0: ["init", "IO - read 8 6"], 1: ["init"]}, "rank-0.txt:2: ", "trace the program without MPI-IO"),
    "startall": ({0: ["init", "Startall 3"], 1: ["init"]}, "rank-0.txt:2: ", "use MPI_Start for each"),
    "migration": ({0: ["init", "migrate 1 2"], 1: ["init"]}, "rank-0.txt:2: ", "migration cannot be replayed"),
    "text for a number": ({0: ["init", "send 1 zero 8 6"], 1: ["init"]}, "rank-0.txt:2: ", "not a number"),
    "not a number": ({0: ["init", "compute nan"], 1: ["init"]}, "rank-0.txt:2: ", "not a number"),
    "half a number": ({0: ["init", "compute 1e"], 1: ["init"]}, "rank-0.txt:2: ", "not a number"),
    "fraction of an element": (
        {0: ["init", "send 1 0 8.5 6"], 1: ["init"]}, "rank-0.txt:2: ", "size is not a whole number",
    ),
    "negative size": ({0: ["init", "send 1 0 -8 6"], 1: ["init"]}, "rank-0.txt:2: ", "size -8 is negative"),
    "size that overflows": (
        {0: ["init", "send 1 0 3000000000000000000 0"], 1: ["init"]}, "rank-0.txt:2: ", "size beyond",
    ),
    "negative compute": ({0: ["init", "compute -5"], 1: ["init"]}, "rank-0.txt:2: ", "negative"),
    "endless compute": ({0: ["init", "compute 1e300"], 1: ["init"]}, "rank-0.txt:2: ", "beyond 53 days"),
    "computes that overflow together": (
        {0: ["init", *["compute 4e15"] * 3], 1: ["init"]}, "rank-0.txt:3: ", "beyond 53 days",
    ),
    "negative reduction work": ({0: ["allreduce 1 -5 6"], 1: ["allreduce 1 0 6"]}, "rank-0.txt:1: ", "negative"),
    "endless reduction work": ({0: ["reduce 1 1e300 0 6"], 1: ["reduce 1 0 0 6"]}, "rank-0.txt:1: ", "beyond 53 days"),
    "peer out of range": (
        {0: ["init", "isend 2 0 8 6"], 1: ["init"]}, "rank-0.txt:2: ", "not a rank of this trace (0 to 1)",
    ),
    "negative peer": ({0: ["init", "recv -3 0 8 6"], 1: ["init"]}, "rank-0.txt:2: ", "peer -3 is not a rank"),
    "root out of range": ({0: ["bcast 8 2 6"], 1: ["bcast 8 2 6"]}, "rank-0.txt:1: ", "root 2 is not a rank"),
    "negative tag": ({0: ["send 1 -7 8 6"], 1: ["init"]}, "rank-0.txt:1: ", "tag"),
    "derived datatype": (
        {0: ["init", "send 1 0 8 -1"], 1: ["init"]}, "rank-0.txt:2: ", "datatype -1 is a derived type",
    ),
    "private datatype": ({0: ["bcast 8 0 60"], 1: ["bcast 8 0 60"]}, "rank-0.txt:1: ", "MPI_BYTE or a basic type"),
    "too few fields": ({0: ["init", "send 1"], 1: ["init", "recv 0 0 8"]}, "rank-0.txt:2: ", "'send' lacks fields"),
    "line cut short": ({0: ["init", "send 1 0 8 6", "send 1 0"], 1: ["init"]}, "rank-0.txt:3: ", "lacks fields"),
    "too many fields": (
        {0: ["init", "bcast 8 0 6 1"], 1: ["init"]}, "rank-0.txt:2: ", "has 4 fields, at most 3 are known",
    ),
    "compute of nothing": ({0: ["init", "compute"], 1: ["init"]}, "rank-0.txt:2: ", "'compute' lacks fields"),
    "location without a line": (
        {0: ["init", "location a.c"], 1: ["init"]}, "rank-0.txt:2: ", "'location' lacks fields",
    ),
    "too few counts": (
        {0: ["init", "alltoallv 8 4 4 8 4"], 1: ["init"]}, "rank-0.txt:2: ", "fewer counts than the trace has ranks",
    ),
    "counts for more ranks": ({0: ["scatterv 1 2 3 4 5 6 7"], 1: ["init"]}, "rank-0.txt:1: ", "at most"),
    "reduce-scatter counts": (
        {0: ["reducescatter 1 2 3 4 5 0"], 1: ["init"]}, "rank-0.txt:1: ", "not one count for each rank",
    ),
    "wait without a post": (
        {0: ["init", "wait 0 1 5"], 1: ["init"]}, "rank-0.txt:2: ", "no outstanding isend or irecv fits this wait",
    ),
    "second wait for one post": (
        {0: ["isend 1 0 8 6", "wait 0 1 0", "wait 0 1 0"], 1: ["recv 0 0 8 6"]}, "rank-0.txt:3: ", "no outstanding",
    ),
    "old wait without a post": ({0: ["wait"], 1: ["init"]}, "rank-0.txt:1: ", "no isend or irecv stands before"),
    "action of another rank": ({0: ["init"], 1: ["init"], 2: []}, "rank-2.txt", "holds no action"),
}  # fmt: skip


def predict(cli: Callable, trace: Path, *options: object):
    return cli("run", "--workload", trace, "--target", "laptop", "-o", "out", "--no-report", *options)


@pytest.mark.parametrize("name", BAD_LINES)
def test_bad_line_is_named_with_its_file_and_number(refused, cli, write_trace, tmp_path, name):
    ranks, place, words = BAD_LINES[name]
    outcome = predict(cli, write_trace(ranks))
    refused(outcome, str(tmp_path / "trace" / place), words)
    assert not (tmp_path / "out").exists()


# -- what only all ranks together can tell ---------------------------------------------------------------------------

BAD_PROGRAMS: dict[str, tuple[Mapping[int, list[str]], int, tuple[str, ...]]] = {
    "unmatched send": (
        {0: ["init", "send 1 7 8 6"], 1: ["init"]}, 2,
        ("rank 0, operation 1 (send)", "tag 7 to rank 1, which never receives it"),
    ),
    "unmatched receive": (
        {0: ["init"], 1: ["init", "recv 0 7 8 6"]}, 2,
        ("rank 1, operation 1 (recv)", "tag 7 from rank 0, which never sends it"),
    ),
    "send that a wildcard cannot take": (
        {0: ["send 1 7 8 6", "send 1 7 8 6"], 1: ["recv -333 7 8 6"]}, 1, ("rank 0", "never receives it"),
    ),
    "collectives in another order": (
        {0: ["barrier", "bcast 8 0 6"], 1: ["bcast 8 0 6", "barrier"]}, 2,
        ("rank-0.txt:1: barrier is not called by all ranks alike", "workload.unequal_collectives=group"),
    ),
    "collective that one rank lacks": (
        {0: ["barrier", "barrier"], 1: ["barrier"]}, 2,
        ("rank-0.txt:1: barrier is not called by all ranks alike", "may be cut short"),
    ),
    "rendezvous head to head": (
        {0: ["send 1 0 1000000 6", "recv 1 0 8 6"], 1: ["send 0 0 8000000 6", "recv 0 0 8 6"]}, 1,
        ("deadlock: 2 of 2 ranks", "rank 0, operation 0 waits for rank 1 to receive 1000000 B"),
    ),
    "receives head to head": (
        {0: ["recv 1 0 8 6", "send 1 0 8 6"], 1: ["recv 0 0 8 6", "send 0 0 8 6"]}, 1,
        ("deadlock", "rank 1, operation 0 waits for 8 B from rank 0"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_PROGRAMS)
def test_ranks_that_do_not_fit_together_are_named(refused, cli, write_trace, tmp_path, name):
    ranks, status, words = BAD_PROGRAMS[name]
    outcome = predict(cli, write_trace(ranks))
    refused(outcome, *words, status=status)
    if status == 2:
        assert not (tmp_path / "out").exists()
    else:  # the run took place: its directory says that it failed, and shows no results
        assert json.loads((tmp_path / "out" / "manifest.json").read_text())["status"] == "failed"
        assert not (tmp_path / "out" / "stats.json").exists()


def test_deadlocked_run_is_reported_as_failed(refused, cli, write_trace):
    ranks, _, _ = BAD_PROGRAMS["receives head to head"]
    predict(cli, write_trace(ranks))
    assert "out: failed" in cli("status", "out").out
    refused(cli("report", "out"), "out: the run is failed; finish it with run --resume")


# -- files -----------------------------------------------------------------------------------------------------------


def _link(kind: bytes) -> tarfile.TarInfo:
    member = tarfile.TarInfo("rank-1.txt")
    member.type = kind
    member.linkname = "/etc/passwd"
    return member


def _zst(content: bytes) -> bytes:
    return zstandard.ZstdCompressor(write_checksum=True).compress(content)


def _flipped(content: bytes, place: int) -> bytes:
    return content[:place] + bytes([content[place] ^ 0x55]) + content[place + 1 :]


CUT = "cut short"
BAD_FILES: dict[str, tuple[Callable[..., Path], tuple[str, ...]]] = {
    "truncated zst archive": (
        lambda s: s.file("t.tar.zst", _zst(s.long_tar())[:-2000]), ("t.tar.zst: ", CUT, "download it again"),
    ),
    "truncated zst file": (lambda s: s.file("t.txt.zst", _zst(b"0 compute 5\n" * 99999)[:-20]), ("t.txt.zst: ", CUT)),
    "truncated gz file": (
        lambda s: s.file("t.txt.gz", gzip.compress(b"0 compute 5\n" * 9999)[:-20]), ("t.txt.gz: ", CUT),
    ),
    "truncated tar in a good zst": (lambda s: s.file("t.tar.zst", _zst(s.long_tar()[:50000])), ("t.tar.zst", CUT)),
    "tar without its end": (lambda s: s.file("t.tar", s.tar()[:2048]), ("t.tar: ", CUT)),
    "flipped byte in zst": (
        lambda s: s.file("t.tar.zst", _flipped(_zst(s.long_tar()), 3000)), ("t.tar.zst", "damaged"),
    ),
    "flipped byte in gz": (
        lambda s: s.file("t.tar.gz", _flipped(gzip.compress(s.long_tar()), 3000)), ("t.tar.gz", "damaged"),
    ),
    "flipped tar header": (lambda s: s.file("t.tar", _flipped(s.tar(), 1024 + 5)), ("t.tar: ", "damaged")),
    "member above the folder": (
        lambda s: s.archive_with(tarfile.TarInfo("../x")), ("bad.tar: ", "'../x' points outside"),
    ),
    "member deep above": (lambda s: s.archive_with(tarfile.TarInfo("a/../../x")), ("bad.tar: ", "points outside")),
    "absolute member": (lambda s: s.archive_with(tarfile.TarInfo("/etc/x")), ("bad.tar: ", "'/etc/x' points outside")),
    "symbolic link": (lambda s: s.archive_with(_link(tarfile.SYMTYPE)), ("bad.tar: ", "is a link; archive the files")),
    "hard link": (lambda s: s.archive_with(_link(tarfile.LNKTYPE)), ("bad.tar: ", "is a link")),
    "empty archive": (lambda s: s.file("empty.tar", s.tar_bytes({})), ("empty.tar: ", "--format")),
    "archive without a trace": (
        lambda s: s.file("doc.tar", s.tar_bytes({"README": b"hello\n"})), ("doc.tar: ", "--format"),
    ),
    "list in an archive without its file": (
        lambda s: s.file("t.tar", s.tar_bytes({"ti.txt": b"a.txt\nb.txt\n", "a.txt": b"0 init\n"})),
        ("t.tar:ti.txt:2: ", "'b.txt'", "not in the archive; add the file or mend the list"),
    ),
    "list in an archive names a file twice": (
        lambda s: s.file("t.tar", s.tar_bytes({"ti.txt": b"a\na\nb\n", "a": b"0 init\n", "b": b"1 init\n"})),
        ("t.tar:ti.txt:2: ", "'a'", "twice"),
    ),
    "rank file missing": (
        lambda s: s.trace_without("rank-1.txt"), ("ti.txt:2: ", "'rank-1.txt' does not exist", "mend the list"),
    ),
    "first rank file missing": (
        lambda s: s.trace_without("rank-0.txt") / "ti.txt", ("ti.txt:1: ", "'rank-0.txt' does not exist"),
    ),
    "rank file listed twice": (
        lambda s: s.listed("rank-0.txt", "rank-0.txt", "rank-1.txt"), ("rank-0.txt:1: ", "file of rank 1", "order"),
    ),
    "too few files listed": (lambda s: s.listed("rank-0.txt"), ("rank-0.txt:2: ", "not a rank of this trace (0 to 0)")),
    "files in another order": (
        lambda s: s.listed("rank-1.txt", "rank-0.txt"), ("rank-1.txt:1: ", "action of rank 1", "mend the list's order"),
    ),
    "empty list": (lambda s: s.listed("").parent, ("ti.txt: ", "names no file")),
    "rank missing in one file": (lambda s: s.file("t.txt", "0 init\n2 init\n"), ("t.txt: ", "rank 1 has no action")),
    "absurd rank": (lambda s: s.file("t.txt", "0 init\n2000000000 init\n"), ("t.txt:2: ", "rank 2000000000")),
    "line without a rank": (lambda s: s.file("t.txt", "0 init\ninit\n"), ("t.txt:2: ", "does not start with a rank")),
    "line without a verb": (lambda s: s.file("t.txt", "0 init\n0\n"), ("t.txt:2: ", "unknown verb ''")),
    "damage in the middle": (
        lambda s: s.file("t.txt", b"0 init\n\xff\xfe\x00\n"), ("t.txt:2: ", "does not start with a rank"),
    ),
    "empty file": (lambda s: s.file("t.txt", ""), ("t.txt: ", "is empty")),
    "binary junk": (lambda s: s.file("junk", bytes(range(256)) * 40), ("junk: ", "format")),
    "one long line of junk": (lambda s: s.file("junk", "x" * 9999), ("junk: ", "format")),
    "folder without a trace": (lambda s: s.file("empty/README", "nothing\n").parent, ("empty: ", "format")),
    "path that does not exist": (lambda s: s.folder / "nowhere", ("nowhere: ", "does not exist")),
    "home of nobody": (lambda s: Path("~no-such-user/trace"), ("~no-such-user/trace", "does not exist")),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_FILES)
def test_bad_file_is_named(refused, cli, scene, tmp_path, name):
    make, words = BAD_FILES[name]
    refused(predict(cli, make(scene)), *words)
    assert not (tmp_path / "out").exists()
    kept = tmp_path / "cache" / "manyscale" / "workloads"
    assert not kept.exists() or not list(kept.iterdir()), "a trace that cannot be read was kept"


@pytest.mark.parametrize(
    "content", [b"", b"x" * 9999, bytes(10240), bytes(range(256)) * 40], ids=["empty", "x", "nul", "junk"]
)
def test_file_forced_to_a_format_is_refused_all_the_same(refused, cli, scene, tmp_path, content):
    outcome = predict(cli, scene.file("junk", content), "--format", "simgrid-ti")
    refused(outcome, str(tmp_path / "junk"))


def digest_or_refusal(path: Path) -> str | None:
    """The digest of a trace; None if it is refused. Any other error is a defect."""
    try:
        return simgrid_ti.read(path).digest if simgrid_ti.can_read(path) else None
    except UserError:
        return None


def test_every_cut_of_an_archive_is_refused(scene):
    """Wherever a copy broke off, the reader says so or has the whole trace: never half of it."""
    data = scene.tar()
    whole = simgrid_ti.read(scene.file("whole.tar", data)).digest
    for packed, step in ((data, 101), (data, 512), (_zst(data), 1), (gzip.compress(data), 1), (lzma.compress(data), 1)):
        assert digest_or_refusal(scene.file("t", packed)) == whole
        for length in range(0, len(packed), step):
            assert digest_or_refusal(scene.file("t", packed[:length])) in (None, whole), length


def test_every_flipped_byte_of_an_archive_is_refused(scene):
    """All of these carry a checksum of their content."""
    data = scene.tar()
    whole = simgrid_ti.read(scene.file("whole.tar", data)).digest
    for packed in (_zst(data), gzip.compress(data), lzma.compress(data)):
        for place in range(len(packed)):
            assert digest_or_refusal(scene.file("t", _flipped(packed, place))) in (None, whole), place
    for place in range(512):  # a tar archive has them of its headers
        assert digest_or_refusal(scene.file("t", _flipped(data, place))) in (None, whole), place


# -- the tester itself -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "err"),
    [
        (1, "manyscale: a.txt:1: bad; mend it\n"),
        (2, "manyscale: a.txt:1: bad; mend it\nand more\n"),
        (2, "a.txt:1: bad; mend it\n"),
        (2, "manyscale: a.txt: bad; mend it\n"),
        (2, ""),
        (2, "manyscale: a.txt:1: mend it: a defect; --debug shows it\n"),
    ],
)
def test_the_check_itself_can_fail(refused, status, err):
    class Outcome:
        pass

    outcome = Outcome()
    outcome.status, outcome.err = status, err
    with pytest.raises(AssertionError):
        refused(outcome, "a.txt:1: ", "mend")
