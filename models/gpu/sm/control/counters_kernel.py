"""Dependence counters of a warp (SB0 to SB5), in the columns of its registers.

What an instruction waits for stands among its operands, as registers do under the scoreboard: column k of ``register``
says when counter k is zero, NEVER while that is not known; behind those, how many things on their way hold it up, and
the latest time at which one that is known does no more.
"""

from __future__ import annotations

from manyscale.models.gpu.sm.control.rows import KNOWN, PENDING
from manyscale.models.gpu.sm.state import NEVER
from manyscale.models.kernels import inner_inlined


@inner_inlined
def hold(sm, w, counter):  # type: ignore[no-untyped-def]
    """A counter goes up, and down again when ``let_go`` says."""
    registers = sm.register[w]
    registers[PENDING + counter] += 1
    registers[counter] = NEVER


@inner_inlined
def hold_until(sm, w, counter, time, cause):  # type: ignore[no-untyped-def]
    """A counter goes up, and down again at ``time``."""
    registers = sm.register[w]
    if time > registers[KNOWN + counter]:
        registers[KNOWN + counter] = time
        sm.register_cause[w, counter] = cause
    if registers[PENDING + counter] == 0:
        registers[counter] = registers[KNOWN + counter]


@inner_inlined
def let_go(sm, w, counter, time, cause):  # type: ignore[no-untyped-def]
    """One thing less holds a counter up from ``time`` on."""
    sm.register[w, PENDING + counter] -= 1
    hold_until(sm, w, counter, time, cause)
