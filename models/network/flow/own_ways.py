"""Messages that go over links of their own, beside those of the network's topology: what NCCL sends from GPU to GPU."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from manyscale.models.network.routes import Routes


@dataclass(frozen=True)
class OwnWays:
    """Of messages ``message`` int64[n]: ``latency_ps``, ``bytes`` that flow then, each of which takes ``ps_per_byte``
    at least (float64[n]), and the ``way`` int64[n] of each. Way w goes over ``links[offsets[w] : offsets[w + 1]]``, and
    a byte of it is ``uses`` bytes there. Of the links ``link_names`` and ``link_ps_per_byte``."""

    message: np.ndarray
    latency_ps: np.ndarray
    bytes: np.ndarray
    ps_per_byte: np.ndarray
    way: np.ndarray
    offsets: np.ndarray
    links: np.ndarray
    uses: np.ndarray
    link_names: tuple[str, ...]
    link_ps_per_byte: np.ndarray

    @property
    def flows(self) -> np.ndarray:
        """bool[n]: those that share something."""
        return (np.diff(self.offsets) > 0)[self.way] & (self.bytes > 0) & (self.ps_per_byte > 0)

    def beside(self, ways: Routes) -> Routes:
        """Routes with these links behind their own, which no route takes."""
        count = len(self.link_names)
        return replace(
            ways,
            link_names=(*ways.link_names, *self.link_names),
            link_ps_per_byte=np.append(ways.link_ps_per_byte, self.link_ps_per_byte),
            link_is_shared=np.append(ways.link_is_shared, np.ones(count, np.bool_)),
        )
