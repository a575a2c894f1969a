"""The flow network in closed form: small programs on a crossbar whose links are 5 us and 1.25 GB/s (0.8 ns a byte)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import count
from pathlib import Path

import numpy as np
import pytest

from manyscale.models.machine import Network, ideal_network
from manyscale.models.machine.topology import Torus
from manyscale.models.network import latency_bandwidth
from manyscale.models.network.flow import model as flow
from manyscale.models.network.flow.parameters import Flow, SizeFactor
from manyscale.models.network.program import build_program
from manyscale.models.network.replay.timeline import Placement, ReplayError, Timeline
from manyscale.runner.problems import load_yaml
from manyscale.runner.readers import simgrid_ti
from manyscale.runner.run.pipeline import compute_per_operation
from manyscale.runner.study.targets import build_machine, shipped_targets

pytestmark = pytest.mark.theory

US = 1_000_000  # ps
L = 10 * US  # latency of a route
G = 800  # ps per byte of a link
ENVELOPE = 16
SIZE = 100_000  # of every message here, a rendezvous; with its envelope N bytes
N = SIZE + ENVELOPE

Replay = Callable[..., Timeline]


def crossbar(**changes: object) -> Network:
    network = build_machine(load_yaml(shipped_targets()["crossbar256"]), "crossbar256").network
    return network.model_copy(update=changes)


@pytest.fixture
def replay(write_trace: Callable[..., Path]) -> Replay:
    number = count()

    def run(lines: Mapping[int, Sequence[str]], network: Network | None = None, model: object = flow) -> Timeline:
        whole = {rank: ["init", *own, "finalize"] for rank, own in lines.items()}
        workload = simgrid_ti.read(write_trace(whole, name=f"trace{next(number)}"))
        network = crossbar() if network is None else network
        program = build_program(workload, network.collectives)
        compute = compute_per_operation(workload, workload.column("phases", "duration_ps"))
        return model.replay(program, compute, network, Placement.one_per_node(workload.num_ranks))  # type: ignore[attr-defined]

    return run


def incast(n: int, sizes: Sequence[int] | None = None) -> dict[int, list[str]]:
    """Ranks 1 to n send to rank 0 at once."""
    sizes = sizes or [SIZE] * n
    receives = [f"irecv {rank + 1} 0 {size} 6" for rank, size in enumerate(sizes)]
    return {0: [*receives, f"waitall {n}"]} | {rank + 1: [f"send 0 0 {size} 6"] for rank, size in enumerate(sizes)}


def test_a_message_alone_takes_latency_and_bandwidth(replay: Replay) -> None:
    assert replay(incast(1)).makespan_ps == L + N * G


@pytest.mark.parametrize("n", [2, 3, 10, 63])
def test_incast_shares_the_link_down(replay: Replay, n: int) -> None:
    timeline = replay(incast(n))
    assert np.all(timeline.receive_ps == L + n * N * G)


def test_the_shorter_of_two_ends_first_and_leaves_its_share(replay: Replay) -> None:
    """Both at half the rate until the shorter has sent; the rest of the longer at full rate: all bytes / rate."""
    timeline = replay(incast(2, [SIZE, 3 * SIZE]))
    assert sorted(timeline.receive_ps.tolist()) == [L + 2 * N * G, L + (N + 3 * SIZE + ENVELOPE) * G]


def test_a_later_message_shares_from_when_its_latency_is_paid(replay: Replay) -> None:
    """The second starts 50 us late: the first has 50 us alone, then both share; the first ends when it has N bytes."""
    lines = incast(2)
    lines[2].insert(0, "compute 50000")
    late = 50 * US
    timeline = replay(lines)
    assert sorted(timeline.receive_ps.tolist()) == [L + late + 2 * (N * G - late), L + 2 * N * G]


def test_a_uniform_all_to_all_fills_every_link(replay: Replay) -> None:
    """Each of 9 ranks sends to all others at once: every link carries 8 messages from the first to the last byte."""
    n = 9
    lines = {}
    for rank in range(n):
        others = [other for other in range(n) if other != rank]
        receives, sends = ([f"{verb} {other} 0 {SIZE} 6" for other in others] for verb in ("irecv", "isend"))
        lines[rank] = [*receives, *sends, f"waitall {2 * len(others)}"]
    assert np.all(replay(lines).receive_ps == L + (n - 1) * N * G)


def test_rates_are_solved_at_multiples_of_a_step(replay: Replay) -> None:
    """As above with steps of 7 us: the first has its links to itself and begins at once, 10 us; the second waits from
    60 us for the multiple at 63, when both have half. The first ends when it has all; what it leaves, the second has
    from the next multiple on, 119 us."""
    lines = incast(2)
    lines[2].insert(0, "compute 50000")
    first = 63 * US + 2 * (N * G - 53 * US)
    assert 112 * US < first < 119 * US
    second = 119 * US + N * G - (119 - 63) * US // 2
    timeline = replay(lines, crossbar(flow=Flow(step="7 us")))
    assert sorted(timeline.receive_ps.tolist()) == [first, second]


def test_messages_that_meet_no_others_need_no_steps(replay: Replay) -> None:
    lines = {rank: [f"isend {rank ^ 1} 0 {SIZE} 6", f"recv {rank ^ 1} 0 {SIZE} 6", "waitall 1"] for rank in range(6)}
    lines[2].insert(0, "compute 12345")
    expected = replay(lines)
    found = replay(lines, crossbar(flow=Flow(step="1 ms")))
    assert np.array_equal(found.end_ps, expected.end_ps)
    assert np.array_equal(found.receive_ps, expected.receive_ps)


def test_links_carry_what_flows_sent_before_they_met_others(replay: Replay) -> None:
    """Flows of an uneven all-to-all, whose bottlenecks change: each node's links carry all that it sends and gets."""
    n = 6
    sizes = 1000 * (1 + np.random.default_rng(5).integers(0, 100, (n, n)))
    lines = {}
    for rank in range(n):
        others = [other for other in range(n) if other != rank]
        receives = [f"irecv {other} 0 {sizes[other, rank]} 6" for other in others]
        sends = [f"isend {other} 0 {sizes[rank, other]} 6" for other in others]
        lines[rank] = [*receives, *sends, f"waitall {2 * len(others)}"]
    load = replay(lines, crossbar(transfer_start="eager")).links
    assert load is not None
    carried = dict(zip(load.names, load.bytes.sum(axis=1).tolist(), strict=True))
    sizes += ENVELOPE
    np.fill_diagonal(sizes, 0)
    for rank in range(n):
        assert carried[f"node {rank} > switch"] == pytest.approx(sizes[rank].sum(), rel=1e-12)
        assert carried[f"switch > node {rank}"] == pytest.approx(sizes[:, rank].sum(), rel=1e-12)


