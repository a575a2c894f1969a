"""Speed of instance profiles: accesses per CPU second, in units of a sort in the same process (as in
test_memory_dataflow.py)."""

from __future__ import annotations

import pytest
from cpu_time import least_cpu, second
from instance_streams import Execution, Op, profiles_of

from manyscale.models.node import instance_profile

pytestmark = pytest.mark.bench

NOISE = 1.3
BLOCKS = [[Op(loads=1), Op(stores=1), *[Op() for _ in range(6)]]]


def pieces(num_instances: int) -> list[tuple[int, list[Execution]]]:
    """Each streams over 1,000 doubles of its own and 1,000 that it shares with its neighbours."""
    return [
        (i, [(0, (8 * (1000 * i + k), 8 * (500 * i + k) + (1 << 32))) for k in range(1000)])
        for i in range(num_instances)
    ]


def test_accesses_per_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """At least 100 M accesses per CPU second."""
    taken = []
    profile = instance_profile.profile_instances

    def timed(*args: object, **options: object) -> object:
        taken.append(least_cpu(lambda: profile(*args, **options), 3))  # type: ignore[arg-type]
        return profile(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr("instance_streams.profile_instances", timed)
    profiles = profiles_of(BLOCKS, pieces(500))
    unit = second()
    speed = 1_000_000 / taken[0]
    size = sum(array.nbytes for array in profiles.arrays().values()) / profiles.num_instances
    print(f"\n{speed / 1e6:.1f} M accesses/s, {size:.0f} B an instance; unit {unit:.2f} s")
    assert speed * unit >= 100e6 / NOISE
