"""Bad input: one line that names the file, the place and the mend; exit status 2 (1 where the run failed); nothing written."""

from __future__ import annotations

import gzip
import io
import json
import lzma
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import yaml
import zstandard

from manyscale.runner.errors import UserError
from manyscale.runner.readers import simgrid_ti

REAL_TARGET = Path(__file__).parents[2] / "cluster_configs" / "target" / "laptop.yaml"
OK = {0: ["init", "send 1 0 8 6", "finalize"], 1: ["init", "recv 0 0 8 6", "finalize"]}


def assert_refused(outcome, *needles: str, status: int = 2) -> None:
    """The one line that the rule asks for, with every needle in it."""
    assert outcome.status == status, outcome
    lines = outcome.err.splitlines()
    assert len(lines) == 1, outcome.err
    assert lines[0].startswith("manyscale: "), lines[0]
    assert "Traceback" not in outcome.err
    assert "--debug" not in outcome.err, f"a defect, not bad input: {lines[0]}"
    assert len(lines[0]) < 1000, lines[0]
    for needle in needles:
        assert needle in lines[0], f"{needle!r} is not in: {lines[0]}"


# -- lines of a trace: what stands in ranks 0 and 1, where the error is, and words of the message -------------------

BAD_LINES: dict[str, tuple[Mapping[int, list[str]], str, str]] = {
    "unknown verb": ({0: ["init", "frobnicate 1"], 1: ["init"]}, "rank-0.txt:2: ", "unknown verb 'frobnicate'; known are "),
    "one-sided": ({0: ["init", "Win_fence 0"], 1: ["init"]}, "rank-0.txt:2: ", "one-sided communication cannot be replayed; trace"),
    "put": ({0: ["init"], 1: ["init", "Put 0 8 6"]}, "rank-1.txt:2: ", "one-sided"),
    "file input": ({0: ["init", "IO - read 8 6"], 1: ["init"]}, "rank-0.txt:2: ", "trace the program without MPI-IO"),
    "startall": ({0: ["init", "Startall 3"], 1: ["init"]}, "rank-0.txt:2: ", "use MPI_Start for each"),
    "migration": ({0: ["init", "migrate 1 2"], 1: ["init"]}, "rank-0.txt:2: ", "migration cannot be replayed"),
    "text for a number": ({0: ["init", "send 1 zero 8 6"], 1: ["init"]}, "rank-0.txt:2: ", "not a number"),
    "not a number": ({0: ["init", "compute nan"], 1: ["init"]}, "rank-0.txt:2: ", "not a number"),
    "half a number": ({0: ["init", "compute 1e"], 1: ["init"]}, "rank-0.txt:2: ", "not a number"),
    "fraction of an element": ({0: ["init", "send 1 0 8.5 6"], 1: ["init"]}, "rank-0.txt:2: ", "size is not a whole number"),
    "negative size": ({0: ["init", "send 1 0 -8 6"], 1: ["init"]}, "rank-0.txt:2: ", "size -8 is negative"),
    "size that overflows": ({0: ["init", "send 1 0 3000000000000000000 0"], 1: ["init"]}, "rank-0.txt:2: ", "size beyond"),
    "negative compute": ({0: ["init", "compute -5"], 1: ["init"]}, "rank-0.txt:2: ", "negative"),
    "endless compute": ({0: ["init", "compute 1e300"], 1: ["init"]}, "rank-0.txt:2: ", "beyond 53 days"),
    "computes that overflow together": ({0: ["init", *["compute 4e15"] * 3], 1: ["init"]}, "rank-0.txt:3: ", "beyond 53 days"),
    "negative reduction work": ({0: ["allreduce 1 -5 6"], 1: ["allreduce 1 0 6"]}, "rank-0.txt:1: ", "negative"),
    "endless reduction work": ({0: ["reduce 1 1e300 0 6"], 1: ["reduce 1 0 0 6"]}, "rank-0.txt:1: ", "beyond 53 days"),
    "peer out of range": ({0: ["init", "isend 2 0 8 6"], 1: ["init"]}, "rank-0.txt:2: ", "not a rank of this trace (0 to 1)"),
    "negative peer": ({0: ["init", "recv -3 0 8 6"], 1: ["init"]}, "rank-0.txt:2: ", "peer -3 is not a rank"),
    "root out of range": ({0: ["bcast 8 2 6"], 1: ["bcast 8 2 6"]}, "rank-0.txt:1: ", "root 2 is not a rank"),
    "negative tag": ({0: ["send 1 -7 8 6"], 1: ["init"]}, "rank-0.txt:1: ", "tag"),
    "derived datatype": ({0: ["init", "send 1 0 8 -1"], 1: ["init"]}, "rank-0.txt:2: ", "datatype -1 is a derived type"),
    "private datatype": ({0: ["bcast 8 0 60"], 1: ["bcast 8 0 60"]}, "rank-0.txt:1: ", "MPI_BYTE or a basic type"),
    "too few fields": ({0: ["init", "send 1"], 1: ["init", "recv 0 0 8"]}, "rank-0.txt:2: ", "'send' lacks fields"),
    "line cut short": ({0: ["init", "send 1 0 8 6", "send 1 0"], 1: ["init"]}, "rank-0.txt:3: ", "lacks fields"),
    "too many fields": ({0: ["init", "bcast 8 0 6 1"], 1: ["init"]}, "rank-0.txt:2: ", "has 4 fields, at most 3 are known"),
    "compute of nothing": ({0: ["init", "compute"], 1: ["init"]}, "rank-0.txt:2: ", "'compute' lacks fields"),
    "location without a line": ({0: ["init", "location a.c"], 1: ["init"]}, "rank-0.txt:2: ", "'location' lacks fields"),
    "too few counts": ({0: ["init", "alltoallv 8 4 4 8 4"], 1: ["init"]}, "rank-0.txt:2: ", "fewer counts than the trace has ranks (2)"),
    "counts for more ranks": ({0: ["scatterv 1 2 3 4 5 6 7"], 1: ["init"]}, "rank-0.txt:1: ", "at most"),
    "reduce-scatter counts": ({0: ["reducescatter 1 2 3 4 5 0"], 1: ["init"]}, "rank-0.txt:1: ", "not one count for each rank"),
    "wait without a post": ({0: ["init", "wait 0 1 5"], 1: ["init"]}, "rank-0.txt:2: ", "no outstanding isend or irecv fits this wait"),
    "second wait for one post": (
        {0: ["isend 1 0 8 6", "wait 0 1 0", "wait 0 1 0"], 1: ["recv 0 0 8 6"]}, "rank-0.txt:3: ", "no outstanding",
    ),
    "old wait without a post": ({0: ["wait"], 1: ["init"]}, "rank-0.txt:1: ", "no isend or irecv stands before"),
    "action of another rank": ({0: ["init"], 1: ["init"], 2: []}, "rank-2.txt", "holds no action"),
}  # fmt: skip


