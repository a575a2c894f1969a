"""Collectives of NCCL: laws that every demand keeps, and figures by hand and of NCCL's source."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from manyscale.models.network.nccl import uses
from manyscale.models.network.nccl.demand import collective_of, demand, group_of
from manyscale.models.network.nccl.fabric import Fabric
from manyscale.models.network.nccl.link_matrix import lanes_of
from manyscale.models.network.nccl.parameters import Nccl
from manyscale.models.network.nccl.rings import find_rings, lanes_used
from manyscale.models.workload.operation_tables import OperationKind

K = OperationKind
# nvidia-smi topo -m of a DGX-1 with V100, as published beside measurements (tests/validation/ai/RESULTS-NCCL.md)
DGX1 = """\
\tGPU0\tGPU1\tGPU2\tGPU3\tGPU4\tGPU5\tGPU6\tGPU7\tCPU Affinity
GPU0\tX\tNV1\tNV1\tNV2\tSYS\tSYS\tNV2\tSYS\t0-19,40-59
GPU1\tNV1\tX\tNV2\tNV1\tSYS\tSYS\tSYS\tNV2\t0-19,40-59
GPU2\tNV1\tNV2\tX\tNV2\tNV1\tSYS\tSYS\tSYS\t0-19,40-59
GPU3\tNV2\tNV1\tNV2\tX\tSYS\tNV1\tSYS\tSYS\t0-19,40-59
GPU4\tSYS\tSYS\tNV1\tSYS\tX\tNV2\tNV1\tNV2\t20-39,60-79
GPU5\tSYS\tSYS\tSYS\tNV1\tNV2\tX\tNV2\tNV1\t20-39,60-79
GPU6\tNV2\tSYS\tSYS\tSYS\tNV1\tNV2\tX\tNV1\t20-39,60-79
GPU7\tSYS\tNV2\tSYS\tSYS\tNV2\tNV1\tNV1\tX\t20-39,60-79

Legend:

  X    = Self
