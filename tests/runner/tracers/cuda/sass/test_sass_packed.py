"""Instructions on several numbers in one register, against NumPy and Python's integers."""

from __future__ import annotations

import numpy as np
import pytest
import sass_programs

pytestmark = pytest.mark.theory
_HALVES = np.array([0, -0.0, 1, -1, 1.5, 65504, -65504, 6e-8, 1e-5, np.inf, -np.inf, np.nan], np.float16)


def _pairs(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Two float16[n, 2]: each pair of edge cases, and random numbers."""
    edges = np.array([[a, b] for a in _HALVES for b in _HALVES], np.float16)
    random = np.random.default_rng(seed).normal(0, 2, (2, 200, 2)).astype(np.float16)
    return np.vstack([edges[:, :1].repeat(2, 1), random[0]]), np.vstack([edges[:, 1:].repeat(2, 1), random[1]])


def _brain(bits: np.ndarray) -> np.ndarray:
    """bfloat16's values."""
    return (np.ascontiguousarray(bits).view(np.uint16).astype(np.uint32) << 16).view(np.float32)


def _run(sass, lines: list[str], *values: np.ndarray, words: dict[int, int] | None = None) -> list[np.ndarray]:
    return sass_programs.run(sass, lines, [np.ascontiguousarray(each).view(np.uint32) for each in values], words=words)


def _halves(words: np.ndarray, kind: type = np.float16) -> np.ndarray:
    return words.reshape(-1, 1).view(kind)


def _same(found: np.ndarray, expected: np.ndarray) -> bool:
    both = np.isnan(found) & np.isnan(expected)
    return bool(np.all(both | ((found == expected) & (np.signbit(found) == np.signbit(expected)))))


_HELD = {
    "LT": lambda a, b: a < b, "EQ": lambda a, b: a == b, "GEU": lambda a, b: ~(a < b), "NEU": lambda a, b: ~(a == b),
    "NE": lambda a, b: (a != b) & ~np.isnan(a) & ~np.isnan(b), "NAN": lambda a, b: np.isnan(a) | np.isnan(b),
}  # fmt: skip


@pytest.mark.parametrize("name", _HELD)
def test_comparisons_of_halves(sass, name):
    a, b = _pairs(1)
    lines = [f"HSETP2.{name}.AND P0, P1, R4, R5, PT", "SEL R24, RZ, 0x1, !P0", "SEL R25, RZ, 0x1, !P1",
             f"HSET2.BF.{name}.AND R26, R4, R5, PT", f"HSET2.{name}.AND R27, R4, R5, PT"]  # fmt: skip
    found = _run(sass, lines, a, b)
    held = _HELD[name](a, b)
    assert np.array_equal(np.column_stack(found[:2]), held)
    assert np.array_equal(_halves(found[2]), held.astype(np.float16))
    assert np.array_equal(_halves(found[3], np.uint16), held * 0xFFFF)
    found = _run(sass, [f"HSET2.BF16_V2.BF.{name}.AND R24, R4, R5, PT"], a, b)
    assert np.array_equal(_brain(_halves(found[0], np.uint16)), _HELD[name](_brain(a), _brain(b)))


def test_a_half_is_compared_with_a_number_in_the_instruction(sass):
    a, _ = _pairs(2)
    lines = ["HSETP2.GT.AND P0, PT, R4.H1_H1, 1.5, 1.5, PT", "SEL R24, RZ, 0x1, !P0"]
    assert np.array_equal(_run(sass, lines, a, words={0: 0x3E003E00})[0], a[:, 1] > 1.5)


def test_least_and_greatest_halves(sass):
    a, b = _pairs(3)
    a, b = (np.where(x == 0, np.abs(x), x) for x in (a, b))  # NumPy does not order zeros
    lines = ["HMNMX2 R24, R4, R5, PT", "HMNMX2 R25, R4, R5, !PT", "HMNMX2.NAN R26, R4, R5, !PT",
             "HMNMX2.BF16_V2 R27, R4, R5, PT"]  # fmt: skip
    found = _run(sass, lines, a, b)
    with np.errstate(invalid="ignore"):
        for result, expected in zip(found, (np.fmin(a, b), np.fmax(a, b), np.maximum(a, b)), strict=False):
            assert _same(_halves(result), expected)
        assert _same(_brain(_halves(found[3], np.uint16)), np.fmin(_brain(a), _brain(b)))


def test_sums_of_halves_as_singles(sass):
    a, b = _pairs(4)
    found = _run(sass, ["HADD2.F32 R24, -RZ, R4.H0_H0", "HADD2.F32 R25, R4.H1_H1, -R5.H0_H0"], a, b)
    with np.errstate(invalid="ignore"):
        assert _same(found[0].view(np.float32), a[:, 0].astype(np.float32))
        assert _same(found[1].view(np.float32), a[:, 1].astype(np.float32) - b[:, 0].astype(np.float32))


def test_what_is_below_zero_becomes_zero_and_subnormals_do(sass):
    a, b = _pairs(5)
    lines = ["HFMA2.RELU R24, R4, R5, R5", "HADD2.SAT R25, R4, R5", "HADD2.FTZ R26, R4, -RZ"]
    found = _run(sass, lines, a, b)
    with np.errstate(all="ignore"):
        fused = (a.astype(float) * b.astype(float) + b.astype(float)).astype(np.float16)
        total = a + b
    assert _same(_halves(found[0]), np.where(fused <= 0, np.float16(0), fused))
    assert _same(_halves(found[1]), np.where(total > 0, np.minimum(total, np.float16(1)), np.float16(0)))
    assert _same(_halves(found[2]), np.where(np.abs(a) < 2**-14, np.copysign(np.float16(0), a), a) - np.float16(0))


def _part(word: int, place: int, bits: int, is_signed: bool) -> int:
    part = word >> bits * place & ((1 << bits) - 1)
    return part - (1 << bits) if is_signed and part >> (bits - 1) else part


def _parts(word: int, bits: int, is_signed: bool = True) -> list[int]:
    return [_part(word, place, bits, is_signed) for place in range(32 // bits)]


def _packed(values: list[int], bits: int) -> int:
    return sum((value & ((1 << bits) - 1)) << bits * place for place, value in enumerate(values))


def _dot(a: list[int], b: list[int], c: int) -> int:
    return sum(x * y for x, y in zip(a, b, strict=False)) + c


def _each(compute, bits: int, *words: int, is_signed: bool = True) -> int:
    columns = zip(*(_parts(word, bits, is_signed) for word in words), strict=True)
    return _packed([compute(*column) for column in columns], bits)


def _clipped(value: int, least: int, most: int) -> int:
    return min(max(value, least), most)


def _signed(word: int) -> int:
    return _part(word, 0, 32, True)


_INTEGERS = {
    "IDP.4A.S8.U8 R24, R4, R5, R6": lambda a, b, c: _dot(_parts(a, 8), _parts(b, 8, False), c),
    "IDP.4A.U8.S8 R24, R4, R5, R6": lambda a, b, c: _dot(_parts(a, 8, False), _parts(b, 8), c),
    "IDP.2A.LO.S16.U8 R24, R4, R5, R6": lambda a, b, c: _dot(_parts(a, 16), _parts(b, 8, False), c),
    "IDP.2A.HI.U16.S8 R24, R4, R5, R6": lambda a, b, c: _dot(_parts(a, 16, False), _parts(b, 8)[2:], c),
    "VABSDIFF R24, R4, R5, R6": lambda a, b, c: abs(_signed(a) - _signed(b)) + c,
    "VABSDIFF.U32 R24, R4, R5, R6": lambda a, b, c: abs(a - b) + c,
    "VABSDIFF4.U8 R24, R4, R5, RZ": lambda a, b, c: _each(lambda x, y: abs(x - y), 8, a, b, is_signed=False),
    "VABSDIFF4.U8.ACC R24, R4, R5, R6": lambda a, b, c: (
        sum(abs(x - y) for x, y in zip(_parts(a, 8, False), _parts(b, 8, False), strict=True)) + c
    ),
    "I2IP.S8.S32.SAT R24, R4, R5, R6": lambda a, b, c: (
        c << 16 | _packed([_clipped(_signed(x), -128, 127) for x in (b, a)], 8)
    ),
    "I2IP.U16.S32.SAT R24, R4, R5, RZ": lambda a, b, c: _packed([_clipped(_signed(x), 0, 65535) for x in (b, a)], 16),
    "VIMNMX.S16x2 R24, R4, R5, !PT": lambda a, b, c: _each(max, 16, a, b),
    "VIMNMX.RELU R24, R4, R5, PT": lambda a, b, c: max(0, min(_signed(a), _signed(b))),
    "VIMNMX3.S16x2 R24, R4, R5, R6, PT": lambda a, b, c: _each(min, 16, a, b, c),
    "VIADDMNMX.S16x2 R24, R4, R5, R6, !PT": lambda a, b, c: (
        _each(lambda x, y, z: max(_part(x + y, 0, 16, True), z), 16, a, b, c)
    ),
}  # fmt: skip


@pytest.mark.parametrize("line", _INTEGERS)
def test_packed_integers(sass, line):
    generator = np.random.default_rng(6)
    edges = generator.choice(
        np.array([0, 1, 0x7F, 0x80, 0xFF80, 0x7FFF8000, 0x80000000, 0xFFFFFFFF], np.uint32), (64, 3)
    )
    values = np.vstack([edges, generator.integers(0, 1 << 32, (200, 3), np.uint32)])
    found = sass_programs.run(sass, [line], [values])[0]
    assert found.tolist() == [_INTEGERS[line](*map(int, row)) & 0xFFFFFFFF for row in values]


def test_singles_become_halves_by_the_rounding_that_is_named(sass):
    generator = np.random.default_rng(7)
    singles = (generator.uniform(-1, 1, (300, 2)) * 2.0 ** generator.uniform(-30, 17, (300, 2))).astype(np.float32)
    singles[:4] = [[0, -0.0], [65519, -65520], [1e-8, -1e-8], [np.inf, np.nan]]
    lines = ["F2FP.PACK_AB R24, R4, R5", "F2FP.F16.F32.PACK_AB.RZ R25, R4, R5", "F2F.F16.F32.RM R26, R4",
             "F2FP.BF16.PACK_AB.RZ R27, R4, R5"]  # fmt: skip
    found = _run(sass, lines, singles)
    with np.errstate(over="ignore"):
        near = singles.astype(np.float16)
    assert _same(_halves(found[0])[:, ::-1], near)  # the first stands above
    cut = np.where(np.abs(near.astype(float)) > np.abs(singles), np.nextafter(near, np.float16(0)), near)
    assert _same(_halves(found[1])[:, ::-1], cut)
    below = np.where(near[:, 0] > singles[:, 0], np.nextafter(near[:, 0], np.float16(-np.inf)), near[:, 0])
    assert _same(_halves(found[2] & 0xFFFF)[:, 0], below)
    bits = singles.view(np.uint32) >> 16
    kept = ~np.isnan(singles)
    assert np.array_equal(_halves(found[3], np.uint16)[:, ::-1][kept], bits[kept])


def _small(bits: int, exponents: int, fractions: int) -> float:
    """A number of 8 bits, by its definition (OCP, "8-bit Floating Point Specification"); NaN and infinity as NaN."""
    sign, exponent, fraction = bits >> 7, bits >> fractions & ((1 << exponents) - 1), bits & ((1 << fractions) - 1)
    top = exponent == (1 << exponents) - 1
    if top and (exponents == 5 or fraction == 7):
        return float("nan")
    bias = (1 << (exponents - 1)) - 1
    size = (fraction / (1 << fractions) + (exponent > 0)) * 2.0 ** (max(exponent, 1) - bias)
    return -size if sign else size


@pytest.mark.parametrize(("name", "exponents", "fractions"), [("E4M3", 4, 3), ("E5M2", 5, 2)])
def test_numbers_of_8_bits(sass, name, exponents, fractions):
    all_of_them = np.array([_small(bits, exponents, fractions) for bits in range(256)])
    positive = all_of_them[:128][~np.isnan(all_of_them[:128])]
    pairs = np.arange(256, dtype=np.uint32) | np.arange(255, -1, -1, dtype=np.uint32) << 8
    found = _halves(sass_programs.run(sass, [f"F2FP.F16.{name}.UNPACK_B R24, R4"], [pairs])[0])
    finite = ~np.isnan(all_of_them)
    assert np.array_equal(found[finite, 0], all_of_them[finite].astype(np.float16))
    assert np.array_equal(found[finite[::-1], 1], all_of_them[::-1][finite[::-1]].astype(np.float16))
    generator = np.random.default_rng(8)
    values = (generator.uniform(-1, 1, (400, 2)) * 2.0 ** generator.uniform(-20, 20, (400, 2))).astype(np.float32)
    middles = ((positive[1:] + positive[:-1]) / 2).astype(np.float32)  # ties, to the even one
    values[: len(middles), 0] = middles
    line = f"F2FP.SATFINITE.{name}.F32.PACK_AB_MERGE_C R24, R4, R5, R6"
    words = sass_programs.run(sass, [line], [values, np.full(400, 0x12345678, np.uint32)])[0]
    assert set(words >> 16) == {0x5678}
    for place in (0, 1):
        for value, bits in zip(values[:, 1 - place], words >> 8 * place & 0xFF, strict=True):
            distances = np.abs(positive - abs(float(value)))
            best = np.flatnonzero(distances == distances.min())
            assert bits == next((k for k in best if k % 2 == 0), best[0]) | (0x80 if value < 0 else 0)


def test_comparisons_of_singles_give_numbers(sass):
    values = np.random.default_rng(9).integers(-3, 4, (200, 2)).astype(np.float32)
    found = sass_programs.run(sass, ["FSET.BF.GT.AND R24, R4, R5, PT", "FSET.LE.AND R25, R4, R5, PT"], [values])
    held = values[:, 0] > values[:, 1]
    assert np.array_equal(found[0].view(np.float32), held.astype(np.float32))
    assert np.array_equal(found[1], np.where(held, 0, 0xFFFFFFFF))


def test_lanes_match_and_reduce(sass):
    values = np.random.default_rng(10).integers(0, 5, 64).astype(np.uint32)
    lines = ["MATCH.ANY R24, R4", "REDUX.SUM.S32 UR4, R4", "MOV R25, UR4", "REDUX.MAX UR4, R4", "MOV R26, UR4",
             "DEPBAR.LE SB0, 0x1", "DEPBAR.LE SB0, 0x0, {4,3}"]  # fmt: skip
    found = sass_programs.run(sass, lines, [values])
    for warp in range(2):
        own = values[32 * warp : 32 * warp + 32]
        masks = [sum(1 << k for k in range(32) if own[k] == each) for each in own]
        assert found[0][32 * warp : 32 * warp + 32].tolist() == masks
        assert set(found[1][32 * warp : 32 * warp + 32]) == {own.sum()}
        assert set(found[2][32 * warp : 32 * warp + 32]) == {own.max()}


def test_an_exchange_tells_whether_it_stored(sass):
    """How a sum of singles in shared memory is compiled: each lane tries until it is the one that stored."""
    values = np.random.default_rng(11).integers(-9, 9, 64).astype(np.float32)
    lines = ["STS [RZ], RZ", "BAR.SYNC 0x0", "LDS R6, [RZ]", "FADD R7, R6, R4", "ATOMS.CAST.SPIN R8, [RZ], R6, R7",
             "ISETP.EQ.U32.AND P0, PT, R8, 0x1, PT", "@!P0 BRA 0x50", "BAR.SYNC 0x0", "LDS R24, [RZ]"]  # fmt: skip
    found = sass_programs.run(sass, lines, [values], shared_bytes=4)[0].view(np.float32)
    assert set(found) == {values.sum()}


def test_sums_of_pairs_in_memory(sass):
    a, b = _pairs(12)
    form = "ADD.F16x2.RN.STRONG.GPU"
    lines = [f"ATOM.E.{form} P0, R24, [R2.64], R5", "LDG.E R25, [R2.64]", "QSPC.E.S P1, RZ, [R2]", "MOV R6, 0x10",
             "MOV R7, 0x7e00", f"ATOM.E.{form} P2, RZ, [R6.64], R5", "QSPC.E.S P3, RZ, [R6]",
             "P2R R26, PR, RZ, 0xf"]  # fmt: skip
    found = sass_programs.run(
        sass, lines, [np.ascontiguousarray(each).view(np.uint32) for each in (a, b)], shared_bytes=64
    )
    with np.errstate(invalid="ignore", over="ignore"):
        assert _same(_halves(found[1]), a + b)
    assert np.array_equal(found[0], a.copy().view(np.uint32)[:, 0])
    assert set(found[2]) == {0b1001}  # done in global memory, and not in shared, where it is said to lie


def test_generic_sums_of_doubles_tell_which_lanes_are_done(sass):
    """Code for addresses of unknown space rests on it: what the predicate does not hold for, other code does."""
    values = np.random.default_rng(13).integers(-9, 9, (64, 2)).astype(np.float64)
    lines = ["ATOM.E.ADD.F64.RN.STRONG.GPU P0, RZ, [R2.64], R6", "LDG.E.64 R24, [R2.64]", "MOV R8, 0x10",
             "MOV R9, 0x7e00", "STS.64 [0x10], RZ", "BAR.SYNC 0x0", "ATOM.E.ADD.F64.RN.STRONG.GPU P1, RZ, [R8.64], R6",
             "BAR.SYNC 0x0", "LDS R26, [0x10]", "P2R R27, PR, RZ, 0x3"]  # fmt: skip
    found = sass_programs.run(sass, lines, [np.ascontiguousarray(values).view(np.uint32)], shared_bytes=64)
    assert np.array_equal(np.column_stack(found[:2]).copy().view(np.float64)[:, 0], values.sum(axis=1))
    assert set(found[2]) == {0}  # in shared memory nothing is changed
    assert set(found[3]) == {0b01}