def predict(cli: Callable, trace: Path, *options: object):
    return cli("run", "--workload", trace, "--target", "laptop", "-o", "out", "--no-report", *options)


@pytest.mark.parametrize("name", BAD_LINES)
def test_bad_line_is_named_with_its_file_and_number(cli, write_trace, tmp_path, name):
    ranks, place, words = BAD_LINES[name]
    outcome = predict(cli, write_trace(ranks))
    assert_refused(outcome, str(tmp_path / "trace" / place), words)
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
        ("rank 1, operation 0 (bcast) meets rank 0, operation 0 (barrier)", "must call the same"),
    ),
    "collective that one rank lacks": (
        {0: ["barrier", "barrier"], 1: ["barrier"]}, 2, ("rank 0 calls 2 collectives", "rank 1 only 1", "incomplete"),
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
def test_ranks_that_do_not_fit_together_are_named(cli, write_trace, tmp_path, name):
    ranks, status, words = BAD_PROGRAMS[name]
    outcome = predict(cli, write_trace(ranks))
    assert_refused(outcome, *words, status=status)
    if status == 2:
        assert not (tmp_path / "out").exists()
    else:  # the run took place: its directory says that it failed, and shows no results
        assert json.loads((tmp_path / "out" / "manifest.json").read_text())["status"] == "failed"
        assert not (tmp_path / "out" / "stats.json").exists()


# -- files -----------------------------------------------------------------------------------------------------------


class Scene:
    """Makes the files of a case in the test's folder."""

    def __init__(self, folder: Path, write_trace: Callable, folder_as_tar: Callable, tar_bytes: Callable) -> None:
        self.folder = folder
        self.write_trace = write_trace
        self.folder_as_tar = folder_as_tar
        self.tar_bytes = tar_bytes

    def file(self, name: str, content: bytes | str) -> Path:
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    def tar(self) -> bytes:
        return self.folder_as_tar(self.write_trace(OK))

    def long_tar(self) -> bytes:
        computes = [f"compute {number * 7919 % 100003}" for number in range(20000)]
        return self.folder_as_tar(self.write_trace({0: ["init", *computes], 1: ["init"]}, "long"))

    def trace_without(self, name: str) -> Path:
        folder = self.write_trace(OK)
        (folder / name).unlink()
        return folder

    def listed(self, *lines: str, ranks: Mapping[int, list[str]] = OK) -> Path:
        folder = self.write_trace(ranks)
        return self.file("trace/ti.txt", "".join(f"{line}\n" for line in lines))

    def archive_with(self, member: tarfile.TarInfo) -> Path:
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as archive:
            content = b"0 init\n"
            first = tarfile.TarInfo("rank-0.txt")
            first.size = len(content)
            archive.addfile(first, io.BytesIO(content))
            archive.addfile(member)
        return self.file("bad.tar", buffer.getvalue())


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
BAD_FILES: dict[str, tuple[Callable[[Scene], Path], tuple[str, ...]]] = {
    "truncated zst archive": (lambda s: s.file("t.tar.zst", _zst(s.long_tar())[:-2000]), ("t.tar.zst: ", CUT, "download it again")),
    "truncated zst file": (lambda s: s.file("t.txt.zst", _zst(b"0 compute 5\n" * 99999)[:-20]), ("t.txt.zst: ", CUT)),
    "truncated gz file": (lambda s: s.file("t.txt.gz", gzip.compress(b"0 compute 5\n" * 9999)[:-20]), ("t.txt.gz: ", CUT)),
    "truncated tar in a good zst": (lambda s: s.file("t.tar.zst", _zst(s.long_tar()[:50000])), ("t.tar.zst", CUT)),
    "tar without its end": (lambda s: s.file("t.tar", s.tar()[:2048]), ("t.tar: ", CUT)),
    "flipped byte in zst": (lambda s: s.file("t.tar.zst", _flipped(_zst(s.long_tar()), 3000)), ("t.tar.zst", "damaged")),
    "flipped byte in gz": (lambda s: s.file("t.tar.gz", _flipped(gzip.compress(s.long_tar()), 3000)), ("t.tar.gz", "damaged")),
    "flipped tar header": (lambda s: s.file("t.tar", _flipped(s.tar(), 1024 + 5)), ("t.tar: ", "damaged")),
    "member above the folder": (lambda s: s.archive_with(tarfile.TarInfo("../x")), ("bad.tar: ", "'../x' points outside")),
    "member deep above": (lambda s: s.archive_with(tarfile.TarInfo("a/../../x")), ("bad.tar: ", "points outside")),
    "absolute member": (lambda s: s.archive_with(tarfile.TarInfo("/etc/x")), ("bad.tar: ", "'/etc/x' points outside")),
    "symbolic link": (lambda s: s.archive_with(_link(tarfile.SYMTYPE)), ("bad.tar: ", "is a link; archive the files")),
    "hard link": (lambda s: s.archive_with(_link(tarfile.LNKTYPE)), ("bad.tar: ", "is a link")),
    "empty archive": (lambda s: s.file("empty.tar", s.tar_bytes({})), ("empty.tar: ", "--format")),
    "archive without a trace": (lambda s: s.file("doc.tar", s.tar_bytes({"README": b"hello\n"})), ("doc.tar: ", "--format")),
    "list in an archive without its file": (
        lambda s: s.file("t.tar", s.tar_bytes({"ti.txt": b"a.txt\nb.txt\n", "a.txt": b"0 init\n"})),
        ("t.tar:ti.txt:2: ", "'b.txt'", "not in the archive; add the file or mend the list"),
    ),
    "list in an archive names a file twice": (
        lambda s: s.file("t.tar", s.tar_bytes({"ti.txt": b"a\na\nb\n", "a": b"0 init\n", "b": b"1 init\n"})),
        ("t.tar:ti.txt:2: ", "'a'", "twice"),
    ),
    "rank file missing": (lambda s: s.trace_without("rank-1.txt"), ("ti.txt:2: ", "'rank-1.txt' does not exist", "mend the list")),
    "first rank file missing": (lambda s: s.trace_without("rank-0.txt") / "ti.txt", ("ti.txt:1: ", "'rank-0.txt' does not exist")),
    "rank file listed twice": (lambda s: s.listed("rank-0.txt", "rank-0.txt", "rank-1.txt"), ("rank-0.txt:1: ", "file of rank 1", "order")),
    "too few files listed": (lambda s: s.listed("rank-0.txt"), ("rank-0.txt:2: ", "not a rank of this trace (0 to 0)")),
    "files in another order": (lambda s: s.listed("rank-1.txt", "rank-0.txt"), ("rank-1.txt:1: ", "action of rank 1", "mend the list's order")),
    "empty list": (lambda s: s.listed("").parent, ("ti.txt: ", "names no file")),
    "rank missing in one file": (lambda s: s.file("t.txt", "0 init\n2 init\n"), ("t.txt: ", "rank 1 has no action")),
    "absurd rank": (lambda s: s.file("t.txt", "0 init\n2000000000 init\n"), ("t.txt:2: ", "rank 2000000000")),
    "line without a rank": (lambda s: s.file("t.txt", "0 init\ninit\n"), ("t.txt:2: ", "does not start with a rank")),
    "line without a verb": (lambda s: s.file("t.txt", "0 init\n0\n"), ("t.txt:2: ", "unknown verb ''")),
    "damage in the middle": (lambda s: s.file("t.txt", b"0 init\n\xff\xfe\x00\n"), ("t.txt:2: ", "does not start with a rank")),
    "empty file": (lambda s: s.file("t.txt", ""), ("t.txt: ", "format")),
    "binary junk": (lambda s: s.file("junk", bytes(range(256)) * 40), ("junk: ", "format")),
    "one long line of junk": (lambda s: s.file("junk", "x" * 9999), ("junk: ", "format")),
    "folder without a trace": (lambda s: s.file("empty/README", "nothing\n").parent, ("empty: ", "format")),
    "path that does not exist": (lambda s: s.folder / "nowhere", ("nowhere: ", "does not exist")),
    "home of nobody": (lambda s: Path("~no-such-user/trace"), ("~no-such-user/trace", "does not exist")),
}  # fmt: skip


@pytest.fixture
def scene(tmp_path, write_trace, folder_as_tar, tar_bytes) -> Scene:
    return Scene(tmp_path, write_trace, folder_as_tar, tar_bytes)


@pytest.mark.parametrize("name", BAD_FILES)
def test_bad_file_is_named(cli, scene, tmp_path, name):
    make, words = BAD_FILES[name]
    assert_refused(predict(cli, make(scene)), *words)
    assert not (tmp_path / "out").exists()
    kept = tmp_path / "cache" / "manyscale" / "workloads"
    assert not kept.exists() or not list(kept.iterdir()), "a trace that cannot be read was kept"


@pytest.mark.parametrize("content", [b"", b"x" * 9999, bytes(10240), bytes(range(256)) * 40], ids=["empty", "x", "nul", "junk"])
def test_file_forced_to_a_format_is_refused_all_the_same(cli, scene, tmp_path, content):
    outcome = predict(cli, scene.file("junk", content), "--format", "simgrid-ti")
    assert_refused(outcome, str(tmp_path / "junk"))


def digest_or_refusal(path: Path) -> str | None:
    try:
        return simgrid_ti.read(path).digest if simgrid_ti.can_read(path) else None
    except UserError as error:
        assert str(path) in str(error)
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


# -- studies and targets ---------------------------------------------------------------------------------------------

BASE = {"schema": 1, "workload": {"path": "trace"}, "target": "laptop"}


def study_text(**changes: object) -> str:
    return yaml.safe_dump({key: value for key, value in {**BASE, **changes}.items() if value is not None})


def laptop(**changes: object) -> dict[str, object]:
    return {"target": {"name": "laptop", **changes}}


BAD_STUDIES: dict[str, tuple[str, tuple[str, ...]]] = {
    "invalid YAML": ("schema: 1\nworkload: {path: trace\ntarget: laptop\n", ("study.yaml:3: ", "not valid YAML")),
    "tabs": ("schema: 1\n\ttarget: laptop\n", ("study.yaml:2: ", "not valid YAML")),
    "impossible date": ("schema: 1\nname: 2024-99-99\n", ("study.yaml", "not valid YAML")),
    "nesting without end": ("[" * 5000, ("study.yaml", "not valid YAML")),
    "binary": ("\x00\x01", ("study.yaml", "YAML")),
    "empty": ("", ("study.yaml: ", "a study is a mapping of keys")),
    "list": ("- a\n- b\n", ("study.yaml: ", "a study is a mapping of keys")),
    "unknown key": (study_text(wrkload=1), ("study.yaml: wrkload: ", "unknown key; remove it or mend its spelling")),
    "unknown nested key": (study_text(model={"gpuu": "x"}), ("study.yaml: model.gpuu: ", "unknown key")),
    "number for a key": ("1: 2\n" + study_text(), ("study.yaml: 1: ", "should be strings")),
    "other schema": (study_text(schema=2), ("study.yaml: schema: ", "2 is not one of 1")),
    "missing workload": (study_text(workload=None), ("study.yaml: workload: ", "missing; add it")),
    "missing target": (study_text(target=None), ("study.yaml: target: ", "missing; add it")),
    "target without a name": (study_text(target={"nodes": 1}), ("study.yaml: target: ", "needs the key 'name'")),
    "target of another type": (study_text(target=5), ("study.yaml: target", "string")),
    "wrong unit": (study_text(workload={"path": "trace", "flop_rate": "1 GHz"}), ("study.yaml: workload.flop_rate: ", "'GHz' is not a unit of rate")),
    "bare number": (study_text(workload={"path": "trace", "flop_rate": 5}), ("study.yaml: workload.flop_rate: ", "5 has no unit", "1 Gflop/s")),
    "number without a unit": (study_text(workload={"path": "trace", "flop_rate": "5"}), ("workload.flop_rate: ", "no unit")),
    "negative quantity": (study_text(workload={"path": "trace", "flop_rate": "-1 Gflop/s"}), ("workload.flop_rate: ", "is negative")),
    "endless exponent": (study_text(workload={"path": "trace", "flop_rate": "1e999999999 flop/s"}), ("workload.flop_rate: ", "1 Gflop/s")),
    "negative ratio": (study_text(cpu_ratio=-1), ("study.yaml: cpu_ratio: ", "greater than 0")),
    "negative seed": (study_text(seed=-1), ("study.yaml: seed: ", "greater than or equal to 0")),
    "unknown cpu model": (study_text(model={"cpu": "magic"}), ("study.yaml: model.cpu: ", "unknown model 'magic'; known are burst")),
    "unknown network model": (study_text(model={"network": "magic"}), ("model.network: ", "known are latency-bandwidth")),
    "unknown sampling": (study_text(sampling={"ranks": "some"}), ("study.yaml: sampling.ranks: ", "unknown method 'some'; known are full")),
    "unknown format": (study_text(workload={"path": "trace", "format": "otf9"}), ("unknown reader 'otf9'; known are ", "simgrid-ti")),
    "unknown target": (study_text(target="cray1"), ("unknown target 'cray1'", "shipped are crossbar256")),
    "wrong target key": (study_text(**laptop(network={"latencyy": "1 us"})), ("study.yaml", "network.latencyy: ", "unknown key")),
    "wrong target unit": (study_text(**laptop(network={"latency": "1 GB"})), ("study.yaml", "network.latency: ", "'GB' is not a unit of time")),
    "bare target number": (study_text(**laptop(network={"latency": 5})), ("study.yaml", "network.latency: ", "5 has no unit")),
    "endless latency": (study_text(**laptop(network={"latency": "1e20 s"})), ("study.yaml", "network.latency: ", "beyond 53 days")),
    "rate of almost nothing": (study_text(**laptop(network={"bandwidth": "1e-300 B/s"})), ("study.yaml", "network.bandwidth: ", "rate")),
    "unknown collectives": (study_text(**laptop(network={"collectives": "magic"})), ("collectives", "magic")),
    "bad sweep key": (study_text(sweep={"foo.bar": [1]}), ("study.yaml: sweep foo.bar=1: ", "foo: unknown key")),
    "empty sweep list": (study_text(sweep={"cpu_ratio": []}), ("study.yaml: sweep.cpu_ratio: ", "at least 1")),
    "sweep without a list": (study_text(sweep={"cpu_ratio": 2}), ("study.yaml: sweep.cpu_ratio: ", "list")),
    "sweep value of a wrong unit": (
        study_text(sweep={"target.network.latency": ["1 us", "2 GHz"]}),
        ("study.yaml: sweep target.network.latency=2 GHz: ", "network.latency: ", "'GHz' is not a unit of time"),
    ),
    "sweep into a text": (study_text(sweep={"name.x": [1]}, name="a"), ("study.yaml", "'name' holds no keys")),
    "mapping of a wrong length": (study_text(mapping={"placement": [0]}), ("study.yaml", "mapping.placement: 1 nodes for 2 ranks; list one for each")),
    "mapping out of range": (study_text(mapping={"placement": [0, 1]}), ("study.yaml", "mapping.placement: node 1 is not one of the 1 of laptop")),
    "mapping below range": (study_text(mapping={"placement": [-2, 0]}), ("study.yaml", "mapping.placement: node -2 is not one")),
    "mapping beyond integers": (study_text(mapping={"placement": [0, 10**30]}), ("study.yaml", "mapping.placement: node 1000")),
    "mapping of a wrong kind": (study_text(mapping={"placement": "random"}), ("study.yaml: mapping.placement", "block")),
    "more ranks than cores": (
        study_text(**laptop(node={"cores_per_socket": 1})), ("study.yaml", "2 ranks do not fit on laptop", "mapping.oversubscribe"),
    ),
    "more ranks than cores on a node": (
        study_text(**laptop(nodes=2, node={"cores_per_socket": 1}), mapping={"ranks_per_node": 2}),
        ("study.yaml", "node 0 of laptop would run 2 ranks on 1 cores", "mapping.oversubscribe"),
    ),
    "correction of an unknown rank": (study_text(ipc_correction={"ranks": {9: 2.0}}), ("ipc_correction.ranks: rank 9",)),
    "correction of an unknown region": (study_text(ipc_correction={"regions": {"a": 2.0}}), ("unknown region 'a'",)),
    "correction of an unknown phase": (study_text(ipc_correction={"phases": {"0/9": 2.0}}), ("rank 0 has no phase 9",)),
    "trace that does not exist": (study_text(workload={"path": "nowhere"}), ("nowhere: ", "does not exist")),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_STUDIES)
def test_bad_study_is_named_with_its_key(cli, scene, tmp_path, name):
    text, words = BAD_STUDIES[name]
    scene.write_trace(OK)
    study = scene.file("study.yaml", text)
    for command in (("run", study, "-o", "out", "--no-report"), ("run", study, "-o", "out", "--dry-run")):
        outcome = cli(*command)
        if command[-1] == "--dry-run" and name.startswith(("unknown collectives", "correction of")):
            continue  # found where the work is done
        assert_refused(outcome, *words)
        assert not (tmp_path / "out").exists()


def target_text(**changes: object) -> str:
    content = {**yaml.safe_load(REAL_TARGET.read_text()), **changes}
    return yaml.safe_dump({key: value for key, value in content.items() if value is not None})


BAD_TARGETS: dict[str, tuple[str, tuple[str, ...]]] = {
    "unknown key": (target_text(nodess=1), ("machine.yaml: nodess: ", "unknown key")),
    "missing key": (target_text(nodes=None), ("machine.yaml: nodes: ", "missing; add it")),
    "no sources": (target_text(sources=None), ("machine.yaml: sources: ", "missing; add it")),
    "a part without a source": (target_text(sources={"nodes": "x", "node": "y"}), ("machine.yaml: ", "no source is given for network")),
    "no nodes": (target_text(nodes=0), ("machine.yaml: nodes: ", "greater than or equal to 1")),
    "half a node": (target_text(nodes=1.5), ("machine.yaml: nodes: ", "integer")),
    "text": ("fast\n", ("machine.yaml: ", "a machine is a mapping of keys")),
    "invalid YAML": ("schema: 1\nnodes: [\n", ("machine.yaml:3: ", "not valid YAML")),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_TARGETS)
def test_bad_target_is_named_with_its_key(cli, scene, tmp_path, name):
    text, words = BAD_TARGETS[name]
    scene.file("machine.yaml", text)
    outcome = cli("run", "--workload", scene.write_trace(OK), "--target", "machine.yaml", "-o", "out")
    assert_refused(outcome, *words)
    assert not (tmp_path / "out").exists()


# -- options and directories -----------------------------------------------------------------------------------------

RUN = ("run", "study.yaml", "--no-report")
BAD_COMMANDS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "missing study file": (("run", "nothing.yaml", "-o", "out"), ("unknown study 'nothing.yaml'", "shipped examples are ")),
    "unknown example": (("run", "lulesh-9"), ("unknown study 'lulesh-9'", "lulesh-8")),
    "study that is a folder": (("run", "trace"), ("trace: is a directory", "--workload trace")),
    "nothing to run": (("run",), ("name a study, or --workload PATH --target NAME",)),
    "workload without a target": (("run", "--workload", "trace"), ("--workload needs --target",)),
    "assignment without a value": ((*RUN, "--set", "seed"), ("--set 'seed': write KEY=VALUE",)),
    "assignment without a key": ((*RUN, "--set", "=5"), ("not a dotted key",)),
    "assignment that is no YAML": ((*RUN, "--set", "seed=["), ("--set 'seed=['", "not valid YAML")),
    "assignment of a wrong unit": ((*RUN, "--set", "target.network.latency=2 GHz"), ("network.latency: ", "'GHz' is not a unit of time")),
    "model without a level": ((*RUN, "--model", "burst"), ("--model 'burst': write LEVEL=NAME",)),
    "sampling of an unknown level": ((*RUN, "--sampling", "warps=full"), ("sampling.warps: ", "unknown key")),
    "unknown executor": ((*RUN, "-o", "out", "--executor", "slurm"), ("unknown executor 'slurm'; known are auto, local, ray",)),
    "no workers": ((*RUN, "--workers", "0"), ("--workers 0: at least one",)),
    "negative seed": ((*RUN, "--seed", "-1"), ("--seed -1: a seed is not negative",)),
    "seed that is no number": ((*RUN, "--seed", "x"), ("--seed", "'x'")),
    "unknown option": ((*RUN, "--fast"), ("--fast",)),
    "unknown command": (("simulate",), ("simulate", "run")),
    "unknown format": (("run", "--workload", "trace", "--target", "laptop", "--format", "otf9"), ("unknown reader 'otf9'; known are ",)),
    "unknown format to convert": (("convert", "trace", "-o", "out", "--format", "otf9"), ("unknown reader 'otf9'",)),
    "rate without a unit": (("convert", "trace", "-o", "out", "--flop-rate", "5"), ("flop_rate: ", "no unit")),
    "output is a file": ((*RUN, "-o", "study.yaml"), ("study.yaml: is a file; name a directory with -o",)),
    "output is not empty": ((*RUN, "-o", "trace"), ("trace: is not empty", "--resume")),
    "output cannot be written": ((*RUN, "-o", "study.yaml/below"), ("study.yaml/below: cannot be written", "-o")),
    "output with an endless name": ((*RUN, "-o", "x" * 300), ("x" * 300, "name")),
    "plan into a full folder": (("plan", "study.yaml", "-o", "trace"), ("trace: is not empty",)),
    "convert into a full folder": (("convert", "trace", "-o", "trace"), ("trace: is not empty",)),
    "resume of nothing": ((*RUN, "--resume", "-o", "trace"), ("trace: is no run directory", "manifest.json", "--resume")),
    "resume of a missing folder": ((*RUN, "--resume", "-o", "nowhere"), ("nowhere: is no run directory",)),
    "resume without a folder": ((*RUN, "--resume"), ("--resume needs the run directory: -o DIR",)),
    "status of nothing": (("status", "trace"), ("trace: is no run directory", "manifest.json")),
    "status of a missing folder": (("status", "nowhere"), ("nowhere: does not exist",)),
    "status of a file": (("status", "study.yaml"), ("study.yaml: is no run directory",)),
    "report of nothing": (("report", "trace"), ("trace: is no run directory",)),
    "unknown case": (("accuracy", "magic"), ("unknown case 'magic'; known are ",)),
    "cache that is a file": ((*RUN, "-o", "out", "--cache", "study.yaml"), ("study.yaml", "the cache cannot be written", "--cache DIR")),
    "cache of a dry run": ((*RUN, "--dry-run", "--cache", "study.yaml"), ("the cache cannot be written", "--cache DIR")),
    "cache of an archive": (
        ("run", "--workload", "t.txt", "--target", "laptop", "--dry-run", "--cache", "study.yaml"), ("the cache cannot be written", "--cache DIR"),
    ),
}  # fmt: skip


