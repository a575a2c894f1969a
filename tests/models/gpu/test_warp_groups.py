"""Groups of four warps that multiply together, and barriers that some warps of a block come to (gpu_small.py)."""

from __future__ import annotations

import numpy as np
import pytest
from gpu_programs import Instruction, launch, other
from gpu_small import DEPENDENT, chain, cycles, gpu

from manyscale.models.gpu import detailed
from manyscale.models.gpu.matrix.timing import timing
from manyscale.models.gpu.parameters import Gpu
from manyscale.models.workload.asynchronous import (
    ARRIVES,
    ARRIVES_ONLY,
    BEGINS,
    IN_WORDS,
    MEETS,
    NAMED,
    THREADS_SHIFT,
    WAITS,
    amounts,
    first_word,
)
from manyscale.models.workload.launch_trace import UnitClass
from manyscale.runner.study.targets import shipped_content

PRODUCT = 100  # cycles
UNITS = {"tensor": {"latency": f"{PRODUCT} cycles", "interval": f"{PRODUCT} cycles"}}
MEET = Instruction(UnitClass.branch, opcode="WARPGROUP.ARRIVE")
GROUP = 4
MULTIPLY = Instruction(UnitClass.tensor, 2, (2,), opcode="HGMMA.64x256x16.F32", immediate=1)


def await_products(groups: int = 0) -> Instruction:
    return Instruction(UnitClass.branch, opcode="WARPGROUP.DEPBAR.LE", immediate=groups)


def named(number: int, threads: int, arrives: bool = False) -> Instruction:
    immediate = NAMED | number | threads << THREADS_SHIFT | (ARRIVES_ONLY if arrives else 0)
    return Instruction(UnitClass.barrier, opcode="BAR.ARV" if arrives else "BAR.SYNC", immediate=immediate)


def in_words(number: int, threads: int, arrives: bool = False) -> Instruction:
    """The same where registers say which."""
    words = (first_word(MEETS, 1, number, int(arrives)), threads)
    immediate = IN_WORDS | (ARRIVES_ONLY if arrives else 0)
    return Instruction(UnitClass.barrier, opcode="BAR.SYNC", immediate=immediate, operation=words)


@pytest.mark.theory
@pytest.mark.parametrize("length", [10, 40])
def test_a_product_waits_for_the_last_of_its_four_warps(length):
    """Three are there at once; what they do behind the product comes after the fourth one's chain, too."""
    behind = [MEET, MULTIPLY, await_products(), *chain(50)]
    late = [*chain(length), Instruction(sources=(2,)), MEET, MULTIPLY, await_products()]
    found = cycles([[behind, behind, behind, late]], gpu(units=UNITS))
    none = cycles([[behind] * 4], gpu(units=UNITS))
    assert found - none == pytest.approx(length * DEPENDENT, abs=2)
    # the fifth warp is of another group, which does not wait for it
    alone = cycles([[*[behind] * 4, late, *[[MEET, MULTIPLY, await_products()]] * 3]], gpu(units=UNITS))
    assert alone == pytest.approx(none, abs=4)


@pytest.mark.theory
def test_two_groups_take_turns_on_the_tensor_cores():
    of_one = [MEET, *[MULTIPLY] * 6, await_products()]
    one, two = (cycles([[of_one] * GROUP * groups], gpu(units=UNITS)) for groups in (1, 2))
    assert two - one == pytest.approx(6 * PRODUCT, abs=2)


@pytest.mark.theory
@pytest.mark.parametrize("meet", [named, in_words])
def test_a_barrier_for_some_warps_does_not_wait_for_others(meet):
    some = [meet(1, 64), *chain(100)]
    late = [*chain(20), Instruction(sources=(2,)), meet(1, 64), *chain(100)]
    busy = chain(110)
    assert cycles([[some, late, busy]]) - cycles([[some, some, busy]]) == pytest.approx(10 * DEPENDENT, abs=6)
    # all of the block would wait for the third, which never comes; this one it waits for by ending
    assert cycles([[[other(UnitClass.barrier), *chain(100)]] * 2 + [busy]]) >= 209 * DEPENDENT


