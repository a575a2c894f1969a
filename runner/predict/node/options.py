"""The study's blocks ``detailed`` and ``timeline``."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from manyscale.models.workload.parameters import Strict
from manyscale.runner.errors import UserError


class DetailedChoice(Strict):
    """How ``model: {cpu: detailed}`` simulates (models/node/detailed.py). ``caches``: at the beginning of what is
    simulated ``cold``; ``warm``, as if the same phases had run before, as far as the lines that instances use tell; or
    as a simulation of the same phases before leaves them (``rerun``; for ``cpu: interval`` the same as warm).
    ``request``: when a memory instruction asks the
    caches, see node/core/kernel.py. ``window``: by how many cycles a core may go ahead of others while
    its first cache has what it asks for; 0 is strict order. ``creation``: what creates task instances or enters loops
    takes its ``traced`` time, or none (``free``): then no core waits for it, and what cores and memory do shows."""

    caches: Literal["cold", "warm", "rerun"] = "warm"
    """The caches where simulation begins: `cold`; `warm`, as if the same phases had run before; or `rerun`, as a
    simulation of the same phases leaves them."""
    creation: Literal["traced", "free"] = "traced"
    """Whether creating task instances and entering loops takes its `traced` time, or none (`free`)."""
    request: Literal["insertion", "tail"] = "insertion"
    """When a memory instruction asks the caches: at its `insertion` into the reorder buffer or at its `tail`."""
    window: Annotated[int, Field(ge=0)] = 0
    """The cycles by which a core may go ahead of others while its first cache has what it asks for. 0 is the strict
    order of time; 100 takes half to nine tenths of the CPU time, and lets a line be used shortly after another core
    took it."""

    def is_used(self, study: Any, features: Collection[str]) -> bool:
        """Whether a run with these features reads it."""
        return study.model.cpu in ("detailed", "interval")


MOST_RANKS_IN_TRACES: Final = 1024  # of a run of more, traces hold chosen ones
MANY_RANKS: Final = "many ranks"  # a feature of such runs


class TimelineChoice(Strict):
    """Ranks and iterations whose cores are written to ``timeline/cores.parquet``; by default all, unless there are more
    than a million task instances, then rank 0's first two iterations. Ranks that traces hold, of more than 1,024."""

    ranks: list[Annotated[int, Field(ge=0)]] | None = None
    """The ranks whose cores are written to `timeline/cores.parquet`. By default all, or rank 0 where there are more
    than a million task instances. Of a run of more than 1,024 ranks, those that traces for Paraver and Perfetto hold,
    too: by default 256, on the critical path, those that compute longest, and others in equal distances."""
    iterations: list[Annotated[int, Field(ge=0)]] | None = None
    """The iterations whose cores are written. By default all, or the first two where there are more than a million task
    instances."""

    def check_ranks(self, num_ranks: int) -> None:
        """Refuse ranks that a run does not have. Raises UserError."""
        missing = [rank for rank in self.ranks or () if rank >= num_ranks]
        if missing:
            raise UserError(f"timeline.ranks: there is no rank {missing[0]}; the run's are 0 to {num_ranks - 1}")

    def shows(self, rank: int, iteration: int) -> bool:
        """Whether what was simulated of an iteration of a rank is shown."""
        of_rank = self.ranks is None or rank in self.ranks
        return of_rank and (self.iterations is None or iteration in self.iterations)

    def is_used(self, study: Any, features: Collection[str]) -> bool:
        """Whether a run with these features reads it."""
        return "tasks" in features or (self.ranks is not None and MANY_RANKS in features)
