"""Inputs made wrong: one or several small changes of a right file, the same ones for the same seed."""

from __future__ import annotations

import random
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

NUMBERS: Final = (
    b"0", b"-1", b"1", b"-333", b"65536", b"2147483647", b"2147483648", b"-2147483649", b"4294967296", b"1000000000000",
    b"9223372036854775807", b"9223372036854775808", b"-9223372036854775809", b"18446744073709551616", b"1" + b"0" * 30,
    b"9" * 400, b"1e18", b"1e30", b"1e400", b"-1e400", b"1e-400", b"nan", b"inf", b"-inf", b"Infinity", b"NaN", b"0.5",
    b"-0.0", b"1_000", b"0x10", b"0xffffffffffffffff", b"", b"null", b"true", b"[]", b"{}", b'"x"',
    "\u0663".encode(), "\u00b2".encode(),  # digits to str.isdigit that are none, or others, to int
)  # fmt: skip
_WORDS: Final = tuple(
    value.to_bytes(width, order, signed=value < 0)
    for width in (1, 2, 4, 8)
    for order in ("little", "big")
    for value in (
        0,
        1,
        -1,
        -2,
        (1 << 8 * width - 1) - 1,
        -(1 << 8 * width - 1),
        (1 << 8 * width - 2),
        1 << 8 * width - 4,
    )
)
_NUMBER: Final = re.compile(rb"-?\d+(?:\.\d+)?")
_FIELD: Final = re.compile(rb"[^\s,:;=(){}\[\]\"]+")
_QUOTED: Final = re.compile(rb'"[^"\n]*"')
_LARGEST: Final = 1 << 22  # bytes that a change may grow a file to

Change = Callable[[bytes, random.Random], bytes]


def mutated(content: bytes, seed: str) -> bytes:
    """``content`` with one to three changes."""
    chance = random.Random(seed)
    is_text = b"\0" not in content[:4096]
    changes = (*_ANY, *_TEXT * 3) if is_text else _ANY
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        content = chance.choice(changes)(content, chance)[:_LARGEST]
    return content


def mutate_folder(sample: Path, copy: Path, seed: str, names: Sequence[str] = ()) -> None:
    """Write at ``copy`` (replaced) what lies at ``sample``, a file or a folder, with one file changed: one of
    ``names``, where they are given."""
    chance = random.Random(seed + " file")
    if sample.is_file():
        copy.write_bytes(mutated(sample.read_bytes(), seed))
        return
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(sample, copy)
    files = sorted(each for each in copy.rglob("*") if each.is_file() and (not names or each.name in names))
    file = chance.choice(files)
    if chance.random() < 0.03:
        file.unlink()
    else:
        file.write_bytes(mutated(file.read_bytes(), seed))


def _place(content: bytes, chance: random.Random) -> int:
    """A place in the content; its first bytes, where heads are, are as likely as all others."""
    return chance.randrange(min(len(content), chance.choice((200, len(content)))) or 1)


def _flip(content: bytes, chance: random.Random) -> bytes:
    changed = bytearray(content)
    for _ in range(chance.choice((1, 1, 2, 8)) if content else 0):
        changed[_place(content, chance)] ^= 1 << chance.randrange(8)
    return bytes(changed)


def _cut(content: bytes, chance: random.Random) -> bytes:
    return content[: _place(content, chance)]


def _delete(content: bytes, chance: random.Random) -> bytes:
    at = _place(content, chance)
    return content[:at] + content[at + chance.choice((1, 2, 4, 8, 40, 400)) :]


def _double(content: bytes, chance: random.Random) -> bytes:
    at = _place(content, chance)
    end = at + chance.choice((1, 8, 40, 400, len(content)))
    return content[:end] + content[at:]


def _noise(content: bytes, chance: random.Random) -> bytes:
    at = _place(content, chance)
    return content[:at] + chance.randbytes(chance.choice((1, 4, 16, 300))) + content[at + chance.choice((0, 4, 16)) :]


def _word(content: bytes, chance: random.Random) -> bytes:
    at, word = _place(content, chance), chance.choice(_WORDS)
    at -= at % len(word) * chance.choice((0, 1))
    return content[:at] + word + content[at + len(word) :]


def _nothing(content: bytes, chance: random.Random) -> bytes:
    return chance.choice((b"", b"\n", chance.randbytes(1000), b"\0" * 1000, b" " * 1000))


def _lines(change: Callable[[list[bytes], random.Random], None]) -> Change:
    def changed(content: bytes, chance: random.Random) -> bytes:
        lines = content.split(b"\n")
        change(lines, chance)
        return b"\n".join(lines)

    return changed


def _row(lines: list[bytes], chance: random.Random) -> int:
    return chance.randrange(min(len(lines), chance.choice((8, len(lines)))))


def _drop(lines: list[bytes], chance: random.Random) -> None:
    at = _row(lines, chance)
    del lines[at : at + chance.choice((1, 1, 2, 10))]


def _repeat(lines: list[bytes], chance: random.Random) -> None:
    at = _row(lines, chance)
    lines[at:at] = [lines[at]] * chance.choice((1, 1, 2, 100))


def _swap(lines: list[bytes], chance: random.Random) -> None:
    first, second = _row(lines, chance), _row(lines, chance)
    lines[first], lines[second] = lines[second], lines[first]


def _long(lines: list[bytes], chance: random.Random) -> None:
    at = _row(lines, chance)
    what = chance.choice((b"a", b" ", b"7", b"(", b";", b"a 1 ", b"\t", b"(a)"))
    lines[at] = chance.choice((lines[at], b"")) + what * (chance.choice((1000, 60000)) // len(what))


def _replaced(pattern: re.Pattern[bytes], others: Sequence[bytes]) -> Change:
    def changed(content: bytes, chance: random.Random) -> bytes:
        at = _place(content, chance)
        found = pattern.search(content, at) or pattern.search(content)
        if found is None:
            return content
        return content[: found.start()] + chance.choice(others) + content[found.end() :]

    return changed


def _exchange(content: bytes, chance: random.Random) -> bytes:
    """A word of the text in place of another one."""
    other = _FIELD.search(content, _place(content, chance))
    return _replaced(_FIELD, [other[0] if other else b"x"])(content, chance)


_ANY: Final[tuple[Change, ...]] = (_flip, _flip, _word, _word, _cut, _delete, _double, _noise, _nothing)
_TEXT: Final[tuple[Change, ...]] = (
    _lines(_drop), _lines(_repeat), _lines(_swap), _lines(_long), _exchange,
    _replaced(_NUMBER, NUMBERS), _replaced(_NUMBER, NUMBERS), _replaced(_NUMBER, NUMBERS), _replaced(_NUMBER, NUMBERS),
    _replaced(_FIELD, (b"", b"x", b"-", b"1")), _replaced(_QUOTED, (b"1", b"null", b'""', b"[1]", b'"\\ud800"')),
)  # fmt: skip
