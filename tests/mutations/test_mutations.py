"""Malformed inputs of every kind are read, or refused in one line, within 10 s and 2 GiB.

MANYSCALE_MUTATIONS=50000 makes that many of all subjects together in the slow part (default: 20,000).
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import judge
import subjects

pytestmark = pytest.mark.property
_FEW = 8
_SLOW_FIRST = 1000
_ALL = subjects.readers() + subjects.more_traces() + subjects.others()
_MANY = int(os.environ.get("MANYSCALE_MUTATIONS", "20000")) // len(_ALL)


@pytest.mark.parametrize("subject", subjects.readers(), ids=lambda each: each.name)
def test_a_few_of_each_format(subject, tmp_path):
    verdict = judge.judge(subjects.attempt(subject, tmp_path), 0, _FEW)
    assert verdict.findings == {}
    assert verdict.counts.total() == _FEW


@pytest.mark.slow
@pytest.mark.parametrize("subject", _ALL, ids=lambda each: each.name)
def test_many(subject, tmp_path):
    verdict = judge.judge(subjects.attempt(subject, tmp_path), _SLOW_FIRST, _SLOW_FIRST + _MANY)
    assert verdict.findings == {}
    assert verdict.peak_bytes < judge.MOST_BYTES


@pytest.mark.parametrize("crash", [lambda: [].pop(), lambda: os._exit(3), lambda: bytearray(4 << 30)])
def test_the_judge_finds_what_goes_wrong(crash):
    verdict = judge.judge(lambda number: crash() if number == 1 else None, 0, 3)
    assert list(verdict.findings) == [1]
    assert verdict.counts == {"read": 2, "wrong": 1}
