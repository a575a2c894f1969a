"""Further instructions against exact arithmetic and PTX's definitions: double precision, global atomics, predicates,
memory of threads, jumps, and those that take no effect."""

from __future__ import annotations

import ctypes
import math
from fractions import Fraction

import numpy as np
import pytest
import sass_programs

from manyscale.models.workload.asynchronous import ARRIVES_ONLY, IN_WORDS, NAMED, THREADS_SHIFT
from manyscale.runner.tracers.cuda.sass import decode

pytestmark = pytest.mark.theory
_M = 0xFFFFFFFF
_WORDS = np.array([0, 1, 2, 3, 31, 32, 33, 127, 128, 255, 0x7FFFFFFF, 0x80000000, 0xFFFFFF80, 0xFFFFFFFF], np.uint32)
_DOUBLES = np.array([0.0, 1.0, -1.0, 1.5, 3.0, 1.7e308, -1.7e308, 5e-324, -1e-310, 2.3e-308, math.pi])
_SINGLES = np.array([0.0, -0.0, 0.5, -0.5, 1.5, 2.5, -2.5, 1e-45, 8388607.5, 8388609.0, -3.4e38, math.inf, math.nan],
                    np.float32)  # fmt: skip
_SET = "ISETP.NE.AND P{0}, PT, R{1}, RZ, PT"


def _pairs(edges: np.ndarray, count: int, seed: int) -> np.ndarray:
    """[n, count] of the edges' type: all pairs of edges in the first two columns, edges in the others."""
    first = np.array([[a, b] for a in edges for b in edges], edges.dtype)
    rest = np.random.default_rng(seed).choice(edges, (len(first), max(count - 2, 0)))
    return np.hstack([first[:, :count], rest])


def _signed(value: int) -> int:
    return value - (1 << 32) if value >> 31 else value


def _double(words: list[np.ndarray]) -> np.ndarray:
    return (words[0].astype(np.uint64) | words[1].astype(np.uint64) << np.uint64(32)).view(np.float64)


