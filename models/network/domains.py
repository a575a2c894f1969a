"""What all models of networks make of a run alike, and the keys of a machine that they read alike."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from manyscale.models.workload.domain import APART, TAKES, Domain, Refuses, Stance, left_long, left_short

_FEATURES: Final[Mapping[str, Stance]] = {
    "messages-between-nodes": TAKES,
    "messages-within-nodes": TAKES,
    "messages-to-self": TAKES,
    "own-routes": TAKES,
    "rendezvous": TAKES,
    "collectives": TAKES,
    "collective-formulas": TAKES,
    "shared-links": left_short("messages do not share the links of the target's topology (network flow does)"),
    "rates-in-steps": APART,  # of the model that solves rates
    "wildcard-receives": TAKES,
    "waits-for-any": TAKES,
    "unordered-operations": Refuses("operations that are a graph without an order"),
    "calls-inside-tasks": TAKES,
    "file-accesses": TAKES,
    "storage-unnamed": left_short("files are read and written in no time: the target names no storage"),
    "lone-accesses": left_short("accesses of files by a rank alone do not share the storage with others"),
    "open-accesses": left_long("accesses of files that do not block take their time where they begin"),
}
_MESSAGES: Final = ("messages-between-nodes", "messages-within-nodes", "messages-to-self")
_READS: Final[Mapping[str, Sequence[str]]] = {
    "nodes": (),
    "network.latency": ("messages-between-nodes", "collective-formulas"),
    "network.bandwidth": ("messages-between-nodes", "collective-formulas"),
    "network.intra_node": ("messages-within-nodes",),
    "network.self": ("messages-to-self",),
    "network.envelope": _MESSAGES,
    "network.eager_threshold": _MESSAGES,
    "network.transfer_start": _MESSAGES,
    "network.collectives": ("collectives", "collective-formulas"),
    "storage": ("file-accesses",),
}


def network_domain(
    features: Mapping[str, Stance], reads: Mapping[str, Sequence[str]], without: Collection[str] = ()
) -> Domain:
    """That of a model which differs from the others in ``features``, reads more, and is ``without`` some keys."""
    common = {key: needs for key, needs in _READS.items() if key not in without}
    return Domain({**_FEATURES, **features}, {**common, **reads})
