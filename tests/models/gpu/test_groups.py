"""Groups of SMs side by side: the same bytes for any number of them, and strict order's result where nothing but the
choice of blocks could differ."""

import dataclasses
import shutil
from pathlib import Path

import numpy as np
import pytest

from manyscale.models.gpu import detailed, groups_kernel
from manyscale.models.gpu.groups import simulate_in_groups
from manyscale.models.gpu.sm.state import NEVER
from manyscale.models.kernels import njit
from manyscale.models.kernels.shared_words import ABORT, WORDS, add_word, wait_for_all
from manyscale.runner.problems import load_yaml
from manyscale.runner.readers import accelsim
from manyscale.runner.run.execute.teams import in_threads
from manyscale.runner.study.targets import build_machine, shipped_targets

TRACES = Path(__file__).parents[2] / "data" / "gpu"


def gpu(**changes):
    content = load_yaml(shipped_targets()["rtx3070"])
    content["node"]["gpu"] |= changes
    return build_machine(content, "rtx3070").node.gpu


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    """Find one of the traces in tests/data/gpu."""

    def find(name):
        folder = tmp_path_factory.mktemp("trace")
        shutil.copy(next((TRACES / name).glob("kernel-1*.xz")), folder)
        return accelsim.read(folder).gpu.trace(1)

    return find


def is_equal(one, other):
    names = [field.name for field in dataclasses.fields(one)]
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in names)


def in_groups(launch, target, count):
    """What each of ``count`` members found."""
    return in_threads(count, lambda team: simulate_in_groups(launch, target, None, team))


@pytest.mark.parametrize("sms", [4, 46])
@pytest.mark.parametrize("name", ["bfs", "btree", "vectoradd"])
def test_any_number_of_groups(trace, name, sms):
    launch, target = trace(name), gpu(sms=sms)
    alone, memory = simulate_in_groups(launch, target)
    for count in (2, 3, 4, 5):  # with 4 SMs the fifth has nothing to do
        for together, same in in_groups(launch, target, count):
            assert is_equal(alone, together)
            assert np.array_equal(memory.tag, same.tag)


@pytest.mark.parametrize(("name", "sms", "tolerance"), [("bfs", 46, 0), ("btree", 46, 0), ("vectoradd", 46, 0.005),
                                                        ("vectoradd", 4, 0.005)])  # fmt: skip
def test_windows_and_strict_order(trace, name, sms, tolerance):
    """Blocks that are all resident at once: nothing is chosen, and the two are equal."""
    launch, target = trace(name), gpu(sms=sms)
    strict, _ = detailed.simulate(launch, target)
    windows, _ = in_groups(launch, target, 2)[0]
    assert windows.busy_cycles == pytest.approx(strict.busy_cycles, rel=tolerance, abs=0)
    if not tolerance:
        assert is_equal(strict, windows)


def test_launches_follow_each_other(trace):
    """L2 for the next launch is the same, whoever simulated the one before."""
    launch, target = trace("bfs"), gpu()
    _, strict = detailed.simulate(launch, target)
    _, groups = in_groups(launch, target, 3)[0]
    after_strict, _ = detailed.simulate(launch, target, strict)
    after_groups, _ = detailed.simulate(launch, target, groups)
    assert after_strict.l2_misses == 0
    assert is_equal(after_strict, after_groups)


def dealt(free, oldest, ended, num_blocks, expected=1):
    """Blocks that each SM gets."""
    sm, _ = groups_kernel.shared_for(np.zeros(len(free), np.int64), 1, 8)
    sm[:, groups_kernel.FREE_SLOTS], sm[:, groups_kernel.OLDEST] = free, oldest
    sm[:, groups_kernel.ENDED] = ended
    board = groups_kernel.board_for(num_blocks, len(free), 8, 100, 1000)
    board.word[groups_kernel.EXPECTED] = expected
    groups_kernel.deal(board, sm, num_blocks)
    return board, sm, [board.reserve[board.first[s] : board.first[s + 1]].tolist() for s in range(len(free))]


def test_free_slots_first_and_in_turn():
    assert dealt([2, 1, 2], [NEVER] * 3, [0] * 3, 5)[2] == [[0, 3], [1], [2, 4]]


def test_reserves_for_those_whose_oldest_block_began_first():
    assert dealt([0, 0, 0], [50, 10, 30], [0, 0, 0], 2)[2] == [[], [0], [1]]
    assert dealt([0, 0, 0], [50, 10, 30], [0, 3, 0], 5)[2] == [[0], [1, 3, 4], [2]]


def test_what_was_not_begun_is_dealt_again():
    board, sm, first = dealt([0, 0], [10, 20], [0, 0], 10)
    assert first == [[0], [1]]
    sm[:, groups_kernel.USED] = 0, 1  # SM 0 did not begin its block
    groups_kernel.deal(board, sm, 10)
    assert board.reserve[: board.first[2]].tolist() == [0, 2]


def test_blocks_that_nobody_gets_are_kept():
    board, sm, _ = dealt([0, 0], [10, 20], [4, 4], 10)  # 4 blocks each
    sm[:, groups_kernel.ENDED] = 0
    groups_kernel.deal(board, sm, 10)
    assert sorted(board.reserve[: board.first[2]].tolist()) == [0, 1]
    sm[:, groups_kernel.USED] = 1
    seen = []
    for _ in range(4):
        groups_kernel.deal(board, sm, 10)
        seen += sorted(board.reserve[: board.first[2]].tolist())
    assert seen == list(range(2, 10))


@njit(nogil=True)
def _count(words, total, count, rounds):
    for number in range(rounds):
        add_word(total, 0, 1)
        if not wait_for_all(words, count, 2 * number):
            return -1
        if total[0] != (number + 1) * count:  # all have come, and none has gone on
            return number
        if not wait_for_all(words, count, 2 * number + 1):
            return -1
    return rounds


def test_nobody_passes_a_barrier_before_all_have_come():
    words, total = np.zeros(WORDS, np.int64), np.zeros(1, np.int64)
    assert in_threads(3, lambda _: _count(words, total, 3, 500)) == [500] * 3


def test_a_barrier_that_is_aborted():
    words = np.zeros(WORDS, np.int64)
    words[ABORT] = 1
    assert _count(words, np.zeros(1, np.int64), 2, 1) == -1
