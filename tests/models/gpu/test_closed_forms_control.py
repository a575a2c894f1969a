"""Issue by control bits: each number is one that Huerta, Abaie Shoushtary, Cruz and González print ("Dissecting and
Modeling the Architecture of Modern GPU Cores", MICRO 2025: listings 1 and 4, tables 1 and 2, figure 4), or follows from
theirs by hand.
"""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
from gpu_controlled import FREE, UNITS, Sass, core, cycles, fadd, launch, load, load_shared, run, store

from manyscale.models.gpu import detailed
from manyscale.models.gpu.groups import simulate_in_groups
from manyscale.models.workload.asynchronous import NAMED, THREADS_SHIFT
from manyscale.models.workload.launch_trace import Access, Space, UnitClass
from manyscale.runner.run.execute.teams import in_threads

BRANCH = Sass("BRA 0x0", 5, unit=UnitClass.branch, writes=False)
BARRIER = Sass("BAR.SYNC 0x0", 5, unit=UnitClass.barrier, writes=False)
NOP = Sass("NOP", unit=UnitClass.int, writes=False)


def grows(of, few=6, many=16, target=None, warps=1):
    """Cycles that each of further instructions takes."""
    times = [cycles([[[*of] * n] * warps], target) for n in (few, many)]
    return (times[1] - times[0]) / (many - few)


def issued_after(first, target=None):
    """When what follows ``first`` is issued, with a chain behind that outlasts all of it."""
    return cycles([[[*first, *[fadd(4)] * 80]]], target)


# stall counters, yield


@pytest.mark.theory
@pytest.mark.parametrize("stall", [1, 2, 4, 6, 15])
def test_a_warp_goes_on_after_its_stall_counter(stall):
    """Whatever the operands: a count of 1 in a dependent chain is timed as a cycle each (and computes nonsense)."""
    assert grows([fadd(stall)]) == stall


@pytest.mark.theory
def test_yield_leaves_a_cycle_to_others():
    assert grows([fadd(1, yields=True)]) == 2
    assert grows([fadd(1, yields=True)], warps=2, target=core(schedulers=1)) == 2  # of two warps: both cycles are used
    assert grows([fadd(3, yields=True)]) == 3  # a longer stall has it in it


@pytest.mark.theory
def test_what_no_unit_has_takes_the_latency_of_others():
    special = Sass("S2R R1, SR_TID.X", 2, sets=0, unit=UnitClass.int)
    times = [cycles([[[special]]], core(core={**FREE, "other_latency": f"{each} cycles"})) for each in (24, 300)]
    assert times[1] - times[0] == 300 - 24


@pytest.mark.theory
def test_a_unit_of_half_a_warp_takes_every_other_cycle():
    assert grows([Sass("IADD3 R1, R2, R3, R5", unit=UnitClass.int)]) == 2


@pytest.mark.theory
@pytest.mark.parametrize("sets", [0, -1])
def test_a_unit_of_variable_latency_works_in_order(sets):
    """A compiler gives the first of two no counter where the second's tells of both; it takes its unit all the same."""
    target = core(units={**UNITS, "fp64": {"latency": "8 cycles", "interval": "16 cycles"}})
    first, second = (Sass(f"{text}, R2, R6", 2, sets=own, unit=UnitClass.fp64)
                     for text, own in (("DMUL R4", sets), ("DADD R8", 0)))  # fmt: skip
    pair = [first, second]
    short, long = (cycles([[pair * n]], target) for n in (6, 12))
    assert long - short == 6 * 2 * 16


@pytest.mark.theory
def test_the_youngest_warp_goes_first_and_on_to_its_end():
    """Figure 4 a: 32 instructions of each of four warps, the youngest first (here all are ready in the same cycle)."""
    blocks = [[[fadd(15 - k), *[fadd()] * 31]] for k in range(4)]
    ends = run(blocks, core(schedulers=1)).block_end.tolist()
    assert sorted(range(4), key=ends.__getitem__) == [3, 2, 1, 0]
    assert [a - b for a, b in itertools.pairwise(ends)] == [32] * 3  # 31 and EXIT


