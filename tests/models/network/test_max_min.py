"""The solver of max-min fair sharing: against the textbook's progressive filling, and in closed form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manyscale.models.kernels import allocation_free
from manyscale.models.network.flow import max_min, starts_and_ends
from manyscale.models.network.flow.link_clocks import MANY, PENDING, Sharing, new_sharing

TOLERANCE = 1e-10  # relative


@allocation_free
def add_flow(sharing, links, uses, private, weight, amount):  # type: ignore[no-untyped-def]
    return starts_and_ends.add_flow(sharing, links, uses, private, weight, amount)


@allocation_free
def start_at_once(sharing, flow, num_pending, time):  # type: ignore[no-untyped-def]
    starts_and_ends.start_at_once(sharing, flow, num_pending, time)


@allocation_free
def end_flows(sharing, time, window, ended):  # type: ignore[no-untyped-def]
    return starts_and_ends.end_flows(sharing, time, window, ended)


@allocation_free
def next_end(sharing):  # type: ignore[no-untyped-def]
    return starts_and_ends.next_end(sharing)


@allocation_free
def solve(sharing, time):  # type: ignore[no-untyped-def]
    max_min.solve(sharing, time)


@dataclass(frozen=True)
class Flow:
    links: tuple[int, ...]
    weight: float
    uses: tuple[float, ...]
    amount: float = 1.0


def progressive_filling(capacity: Sequence[float], flows: Sequence[Flow]) -> list[float]:
    """Rates of flows: all levels rise together until a link is full, whose flows then stay (Bertsekas and Gallager,
    Data Networks, 6.5.2)."""
    rates: list[float | None] = [None] * len(flows)
    while None in rates:
        lowest, full = np.inf, -1
        for link, size in enumerate(capacity):
            left, weight = size, 0.0
            for flow, rate in zip(flows, rates, strict=True):
                for number, use in zip(flow.links, flow.uses, strict=True):
                    if number == link and rate is None:
                        weight += flow.weight * use
                    elif number == link:
                        left -= use * rate
            if weight > 0 and left / weight < lowest:
                lowest, full = left / weight, link
        for index, flow in enumerate(flows):
            if rates[index] is None and full in flow.links:
                rates[index] = flow.weight * lowest
    return [float(rate) for rate in rates if rate is not None]


def started(capacity: Sequence[float], flows: Sequence[Flow], many: int = MANY) -> Sharing:
    sharing = new_sharing(np.array(capacity), np.full(len(capacity), 64), 64, 5, many=many)
    for flow in flows:
        add(sharing, flow)
    solve(sharing, 0.0)
    return sharing


def add(sharing: Sharing, flow: Flow) -> int:
    return int(add_flow(sharing, np.array(flow.links, np.int32), np.array(flow.uses), -1, flow.weight, flow.amount))


def rate_of(sharing: Sharing, number: int) -> float:
    return float(sharing.weight[number] * sharing.level[sharing.bottleneck[number]])


def rates(capacity: Sequence[float], flows: Sequence[Flow]) -> list[float]:
    sharing = started(capacity, flows)
    return [rate_of(sharing, number) for number in range(len(flows))]


def simple(*links: int, weight: float = 1.0, amount: float = 1.0) -> Flow:
    return Flow(links, weight, (1.0,) * len(links), amount)


def ends(sharing: Sharing) -> list[tuple[float, int]]:
    """Run to the end: when each flow ended."""
    found = []
    scratch = np.empty(64, np.int32)
    while (time := next_end(sharing)) < np.inf:
        while next_end(sharing) <= time:
            count = end_flows(sharing, time, 0.0, scratch)
            found += [(time, int(flow)) for flow in scratch[:count]]
        solve(sharing, time)
    return found


pytestmark = pytest.mark.theory


def test_two_flows_share_a_link() -> None:
    assert rates([6.0], [simple(0), simple(0)]) == [3.0, 3.0]


def test_a_lone_flow_has_its_narrowest_link() -> None:
    assert rates([6.0, 2.0, 4.0], [simple(0, 1, 2)]) == [2.0]


def test_shares_are_as_weights() -> None:
    assert rates([6.0], [simple(0, weight=1.0), simple(0, weight=0.5)]) == [4.0, 2.0]


def test_what_a_flow_held_back_elsewhere_leaves_goes_to_the_others() -> None:
    """0 and 1 share link 0; 1 may have 1 of link 1 only."""
    assert rates([6.0, 1.0], [simple(0), simple(0, 1)]) == [5.0, 1.0]


def test_the_textbook_chain() -> None:
    """One flow over n links of capacity 1, each with a flow of its own: all have one half."""
    chain = [simple(0, 1, 2, 3), *(simple(link) for link in range(4))]
    assert rates([1.0] * 4, chain) == [0.5] * 5


@pytest.mark.parametrize("n", [1, 2, 7, 60])
def test_incast(n: int) -> None:
    """n links of capacity 1 into one: each has 1/n of it."""
    assert rates([1.0] * (n + 1), [simple(k, n) for k in range(n)]) == pytest.approx([1 / n] * n, rel=1e-14)


def test_ring_of_neighbours_and_across() -> None:
    """On a ring of 6 links, each flow takes 3 in a row: every link has three flows."""
    flows = [simple(k, (k + 1) % 6, (k + 2) % 6) for k in range(6)]
    assert rates([1.5] * 6, flows) == pytest.approx([0.5] * 6, rel=1e-14)


def test_a_flow_that_uses_a_link_twice_takes_two_shares() -> None:
    assert rates([6.0], [Flow((0,), 1.0, (2.0,)), simple(0)]) == [2.0, 2.0]


def test_traffic_back_takes_its_share() -> None:
    """Both directions loaded, 5 % of each flow goes back: 1.05 x rate fills a link."""
    flows = [Flow((0, 1), 1.0, (1.0, 0.05)), Flow((1, 0), 1.0, (1.0, 0.05))]
    assert rates([1.0, 1.0], flows) == pytest.approx([1 / 1.05] * 2, rel=1e-14)


def test_flows_end_when_they_should() -> None:
    """1 and 3 over a link of 2: at 1 each, the first ends at 1; the other has 2 left, at 2 it ends at 2."""
    sharing = started([2.0], [simple(0, amount=1.0), simple(0, amount=3.0)])
    assert ends(sharing) == [(1.0, 0), (2.0, 1)]


def test_a_flow_keeps_what_it_has_sent_when_its_bottleneck_changes() -> None:
    """Flow 0 (12) takes links 0 (4) and 1 (3); 1 (4) shares link 0.

    Levels 2 and 2 on link 0 until 1 ends at 2, when 0 has 8 left; then link 1 gives 3: end at 2 + 8 / 3.
    """
    sharing = started([4.0, 3.0], [simple(0, 1, amount=12.0), simple(0, amount=4.0)])
    assert ends(sharing) == [(2.0, 1), (pytest.approx(2 + 8 / 3, rel=1e-14), 0)]


def test_capacities_must_be_positive() -> None:
    with pytest.raises(ValueError, match="positive and finite"):
        new_sharing(np.array([1.0, 0.0]), np.ones(2, np.int64), 1, 1)


@st.composite
def instances(draw: st.DrawFn) -> tuple[list[float], list[Flow]]:
    num_links = draw(st.integers(1, 8))
    # few distinct values, so that ties are frequent
    values = st.sampled_from([1.0, 2.0, 3.0, 0.7]) | st.floats(0.1, 10.0)
    capacity = draw(st.lists(values, min_size=num_links, max_size=num_links))
    flows = []
    for _ in range(draw(st.integers(1, 16))):
        links = draw(st.lists(st.integers(0, num_links - 1), min_size=1, max_size=5, unique=True))
        uses = draw(st.lists(st.sampled_from([1.0, 1.0, 0.05, 2.0]), min_size=len(links), max_size=len(links)))
        flows.append(Flow(tuple(links), draw(values), tuple(uses), draw(values)))
    return capacity, flows


@pytest.mark.property
@settings(max_examples=200, deadline=None)
@given(instances())
def test_rates_are_those_of_progressive_filling(instance: tuple[list[float], list[Flow]]) -> None:
    capacity, flows = instance
    assert rates(capacity, flows) == pytest.approx(progressive_filling(capacity, flows), rel=TOLERANCE)


@dataclass
class Course:
    """A course of starts and ends by the textbook: every flow's remaining amount, moved on at each event."""

    capacity: list[float]
    time: float = 0.0
    left: dict[int, float] = field(default_factory=dict)
    flows: dict[int, Flow] = field(default_factory=dict)

    def rates(self) -> dict[int, float]:
        numbers = list(self.flows)
        filled = progressive_filling(self.capacity, [self.flows[number] for number in numbers])
        return dict(zip(numbers, filled, strict=True))

    def advance(self, time: float) -> None:
        for number, rate in self.rates().items():
            self.left[number] -= rate * (time - self.time)
        self.time = time