def _split(values: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(values).view(np.uint32).reshape(len(values), -1)


def _nearest(exact: Fraction) -> float:
    try:
        return float(exact)  # rounds to nearest, ties to even
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


def test_fused_doubles_round_once(sass):
    random = np.random.default_rng(1)
    values = np.vstack(
        [_pairs(_DOUBLES, 3, 1), random.uniform(-1, 1, (300, 3)) * 2.0 ** random.uniform(-60, 60, (300, 3))]
    )
    values[-100:, 2] = -values[-100:, 0] * values[-100:, 1]  # what is left is the rounding of the product
    found = _double(sass_programs.run(sass, ["DFMA R24, R4, R6, R8"], [_split(values)]))
    for (a, b, c), each in zip(values, found, strict=True):
        exact = Fraction(a) * Fraction(b) + Fraction(c)
        assert each == _nearest(exact), (a, b, c)


@pytest.mark.parametrize(("name", "towards"), [("RM", -math.inf), ("RP", math.inf), ("RZ", 0.0)])
def test_doubles_round_where_they_should(sass, name, towards):
    random = np.random.default_rng(2)
    values = random.uniform(-1, 1, (300, 3)) * 2.0 ** random.uniform(-40, 40, (300, 3))
    lines = [f"DFMA.{name} R24, R4, R6, R8", f"DADD.{name} R26, R4, R6"]
    found = sass_programs.run(sass, lines, [_split(values)])
    for (a, b, c), fused, total in zip(values, _double(found[:2]), _double(found[2:]), strict=True):
        for each, exact in ((fused, Fraction(a) * Fraction(b) + Fraction(c)), (total, Fraction(a) + Fraction(b))):
            goal = towards
            nearest = float(exact)
            passed = (
                Fraction(nearest) > exact
                if goal == -math.inf or (goal == 0 and exact > 0)
                else Fraction(nearest) < exact
            )
            assert each == (math.nextafter(nearest, goal) if passed else nearest)


@pytest.mark.parametrize(
    ("mode", "rounds"), [("", np.rint), (".FLOOR", np.floor), (".CEIL", np.ceil), (".TRUNC", np.trunc)]
)
def test_floats_become_whole_numbers(sass, mode, rounds):
    singles = np.hstack([_SINGLES, np.random.default_rng(3).uniform(-1e4, 1e4, 200).astype(np.float32)])
    doubles = singles.astype(float) + 1e-9
    lines = [f"FRND{mode} R24, R4", f"FRND.F64{mode} R26, R6"]
    found = sass_programs.run(sass, lines, [singles, np.zeros(len(singles), np.uint32), _split(doubles.reshape(-1, 1))])
    assert np.array_equal(found[0].view(np.float32), rounds(singles), equal_nan=True)
    assert np.array_equal(np.signbit(found[0].view(np.float32)), np.signbit(rounds(singles)))
    assert np.array_equal(_double(found[2:]), rounds(doubles), equal_nan=True)


@pytest.mark.parametrize(("name", "chosen"), [("MIN", np.fmin), ("MAX", np.fmax)])
def test_least_and_greatest_doubles(sass, name, chosen):
    """As fmin and fmax are compiled: the first where P0 holds, and the second as a quiet NaN where P1 does."""
    values = _pairs(np.array([*_DOUBLES, -0.0, math.inf, -math.inf, math.nan]), 2, 21)
    lines = [f"DSETP.{name}.AND P0, P1, R4, R6, PT", "SEL R24, R4, R6, P0", "FSEL R25, R5, R7, P0",
             "@P1 LOP3.LUT R25, R7, 0x80000, RZ, 0xfc, !PT", "SEL R26, RZ, 0x1, !P1"]  # fmt: skip
    found = sass_programs.run(sass, lines, [_split(values)])
    assert np.array_equal(_double(found), chosen(*values.T), equal_nan=True)
    assert np.array_equal(found[2], np.isnan(values).all(axis=1))


def test_sums_of_halves_of_a_word(sass):
    values = _pairs(_WORDS, 2, 22)
    found = sass_programs.run(sass, ["VIADD.16x2 R24, R4, -R5", "VIADD.16x2 R25, R4, 0x10001"], [values])
    a, b = (np.ascontiguousarray(values[:, k]).view(np.uint16).reshape(-1, 2) for k in (0, 1))
    assert np.array_equal(found[0].view(np.uint16).reshape(-1, 2), a - b)
    assert np.array_equal(found[1].view(np.uint16).reshape(-1, 2), a + np.uint16(1))


def test_singles_are_rounded_to_halves_towards_zero(sass):
    """What nvcc makes of ``__float2half_rz`` for sm_75; and products of halves that stay singles."""
    values = _pairs(_SINGLES, 2, 23)
    halves = np.random.default_rng(24).normal(0, 10, (len(values), 2)).astype(np.float16)
    lines = ["HADD2 R24, R4.F32, -RZ.H0_H0", "HADD2 R25, -RZ.H0_H0, |R5|.F32", "HMUL2.F32 R26, R6.H0_H0, R6.H1_H1",
             "HMUL2.F32.SAT R27, R6.H0_H0, R6.H1_H1"]  # fmt: skip
    found = sass_programs.run(sass, lines, [values.view(np.uint32), halves.view(np.uint32)])
    with np.errstate(all="ignore"):
        narrow = values.astype(np.float16)
        narrow = np.where(np.abs(narrow.astype(float)) > np.abs(values), np.nextafter(narrow, np.float16(0)), narrow)
    for result, expected in ((found[0], narrow[:, 0]), (found[1], abs(narrow[:, 1]))):
        assert np.array_equal((result & 0xFFFF).astype(np.uint16).view(np.float16), expected, equal_nan=True)
    product = halves[:, 0].astype(np.float32) * halves[:, 1].astype(np.float32)
    assert np.array_equal(found[2].view(np.float32), product)
    assert np.array_equal(found[3].view(np.float32), np.clip(product, 0, 1))


def test_bfloats_are_fused_and_rounded_once(sass):
    """A product half-way between two bfloat16s, and an addend far below it: a sum in double precision forgets it."""
    words = [(0x3F81, 0x3FC0, 0x0000), (0x3F81, 0x3FC0, 0x1000), (0x3F81, 0x3FC0, 0x9000), (0x3F83, 0x3FC0, 0x9000)]
    values = np.array([[a, b, c] for a, b, c in words], np.uint32)
    found = sass_programs.run(sass, ["HFMA2.BF16_V2 R24, R4, R5, R6"], [values])[0]
    for (a, b, c), each in zip(words, found, strict=True):
        exact = sum(math.prod(_bfloat(x) for x in pair) for pair in ((a, b), (c, 0x3F80)))
        near = [(abs(_bfloat(bits) - exact), bits & 1, bits) for bits in range(0x3F00, 0x4100)]
        assert int(each) & 0xFFFF == min(near)[2]


def _bfloat(bits: int) -> Fraction:
    return Fraction(float(np.array([bits << 16], np.uint32).view(np.float32)[0]))


def test_floats_are_chosen_by_a_predicate(sass):
    values = _pairs(_SINGLES, 3, 4).view(np.uint32)
    lines = ["ISETP.GE.AND P0, PT, R6, RZ, PT", "FSEL R24, R4, -R5, P0", "FSEL R25, |R4|, R5, !P0"]
    found = sass_programs.run(sass, lines, [values])
    holds = values[:, 2].view(np.int32) >= 0
    assert np.array_equal(found[0], np.where(holds, values[:, 0], values[:, 1] ^ np.uint32(1 << 31)))
    assert np.array_equal(found[1], np.where(~holds, values[:, 0] & np.uint32(0x7FFFFFFF), values[:, 1]))


def test_integers_become_floats_by_each_rounding(sass):
    values = np.hstack([_WORDS, np.random.default_rng(5).integers(0, 1 << 32, 300, np.uint32)])
    lines = ["I2FP.F32.U32 R24, R4", "I2FP.F32.S32 R25, R4", "I2FP.F32.U32.RP R26, R4", "I2FP.F32.S32.RZ R27, R4"]
    found = [each.view(np.float32) for each in sass_programs.run(sass, lines, [values])]
    assert np.array_equal(found[0], values.astype(np.float32))
    assert np.array_equal(found[1], values.view(np.int32).astype(np.float32))
    for value, up, inward in zip(map(int, values), found[2], found[3], strict=True):
        signed = _signed(value)
        assert Fraction(float(up)) >= value > Fraction(float(np.nextafter(up, np.float32(-1)))) or value == up == 0
        assert abs(Fraction(float(inward))) <= abs(signed)
        assert signed == 0 or abs(
            Fraction(float(np.nextafter(inward, np.float32(math.copysign(math.inf, signed)))))
        ) > abs(signed)


@pytest.mark.parametrize(
    ("kind", "least", "most"), [("U8", 0, 255), ("S8", -128, 127), ("U16", 0, 65535), ("S16", -32768, 32767)]
)
def test_integers_are_narrowed(sass, kind, least, most):
    values = np.hstack([_WORDS, np.random.default_rng(6).integers(0, 1 << 32, 300, np.uint32)])
    found = sass_programs.run(sass, [f"I2I.{kind}.S32.SAT R24, R4"], [values])[0]
    assert found.tolist() == [min(max(_signed(int(x)), least), most) & _M for x in values]


def test_floats_are_packed_as_bytes(sass):
    values = np.clip(_pairs(_SINGLES, 3, 7), -1e30, 1e30)
    values[:, 0] *= np.float32(100)
    found = sass_programs.run(sass, ["F2IP.S8.F32.NTZ R24, R4, R5, R6", "F2IP.U8.F32.NTZ R25, R4, R5, R6"], [values])
    for (least, most), result in zip(((-128, 127), (0, 255)), found, strict=False):
        for (a, b, _), c, each in zip(values, values[:, 2].view(np.uint32), result, strict=True):
            low, high = (0 if math.isnan(x) else int(min(max(np.rint(x), least), most)) & 255 for x in (b, a))
            assert int(each) == (int(c) << 16 | high << 8 | low) & _M


def _mask_of_bits(a: int, b: int, clamps: bool) -> int:
    """As PTX defines ``bmsk``."""
    first = (_M << (a & 31)) & _M if not clamps or a < 32 else 0
    too_far = (a & 31) + (b & 31) >= 32 or (clamps and (a >= 32 or b >= 32))
    behind = 0 if too_far else (_M << ((a & 31) + (b & 31))) & _M
    return first & ~behind & _M


def test_masks_of_bits(sass):
    values = _pairs(_WORDS, 2, 8)
    found = sass_programs.run(sass, ["BMSK R24, R4, R5", "BMSK.W R25, R4, R5"], [values])
    assert found[0].tolist() == [_mask_of_bits(int(a), int(b), True) for a, b in values]
    assert found[1].tolist() == [_mask_of_bits(int(a), int(b), False) for a, b in values]


def test_predicates_are_combined_by_tables(sass):
    values = np.array([[k >> 2 & 1, k >> 1 & 1, k & 1] for k in range(8)] * 4, np.uint32)
    first, second = 0x6A, 0xD1
    lines = [_SET.format(0, 4), _SET.format(1, 5), _SET.format(2, 6),
             f"PLOP3.LUT P3, P4, P0, P1, P2, {hex(first)}, {hex(second)}",
             f"PLOP3.LUT P5, PT, !P0, P1, PT, {hex(first)}, 0x0",
             "SEL R24, RZ, 0x1, !P3", "SEL R25, RZ, 0x1, !P4", "SEL R26, RZ, 0x1, !P5"]  # fmt: skip
    found = sass_programs.run(sass, lines, [values])
    index = 4 * values[:, 0] + 2 * values[:, 1] + values[:, 2]
    assert np.array_equal(found[0], first >> index & 1)
    assert np.array_equal(found[1], second >> index & 1)
    assert np.array_equal(found[2], first >> (4 * (1 - values[:, 0]) + 2 * values[:, 1] + 1) & 1)


def test_signs_of_registers_are_predicates(sass):
    values = _pairs(_WORDS, 3, 25)
    lines = ["PLOP3.LUT P0, PT, R4.SIGN, R5.reuse.SIGN, !R6.SIGN, 0xb2, 0x0", "SEL R24, RZ, 0x1, !P0"]
    found = sass_programs.run(sass, lines, [values])[0]
    a, b, c = (values[:, k] >> 31 for k in range(3))
    assert np.array_equal(found, 0xB2 >> (4 * a + 2 * b + (1 - c)) & 1)


def test_windows_of_generic_addresses(sass):
    """Shared and local windows begin at multiples of 2^32, as ``sass_programs.run`` lays them."""
    high = np.array([0x7E00, 0x7E01, 0x1234] * 11, np.uint32)
    values = np.column_stack([np.full(33, 0x40, np.uint32), high])
    lines = [f"QSPC.E.{space} P{k}, RZ, [R4]" for k, space in enumerate("SLG")]
    found = sass_programs.run(sass, [*lines, *(f"SEL R{24 + k}, RZ, 0x1, !P{k}" for k in range(3))], [values])
    for kind, each in enumerate(found[:3]):
        assert np.array_equal(each, np.arange(33) % 3 == kind)


def test_predicates_go_to_registers_and_back(sass):
    values = np.arange(128, dtype=np.uint32)
    lines = ["R2P PR, R4, 0x7f", "P2R R24, PR, RZ, 0x7f", "MOV R25, R4", "R2P PR, R25, 0x5", "P2R R25, PR, R4, 0x2",
             "SHF.L.U32 R5, R4, 0x8, RZ", "R2P PR, R5.B1, 0x7f", "P2R R26, PR, RZ, 0x7f"]  # fmt: skip
    found = sass_programs.run(sass, lines, [values])
    assert np.array_equal(found[0], values)
    assert np.array_equal(found[1], values)  # bit 1 from the predicates, the others from the register
    assert np.array_equal(found[2], values)


_ATOMIC = {
    "ADD": lambda old, a: old + a,
    "MIN": min,
    "MAX": max,
    "MIN.S32": lambda old, a: min(_signed(old), _signed(a)),
    "MAX.S32": lambda old, a: max(_signed(old), _signed(a)),
    "AND": lambda old, a: old & a,
    "OR": lambda old, a: old | a,
    "XOR": lambda old, a: old ^ a,
    "INC": lambda old, a: 0 if old >= a else old + 1,
    "DEC": lambda old, a: a if old == 0 or old > a else old - 1,
    "EXCH": lambda old, a: a,
}


@pytest.mark.parametrize("name", _ATOMIC)
def test_atomics_of_global_memory(sass, name):
    values = _pairs(_WORDS, 3, 9)
    values[:, 2] = values[:, 0]
    lines = [f"ATOMG.E.{name}.STRONG.GPU PT, R24, [R2.64], R5", "LDG.E R25, [R2.64]"]
    if name != "EXCH":
        lines += [f"RED.E.{name}.STRONG.GPU [R2.64+0x8], R5", "LDG.E R26, [R2.64+0x8]",
                  f"REDG.E.{name}.STRONG.GPU [R2.64+0x8], R5", "LDG.E R27, [R2.64+0x8]"]  # fmt: skip
    found = sass_programs.run(sass, lines, [values])
    expected = [_ATOMIC[name](int(old), int(a)) & _M for old, a, _ in values]
    assert np.array_equal(found[0], values[:, 0])
    assert found[1].tolist() == expected
    if name != "EXCH":
        assert found[2].tolist() == expected
        assert found[3].tolist() == [
            _ATOMIC[name](old, int(a)) & _M for old, a in zip(expected, values[:, 1], strict=True)
        ]


def test_atomics_compare_and_add_numbers(sass):
    values = _pairs(_WORDS[:6], 3, 10)
    lines = ["ATOMG.E.CAS.STRONG.GPU PT, R24, [R2.64], R5, R6", "LDG.E R25, [R2.64]",
             "ATOMG.E.CAS.64.STRONG.GPU PT, R26, [R2.64], R10, R12"]  # fmt: skip
    wide = np.hstack([values, np.zeros((len(values), 1), np.uint32)])
    found = sass_programs.run(sass, lines[:2], [wide])
    assert np.array_equal(found[0], values[:, 0])
    assert np.array_equal(found[1], np.where(values[:, 0] == values[:, 1], values[:, 2], values[:, 0]))
    singles = np.random.default_rng(11).normal(0, 100, (200, 2)).astype(np.float32)
    found = sass_programs.run(sass, ["RED.E.ADD.F32.FTZ.RN.STRONG.GPU [R2.64], R5", "LDG.E R24, [R2.64]"], [singles])
    assert np.array_equal(found[0].view(np.float32), singles[:, 0] + singles[:, 1])
    doubles = np.random.default_rng(12).normal(0, 100, (200, 2))
    found = sass_programs.run(
        sass, ["RED.E.ADD.F64.RN.STRONG.GPU [R2.64], R6", "LDG.E.64 R24, [R2.64]"], [_split(doubles)]
    )
    assert np.array_equal(_double(found[:2]), doubles[:, 0] + doubles[:, 1])


def test_generic_and_local_memory(sass):
    values = _pairs(_WORDS, 4, 13)
    lines = ["MOV R8, 0x40", "STL [R8], R4", "STL.U8 [R8+0x5], R5", "LDL R24, [R8]", "LDL.S8 R25, [R8+0x5]",
             "ST.E.U16 [R2.64+0x8], R5", "LD.E R26, [R2.64+0x8]", "LD.E.S16 R27, [R2.64+0x8]"]  # fmt: skip
    found = sass_programs.run(sass, lines, [values])
    low = (values[:, 1] & 0xFFFF).astype(np.uint16)
    assert np.array_equal(found[0], values[:, 0])
    assert np.array_equal(
        found[1], (values[:, 1] & 0xFF).astype(np.uint8).view(np.int8).astype(np.int32).view(np.uint32)
    )
    assert np.array_equal(found[2], (values[:, 2] & np.uint32(0xFFFF0000)) | low)
    assert np.array_equal(found[3], low.view(np.int16).astype(np.int32).view(np.uint32))


def test_constants_at_a_register(sass):
    values = np.arange(64, dtype=np.uint32).reshape(-1, 1)
    lines = ["MOV R5, 0x8", "LDC.64 R6, c[0x0][R5+0x158]", "LDG.E R24, [R6.64]", "LDC R25, c[0x0][0x0]",
             "LDC.U16 R26, c[0x0][R5+0x4]"]  # fmt: skip
    found = sass_programs.run(sass, lines, [values])
    assert set(found[0].tolist()) == {0}  # what the first parameter points to: the first thread's row
    assert set(found[1].tolist()) == {64}  # the block's threads
    assert set(found[2].tolist()) == {1}  # blocks of the grid


def test_copies_to_shared_memory_are_there_behind_their_wait(sass):
    values = _pairs(_WORDS, 2, 14)[:64]
    lines = ["SHF.L.U32 R6, R0, 0x3, RZ", "STS [R6], R0", "LDGSTS.E.64 [R6], [R2.64]", "LDGDEPBAR",
             "DEPBAR.LE SB0, 0x0",
             "LDS R24, [R6]", "LDS R25, [R6+0x4]", "ISETP.LT.U32.AND P0, PT, R0, 0x20, PT",
             "LDGSTS.E [R6], [R2.64], P0", "LDS R26, [R6]"]  # fmt: skip
    found = sass_programs.run(sass, lines, [values], shared_bytes=512)
    assert np.array_equal(np.column_stack(found[:2]), values)
    assert np.array_equal(found[2], np.where(np.arange(64) < 32, values[:, 0], 0))  # a false predicate stores zeros


def test_values_of_a_warp(sass):
    values = np.repeat(np.array([7, 9], np.uint32), 32)
    lines = ["R2UR UR4, R4", "UIADD3 UR5, UR4, 0x5, URZ", "MOV R24, UR5", "ISETP.EQ.AND P0, PT, R4, 0x9, PT",
             "VOTEU.ANY UR6, UPT, P0", "MOV R25, UR6", "S2UR UR7, SR_CTAID.X", "MOV R26, UR7",
             "CS2R R26, SRZ"]  # fmt: skip
    found = sass_programs.run(sass, lines, [values])
    assert found[0].tolist() == [12] * 32 + [14] * 32
    assert found[1].tolist() == [0] * 32 + [_M] * 32
    assert set(found[2].tolist()) | set(found[3].tolist()) == {0}


def test_lanes_that_take_no_part_give_zero(sass):
    values = np.arange(1, 33, dtype=np.uint32)
    lines = ["MOV R5, R4", "ISETP.LT.U32.AND P0, PT, R0, 0x8, PT", "@P0 SHFL.DOWN PT, R24, R5, 0x4, 0x1f",
             "@P0 SHFL.IDX PT, R25, R5, 0x10, 0x1f"]  # fmt: skip
    found = sass_programs.run(sass, lines, [values])
    assert found[0].tolist() == [5, 6, 7, 8] + [0] * 28
    assert found[1].tolist() == [0] * 32


def test_lanes_that_parted_meet_where_each_names_the_others(sass):
    """Two tiles of 16 lanes, whose lanes part without a barrier of convergence."""
    values = np.where(np.arange(32) < 16, 0xFFFF, 0xFFFF0000).astype(np.uint32)
    lines = [
        "LOP3.LUT R5, R0, 0x7, RZ, 0xc0, !PT",    # 0x30
        "ISETP.LT.U32.AND P0, PT, R5, 0x3, PT",
        "@P0 BRA 0x70",
        "IADD3 R24, R24, 0x1, RZ",
        "WARPSYNC R4",                            # 0x70
        "VOTE.ALL R25, PT, PT",
        "WARPSYNC.ALL",
        "VOTE.ALL R26, PT, PT",
    ]  # fmt: skip
    found = sass_programs.run(sass, lines, [values])
    assert found[0].tolist() == [int(k % 8 >= 3) for k in range(32)]
    assert all(int(found[1][k]) & int(values[k]) == values[k] for k in range(32))
    assert set(found[2].tolist()) == {_M}


def test_lanes_that_ended_are_not_waited_for_and_others_for_ever(sass):
    values = np.arange(32, dtype=np.uint32)
    lines = ["MOV R5, 0x1ff", "ISETP.LT.U32.AND P0, PT, R0, 0x8, PT", "ISETP.EQ.U32.AND P1, PT, R0, 0x8, PT",
             "@P1 EXIT", "@P0 WARPSYNC.EXCLUSIVE R5", "MOV R24, 0x1"]  # fmt: skip
    assert set(np.delete(sass_programs.run(sass, lines, [values])[0], 8).tolist()) == {1}
    del lines[3]
    with pytest.raises(sass_programs.StoppedError, match="waits for ever"):
        sass_programs.run(sass, [*lines[:-1], "BAR.SYNC 0x0"], [values])


@pytest.mark.parametrize("loop", [["BRA 0x30"], ["LDG.E R5, [R2.64]", "BRA 0x30"]])
def test_a_kernel_that_never_ends_stops_where_its_record_takes_too_much_memory(sass, tmp_path, loop):
    most = ctypes.c_uint64.in_dll(sass, "sass_most_recorded")
    most.value = 10**7
    try:
        with pytest.raises(sass_programs.StoppedError, match=r"block \(0,0,0\) takes more than 0\.0 GB of memory"):
            sass_programs.run(sass, loop, [np.arange(32, dtype=np.uint32)], record=tmp_path / "record")
    finally:
        most.value = 0


@pytest.mark.parametrize(("kind", "together", "parted"), [("DIV", 1, 2), ("CONV", 2, 1)])
def test_branches_of_parted_lanes(sass, kind, together, parted):
    """Lanes part at 0x50; all come to the branch at 0x60, and wait for each other behind it."""
    values = np.arange(32, dtype=np.uint32)
    lines = ["ISETP.LT.U32.AND P0, PT, R4, 0x8, PT", "NOP", "@P0 BRA 0x60", f"BRA.{kind} ~URZ, 0x90", "MOV R24, 0x1",
             "BRA 0xa0", "MOV R24, 0x2", "WARPSYNC.ALL"]  # fmt: skip
    assert set(sass_programs.run(sass, lines, [values])[0].tolist()) == {parted}
    assert set(sass_programs.run(sass, lines, [values + 8])[0].tolist()) == {together}


def test_one_lane_is_elected(sass):
    values = np.arange(64, dtype=np.uint32)
    lines = ["ISETP.LT.U32.AND P1, PT, R4, 0x3, PT", "@P1 EXIT", "ELECT P0, URZ, PT", "SEL R24, RZ, 0x1, !P0"]
    found = sass_programs.run(sass, [*lines[:2], "ELECT P0, URZ", lines[3]], [values])[0]
    assert np.flatnonzero(found).tolist() == [3, 32]  # the first of those that are left


@pytest.mark.parametrize(("kind", "reduce"), [("POPC", sum), ("AND", all), ("OR", any)])
@pytest.mark.parametrize("holds", [lambda k: k != 5, lambda k: k == 7, lambda k: True, lambda k: False])
def test_barriers_reduce_what_all_warps_say(sass, kind, reduce, holds):
    """And the result is the same for each, whatever a barrier behind it reduces."""
    said = [holds(k) for k in range(96)]
    lines = [_SET.format(0, 4), f"BAR.RED.{kind}.DEFER_BLOCKING 0x0, P0", "B2R.RESULT R24, P1", "SEL R25, RZ, 0x1, !P1"]
    found = sass_programs.run(sass, lines, [np.array(said, np.uint32)])
    place = 0 if kind == "POPC" else 1
    assert set(found[place].tolist()) == {int(reduce(said))}


def test_a_register_holds_number_and_threads_of_a_barrier(sass):
    """As nvcc 13 packs them for ``bar.sync a, b``: threads above bit 16. The last of three warps does not come to it,
    and waits for the second at another, where that arrives."""
    lines = [
        "MOV R8, 0x400003", "ISETP.LT.U32.AND P0, PT, R0, 0x40, PT", "ISETP.GE.U32.AND P1, PT, R0, 0x20, PT",
        "@P0 BAR.SYNC.DEFER_BLOCKING R8, R8", "MOV R9, 0x40", "PLOP3.LUT P2, PT, P0, P1, PT, 0x80, 0x0",
        "@P2 BAR.ARV 0x4, R9", "@!P0 BAR.SYNC.DEFER_BLOCKING 0x4, R9", "MOV R24, 0x7",
    ]  # fmt: skip
    assert set(sass_programs.run(sass, lines, [np.zeros(96, np.uint32)])[0].tolist()) == {7}
    texts = ["BAR.SYNC R8, R8", "BAR.SYNC 0x0", "BAR.SYNC 0xa, 0x100", "BAR.ARV 0x4, 0x80", "BAR.ARV 0x4, R9"]
    decoded = decode.decode(texts, [16 * k for k in range(5)], [0] * 5, 90)
    told = [IN_WORDS, 0, NAMED | 10 | 256 << THREADS_SHIFT, NAMED | ARRIVES_ONLY | 4 | 128 << THREADS_SHIFT,
            IN_WORDS | ARRIVES_ONLY]  # fmt: skip
    assert decoded.static.immediate.tolist() == told


def test_functions_return_to_where_they_were_called(sass):
    """Begins behind S2R, IMAD and one load, at 0x30."""
    values = np.arange(40, dtype=np.uint32)
    lines = [
        "MOV32I R24, 0x64",
        "LEPC R6",                                # 0x40
        "MOV R7, RZ",
        "IADD3 R6, R6, 0x40, RZ",                 # behind the call
        "CALL.REL.NOINC 0x90",                    # 0x70
        "BRA 0xc0",                               # 0x80
        "ISETP.LT.U32.AND P0, PT, R4, 0x5, PT",   # 0x90: the function
        "@P0 IADD3 R24, R24, R4, RZ",
        "RET.REL.NODEC R6 0x0",                   # 0xb0
        "IADD3 R24, R24, 0x1, RZ",                # 0xc0
    ]  # fmt: skip
    found = sass_programs.run(sass, lines, [values])[0]
    assert found.tolist() == [101 + k if k < 5 else 101 for k in range(40)]


def test_lanes_leave_a_barrier_of_convergence(sass):
    """A lane that breaks is not waited for; the register of a barrier can be kept and written back."""
    values = np.arange(32, dtype=np.uint32)
    lines = [
        "BSSY B0, 0xb0",                          # 0x30
        "BMOV.32.CLEAR R6, B0",
        "BMOV.32 B0, R6",
        "ISETP.LT.U32.AND P0, PT, R4, 0x8, PT",
        "@P0 BREAK B0",
        "@P0 BRA 0xc0",
        "IADD3 R24, R4, 0x1, RZ",
        "BSYNC B0",                               # 0xa0
        "VOTE.ALL R25, PT, PT",                   # 0xb0: of those that did not break
        "MOV R26, 0x1",                           # 0xc0
    ]  # fmt: skip
    found = sass_programs.run(sass, lines, [values])
    assert found[0].tolist() == [0] * 8 + list(range(9, 33))
    assert found[1].tolist() == [0] * 8 + [_M & ~0xFF] * 24
    assert set(found[2].tolist()) == {1}


def test_jumps_by_a_register(sass):
    values = np.arange(36, dtype=np.uint32) % 3
    lines = ["SHF.L.U32 R6, R4, 0x5, RZ", "BRX R6 0x0", "MOV R24, 0xa", "BRA 0xa0", "MOV R24, 0xb", "BRA 0xa0",
             "MOV R24, 0xc"]  # fmt: skip
    assert sass_programs.run(sass, lines, [values])[0].tolist() == [10, 11, 12] * 12


_WITHOUT_EFFECT = (
    "NOP", "MEMBAR.SC.GPU", "ERRBAR", "CCTL.IVALL", "DEPBAR.LE SB0, 0x1", "LDGDEPBAR", "WARPSYNC 0xffffffff", "YIELD",
    "FENCE.VIEW.ASYNC.S", "PREEXIT", "ACQBULK", "PMTRIG 0x1", "ENDCOLLECTIVE", "CGAERRBAR", "NANOSLEEP 0x64",
)  # fmt: skip


def test_instructions_that_change_no_value(sass):
    values = _pairs(_WORDS, 4, 15)
    before = [f"MOV R{24 + k}, R{4 + k}" for k in range(4)]
    found = sass_programs.run(sass, [*before, *_WITHOUT_EFFECT], [values])
    assert np.array_equal(np.column_stack(found), values)


def test_a_stack_may_reach_down_to_zero(sass):
    """What code of ``-Xptxas -O0`` compares its stack with."""
    found = sass_programs.run(sass, ["S2R R24, SR_LMEMHIOFF", "BPT.TRAP 0x1"][:1], [np.zeros(32, np.uint32)])[0]
    assert set(found.tolist()) == {0}


def test_a_trap_stops_the_launch(sass):
    with pytest.raises(sass_programs.StoppedError):
        sass_programs.run(sass, ["BPT.TRAP 0x1"], [np.zeros(32, np.uint32)])