# dependence counters


@pytest.mark.theory
@pytest.mark.parametrize(
    ("width", "uniform", "latency"),
    [("", True, 29), (".64", True, 31), (".128", True, 35), ("", False, 32), (".64", False, 34), (".128", False, 38)],
)
def test_a_load_from_global_memory_is_waited_for(width, uniform, latency):
    """Table 2, of sectors side by side: 4, 8 and 16 of them."""
    sectors = tuple(range({"": 4, ".64": 8, ".128": 16}[width]))
    assert grows([load(width, uniform, sectors), fadd(waits=1)]) == latency + 1


@pytest.mark.theory
@pytest.mark.parametrize(
    ("width", "uniform", "latency"),
    [("", True, 23), (".64", True, 23), (".128", True, 25), ("", False, 24), (".64", False, 24), (".128", False, 26)],
)
def test_a_load_from_shared_memory_is_waited_for(width, uniform, latency):
    assert grows([load_shared(width, uniform), fadd(waits=1)]) == latency + 1


@pytest.mark.theory
@pytest.mark.parametrize(
    ("width", "uniform", "shared", "latency"),
    [("", True, False, 10), (".64", True, False, 12), (".128", True, False, 16), ("", False, False, 14),
     (".64", False, False, 16), (".128", False, False, 20), ("", True, True, 10), (".64", True, True, 12),
     (".128", True, True, 16), ("", False, True, 12), (".64", False, True, 14), (".128", False, True, 18)],
)  # fmt: skip
def test_what_a_store_reads_may_be_written_before_it_is_done(width, uniform, shared, latency):
    assert grows([store(width, uniform, shared), fadd(waits=1)]) == latency + 1


@pytest.mark.theory
@pytest.mark.parametrize(
    ("instruction", "latency"),
    [(load(sets=-1, reads=0), 11), (load(uniform=True, sets=-1, reads=0), 9), (load_shared(sets=-1, reads=0), 9)],
)
def test_the_address_of_a_load_may_be_written_before_it_is_there(instruction, latency):
    assert grows([instruction, fadd(waits=1)], 40, 80) == latency + 1


@pytest.mark.theory
@pytest.mark.parametrize(
    ("text", "written", "read"), [("LDC R4, c[0x0][0x160]", 26, 10), ("LDC R4, c[0x3][R2]", 29, 29)]
)
def test_loads_of_constants(text, written, read):
    of = {"unit": UnitClass.load_store, "space": Space.constant, "access": Access.load}
    assert grows([Sass(text, 2, sets=0, **of), fadd(waits=1)]) == written + 1
    assert grows([Sass(text, 2, reads=0, **of), fadd(waits=1)]) == read + 1


@pytest.mark.theory
@pytest.mark.parametrize("immediate", [0, NAMED | 1 | 64 << THREADS_SHIFT], ids=["whole_block", "named"])
def test_all_go_on_the_latency_of_a_barrier_after_the_last(immediate):
    meet = dataclasses.replace(BARRIER, immediate=immediate)
    early, late = [meet, fadd()] * 3, [*[fadd(4)] * 20, meet, fadd()] * 3
    times = [cycles([[early, late]], core(core={**FREE, "barrier_latency": f"{n} cycles"})) for n in (20, 50)]
    assert times[1] - times[0] == 3 * (50 - 20)


