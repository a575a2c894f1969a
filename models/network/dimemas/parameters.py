"""What the Dimemas network reads of a machine: block ``network.dimemas``."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from manyscale.models.machine.blocks import Block
from manyscale.models.workload.parameters import CountOrNone, Strict

LinksOrNone = Annotated[int, Field(ge=0, le=65536, strict=True)]  # each is kept; 0: no limit


class DimemasLinks(Strict):
    """How many transfers may leave and enter at once, and how many pass in all; 0 is without limit. If only one of the
    two numbers of links is 0, the links of the other serve both directions, one transfer at a time (half duplex)."""

    output_links: LinksOrNone = 0
    """Transfers that may leave at once. 0: no limit."""
    input_links: LinksOrNone = 0
    """Transfers that may enter at once. 0: no limit."""
    buses: CountOrNone = 0
    """Transfers that pass in all. 0: no limit."""


class Dimemas(Block):
    """What the Dimemas model adds.

    ``inter_node``: links of each node, and buses of the network; ``intra_node``: links of each rank to others of its
    node, and buses of each node. ``cpu_ratios``: how much faster than the traced CPUs those of each node are, one for
    all or one per node; with 0 compute takes no time.
    """

    key: ClassVar[str] = "network.dimemas"

    inter_node: DimemasLinks = DimemasLinks()
    """The links of each node, and the buses of the network."""
    intra_node: DimemasLinks = DimemasLinks()
    """The links of each rank to others of its node, and the buses of each node."""
    cpu_ratios: tuple[Annotated[float, Field(ge=0, allow_inf_nan=False)], ...] = ()
    """How much faster than the traced CPUs those of each node are: one for all, or one per node. With 0 compute takes
    no time."""
