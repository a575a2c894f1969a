"""The Dimemas model against closed forms.

Network of the tests: 10 us, 1 GB/s (1,000 ps a byte), no envelope, one rank per node unless said. A message of S bytes
costs its sender 10 us of CPU, then takes S ns; a blocking receive and a wait cost their CPU 10 us.
"""

from __future__ import annotations

import numpy as np
import pytest

from manyscale.models.machine import Link, Network
from manyscale.models.network import latency_bandwidth
from manyscale.models.network.dimemas import model as dimemas
from manyscale.models.network.dimemas.parameters import Dimemas, DimemasLinks
from manyscale.models.network.program import build_program
from manyscale.models.network.replay.timeline import Placement, ReplayError
from manyscale.runner.readers import simgrid_ti
from manyscale.runner.run.pipeline import compute_per_operation

pytestmark = pytest.mark.theory

US = 1_000_000  # ps
L = 10 * US


def network(
    limits: Dimemas | None = None, latency: str = "10 us", eager: str = "65536 B", preset: str = "dimemas"
) -> Network:
    return Network(
        latency=latency, bandwidth="1 GB/s", envelope="0 B", eager_threshold=eager, transfer_start="eager",
        collectives=preset, intra_node=Link(latency="1 us", bandwidth="10 GB/s"),
        self=Link(latency="0 s", bandwidth="inf B/s"), dimemas=limits,
    )  # fmt: skip


def links(output: int = 0, input: int = 0, buses: int = 0) -> Dimemas:
    return Dimemas(inter_node=DimemasLinks(output_links=output, input_links=input, buses=buses))


@pytest.fixture
def run(write_trace):
    """Ends of all operations by rank, and the timeline, of a program in SimGrid's actions (1 flop = 1 ns)."""

    def replay(ranks, net, nodes=None, num_nodes=None):
        workload = simgrid_ti.read(write_trace(ranks))
        compute = compute_per_operation(workload, workload.column("phases", "duration_ps"))
        place = np.arange(len(ranks), dtype=np.int32) if nodes is None else np.array(nodes, np.int32)
        placement = Placement(place, num_nodes or int(place.max()) + 1)
        timeline = dimemas.replay(build_program(workload, net.collectives), compute, net, placement)
        bounds = workload.rank_offsets
        return [timeline.end_ps[bounds[r] : bounds[r + 1]].tolist() for r in range(len(ranks))], timeline

    return replay


def sends(target: int, sizes, tag: int = 0) -> list[str]:
    return [f"send {target} {tag} {size} 6" for size in sizes]


def receives(source: int, sizes, tag: int = 0) -> list[str]:
    return [f"recv {source} {tag} {size} 6" for size in sizes]


def test_a_message_costs_latency_on_the_cpu_of_both_sides(run):
    ends, timeline = run({0: sends(1, [5000]), 1: receives(0, [5000])}, network())
    assert ends[0][0] == L  # the sender goes on as the transfer starts
    assert ends[1][0] == L + 5 * US
    assert timeline.send_ps.tolist() == [L]


def test_sends_of_one_rank_pay_their_latencies_in_series(run):
    ends, _ = run({0: sends(1, [0] * 5), 1: receives(0, [0] * 5)}, network())
    assert ends[0][:5] == [L, 2 * L, 3 * L, 4 * L, 5 * L]


def test_posting_a_receive_is_free_and_waiting_for_it_is_not(run):
    ranks = {0: sends(1, [1000]), 1: ["irecv 0 0 1000 6", "compute 50000", "wait 0 1 0"]}
    ends, _ = run(ranks, network())
    assert ends[1][0] == 0
    assert ends[1][1] == 50 * US + L


def test_two_messages_leave_a_node_one_after_the_other(run):
    ranks = {0: ["isend 1 0 50000 6", "isend 2 0 50000 6"], 1: receives(0, [50000]), 2: receives(0, [50000])}
    _, free = run(ranks, network())
    assert free.receive_ps.tolist() == [L + 50 * US, 2 * L + 50 * US]


def test_one_output_link_serialises_two_messages(run):
    ranks = {0: ["isend 1 0 50000 6", "isend 2 0 50000 6"], 1: receives(0, [50000]), 2: receives(0, [50000])}
    _, timeline = run(ranks, network(links(output=1, input=1)))
    assert timeline.receive_ps.tolist() == [L + 50 * US, L + 100 * US]


def test_one_input_link_serialises_an_incast(run):
    ranks = {0: [f"recv {source} 0 50000 6" for source in (1, 2, 3)], **{r: sends(0, [50000]) for r in (1, 2, 3)}}
    _, timeline = run(ranks, network(links(output=1, input=1)))
    assert sorted(timeline.receive_ps.tolist()) == [L + 50 * US, L + 100 * US, L + 150 * US]


