"""Collectives that cost what a formula says: Dimemas' law, and gates in the replay.

Figures of Dimemas itself (git 4ab5099, one rank per node, 10 us, 1250 MB/s of 2**20 bytes): an allreduce of 1 MiB among
8 takes 1.62 ms with constant, 11.34 ms with linear and 4.86 ms with logarithmic fan-in and fan-out. By hand: a stage
takes L + S / B = 10 us + 800 us, twice, times 1, 7 and 3.
"""

from __future__ import annotations

import numpy as np
import pytest
from test_replay import US, ends, network, timeline, trace

from manyscale.models.machine import ideal_network
from manyscale.models.network.collectives.call import CollectiveCall
from manyscale.models.network.collectives.formulas import (
    FanModel,
    Formula,
    Gates,
    dimemas_formula,
    gate_cost_ps,
    participant_bytes,
)
from manyscale.models.network.program import build_program
from manyscale.models.network.replay.steps import ACTION, ENTER_GATE, WAIT_GATE
from manyscale.models.network.replay.timeline import ReplayError

MB_PER_S = "1310720000 B/s"  # 1250 MiB/s


def formula(model: str, **sizes: str) -> dict[str, object]:
    stages = {"fan_in": model, "fan_out": model} | sizes
    return {"preset": "dimemas", "rules": [{"collectives": ["allreduce", "alltoallv"], "formula": stages}]}


def cost(size: int, model: FanModel, num_bytes: int = 1000, buses: int = 0) -> int:
    """Cost in ps of one stage on a network of 10 us and 1 GB/s."""
    gates = Gates(
        np.array([size], np.int32), np.array([[model, FanModel.none]], np.uint8), np.array([[num_bytes, 10**9]])
    )
    return int(gate_cost_ps(gates, 10 * US, 1000.0, buses)[0])


@pytest.mark.golden
@pytest.mark.parametrize(("model", "expected_us"), [("constant", 1620), ("linear", 11340), ("logarithmic", 4860)])
def test_figures_of_dimemas(tmp_path, model, expected_us):
    workload = trace(tmp_path, *["allreduce 1048576 0 6"] * 8)
    assert ends(workload, network(bandwidth=MB_PER_S, preset=formula(model))) == [expected_us * US] * 8


@pytest.mark.theory
@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 8, 9, 64])
def test_factors(n):
    stage = 11 * US
    assert cost(n, FanModel.none) == 0
    assert cost(n, FanModel.constant) == stage
    assert cost(n, FanModel.linear) == (n - 1) * stage
    assert cost(n, FanModel.logarithmic) == int(np.ceil(np.log2(n))) * stage


