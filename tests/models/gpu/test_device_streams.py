"""Streams, copies and launches of one host, against closed forms.

The GPU is an RTX 3070 with links of 1 GB/s, so that a byte takes 1,000 ps, and copies have no latency. Launches are
made up: kernel K of n blocks takes what its blocks take.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from manyscale.models.gpu.device import program as device_program
from manyscale.models.gpu.device.hosts import Given
from manyscale.models.gpu.device.program import BlockTimes, LaunchKind, build
from manyscale.models.gpu.device.state import RESOURCES, Devices
from manyscale.models.gpu.parameters import Gpu
from manyscale.models.machine import Network
from manyscale.models.network.devices.model import replay_with_devices
from manyscale.models.network.program import build_program
from manyscale.models.network.replay.timeline import Placement
from manyscale.models.workload import Workload
from manyscale.models.workload.gpu_tables import GpuFlag, GpuOperationKind
from manyscale.runner.problems import load_yaml
from manyscale.runner.readers import simgrid_ti
from manyscale.runner.study.targets import shipped_targets

G = GpuOperationKind
BYTE = 1000  # ps on the links
US = 1_000_000
Operation = dict[str, int]


def gpu(engines: int = 2, host_call: str = "0 us") -> Gpu:
    content = load_yaml(shipped_targets()["rtx3070"])["node"]["gpu"]
    links = {
        "host_link": {"bandwidth": "1 GB/s", "engines": engines},
        "peer_link": {"bandwidth": "4 GB/s", "latency": "2 us"},
    }
    return Gpu.model_validate(content | links | {"host_call": host_call})


def launch(busy_ps: int, blocks: int = 46 * 4, warps: int = 12, use: float = 0.0, latency_ps: int = 0) -> LaunchKind:
    """By default 4 blocks of 12 warps fill each of 46 SMs at once; ``use``: of what SMs can issue while it runs."""
    at_peak = np.zeros(len(RESOURCES))
    at_peak[RESOURCES.index("issue")] = use * busy_ps
    return LaunchKind(blocks, warps, 0, 0, 48 // warps, latency_ps, busy_ps, at_peak)


def ranks(folder: Path, count: int = 1) -> Workload:
    path = folder / "actions.txt"
    path.write_text("".join(f"{rank} {what}\n" for rank in range(count) for what in ("init", "finalize")))
    return simgrid_ti.read(path)


def run(
    folder: Path,
    operations: Sequence[Operation],
    kinds: Sequence[LaunchKind] = (),
    on: Gpu | None = None,
    *,
    num_ranks: int = 1,
    ranks_share: bool = False,
    takes_ps: Sequence[int] | None = None,
) -> tuple[list[tuple[int, int]], Devices, np.ndarray]:
    """Start and end of each operation that is given to a stream, the devices, and when the hosts ended."""
    workload = ranks(folder, num_ranks)
    default = {"rank": 0, "row": -1, "stream": 0, "launch": -1, "bytes": 0, "event": 0, "gpu": 0, "peer": -1,
               "priority": 0, "flags": 0, "thread": 0}  # fmt: skip
    rows = [{**default, **each} for each in operations]
    columns = {name: np.array([row[name] for row in rows], np.int64) for name in (*default, "kind")}
    columns["flags"][columns["stream"] == 0] |= GpuFlag.default_stream
    given = Given(**columns)
    compute = np.zeros(workload.num_operations, np.int64)
    offsets = workload.rank_offsets
    known = None if takes_ps is None else np.array(takes_ps, np.int64)
    program = build(given, kinds, on or gpu(), offsets, compute, ranks_share=ranks_share, takes_ps=known)
    network = Network.model_validate(load_yaml(shipped_targets()["rtx3070"])["network"])
    result = replay_with_devices(
        build_program(workload, network.collectives), program, network, Placement.one_per_node(num_ranks)
    )
    found = result.devices.operation
    return list(zip(found["start"].tolist(), found["end"].tolist(), strict=True)), result.devices, result.rank_end_ps


def piece(stream: int, size: int = 1000) -> list[Operation]:
    """Copy in, kernel 0, copy out."""
    return [
        {"kind": G.copy_to_device, "stream": stream, "bytes": size},
        {"kind": G.launch, "stream": stream, "launch": 0},
        {"kind": G.copy_to_host, "stream": stream, "bytes": size},
    ]


DEVICE = [{"kind": G.synchronize_device}]


@pytest.mark.theory
def test_the_pipeline_of_copy_in_kernel_and_copy_out(tmp_path):
    """Of n pieces in n streams whose three parts take T each: (n + 2) T with an engine for each direction; in one
    stream 3 n T."""
    size = 1000
    kinds = [launch(size * BYTE)]
    n = 5
    pieces = [each for k in range(n) for each in piece(1 + k, size)]
    _, _, end = run(tmp_path, pieces + DEVICE, kinds)
    assert end.tolist() == [(n + 2) * size * BYTE]
    _, _, end = run(tmp_path, piece(1, size) * n + DEVICE, kinds)
    assert end.tolist() == [3 * n * size * BYTE]


@pytest.mark.theory
def test_one_engine_copies_in_both_directions_in_turn(tmp_path):
    """All copies go over it: 2 n T, where it never waits: what comes in first, then kernels and copies out."""
    size = 1000
    pieces = [each for k in range(5) for each in piece(1 + k, size)]
    _, devices, end = run(tmp_path, pieces + DEVICE, [launch(size * BYTE)], gpu(engines=1))
    assert end.tolist() == [2 * 5 * size * BYTE]
    assert np.count_nonzero(devices.engine) == 1


@pytest.mark.theory
def test_an_event_orders_two_streams(tmp_path):
    operations = [
        {"kind": G.copy_to_device, "stream": 1, "bytes": 500},
        {"kind": G.record_event, "stream": 1, "event": 7},
        {"kind": G.copy_to_device, "stream": 1, "bytes": 100},
        {"kind": G.wait_event, "stream": 2, "event": 7},
        {"kind": G.launch, "stream": 2, "launch": 0},
        {"kind": G.synchronize_event, "event": 7},
    ]
    times, _, end = run(tmp_path, operations, [launch(3 * US)])
    assert times[4] == (500 * BYTE, 500 * BYTE + 3 * US)
    assert end.tolist() == [500 * BYTE]  # the host does not wait for more


@pytest.mark.theory
def test_the_default_stream_waits_for_blocking_streams_and_they_for_it(tmp_path):
    operations = [
        {"kind": G.launch, "stream": 1, "launch": 0},
        {"kind": G.launch, "stream": 2, "launch": 0, "flags": GpuFlag.non_blocking},
        {"kind": G.copy_to_host, "stream": 0, "bytes": 100},
        {"kind": G.copy_to_device, "stream": 1, "bytes": 100},
        {"kind": G.copy_to_device, "stream": 2, "bytes": 50, "flags": GpuFlag.non_blocking},
    ]
    kinds = [launch(3 * US, blocks=46)]  # both fit at once
    times, _, _ = run(tmp_path, operations + DEVICE, kinds)
    back = 3 * US + 100 * BYTE
    assert times[2] == (3 * US, back)
    assert times[3] == (back, back + 100 * BYTE)
    assert times[4] == (3 * US, 3 * US + 50 * BYTE)  # after its own stream alone


@pytest.mark.theory
def test_a_host_waits_for_a_copy_that_says_so(tmp_path):
    _, _, end = run(tmp_path, [{"kind": G.copy_to_host, "bytes": 100, "flags": GpuFlag.waits}])
    assert end.tolist() == [100 * BYTE]
    _, _, end = run(tmp_path, [{"kind": G.copy_to_host, "bytes": 100}])
    assert end.tolist() == [0]


@pytest.mark.theory
@pytest.mark.parametrize("busy", [3, 8])
def test_a_host_takes_a_time_for_each_call(tmp_path, busy):
    """Short launches begin when they are given, 5 us after each other; long ones wait for those before them. The host
    comes to where it waits by a call, too."""
    count = 6
    operations = [{"kind": G.launch, "stream": 1, "launch": 0}] * count
    times, _, end = run(tmp_path, operations + DEVICE, [launch(busy * US)], gpu(host_call="5 us"))
    starts = [5 * US + k * max(5, busy) * US for k in range(count)]
    assert times[:count] == [(start, start + busy * US) for start in starts]
    assert end.tolist() == [max(5 * (count + 1) * US, starts[-1] + busy * US)]


def two_streams(kinds_of: Sequence[int], priorities: Sequence[int] = (0, 0, 0)) -> list[Operation]:
    return [
        {"kind": G.launch, "stream": 1 + k, "launch": kind, "priority": priorities[k]}
        for k, kind in enumerate(kinds_of)
    ]


@pytest.mark.theory
def test_launches_that_fit_together_take_what_the_longer_takes(tmp_path):
    """23 blocks of the one, 23 of the other: 46 SMs."""
    times, devices, end = run(
        tmp_path, two_streams([0, 1]) + DEVICE, [launch(4 * US, blocks=23), launch(7 * US, blocks=23)]
    )
    assert times == [(0, 4 * US), (0, 7 * US)]
    assert end.tolist() == [7 * US]
    assert devices.gpu["busy"].tolist() == [7 * US]
    assert devices.gpu["overlapped"].tolist() == [4 * US]


@pytest.mark.theory
def test_launches_that_fill_the_gpu_run_one_after_the_other(tmp_path):
    """As many warps as the SMs hold: the second finds room when the first ends."""
    times, _, _ = run(tmp_path, two_streams([0, 0]) + DEVICE, [launch(4 * US)])
    assert times == [(0, 4 * US), (0, 8 * US)]


@pytest.mark.theory
def test_the_last_wave_leaves_room_for_the_next_launch(tmp_path):
    """One and a half waves of blocks of 2 us, twice: three waves, and not four."""
    times, _, _ = run(tmp_path, two_streams([0, 0]) + DEVICE, [launch(4 * US, blocks=46 * 6)])
    assert times == [(0, 4 * US), (0, 6 * US)]


@pytest.mark.theory
def test_a_higher_priority_takes_the_room_that_comes_free(tmp_path):
    """Three waves of the first; the second, of one wave, comes before the first's second wave where its priority is
    higher, behind all of it else."""
    kinds = [launch(6 * US, blocks=3 * 46 * 4), launch(2 * US)]
    times, _, _ = run(tmp_path, two_streams([0, 1]) + DEVICE, kinds)
    assert times == [(0, 6 * US), (0, 8 * US)]
    times, _, _ = run(tmp_path, two_streams([0, 1], (0, -1)) + DEVICE, kinds)
    assert times == [(0, 8 * US), (0, 4 * US)]


@pytest.mark.theory
def test_launches_that_fit_and_ask_for_too_much_share_it(tmp_path):
    """Each issues 80 % of what the SMs can, with a quarter of the warps that fit: together they take 1.6 times as
    long."""
    kinds = [launch(5 * US, blocks=46, use=0.8)]
    times, _, _ = run(tmp_path, two_streams([0, 0]) + DEVICE, kinds)
    assert [end for _, end in times] == pytest.approx([8 * US] * 2, abs=10)


@pytest.mark.theory
def test_what_a_modest_launch_leaves_goes_to_the_other(tmp_path):
    """Of 100 % the one wants 20, the other 100: it gets 80, and the rest of its work at full speed."""
    kinds = [launch(4 * US, blocks=46, use=0.2), launch(10 * US, blocks=46, use=1.0)]
    times, _, _ = run(tmp_path, two_streams([0, 1]) + DEVICE, kinds)
    assert times[0][1] == pytest.approx(4 * US, abs=10)
    assert times[1][1] == pytest.approx(4 * US + (10 - 4 * 0.8) * US, abs=10)


@pytest.mark.theory
def test_eight_ranks_on_one_gpu_queue_and_share_it_where_they_are_let(tmp_path):
    """Launches of a block each: one rank's after the other's; all at once where ranks share the GPU."""
    operations = [
        each
        for rank in range(8)
        for each in ({"rank": rank, "kind": G.launch, "launch": 0}, {"rank": rank, "kind": G.synchronize_device})
    ]
    kinds = [launch(3 * US, blocks=1)]
    _, devices, end = run(tmp_path, operations, kinds, num_ranks=8)
    assert sorted(end.tolist()) == [3 * US * (k + 1) for k in range(8)]
    assert devices.gpu["overlapped"].tolist() == [0]
    _, devices, end = run(tmp_path, operations, kinds, num_ranks=8, ranks_share=True)
    assert end.tolist() == [3 * US] * 8


@pytest.mark.theory
def test_copies_between_gpus_go_over_the_peers_link(tmp_path):
    """4 GB/s and 2 us; two of one GPU in turn, those of another at the same time; inside a GPU twice over its DRAM."""
    size = 4000
    took = 2 * US + size * BYTE // 4
    operations = [
        {"kind": G.copy_on_device, "stream": 1, "bytes": size, "gpu": 0, "peer": 1},
        {"kind": G.copy_on_device, "stream": 2, "bytes": size, "gpu": 0, "peer": 2},
        {"kind": G.copy_on_device, "stream": 3, "bytes": size, "gpu": 1, "peer": 0},
        {"kind": G.copy_on_device, "stream": 4, "bytes": size, "gpu": 2, "peer": -1},
    ]
    times, _, _ = run(tmp_path, operations + DEVICE, [])
    assert times[:3] == [(0, took), (took, 2 * took), (0, took)]
    assert times[3][1] == pytest.approx(2 * size / 448.064e9 * 1e12, abs=1)


@pytest.mark.theory
def test_a_gpu_receives_one_copy_at_a_time_and_may_fetch_it_itself(tmp_path):
    """From 0 and 1 to 2 in turn; what 2 fetches from 0 waits for what 0 sends, and goes beside what 1 sends to 0."""
    took = 2 * US + 4000 * BYTE // 4
    copies = [(0, 2, 0), (1, 2, 0), (1, 0, 0)]
    operations = [
        {"kind": G.copy_on_device, "stream": k + 1, "bytes": 4000, "gpu": gpu, "peer": peer, "flags": flags}
        for k, (gpu, peer, flags) in enumerate(copies)
    ]
    times, _, _ = run(tmp_path, operations + DEVICE, [])
    assert times == [(0, took), (took, 2 * took), (2 * took, 3 * took)]
    operations[0] |= {"gpu": 2, "peer": 0, "flags": GpuFlag.from_peer}
    times, _, _ = run(tmp_path, operations + DEVICE, [])
    assert times == [(0, took), (took, 2 * took), (2 * took, 3 * took)]


@pytest.mark.theory
def test_blocks_that_were_simulated_run_as_long_as_they_did(tmp_path):
    """Blocks of 1, 2, 3 and 10 us take an SM each. Of the 44 of another launch, which take 4 us, 42 find an SM at once,
    and two when the first two of these end."""
    ends = np.array([1.0, 2.0, 3.0, 10.0]) * US
    known = BlockTimes(np.zeros(4), ends, np.arange(4, dtype=np.int32))
    kind = LaunchKind(4, 48, 0, 0, 1, 0, 10 * US, np.zeros(len(RESOURCES)), known)
    other = launch(4 * US, blocks=44, warps=48)
    times, _, _ = run(tmp_path, two_streams([0, 1]) + DEVICE, [kind, other])
    assert times == [(0, 10 * US), (0, 6 * US)]


@pytest.mark.theory
@pytest.mark.parametrize("takes_ps", [None, [10 * US] * 3], ids=["sharing", "known"])
def test_a_gpu_runs_no_more_launches_at_a_time_than_it_can(tmp_path, monkeypatch, takes_ps):
    """Two of three, whether what they take beside each other is known or not; the third begins behind them."""
    monkeypatch.setattr(device_program, "MOST_AT_ONCE", 2)
    gives = [{"kind": G.launch, "stream": 1 + k, "launch": 0} for k in range(3)]
    found, _, _ = run(tmp_path, gives, [launch(10 * US, blocks=46)], takes_ps=takes_ps)
    assert sorted(end for _, end in found) == [10 * US, 10 * US, 20 * US]
