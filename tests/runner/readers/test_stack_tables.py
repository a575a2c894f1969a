"""What becomes of any profile: every sample lies in one unit, in order, and nothing is lost."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stack_counts import counters, stacks

from manyscale.models.workload import OperationKind
from manyscale.runner.readers.stacks.profile import Profile
from manyscale.runner.readers.stacks.tables import workload
from manyscale.runner.readers.stacks.units import UnitRules

SAMPLES = st.lists(
    st.tuples(
        st.integers(0, 2),  # rank
        st.integers(1, 5),  # thread
        st.integers(0, 60),  # time
        st.sampled_from(["instructions", "cycles", "faults"]),
        st.integers(1, 30),  # count
        st.lists(st.sampled_from("abcd"), min_size=1, max_size=4),
        st.integers(0, 1),  # core
    ),
    min_size=1,
    max_size=60,
)


@pytest.mark.property
@settings(deadline=None, max_examples=150)
@given(SAMPLES, st.integers(1, 8), st.booleans())
def test_nothing_is_lost(samples, snapshots, merges):
    profile = Profile()
    samples.append((0, 1, 0, "instructions", 1, ["a"], 0))
    for rank, thread, time, event, count, frames, cpu in samples:
        profile.names[rank, thread] = f"t{thread}"
        stack = profile.stack(profile.frame(name) for name in frames)
        profile.add(rank, thread, time, stack, cpu=cpu, event=profile.event(event), count=count)
    found = workload(profile, Path("p"), "p", 3, UnitRules(snapshots, merge=merges), "any")
    main = [sample for sample in samples if sample[3] == "instructions"]
    assert sorted(stacks(found)) == sorted(tuple(sample[5]) for sample in main)
    rank, thread, unit, time = (
        found.column("stack_samples", name) for name in ("rank", "thread", "unit_id", "time_ps")
    )
    assert np.array_equal(np.lexsort((time, unit, thread, rank)), np.arange(len(rank)))
    units = {(row["rank"], row["thread"], row["unit_id"]): row for row in found.tables["stack_units"].to_pylist()}
    assert len(units) == found.tables["stack_units"].num_rows
    assert set(zip(rank.tolist(), thread.tolist(), unit.tolist(), strict=True)) == set(units)
    for key, when in zip(zip(rank.tolist(), thread.tolist(), unit.tolist(), strict=True), time.tolist(), strict=True):
        assert units[key]["start_ps"] <= when <= units[key]["end_ps"]
    assert sum(row["num_instructions"] for row in units.values()) == sum(sample[4] for sample in main)
    with_snapshots = {sample[:2] for sample in main}
    for event in ("cycles", "faults"):
        expected = sum(sample[4] for sample in samples if sample[3] == event and sample[:2] in with_snapshots)
        assert sum(values.get(event, 0.0) for values in counters(found).values()) == expected
    for one in {key[:2] for key in units}:
        ids = sorted(key[2] for key in units if key[:2] == one)
        assert ids == list(range(len(ids)))
    assert found.column("operations", "kind").tolist() == [OperationKind.other] * 3
    assert np.all(found.column("phases", "duration_ps") > 0)
    used = {frame for stack in stacks(found) for frame in stack}
    assert set(found.tables["frames"].column("name").to_pylist()) == used
