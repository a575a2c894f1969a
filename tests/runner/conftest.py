"""Fixtures of tests of the command line: the one line that an error is, and files to go wrong."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

GOOD = {0: ["init", "send 1 0 8 6", "finalize"], 1: ["init", "recv 0 0 8 6", "finalize"]}


def _refused(outcome, *needles: str, status: int = 2) -> None:
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


@pytest.fixture(scope="session")
def refused() -> Callable[..., None]:
    """``refused(outcome, *needles, status=2)`` fails unless the command left one line with every needle in it."""
    return _refused


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

    def good_trace(self) -> Path:
        """The folder ``trace``: one message from rank 0 to rank 1."""
        return self.write_trace(GOOD)

    def tar(self) -> bytes:
        return self.folder_as_tar(self.good_trace())

    def long_tar(self) -> bytes:
        computes = [f"compute {number * 7919 % 100003}" for number in range(20000)]
        return self.folder_as_tar(self.write_trace({0: ["init", *computes], 1: ["init"]}, "long"))

    def trace_without(self, name: str) -> Path:
        folder = self.good_trace()
        (folder / name).unlink()
        return folder

    def listed(self, *lines: str, ranks: Mapping[int, list[str]] = GOOD) -> Path:
        self.write_trace(ranks)
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


@pytest.fixture
def scene(tmp_path, write_trace, folder_as_tar, tar_bytes) -> Scene:
    return Scene(tmp_path, write_trace, folder_as_tar, tar_bytes)
