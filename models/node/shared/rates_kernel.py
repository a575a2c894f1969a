"""Kernels of run.py: the waits at which what cores ask for and what is served agree, and the rates of all cores."""

from __future__ import annotations

from typing import Final

from manyscale.models.kernels import inner, inner_inlined, separate
from manyscale.models.node.shared.queues import MOST_LOAD

EMPTY, GIVEN, WORKS = 0, 1, 2  # what a core does
_STEPS: Final = 40  # to the load at which demand and waits agree
_CLOSE: Final = 1e-3
_MOST_ASKED: Final = 64.0  # times what can be served; more is not told apart
_LEAST_OTHERS: Final = 0.1  # a core alone waits for its own lines where these are more than is served


@inner_inlined
def _queue(service, load):  # type: ignore[no-untyped-def]
    """What a line waits in a queue M/D/1."""
    return service * load / (2.0 * (1.0 - load))


@inner_inlined
def _at_wait(run, core, wait):  # type: ignore[no-untyped-def]
    """Cycles per instruction if lines of main memory wait so long. O(waits)."""
    grid = run.costs.wait
    last = grid.shape[0] - 1
    place = 0
    while place < last - 1 and wait >= grid[place + 1]:
        place += 1
    curve = run.curve[core]
    return curve[place] + (curve[place + 1] - curve[place]) * (wait - grid[place]) / (grid[place + 1] - grid[place])


@inner
def _lines_asked(run, dram):  # type: ignore[no-untyped-def]
    """Lines per cycle that all cores ask for at their present rates, and the number of equal cores that would do so.
    O(cores)."""
    total, squares = 0.0, 0.0
    for core in range(run.core.shape[0]):
        c = run.core[core]
        if c.kind == WORKS:
            rate = (c.lines if dram else c.ported) / c.cycles
            total += rate
            squares += rate * rate
    return total, (total * total / squares if squares > 0.0 else 0.0)


@inner
def _asked_at(run, dram, load, streams, opened):  # type: ignore[no-untyped-def]
    """(load, wait): what DRAM, or the port of shared caches, is asked for if lines wait as at ``load``, and that wait.
    O(cores)."""
    memory = run.memory[0]
    of_others = max(1.0 - 1.0 / streams, _LEAST_OTHERS)
    if dram:
        bank = opened * memory.row_cycle / memory.banks * memory.read_share  # those written back wait for no row
        slowest = max(memory.channel, bank)
        wait = _queue(memory.channel, load * memory.channel / slowest)
        if bank > 0.0:
            wait += opened * _queue(memory.row_cycle, load * bank / slowest)
        wait = of_others * wait + opened * memory.conflict
        service = slowest / memory.channels
    else:
        wait = of_others * _queue(memory.port, load)
        service = memory.port / memory.ports
    asked = 0.0
    for core in range(run.core.shape[0]):
        c = run.core[core]
        if c.kind == WORKS:
            if dram:
                if c.lines > 0.0:
                    asked += c.lines / (_at_wait(run, core, wait) + c.slope * memory.port_wait)
            elif c.ported > 0.0:
                asked += c.ported / (_at_wait(run, core, memory.wait) + c.slope * wait)
    return min(asked * service, _MOST_ASKED), wait


@separate
def _agree(run, dram, load, streams, opened):  # type: ignore[no-untyped-def]
    """(load, wait) at which demand and waits agree, looked for from ``load`` on; a load above 1 where no wait makes
    cores ask for as little as can be served. O(cores x steps)."""
    load = min(load, MOST_LOAD)
    asked, wait = _asked_at(run, dram, load, streams, opened)
    if abs(asked - load) <= _CLOSE:
        return load, wait
    if asked > load:
        low, above_low, high = load, asked - load, MOST_LOAD
        asked, wait = _asked_at(run, dram, high, streams, opened)
        above_high, load = asked - high, high
        if above_high >= 0.0:
            return asked, wait
    else:
        high, above_high, low = load, asked - load, 0.0
        asked, wait = _asked_at(run, dram, low, streams, opened)
        above_low, load = asked, low
        if above_low <= 0.0:
            return load, wait
    side = 0
    for k in range(_STEPS):
        load = (low * above_high - high * above_low) / (above_high - above_low)
        if k & 3 == 3:  # where demand falls steeply, half is quicker
            load = 0.5 * (low + high)
        asked, wait = _asked_at(run, dram, load, streams, opened)
        above = asked - load
        if abs(above) <= _CLOSE * (1.0 - load):
            break
        if above > 0.0:
            low, above_low = load, above
            if side == 1:
                above_high *= 0.5
            side = 1
        else:
            high, above_high = load, above
            if side == -1:
                above_low *= 0.5
            side = -1
    return load, wait


@separate
def set_rates(run):  # type: ignore[no-untyped-def]
    """Waits at which demand and load agree, and the rates of all cores. O(cores x steps)."""
    memory = run.memory[0]
    if memory.channel > 0.0:
        total, streams = _lines_asked(run, True)
        if total > 0.0:
            rows, read = 0.0, 0.0
            for core in range(run.core.shape[0]):
                c = run.core[core]
                if c.kind == WORKS:
                    rows += c.rows / c.cycles
                    read += c.read / c.cycles
            opened = min(rows / max(read, 1e-300), 1.0)
            memory.read_share = read / total
            memory.load, memory.wait = _agree(run, True, memory.load, streams, opened)
    if memory.port > 0.0:
        total, streams = _lines_asked(run, False)
        if total > 0.0:
            memory.port_load, memory.port_wait = _agree(run, False, memory.port_load, streams, 0.0)
    for core in range(run.core.shape[0]):
        c = run.core[core]
        if c.kind == WORKS:
            c.cycles = max(_at_wait(run, core, memory.wait) + c.slope * memory.port_wait, 1e-9)
            if c.lines > 0.0 and memory.load > 1.0:  # all get their share of what there is
                c.cycles *= memory.load
            if c.ported > 0.0 and memory.port_load > 1.0:
                c.cycles *= memory.port_load
