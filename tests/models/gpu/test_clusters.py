"""Thread block clusters on a small GPU (gpu_small.py), by closed forms."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from gpu_programs import Instruction, integer, launch, load_shared, pieces
from gpu_small import BEGIN, DEPENDENT, FRONT, PIPELINE, SHARED, chain, gpu, read_before

from manyscale.models.gpu import detailed
from manyscale.models.gpu.clusters import cluster_order
from manyscale.models.gpu.occupancy import DoesNotFitError
from manyscale.models.gpu.parameters import Gpu
from manyscale.models.workload.asynchronous import (
    ARRIVES,
    BEGINS,
    COPIES,
    LOADS,
    STORES,
    WAITS,
    amounts,
    first_word,
    run_of_rows,
)
from manyscale.models.workload.launch_trace import Space, UnitClass
from manyscale.runner.study.targets import shipped_content

WAY = 60  # cycles between two SMs
SECTOR = 32
EXIT = 1 + PIPELINE - FRONT + 1
ARRIVE = Instruction(UnitClass.uniform, opcode="UCGABAR_ARV")
WAIT = Instruction(UnitClass.uniform, opcode="UCGABAR_WAIT")


def target(sms=2, gpcs=1, **more):
    return gpu(sms=sms, clusters={"latency": f"{WAY} cycles", "gpcs": gpcs}, **more)


def run(blocks, on=None, memory=None, cluster=(2, 1, 1), shared=1024):
    trace = dataclasses.replace(launch(blocks, shared=shared), cluster=cluster)
    return detailed.simulate(trace, on or target(), memory)[0]


def begins(barrier, arrivals):
    return Instruction(opcode="SYNCS.EXCH.64", operation=(first_word(BEGINS, 1, barrier), arrivals))


def arrives(barrier, arrivals=1, num_bytes=0, rank=None):
    first = first_word(ARRIVES, 1, barrier, 0, rank or 0, remote=rank is not None)
    return Instruction(opcode="SYNCS.ARRIVE.TRANS64", operation=(first, amounts(arrivals, num_bytes)))


def waits(barrier, parity=0):
    return Instruction(opcode="SYNCS.PHASECHK.TRANS64.TRYWAIT", operation=(first_word(WAITS, 0, barrier, parity),))


@pytest.mark.theory
@pytest.mark.parametrize("length", [5, 40])
def test_blocks_of_a_cluster_wait_for_each_other(length):
    """One computes before it arrives; the other hears of that a way later."""
    quick = [ARRIVE, WAIT]
    slow = [*chain(length), integer(3, 2), ARRIVE, WAIT]
    found = run([[quick], [slow]])
    # the last of the chain's results is read a cycle before the arrival; the block ends with what reads it
    arrival = BEGIN + length * DEPENDENT + 1
    assert found.block_end[0] == arrival + WAY + 1 + EXIT
    assert found.block_end[1] == max(BEGIN + WAY + 1 + EXIT, arrival + DEPENDENT)
    alone = run([[quick], [slow]], cluster=(1, 1, 1))
    assert alone.block_end[0] < found.block_end[0]


@pytest.mark.theory
def test_a_block_that_ends_is_not_waited_for():
    found = run([[[ARRIVE, WAIT]], [chain(30)]])
    assert found.block_end[0] - found.block_end[1] == pytest.approx(WAY, abs=DEPENDENT)


@pytest.mark.theory
def test_an_arrival_at_another_block_s_barrier_takes_a_way():
    waiting = [begins(0, 1), ARRIVE, WAIT, waits(0)]
    arriving = [ARRIVE, WAIT, arrives(0, rank=0)]
    stored = dataclasses.replace(
        arriving[-1], opcode="STAS", operation=(first_word(STORES, 1, 0, rank=0, remote=True), amounts(0, -64))
    )
    expecting = [begins(0, 1), arrives(0, 1, 64), ARRIVE, WAIT, waits(0)]
    for first, second in ((waiting, arriving), (expecting, [ARRIVE, WAIT, stored])):
        found = run([[first], [second]])
        # both go on at about the same time; then one arrives, and the other reads the barrier
        assert found.block_end[0] - found.block_end[1] == pytest.approx(WAY + SHARED, abs=6)


@pytest.mark.theory
@pytest.mark.parametrize("words", [1, 4])
def test_loads_from_another_block_s_shared_memory(words):
    """A way each, and as many cycles for each word of the busiest bank as the target says."""
    interval = 9
    on = target()
    on = on.model_copy(update={"clusters": on.clusters.model_copy(update={"interval_cycles": interval})})

    def taken(count, space, cluster=(2, 1, 1)):
        each = dataclasses.replace(load_shared(2, words), sources=(2,), space=space)
        return run([[[each] * count], [chain(1)]], on, cluster=cluster).busy_cycles

    assert taken(20, Space.cluster) - taken(10, Space.cluster) == 10 * (FRONT + words * interval + WAY + 1)
    near = 10 * (FRONT + words + SHARED + 1)
    assert taken(20, Space.shared) - taken(10, Space.shared) == near
    assert taken(20, Space.cluster, (1, 1, 1)) - taken(10, Space.cluster, (1, 1, 1)) == near


def multicast(ranks, start, sectors, rank=0):
    words = (
        first_word(COPIES, 3, 0, LOADS, rank),
        ranks << 32 | sectors * SECTOR,
        *run_of_rows(start, sectors * SECTOR),
    )
    return Instruction(UnitClass.uniform, opcode="UTMALDG.2D.MULTICAST", operation=words)


@pytest.mark.theory
def test_a_multicast_reads_l2_once_and_serves_all_blocks_at_once():
    """Each of two blocks loads half for both, or all for itself."""
    half, memory = 64, read_before(list(range(128)), target())

    def block(rank, *copies):
        return [[begins(0, 1), arrives(0, 1, 2 * half * SECTOR), ARRIVE, WAIT, *copies, waits(0)]]

    shared = run([block(k, multicast(3, k * half * SECTOR, half, k)) for k in range(2)], memory=memory)
    memory = read_before(list(range(128)), target())
    own = run([block(k, multicast(1 << k, 0, 2 * half, k)) for k in range(2)], memory=memory)
    assert (shared.l2_accesses, own.l2_accesses) == (2 * half, 4 * half)
    assert shared.cycles < own.cycles
    assert abs(int(shared.block_end[0]) - int(shared.block_end[1])) <= 4


@pytest.mark.parametrize(
    ("grid", "cluster"), [((12, 1, 1), (2, 1, 1)), ((3, 4, 1), (1, 2, 1)), ((12, 1, 1), (1, 1, 1))]
)
def test_pieces_that_cut_clusters_take_what_the_whole_takes(grid, cluster):
    def block(k):
        return [[begins(0, 1), arrives(0, 1, 96), ARRIVE, WAIT, multicast(1 << k % 2, 96 * k, 3, k % 2), waits(0)]]

    blocks = [[[*warp, *chain(5 + 3 * (k % 5))] for warp in block(k)] for k in range(12)]
    if cluster == (1, 1, 1):
        blocks = [[[*warp[:2], multicast(1, 96 * k, 3), *warp[5:]] for warp in each] for k, each in enumerate(blocks)]
    trace = dataclasses.replace(launch(blocks, shared=1024), grid=grid, cluster=cluster)
    on = target(blocks=2)
    expected = detailed.simulate(trace, on)[0]
    assert expected.l2_accesses == 12 * 3
    for each in (1, 5):
        found = detailed.simulate_pieces(pieces(trace, each), on)[0]
        assert found.cycles == expected.cycles
        assert found.block_end.tolist() == expected.block_end.tolist()


def test_clusters_of_all_shapes_are_given_out_together():
    order = cluster_order((4, 4, 1), (2, 2, 1))
    assert order.tolist()[:8] == [0, 1, 4, 5, 2, 3, 6, 7]
    assert sorted(order.tolist()) == list(range(16))
    blocks = [[[ARRIVE, WAIT, *chain(5 + k)]] for k in range(16)]
    trace = dataclasses.replace(launch(blocks), grid=(4, 4, 1), cluster=(2, 2, 1))
    on = target(sms=4, gpcs=2, blocks=2)  # a GPC of two SMs holds one cluster
    found = detailed.simulate(trace, on)[0]
    for first in range(0, 16, 4):
        members = order[first : first + 4]
        assert len(set(found.block_begin[members].tolist())) == 1
        assert set(found.block_sm[members].tolist()) in ({0, 1}, {2, 3})
    assert np.all(found.block_end > 0)


def test_a_cluster_that_no_gpc_holds_is_refused():
    with pytest.raises(DoesNotFitError, match="a cluster of 4 blocks"):
        run([[chain(2)]] * 4, target(sms=2, gpcs=2, blocks=1), cluster=(4, 1, 1))
    with pytest.raises(DoesNotFitError, match="no GPU runs more than 16"):
        run([[chain(2)]] * 32, target(sms=2, blocks=16), cluster=(32, 1, 1))
    with pytest.raises(DoesNotFitError, match="33 blocks of clusters on an SM"):
        run([[chain(2)]] * 66, target(sms=2, blocks=33, warps=64, threads=2048), cluster=(2, 1, 1))


@pytest.mark.property
@pytest.mark.parametrize("seed", range(6))
def test_blocks_of_random_clusters_pass_their_barrier_together(seed):
    """A reference of a line: who meets goes on when the last of the cluster has come, which is a way off."""
    rng = np.random.default_rng(seed)
    size, rounds = int(rng.integers(2, 5)), int(rng.integers(1, 4))
    lengths = rng.integers(1, 60, (rounds, size))
    blocks = [
        [[part for k in range(rounds) for part in (*chain(int(lengths[k, b])), integer(3, 2), ARRIVE, WAIT)]]
        for b in range(size)
    ]
    found = run(blocks, target(sms=size), cluster=(size, 1, 1))
    time = np.zeros(size)
    for k in range(rounds):
        come = time + DEPENDENT * lengths[k]
        others = np.array([np.delete(come, b).max() for b in range(size)])
        time = np.maximum(come, others + WAY)
    taken = found.block_end - found.block_begin
    assert np.abs(taken - time - BEGIN - EXIT).max() <= 12 * rounds
    # nobody is through before the last one has come
    late = np.arange(size) != lengths[0].argmax()
    assert (taken >= DEPENDENT * lengths[0].max() + WAY * late).all()


@pytest.mark.parametrize(("size", "together"), [(2, 66), (4, 32)])
def test_as_many_clusters_stand_side_by_side_as_whole_tpcs_hold(size, together):
    """66 TPCs of two SMs are six GPCs of 8 and two of 9, where each block fills an SM: clusters of four take two TPCs,
    of which one in each larger GPC is left. In GPCs of 17 SMs there would be no room for all."""
    on = Gpu.model_validate(shipped_content("h100")["node"]["gpu"])
    trace = dataclasses.replace(launch([[chain(300)]] * size * (together + 1), shared=200 << 10), cluster=(size, 1, 1))
    found = detailed.simulate(trace, on)[0]
    first = found.block_begin == found.block_begin.min()
    assert np.count_nonzero(first) == size * together
