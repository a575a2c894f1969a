"""How fast blocks are given out (``node.gpu.dispatch``): ``independent(n)`` and EXIT take n + 11 cycles."""

from __future__ import annotations

import pytest
from gpu_controlled import core, fadd, launch
from gpu_small import gpu, independent, run

from manyscale.models.gpu import detailed
from manyscale.models.gpu.groups import simulate_in_groups
from manyscale.runner.run.execute.teams import in_threads


@pytest.mark.theory
@pytest.mark.parametrize("interval", [1, 3, 2.5])
def test_blocks_are_given_out_one_each_interval_to_sms_in_turn(interval):
    """Four SMs with room for all of 12 blocks."""
    found = run([[independent(40)]] * 12, gpu(sms=4, blocks=8, dispatch={"interval": f"{interval} cycles"}))
    assert found.block_sm.tolist() == [0, 1, 2, 3] * 3
    pace = round(4 * interval)
    assert found.block_begin.tolist() == [int(s * interval) + pace * turn for turn in range(3) for s in range(4)]
    assert (found.block_end - found.block_begin).min() >= 40 + 11


@pytest.mark.theory
@pytest.mark.parametrize("turnaround", [1, 50, 700])
def test_a_place_is_taken_again_a_turnaround_after_its_blocks_end(turnaround):
    """Longer than a window, too: nothing at all happens in between."""
    found = run([[independent(20)]] * 3, gpu(sms=1, blocks=1, dispatch={"turnaround": f"{turnaround} cycles"}))
    each = 31
    assert found.block_begin.tolist() == [k * (each + turnaround) for k in range(3)]
    assert found.busy_cycles == 3 * each + 2 * turnaround + 1


@pytest.mark.theory
def test_other_blocks_of_an_sm_go_on_while_a_place_waits():
    """Two places: the long block ends as it does by itself, the short one's place is taken 200 cycles after it."""
    target = {"sms": 1, "blocks": 2, "schedulers": 2}
    alone = run([[independent(300)]], gpu(**target)).block_end[0]
    found = run(
        [[independent(300)], [independent(5)], [independent(5)]], gpu(**target, dispatch={"turnaround": "200 cycles"})
    )
    assert found.block_begin[2] == found.block_end[1] + 200
    assert abs(int(found.block_end[0]) - int(alone)) <= 10 + 5  # in the fetch of instructions they are in its way


@pytest.mark.theory
def test_launches_of_the_scoreboard_begin_later_by_the_cold_start():
    trace = launch([[[fadd(3)] * 20]])
    without = trace.__class__(
        **{**vars(trace), "static": trace.static.__class__(**{**vars(trace.static), "details": None})}
    )
    early, late = (
        [detailed.simulate(each, core(core={"cold_start": f"{n} cycles"}))[0].busy_cycles for each in (trace, without)]
        for n in (0, 630)
    )
    assert [b - a for a, b in zip(early, late, strict=True)] == [0, 630]


def test_windows_of_sms_give_blocks_out_at_the_same_times():
    """Where no SM has to choose, windows and strict order agree in all times."""
    trace = launch([[[fadd(3)] * 60]] * 8)
    target = core(sms=4, blocks=1, core={}, dispatch={"interval": "2 cycles", "turnaround": "300 cycles"})
    strict = detailed.simulate(trace, target)[0]
    assert strict.block_begin.tolist()[:4] == [0, 2, 4, 6]
    for count in (1, 2):
        for found, _ in in_threads(count, lambda team: simulate_in_groups(trace, target, None, team)):
            assert found.cycles == strict.cycles
            assert found.block_begin.tolist() == strict.block_begin.tolist()
