"""Constants of NCCL's tuner and of its search for rings and trees.

Source: github.com/NVIDIA/nccl at 5067397 (June 2026): src/graph/tuning.cc (latencies, bandwidths of protocols, tree
corrections), src/graph/topo.h (bandwidth of an NVLink), src/graph/search.cc (the speeds that the search tries).
Times in microseconds and rates in GB/s of 10^9 bytes, as there; order of protocols LL, LL128, Simple.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from manyscale.models.network.nccl.parameters import Generation, Nccl

PROTOCOLS: Final = ("LL", "LL128", "Simple")
LL, LL128, SIMPLE = range(3)
ALGORITHMS: Final = ("ring", "tree", "collnet", "nvls", "nvls-tree", "pat")
_Three = tuple[float, float, float]

_BASE: Final[dict[str, _Three]] = {
    "tree": (6.8, 14.0, 8.4), "ring": (6.6, 14.0, 8.4), "collnet": (0, 0, 0), "nvls": (0, 0, 0), "pat": (8, 8, 8),
}  # fmt: skip
_NVLINK: Final[dict[str, _Three]] = {
    "tree": (0.6, 1.25, 4.0), "ring": (0.6, 1.9, 3.4), "collnet": (0, 0, 3.7), "nvls": (0, 0, 25), "pat": (0, 0, 4.0),
}  # fmt: skip
_PCI: Final[dict[str, _Three]] = {
    "tree": (1.0, 1.9, 4.0), "ring": (1.0, 2.5, 5.7), "collnet": (0, 0, 3.7), "nvls": (0, 0, 0), "pat": (0, 0, 4.0),
}  # fmt: skip
_NET: Final[dict[str, _Three]] = {
    "tree": (5.0, 8.5, 14), "ring": (2.7, 4.0, 14.0), "collnet": (0, 0, 31), "nvls": (0, 0, 18), "pat": (0, 0, 14),
}  # fmt: skip
NVLS_TREE_NET: Final = 20.9  # us
# by generation: of one node, of two, of more
_GENERATIONS: Final[tuple[Generation, ...]] = ("volta", "ampere", "hopper", "blackwell")
_LL_MOST: Final = ((39.0, 39.0, 20.4), (87.7, 22.5, 19.0), (141.0, 45.0, 35.0), (282.0, 90.0, 70.0))
_RING_LL128: Final = ((20.0, 20.0, 20.0), (20.0, 20.0, 20.0), (36.7, 36.7, 36.7), (40.0, 40.0, 40.0))
_TREE_LL128: Final = ((20.0, 20.0, 20.0), (20.0, 20.0, 20.0), (36.7, 36.7, 29.0), (55.6, 31.67, 20.0))
_TREE: Final = ((26.5, 18.5, 10.0), (24.0, 23.6, 17.8), (38.7, 41.4, 36.0), (70.0, 42.8, 24.0))
_NVLS_TREE: Final = ((26.5, 18.5, 10.0), (24.0, 23.6, 17.8), (0.0, 57.7, 45.5), (0.0, 96.0, 80.0))
_NVLS: Final = (0.0, 0.0, 0.85, 0.74)
_LINK: Final = (20.0, 20.0, 20.6, 40.1)
_SPEEDS_WITHIN: Final = (
    (40, 30, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3),
    (40, 30, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3),
    (60, 50, 40, 30, 24, 20, 15, 12, 11, 6, 3),
    (90, 80, 70, 60, 50, 45, 40, 30, 24, 20, 19, 18),
)
_SPEEDS_BETWEEN: Final = (
    (48, 30, 28, 24, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3, 2.4, 1.2, 0.24, 0.12),
    (48, 30, 28, 24, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3, 2.4, 1.2, 0.24, 0.12),
    (48, 45, 42, 40, 30, 24, 22, 20, 17.5, 15, 12, 6, 3, 2.4, 1.2, 0.24, 0.12),
    (96, 86, 80, 48, 45.1, 42, 40, 30, 24, 22, 20, 17.5, 15, 12, 6, 3, 2.4, 1.2, 0.24, 0.12),
)
# of the tree's bandwidth by power of two of the size, from 64 B on
TREE_CORRECTION: Final = (
    (1, 1, 1, 1, 0.9, 0.8, 0.7, 0.7, 0.7, 0.7, 0.6, 0.5, 0.4, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1, 1, 1),
    (1, 1, 1, 1, 1, 0.9, 0.8, 0.8, 0.8, 0.7, 0.6, 0.6, 0.6, 0.6, 0.6, 0.6, 0.8, 0.9, 0.9, 0.9, 0.9, 1, 1),
    (0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.8, 0.7, 0.6, 0.6, 0.5, 0.5, 0.5, 0.5, 0.6, 0.7, 0.8, 0.7, 0.7, 0.8, 0.9, 0.9),
)


@dataclass(frozen=True)
class Constants:
    """Of a machine, for groups on one node (index 0), on two (1), on more (2). Times in us, rates in GB/s."""

    base: dict[str, _Three]
    nvlink: dict[str, _Three]
    pci: dict[str, _Three]
    net: dict[str, _Three]
    net_overhead: float
    ll_most: _Three
    ring_ll128: _Three
    tree_ll128: _Three
    tree: _Three
    nvls_tree: _Three
    nvls_ratio: float
    link: float
    speeds_within: tuple[float, ...]
    speeds_between: tuple[float, ...]
    plateau: float  # on the latency of Simple rings over nodes
    last_copy: float


def constants(nccl: Nccl) -> Constants:
    """NCCL's constants with those that the target replaces."""
    own, index = nccl.tuner, _GENERATIONS.index(nccl.generation)
    between = _LL_MOST[1 if nccl.cpu == "amd" else 0]  # between nodes it goes by the CPU
    ll_most = (_LL_MOST[index][0], between[1], between[2])
    if own.ll_ps_per_byte is not None:
        ll_most = (_gb_per_s(own.ll_ps_per_byte),) * 3
    overhead = 2.0 if nccl.cpu == "amd" else 1.0
    return Constants(
        base=_with(_BASE, own.base_latencies),
        nvlink=_with(_NVLINK, own.nvlink_latencies),
        pci=_with(_PCI, own.pci_latencies),
        net=_with(_NET, own.net_latencies),
        net_overhead=overhead if own.net_overhead_ps is None else own.net_overhead_ps / 1e6,
        ll_most=ll_most,
        ring_ll128=_RING_LL128[index],
        tree_ll128=_TREE_LL128[index],
        tree=_TREE[index],
        nvls_tree=_NVLS_TREE[index],
        nvls_ratio=_NVLS[index],
        link=_LINK[index] if own.link_ps_per_byte is None else _gb_per_s(own.link_ps_per_byte),
        speeds_within=_SPEEDS_WITHIN[index],
        speeds_between=_SPEEDS_BETWEEN[index],
        plateau=1.9 if nccl.generation == "volta" else 1.4,
        last_copy=own.last_copy_ratio,
    )


def _with(defaults: dict[str, _Three], own: object) -> dict[str, _Three]:
    assert isinstance(own, dict)
    return defaults | {name: tuple(each / 1e6 for each in times) for name, times in own.items()}


def _gb_per_s(ps_per_byte: float) -> float:
    return 1e3 / ps_per_byte if ps_per_byte else float("inf")