def contents(folder: Path) -> dict[str, bytes]:
    return {str(file): file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file() and "cache" not in file.parts}


@pytest.mark.parametrize("name", BAD_COMMANDS)
def test_bad_command_changes_nothing(cli, scene, tmp_path, name):
    arguments, words = BAD_COMMANDS[name]
    scene.write_trace(OK)
    scene.file("study.yaml", study_text())
    scene.file("t.txt", "0 init\n0 finalize\n")
    before = contents(tmp_path)
    assert_refused(cli(*arguments), *words)
    assert contents(tmp_path) == before
    assert not (tmp_path / "out").exists()


@pytest.fixture
def finished_run(cli, scene, tmp_path) -> Path:
    scene.write_trace(OK)
    scene.file("study.yaml", study_text())
    assert cli(*RUN, "-o", "done").status == 0
    return tmp_path / "done"


def test_resume_with_another_study_leaves_the_run_as_it_was(cli, finished_run):
    before = contents(finished_run)
    outcome = cli(*RUN, "-o", finished_run, "--resume", "--set", "cpu_ratio=2")
    assert_refused(outcome, "done/resolved.yaml: ", "another study (cpu_ratio differ)")
    assert contents(finished_run) == before
    assert cli(*RUN, "-o", finished_run, "--resume").status == 0


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe", b'{"a": 1}'])
def test_damaged_manifest(cli, finished_run, content):
    (finished_run / "manifest.json").write_bytes(content)
    for command in (("status", finished_run), ("report", finished_run)):
        assert_refused(cli(*command), "manifest.json: ")


