"""Topologies of the target's network: what connects the nodes, and how messages are routed."""

from __future__ import annotations

from typing import Literal, TypeAlias

from manyscale.models.parameters import Strict


class Crossbar(Strict):
    """Every node has one link up and one link down to an ideal switch."""

    kind: Literal["crossbar"]


Topology: TypeAlias = Crossbar
