"""The body of an Accel-Sim trace, fed to the kernels piece by piece; their arrays grow as they must."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import IO, Final, NoReturn

import numpy as np

from manyscale.models.workload.launch_trace import Space
from manyscale.runner.errors import UserError
from manyscale.runner.readers.accelsim import codes
from manyscale.runner.readers.accelsim.accesses import BANKS, MOST_REQUESTS, WINDOW_BYTES
from manyscale.runner.readers.accelsim.header import MAX_HEADER_BYTES, Header
from manyscale.runner.readers.accelsim.lines import read_lines
from manyscale.runner.readers.accelsim.order import Columns
from manyscale.runner.readers.accelsim.static import BadTextError, Statics, fill_kind, parse_text
from manyscale.runner.readers.archive import open_stream

TEXT_BYTES: Final = 1 << 22  # parsed at a time
_FIRST_INSTRUCTIONS: Final = 1 << 17
_SHARED_WINDOWS: Final = 16  # of the blocks of a cluster, since Hopper
MEND: Final = "the trace is damaged or cut short: copy it again, or trace the kernel again"

BlockWriter = Callable[[Columns, np.ndarray], None]


def _form(header: Header) -> np.ndarray:
    form = np.zeros(codes.NUM_FORMS, np.int64)
    version = header.tracer_version
    form[codes.HAS_OWNER] = header.is_raw or version < 3
    form[codes.HAS_SOURCE_LINE] = header.has_source_lines
    form[codes.NUM_IMMEDIATES] = 0 if version < 5 else 1 if version == 5 else 2
    form[[codes.GRID_X, codes.GRID_Y, codes.GRID_Z]] = header.grid
    form[codes.WARPS] = header.warps_per_block
    has_windows = header.shared_base and header.local_base
    # without windows, addresses as small as shared memory's own offsets are of it
    form[codes.SHARED_BASE] = header.shared_base if has_windows else 0
    form[codes.LOCAL_BASE] = header.local_base if has_windows else -WINDOW_BYTES
    form[codes.SHARED_BYTES] = WINDOW_BYTES * (_SHARED_WINDOWS if header.binary_version >= 90 and has_windows else 1)
    form[codes.RAW] = header.is_raw
    return form


class LaunchParser:
    """Parses the body of a trace whose head has ``offset`` bytes.

    ``write``, if given, is called with the columns and warps (``accelsim_order``) of whole blocks whenever there are
    ``batch`` instructions of them; what it was given is forgotten.
    """

    def __init__(
        self, path: Path, header: Header, offset: int, write: BlockWriter | None = None, batch: int = 1 << 20
    ) -> None:
        self._path, self._header, self._write, self._batch = path, header, write, batch
        self._form = _form(header)
        self._state = np.zeros(codes.NUM_STATES, np.int64)
        self._state[codes.WARP] = -1
        self._state[codes.BASE] = offset
        self._rows = np.zeros((1 << 10, codes.NUM_COLUMNS), np.int64)
        self._kinds = np.zeros((1 << 6, codes.NUM_COLUMNS), np.int64)
        self._pool = np.zeros(1 << 16, np.uint8)
        self._slots = np.full(codes.SLOTS, -1, np.int64)
        self._halves = np.zeros(header.num_blocks * header.warps_per_block if header.is_raw else 1, np.uint8)
        self._scratch = np.zeros(32, np.int64), np.zeros(BANKS, np.int64), np.zeros((BANKS, 32), np.int64)
        size = _FIRST_INSTRUCTIONS
        self._instruction = np.empty(size, np.int32)
        self._active = np.empty(size, np.uint8)
        self._accesses = np.empty(size, np.uint8)
        self._owners = np.empty(size if header.is_raw else 1, np.int64)
        self._sector = np.empty(size, np.int64)
        self._written = np.empty(size, np.uint32)
        self._warps = np.empty((1 << 10, 4), np.int64)
        self.other_lines: Counter[str] = Counter(header.other)

    def read(self, first: bytes, stream: IO[bytes]) -> None:
        """All of the body: ``first``, then what the stream holds. Raises UserError with file and line."""
        text = np.empty(TEXT_BYTES + 2 * MAX_HEADER_BYTES, np.uint8)
        view = text.data
        view[: len(first)] = first
        filled, is_end = len(first), False
        while not is_end:
            while filled < TEXT_BYTES:
                size = stream.readinto(view[filled:TEXT_BYTES])  # type: ignore[attr-defined]
                if not size:
                    is_end = True
                    break
                filled += size
            if is_end:
                text[filled] = 10
                end = filled + 1
            else:
                end = _last_newline(text, filled)
                if not end:
                    self._fail(int(self._state[codes.BASE]), codes.PROBLEMS[codes.NOT_A_LINE])
            self._parse(text, end)
            self._state[codes.BASE] += end
            if not is_end:
                left = filled - end
                text[:left] = text[end:filled].copy()
                filled = left
        if self._state[codes.INSIDE] != codes.OUTSIDE:
            named = self._state[codes.INSIDE] == codes.NAMED
            where = self.block_name(int(self._state[codes.BLOCK])) if named else "a thread block"
            raise UserError(f"{self._path}: ends inside {where}; {MEND}")

    def columns(self) -> tuple[Columns, np.ndarray]:
        """(columns, warps) of what was read and not written."""
        state = self._state
        return self._first(state[[codes.NUM_WARPS, codes.NUM_INSTRUCTIONS, codes.NUM_REQUESTS]].tolist())

    def owners(self) -> tuple[np.ndarray, np.ndarray]:
        """Of a raw trace: (int64[instructions] the warp of each, int64[instructions] requests of each)."""
        number = int(self._state[codes.NUM_INSTRUCTIONS])
        of_shared = self.statics().table.space[self._instruction[:number]] == Space.shared
        return self._owners[:number], np.where(of_shared, 0, self._accesses[:number]).astype(np.int64)

    def statics(self) -> Statics:
        """The static instructions that were met. Raises UserError for a line that is none."""
        rows, pool = self._rows[: self._state[codes.NUM_ROWS]], self._pool[: self._state[codes.POOL]]
        try:
            return Statics(rows, pool, self._header.binary_version)
        except BadTextError:
            for row in rows:
                start, length = row[[codes.TEXT, codes.LENGTH]].tolist()
                try:
                    parse_text(pool[start : start + length].tobytes())
                except BadTextError:
                    self._fail(int(row[codes.PLACE]), codes.PROBLEMS[codes.BAD_STATIC])
            raise

    def block_name(self, block: int) -> str:
        x, y, _ = self._header.grid
        return f"thread block {block % x},{block // x % y},{block // (x * y)}"

    def _parse(self, text: np.ndarray, end: int) -> None:
        place = 0
        while True:
            code, place = read_lines(
                text, place, end, self._form, self._state, self._rows, self._kinds, self._pool, self._slots,
                self._halves, *self._scratch, self._instruction, self._active, self._accesses, self._owners,
                self._sector, self._written, self._warps,
            )  # fmt: skip
            if code == codes.DONE:
                return
            if code == codes.ROOM:
                self._make_room()
            elif code == codes.MORE_ROWS:
                self._rows, self._kinds, self._pool = _grown(self._rows), _grown(self._kinds), _grown(self._pool)
            elif code == codes.CLASSIFY:
                row = self._kinds[self._state[codes.NUM_KINDS] - 1]
                start, length = row[[codes.TEXT, codes.LENGTH]].tolist()
                fill_kind(row, self._pool[start : start + length].tobytes(), self._header.binary_version)
            elif code == codes.OTHER_LINE:
                line_end = place + int(np.argmax(text[place:end] == 10))
                key = text[place:line_end].tobytes().decode(errors="replace").partition("=")[0]
                self.other_lines[key.strip()] += 1
                place = line_end + 1
            else:
                self._fail(int(self._state[codes.BASE]) + place, codes.PROBLEMS[code])

    def _make_room(self) -> None:
        state = self._state
        if self._write is not None and state[codes.DONE_WARPS] and len(self._instruction) >= self._batch:
            self._write_done(self._write)
        if state[codes.NUM_INSTRUCTIONS] >= len(self._instruction):
            self._instruction, self._active = _grown(self._instruction), _grown(self._active)
            self._accesses = _grown(self._accesses)
            if self._header.is_raw:
                self._owners = _grown(self._owners)
        if state[codes.NUM_REQUESTS] + MOST_REQUESTS > len(self._sector):
            self._sector, self._written = _grown(self._sector), _grown(self._written)
        if state[codes.NUM_WARPS] >= len(self._warps):
            self._warps = _grown(self._warps)

    def _write_done(self, write: BlockWriter) -> None:
        """Write the whole blocks, and move what is left to the front."""
        state = self._state
        done = state[[codes.DONE_WARPS, codes.DONE_INSTRUCTIONS, codes.DONE_REQUESTS]].tolist()
        write(*self._first(done))
        counts = (codes.NUM_WARPS, codes.NUM_INSTRUCTIONS, codes.NUM_REQUESTS)
        arrays: tuple[tuple[np.ndarray, ...], ...] = (
            (self._warps,),
            (self._instruction, self._active, self._accesses),
            (self._sector, self._written),
        )
        for count, cut, group in zip(counts, done, arrays, strict=True):
            left = int(state[count]) - cut
            for array in group:
                array[:left] = array[cut : cut + left].copy()
            state[count] = left
        state[[codes.DONE_WARPS, codes.DONE_INSTRUCTIONS, codes.DONE_REQUESTS]] = 0

    def _first(self, counts: list[int]) -> tuple[Columns, np.ndarray]:
        warps, instructions, requests = counts
        columns = Columns(
            self._instruction[:instructions],
            self._active[:instructions],
            self._accesses[:instructions],
            self._sector[:requests],
            self._written[:requests],
        )
        return columns, self._warps[:warps]

    def _fail(self, place: int, what: str) -> NoReturn:
        number, left = 1, place
        with open_stream(self._path) as stream:
            while left and (block := stream.read(min(left, TEXT_BYTES))):
                number += block.count(b"\n")
                left -= len(block)
            shown = stream.readline(80).decode(errors="replace").strip()
        raise UserError(f"{self._path}:{number}: {shown!r} {what}; {MEND}")


def _grown(array: np.ndarray) -> np.ndarray:
    """A copy with twice the length."""
    larger = np.zeros((2 * len(array), *array.shape[1:]), array.dtype)
    larger[: len(array)] = array
    return larger


def _last_newline(text: np.ndarray, filled: int) -> int:
    """Where the last whole line ends, or 0."""
    size = 1 << 12
    while True:
        start = max(0, filled - size)
        found = np.flatnonzero(text[start:filled] == 10)
        if len(found):
            return start + int(found[-1]) + 1
        if not start:
            return 0
        size *= 16
