"""Steps of the replay program: what a strand does, one after another."""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class Step(IntEnum):
    """What a step does; bits FIRST and LAST are or-ed in at the borders of an operation."""

    post_send = 0
    post_receive = 1
    wait_send = 2
    wait_receive = 3
    post_open_send = 4  # a send that a wildcard receive may take
    post_open_receive = 5
    wait_open_receive = 6
    wait_any = 7
    call = 8  # a collective whose steps stand once for all of its instances (network/replay/calls.py)
    start_strand = 9
    wait_strand = 10
    nothing = 11
    enter_gate = 12  # of a collective that costs what a formula says
    wait_gate = 13  # until all have entered and the formula's time has passed


FIRST: Final = 16
LAST: Final = 32
ACTION: Final = 15

# The codes as plain integers, which kernels compile to constants
POST_SEND: Final = int(Step.post_send)
POST_RECEIVE: Final = int(Step.post_receive)
WAIT_SEND: Final = int(Step.wait_send)
WAIT_RECEIVE: Final = int(Step.wait_receive)
POST_OPEN_SEND: Final = int(Step.post_open_send)
POST_OPEN_RECEIVE: Final = int(Step.post_open_receive)
WAIT_OPEN_RECEIVE: Final = int(Step.wait_open_receive)
WAIT_ANY: Final = int(Step.wait_any)
CALL: Final = int(Step.call)
START_STRAND: Final = int(Step.start_strand)
WAIT_STRAND: Final = int(Step.wait_strand)
NOTHING: Final = int(Step.nothing)
ENTER_GATE: Final = int(Step.enter_gate)
WAIT_GATE: Final = int(Step.wait_gate)
