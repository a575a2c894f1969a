"""The decoder of DUMPI files against dumpi2ascii, sst-dumpi's own: every call and every field of its text.

``testtrace-0000``: a real program's rank, with the text that Sandia ships beside it (in $MANYSCALE_DATA and in
tests/data). ``every_function``: a record of each MPI function with random fields, and what dumpi2ascii made of it.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from manyscale.runner.readers.dumpi.layouts import LAYOUTS, ONLY_AT_ROOT
from manyscale.runner.readers.dumpi.records import RankFile, Status, read_rank_file

pytestmark = pytest.mark.peer

data = Path(__file__).parents[1] / "data" / "dumpi"

_BORDER = re.compile(
    r"(\w+) (entering|returning) at walltime (\d+)\.(\d{9}), cputime (\d+)\.(\d{9}) seconds in thread (\d+)\."
)
_FIELD = re.compile(r"(?:^|(?<=\]))(\w+) ([\w.]+)((?:\[-?\d+\])*)=", re.MULTILINE)
_STATUS = re.compile(r"\{bytes=(-?\d+), cancelled=(-?\d+), source=(-?\d+), tag=(-?\d+), error=(-?\d+)\}")

MISSPELT = {"displacments": "displacements"}
# Stored for the sake of other fields, and not printed.
NOT_PRINTED = {"commrank", "commsize", "oldcommrank", "totprocs", "numedges", "totedges", "totnodes", "nneigh",
               "numdatatypes", "numaddresses", "numintegers"}  # fmt: skip
PRINTED_ONLY = {"argc"}  # the length of argv


@dataclass
class TextCall:
    """A call as the text has it: times as (seconds, nanoseconds), and the text of each field."""

    name: str
    times: list[tuple[int, ...]]
    fields: dict[str, str] = field(default_factory=dict)


def text_calls(text: str) -> Iterator[TextCall]:
    """The calls of dumpi2ascii's text."""
    borders = list(_BORDER.finditer(text))
    assert len(borders) % 2 == 0
    for enter, leave in zip(borders[::2], borders[1::2], strict=True):
        assert (enter[1], enter[2], leave[2]) == (leave[1], "entering", "returning")
        call = TextCall(enter[1], [tuple(int(match[k]) for k in range(3, 8)) for match in (enter, leave)])
        body = text[enter.end() + 1 : leave.start()]
        found = list(_FIELD.finditer(body))
        assert not body or (found and found[0].start() == 0)
        ends = [match.start() for match in found[1:]] + [len(body)]
        for match, end in zip(found, ends, strict=False):
            name = match[2].replace(".", "_")
            call.fields[MISSPELT.get(name, name)] = body[match.end() : end].strip()
        yield call


def text_of(name: str) -> str:
    """dumpi2ascii's text of a file."""
    plain = data / f"{name}.txt"
    return plain.read_text() if plain.exists() else gzip.decompress((data / f"{name}.txt.gz").read_bytes()).decode()


def flat(value: object) -> list[int]:
    """The numbers of a value, in order."""
    if isinstance(value, list):
        return [number for element in value for number in flat(element)]
    assert isinstance(value, int)
    return [value]


def agrees(text: str, value: object) -> bool:
    """Whether a field of the text says what was decoded."""
    if text == "<IGNORED>":
        return value is None or value == []
    if value is None:
        return False
    if isinstance(value, str):
        return text == f'"{value}"'
    if isinstance(value, list) and value and isinstance(value[0], Status):
        expected = [(s.bytes, s.cancelled, s.source, s.tag, s.error) for s in value]
        return [tuple(map(int, found)) for found in _STATUS.findall(text)] == expected
    if isinstance(value, list) and value and isinstance(value[0], str):
        return re.findall(r'"([^"]*)"', text) == value
    numbers = re.sub(r"\([^)]*\)", "", text)  # names of constants
    return [int(found) for found in re.findall(r"-?\d+", numbers)] == flat(value)


def differences(file: RankFile, text: str) -> list[str]:
    """Every difference between a decoded file and dumpi2ascii's text of it."""
    calls = file.calls
    expected = list(text_calls(text))
    wrong = [] if len(expected) == len(calls) else [f"{len(calls)} calls, not {len(expected)}"]
    for row, call in enumerate(expected[: len(calls)]):
        place = f"call {row} ({call.name})"
        if LAYOUTS[calls.function[row]].name != call.name:
            wrong.append(f"{place}: is {LAYOUTS[calls.function[row]].name}")
            continue
        for side in range(2):
            wall, cpu = calls.wall_ns[row, side], calls.cpu_ns[row, side]
            times = (
                *divmod(int(wall) + file.wall_bias_seconds * 10**9, 10**9),
                *divmod(int(cpu) + file.cpu_bias_seconds * 10**9, 10**9),
                int(calls.thread[row]),
            )
            if times != call.times[side]:
                wrong.append(f"{place}: {times} is not {call.times[side]}")
        decoded = calls.fields(row)
        layout = LAYOUTS[calls.function[row]]
        # Of what only a root stores dumpi2ascii prints something on the others, too.
        at_root = {name for name, code in zip(layout.fields, layout.codes, strict=True) if code & ONLY_AT_ROOT}
        missing = (set(decoded) ^ set(call.fields)) - (at_root - set(decoded)) - NOT_PRINTED - PRINTED_ONLY
        wrong.extend(f"{place}: field {name} stands on one side only" for name in sorted(missing))
        wrong.extend(
            f"{place}: {name} = {decoded[name]} is not {shown}"
            for name, shown in call.fields.items()
            if name in decoded and not agrees(shown, decoded[name])
        )
    return wrong


@pytest.mark.parametrize("name", ["testtrace-0000", "every_function"])
def test_every_call_and_field_is_as_dumpi2ascii_prints_it(name: str) -> None:
    text = text_of(name)

    assert differences(read_rank_file(data / f"{name}.bin"), text) == []


def test_every_function_with_a_record_is_compared() -> None:
    text = text_of("every_function")

    compared = {call.name for call in text_calls(text)}

    # MPI_Pcontrol has no record; dumpi2ascii itself crashes on MPI_Comm_spawn_multiple
    assert {layout.name for layout in LAYOUTS[:290]} - compared == {"MPI_Pcontrol", "MPI_Comm_spawn_multiple"}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("int tag=1337", "int tag=1338"),
        ("bytes=1606419960", "bytes=1606419961"),
        ("walltime 1296777956.739659000", "walltime 1296777956.739659001"),
        ("MPI_Barrier", "MPI_Finalize"),
        ("int count=1\n", ""),
        ('"./mpi"', '"./mpi2"'),
    ],
)
def test_the_comparison_sees_a_difference(old: str, new: str) -> None:
    text = text_of("testtrace-0000")
    assert old in text

    assert differences(read_rank_file(data / "testtrace-0000.bin"), text.replace(old, new)) != []
