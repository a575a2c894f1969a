"""Every instruction that is executed is held against something: each root of the rules is in a test of instructions."""

from __future__ import annotations

import re
from pathlib import Path

from manyscale.runner.tracers.cuda.sass import rules

_ELSEWHERE = {
    "FCHK": "divisions of test_cuda_programs.py, of which it chooses the way",
    "JMX": "the rule of BRX",
    "KILL": "no compiler has been seen to write it; it ends lanes as EXIT does",
    "CCTLL": "takes no effect, as CCTL",
    "SETMAXREG": "takes no effect: a warp has all registers",
    "UTMACCTL": "takes no effect: an order to a cache",
    "UCGABAR_ARV": "clusters of test_cuda_side_by_side.py",
    "UCGABAR_WAIT": "clusters of test_cuda_side_by_side.py",
}
"""Roots that no line of SASS in a test has, and what they rest on."""


def test_each_instruction_has_a_test():
    here = Path(__file__)
    paths = [here.parents[4] / "sass_programs.py", *sorted(here.parent.glob("test_sass_*.py"))]
    lines = "".join(path.read_text() for path in paths if path != here)
    words = set(re.findall(r"(?<=[\"' ])([A-Z][A-Z0-9_]+)(?=[. \"'])", lines))
    tested = words | {word.removeprefix("U") for word in words}
    known = set(rules._RULES)
    assert known - tested - set(_ELSEWHERE) == set(), "test them in a test_sass_*.py, or say above what they rest on"
    assert set(_ELSEWHERE) <= known, "these are no instructions any more"
