"""Kernels of run.py: pieces progress at rates that follow from what runs beside; the scheduler says what comes next."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np

from manyscale.models.kernels import allocation_free, by_reference, inner, inner_inlined, separate
from manyscale.models.node.scheduler.kernel import CREATES, OPERATION, PHASE_END, PIECE, advance, begin_phase
from manyscale.models.node.scheduler.scheduler import Scheduler
from manyscale.models.node.shared.costs import PieceCosts
from manyscale.models.node.shared.occupancy import (
    CROSSED,
    DOWN,
    FAR,
    FAR_OWED,
    FOUGHT,
    LED,
    LED_FAR,
    NEAR_OWED,
    PASSED,
    REMOTE,
    ROWS,
    TAKEN,
    TAKEN_FAR,
    WRITTEN,
    Occupancy,
)
from manyscale.models.node.shared.occupancy_kernel import use_piece
from manyscale.models.node.shared.rates_kernel import EMPTY, GIVEN, WORKS, set_rates

NEVER: Final = np.inf

# Of a core: ``left`` instructions of its piece, each of ``cycles``; per instruction: ``lines`` of main memory, with
# those written back, ``read`` without them, ``rows`` opened if nobody disturbs, ``ported`` lines of the first shared
# cache, ``slope`` cycles for each that these wait. ``due``: when it is to be advanced, in ps; ``begin``: of its piece.
CORE: Final = np.dtype(
    [
        ("kind", "i8"), ("left", "f8"), ("cycles", "f8"), ("lines", "f8"), ("read", "f8"), ("rows", "f8"),
        ("ported", "f8"), ("slope", "f8"), ("due", "f8"), ("begin", "f8"),
    ]
)  # fmt: skip
INSTANCE: Final = np.dtype(
    [
        ("start_ps", "i8"),
        ("end_ps", "i8"),
        ("created_ps", "i8"),
        ("ready_ps", "i8"),
        ("cycles", "f8"),
        ("alone", "f8"),
        ("base", "f8"),
        ("cache", "f8"),
        ("core", "i4"),
        ("pad", "i4"),
    ]
)
CONTROL: Final = np.dtype(
    [("cycle_ps", "f8"), ("per_speedup", "f8"), ("first_phase", "i8"), ("changed", "i8"), ("every", "f8")]
)


class Run(NamedTuple):
    """``curve`` float64[cores, waits]: cycles per instruction at each of ``costs.wait``. ``served`` float64[columns]:
    of the piece that begins; ``totals`` float64[columns]: sums over all pieces. ``piece_ps`` int64[pieces]: what each
    took, given for those without instructions."""

    control: np.ndarray
    scheduler: Scheduler
    core: np.ndarray
    curve: np.ndarray
    memory: np.ndarray
    occupancy: Occupancy
    costs: PieceCosts
    first: np.ndarray
    end: np.ndarray
    line: np.ndarray
    use: np.ndarray
    visits: np.ndarray
    level_of: np.ndarray  # none is asked for
    instructions: np.ndarray
    sample: np.ndarray
    piece_ps: np.ndarray
    given_ps: np.ndarray
    beside_ps: np.ndarray
    opened: np.ndarray
    instance: np.ndarray
    served: np.ndarray
    totals: np.ndarray
    makespan_ps: np.ndarray


@inner_inlined
def _followed(costs, s):  # type: ignore[no-untyped-def]
    """What a line from another socket's caches takes that waits with another one."""
    share = 1.0 / costs.reach[s]
    return costs.far[s] if share == 1.0 else max(costs.far[s] - share * costs.far_led[s], 0.0) / (1.0 - share)


@inner_inlined
def _fought(costs, s, near, far):  # type: ignore[no-untyped-def]
    """What lines take that come back, one by one, to be stored to."""
    return near * (costs.near_led[s] + costs.near_take[s]) + far * (costs.far_led[s] + costs.far_take[s])


@separate
def _pay(run):  # type: ignore[no-untyped-def]
    """Pieces that run take longer by lines that the one that begins uses, too. O(cores)."""
    occupancy = run.occupancy
    occupancy.control[0].owes = 0
    for core in range(run.core.shape[0]):
        owed = occupancy.owed[core]
        c = run.core[core]
        if c.kind == WORKS and owed[NEAR_OWED] + owed[FAR_OWED] > 0.0:
            s = np.int64(run.sample[run.scheduler.core[core].piece])
            cycles = run.control[0].every * _fought(run.costs, s, owed[NEAR_OWED], owed[FAR_OWED])
            run.instance[run.scheduler.core[core].instance].alone += cycles
            run.instance[run.scheduler.core[core].instance].cache += cycles
            for w in range(run.curve.shape[1]):
                run.curve[core, w] += cycles / max(c.left, 1.0)
        owed[NEAR_OWED] = owed[FAR_OWED] = 0.0


