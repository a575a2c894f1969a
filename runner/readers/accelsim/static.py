"""The static instructions of a launch, from the texts that the parser kept of them."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np

from manyscale.models.workload.launch_trace import MAX_OPERANDS, NO_REGISTER, Space, StaticInstructions
from manyscale.runner.readers.accelsim import codes
from manyscale.runner.readers.accelsim.accesses import want_for
from manyscale.runner.readers.accelsim.opcodes import (
    UNIFORM_REGISTER,
    ZERO_REGISTER,
    OpcodeClass,
    classify,
    wide_registers,
)

_REGISTER: Final = re.compile(rb"(U?)R(\d{1,3}|Z)")
_PREDICATE: Final = re.compile(rb"U?P([0-7T])")
_UNIFORM_ZERO: Final = 63


class BadTextError(ValueError):
    """The fields behind a mask that are no instruction."""


@dataclass(frozen=True)
class Text:
    """The fields behind the mask: registers as listed (without predicates), opcode, width."""

    opcode: str
    destinations: tuple[int, ...]
    sources: tuple[int, ...]
    width: int


@lru_cache(maxsize=1 << 16)
def parse_text(text: bytes) -> Text:
    """Raises BadTextError for what is no "count registers opcode count registers width"."""
    words = text.split()
    try:
        num_destinations = int(words[0])
        opcode = words[1 + num_destinations].decode("ascii")
        num_sources = int(words[2 + num_destinations])
        width = int(words[3 + num_destinations + num_sources])
    except (IndexError, ValueError):
        raise BadTextError from None
    sources = words[3 + num_destinations : 3 + num_destinations + num_sources]
    return Text(opcode, _registers(words[1 : 1 + num_destinations]), _registers(sources), width)


def _registers(words: list[bytes]) -> tuple[int, ...]:
    found = []
    for word in words:
        match = _REGISTER.fullmatch(word)
        if match is None:
            if _PREDICATE.fullmatch(word):
                continue
            raise BadTextError
        number = ZERO_REGISTER if match[2] == b"Z" else int(match[2])
        if number > ZERO_REGISTER:
            raise BadTextError
        if match[1]:
            number = ZERO_REGISTER if match[2] == b"Z" or number == _UNIFORM_ZERO else UNIFORM_REGISTER + number
        found.append(number)
    return tuple(found)


def fill_kind(row: np.void, opcode: bytes, binary_version: int) -> None:
    """Fill what the parser must know of an opcode that accesses memory."""
    kind = classify(opcode.decode(errors="replace"), True, binary_version)
    row["space"] = codes.UNSET if kind.is_generic else int(kind.space)
    row["access"] = int(kind.access)
    row["is_generic"] = kind.is_generic
    row["size"] = kind.thread_bytes
    row["lanes"] = kind.lanes
    want_for(int(row["space"]), int(kind.access))


class Statics:
    """Builds the table of a launch's static instructions and tells what is odd about them."""

    def __init__(self, rows: np.ndarray, pool: np.ndarray, binary_version: int) -> None:
        """Raises BadRow for a text that is no instruction."""
        self._opcodes: dict[str, int] = {}
        num_rows = len(rows)
        self.kinds: list[OpcodeClass] = []
        names = []
        operands = np.full((2, num_rows, MAX_OPERANDS), NO_REGISTER, np.int16)
        stored = pool.tobytes()
        for k, (start, length, width) in enumerate(rows[["text", "length", "width"]].tolist()):
            kind, opcode, registers = _instruction(stored[start : start + length], width > 0, binary_version)
            self.kinds.append(kind)
            names.append(self._opcodes.setdefault(opcode, len(self._opcodes)))
            for side in (0, 1):
                listed = registers[side]
                operands[side, k, : len(listed)] = listed
        space = rows["space"]
        is_set = space != codes.UNSET
        of_kinds = np.array([int(kind.space) for kind in self.kinds], np.int64)
        immediate = np.where(rows["immediate"] == codes.UNSET, 0, rows["immediate"])
        self.opcode = np.array(names, np.int32)
        self.table = StaticInstructions(
            tuple(self._opcodes),
            rows["pc"].copy(),
            self.opcode,
            np.array([kind.unit for kind in self.kinds], np.uint8),
            np.where(is_set & (space != int(Space.none)), space, of_kinds).astype(np.uint8),
            np.array([kind.access for kind in self.kinds], np.uint8),
            immediate.astype(np.int32),
            np.array([kind.bypasses_l1 for kind in self.kinds], np.bool_),
            operands[0],
            operands[1],
        )

    def odd_opcodes(self, executed: np.ndarray, binary_version: int) -> tuple[Counter[str], Counter[str]]:
        """(roots that no table knows, those newer than the binary) and how often each was executed; ``executed``
        int64[rows]."""
        unknown: Counter[str] = Counter()
        newer: Counter[str] = Counter()
        names = tuple(self._opcodes)
        for kind, opcode, count in zip(self.kinds, self.opcode.tolist(), executed.tolist(), strict=True):
            if not kind.is_known:
                unknown[names[opcode].split(".")[0]] += count
            elif 0 < binary_version < kind.since:
                newer[f"{names[opcode].split('.')[0]} (sm_{kind.since})"] += count
        return unknown, newer


@lru_cache(maxsize=1 << 16)
def _instruction(
    text: bytes, has_addresses: bool, binary_version: int
) -> tuple[OpcodeClass, str, tuple[list[int], list[int]]]:
    parsed = parse_text(text)
    destinations, sources = wide_registers(parsed.opcode, parsed.destinations, parsed.sources)
    kind = classify(parsed.opcode, has_addresses, binary_version)
    return kind, parsed.opcode, (destinations[:MAX_OPERANDS], sources[:MAX_OPERANDS])
