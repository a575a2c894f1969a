"""Caches filled with lines that were used before: as if each line had been touched, and coherent from then on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from node_memory import caches, flow, node, run_touch

from manyscale.models.node.memory.cache_rows import DIRTY, EMPTY, FLAG_BITS, SHARED
from manyscale.models.node.memory.directory import FREE, WORD_BITS
from manyscale.models.node.memory.system import INVALIDATED, MemorySystem, new_memory_system
from manyscale.runner.predict.node.cells.sampled_kernel import (
    SkippedLines,
    fill_skipped,
    skip_all,
    skipped_lines,
    touch_skipped,
)

pytestmark = pytest.mark.slow  # its kernels take half a minute to compile

LARGE = 1 << 16  # bytes: 64 sets of 16 lines, more than are used
MACHINES = {
    "private L1 and L2, shared L3": (4, 1, {"L1D": (LARGE, 16, 1), "L2": (LARGE, 16, 1), "L3": (LARGE, 16, 4)}),
    "private L1, shared L2": (4, 1, {"L1D": (LARGE, 16, 1), "L2": (LARGE, 16, 4)}),
    "one core": (1, 1, {"L1D": (LARGE, 16, 1), "L2": (LARGE, 16, 1), "L3": (LARGE, 16, 1)}),
    "two sockets": (4, 2, {"L1D": (LARGE, 16, 1), "L2": (LARGE, 16, 1), "L3": (LARGE, 16, 2)}),
}
several = pytest.mark.parametrize("machine", [name for name in MACHINES if name != "one core"])


def new_memory(machine: str) -> MemorySystem:
    cores, sockets, sizes = MACHINES[machine]
    return new_memory_system(node(cores, caches(sizes), sockets=sockets), cores)


@dataclass(frozen=True)
class Uses:
    """Instance k runs on ``core[k]`` and uses the lines ``lines[k]`` in order; ``written[k]``: which of them it
    writes."""

    core: list[int]
    lines: list[list[int]]
    written: list[list[bool]]

    def skipped(self, machine: str, own: tuple[int, ...] = ()) -> SkippedLines:
        """Of the lines ``own`` each core has its own."""
        cores = MACHINES[machine][0]
        line = np.concatenate(self.lines).astype(np.int32)
        ends = np.cumsum([0, *map(len, self.lines)])
        number = np.arange(line.max() + 1, dtype=np.int64)
        is_own = np.isin(number, own)
        lines = skipped_lines(ends, line, np.concatenate(self.written), number, cores, 10_000, 10_000, is_own)
        skip_all(lines, np.arange(len(self.core)), np.array(self.core))
        return lines

    def holders(self) -> dict[int, set[int]]:
        """Of each line who has it, as long as nothing leaves caches: whoever used it since it was written, the writer
        included."""
        found: dict[int, set[int]] = {}
        for core, lines, written in zip(self.core, self.lines, self.written, strict=True):
            for line, is_written in zip(lines, written, strict=True):
                found[line] = {core} if is_written else found.get(line, set()) | {core}
        return found

    def writer(self) -> dict[int, int]:
        """Of each line who holds it modified: it was not used by others since."""
        found: dict[int, int] = {}
        for core, lines, written in zip(self.core, self.lines, self.written, strict=True):
            for line, is_written in zip(lines, written, strict=True):
                if is_written:
                    found[line] = core
                elif found.get(line, core) != core:
                    del found[line]
        return found


def random_uses(machine: str, seed: int) -> Uses:
    random = np.random.default_rng(seed)
    count = 40
    lines = [random.permutation(300)[:20].tolist() for _ in range(count)]
    written = [(random.random(20) < 0.3).tolist() for _ in range(count)]
    return Uses(random.integers(0, MACHINES[machine][0], count).tolist(), lines, written)


def filled(machine: str, uses: Uses) -> MemorySystem:
    memory = new_memory(machine)
    fill_skipped(memory, uses.skipped(machine))
    return memory


def tags(memory: MemorySystem, level: int) -> list[list[list[int]]]:
    """Of each instance of a level and each set the tags, the latest first."""
    each = memory.level[level]
    shape = each["instances"], each["sets"], each["ways"]
    of_level = memory.tag[each["first"] : each["first"] + np.prod(shape)].reshape(shape)
    return [[[tag for tag in row if tag != EMPTY] for row in rows] for rows in of_level.tolist()]


def lines_of(memory: MemorySystem, level: int, flag: int = 0) -> list[list[list[int]]]:
    """As ``tags``, the lines; only those with a flag, if one is given."""
    return [
        [[tag >> FLAG_BITS for tag in row if not flag or tag & flag] for row in rows] for rows in tags(memory, level)
    ]


def directory_of(memory: MemorySystem) -> dict[int, tuple[int, set[int]]]:
    """Of each line whether several hold it and none has modified it, and who holds it."""
    found = {}
    for key, *words in memory.directory[memory.directory[:, 0] != FREE].tolist():
        groups = {w * WORD_BITS + bit for w, word in enumerate(words) for bit in range(WORD_BITS) if word >> bit & 1}
        found[key >> 1] = (key & 1, groups)
    return found


def private_lines(memory: MemorySystem, flag: int = 0) -> dict[int, set[int]]:
    """Of each line the cores whose own caches hold it."""
    found: dict[int, set[int]] = {}
    for level in range(memory.memory[0]["private"]):
        for core, rows in enumerate(lines_of(memory, level, flag)):
            for row in rows:
                for line in row:
                    found.setdefault(line, set()).add(core)
    return found


def whole(level: list[list[list[int]]]) -> list[set[int]]:
    """Without sets and order: what each instance holds."""
    return [{line for row in rows for line in row} for rows in level]


@pytest.mark.theory
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("seed", [0, 1])
def test_filling_leaves_what_touching_leaves(machine: str, seed: int) -> None:
    """Lines in the order of their use in the last private level; further out the same lines; who holds them and who
    modified them."""
    uses = random_uses(machine, seed)
    fill, touched, one_by_one = filled(machine, uses), new_memory(machine), new_memory(machine)
    touch_skipped(touched, uses.skipped(machine))
    core = np.repeat(uses.core, [len(each) for each in uses.lines])
    run_touch(one_by_one, core, np.concatenate(uses.lines).astype(np.int64), np.concatenate(uses.written))
    first = fill.memory[0]
    nearest = first["private"] - 1
    assert lines_of(fill, nearest) == lines_of(touched, nearest)
    for other in (touched, one_by_one):
        for level in range(nearest, first["levels"]):
            assert whole(lines_of(fill, level)) == whole(lines_of(other, level)), level
        assert directory_of(fill) == directory_of(other)
        shared = private_lines(fill, SHARED)
        for line, holders in private_lines(other, SHARED).items():
            assert holders <= shared.get(line, set())
    assert private_lines(fill, DIRTY) == private_lines(one_by_one, DIRTY)
    assert not fill.counts.any()


@pytest.mark.theory
@several
def test_lines_are_held_by_who_used_them_since_they_were_written(machine: str) -> None:
    """Written ones by the last writer alone, and modified, unless others read them later: then by all of them, and what
    was modified stands in the last level that they share."""
    uses = random_uses(machine, 2)
    fill = filled(machine, uses)
    holders, writer = uses.holders(), uses.writer()
    assert private_lines(fill) == holders
    assert {line: groups for line, (_, groups) in directory_of(fill).items()} == holders
    assert private_lines(fill, DIRTY) == {line: {core} for line, core in writer.items()}
    assert {line for line, (all_know, _) in directory_of(fill).items() if all_know} == {
        line for line, cores in holders.items() if len(cores) > 1
    }
    assert any(len(cores) == 1 for cores in holders.values())
    assert any(len(cores) > 1 for cores in holders.values())


@pytest.mark.theory
def test_what_is_read_after_it_was_written_is_modified_in_the_shared_level() -> None:
    """Core 0 writes lines 1 and 2, core 1 reads line 2: it has to be written back from the level that both share."""
    uses = Uses([0, 1], [[1, 2], [2]], [[True, True], [False]])
    for machine in ("private L1 and L2, shared L3", "private L1, shared L2"):
        fill = filled(machine, uses)
        last = fill.memory[0]["levels"] - 1
        assert whole(lines_of(fill, last)) == [{1, 2}]
        assert whole(lines_of(fill, last, DIRTY)) == [{2}]
        assert private_lines(fill, DIRTY) == {1: {0}}


@pytest.mark.theory
@several
def test_lines_of_which_each_core_has_its_own(machine: str) -> None:
    """Both cores write line 1, which is another one for each of them; line 2 goes to core 1."""
    uses = Uses([0, 1], [[1, 2], [1, 2]], [[True, True], [True, True]])
    fill, touched = new_memory(machine), new_memory(machine)
    fill_skipped(fill, uses.skipped(machine, own=(1,)))
    touch_skipped(touched, uses.skipped(machine, own=(1,)))
    assert private_lines(fill) == private_lines(touched)
    assert private_lines(fill, DIRTY) == private_lines(touched, DIRTY) == private_lines(fill)
    assert directory_of(fill) == directory_of(touched)
    assert sorted(sorted(cores) for cores in private_lines(fill).values()) == [[0], [1], [1]]
    assert private_lines(fill)[2] == {1}
    last = fill.memory[0]["levels"] - 1
    assert whole(lines_of(fill, last)) == whole(lines_of(touched, last))


@pytest.mark.known_gap
def test_what_another_socket_read_is_written_to_main_memory_late() -> None:
    """It is when the other socket reads it, so no cache has to write it back. After filling both last levels have."""
    uses = Uses([0, 2], [[1], [1]], [[True], [False]])
    fill, touched = filled("two sockets", uses), new_memory("two sockets")
    touch_skipped(touched, uses.skipped("two sockets"))
    assert whole(lines_of(fill, 2)) == whole(lines_of(touched, 2)) == [{1}, {1}]
    assert whole(lines_of(touched, 2, DIRTY)) == [set(), set()]
    assert whole(lines_of(fill, 2, DIRTY)) == [{1}, {1}]
    assert private_lines(fill, DIRTY) == private_lines(touched, DIRTY) == {}


@pytest.mark.known_gap
def test_touching_forgets_what_a_reader_wrote_before() -> None:
    """Written by an instance, read by a later one on the same core: modified, but only the last use is touched."""
    uses = Uses([0, 0], [[1], [1]], [[True], [False]])
    fill, touched = filled("two sockets", uses), new_memory("two sockets")
    touch_skipped(touched, uses.skipped("two sockets"))
    assert private_lines(fill, DIRTY) == {1: {0}}
    assert private_lines(touched, DIRTY) == {}


@pytest.mark.theory
@several
def test_a_store_takes_lines_from_all_who_have_them(machine: str) -> None:
    """Line 1 is modified by core 0, line 2 was read by cores 0 and 1. Core 1 stores to both: core 0 loses one line each
    time, and nobody else does."""
    fill = filled(machine, Uses([0, 1], [[1, 2], [2]], [[True, False], [False]]))
    for line in (1, 2):
        before = fill.counts[:, :, INVALIDATED].copy()
        flow(fill, 1, line, True, 100.0 * line)
        lost = fill.counts[:, :, INVALIDATED] - before
        assert lost.sum() == 1
        assert lost[0, fill.memory[0]["private"] - 1] == 1
        assert private_lines(fill)[line] == {1}
        assert directory_of(fill)[line] == (0, {1})
        assert private_lines(fill, DIRTY)[line] == {1}


@pytest.mark.theory
def test_a_store_on_another_socket_takes_lines_from_its_last_level() -> None:
    fill = filled("two sockets", Uses([0], [[1]], [[False]]))
    flow(fill, 2, 1, True)
    assert fill.counts[0, :, INVALIDATED].tolist()[:3] == [0, 1, 1]
    assert whole(lines_of(fill, 2)) == [set(), {1}]
    assert private_lines(fill) == {1: {2}}


@pytest.mark.theory
def test_the_latest_lines_stay_where_not_all_fit() -> None:
    """A second level of two lines a set, 64 sets: of lines 0, 64 and 128 of one set the first has to leave. The shared
    level has room for all."""
    sizes = {"L1D": (4096, 1, 1), "L2": (8192, 2, 1), "L3": (LARGE, 16, 2)}
    memory = new_memory_system(node(2, caches(sizes)), 2)
    lines = Uses([0], [[0, 64, 128]], [[False] * 3]).skipped("private L1 and L2, shared L3")
    fill_skipped(memory, lines)
    assert lines_of(memory, 1)[0][0] == [128, 64]
    assert lines_of(memory, 2)[0][0] == [128, 64, 0]
    assert {line: groups for line, (_, groups) in directory_of(memory).items()} == {64: {0}, 128: {0}}