@inner
def _estimate(run, reach, opened):  # type: ignore[no-untyped-def]
    """What hangs on the lines beside one, where most are left out: how many loaded lines lead others, if these lie
    anywhere among all, and how many rows are opened, if as many of them as of all lines."""
    levels = run.occupancy.control[0].levels
    loaded = run.occupancy.loaded
    total = 1e-300
    for level in range(levels + 2):
        total += loaded[level]
    apart = 1.0 + (reach - 1.0) * (loaded[levels] + loaded[levels + REMOTE]) / total
    run.served[levels + LED] = loaded[levels] / apart
    run.served[levels + LED_FAR] = loaded[levels + REMOTE] / apart
    run.served[levels + ROWS] = run.served[levels] * opened


@inner
def _begin_work(run, core, piece):  # type: ignore[no-untyped-def]
    """Its costs, from the levels that serve its lines. O(its lines x levels)."""
    c, costs = run.core[core], run.costs
    served = run.served
    s = np.int64(run.sample[piece])
    stands_for = run.control[0].every
    use_piece(
        run.occupancy, core, run.first[piece], run.end[piece], run.line, run.use, run.visits, costs.reach[s], served,
        run.level_of,
    )  # fmt: skip
    if stands_for > 1.0:
        _estimate(run, costs.reach[s], run.opened[piece])
    if run.occupancy.control[0].owes:
        _pay(run)
    levels = run.occupancy.control[0].levels
    count = np.float64(run.instructions[piece])
    per = stands_for / count
    least = costs.least[s] + run.beside_ps[piece] / count / run.control[0].cycle_ps
    base = costs.base[s] + least - costs.least[s]
    alike, every, stores = 0.0, 1e-300, 0.0
    loaded = run.occupancy.loaded
    for level in range(1, levels + 2):
        if level < levels:
            base += loaded[level] * per * costs.line[s, level]
        if level <= levels:
            alike += min(loaded[level] * per, costs.natural[s, level])
            every += costs.natural[s, level]
        stores += run.occupancy.stored[level] * costs.latency[level]
    alike = alike / every if every > 1e-200 else 1.0
    base += per * (
        served[levels + PASSED] * (costs.near[s] - costs.line[s, levels - 1])
        + (loaded[levels + REMOTE] - served[levels + LED_FAR]) * _followed(costs, s)
        + served[levels + LED_FAR] * costs.far_led[s]
        + _fought(costs, s, served[levels + FOUGHT], served[levels + CROSSED])
        + served[levels + TAKEN] * costs.near_take[s]
        + served[levels + TAKEN_FAR] * costs.far_take[s]
        + stores * costs.store[s]
    )
    from_memory = served[levels] * per
    led, followed = served[levels + LED] * per, (loaded[levels] - served[levels + LED]) * per
    stores = run.occupancy.stored[levels] * per * costs.store[s]
    far = served[levels + FAR] / max(served[levels], 1.0)
    for w in range(costs.wait.shape[0]):
        run.curve[core, w] = led * costs.led[s, w] + followed * costs.memory[s, w] + stores * costs.wait[w]
    # a line of another socket takes longer by a constant
    slope = far * run.memory[0].far * (run.curve[core, 1] - run.curve[core, 0]) / (costs.wait[1] - costs.wait[0])
    for w in range(costs.wait.shape[0]):
        run.curve[core, w] = max(base + slope + run.curve[core, w] + alike * costs.extra[s, w], least)
    c.kind = WORKS
    c.left = count
    c.read = from_memory + costs.own[s]
    c.lines = c.read + served[levels + WRITTEN] * per
    c.rows = served[levels + ROWS] * per + costs.own[s]
    first_shared = run.occupancy.tier[0].levels
    c.ported = from_memory + served[levels + DOWN] * per
    for level in range(first_shared, levels):
        c.ported += served[level] * per
    c.slope = c.ported * costs.port[s]
    c.cycles = run.curve[core, 0]
    row = run.instance[run.scheduler.core[core].instance]
    row.alone += run.curve[core, 0] * count
    row.base += min(costs.base[s], run.curve[core, 0]) * count
    row.cache += min(base - costs.base[s], max(run.curve[core, 0] - costs.base[s], 0.0)) * count
    for column in range(served.shape[0]):
        run.totals[column] += stands_for * served[column]
    run.control[0].changed = 1


