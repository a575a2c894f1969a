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
_COUNTS: Final = ("num_warps", "num_instructions", "num_requests")
MEND: Final = "the trace is damaged or cut short: copy it again, or trace the kernel again"

BlockWriter = Callable[[Columns, np.ndarray], None]


def _form(header: Header) -> np.ndarray:
    form = np.zeros(1, codes.FORM)
    version = header.tracer_version
    form["has_owner"] = header.is_raw or version < 3
    form["has_source_line"] = header.has_source_lines
    form["num_immediates"] = 0 if version < 5 else 1 if version == 5 else 2
    form["grid_x"], form["grid_y"], form["grid_z"] = header.grid
    form["warps"] = header.warps_per_block
    form["stride"] = header.num_blocks * header.warps_per_block | 1  # odd
    has_windows = header.shared_base and header.local_base
    # without windows, addresses as small as shared memory's own offsets are of it
    form["shared_base"] = header.shared_base if has_windows else 0
    form["local_base"] = header.local_base if has_windows else -WINDOW_BYTES
    form["shared_bytes"] = WINDOW_BYTES * (_SHARED_WINDOWS if header.binary_version >= 90 and has_windows else 1)
    form["raw"] = header.is_raw
    return form


class LaunchParser:
    """Parses the body of a trace whose head has ``offset`` bytes.

    ``write``, if given, is called with the columns and warps (``order.py``) of whole blocks whenever there are
    ``batch`` instructions of them; what it was given is forgotten.
    """

    def __init__(
        self, path: Path, header: Header, offset: int, write: BlockWriter | None = None, batch: int = 1 << 20
    ) -> None:
        self._path, self._header, self._write, self._batch = path, header, write, batch
        size = _FIRST_INSTRUCTIONS
        self._arrays = codes.Arrays(
            form=_form(header),
            state=np.zeros(1, codes.STATE),
            text=np.empty(TEXT_BYTES + 2 * MAX_HEADER_BYTES, np.uint8),
            rows=np.zeros(1 << 10, codes.ROW),
            kinds=np.zeros(1 << 6, codes.KIND),
            pool=np.zeros(1 << 16, np.uint8),
            slots=np.full(codes.SLOTS, -1, np.int64),
            halves=np.zeros(header.num_blocks * header.warps_per_block if header.is_raw else 1, np.uint8),
            addresses=np.zeros(32, np.int64),
            counts=np.zeros(BANKS, np.int64),
            words=np.zeros((BANKS, 32), np.int64),
            instruction=np.empty(size, np.int32),
            active=np.empty(size, np.uint8),
            accesses=np.empty(size, np.uint8),
            owners=np.empty(size if header.is_raw else 1, np.int64),
            sector=np.empty(size, np.int64),
            written=np.empty(size, np.uint32),
            warps=np.empty((1 << 10, 4), np.int64),
        )
        self._state = self._arrays.state[0]
        self._state["warp"] = -1
        self._state["base"] = offset
        self.other_lines: Counter[str] = Counter(header.other)

    def read(self, first: bytes, stream: IO[bytes]) -> None:
        """All of the body: ``first``, then what the stream holds. Raises UserError with file and line."""
        text = self._arrays.text
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
                    self._fail(int(self._state["base"]), codes.PROBLEMS[codes.NOT_A_LINE])
            self._parse(end)
            self._state["base"] += end
            if not is_end:
                left = filled - end
                text[:left] = text[end:filled].copy()
                filled = left
        if self._state["inside"] != codes.OUTSIDE:
            named = self._state["inside"] == codes.NAMED
            where = self.block_name(int(self._state["block"])) if named else "a thread block"
            raise UserError(f"{self._path}: ends inside {where}; {MEND}")

    def columns(self) -> tuple[Columns, np.ndarray]:
        """(columns, warps) of what was read and not written."""
        state = self._state
        return self._first([int(state[name]) for name in _COUNTS])

    def owners(self) -> tuple[np.ndarray, np.ndarray]:
        """Of a raw trace: (int64[instructions] the warp of each, int64[instructions] requests of each)."""
        number = int(self._state["num_instructions"])
        of_shared = self.statics().table.space[self._arrays.instruction[:number]] == Space.shared
        return self._arrays.owners[:number], np.where(of_shared, 0, self._arrays.accesses[:number]).astype(np.int64)

    def statics(self) -> Statics:
        """The static instructions that were met. Raises UserError for a line that is none."""
        rows = self._arrays.rows[: self._state["num_rows"]]
        pool = self._arrays.pool[: self._state["pool"]]
        try:
            return Statics(rows, pool, self._header.binary_version)
        except BadTextError:
            for row in rows:
                try:
                    parse_text(pool[row["text"] :][: row["length"]].tobytes())
                except BadTextError:
                    self._fail(int(row["place"]), codes.PROBLEMS[codes.BAD_STATIC])
            raise

    def block_name(self, block: int) -> str:
        x, y, _ = self._header.grid
        return f"thread block {block % x},{block // x % y},{block // (x * y)}"

    def _parse(self, end: int) -> None:
        text, place = self._arrays.text, 0
        while True:
            code, place = read_lines(self._arrays, place, end)
            if code == codes.DONE:
                return
            if code == codes.ROOM:
                self._make_room()
            elif code == codes.MORE_ROWS:
                self._grow("rows", "kinds", "pool")
            elif code == codes.CLASSIFY:
                kind, pool = self._arrays.kinds[self._state["num_kinds"] - 1], self._arrays.pool
                fill_kind(kind, pool[kind["text"] :][: kind["length"]].tobytes(), self._header.binary_version)
            elif code == codes.OTHER_LINE:
                line_end = place + int(np.argmax(text[place:end] == 10))
                key = text[place:line_end].tobytes().decode(errors="replace").partition("=")[0]
                self.other_lines[key.strip()] += 1
                place = line_end + 1
            else:
                self._fail(int(self._state["base"]) + place, codes.PROBLEMS[code])

    def _make_room(self) -> None:
        state = self._state
        if self._write is not None and state["done_warps"] and len(self._arrays.instruction) >= self._batch:
            self._write_done(self._write)
        if state["num_instructions"] >= len(self._arrays.instruction):
            self._grow("instruction", "active", "accesses", *(["owners"] if self._header.is_raw else []))
        if state["num_requests"] + MOST_REQUESTS > len(self._arrays.sector):
            self._grow("sector", "written")
        if state["num_warps"] >= len(self._arrays.warps):
            self._grow("warps")

    def _grow(self, *names: str) -> None:
        """Double the lengths of arrays."""
        self._arrays = self._arrays._replace(**{name: _grown(getattr(self._arrays, name)) for name in names})

    def _write_done(self, write: BlockWriter) -> None:
        """Write the whole blocks, and move what is left to the front."""
        state, arrays = self._state, self._arrays
        done = [int(state[f"done_{name.removeprefix('num_')}"]) for name in _COUNTS]
        write(*self._first(done))
        groups: tuple[tuple[np.ndarray, ...], ...] = (
            (arrays.warps,),
            (arrays.instruction, arrays.active, arrays.accesses),
            (arrays.sector, arrays.written),
        )
        for name, cut, group in zip(_COUNTS, done, groups, strict=True):
            left = int(state[name]) - cut
            for array in group:
                array[:left] = array[cut : cut + left].copy()
            state[name] = left
            state[f"done_{name.removeprefix('num_')}"] = 0

    def _first(self, counts: list[int]) -> tuple[Columns, np.ndarray]:
        warps, instructions, requests = counts
        arrays = self._arrays
        columns = Columns(
            arrays.instruction[:instructions],
            arrays.active[:instructions],
            arrays.accesses[:instructions],
            arrays.sector[:requests],
            arrays.written[:requests],
        )
        return columns, arrays.warps[:warps]

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