@pytest.mark.theory
@pytest.mark.parametrize("counter", [{}, {"sets": 0}, {"reads": 0}], ids=["none", "sets", "reads"])
@pytest.mark.parametrize("active", [32, 0])
def test_what_waits_for_the_counter_of_a_product_of_a_group(counter, active):
    """Until the product is done; one that no thread executes is no product."""
    product = Sass("HGMMA.64x64x16.F32 R24, gdesc[UR4], R24", unit=UnitClass.tensor, **counter)
    trace = launch([[[product, fadd(waits=1), *[fadd(4)] * 60]] * 4])
    of_product = np.array([trace.static.opcodes[row].startswith("HGMMA") for row in trace.static.opcode])
    trace = dataclasses.replace(trace, active=np.where(of_product[trace.instruction], active, 32).astype(np.uint8))
    units = [{**UNITS, "tensor": {"latency": f"{n} cycles", "interval": "1 cycle"}} for n in (100, 150)]
    times = [detailed.simulate(trace, core(units=each))[0].busy_cycles for each in units]
    assert times[1] - times[0] == (50 if counter and active else 0)


@pytest.mark.theory
def test_depbar_waits_until_so_many_are_left():
    """Figure 2: of two loads whose address a counter protects, DEPBAR.LE SB0, 0x1 waits for the first, which leaves 4
    cycles before the second."""
    loads = [load(sets=-1, reads=0)] * 2
    most = [Sass(f"DEPBAR.LE SB0, {n}", 4, unit=UnitClass.copy_wait, writes=False) for n in ("0x1", "0x0")]
    warm = [load(), fadd(waits=1)]
    one, none = (issued_after([*warm, *loads, each]) for each in most)
    assert none - one == 4


# registers


@pytest.mark.theory
@pytest.mark.parametrize(("x", "y", "bubbles"), [(19, 21, 0), (18, 21, 1), (18, 20, 2)])
def test_operands_of_one_bank_make_bubbles(x, y, bubbles):
    """Listing 1: 5, 6 and 7 cycles; without the second NOP the instruction behind is not held up."""
    first, second = Sass("FFMA R11, R10, R12, R14"), Sass(f"FFMA R13, R16, R{x}, R{y}")
    plain = issued_after([NOP, fadd(), fadd(), NOP])
    assert issued_after([NOP, first, second, NOP]) - plain == bubbles
    assert issued_after([NOP, first, second]) - issued_after([NOP, fadd(), fadd()]) == (0 if bubbles == 0 else bubbles)


@pytest.mark.theory
@pytest.mark.parametrize(
    ("texts", "each"),
    [
        (["FMUL R1, R2, R4"], 2),
        (["FMUL R1, R2, R3"], 1),
        (["FFMA R1, R2, R4, R6"], 3),
        (["FFMA R1, R2, R4, R5"], 2),
        (["FFMA R1, R2.reuse, R4.reuse, R6.reuse"], 1),
        (["FFMA R1, R2.reuse, R4, R6"], 2),
        (["FFMA R1, R2.reuse, R4, R6", "FFMA R1, R2, R4, R6"], 5),  # the second reads it and gives it up (example 1)
        (["FFMA R1, R2.reuse, R4, R6", "FFMA R1, R4, R2, R6"], 6),  # another place (examples 3 and 4)
        (["FFMA R1, R2.reuse, R4, R6", "FFMA R1, R3, R4, R6"], 4),  # another bank takes nothing away (example 3)
    ],
)
def test_the_operand_cache_spares_ports(texts, each):
    assert grows([Sass(text) for text in texts]) == each


@pytest.mark.theory
@pytest.mark.parametrize(
    ("text", "each"), [("FFMA R1, R2, R4, R5", 1), ("FFMA R1, R2, R4, R6", 2), ("FMUL R1, R2, R4", 1)]
)
def test_a_bank_that_reads_two_registers_a_cycle_is_short_for_three(text, each):
    assert grows([Sass(text)], target=core(core={**FREE, "register_ports": 2})) == each


@pytest.mark.theory
def test_the_operand_cache_is_of_one_warp():
    """Two warps in turn, which alone would go on after four cycles: each finds the other's operands."""
    alternating = [Sass("FFMA R1, R2.reuse, R4.reuse, R6.reuse", 4)]
    assert grows(alternating, warps=1) == 4
    assert grows(alternating, warps=2, target=core(schedulers=1)) == 6