@pytest.mark.property
@settings(max_examples=150, deadline=None)
@given(instances(), st.lists(st.floats(0.0, 2.0), min_size=16, max_size=16))
def test_starts_and_ends_in_any_order(instance: tuple[list[float], list[Flow]], gaps: list[float]) -> None:
    """Flows start one after another; each ends when the textbook says, with the rates it says at every event."""
    follow(*instance, gaps)


def follow(capacity: list[float], flows: list[Flow], gaps: list[float], many: int = MANY) -> int:
    """Starts and ends of flows, checked at each: how often a flow was hindered by nothing but its bottleneck."""
    sharing = new_sharing(np.array(capacity), np.full(len(capacity), 24), 24, 5, many=many)
    num_sole = 0
    course = Course(capacity)
    scratch = np.empty(24, np.int32)
    starts = np.cumsum(gaps[: len(flows)]).tolist()
    waiting = list(zip(starts, flows, strict=True))
    while waiting or course.flows:
        time = min(next_end(sharing), waiting[0][0] if waiting else np.inf)
        course.advance(time)
        while next_end(sharing) <= time:
            count = end_flows(sharing, time, 1e-12, scratch)
            for number in scratch[:count].tolist():
                assert course.left[number] == pytest.approx(0.0, abs=1e-9)
                del course.flows[number], course.left[number]
        while waiting and waiting[0][0] <= time:
            _, flow = waiting.pop(0)
            number = add(sharing, flow)
            course.flows[number], course.left[number] = flow, flow.amount
        solve(sharing, time)
        found = {number: rate_of(sharing, number) for number in course.flows}
        assert found == pytest.approx(course.rates(), rel=1e-9)
        assert all(left > -1e-9 for left in course.left.values())
        num_sole += int(sharing.link["sole"].sum())
    return num_sole


