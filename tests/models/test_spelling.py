"""The nearest name that is known."""

from __future__ import annotations

import pytest

from manyscale.models.spelling import closest, hint, unknown


@pytest.mark.parametrize(("name", "known", "found"), [
    ("latncy", ["bandwidth", "latency"], "latency"),
    ("Latency", ["bandwidth", "latency"], "latency"),
    ("cores-per-rank", ["cores_per_rank", "ranks_per_node"], "cores_per_rank"),
    ("--worklod", ["--workers", "--workload"], "--workload"),
    ("--top", ["--output", "--cache"], None),  # dashes make nothing alike
    ("gbps", ["GB/s", "B/s"], "GB/s"),
    ("cray1", ["laptop", "marenostrum3"], None),
    ("", ["a"], None),
    (3, ["a"], None),
])  # fmt: skip
def test_closest(name, known, found):
    assert closest(name, known) == found


def test_a_hint_comes_before_what_is_known():
    assert hint("flo", ["dimemas", "flow"]) == "did you mean 'flow'? known are dimemas, flow"
    assert hint("x", ["dimemas", "flow"], " and numbers") == "known are dimemas, flow and numbers"


def test_of_many_names_the_one_that_is_meant_is_enough():
    known = [f"machine-{number}" for number in range(13)]
    assert hint("machine-x", known).endswith("'?")
    assert hint("laptop", known).startswith("known are machine-0, ")


def test_the_whole_half_of_a_message():
    assert unknown("model", "flo", ["flow"]) == "unknown model 'flo'; did you mean 'flow'? known are flow"