"""
_25 = "25 GB/s"
V100: dict[str, Any] = {"generation": "volta", "nvlink": {"kind": "mesh", "link_bandwidth": _25, "topology": DGX1}}
A100: dict[str, Any] = {
    "generation": "ampere", "cpu": "amd", "nvlink": {"kind": "switch", "links": 12, "link_bandwidth": _25},
    "nics": {"count": 8, "bandwidth": _25},
}  # fmt: skip
H100: dict[str, Any] = {
    "generation": "hopper", "nvlink": {"kind": "switch", "links": 18, "link_bandwidth": _25, "multicast": True},
    "nics": {"count": 8, "bandwidth": "50 GB/s", "pod_nodes": 2, "oversubscription": 4.0},
}  # fmt: skip
COLLECTIVES = (K.allreduce, K.allgather, K.reduce_scatter, K.bcast, K.reduce, K.alltoall, K.gather, K.scatter)


def fabric_of(block: dict[str, Any], num_nodes: int = 1, gpus: int = 8) -> Fabric:
    return Fabric(Nccl.model_validate(block), gpus, num_nodes)


TABLE = {
    "collective": "allreduce", "gpus": 4, "sizes": ["1 MiB", "16 MiB", "64 MiB", "1 GiB"],
    "times": ["51 us", "180 us", "544 us", "7259 us"],
}  # fmt: skip
MACHINES = {
    "v100": fabric_of(V100), "a100": fabric_of(A100, 4), "h100": fabric_of(H100, 8),
    "measured": fabric_of({**A100, "tables": [TABLE]}, 4), "measured mesh": fabric_of({**V100, "tables": [TABLE]}),
}  # fmt: skip
GROUPS = st.tuples(st.sampled_from(sorted(MACHINES)), st.sets(st.integers(0, 63), min_size=2, max_size=24))


def _members(group: tuple[str, set[int]]) -> tuple[Fabric, np.ndarray]:
    fabric = MACHINES[group[0]]
    most = fabric.num_nodes * fabric.gpus_per_node
    members = np.array(sorted({each % most for each in group[1]}))
    return fabric, members if len(members) > 1 else np.array([0, most - 1])


@settings(max_examples=40, deadline=None)
@given(GROUPS, st.sampled_from(COLLECTIVES), st.integers(0, 1 << 30))
def test_no_link_is_faster_than_it_is_and_more_bytes_never_take_less(
    group: tuple[str, set[int]], kind: OperationKind, size: int
) -> None:
    fabric, members = _members(group)
    one, more = demand(kind, size, members, fabric), demand(kind, size + size // 3 + 1, members, fabric)
    assert one.time_ps <= more.time_ps
    for found in (one, more):
        assert np.all(found.uses * fabric.link_ps_per_byte[found.links] <= found.ps_per_byte * (1 + 1e-9))
        assert np.all(np.diff(found.links) > 0)
        assert np.all(found.uses > 0)
        assert found.links.max() < fabric.num_links
        assert found.latency_ps > 0
        assert found.time_ps == found.latency_ps + round(found.bytes * found.ps_per_byte)


@settings(max_examples=30, deadline=None)
@given(st.permutations(range(8)), st.integers(2, 8), st.sampled_from(COLLECTIVES[:6]))
def test_gpus_of_a_switch_are_alike(order: list[int], count: int, kind: OperationKind) -> None:
    first = demand(kind, 1 << 22, np.arange(count), MACHINES["a100"])
    other = demand(kind, 1 << 22, np.array(order[:count]), MACHINES["a100"])
    assert (first.time_ps, first.algorithm, first.protocol) == (other.time_ps, other.algorithm, other.protocol)
    assert sorted(first.uses) == pytest.approx(sorted(other.uses))


@settings(max_examples=12, deadline=None)
@given(st.lists(st.lists(st.integers(0, 3), min_size=6, max_size=6), min_size=6, max_size=6), st.integers(2, 6))
def test_rings_visit_each_gpu_once_and_take_each_link_at_most_once(matrix: list[list[int]], count: int) -> None:
    lanes = np.triu(np.array(matrix), 1)
    lanes = lanes + lanes.T
    rings = find_rings(lanes, tuple(range(count)))
    assert np.all(lanes_used(rings, 6) <= lanes)
    for ring in rings:
        assert sorted(hop[0] for hop in ring) == list(range(count))
        assert [hop[-1] for hop in ring] == [hop[0] for hop in (*ring[1:], ring[0])]


def test_rings_of_a_dgx_1_use_all_its_links() -> None:
    """Each V100 has 6 NVLinks, so there are 6 directed rings over all 8 that take every one; 4 GPUs of one quad have 4
    of the 4 or 5 links that stay in it; a fifth GPU hangs on one link, and is reached over it both ways."""
    lanes = lanes_of(DGX1)
    assert lanes.sum(axis=1).tolist() == [6] * 8
    assert [len(find_rings(lanes, tuple(range(count)))) for count in range(2, 9)] == [1, 2, 4, 1, 2, 4, 6]
    assert np.array_equal(lanes_used(find_rings(lanes, tuple(range(8))), 8), lanes)


def test_a_ring_by_hand() -> None:
    """NCCL's own figures for 8 A100: 12 channels of 20 GB/s; Simple takes 8.4 us and 14 steps of 3.4 us, and the ring
    2 x 7 / 8 of the bytes over each GPU's links; LL of small messages 6.6 us and 14 steps of 0.6 us."""
    fabric = MACHINES["a100"]
    large, small = (demand(K.allreduce, size, np.arange(8), fabric) for size in (1 << 30, 8))
    assert (large.algorithm, large.protocol, small.protocol) == ("ring", "Simple", "LL")
    assert large.latency_ps == pytest.approx((8.4 + 14 * 3.4) * 1e6)
    assert large.bytes * large.ps_per_byte == pytest.approx((1 << 30) * 1.75 / 240e9 * 1e12, rel=1e-6)
    assert small.time_ps == pytest.approx((6.6 + 14 * 0.6) * 1e6, rel=1e-3)
    assert large.links.tolist() == list(range(16))
    assert large.uses == pytest.approx(1.75)