@pytest.mark.property
@settings(max_examples=80, deadline=None)
@given(instances(), st.lists(st.floats(0.0, 2.0), min_size=16, max_size=16), st.sampled_from([0.3, 1.0, 4.0]))
def test_rates_between_steps_are_those_of_the_last(
    instance: tuple[list[float], list[Flow]], gaps: list[float], step: float
) -> None:
    """At a step, the textbook's rates of all flows; until the next one all keep theirs, and a flow that starts has none
    unless it meets no others."""
    capacity, flows = instance
    sharing = new_sharing(np.array(capacity), np.full(len(capacity), 24), 24, 5)
    course, rate = Course(capacity), dict[int, float]()
    scratch = np.empty(24, np.int32)
    waiting = list(zip(np.cumsum(gaps[: len(flows)]).tolist(), flows, strict=True))
    solved_at = step
    while waiting or course.flows:
        time = min(next_end(sharing), waiting[0][0] if waiting else np.inf, solved_at)
        for number in course.flows:
            course.left[number] -= rate[number] * (time - course.time)
        course.time = time
        while next_end(sharing) <= time:
            count = end_flows(sharing, time, 1e-12, scratch)
            for number in scratch[:count].tolist():
                assert course.left[number] == pytest.approx(0.0, abs=1e-9)
                del course.flows[number], course.left[number], rate[number]
        while waiting and waiting[0][0] <= time:
            _, flow = waiting.pop(0)
            meets_others = any(set(flow.links) & set(other.links) for other in course.flows.values())
            num_pending = int(sharing.counter[PENDING])
            number = add(sharing, flow)
            start_at_once(sharing, number, num_pending, time)
            course.flows[number], course.left[number] = flow, flow.amount
            rate[number] = 0.0 if meets_others else progressive_filling(capacity, [flow])[0]
        if time == solved_at:
            solve(sharing, time)
            rate = course.rates()
            solved_at += step
        assert {number: rate_of(sharing, number) for number in course.flows if rate[number]} == pytest.approx(
            {number: value for number, value in rate.items() if value}, rel=1e-9
        )
        assert all(left > -1e-9 for left in course.left.values())