@pytest.mark.theory
def test_buses_limit_the_messages_of_a_level():
    """Of 8 participants 4, 2 and 1 messages at once; of 6 they are 3, 1 (pairs 0-1 and 2-3) and 1."""
    stage = 11 * US
    assert [cost(8, FanModel.logarithmic, buses=b) // stage for b in (1, 2, 3, 4, 0)] == [7, 4, 4, 3, 3]
    assert [cost(6, FanModel.logarithmic, buses=b) // stage for b in (1, 2, 3)] == [5, 4, 3]
    assert cost(8, FanModel.linear, buses=1) == 7 * stage


@pytest.mark.theory
def test_bytes_of_a_participant():
    blocks = np.array([10, 0, 30])
    pairs = np.array([[0, 1, 2], [3, 0, 4], [5, 6, 0]])
    assert participant_bytes(CollectiveCall("barrier", 3)) == (0, 0)
    assert participant_bytes(CollectiveCall("bcast", 3, 1, 8)) == (8, 0)
    assert participant_bytes(CollectiveCall("iallreduce", 3, send_bytes=8)) == (8, 8)
    assert participant_bytes(CollectiveCall("gather", 3, 2, 8)) == (8, 24)
    assert participant_bytes(CollectiveCall("gatherv", 3, 2, receive_counts=blocks)) == (30, 40)
    assert participant_bytes(CollectiveCall("scatterv", 3, 1, send_counts=blocks)) == (40, 0)
    assert participant_bytes(CollectiveCall("allgatherv", 3, receive_counts=blocks)) == (30, 40)
    assert participant_bytes(CollectiveCall("reduce_scatter", 3, receive_counts=blocks)) == (40, 30)
    assert participant_bytes(CollectiveCall("alltoall", 3, send_bytes=8)) == (8, 24)
    assert participant_bytes(CollectiveCall("alltoallv", 3, send_counts=pairs)) == (11, 8)


@pytest.mark.theory
@pytest.mark.parametrize(
    ("size", "expected"),
    [
        ("current", (8, 25)),
        ("min", (8, 8)),
        ("max", (25, 25)),
        ("mean", (16, 16)),
        ("twice-max", (50, 50)),
        ("sum", (33, 33)),
    ],
)
def test_sizes_of_the_stages(size, expected):
    call = CollectiveCall("allgatherv", 3, receive_counts=np.array([8, 8, 9]))
    assert participant_bytes(call) == (9, 25)
    call = CollectiveCall("gatherv", 3, 1, receive_counts=np.array([8, 8, 9]))
    rule = Formula(fan_in="linear", fan_out="linear", fan_in_size=size, fan_out_size=size)
    assert rule.sizes(call) == expected


@pytest.mark.theory
def test_defaults_of_dimemas():
    assert dimemas_formula(CollectiveCall("reduce", 4)).models == (FanModel.constant, FanModel.constant)
    for kind in ("barrier", "iallreduce", "bcast"):
        assert dimemas_formula(CollectiveCall(kind, 4)).models == (FanModel.logarithmic, FanModel.logarithmic)


@pytest.mark.theory
class TestGates:
    def test_all_go_on_when_the_last_has_come_and_the_time_has_passed(self, tmp_path):
        ranks = [f"compute {1000 * r}; allreduce 984 0 6; compute 500; barrier" for r in range(4)]
        first = 3 * US + 4 * (10 * US + 800 * 984)
        assert ends(trace(tmp_path, *ranks), network(preset="dimemas")) == [first + US // 2 + 40 * US] * 4

    def test_non_blocking_ones_pass_while_the_rank_computes(self, tmp_path):
        """Rank 1 enters at 1 us and computes for 90 us, longer than the gate is closed: 1 us + 2 (10 us + 0.8 us)."""
        text = "compute {}; iallreduce 1000 0 6; compute {}; waitall 1"
        workload = trace(tmp_path, text.format(0, 5000), text.format(1000, 90000))
        assert ends(workload, network(preset="dimemas")) == [US + 2 * (10 * US + 800 * 1000), 91 * US]

    def test_gates_of_one_communicator_open_one_after_another(self, tmp_path):
        workload = trace(tmp_path, "barrier; barrier; compute 2000; barrier", "barrier; compute 1000; barrier; barrier")
        result = timeline(workload, network(preset="dimemas"))
        assert result.end_ps[workload.rank_offsets[0] + 1 :][:3].tolist() == [20 * US, 41 * US, 63 * US]

    def test_with_wildcards_around_them(self, tmp_path):
        """Rank 2 sends once the gate has opened, later than rank 1."""
        workload = trace(
            tmp_path,
            "barrier; recv -333 5 0; recv -333 5 0",
            "barrier; compute 1000; send 0 5 0",
            "compute 7000; barrier; compute 3000; send 0 5 0",
        )
        opened, message = 47 * US, 10 * US + 800 * 16
        assert timeline(workload, network(preset="dimemas")).end_ps[2:4].tolist() == [
            opened + US + message,
            opened + US + 2 * message,
        ]

    def test_program(self, tmp_path):
        workload = trace(tmp_path, *["bcast 100; barrier"] * 3)
        program = build_program(workload, "dimemas")
        assert (program.gate_size.tolist(), program.gate_bytes.tolist()) == ([3, 3], [[100, 0], [0, 0]])
        assert program.gate_model.tolist() == [[FanModel.logarithmic] * 2] * 2
        steps = program.step & ACTION
        assert np.count_nonzero(steps == ENTER_GATE) == np.count_nonzero(steps == WAIT_GATE) == 6
        assert program.num_messages == 0
        assert program.target[steps == ENTER_GATE].tolist() == [0, 1] * 3

    def test_ideal_network_leaves_the_wait_only(self, tmp_path):
        workload = trace(tmp_path, "compute 1000; barrier", "compute 4000; barrier")
        assert ends(workload, ideal_network(network(preset="dimemas"))) == [4 * US] * 2

    def test_deadlock_says_who_waits_for_the_others(self, tmp_path):
        workload = trace(tmp_path, "recv 1 0 8; barrier", "barrier; send 0 0 8", "barrier")
        with pytest.raises(
            ReplayError, match=r"rank 1, operation 1 waits for the others of its collective \(3 ranks\)"
        ):
            ends(workload, network(preset="dimemas"))

    def test_a_collective_that_never_ends_is_refused(self):
        with pytest.raises(ValueError, match="53 days"):
            cost(1 << 20, FanModel.linear, 10**12)
