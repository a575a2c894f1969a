"""Every instruction that is executed is held against something: each root of the rules is in a test of instructions."""

from __future__ import annotations

import re
from pathlib import Path

from manyscale.runner.tracers.cuda import rules

_ELSEWHERE = {
    "FCHK": "divisions of test_cuda_programs.py, of which it chooses the way",
    "JMX": "the rule of BRX",
    "KILL": "no compiler has been seen to write it; it ends lanes as EXIT does",
    "USETMAXREG": "takes no effect: registers are not moved between warps",
    "CCTLL": "takes no effect, as CCTL",
}
"""Roots that no line of SASS in a test has, and what they rest on."""


def test_each_instruction_has_a_test():
    here = Path(__file__)
    paths = [here.parents[3] / "sass_programs.py", *sorted(here.parent.glob("test_sass_*.py"))]
    lines = "".join(path.read_text() for path in paths if path != here)
    tested = set(re.findall(r"(?<=[\"' ])(?:U(?=[A-Z]))?([A-Z][A-Z0-9]+)(?=[. \"'])", lines))
    tested |= set(re.findall(r"(?<=[\"' ])([A-Z][A-Z0-9]+)(?=[. \"'])", lines))
    known = set(rules._RULES)
    assert known - tested - set(_ELSEWHERE) == set()
    assert set(_ELSEWHERE) <= known - tested