def test_a_link_that_is_not_full_any_more_hinders_nobody() -> None:
    """0 and 1 fill link 0 and end while 2 waits for it, which then is alone: link 1 has room for 2 beside 3."""
    sharing = started([1.0, 0.8, 0.1], [simple(0, amount=0.5), simple(0, amount=0.5)])
    number = add(sharing, simple(0, 1, amount=9.0))
    while next_end(sharing) <= 1.0:
        end_flows(sharing, 1.0, 1e-12, np.empty(24, np.int32))
    solve(sharing, 2.0)
    assert rate_of(sharing, number) == 0.8
    other = add(sharing, simple(1, 2, amount=9.0))
    solve(sharing, 3.0)
    assert [rate_of(sharing, number), rate_of(sharing, other)] == pytest.approx([0.7, 0.1])


@pytest.mark.property
@settings(max_examples=80, deadline=None)
@given(instances())
def test_rates_are_the_exact_ones(instance: tuple[list[float], list[Flow]]) -> None:
    """Those of the textbook in fractions, of the very numbers that the solver is given."""
    capacity, flows = instance
    exact = [
        Flow(flow.links, Fraction(flow.weight), tuple(map(Fraction, flow.uses)), Fraction(flow.amount))  # type: ignore[arg-type]
        for flow in flows
    ]
    expected = progressive_filling([Fraction(value) for value in capacity], exact)  # type: ignore[misc]
    assert rates(capacity, flows) == pytest.approx(expected, rel=1e-12)


@st.composite
def incasts(draw: st.DrawFn) -> tuple[list[float], list[Flow]]:
    """Up to 24 flows into one link or another, each over a link of its own or one that few share."""
    values = st.sampled_from([1.0, 2.0, 3.0, 0.7, 30.0]) | st.floats(0.1, 40.0)
    capacity = [draw(values), draw(values), *draw(st.lists(values, min_size=12, max_size=12))]
    amounts = st.sampled_from([1.0, 2.0]) | st.floats(0.1, 10.0)
    flows = []
    for _ in range(draw(st.integers(6, 24))):
        links = (int(draw(st.integers(0, 9)) == 0), draw(st.integers(2, 13)))
        flows.append(
            Flow(
                links,
                draw(st.sampled_from([1.0, 1.0, 3.0, 0.7])),
                (1.0, draw(st.sampled_from([1.0, 0.05]))),
                draw(amounts),
            )
        )
    return capacity, flows


@pytest.mark.property
@settings(max_examples=120, deadline=None)
@given(incasts(), st.lists(st.sampled_from([0.0, 0.0, 0.01]) | st.floats(0.0, 2.0), min_size=24, max_size=24))
def test_flows_that_nothing_hinders_elsewhere_are_as_the_textbook_has_them(
    instance: tuple[list[float], list[Flow]], gaps: list[float]
) -> None:
    """Links of two flows and more tell such flows apart."""
    follow(*instance, gaps, many=2)


def test_flows_that_nothing_hinders_elsewhere_are_told_apart() -> None:
    """Ten flows with links of their own into one: sole as soon as that is narrow enough; then another joins the link of
    the second, and the last ones are hindered by their own link."""
    capacity = [1.0, *[2.0] * 10]
    flows = [simple(0, 1 + k, amount=1.0 + k) for k in range(10)]
    assert follow(capacity, [*flows, simple(2, amount=30.0)], [0.0, *[0.1] * 10], many=3) > 10
