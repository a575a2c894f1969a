"""Several who compute one thing together, each running the same steps; how they find each other is the runner's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import DTypeLike

Wanted: TypeAlias = Mapping[str, tuple[tuple[int, ...], DTypeLike]]  # shape and type of arrays, by name
T = TypeVar("T")


class TeamBrokenError(RuntimeError):
    """Another member has failed, and says why."""


class Team(Protocol):
    """This is member ``me`` of ``count``, from 0. All call the same methods in the same order, and none returns before
    all have called it. Raises TeamBrokenError once a member has failed."""

    @property
    def me(self) -> int: ...

    @property
    def count(self) -> int: ...

    def wait(self) -> None:
        """Until all are here; what they wrote before, all see."""

    def arrays(self, name: str, wanted: Wanted) -> dict[str, np.ndarray]:
        """Arrays of zeros that all members share. Those of the same ``name`` before are no longer used by anyone."""

    def gather(self, own: Mapping[str, np.ndarray]) -> list[Mapping[str, np.ndarray]]:
        """What each member handed in, by member; not to be changed, and gone at the next call."""

    def once(self, make: Callable[[], T]) -> T:
        """A value that nobody changes, the same for all: made once where members can hand it to each other."""

    def fail(self) -> None:
        """Called by one alone: it has failed."""


class Alone:
    """A team of one."""

    me: Final = 0
    count: Final = 1

    def wait(self) -> None:
        return

    def arrays(self, name: str, wanted: Wanted) -> dict[str, np.ndarray]:
        return {key: np.zeros(shape, dtype) for key, (shape, dtype) in wanted.items()}

    def gather(self, own: Mapping[str, np.ndarray]) -> list[Mapping[str, np.ndarray]]:
        return [own]

    def once(self, make: Callable[[], T]) -> T:
        return make()

    def fail(self) -> None:
        return


ALONE: Final = Alone()