def test_channels_are_those_of_nccl() -> None:
    """Of H100 x 8: rings 12 x 30 GB/s, and for NVLS 8 heads, each of which takes 9 shares of 370.8 GB/s: 40 GB/s."""
    a100, h100 = MACHINES["a100"], MACHINES["h100"]
    group = group_of(h100.placement(np.arange(8)), h100)
    assert group.nvls is not None
    assert (group.ring.channels, group.ring.within, group.nvls.channels, group.nvls.within) == (12, 30, 8, 40)
    group = group_of(a100.placement(np.arange(16)), a100)
    assert (group.ring.channels, group.ring.between, group.tree.within) == (8, 24, 30)
    even = fabric_of({**H100, "nics": {"count": 8, "bandwidth": "30 GB/s"}}, 2)  # which is one of the speeds
    ring = group_of(even.placement(np.arange(16)), even).ring
    assert (ring.channels, ring.between) == (8, 30)


def test_double_binary_trees() -> None:
    """Every node has one parent in each tree but the root; who is inner in one is a leaf in the other (even counts)."""
    for count in range(2, 40):
        child, parent = uses.tree_edges(count)
        half = count - 1
        for edges in (slice(0, half), slice(half, None)):
            assert len(set(child[edges])) == half
            assert len(set(child[edges]) | set(parent[edges])) == count
            assert np.bincount(parent[edges]).max() <= 2
        if count % 2 == 0:
            assert not set(parent[:half]) & set(parent[half:])


def test_free_links_and_steps_take_no_time() -> None:
    none = ("0 us", "0 us", "0 us")
    tables = {name: dict.fromkeys(("ring", "tree", "collnet", "nvls", "pat"), none) for name in ("nvlink", "net")}
    free = {
        **H100,
        "nvlink": {**H100["nvlink"], "link_bandwidth": "inf B/s"},
        "nics": {"count": 8, "bandwidth": "inf B/s"},
        "tuner": {
            "base_latencies": dict.fromkeys(("ring", "tree", "pat"), none), "net_overhead": "0 us",
            "nvlink_latencies": tables["nvlink"], "net_latencies": tables["net"],
        },
    }  # fmt: skip
    fabric = fabric_of(free, 4)
    for members in (np.arange(8), np.arange(32), np.arange(0, 32, 8)):
        for kind in COLLECTIVES:
            assert demand(kind, 1 << 24, members, fabric).time_ps == 0, kind.name


def test_pods_that_are_oversubscribed_slow_what_crosses_them() -> None:
    """Two nodes a pod, whose 8 rails of 2 x 50 GB/s have 1 / 4 of that to others: 25 GB/s each."""
    fabric = MACHINES["h100"]
    inside, across = (
        demand(K.alltoall, 1 << 24, np.concatenate((np.arange(8), np.arange(8) + 8 * node)), fabric)
        for node in (1, 2)
    )  # fmt: skip
    up = across.uses[across.links >= fabric.first_pod]
    assert not np.any(inside.links >= fabric.first_pod)
    assert len(up) == 2 * 2 * 8
    assert up == pytest.approx(0.5)  # of its 16 blocks each GPU sends 8 to the other pod
    assert across.ps_per_byte == pytest.approx(0.5 * 1e12 / 25e9)