# memory instructions


@pytest.mark.theory
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize(
    ("active", "issued"),
    [(1, [2, 3, 4, 5, 6, 13, 17, 21, 25]), (2, [2, 3, 4, 5, 6, 15, 19, 23, 27]),
     (3, [2, 3, 4, 5, 6, 17, 23, 29, 35]), (4, [2, 3, 4, 5, 6, 19, 27, 35, 43])],
)  # fmt: skip
def test_memory_instructions_by_active_schedulers(active, issued, shared):
    """Table 1, of the scheduler that is last."""
    one = dataclasses.replace(load_shared(sets=-1) if shared else load(sets=-1), stall=1)
    warm = [load(), fadd(2, waits=1), BARRIER]
    times = [cycles([[[*warm, *[one] * n, *[fadd(4)] * 80]] * active]) for n in (1, 5, 6, 7, 8, 9)]
    assert [time - times[0] for time in times] == [each - 2 for each in (issued[0], *issued[4:])]


# caches of instructions and constants

WARM = 79  # from the SM's cache, to which the launch has brought the code
COLD = 79 + 166
CACHED = {"core": {}}


@pytest.mark.theory
@pytest.mark.parametrize("lines", [1, 5, 9])
def test_straight_code_waits_for_its_first_line(lines):
    """The stream buffer brings eight more, one a cycle, and eight instructions of a line take eight cycles."""
    code = [fadd()] * (8 * lines - 1)
    assert cycles([[code]], core(**CACHED)) - cycles([[code]]) == WARM


@pytest.mark.theory
def test_a_stream_of_eight_lines_does_not_hide_all_of_long_code():
    """Line n + 8 is asked for when line n is, five instructions into the line before; two stages later it can issue."""
    few = {"core": {"l1_instruction_cache": {"size": "128 B", "ways": 1}}}  # that the launch can bring nothing to
    times = [cycles([[[fadd()] * (8 * lines)]], core(**few)) for lines in (28, 46)]
    assert times[1] - times[0] == 2 * (5 + COLD + 2)


@pytest.mark.theory
def test_code_behind_what_the_launch_brings_comes_from_l2():
    """A jump to the last line that an SM's cache of 32 lines holds when the launch begins, and to the next one."""
    small = {"core": {"l1_instruction_cache": {"size": "4 KiB", "ways": 32}}}
    near, far = (cycles([[jumping(to, 1)]], core(**small)) for to in (31, 32))
    assert far - near == COLD - WARM


def jumping(to, times):
    """Two instructions here and two at line ``to``, again and again."""
    here = [fadd(), BRANCH]
    there = [dataclasses.replace(fadd(), at=8 * to), BRANCH]
    return [
        dataclasses.replace(each, at=0) if k == 0 else each for _ in range(times) for k, each in enumerate(here + there)
    ]


@pytest.mark.theory
def test_code_that_nothing_fetched_ahead_is_waited_for():
    near, far = (cycles([[jumping(to, 3)]], core(**CACHED)) for to in (8, 9))
    assert far - near == WARM


@pytest.mark.theory
def test_code_beyond_a_schedulers_cache_comes_from_that_of_the_sm():
    """Two lines far apart, of a cache of one: each jump waits for the SM's cache."""
    small = {"core": {"l0_instruction_cache": {"size": "128 B", "ways": 1}, "prefetched": 1}}
    of_small, of_large = (
        [cycles([[jumping(20, n)]], core(**kind)) for n in (4, 14)] for kind in (small, CACHED)
    )  # fmt: skip
    assert (of_small[1] - of_small[0]) - (of_large[1] - of_large[0]) == 10 * 2 * 79


