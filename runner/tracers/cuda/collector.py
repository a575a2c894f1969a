"""Stores launches while the program that makes them runs: it asks over a socket what is to be recorded of each, and
sends the record (runtime/recording.c). So neither side holds more than some blocks of a launch, and nothing is stored
twice.

Each process has a connection of its own, and a thread here that reads it. A program that runs faster than its launches
are stored waits: the socket's buffer is full.
"""

from __future__ import annotations

import io
import shutil
import socket
import tempfile
import threading
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Final, Self

import numpy as np

from manyscale.runner.errors import UserError
from manyscale.runner.readers.cuda.launches import CudaKernel, FullError, Launch, store_launch
from manyscale.runner.readers.cuda.reader import Collected
from manyscale.runner.readers.cuda.records import LaunchRecord
from manyscale.runner.readers.stores.launch_counts import COUNTED, CountsWriter

OUTSIDE, COUNT, RECORD, RECORD_IN_FILE, LIMIT, COUNT_IN_FILE = range(6)  # as recording.c has them
_ASKED: Final = np.dtype(
    [("kernel", "<u4"), ("is_in_region", "<u4"), ("id", "<u8"), ("process", "<u8"), ("grid", "<u4", 3),
     ("block", "<u4", 3), ("dynamic_shared", "<u8"), ("stream", "<u8")]
)  # fmt: skip
_BUFFER: Final = 1 << 20

BlockRange = tuple[int, int, int]
"""First and last number, and the step from one to the next."""


@dataclass(frozen=True)
class Wanted:
    """What is recorded. ``launches``: those whose instructions are, by number; None: all. Of the others counts are.
    ``blocks``: of each launch, whose instructions are; none: all. ``max_bytes`` on disk. ``in_files``: records are
    files of the tracer's folder, which are read later."""

    launches: Collection[int] | None = None
    blocks: Sequence[BlockRange] = ()
    max_bytes: int | None = None
    in_files: bool = False


@dataclass
class Collector:
    """Runs while the program does (a context); then ``finish`` gives, by process, what was stored. ``raw``: the
    tracer's folder; ``kernel_at``: a kernel by its number. Raises UserError in ``finish`` for what went wrong."""

    raw: Path
    wanted: Wanted
    kernel_at: Callable[[int], CudaKernel]
    _socket: socket.socket = field(default_factory=lambda: socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
    _threads: list[threading.Thread] = field(default_factory=list)
    _found: dict[int, Collected] = field(default_factory=dict)
    _error: BaseException | None = None
    _stored_bytes: int = 0
    _is_full: bool = False

    def __enter__(self) -> Self:
        self._folder = Path(tempfile.mkdtemp(prefix="manyscale-"))
        self.path = self._folder / "records"
        """The socket."""
        try:
            self._socket.bind(str(self.path))
        except OSError as error:
            self._socket.close()
            shutil.rmtree(self._folder, ignore_errors=True)
            raise UserError(f"{self.path}: no socket can be made there ({error}); set TMPDIR to a short path") from None
        self._socket.listen()
        self._lock = threading.Lock()
        self._accepts = threading.Thread(target=self._accept, daemon=True)
        self._accepts.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # accept returns
        self._socket.close()
        self._accepts.join()
        shutil.rmtree(self._folder, ignore_errors=True)

    def finish(self) -> dict[int, Collected]:
        """When the program has ended."""
        for thread in self._threads:
            thread.join()
        if self._error is not None:
            raise self._error
        return self._found

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        counted: CountsWriter | None = None
        try:
            with connection, connection.makefile("rb", buffering=_BUFFER) as stream:
                found, process = Collected(), 0
                assert isinstance(stream, io.BufferedReader)
                while content := stream.read(_ASKED.itemsize):
                    asked = np.frombuffer(content, _ASKED)[0]
                    if process != int(asked["process"]):
                        process = int(asked["process"])
                        self._found[process] = found
                        counted = CountsWriter(self._place(process) / COUNTED)
                    assert counted is not None
                    self._launch(connection, stream, asked, found, counted)
                if counted is not None:
                    found.counted, found.heads = counted.close(), counted.heads
        except (OSError, UserError, ValueError) as error:
            self._error = self._error or error
        finally:
            if counted is not None:
                counted.abandon()

    def _place(self, process: int) -> Path:
        return self.raw / f"stored-{process}"

    def _launch(
        self, connection: socket.socket, stream: IO[bytes], asked: np.ndarray, found: Collected,
        counted: CountsWriter,
    ) -> None:  # fmt: skip
        grid, block = (tuple(asked[name].tolist()) for name in ("grid", "block"))
        launch = Launch(
            int(asked["id"]), int(asked["kernel"]), grid, block, int(asked["dynamic_shared"]), int(asked["stream"])
        )
        mode = self._mode(launch, is_in_region=bool(asked["is_in_region"]))
        ranges = np.array(self.wanted.blocks if mode in (RECORD, RECORD_IN_FILE) else (), "<u8")
        connection.sendall(np.array([mode, len(ranges)], "<u4").tobytes() + ranges.tobytes())
        if mode not in (COUNT, RECORD):
            return
        kernel = self.kernel_at(launch.kernel)
        record = LaunchRecord(stream, f"launch {launch.launch_id}", len(kernel.static.pc))
        folder = self._place(int(asked["process"])) / str(launch.launch_id)
        try:
            stored = store_launch(record, launch, kernel, folder, counted, self._is_over)
        except FullError:
            found.cut.add(launch.launch_id)
        except UserError:
            if record.is_ended or stream.read(1):
                raise
        else:
            if stored is not None:
                found.launches[launch.launch_id] = stored
                self._add(sum(path.stat().st_size for path in stored.folder.iterdir()))

    def _mode(self, launch: Launch, *, is_in_region: bool) -> int:
        wanted = self.wanted
        if not is_in_region:
            return OUTSIDE
        if self._is_full:
            return LIMIT
        if wanted.launches is not None and launch.launch_id not in wanted.launches:
            return COUNT_IN_FILE if wanted.in_files else COUNT
        return RECORD_IN_FILE if wanted.in_files else RECORD

    def _add(self, size: int) -> None:
        with self._lock:
            self._stored_bytes += size
            self._is_full |= self.wanted.max_bytes is not None and self._stored_bytes >= self.wanted.max_bytes

    def _is_over(self, size: int) -> bool:
        """Whether a launch that has ``size`` bytes on disk goes over the limit."""
        most = self.wanted.max_bytes
        self._is_full |= most is not None and self._stored_bytes + size > most
        return self._is_full
