"""Profiles of a run: vectors per interval, and call stacks per sampling unit.

What interval samplers (SimPoint, SBBV) and stack samplers (SimProf; Huang, Georgia Tech 2015, section 5.3.1) start
from.

Tables
------
``intervals``
    One row per (interval, thread), sorted so. A program with one thread has thread 0.
``interval_blocks``
    How often each block counts in an interval: what the profile's format counts, executions times instructions in
    SimPoint's. Sorted by (interval_id, thread, block).
``interval_counters``
    What was measured of an interval.
``frames``, ``stacks``
    Names of methods or functions (``frame_id`` is the row index), and distinct call stacks from the outermost frame to
    the innermost (``stack_id`` is the row index).
``stack_units``
    Sampling units, sorted by (rank, thread, unit_id); times are of the profiled run.
``stack_samples``
    Snapshots of call stacks, sorted by (rank, thread, unit_id) and then by time; ``weight`` says how many one row
    stands for.
``unit_counters``
    What was measured of a sampling unit.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

INTERVALS_SCHEMA: Final = pa.schema(
    [
        pa.field("interval_id", pa.int32(), nullable=False),
        pa.field("thread", pa.int32(), nullable=False),
        pa.field("num_instructions", pa.int64(), nullable=False),  # sum of the row's counts where nothing else is said
    ]
)
INTERVAL_BLOCKS_SCHEMA: Final = pa.schema(
    [
        pa.field("interval_id", pa.int32(), nullable=False),
        pa.field("thread", pa.int32(), nullable=False),
        pa.field("block", pa.int32(), nullable=False),  # the format's dimension, from 1
        pa.field("count", pa.float64(), nullable=False),
    ]
)
INTERVAL_COUNTERS_SCHEMA: Final = pa.schema(
    [
        pa.field("interval_id", pa.int32(), nullable=False),
        pa.field("thread", pa.int32(), nullable=False),
        pa.field("counter", pa.dictionary(pa.int16(), pa.string()), nullable=False),
        pa.field("value", pa.float64(), nullable=False),
    ]
)
FRAMES_SCHEMA: Final = pa.schema([pa.field("name", pa.string(), nullable=False)])
STACKS_SCHEMA: Final = pa.schema([pa.field("frames", pa.list_(pa.int32()), nullable=False)])
STACK_UNITS_SCHEMA: Final = pa.schema(
    [
        pa.field("rank", pa.int32(), nullable=False),
        pa.field("thread", pa.int32(), nullable=False),
        pa.field("unit_id", pa.int32(), nullable=False),
        pa.field("thread_name", pa.string(), nullable=False),
        pa.field("start_ps", pa.int64(), nullable=False),
        pa.field("end_ps", pa.int64(), nullable=False),
        pa.field("cpu_ps", pa.int64(), nullable=False),  # -1 where not measured
        pa.field("num_instructions", pa.int64(), nullable=False),  # -1 where not measured
    ]
)
STACK_SAMPLES_SCHEMA: Final = pa.schema(
    [
        pa.field("rank", pa.int32(), nullable=False),
        pa.field("thread", pa.int32(), nullable=False),
        pa.field("unit_id", pa.int32(), nullable=False),
        pa.field("time_ps", pa.int64(), nullable=False),
        pa.field("stack_id", pa.int32(), nullable=False),
        pa.field("weight", pa.int64(), nullable=False),
    ]
)
UNIT_COUNTERS_SCHEMA: Final = pa.schema(
    [
        pa.field("rank", pa.int32(), nullable=False),
        pa.field("thread", pa.int32(), nullable=False),
        pa.field("unit_id", pa.int32(), nullable=False),
        pa.field("counter", pa.dictionary(pa.int16(), pa.string()), nullable=False),
        pa.field("value", pa.float64(), nullable=False),
    ]
)

SCHEMAS: Final = {
    "intervals": INTERVALS_SCHEMA,
    "interval_blocks": INTERVAL_BLOCKS_SCHEMA,
    "interval_counters": INTERVAL_COUNTERS_SCHEMA,
    "frames": FRAMES_SCHEMA,
    "stacks": STACKS_SCHEMA,
    "stack_units": STACK_UNITS_SCHEMA,
    "stack_samples": STACK_SAMPLES_SCHEMA,
    "unit_counters": UNIT_COUNTERS_SCHEMA,
}
