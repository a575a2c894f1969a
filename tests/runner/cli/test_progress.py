"""What a log and a terminal show of long work, and what units tell of it."""

from __future__ import annotations

import io
import threading

import pytest

from manyscale.models.kernels.watching import watched
from manyscale.runner.cli import progress as shown
from manyscale.runner.cli.progress import Meter
from manyscale.runner.predict.units import Outcome, WorkUnit
from manyscale.runner.progress import heard, tell, telling
from manyscale.runner.run.execute.execution import Execution


class Clock:
    seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


class TestMeter:
    @pytest.fixture
    def clock(self):
        return Clock()

    @pytest.fixture
    def meter(self, clock):
        return Meter(clock)

    def test_says_nothing_before_anything_is_told(self, meter):
        assert meter.line() == ""

    def test_rate_and_time_left_follow_from_what_was_done_since_the_phase_began(self, meter, clock):
        meter(10, 200, "simulating")
        clock.seconds = 20.0
        meter(50, 200, "simulating")  # 40 in 20 s: 2/s, and 150 are left
        assert meter.line() == "simulating 50/200, 2/s, 75 s left"

    def test_of_few_parts_the_share_is_shown(self, meter, clock):
        meter(0, 1, "simulating")
        clock.seconds = 10.0
        meter(0.25, 1, "simulating")
        assert meter.line() == "simulating 0/1 (25 %), 0.025/s, 30 s left"

    def test_a_phase_of_unknown_length_shows_its_time(self, meter, clock):
        meter(0, 0, "reading")
        clock.seconds = 150.0
        assert meter.line() == "reading, 2 min so far"

    def test_a_new_phase_begins_anew(self, meter, clock):
        meter(0, 4, "simulating")
        clock.seconds = 100.0
        meter(0, 4, "replaying")
        clock.seconds = 110.0
        meter(1, 4, "replaying")
        assert meter.line() == "replaying 1/4 (25 %), 0.1/s, 30 s left"

    def test_millions_are_written_shortly(self, meter, clock):
        meter(0, 40_000_000, "simulating warp instructions")
        clock.seconds = 10.0
        meter(12_000_000, 40_000_000, "simulating warp instructions")
        assert meter.line() == "simulating warp instructions 12 M/40 M (30 %), 1.2 M/s, 23 s left"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Signalled(threading.Event):
    """Waits as often as told, then reports its end."""

    def __init__(self, rounds: int) -> None:
        super().__init__()
        self.rounds, self.waited = rounds, []

    def wait(self, timeout=None):
        self.waited.append(timeout)
        self.rounds -= 1
        return self.rounds < 0


def ticked(stream: io.StringIO, rounds: int) -> list[float]:
    meter = Meter(Clock())
    meter(1, 4, "replaying")
    ticker = shown._Ticker(meter, stream)
    ticker._ended = Signalled(rounds)
    ticker.start()
    ticker.end()
    return ticker._ended.waited


def test_a_log_gets_whole_lines_ten_seconds_apart():
    stream = io.StringIO()
    assert ticked(stream, 2) == [10.0, 10.0, 10.0]
    assert stream.getvalue() == "manyscale: replaying 1/4 (25 %), 0 s so far\n" * 2


def test_a_terminal_gets_one_line_that_is_wiped_at_the_end():
    stream = Terminal()
    assert ticked(stream, 1) == [1.0, 0.2]
    assert stream.getvalue() == "\r\033[Kreplaying 1/4 (25 %), 0 s so far\r\033[K"


def test_short_work_shows_nothing(capsys):
    with shown.progress_bar() as progress:
        progress(0, 1, "simulating")
    assert capsys.readouterr().err == ""


class Parts:
    """An executor whose units tell parts of themselves."""

    def hear(self, key: str, share: float) -> None:
        pytest.fail("what executes units has not said who hears of them")

    def map(self, units, shared, store):
        for unit in units:
            heard(lambda share, unit=unit: self.hear(unit.key, share), lambda: tell(0.5))
            yield Outcome(unit.key)

    def lockstep(self, units, shared, store):
        return iter(())


class Nothing:
    def expect(self, keys):
        pass

    def settle(self):
        return {}

    def read(self, key):
        return None


def test_units_count_by_their_weights_and_parts_of_them_do_too():
    """Weights 1 and 3: of 2 units the first is 0.5, the second 1.5."""
    seen = []
    execution = Execution(Nothing(), Parts(), lambda *_: None, lambda *told: seen.append(told))
    execution.execute(
        [WorkUnit("a", "node-cell", {}, weight=1), WorkUnit("b", "node-cell", {}, weight=3)], lambda _: {}
    )
    assert seen == [(done, 2, "simulating") for done in (0, 0.25, 0.5, 1.25, 2.0)]


@pytest.mark.parametrize(("kind", "what"), [("replay", "replaying"), ("stack-distances", "profiling")])
def test_phases_have_names(kind, what):
    seen = []
    execution = Execution(Nothing(), Parts(), lambda *_: None, lambda *told: seen.append(told))
    execution.execute([WorkUnit("a", kind, {})], lambda _: {})
    assert {told[2] for told in seen} == {what}


def test_items_tell_before_each_what_was_done():
    shares = []
    assert heard(shares.append, lambda: list(telling("abc", [1, 1, 2], 0.5))) == ["a", "b", "c"]
    assert shares == [0.5, 0.625, 0.75, 1.0]


def test_what_a_part_tells_is_its_share_of_the_whole():
    shares = []

    def work():
        for _ in telling("ab", [1, 3]):
            tell(0.5)
        tell(0.125)

    heard(shares.append, work)
    assert shares == [0.0, 0.125, 0.25, 0.625, 1.0, 0.125]


def test_launches_are_told_of_by_their_warp_instructions():
    """100 and 300 of them: half of the first is 50."""
    seen = []
    execution = Execution(Nothing(), Parts(), lambda *_: None, lambda *told: seen.append(told))
    units = [WorkUnit(key, "gpu-launches", {}, instructions=size) for key, size in (("a", 100), ("b", 300))]
    execution.execute(units, lambda _: {})
    assert seen == [(done, 400, "simulating warp instructions") for done in (0, 50, 100, 250, 400)]


class Late(Parts):
    """Hears of a unit once more when it is finished, and of two that run side by side."""

    def map(self, units, shared, store):
        for unit in units:
            self.hear(unit.key, 0.5)
        for unit in units:
            yield Outcome(unit.key)
            self.hear(unit.key, 0.75)


def test_units_side_by_side_add_up_and_late_news_change_nothing():
    seen = []
    execution = Execution(Nothing(), Late(), lambda *_: None, lambda *told: seen.append(told[0]))
    execution.execute([WorkUnit("a", "node-cell", {}), WorkUnit("b", "node-cell", {})], lambda _: {})
    assert seen == [0, 0.5, 1.0, 1.5, 2.0]


def test_a_long_call_is_told_of_from_beside_it():
    shares, twice = [], threading.Event()

    def told(share):
        shares.append(share)
        if len(shares) == 2:
            twice.set()

    done = iter((0.25, 7.0))
    with watched(lambda: next(done, 1.0), told, seconds=0.001):
        assert twice.wait(60)
    assert shares[:2] == [0.25, 1.0]


def test_what_a_listener_raises_ends_the_work():
    raised = threading.Event()

    def told(share):
        raised.set()
        raise ValueError("enough")

    with pytest.raises(ValueError, match="enough"), watched(lambda: 0.5, told, seconds=0.001):
        assert raised.wait(60)