@pytest.mark.theory
@pytest.mark.parametrize("meet", [named, in_words])
def test_an_arrival_holds_nobody_up(meet):
    """One arrives and goes on; the other waits for it."""
    waiting = [meet(2, 64), *chain(10)]
    arriving = [*chain(20), Instruction(sources=(2,)), meet(2, 64, True), *chain(50)]
    both = cycles([[waiting, arriving]])
    assert both == pytest.approx(cycles([[chain(70)]]), abs=4)
    early = [meet(2, 64, True), *chain(5)]
    late = [*chain(30), meet(2, 64), *chain(10)]
    assert cycles([[early, late]]) == pytest.approx(cycles([[chain(40)]]), abs=8)


def test_barriers_have_numbers_and_are_free_again():
    """Two pairs of warps meet by themselves, again and again; a third round of one is not taken for the other's."""
    first = [each for _ in range(5) for each in (*chain(3), named(1, 64))]
    second = [each for _ in range(5) for each in (*chain(9), named(2, 64))]
    assert cycles([[first, first, second, second]]) == pytest.approx(cycles([[second, second]]), abs=5)
    with pytest.raises(detailed.StuckError):
        cycles([[[named(1, 64)], chain(1)]])


def test_blocks_that_follow_find_barriers_as_they_begin():
    """An arrival that nobody waited for is none of the block that has the slot next."""
    left = [[named(3, 64, True)], chain(1)]
    meets = [[*chain(4), named(3, 64)], [*chain(20), named(3, 64)]]
    on = gpu(blocks=1)
    found, _ = detailed.simulate(launch([left, meets]), on)
    assert found.block_end[1] - found.block_begin[1] >= 20 * DEPENDENT


def test_a_barrier_behind_what_the_system_keeps_of_shared_memory():
    """Its offset counts from the begin of that: it may lie up to 1 KiB behind the block's own bytes."""
    times = []
    for place in (0, 1024 + 56):
        begin = Instruction(opcode="SYNCS.EXCH.64", operation=(first_word(BEGINS, 1, place), 2))
        arrive = Instruction(opcode="SYNCS.ARRIVE.TRANS64", operation=(first_word(ARRIVES, 1, place), amounts(1)))
        wait = Instruction(opcode="SYNCS.PHASECHK.TRANS64.TRYWAIT", operation=(first_word(WAITS, 0, place),))
        meet = other(UnitClass.barrier)
        block = [[begin, meet, arrive, wait], [meet, *chain(20), arrive]]
        times.append(detailed.simulate(launch([block] * 40, shared=64), gpu(sms=2))[0].block_end.tolist())
    assert times[0] == times[1]


# random programs beside a reference of some lines


def _program(rng: np.random.Generator, groups: int) -> list[list[tuple[str, int]]]:
    """For each group what all its warps do, ("chain", length) apart, which differs from warp to warp."""
    found = []
    for _ in range(groups):
        parts: list[tuple[str, int]] = []
        for _ in range(int(rng.integers(4, 9))):
            kind = ("chain", "multiply", "await", "named")[int(rng.integers(4))]
            parts.append((kind, int(rng.integers(0, 3)) if kind == "await" else 0))
        found.append([*parts, ("multiply", 0), ("await", 0)])
    return found


def _reference(program, lengths) -> float:
    """Cycles: each warp by itself, but for products (of four warps, one after the other on the tensor cores, those of
    a group that came first first) and barriers of four warps. What takes a cycle is left out."""
    free = 0.0
    time = np.zeros((len(program), GROUP))
    place = [0] * len(program)
    done: list[list[float]] = [[] for _ in program]
    while any(at < len(parts) for at, parts in zip(place, program, strict=True)):
        # the group whose next product begins first goes on: others cannot come before it
        waiting = [g for g in range(len(program)) if place[g] < len(program[g])]
        for g in waiting:
            while place[g] < len(program[g]) and program[g][place[g]][0] != "multiply":
                kind, value = program[g][place[g]]
                if kind == "chain":
                    time[g] += DEPENDENT * lengths[g][place[g]]
                elif kind == "named":
                    time[g] = time[g].max()
                elif len(done[g]) > value:
                    time[g] = np.maximum(time[g], done[g][len(done[g]) - value - 1])
                place[g] += 1
        able = [g for g in waiting if place[g] < len(program[g])]
        if able:
            g = min(able, key=lambda each: time[each].max())
            time[g] = time[g].max()
            free = max(free, time[g].max()) + PRODUCT
            done[g].append(free)
            place[g] += 1
    return float(time.max())


