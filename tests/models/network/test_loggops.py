"""The LogGOPS model against closed forms, beside the latency-bandwidth model where the two laws agree, and on
workloads with waits for any, non-blocking collectives and gates.

Costs by hand, from the law in network/loggops/model.py: L = 1000 ns, o = 200, g = 300, G = 2 ns a byte, O = 0 unless
said.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manyscale.models.machine import Link, Network, ideal_network
from manyscale.models.network import latency_bandwidth
from manyscale.models.network.loggops import model as loggops
from manyscale.models.network.loggops.parameters import LogGops
from manyscale.models.network.program import build_program
from manyscale.models.network.replay.timeline import Placement, ReplayError, Timeline
from manyscale.models.workload import NONBLOCKING_COLLECTIVES, Workload, WorkloadError
from manyscale.runner import shipped
from manyscale.runner.readers import goal, simgrid_ti
from manyscale.runner.run.pipeline import compute_per_operation

PROGRAMS = Path(__file__).parents[2] / "data" / "simgrid"
NS = 1000  # ps
L, o, g, G = 1000, 200, 300, 2


def network(
    bandwidth: str = "500 MB/s", threshold: str = "1 MB", per_byte: str = "inf B/s", **extra: object
) -> Network:
    return Network(
        latency="1 us", bandwidth=bandwidth, envelope="0 B", eager_threshold=threshold, transfer_start="eager",
        collectives="mpich", intra_node=Link(latency="10 ns", bandwidth="inf B/s"),
        self=Link(latency="1 us", bandwidth=bandwidth),
        loggops=LogGops(overhead="200 ns", gap="300 ns", overhead_bandwidth="inf B/s"),
    ).model_copy(update=extra)  # fmt: skip


def trace(folder: Path, *ranks: str) -> Workload:
    """A workload from time-independent text, one string per rank (compute in ns)."""
    path = folder / "actions.txt"
    lines = [
        f"{rank} {line.strip()}" for rank, text in enumerate(ranks) for line in ["init", *text.split(";"), "finalize"]
    ]
    path.write_text("\n".join(line for line in lines if line.split()[1:]) + "\n")
    return simgrid_ti.read(path)


def timeline(workload: Workload, law: Network | None = None, node: np.ndarray | None = None, model=loggops) -> Timeline:
    program = build_program(workload, "mpich", keep_graph=True)
    compute = compute_per_operation(workload, workload.column("phases", "duration_ps"))
    place = Placement.one_per_node(workload.num_ranks) if node is None else Placement(node, int(node.max()) + 1)
    return model.replay(program, compute, law or network(), place)


def ends(workload: Workload, law: Network | None = None, node: np.ndarray | None = None) -> list[float]:
    """End of every rank in ns."""
    return (timeline(workload, law, node).end_ps[workload.rank_offsets[1:] - 1] / NS).tolist()


@pytest.mark.theory
class TestClosedForms:
    def test_ping_pong(self, tmp_path):
        # the receiver's CPU is busy from the first byte's arrival to the last one's, then o
        one_way = o + L + o + 999 * G
        workload = trace(tmp_path, "send 1 0 1000; recv 1 0 1000", "recv 0 0 1000; send 0 0 1000")
        assert ends(workload) == [2 * one_way, one_way + o]

    def test_sends_in_a_row_are_a_gap_apart(self, tmp_path):
        workload = trace(tmp_path, "isend 1 0 10; isend 1 0 10; isend 1 0 10", "recv 0 0 10; recv 0 0 10; recv 0 0 10")
        gap = g + 9 * G
        assert (timeline(workload).send_ps / NS).tolist() == [0, gap, 2 * gap]
        assert ends(workload) == [2 * gap + o, 2 * gap + o + L + o + 9 * G]

    def test_sends_in_a_row_without_gap_take_the_cpu(self, tmp_path):
        law = network(loggops=LogGops(overhead="200 ns", gap="0 s", overhead_bandwidth="200 MB/s"))
        workload = trace(tmp_path, "isend 1 0 10; isend 1 0 10", "recv 0 0 10; recv 0 0 10")
        assert (timeline(workload, law).send_ps / NS).tolist() == [0, o + 9 * 5]
        # a receive takes the larger of O and G per byte
        assert ends(workload, law) == [2 * (o + 45), (o + 45) + o + L + o + 45]

    def test_incast_queues_at_the_receiver(self, tmp_path):
        senders = 5
        workload = trace(tmp_path, "; ".join(f"recv {r} 0 100" for r in range(1, senders + 1)), *["send 0 0 100"] * 5)
        # all arrive at o + L; one after the other takes the interface for g + 99 G, the last the CPU for o + 99 G
        assert ends(workload)[0] == o + L + (senders - 1) * (g + 99 * G) + o + 99 * G

    def test_rendezvous_sender_goes_on_when_the_receiver_starts(self, tmp_path):
        law = network(threshold="100 B")
        workload = trace(tmp_path, "send 1 0 100", "compute 5000; recv 0 0 100")
        assert ends(workload, law) == [5000, 5000 + o + 99 * G]
        # one byte less is eager: the sender ends with its overhead
        workload = trace(tmp_path, "send 1 0 99", "compute 5000; recv 0 0 99")
        assert ends(workload, law) == [o, 5000 + o + 98 * G]

    def test_a_message_is_taken_in_before_its_receive_is_posted(self, tmp_path):
        # it arrives at o + L = 1200, when the CPU is free until the receive is posted after another message
        workload = trace(tmp_path, "recv 2 0 10; recv 1 0 10", "send 0 0 10", "compute 10000; send 0 0 10")
        assert ends(workload)[0] == 10000 + o + L + o + 9 * G

    def test_compute_waits_for_the_cpu_that_an_early_message_takes(self, tmp_path):
        # 1 computes 1150 ns, then has 50 ns left to post and compute: the message arrives at 1200, compute goes first
        workload = trace(tmp_path, "send 1 0 1000", "irecv 0 0 1000; compute 1150; compute 100; wait 0 1 0")
        assert ends(workload)[1] == 1250 + o + 999 * G

    def test_ranks_of_one_node_use_its_own_route(self, tmp_path):
        workload = trace(tmp_path, "send 1 0 1000; send 2 0 10", "recv 0 0 1000", "recv 0 0 10")
        assert ends(workload, node=np.array([0, 0, 1])) == [g + o, o + 10 + o, g + o + L + o + 9 * G]

    def test_a_rank_alone_on_its_node_sends_to_itself_by_the_network(self, tmp_path):
        slow = network(self_route=Link(latency="1 s", bandwidth="1 GB/s"))
        workload = trace(tmp_path, "irecv 0 3 10; isend 0 3 10; wait 0 0 3; wait 0 0 3")
        assert ends(workload, slow) == [o + L + o + 9 * G]
        with_another = trace(tmp_path, "irecv 0 3 10; isend 0 3 10; wait 0 0 3; wait 0 0 3", "")
        assert ends(with_another, slow, np.array([0, 0]))[0] > 1e9

    def test_messages_without_bytes_count_as_one_byte(self, tmp_path):
        assert ends(trace(tmp_path, "send 1 0 0", "recv 0 0 0")) == ends(trace(tmp_path, "send 1 0 1", "recv 0 0 1"))

    def test_envelope_counts(self, tmp_path):
        with_envelope = network(envelope_bytes=16)
        workload = trace(tmp_path, "send 1 0 84", "recv 0 0 84")
        assert ends(workload, with_envelope)[1] == o + L + o + 99 * G

    def test_synchronous_and_buffered_sends(self, tmp_path):
        assert ends(trace(tmp_path, "Ssend 1 0 8", "compute 9000; recv 0 0 8"))[0] == 9000
        law = network(threshold="0 B")
        assert ends(trace(tmp_path, "bsend 1 0 8", "compute 9000; recv 0 0 8"), law)[0] == o

    def test_wildcard_takes_what_arrives_first(self, tmp_path):
        workload = trace(tmp_path, "recv -333 5 8; recv -333 5 8", "compute 900; send 0 5 8", "compute 100; send 0 5 8")
        received = timeline(workload).receive_ps
        assert received[1] == (100 + o + L + o + 7 * G) * NS < received[0]

    def test_wait_for_any_goes_on_with_the_first(self, tmp_path):
        workload = trace(
            tmp_path,
            "irecv 1 0 8; irecv 2 0 8; waitany; compute 100; waitany",
            "compute 9000; send 0 0 8",
            "compute 4000; send 0 0 8",
        )
        first, second = (at + o + L + o + 7 * G for at in (4000, 9000))
        end_ps = timeline(workload).end_ps[: workload.rank_offsets[1]]
        assert (end_ps[3] / NS, end_ps[-1] / NS) == (first, second)


def schedule(folder: Path, text: str) -> Workload:
    path = folder / "schedule.goal"
    path.write_text(text)
    return goal.read(path)


@pytest.mark.theory
def test_calculations_of_a_rank_share_its_cpu(tmp_path):
    workload = schedule(tmp_path, "num_ranks 1\nrank 0 {\ncalc 100\ncalc 200\ncalc 300\n}\n")
    assert timeline(workload).makespan_ps == 600 * NS


@pytest.mark.theory
def test_start_and_end_dependencies_differ(tmp_path):
    text = (
        "num_ranks 2\nrank 0 {{\na: recv 8b from 1\nb: calc 50\nb {} a\n}}\nrank 1 {{\na: calc 700\nsend 8b to 0\n}}\n"
    )
    after_end = timeline(schedule(tmp_path, text.format("requires"))).end_ps
    after_start = timeline(schedule(tmp_path, text.format("irequires"))).end_ps
    assert after_end.max() == after_start.max() + 50 * NS == (o + L + o + 7 * G + 50) * NS


@pytest.mark.property
@pytest.mark.parametrize("name", ["comd-8", "hpcg-8", "lulesh-8", "nas-is-A-8"])
def test_equals_latency_bandwidth_where_both_laws_do(name):
    """Without CPU costs, gaps and bytes, all eager and travelling at once, every operation ends as in the other model.
    With bytes the interfaces serialise, and a rendezvous sender waits for the transfer only there."""
    workload = simgrid_ti.read(shipped.folder() / f"{name}.tar.zst")
    law = network(bandwidth="inf B/s", threshold="1 PB", loggops=None)
    ours, other = timeline(workload, law), timeline(workload, law, model=latency_bandwidth)
    assert np.array_equal(ours.end_ps, other.end_ps)


@pytest.mark.property
@pytest.mark.parametrize("path", sorted(PROGRAMS.glob("*.txt")), ids=lambda path: path.stem)
def test_small_programs_end_as_with_latency_bandwidth(path):
    """Waits for any, persistent requests, probes and wildcards of small MPI programs. Where a collective goes on behind
    compute, which keeps the CPU from its messages here, it may only end later."""
    workload = simgrid_ti.read(path)
    text = path.read_text().lower()
    law = network(bandwidth="inf B/s", threshold="1 PB", loggops=None)
    ours, other = timeline(workload, law), timeline(workload, law, model=latency_bandwidth)
    if "ssend" in text:  # the sender ends with the receiver's start, not with the transfer
        assert ours.makespan_ps <= other.makespan_ps
    elif any(kind >= NONBLOCKING_COLLECTIVES.start for kind in workload.column("operations", "kind")):
        assert np.all(ours.end_ps >= other.end_ps)
        assert ours.makespan_ps <= other.makespan_ps + compute_per_operation(
            workload, workload.column("phases", "duration_ps")
        ).sum()  # fmt: skip
    else:
        assert np.array_equal(ours.end_ps, other.end_ps)


@pytest.mark.property
@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 3000)), max_size=25), st.booleans())
def test_random_exchanges(tmp_path_factory, messages, rendezvous):
    """Overheads only add time, and every message takes at least its overheads, latency and bytes."""
    folder = tmp_path_factory.mktemp("exchange")
    ranks = [
        "; ".join(
            [f"irecv {a} {tag} {size}" for tag, (a, b, size) in enumerate(messages) if b == rank]
            + [f"compute {100 * rank}"]
            + [f"isend {b} {tag} {size}" for tag, (a, b, size) in enumerate(messages) if a == rank]
            + ["waitall"]
        )
        for rank in range(4)
    ]
    workload = trace(folder, *ranks)
    law = network(threshold="0 B" if rendezvous else "1 MB")
    ours, ideal = timeline(workload, law), timeline(workload, ideal_network(law))
    sizes = workload.column("operations", "bytes")[workload.send_rows]
    assert np.all(ours.receive_ps - ours.send_ps >= (2 * o + L + G * np.maximum(sizes - 1, 0)) * NS)
    assert np.all(ours.end_ps >= ideal.end_ps)
    assert ideal.makespan_ps == 300 * NS


class TestErrors:
    def test_deadlock_names_rank_operation_and_partner(self, tmp_path):
        workload = trace(tmp_path, "recv 1 0 8; send 1 0 8", "recv 0 0 8; send 0 0 8")
        with pytest.raises(ReplayError, match=r"deadlock: 2 of 2 ranks.*rank 0, operation 1 waits for 8 B from rank 1"):
            timeline(workload)

    def test_deadlock_of_a_graph(self, tmp_path):
        body = "a: recv 8b from 1 tag 4\nb: calc 1\nb requires a\nc: calc 2\nsend 8b to 0"
        text = f"num_ranks 2\nrank 0 {{\n{body}\n}}\nrank 1 {{\n}}\n"
        with pytest.raises(ReplayError, match=r"rank 0, operation 0 waits for a message from rank 1 with tag 4"):
            timeline(schedule(tmp_path, text))

    def test_circle(self, tmp_path):
        """Of a workload that is no GOAL file, whose reader refuses one."""
        read = schedule(tmp_path, "num_ranks 1\nrank 0 {\na: calc 1\nb: calc 1\na requires b\n}\n")
        known = read.tables["dependencies"]
        turned = known.rename_columns(["rank", "requires", "operation_id", "on_start"]).select(known.column_names)
        both = {"dependencies": pa.concat_tables([turned, known]).sort_by("operation_id").cast(known.schema)}
        with pytest.raises(ReplayError, match="requires itself"):
            timeline(replace(read, tables={**read.tables, **both}))

    def test_message_that_nobody_receives(self, tmp_path):
        text = "num_ranks 2\nrank 0 {\na: calc 5\nb: calc 1\nsend 8b to 1 tag 3\nb irequires a\n}\nrank 1 {\n}\n"
        with pytest.raises(ReplayError, match="rank 0, operation 2 sends 8 B with tag 3 to rank 1, which never"):
            timeline(schedule(tmp_path, text))

    def test_other_models_refuse_a_graph(self, tmp_path):
        text = "num_ranks 2\nrank 0 {\na: calc 5\nb: send 8b to 1\nb irequires a\n}\nrank 1 {\nrecv 8b from 0\n}\n"
        with pytest.raises(WorkloadError, match="choose the network model loggops"):
            build_program(schedule(tmp_path, text), "mpich")

    def test_endless_message(self, tmp_path):
        with pytest.raises(ValueError, match="53 days"):
            timeline(trace(tmp_path, "send 1 0 999999999999", "recv 0 0 999999999999"), network("1 kB/s"))


def test_collectives_that_cost_a_formula(tmp_path):
    """A gate: all leave it the same time after the last has come."""
    workload = trace(tmp_path, "compute 100; barrier; compute 10", "compute 700; barrier", "barrier")
    program = build_program(workload, "dimemas")
    if not len(program.gate_size):
        pytest.skip("no preset with formulas")
    compute = compute_per_operation(workload, workload.column("phases", "duration_ps"))
    result = loggops.replay(program, compute, network(), Placement.one_per_node(3))
    other = latency_bandwidth.replay(program, compute, network(), Placement.one_per_node(3))
    assert np.array_equal(result.end_ps, other.end_ps)
    assert result.makespan_ps > 700 * NS


def test_a_long_queue_at_one_rank_keeps_the_order_of_arrival(tmp_path):
    """Messages that wait for a busy CPU are taken in as they arrived, whatever their number."""
    count = 200
    sends = "; ".join(["isend 0 0 10"] * count)
    workload = trace(tmp_path, "; ".join([f"compute {10**6}"] + ["recv -333 0 10"] * (2 * count)), sends, sends)
    result = timeline(workload)
    arrival = np.argsort(result.send_ps, kind="stable")
    received = result.receive_ps[arrival]
    assert np.all(np.diff(received) == (g + 9 * G) * NS)
    assert received[0] == (10**6 + o + 9 * G) * NS


def test_replaces_nothing_in_the_program(tmp_path):
    workload = schedule(tmp_path, "num_ranks 1\nrank 0 {\na: calc 5\nb: calc 1\nb requires a\n}\n")
    program = build_program(workload, "mpich")
    compute = compute_per_operation(workload, workload.column("phases", "duration_ps"))
    place = Placement.one_per_node(1)
    with_graph = loggops.replay(program, compute, network(), place)
    without = loggops.replay(replace(program, graph=None), compute, network(), place)
    assert with_graph.end_ps.tolist() == without.end_ps.tolist() == [5 * NS, 6 * NS]
