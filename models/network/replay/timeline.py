"""What a network model is asked and what it answers: where the ranks are placed, and when their operations ended."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


class ReplayError(ValueError):
    """The replay cannot finish: a deadlock or messages that nobody receives. The message names ranks and operations."""


@dataclass(frozen=True)
class Placement:
    """``node_of_rank`` int32[num_ranks], on a machine of ``num_nodes`` nodes."""

    node_of_rank: np.ndarray
    num_nodes: int

    @classmethod
    def one_per_node(cls, num_ranks: int) -> Placement:
        return cls(np.arange(num_ranks, dtype=np.int32), num_ranks)


@dataclass(frozen=True)
class LinkLoad:
    """Use of a network's shared links over time: bytes that each carried in each of equal intervals of ``interval_ps``.

    ``names`` and ``ps_per_byte`` float64 per link; ``bytes`` float64[links, intervals].
    """

    names: tuple[str, ...]
    ps_per_byte: np.ndarray
    interval_ps: int
    bytes: np.ndarray


@dataclass(frozen=True)
class Timeline:
    """int64 ``end_ps`` per operation of the workload (an operation starts at the end of the one before it plus the
    compute before it); per message ``send_ps`` (posted) and ``receive_ps`` (arrived). ``links`` where the model knows
    them."""

    end_ps: np.ndarray
    send_ps: np.ndarray
    receive_ps: np.ndarray
    links: LinkLoad | None = None

    @property
    def makespan_ps(self) -> int:
        return int(self.end_ps.max(initial=0))