def test_an_uneven_all_to_all_takes_what_its_busiest_gpu_does() -> None:
    counts = np.zeros((4, 4), np.int64)
    counts[0, 1:] = 10 << 20
    found = demand(K.alltoallv, 0, np.arange(4), MACHINES["a100"], counts=counts)
    even = demand(K.alltoall, 10 << 20, np.arange(4), MACHINES["a100"])
    assert found.bytes == 30 << 20
    assert found.time_ps == pytest.approx(even.time_ps, rel=1e-6)
    assert found.uses.tolist() == pytest.approx([1, 1 / 3, 1 / 3, 1 / 3])
    unknown = demand(K.alltoallv, 40 << 20, np.arange(4), MACHINES["a100"])  # its bytes are those of all blocks
    assert (unknown.bytes, unknown.time_ps) == (40 << 20, even.time_ps)


@pytest.mark.theory
@pytest.mark.parametrize("kind", [K.allgatherv, K.reduce_scatter])
def test_uneven_parts_take_what_the_busiest_hop_of_the_ring_carries(kind: OperationKind) -> None:
    """One member with all is a broadcast: hops carry it once, as those of an even one with three such parts do."""
    parts = np.array([0, 0, 30 << 20, 0])
    found = demand(kind, 30 << 20, np.arange(4), MACHINES["a100"], counts=parts)
    assert found.time_ps == demand(kind, 10 << 20, np.arange(4), MACHINES["a100"]).time_ps
    even = demand(kind, 10 << 20, np.arange(4), MACHINES["a100"], counts=np.full(4, 10 << 20))
    assert even.time_ps == demand(kind, 10 << 20, np.arange(4), MACHINES["a100"]).time_ps
    with pytest.raises(ValueError, match=r"parts of \(3,\) for a group of 4"):
        demand(kind, 1, np.arange(4), MACHINES["a100"], counts=np.ones(3, np.int64))


@pytest.mark.theory
def test_a_gather_goes_into_its_root_by_the_parts_of_members() -> None:
    counts = np.zeros((4, 4), np.int64)
    counts[:, 2] = (5 << 20, 10 << 20, 99 << 20, 15 << 20)  # its own part stays where it is
    found = demand(K.gatherv, 99 << 20, np.arange(4), MACHINES["a100"], counts=counts)
    even = demand(K.gather, 10 << 20, np.arange(4), MACHINES["a100"])
    assert found.time_ps == pytest.approx(even.time_ps, rel=1e-6)
    root = MACHINES["a100"].out_of(np.array([2]))[0] + 1
    assert dict(zip(found.links.tolist(), found.uses.tolist(), strict=True))[root] == pytest.approx(1)


def test_a_measured_table_is_kept_and_other_counts_follow_it() -> None:
    """A table of 4 GPUs: itself at its rows; of 8 the size at which 2 (n - 1) / n bytes are as many, and 8 more steps
    of 0.6 us."""
    sizes, times = [1 << 20, 1 << 26, 1 << 30], [50, 560, 7300]
    table = {
        "collective": "allreduce", "gpus": 4, "floor": "5 us",
        "sizes": [f"{size} B" for size in sizes], "times": [f"{time} us" for time in times],
    }  # fmt: skip
    fabric = fabric_of({**A100, "tables": [table]})
    for size, time in zip(sizes, times, strict=True):
        assert demand(K.allreduce, size, np.arange(4), fabric).time_ps == pytest.approx((time - 5) * 1e6, rel=1e-9)
    other = demand(K.allreduce, round((1 << 26) * 1.5 / 1.75), np.arange(8), fabric)
    assert other.is_measured
    assert other.time_ps == pytest.approx((555 + 8 * 0.6) * 1e6, rel=1e-6)


def test_faster_links_than_the_measured_ones_make_large_messages_faster_alone() -> None:
    """Twice the NVLink of the table: what bandwidth takes is halved, what steps take stays."""
    table = {
        "collective": "allreduce", "gpus": 8, "link_bandwidth": _25,
        "sizes": ["1 KiB", "1 MiB", "64 MiB", "1 GiB"], "times": ["20 us", "60 us", "600 us", "8200 us"],
    }  # fmt: skip
    faster = {**A100, "nvlink": {**A100["nvlink"], "link_bandwidth": "50 GB/s"}}
    slow, fast = (fabric_of({**block, "tables": [table]}) for block in (A100, faster))
    for size, ratio in ((64, 1.0), (1 << 30, 0.5)):
        times = [demand(K.allreduce, size, np.arange(8), fabric).time_ps for fabric in (slow, fast)]
        assert times[1] / times[0] == pytest.approx(ratio, rel=0.05)