@pytest.mark.theory
@pytest.mark.parametrize("ways", [1, 8])
def test_code_larger_than_the_cache_runs_to_its_end(ways):
    """What the stream buffer brings takes no place of what is still needed: 40 lines by a cache of 8, twice, are
    fetched ahead of the warp each time."""
    loop = [dataclasses.replace(fadd(), at=8 * line + k) for _ in range(2) for line in range(40) for k in range(8)]
    small = {"upper_latency": "8 cycles", "memory_latency": "0 cycles",
             "l0_instruction_cache": {"size": f"{128 * 8} B", "ways": ways}}  # fmt: skip
    jump = 10 - 1 + 2 + 8 - 2  # redirect in place of a cycle; then the line from the SM's cache
    once, twice = (cycles([[loop[: 320 * n]]], core(core=small)) for n in (1, 2))
    assert 320 + 8 <= twice - once <= 320 + jump + 8


@pytest.mark.theory
def test_a_constant_is_waited_for_once():
    first = Sass("FADD R1, R2, c[0x0][0x160]")
    code = {"memory_latency": "166 cycles", "upper_latency": "79 cycles"}
    plain = [
        cycles([[[fadd()] * 3]], core(core=code)),
        cycles(
            [
                [[fadd(), first, fadd()]],
            ],
            core(core=code),
        ),
    ]
    assert plain[1] - plain[0] == COLD
    assert grows([first], target=core(core=code)) == 1
    assert grows([fadd(), first], target=core()) == 2


@pytest.mark.theory
def test_waits_for_code_and_constants_are_a_cause_of_their_own():
    def fetch(code, **target):
        return run([[code]], core(**target)).stack[detailed.CAUSES.index("fetch")]

    plain, constant = [fadd()] * 7, [fadd(), Sass("FADD R1, R2, c[0x0][0x160]"), *[fadd()] * 5]
    assert fetch(plain, **CACHED) - fetch(plain) == WARM
    assert fetch(constant, **CACHED) - fetch(plain, **CACHED) == COLD
    assert fetch([*plain, load(), fadd(2, waits=1)], **CACHED) == fetch(plain, **CACHED)


@pytest.mark.theory
def test_the_scheduler_waits_four_cycles_for_a_constant():
    """The youngest warp misses: the other one goes on after four cycles."""
    target = core(schedulers=1, core={**FREE, "upper_latency": "79 cycles"})
    other = [fadd(14), *[fadd()] * 40]
    with_constant = [fadd(14), Sass("FADD R1, R2, c[0x0][0x160]")]
    ends = [run([[other], [warp]], target).block_end[0] for warp in (with_constant, [fadd(14)])]
    assert ends[0] - ends[1] == 4 - 1  # (the other has EXIT to issue in place of it)


def test_groups_of_sms_and_strict_order_agree():
    """Where all blocks fit at once, nothing but the SMs' own time is at work."""
    body = [load(), fadd(2, waits=1), load_shared(), fadd(3, waits=1), BARRIER,
            store(), Sass("FADD R1, R2, c[0x0][0x160]"), fadd(waits=1)]  # fmt: skip
    trace, target = launch([[body * 5] * 3] * 8), core(sms=4, core={})
    strict = detailed.simulate(trace, target)[0]
    for count in (1, 2, 3):
        for found, _ in in_threads(count, lambda team: simulate_in_groups(trace, target, None, team)):
            assert (found.cycles, found.l1_misses) == (strict.cycles, strict.l1_misses)


@pytest.mark.theory
def test_without_bits_or_without_the_block_a_scoreboard_issues():
    with_bits = launch([[[fadd(3)] * 20]])
    without = dataclasses.replace(with_bits, static=dataclasses.replace(with_bits.static, details=None))
    cases = [(with_bits, core()), (with_bits, core(core=None)), (without, core()), (without, core(core=None))]
    bits, *others = [detailed.simulate(trace, target)[0].busy_cycles for trace, target in cases]
    assert others[0] == others[1] == others[2] != bits
