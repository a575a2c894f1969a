"""The first line and the communicators of Paraver traces, in every form that was seen."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from manyscale.runner.errors import UserError
from manyscale.runner.readers.paraver.header import read_header

PATH = Path("trace.prv")
DATE = "#Paraver (09/10/2019 at 16:09):"


def head(text: str):
    return read_header(PATH, io.BytesIO(text.encode()))


@pytest.mark.golden
@pytest.mark.parametrize(
    ("line", "end", "ps_per_unit", "threads"),
    [
        (DATE + "11528373565_ns:1(2):1:2(1:1,1:1),3", 11528373565, 1000, [[1, 1]]),
        # without a unit, nodes without their CPUs, a year of two digits
        ("#Paraver (26/01/04 at 16:35):260199:4:1:4(1:1,1:2,1:3,1:4),8", 260199, 10**6, [[1, 1, 1, 1]]),
        # no resources; applications joined by colons, without communicators
        (DATE + "4573_ns:0:4:2(4:0,3:0):3(1:0,1:0,2:0):1(48:0):2(12:0,12:0)", 4573, 1000,
         [[4, 3], [1, 1, 2], [48], [12, 12]]),
        (DATE + "20125743_ns:2(4,4):2:2(4:2,4:1):1(4:2)", 20125743, 1000, [[4, 4], [4]]),
        # applications joined by a comma, one count of communicators for all
        (DATE + "9_ns:1(20):2:2(1:1,1:1),3(1:1,1:1,1:1),14", 9, 1000, [[1, 1], [1, 1, 1]]),
        (DATE + "9_ns:1(20):2:2(1:1,1:1),2:3(1:1,1:1,1:1),14", 9, 1000, [[1, 1], [1, 1, 1]]),
        # nodes that differ; no communicator at all
        (DATE + "180938637000_ns:2(3,49):1:2(3:1,49:2),0", 180938637000, 1000, [[3, 49]]),
        (DATE + "5_us:1(1):1:1(1:1),1", 5, 10**6, [[1]]),
    ],
)  # fmt: skip
def test_first_lines(line, end, ps_per_unit, threads):
    header = head(line + "\n1:1:1:1:1:0:5:1\n")
    assert (header.end, header.ps_per_unit) == (end, ps_per_unit)
    assert [each.tolist() for each in header.threads] == threads
    assert header.first == b"1:1:1:1:1:0:5:1\n"


def test_communicators_comments_and_blank_lines():
    header = head(DATE + "9_ns:0:2:2(1:0,1:0),1(1:0),3\nc:1:1:2:1:2\nc:2:7:1:1\n#cut\n\nc:1:92:1:-1\n2:1:1:1:1:0:1:1\n")
    assert [[(number, tasks.tolist()) for number, tasks in each] for each in header.communicators] == [
        [(1, [1, 2]), (92, [])], [(7, [1])]
    ]  # fmt: skip
    assert header.comments == ("cut",)
    assert header.num_lines == 6


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("#Paraver nonsense\n", r"trace.prv:1: .* is not the first line of a Paraver trace"),
        (DATE + "9_fortnights:0:1:1(1:0)\n", "trace.prv:1: unknown unit of time 'fortnights'"),
        (DATE + "9_ns:0:2:1(1:0)\n", "trace.prv:1: application 2 of 2 is not"),
        (DATE + "9_ns:0:1:2(1:0)\n", "trace.prv:1: application 1 has 2 tasks but lists 1"),
        (DATE + "9_ns:0:1:1(1:0),1:1(1:0)\n", "trace.prv:1: '1.*' follows the last application"),
        (DATE + "9_ns:0:1:1(1:0),1\nc:1:1:2:1\n", "trace.prv:2: communicator 1 has 2 tasks but lists 1"),
        (DATE + "9_ns:0:1:1(1:0),1\nc:2:1:1:1\n", "trace.prv:2: application 2 is not one of the 1"),
        (DATE + "9_ns:0:1:1(1:0),1\nc:1:x\n", "trace.prv:2: .* is not a communicator"),
    ],
)
def test_what_is_wrong_is_named(text, problem):
    with pytest.raises(UserError, match=problem):
        head(text)