@separate
def _begin_piece(run, core, now_ps):  # type: ignore[no-untyped-def]
    """A core begins what the scheduler said."""
    me, c = run.scheduler.core[core], run.core[core]
    piece = np.int64(me.piece)
    c.begin = now_ps
    if piece < 0:
        c.kind = GIVEN
        c.due = np.float64(me.start_ps)
        return
    per_speedup = run.control[0].per_speedup
    creates = per_speedup != 1.0 and (run.scheduler.instance[me.row].flags & CREATES) != 0
    if run.instructions[piece] == 0:
        duration = np.float64(run.given_ps[piece])
        c.kind = GIVEN
        c.due = now_ps + (duration * per_speedup if creates else duration)
        return
    _begin_work(run, core, piece)


@inner
def _end_piece(run, core, now_ps):  # type: ignore[no-untyped-def]
    me, c = run.scheduler.core[core], run.core[core]
    piece, instance = np.int64(me.piece), np.int64(me.instance)
    if piece >= 0:
        run.piece_ps[piece] = np.int64(np.rint(now_ps)) - np.int64(np.rint(c.begin))
        row = run.instance[instance]
        if row.start_ps < 0:
            row.start_ps = np.int64(np.rint(c.begin))
            row.created_ps = run.scheduler.instance[me.row].created_ps
            row.ready_ps = run.scheduler.instance[me.row].ready_ps
        row.end_ps = np.int64(np.rint(now_ps))
        row.core = core
        if c.kind == WORKS:
            row.cycles += (now_ps - c.begin) / run.control[0].cycle_ps
    if c.kind == WORKS:
        run.control[0].changed = 1
        run.occupancy.running[core] = 0
    c.kind = EMPTY
    c.due = NEVER


@inner
def _next_event(run, now_ps):  # type: ignore[no-untyped-def]
    """(core, time) of what is due first, the lowest core of several. O(cores)."""
    first, first_ps = np.int64(-1), NEVER
    cycle_ps = run.control[0].cycle_ps
    for core in range(run.core.shape[0]):
        c = run.core[core]
        due = c.due
        if c.kind == WORKS:
            due = now_ps + c.left * c.cycles * cycle_ps
        if due < first_ps:
            first, first_ps = np.int64(core), due
    return first, first_ps


@inner
def _work_until(run, now_ps, until_ps):  # type: ignore[no-untyped-def]
    """All cores go on. O(cores)."""
    span = (until_ps - now_ps) / run.control[0].cycle_ps
    for core in range(run.core.shape[0]):
        c = run.core[core]
        if c.kind == WORKS:
            c.left -= span / c.cycles


@separate
def _run_phase(run, phase, begin_ps):  # type: ignore[no-untyped-def]
    """When the phase ends, -1 if it cannot."""
    sch = run.scheduler
    begin_phase(sch, run.control[0].first_phase + phase, np.int64(begin_ps))
    for each in range(run.core.shape[0]):
        run.core[each].kind = EMPTY
        run.core[each].due = NEVER
    now_ps = np.float64(begin_ps)
    core: Any = np.int64(0)
    while True:
        time_ps = np.int64(np.rint(now_ps))
        code = advance(sch, core, time_ps)
        if code == PIECE:
            _begin_piece(run, core, now_ps)
        elif code == OPERATION:
            run.core[core].due = now_ps
        elif code == PHASE_END:
            return time_ps
        for k in range(sch.num_woken[0]):
            run.core[sch.woken[k]].due = now_ps
        sch.num_woken[0] = 0
        core, next_ps = _next_event(run, now_ps)
        if core < 0:
            return np.int64(-1)
        if run.control[0].changed and next_ps > now_ps:
            set_rates(run)
            run.control[0].changed = 0
            core, next_ps = _next_event(run, now_ps)
        if next_ps > now_ps:
            _work_until(run, now_ps, next_ps)
            now_ps = next_ps
        if run.core[core].kind != EMPTY:
            _end_piece(run, core, now_ps)
        else:
            run.core[core].due = NEVER


@allocation_free
def run_phases(run):  # type: ignore[no-untyped-def]
    """Whether all phases ended; see run.py."""
    run = by_reference(run)
    begin_ps = np.int64(0)
    for phase in range(run.makespan_ps.shape[0]):
        end_ps = _run_phase(run, phase, begin_ps)
        if end_ps < 0:
            return False
        run.makespan_ps[phase] = end_ps - begin_ps
        begin_ps = end_ps
    return True
