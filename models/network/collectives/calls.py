"""Collectives that are called: of all instances with equal members and messages, the steps are kept once.

65,536 ranks that call 1,000 allreduces exchange 1.6 messages of each rank in each a thousand times: written out, the
steps and messages of the collectives are nearly all of a program.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from manyscale.models.network.collectives.schedules import Schedule


@dataclass(frozen=True, eq=False)
class Calls:
    """What is called: ``schedules`` of distinct collectives, by their participants, and ``members`` int32[n], the world
    ranks of these. Per instance: the number of its collective (``kind`` int32) and ``rows`` int64[n], the operation of
    each participant."""

    schedules: tuple[Schedule, ...]
    members: tuple[np.ndarray, ...]
    kind: np.ndarray
    rows: tuple[np.ndarray, ...]

    @property
    def num_participants(self) -> np.ndarray:
        """int64[instances]."""
        return np.array([len(rows) for rows in self.rows], np.int64)

    @property
    def num_bytes(self) -> int:
        """Memory of all arrays."""
        of_schedules = sum(
            each.nbytes for plan in self.schedules for each in vars(plan).values() if isinstance(each, np.ndarray)
        )
        return of_schedules + sum(each.nbytes for each in (*self.members, *self.rows))


def calls_of(called: Sequence[tuple[np.ndarray, Schedule, np.ndarray]]) -> Calls | None:
    """From (members, schedule, rows) of each instance, as Instances has them; None of none."""
    if not called:
        return None
    distinct = {(id(members), id(plan)): (plan, members) for members, plan, _ in called}
    number = {key: at for at, key in enumerate(distinct)}
    schedules, members_of = zip(*distinct.values(), strict=True)
    kind = np.array([number[id(members), id(plan)] for members, plan, _ in called], np.int32)
    return Calls(schedules, members_of, kind, tuple(rows for _, _, rows in called))
