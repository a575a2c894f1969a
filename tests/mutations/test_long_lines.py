"""Sniffers and readers of text take time in proportion to a line's length, whatever stands in it."""

from __future__ import annotations

import contextlib
import os
import re
import resource
import signal

import pytest

from manyscale.models.workload import WorkloadError
from manyscale.runner.errors import UserError
from manyscale.runner.registry import lookup, names

_LENGTH = 1_000_000
_MOST_CPU_S = 10
_REPEATED = (
    "a",
    " ",
    "7",
    "(((",
    ";;;",
    ":",
    "7 ",
    "a;b 1 ",
    " (",
    "(a)",
    "7:",
    '"a" ',
    "/a",
    '{"a":[',
    "[",
    "\t7f a ",
)
_BEFORE = {  # how a line of the format begins, so that the rest is reached
    "callgrind": "# callgrind format\nevents: Ir\nfn=(1) a",
    "dimemas": '#DIMEMAS:"a":1,',
    "folded": "a;b 1\na;b",
    "goal": "num_ranks 2\n",
    "jfr": '{"recording": {"events": [',
    "lackey": "I  04,3\n",
    "launch-counters": '"ID","Kernel Name"\n',
    "omt": '{"format": "',
    "paraver": "#Paraver (",
    "perf-script": "a 1/1 [0] 1.000000: 1 cycles:\n\t7f a",
    "simgrid-ti": "0 compute ",
    "simpoint-bb": "T:1:1 ",
    "speedscope": '{"$schema": "https://www.speedscope.app/file-format-schema.json", "a": "',
    "unit-stacks": "S\t0\t0\t",
    "accelsim": "-kernel name = ",
}


def _end(check) -> str:
    """How a process ends in which ``check(say)`` may take ten seconds of CPU time, behind what it said last."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            used = resource.getrusage(resource.RUSAGE_SELF)
            limit = int(used.ru_utime + used.ru_stime) + _MOST_CPU_S
            resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 1))
            check(lambda what: os.write(writing, f"{what}\n".encode()))
            status = 0
        except BaseException as error:
            os.write(writing, f"{type(error).__name__} {error}"[:300].encode() + b"\n")
        finally:
            os._exit(status)
    os.close(writing)
    with os.fdopen(reading, "rb") as told:
        last = told.read().splitlines()[-2:]
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return f"{last} {signal.Signals(os.WTERMSIG(status)).name}"
    return "rightly" if status == 0 else f"{last}"


@pytest.mark.parametrize("name", names("reader"))
def test_a_long_line_takes_linear_time(name, tmp_path):
    reader, path = lookup("reader", name), tmp_path / "line.txt"

    def check(say):
        for before in dict.fromkeys(("", _BEFORE.get(name, ""))):
            for text in _REPEATED:
                say(f"{before!r} {text!r}")
                path.write_text(f"{before}{text * (_LENGTH // len(text))}\nx\n")
                reader.can_read(path)
                if hasattr(reader, "resembles"):
                    reader.resembles(path)
                with contextlib.suppress(UserError, WorkloadError):
                    reader.read(path)

    assert _end(check) == "rightly"


@pytest.mark.slow
def test_what_takes_quadratic_time_is_found():
    assert "SIGXCPU" in _end(lambda say: say("a") and re.search("a+x", "a" * _LENGTH))