@pytest.mark.parametrize("content", [b"", b"- a\n", b"a: [\n", b"\xff"])
def test_damaged_resolved_study(cli, finished_run, content):
    (finished_run / "resolved.yaml").write_bytes(content)
    assert_refused(cli("report", finished_run), "resolved.yaml")
    assert_refused(cli(*RUN, "-o", finished_run, "--resume"), "resolved.yaml")
    assert_refused(cli("run", "--resume", "-o", finished_run, "--no-report"), "resolved.yaml")


@pytest.mark.parametrize("tail", [b'{"key": "a', b"5\n", b"\xff\xfe\n", b"{}\n"])
def test_damaged_end_of_a_journal_is_left_out(cli, finished_run, tail):
    with (finished_run / "units.jsonl").open("ab") as journal:
        journal.write(tail)
    outcome = cli("status", finished_run)
    assert outcome.status == 0
    assert "2 units finished" in outcome.out


def test_deadlocked_run_is_reported_as_failed(cli, write_trace):
    ranks, _, _ = BAD_PROGRAMS["receives head to head"]
    predict(cli, write_trace(ranks))
    assert "out: failed" in cli("status", "out").out
    assert_refused(cli("report", "out"), "out: the run is failed; finish it with run --resume")


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
def test_the_check_itself_can_fail(status, err):
    class Outcome:
        pass

    outcome = Outcome()
    outcome.status, outcome.err = status, err
    with pytest.raises(AssertionError):
        assert_refused(outcome, "a.txt:1: ", "mend")