def test_links_carry_every_byte_in_steps_too(replay: Replay) -> None:
    lines = {rank: ["compute 100", "alltoall 5000 5000 6 6", "allreduce 1000 5 6"] for rank in range(9)}
    whole, coarse = (replay(lines, crossbar(flow=Flow(step=step))).links for step in ("0 s", "3 us"))
    assert coarse.bytes.sum(axis=1) == pytest.approx(whole.bytes.sum(axis=1), rel=1e-12)
    assert coarse.bytes.min() >= 0


def test_up_and_down_links_are_separate(replay: Replay) -> None:
    """Two ranks that exchange do not hinder each other."""
    both = {rank: [f"isend {1 - rank} 0 {SIZE} 6", f"recv {1 - rank} 0 {SIZE} 6", "waitall 1"] for rank in range(2)}
    assert replay(both).makespan_ps == L + N * G


def test_unlike_bottlenecks(replay: Replay) -> None:
    """0 sends to 2 and 3; 1 sends to 3 twice: link down of 3 has three flows at a third, so 0 to 2 gets two thirds.

    All three end after 3 N G; until then 0 to 2 has sent at 2/3: it ends at 3/2 N G.
    """
    receive = [f"irecv 0 0 {SIZE} 6", f"irecv 1 0 {SIZE} 6", f"irecv 1 0 {SIZE} 6", "waitall 3"]
    lines = {
        0: [f"isend 2 0 {SIZE} 6", f"isend 3 0 {SIZE} 6", "waitall 2"],
        1: [f"isend 3 0 {SIZE} 6", f"isend 3 0 {SIZE} 6", "waitall 2"],
        2: [f"recv 0 0 {SIZE} 6"],
        3: receive,
    }
    expected = [L + 3 * N * G // 2] + [L + 3 * N * G] * 3
    assert sorted(replay(lines).receive_ps.tolist()) == expected


def ring_network(num_nodes: int) -> Network:
    """A one-dimensional torus: one link of 10 us each way between neighbours."""
    return crossbar(topology=Torus(kind="torus", dimensions=(num_nodes,)))


@pytest.mark.parametrize(("num_nodes", "hops"), [(5, 1), (5, 2), (9, 4)])
def test_a_shift_along_a_ring(replay: Replay, num_nodes: int, hops: int) -> None:
    """Every rank sends ``hops`` nodes on: each link carries ``hops`` flows, each route has as many latencies."""
    lines = {
        rank: [
            f"isend {(rank + hops) % num_nodes} 0 {SIZE} 6",
            f"recv {(rank - hops) % num_nodes} 0 {SIZE} 6",
            "waitall 1",
        ]
        for rank in range(num_nodes)
    }
    timeline = replay(lines, ring_network(num_nodes))
    assert np.all(timeline.receive_ps == hops * L + hops * N * G)


def test_shares_are_weighted_by_the_latency_of_the_route(replay: Replay) -> None:
    """On a ring, 1 to 3 (two links, 20 us) and 2 to 3 (10 us) share a link 1 : 2 once both flow.

    2 to 3 flows alone for 10 us, then at 2/3: left = N - 10 us / G; it ends at 20 us + 3/2 left G. Then the other goes
    on alone, and the link is never idle: it ends at 10 us + 2 N G.
    """
    lines = {
        0: [],
        1: [f"send 3 0 {SIZE} 6"],
        2: [f"send 3 0 {SIZE} 6"],
        3: [f"irecv 1 0 {SIZE} 6", f"irecv 2 0 {SIZE} 6", "waitall 2"],
        4: [],
        5: [],
        6: [],
    }
    timeline = replay(lines, ring_network(7))
    expected = [20 * US + 3 * (N * G - 10 * US) // 2, 10 * US + 2 * N * G]
    assert timeline.receive_ps.tolist() == [expected[1], expected[0]]


def test_a_message_to_oneself_goes_up_and_down(replay: Replay) -> None:
    lines = {0: [f"isend 0 0 {SIZE} 6", f"irecv 0 0 {SIZE} 6", "waitall 2"], 1: []}
    assert replay(lines).makespan_ps == L + N * G


def test_eager_messages_leave_before_their_receive(replay: Replay) -> None:
    """The second of 1,000 B is received 500 us later: it has long arrived."""
    lines = {0: ["send 1 0 1000 6"], 1: ["compute 500000", "recv 0 0 1000 6"]}
    wait = 500 * US
    assert replay(lines, crossbar(transfer_start="eager")).makespan_ps == wait
    assert replay(lines).makespan_ps == wait + L + 1016 * G


def test_factors_and_window(replay: Replay) -> None:
    """Factors hold above their size. The window bounds a flow to window / (2 latency), here a tenth of the link."""
    above = SizeFactor(above=f"{SIZE} B", factor=0.5)
    slower = Flow(bandwidth_factors=(above,), latency_factors=(SizeFactor(above="0 B", factor=3.0),))
    assert replay(incast(1), crossbar(flow=slower)).makespan_ps == 3 * L + 2 * N * G


def test_a_window_bounds_each_flow(replay: Replay) -> None:
    """2,500 B per 20 us: a tenth of the link; three such flows do not fill it."""
    timeline = replay(incast(3), crossbar(flow=Flow(window="2500 B")))
    assert np.all(timeline.receive_ps == L + 10 * N * G)


def test_traffic_back_takes_its_share(replay: Replay) -> None:
    """Both ways at once: each link carries one flow and a quarter of the other."""
    both = {rank: [f"isend {1 - rank} 0 {SIZE} 6", f"recv {1 - rank} 0 {SIZE} 6", "waitall 1"] for rank in range(2)}
    timeline = replay(both, crossbar(flow=Flow(cross_traffic=0.25)))
    assert timeline.makespan_ps == L + N * G * 5 // 4


def test_an_ideal_network_has_no_contention(replay: Replay) -> None:
    assert replay(incast(3), ideal_network(crossbar())).makespan_ps == 0


def test_infinite_bandwidth_with_links_takes_the_latency(replay: Replay) -> None:
    assert replay(incast(3), crossbar(ps_per_byte=0.0)).makespan_ps == L


def test_without_topology_there_is_nothing_to_share(replay: Replay) -> None:
    with pytest.raises(ValueError, match=r"network\.topology"):
        replay(incast(2), crossbar(topology=None))


def test_a_deadlock_is_told(replay: Replay) -> None:
    lines = {rank: [f"send {1 - rank} 0 {SIZE} 6", f"recv {1 - rank} 0 {SIZE} 6"] for rank in range(2)}
    with pytest.raises(ReplayError, match="2 of 2 ranks never finish"):
        replay(lines)


@pytest.mark.parametrize("n", [1, 5])
def test_links_carry_every_byte_when_it_flows(replay: Replay, n: int) -> None:
    """The link down of rank 0 is full from the first to the last byte; links up carry a message each."""
    load = replay(incast(n)).links
    assert load is not None
    row = load.names.index("switch > node 0")
    carried = dict(zip(load.names, load.bytes.sum(axis=1).tolist(), strict=True))
    assert carried["switch > node 0"] == pytest.approx(n * N, rel=1e-12)
    assert carried["node 1 > switch"] == pytest.approx(N, rel=1e-12)
    start = np.arange(load.bytes.shape[1]) * load.interval_ps
    begin, end = np.maximum(start, L), np.minimum(start + load.interval_ps, L + n * N * G)
    assert load.bytes[row] == pytest.approx(np.maximum(end - begin, 0) / G, rel=1e-9, abs=1e-9)


def test_loads_are_what_the_link_had_at_each_time(replay: Replay) -> None:
    """As `test_unlike_bottlenecks`: the link up of 0 is full while both of its flows last, then one third of it."""
    receive = [f"irecv 0 0 {SIZE} 6", f"irecv 1 0 {SIZE} 6", f"irecv 1 0 {SIZE} 6", "waitall 3"]
    lines = {
        0: [f"isend 2 0 {SIZE} 6", f"isend 3 0 {SIZE} 6", "waitall 2"],
        1: [f"isend 3 0 {SIZE} 6", f"isend 3 0 {SIZE} 6", "waitall 2"],
        2: [f"recv 0 0 {SIZE} 6"],
        3: receive,
    }
    load = replay(lines).links
    assert load is not None
    edges = np.arange(load.bytes.shape[1] + 1) * float(load.interval_ps)

    def sent(begin: float, end: float) -> np.ndarray:
        inside = np.clip(edges, begin, end)
        return (inside[1:] - inside[:-1]) / G

    middle, end = L + 1.5 * N * G, L + 3 * N * G
    expected = sent(L, middle) + sent(middle, end) / 3
    assert load.bytes[load.names.index("node 0 > switch")] == pytest.approx(expected, rel=1e-9, abs=1e-6)


def test_never_faster_than_without_contention(replay: Replay) -> None:
    lines = {rank: ["compute 100", "alltoall 5000 5000 6 6", "allreduce 1000 5 6"] for rank in range(9)}
    network = crossbar()
    shared = replay(lines, network).makespan_ps
    assert shared > replay(lines, network, latency_bandwidth).makespan_ps
