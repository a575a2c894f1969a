"""The replay against closed forms, and properties that hold for every program.

Costs on the network below, by hand: latency 10 us, 0.8 ns a byte, 16 bytes of envelope, so a message of S bytes takes
10,000,000 + 800 (S + 16) ps; one to oneself 5,000,000 + 800 (S + 16) ps. Messages under 65,536 bytes are eager.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manyscale.models.machine import Link, Network, ideal_network
from manyscale.models.network import latency_bandwidth
from manyscale.models.network.program import build_program
from manyscale.models.network.replay.timeline import Placement, ReplayError, Timeline
from manyscale.models.workload import ANY_SOURCE, Workload, WorkloadError
from manyscale.runner.readers import simgrid_ti
from manyscale.runner.run.pipeline import compute_per_operation
from manyscale.testing.workloads import workload as known_workload

US = 1_000_000  # ps


def network(
    latency: str = "10 us", bandwidth: str = "1.25 GB/s", start: str = "match", preset: str = "simgrid-3.32"
) -> Network:
    return Network(
        latency=latency, bandwidth=bandwidth, envelope="16 B", eager_threshold="65536 B", transfer_start=start,
        collectives=preset, intra_node=Link(latency="1 us", bandwidth="10 GB/s"),
        self=Link(latency="5 us", bandwidth="1.25 GB/s"),
    )  # fmt: skip


def cost(size: int) -> int:
    return 10 * US + 800 * (size + 16)


def trace(folder: Path, *ranks: str) -> Workload:
    """A workload from time-independent text, one string per rank; sizes are bytes (init without an argument)."""
    path = folder / "actions.txt"
    lines = [
        f"{rank} {line.strip()}" for rank, text in enumerate(ranks) for line in ["init", *text.split(";"), "finalize"]
    ]
    path.write_text("\n".join(line for line in lines if line.split()[1:]) + "\n")
    return simgrid_ti.read(path)


def timeline(workload: Workload, law: Network | None = None, node: np.ndarray | None = None) -> Timeline:
    law = law or network()
    program = build_program(workload, law.collectives)
    compute = compute_per_operation(workload, workload.column("phases", "duration_ps"))
    nodes = np.arange(workload.num_ranks) if node is None else node
    return latency_bandwidth.replay(program, compute, law, Placement(nodes, int(nodes.max()) + 1))


def ends(workload: Workload, law: Network | None = None, node: np.ndarray | None = None) -> list[int]:
    """End of every rank in ps."""
    return timeline(workload, law, node).end_ps[workload.rank_offsets[1:] - 1].tolist()


@pytest.mark.theory
class TestClosedForms:
    def test_ping_pong_takes_two_costs(self, tmp_path):
        workload = trace(tmp_path, "send 1 0 1000; recv 1 0 1000", "recv 0 0 1000; send 0 0 1000")
        assert ends(workload) == [2 * cost(1000), cost(1000)]

    def test_rendezvous_sender_ends_with_the_transfer(self, tmp_path):
        workload = trace(tmp_path, "send 1 0 65536", "compute 3000; recv 0 0 65536")
        assert ends(workload) == [3 * 1000 * 1000 + cost(65536)] * 2  # both wait for the receive's post at 3 us

    def test_eager_sender_goes_on_at_once(self, tmp_path):
        workload = trace(tmp_path, "send 1 0 65535", "compute 3000; recv 0 0 65535")
        assert ends(workload) == [0, 3 * US + cost(65535)]

    def test_eager_start_travels_before_the_receive_is_posted(self, tmp_path):
        workload = trace(tmp_path, "send 1 0 984", "compute 30000; recv 0 0 984")
        assert ends(workload, network(start="eager")) == [0, 30 * US]  # arrived at 10.8 us, received at 30 us
        assert ends(workload, network(start="match")) == [0, 30 * US + cost(984)]

    def test_token_round_a_ring(self, tmp_path):
        n = 5
        ranks = ["send 1 0 100; recv 4 0 100"] + [f"recv {r - 1} 0 100; send {(r + 1) % n} 0 100" for r in range(1, n)]
        assert ends(trace(tmp_path, *ranks))[0] == n * cost(100)

    def test_critical_path_through_compute_and_messages(self, tmp_path):
        # 0 computes 5 us and sends to 1, which computed 2 us; 1 then computes 7 us and sends to 2, which computed 40 us
        workload = trace(
            tmp_path,
            "compute 5000; send 1 0 0",
            "compute 2000; recv 0 0 0; compute 7000; send 2 0 0",
            "compute 40000; recv 1 0 0; compute 1000",
        )
        at_1 = 5 * US + cost(0)
        assert ends(workload) == [5 * US, at_1 + 7 * US, 40 * US + cost(0) + US]

    def test_message_to_oneself_and_free_sendrecv_to_oneself(self, tmp_path):
        to_self = trace(tmp_path, "irecv 0 3 100; isend 0 3 100; wait 0 0 3; wait 0 0 3")
        assert ends(to_self) == [5 * US + 800 * 116]
        assert ends(trace(tmp_path, "sendRecv 100 0 100 0 6 6")) == [0]

    def test_ranks_of_one_node_use_its_own_parameters(self, tmp_path):
        workload = trace(tmp_path, "send 1 0 984", "recv 0 0 984")
        assert ends(workload, node=np.array([0, 0])) == [0, 1 * US + 100 * 1000]  # 1 us + 1000 B at 10 GB/s

    def test_synchronous_send_waits_for_its_receiver(self, tmp_path):
        workload = trace(tmp_path, "Ssend 1 0 8", "compute 2000; recv 0 0 8")
        assert ends(workload) == [2 * US + cost(8)] * 2

    def test_buffered_send_never_waits(self, tmp_path):
        assert ends(trace(tmp_path, "bsend 1 0 100000", "recv 0 0 100000"))[0] == 0

    def test_non_overtaking_per_tag(self, tmp_path):
        # the first receive of tag 1 takes the first send of tag 1, however late the one of tag 2 is received
        workload = trace(
            tmp_path,
            "isend 1 1 10; isend 1 2 20; isend 1 1 30",
            "recv 0 2 20; recv 0 1 10; recv 0 1 30",
        )
        result = timeline(workload)
        first, other, last = result.receive_ps.tolist()
        assert other == cost(20)
        assert first == other + cost(10)  # posted when the one of tag 2 was there
        assert last == first + cost(30)

    def test_wildcard_takes_the_first_to_be_posted(self, tmp_path):
        workload = trace(
            tmp_path,
            "recv -333 5 0; recv -333 5 0",
            "compute 9000; send 0 5 0",
            "compute 4000; send 0 5 0",
        )
        result = timeline(workload)
        assert result.receive_ps.tolist() == [4 * US + 2 * cost(0), 4 * US + cost(0)]

    def test_wildcard_behind_a_specific_receive(self, tmp_path):
        # posted in this order: from 2, then from any. 1 sends first but must take the wildcard; 2 the specific one
        workload = trace(
            tmp_path,
            "irecv 2 5 0; irecv -333 5 0; wait 2 0 5; wait -333 0 5",
            "compute 1000; send 0 5 0",
            "compute 8000; send 0 5 0",
        )
        assert timeline(workload).receive_ps.tolist() == [US + cost(0), 8 * US + cost(0)]

    def test_any_tag(self, tmp_path):
        workload = trace(tmp_path, "recv 1 -444 0; recv 1 7 0", "send 0 9 0; send 0 7 0")
        assert ends(workload)[0] == 2 * cost(0)

    def test_wait_any_takes_the_first_to_complete(self, tmp_path):
        # the message of rank 2 is posted later but shorter: 5 us + 10.0128 us < 10 us + 12.4 us of rank 1's
        workload = trace(
            tmp_path,
            "irecv 1 1 2984; irecv 2 1 0; waitAny 2; compute 1000; waitAny 2",
            "compute 10000; send 0 1 2984",
            "compute 5000; send 0 1 0",
        )
        result = timeline(workload)
        waits = result.end_ps[workload.rank_offsets[0] + 3 : workload.rank_offsets[0] + 5].tolist()
        assert waits == [5 * US + cost(0), 10 * US + cost(2984)]

    def test_wait_any_wakes_for_a_later_but_shorter_message(self, tmp_path):
        # the message of rank 1 is known at once to arrive at 10 + 0.8 x 40.016 us; rank 2's is posted meanwhile
        workload = trace(
            tmp_path,
            "irecv 1 1 40000; irecv 2 1 0; waitAny 2; waitAny 2",
            "send 0 1 40000",
            "compute 5000; send 0 1 0",
        )
        waits = timeline(workload).end_ps[3:5].tolist()
        assert waits == [5 * US + cost(0), cost(40000)]

    def test_wait_any_wakes_for_a_message_that_is_sent_while_it_waits(self, tmp_path):
        # rank 2 sends only once the message of rank 3 has come to its wildcard receive: at 3 us + cost(0)
        workload = trace(
            tmp_path,
            "irecv 1 1 40000; irecv 2 1 0; waitAny 2; send 4 6 0; waitAny 2",
            "send 0 1 40000",
            "recv -333 5 0; send 0 1 0",
            "compute 3000; send 2 5 0",
            "recv -333 6 0; recv -333 6 0",
            "compute 30000; send 4 6 0",
        )
        result = timeline(workload)
        woken = 3 * US + 2 * cost(0)  # about 23 us: what rank 0 does then comes before rank 5's send at 30 us
        assert [int(result.end_ps[row]) for row in (3, 5)] == [woken, cost(40000)]
        received = workload.rank_offsets[4] + 1
        assert result.end_ps[received : received + 2].tolist() == [woken + cost(0), woken + 2 * cost(0)]

    def test_wildcards_take_messages_in_order_of_time_not_of_rank(self, tmp_path):
        workload = trace(
            tmp_path,
            "recv -333 5 0; recv -333 5 0; recv -333 5 0",
            "compute 1000; send 0 5 0; compute 49000; send 0 5 0",
            "compute 20000; send 0 5 0",
        )
        assert timeline(workload).end_ps[1:4].tolist() == [US + cost(0), 20 * US + cost(0), 50 * US + cost(0)]

    def test_specific_receive_posted_before_a_wildcard_takes_the_first_message(self, tmp_path):
        workload = trace(
            tmp_path,
            "irecv 1 5 0; irecv -333 5 0; wait 1 0 5; wait -333 0 5",
            "send 0 5 0; compute 30000; send 0 5 0",
        )
        assert timeline(workload).end_ps[3:5].tolist() == [cost(0), 30 * US + cost(0)]

    def test_zero_latency_and_infinite_bandwidth_leave_the_slowest_rank(self, tmp_path):
        ranks = [
            f"compute {1000 * (r + 1)}; allreduce 8 0; sendRecv 9 {(r + 1) % 4} 9 {(r - 1) % 4} 6 6" for r in range(4)
        ]
        assert max(ends(trace(tmp_path, *ranks), ideal_network(network()))) == 4 * US

    def test_non_blocking_collective_overlaps_compute(self, tmp_path):
        # the linear non-blocking broadcast posts everything at once: rank 1 has it at cost(8), inside its 50 us
        workload = trace(
            tmp_path,
            "ibcast 8 0 6; compute 50000; wait 0 0 -3335",
            "ibcast 8 0 6; compute 50000; wait 0 1 -3335",
        )
        assert ends(workload) == [50 * US, 50 * US]


@pytest.mark.contract
class TestRefusals:
    def test_deadlock_names_ranks_and_operations(self, tmp_path):
        workload = trace(tmp_path, "send 1 0 65536; recv 1 0 65536", "send 0 0 65536; recv 0 0 65536")
        with pytest.raises(ReplayError, match=r"2 of 2 ranks never finish: rank 0, operation 1 waits for rank 1"):
            ends(workload)

    def test_receive_that_nobody_serves(self, tmp_path):
        with pytest.raises(WorkloadError, match=r"rank 1, operation 1 \(recv\) expects .* tag 3 from rank 0"):
            ends(trace(tmp_path, "compute 1", "recv 0 3 8"))

    def test_send_that_nobody_receives(self, tmp_path):
        with pytest.raises(WorkloadError, match=r"rank 0, operation 1 \(send\) sends 8 B with tag 3 to rank 1"):
            ends(trace(tmp_path, "send 1 3 8", "compute 1"))

    def test_wildcard_that_nobody_serves_is_a_deadlock(self):
        receive = (0, "recv", {"peer": ANY_SOURCE, "tag": 5})
        workload = known_workload("wildcards", [[receive, receive], [(0, "send", {"peer": 0, "tag": 5})]])
        with pytest.raises(ReplayError, match="rank 0, operation 1 waits for a message from any rank with tag 5"):
            ends(workload)

    def test_send_that_no_wildcard_takes(self, tmp_path):
        workload = trace(tmp_path, "recv -333 5 0", "send 0 5 0; send 0 5 8")
        with pytest.raises(ReplayError, match="rank 1, operation 2 sends 8 B to rank 0, which never receives it"):
            ends(workload)

    def test_collectives_in_different_order(self):
        barrier, bcast = (0, "barrier", {}), (0, "bcast", {"peer": 0, "bytes": 8})
        with pytest.raises(WorkloadError, match=r"rank 1, operation 0 \(bcast\) meets rank 0, operation 0 \(barrier\)"):
            ends(known_workload("order", [[barrier, bcast], [bcast, barrier]]))

    def test_missing_collective(self):
        with pytest.raises(WorkloadError, match="rank 0 calls 1 collectives on communicator 0, rank 1 only 0"):
            ends(known_workload("missing", [[(0, "barrier", {})], [(1, "other", {})]]))


@st.composite
def programs(draw: st.DrawFn) -> list[list[str]]:
    """Deadlock-free point-to-point programs: events in one global order, each appended to both of its ranks."""
    n = draw(st.integers(2, 6))
    ranks: list[list[str]] = [[] for _ in range(n)]
    open_waits: list[list[str]] = [[] for _ in range(n)]
    for _ in range(draw(st.integers(1, 25))):
        source = draw(st.integers(0, n - 1))
        destination = (source + draw(st.integers(1, n - 1))) % n
        size = draw(st.sampled_from([0, 1, 1000, 65535, 65536, 300000]))
        tag = draw(st.integers(0, 2))
        ranks[source].append(f"compute {draw(st.integers(0, 20000))}")
        if draw(st.booleans()):
            ranks[source].append(f"isend {destination} {tag} {size}")
            open_waits[source].append(f"wait {source} {destination} {tag}")
        else:
            # a blocking rendezvous send needs its receive posted in order: everything outstanding is waited for later
            ranks[source].append(f"send {destination} {tag} {size}")
        if draw(st.booleans()):
            ranks[destination].append(f"irecv {source} {tag} {size}")
            open_waits[destination].append(f"wait {source} {destination} {tag}")
        else:
            ranks[destination].append(f"recv {source} {tag} {size}")
    for rank in range(n):
        ranks[rank].extend(open_waits[rank])
    return ranks


def read_program(factory: pytest.TempPathFactory, ranks: list[list[str]]) -> Workload:
    return trace(factory.mktemp("program"), *(";".join(lines) for lines in ranks))


@pytest.mark.property
class TestProperties:
    @settings(deadline=None, max_examples=60)
    @given(ranks=programs())
    def test_causality(self, tmp_path_factory, ranks):
        workload = read_program(tmp_path_factory, ranks)
        result = timeline(workload)
        sizes = build_program(workload, "simgrid-3.32").bytes
        assert np.all(result.receive_ps - result.send_ps >= 10 * US + 800 * (sizes + 16))
        for rank in range(workload.num_ranks):
            mine = result.end_ps[workload.rank_offsets[rank] : workload.rank_offsets[rank + 1]]
            assert np.all(np.diff(mine) >= 0)

    @settings(deadline=None, max_examples=60)
    @given(ranks=programs(), start=st.sampled_from(["match", "eager"]))
    def test_more_bandwidth_or_less_latency_is_never_slower(self, tmp_path_factory, ranks, start):
        workload = read_program(tmp_path_factory, ranks)
        base = np.array(ends(workload, network(start=start)))
        assert np.all(np.array(ends(workload, network(bandwidth="2.5 GB/s", start=start))) <= base)
        assert np.all(np.array(ends(workload, network(latency="3 us", start=start))) <= base)

    @settings(deadline=None, max_examples=60)
    @given(ranks=programs(), data=st.data())
    def test_renumbering_ranks_changes_nothing(self, tmp_path_factory, ranks, data):
        new = data.draw(st.permutations(range(len(ranks))))
        renamed: list[list[str]] = [[] for _ in ranks]
        for rank, lines in enumerate(ranks):
            for line in lines:
                words = line.split()
                if words[0] == "wait":
                    words[1:3] = [str(new[int(words[1])]), str(new[int(words[2])])]
                elif words[0] != "compute":
                    words[1] = str(new[int(words[1])])
                renamed[new[rank]].append(" ".join(words))
        before = ends(read_program(tmp_path_factory, ranks))
        after = ends(read_program(tmp_path_factory, renamed))
        assert [after[new[rank]] for rank in range(len(ranks))] == before

    @settings(deadline=None, max_examples=40)
    @given(ranks=programs())
    def test_wildcards_where_one_source_sends_equal_specific_receives(self, tmp_path_factory, ranks):
        """Receives from any source of a program in which only one rank ever sends must match as specific ones."""
        only = [
            [line for line in lines if not line.startswith(("send", "isend", "recv", "irecv", "wait"))]
            for lines in ranks
        ]
        sends = [line for lines in ranks for line in lines if line.startswith("send ")]
        for line in sends:
            _, _, tag, size = line.split()
            only[0].append(f"send 1 {tag} {min(int(size), 1000)}")
            only[1].append(f"recv 0 {tag} 0")
        wild = [[line.replace("recv 0", "recv -333") for line in lines] for lines in only]
        assert ends(read_program(tmp_path_factory, wild)) == ends(read_program(tmp_path_factory, only))
