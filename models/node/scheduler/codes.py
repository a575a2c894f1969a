"""Numbers that the parts of the scheduler share: what cores and instances are at."""

from __future__ import annotations

from typing import Final

PIECE: Final = 0  # what `advance` returns
IDLE: Final = 1
OPERATION: Final = 2
PHASE_END: Final = 3

# What a suspended instance waits for
NOTHING, CHILDREN, INSTANCE, CALLED, GROUP, ALL, CHUNKS_DONE, CHUNKS_BEGUN = 0, 1, 2, 3, 4, 5, 6, 7
# Why a core was left to its caller
LOOKING, STEP_DONE, STARTING, CREATING, ENDING, MEETING, LOCKED = 0, 1, 2, 3, 4, 5, 6
# More bits of an instance's flags
CREATES, UNDEFERRED, CREATED, BEGUN, DONE = 8, 16, 32, 64, 128
# What a step of synchronisation comes to, beside IDLE and OPERATION
GOES_ON, WAITS = -1, -2
