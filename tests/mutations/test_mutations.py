"""Malformed inputs of every kind are read, or refused in one line, within 10 s and 2 GiB.

MANYSCALE_MUTATIONS=50000 makes that many of all subjects together in the slow part (default: 20,000).
"""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import judge
import subjects

pytestmark = pytest.mark.property
_FEW = 8
_SLOW_FIRST = 1000
_UNREADABLE = ("otf2",) if find_spec("otf2") is None else ()  # without its package
_ALL = [
    each
    for each in subjects.readers() + subjects.more_traces() + subjects.others()
    if not each.name.startswith(_UNREADABLE)
]
_SHOWN = ("target dim8u0.cfg", "target torus-4x4x4", "study lulesh-64-sweep")  # of targets and studies, at once
_SMALL = {each.name for each in subjects.readers() + subjects.others()}
_QUICK = [
    each
    for each in _ALL
    if each.name in _SHOWN or (each.name in _SMALL and not each.name.startswith(("target ", "study ")))
]
_MANY = int(os.environ.get("MANYSCALE_MUTATIONS", "20000")) // len(_ALL)


def test_a_few_of_each(tmp_path):
    """In one process, which loads but once what they share."""
    tries = []
    for subject in _QUICK:
        (tmp_path / subject.name).mkdir()
        tries.append(subjects.attempt(subject, tmp_path / subject.name))

    def of(number: int) -> None:
        tries[max(number, 0) // _FEW](number % _FEW if number >= 0 else number)

    verdict = judge.judge(of, 0, _FEW * len(_QUICK))
    assert {f"{_QUICK[at // _FEW].name} {at % _FEW}": what for at, what in verdict.findings.items()} == {}
    assert verdict.counts.total() == _FEW * len(_QUICK)


@pytest.mark.slow
@pytest.mark.parametrize("subject", _ALL, ids=lambda each: each.name)
def test_many(subject, tmp_path):
    attempt = subjects.attempt(subject, tmp_path)
    attempt(judge.RIGHT)  # here, so that the processes of all subjects that follow have loaded what it loads
    verdict = judge.judge(attempt, _SLOW_FIRST, _SLOW_FIRST + _MANY)
    assert verdict.findings == {}
    assert verdict.peak_bytes < judge.MOST_BYTES


@pytest.mark.parametrize("crash", [lambda: [].pop(), lambda: os._exit(3), lambda: bytearray(4 << 30)])
def test_the_judge_finds_what_goes_wrong(crash):
    verdict = judge.judge(lambda number: crash() if number == 1 else None, 0, 3)
    assert list(verdict.findings) == [1]
    assert verdict.counts == {"read": 2, "wrong": 1}