@pytest.mark.property
@pytest.mark.parametrize("seed", range(12))
def test_random_programs_of_groups_take_what_a_reference_says(seed):
    rng = np.random.default_rng(seed)
    program = _program(rng, 1 + seed % 2)
    lengths = [rng.integers(0, 40, (len(parts), GROUP)) for parts in program]
    warps = []
    for g, parts in enumerate(program):
        for w in range(GROUP):
            own: list[Instruction] = []
            for at, (kind, value) in enumerate(parts):
                if kind == "chain":
                    own += [*chain(int(lengths[g][at][w])), Instruction(sources=(2,))]
                elif kind == "multiply":
                    own += [Instruction(UnitClass.tensor, 3, (3,), opcode=MULTIPLY.opcode, immediate=1)]
                else:
                    own += [named(1 + g, 32 * GROUP) if kind == "named" else await_products(value)]
            warps.append(own)
    found = cycles([warps], gpu(units=UNITS))
    assert found == pytest.approx(_reference(program, lengths), rel=0.02, abs=60)


# products at the rates of the data sheet

H100 = Gpu.model_validate(shipped_content("h100")["node"]["gpu"])
PEAKS = {  # multiply-adds of an SM in a cycle: the whitepaper's Tflop/s over 132 SMs at 1830 MHz
    "HGMMA.64x{}x16.F32": 989.4e12 / 2 / 132 / 1830e6, "HGMMA.64x{}x16.F32.BF16": 989.4e12 / 2 / 132 / 1830e6,
    "HGMMA.64x{}x8.F32.TF32": 494.7e12 / 2 / 132 / 1830e6, "QGMMA.64x{}x32.F32.E4M3.E4M3": 1978.9e12 / 2 / 132 / 1830e6,
    "IGMMA.64x{}x32.S8.S8": 1978.9e12 / 2 / 132 / 1830e6,
}  # fmt: skip


@pytest.mark.theory
@pytest.mark.parametrize("a_in_registers", [False, True])
@pytest.mark.parametrize("opcode", list(PEAKS))
def test_products_of_all_shapes_reach_the_peak_or_what_shared_memory_gives(opcode, a_in_registers):
    """A step reads 32 bytes of each of 64 rows of A, unless they are in registers, and of each column of B."""
    peak = PEAKS[opcode]
    assert peak == pytest.approx(round(peak / 1024) * 1024, rel=0.03)
    for columns in range(8, 257, 8):
        name = opcode.format(columns)
        depth = int(name.split("x")[2].split(".")[0])
        work = 64 * columns * depth / peak
        read = 32 * (columns + (0 if a_in_registers else 64)) / 128
        found = timing(name, H100, a_in_registers)
        assert found is not None
        assert found.interval == pytest.approx(max(work, read, 13), rel=0.03, abs=0.5), columns


@pytest.mark.theory
@pytest.mark.parametrize(("columns", "in_registers"), [(256, False), (192, False), (128, False), (64, True)])
def test_a_stream_of_two_groups_runs_at_the_peak(columns, in_registers):
    """Of a block as kernels for Hopper have it: each group waits for the product before its last one."""
    sums = tuple(range(8, 12))
    opcode = f"HGMMA.64x{columns}x16.F32"
    sources = (*sums, 20, 21, 22, 23) if in_registers else sums
    each = Instruction(UnitClass.tensor, sums[0], sources, opcode=opcode, immediate=1)

    def taken(count):
        warp = [part for _ in range(count) for part in (MEET, each, await_products(1))]
        return cycles([[warp] * 2 * GROUP], H100)

    rate = 2 * 100 * 64 * columns * 16 / (taken(150) - taken(50))
    assert rate == pytest.approx(PEAKS["HGMMA.64x{}x16.F32"], rel=0.03)