@pytest.mark.parametrize("buses", [1, 2, 3])
def test_buses_bound_the_transfers_under_way(run, buses):
    pairs = 6
    ranks = {2 * k: sends(2 * k + 1, [50000]) for k in range(pairs)}
    ranks |= {2 * k + 1: receives(2 * k, [50000]) for k in range(pairs)}
    _, timeline = run(dict(sorted(ranks.items())), network(links(buses=buses)))
    expected = sorted(L + (1 + k // buses) * 50 * US for k in range(pairs))
    assert sorted(timeline.receive_ps.tolist()) == expected


@pytest.mark.parametrize(("output", "input", "second"), [(1, 1, 50), (1, 0, 100), (0, 1, 100), (2, 0, 50)])
def test_half_duplex_links_serialise_an_exchange(run, output, input, second):
    ranks = {
        0: ["irecv 1 0 50000 6", "isend 1 0 50000 6", "wait 1 0 0"],
        1: ["irecv 0 0 50000 6", "isend 0 0 50000 6", "wait 0 1 0"],
    }
    _, timeline = run(ranks, network(links(output, input)))
    assert sorted(timeline.receive_ps.tolist()) == [L + 50 * US, L + second * US]


def test_a_transfer_that_waits_for_its_input_link_lends_its_output_link(run):
    """Rank 1 holds the input link of node 0. Rank 2's first message waits for it with the output link of node 2; its
    second, to the idle node 3, takes that link meanwhile."""
    ranks = {
        0: ["recv 1 0 60000 6", "recv 2 0 50000 6"],
        1: sends(0, [60000]),
        2: ["compute 1000", "isend 0 0 50000 6", "isend 3 0 10000 6"],
        3: receives(2, [10000]),
    }
    _, timeline = run(ranks, network(links(output=1, input=1)))
    first, waiting, lent = timeline.receive_ps.tolist()
    assert first == L + 60 * US
    assert lent == US + 2 * L + 10 * US
    assert waiting == first + 50 * US


def test_a_rendezvous_starts_with_the_receive_and_frees_its_sender_then(run):
    ranks = {0: sends(1, [70000]), 1: ["compute 100000", *receives(0, [70000])]}
    ends, timeline = run(ranks, network())
    assert ends[0][0] == 100 * US + L
    assert timeline.receive_ps.tolist() == [100 * US + L + 70 * US]


def test_an_eager_message_waits_at_its_receiver(run):
    ranks = {0: sends(1, [50000]), 1: ["compute 100000", *receives(0, [50000])]}
    ends, _ = run(ranks, network())
    assert ends[0][0] == L
    assert ends[1][0] == 100 * US + L


def test_inside_a_node_its_own_route_counts(run):
    ends, _ = run({0: sends(1, [50000]), 1: receives(0, [50000])}, network(links(1, 1, 1)), nodes=[0, 0])
    assert ends[1][0] == US + 5 * US


def test_links_inside_a_node_are_those_of_each_rank(run):
    limits = Dimemas(intra_node=DimemasLinks(output_links=1, input_links=1))
    ranks = {0: ["isend 1 0 50000 6", "isend 2 0 50000 6"], 1: receives(0, [50000]), 2: receives(0, [50000])}
    _, timeline = run(ranks, network(limits), nodes=[0, 0, 0])
    assert timeline.receive_ps.tolist() == [US + 5 * US, US + 10 * US]


def test_ratios_of_cpus_divide_compute(run):
    ranks = {r: ["compute 100000", "finalize"] for r in range(3)}
    ends, _ = run(ranks, network(Dimemas(cpu_ratios=(2.0, 0.5, 0.0))))
    assert [end[-1] for end in ends] == [50 * US, 200 * US, 0]


def test_as_many_ratios_as_nodes_are_asked_for(run):
    with pytest.raises(ValueError, match=r"2 ratios for 3 nodes; give one for each"):
        run({r: ["compute 1", "finalize"] for r in range(3)}, network(Dimemas(cpu_ratios=(2.0, 0.5))))


def test_without_latency_and_limits_it_is_the_latency_bandwidth_law(write_trace):
    """Small messages, received after they have been sent: the two laws are one there."""
    ranks = {
        0: ["compute 3000", *sends(1, [1000, 2000]), "compute 500", *receives(2, [50000])],
        1: ["compute 2000", *receives(0, [1000, 2000]), *sends(2, [3000])],
        2: ["irecv 1 0 3000 6", "compute 700", *sends(0, [50000]), "wait 1 2 0"],
    }
    workload = simgrid_ti.read(write_trace(ranks))
    compute = compute_per_operation(workload, workload.column("phases", "duration_ps"))
    net = network(latency="0 s")
    program = build_program(workload, net.collectives)
    placement = Placement.one_per_node(3)
    ours, other = (model.replay(program, compute, net, placement) for model in (dimemas, latency_bandwidth))
    assert ours.end_ps.tolist() == other.end_ps.tolist()


def test_a_collective_costs_its_fans_between_nodes_and_inside_one(run):
    """4 ranks on 2 nodes: ceil(log2 2) stages between the nodes, as many inside the fuller one, for both fans."""
    ranks = {r: ["allreduce 10000 0 6", "finalize"] for r in range(4)}
    ends, _ = run(ranks, network(), nodes=[0, 0, 1, 1])
    assert {end[0] for end in ends} == {2 * (L + 10 * US) + 2 * (US + US)}


def test_a_deadlock_names_the_operations(run):
    ranks = {0: ["recv 1 0 8 6", "send 1 0 8 6"], 1: ["recv 0 0 8 6", "send 0 0 8 6"]}
    with pytest.raises(ReplayError, match=r"deadlock: 2 of 2 ranks .*rank 0, operation 0 waits for 8 B from rank 1"):
        run(ranks, network())