def test_a_mesh_of_more_rings_takes_what_the_tuner_has_take_as_long() -> None:
    """A table that is the tuner's own of 4 V100 x 1.5 gives 8 of them, with 6 rings for 4, 1.5 times the tuner's."""
    plain = fabric_of(V100)
    sizes = [1 << power for power in range(10, 31)]
    times = [1.5 * demand(K.allreduce, size, np.arange(4), plain).time_ps for size in sizes]
    table = {
        "collective": "allreduce", "gpus": 4, "sizes": [f"{size} B" for size in sizes],
        "times": [f"{round(time)} ps" for time in times],
    }  # fmt: skip
    fabric = fabric_of({**V100, "tables": [table]})
    for size in (1 << 12, 1 << 20, 1 << 28):
        expected = 1.5 * demand(K.allreduce, size, np.arange(8), plain).time_ps
        assert demand(K.allreduce, size, np.arange(8), fabric).time_ps == pytest.approx(expected, rel=0.03)


def test_what_nccl_has_not() -> None:
    assert collective_of(K.scan) is None
    assert collective_of(K.iallreduce) == "allreduce"
    fabric = MACHINES["v100"]
    with pytest.raises(ValueError, match="NCCL has no scan"):
        demand(K.scan, 8, np.arange(2), fabric)
    with pytest.raises(ValueError, match="the machine has 8"):
        demand(K.allreduce, 8, np.array([0, 8]), fabric)
    with pytest.raises(ValueError, match="twice"):
        demand(K.allreduce, 8, np.array([0, 0]), fabric)
    with pytest.raises(ValueError, match="add nics"):
        demand(K.allreduce, 8, np.array([0, 8]), fabric_of(V100, 2))
    with pytest.raises(ValueError, match="8 GPUs, but"):
        fabric_of(V100, gpus=16)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nothing", "no head"),
        (DGX1.replace("NV2\tSYS\t0-19", "", 1), "columns"),
        (DGX1.replace("NV1", "NVX", 1), "'NVX' in the row of GPU0"),
        (DGX1.replace("NV1", "NV2", 1), "GPU0 and GPU1"),
        ("<system", "no XML"),
        ('<system><pci busid="1" class="0x030200"/></system>', "only list PCI"),
    ],
)
def test_a_topology_that_is_none(text: str, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        fabric_of({**V100, "nvlink": {**V100["nvlink"], "topology": text}})


def test_nccls_topology_file() -> None:
    """As NCCL writes it (src/graph/xml.cc): <gpu dev= ...> with <nvlink target= count= tclass=> in the PCI tree."""
    link = '<nvlink target="{}" count="2" tclass="0x030200"/>'
    pci = f'<pci busid="{{}}" class="0x030200"><gpu dev="{{}}" sm="70">{link}</gpu></pci>'
    pcis = pci.format("b:0", 1, "a:0") + pci.format("a:0", 0, "b:0")
    text = f'<system version="1"><cpu numaid="0">{pcis}</cpu></system>'
    assert lanes_of(text).tolist() == [[0, 2], [2, 0]]


def test_a_thousand_ranks_are_one_look_up() -> None:
    fabric = fabric_of(H100, 128)
    first = demand(K.allreduce, 1 << 20, np.arange(1024), fabric)
    assert demand(K.allreduce, 1 << 20, np.arange(1024), fabric).uses is first.uses
    group = [demand(K.allreduce, 1 << 20, np.arange(each, 1024, 8), fabric) for each in range(8)]
    assert len({each.time_ps for each in group}) == 1
    assert len(np.unique(np.concatenate([each.links for each in group]))) == sum(len(each.links) for each in group)
