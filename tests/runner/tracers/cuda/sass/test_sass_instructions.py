"""Each instruction against what it is to compute, by NumPy and Python's integers, on random operands and edge cases."""

from __future__ import annotations

import math

import numpy as np
import pytest
import sass_programs

pytestmark = pytest.mark.theory
_WORDS = np.array([0, 1, 2, 31, 32, 33, 63, 64, 0x7FFFFFFF, 0x80000000, 0x80000001, 0xFFFFFFFE, 0xFFFFFFFF], np.uint32)
_FLOATS = np.array(
    [0.0, -0.0, 1.0, -1.0, 1.5, 3.4e38, -3.4e38, 1e-45, -1e-40, 1.17549435e-38, math.inf, -math.inf, math.nan],
    np.float32,
)  # fmt: skip
_DOUBLES = np.array(
    [0.0, -0.0, 1.0, -1.0, 1.5, 1.7e308, -1.7e308, 5e-324, -1e-310, 2.3e-308, math.inf, -math.inf, math.nan]
)  # fmt: skip


def _words(count: int, seed: int) -> np.ndarray:
    """uint32[n, count]: each pair of edge cases in the first two columns, and random words."""
    generator = np.random.default_rng(seed)
    edges = np.array([[a, b] for a in _WORDS for b in _WORDS], np.uint32)
    rest = generator.choice(_WORDS, (len(edges), max(0, count - 2)))
    random = generator.integers(0, 1 << 32, (300, count), np.uint32)
    return np.vstack([np.hstack([edges[:, :count], rest]), random])


def _floats(count: int, seed: int, edges: np.ndarray = _FLOATS) -> np.ndarray:
    generator = np.random.default_rng(seed)
    pairs = np.array([[a, b] for a in edges for b in edges], edges.dtype)
    rest = generator.choice(edges, (len(pairs), max(0, count - 2)))
    size = generator.uniform(-30, 30, (300, count))
    random = (generator.uniform(-1, 1, (300, count)) * 2.0**size).astype(edges.dtype)
    return np.vstack([np.hstack([pairs[:, :count], rest]), random])


def _split(values: np.ndarray) -> np.ndarray:
    """float64[n, k] as uint32[n, 2k]."""
    return np.ascontiguousarray(values).view(np.uint32).reshape(len(values), -1)


def _joined(low: np.ndarray, high: np.ndarray, kind: type = np.float64) -> np.ndarray:
    return (low.astype(np.uint64) | high.astype(np.uint64) << np.uint64(32)).view(kind)


def _same(found: np.ndarray, expected: np.ndarray) -> bool:
    """Equal numbers, signs of zeros included, or both none."""
    both = np.isnan(found) & np.isnan(expected)
    return bool(np.all(both | ((found == expected) & (np.signbit(found) == np.signbit(expected)))))


def _signed(value: int, bits: int = 32) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


_M = 0xFFFFFFFF


def _lut(table: int, a: int, b: int, c: int) -> int:
    found = 0
    for bit in range(32):
        index = 4 * (a >> bit & 1) + 2 * (b >> bit & 1) + (c >> bit & 1)
        found |= (table >> index & 1) << bit
    return found


_INTEGER = {
    "IADD3 R24, R4, R5, R6": lambda a, b, c: a + b + c,
    "IADD3 R24, -R4, R5, RZ": lambda a, b, c: b - a,
    "IADD3 R24, R4, -0x7, R6": lambda a, b, c: a - 7 + c,
    "IMAD R24, R4, R5, R6": lambda a, b, c: a * b + c,
    "IMAD R24, R4, R5, -R6": lambda a, b, c: a * b - c,
    "IMAD.MOV.U32 R24, RZ, RZ, R6": lambda a, b, c: c,
    "IMAD.SHL.U32 R24, R4, 0x10, RZ": lambda a, b, c: a << 4,
    "IMAD.IADD R24, R4, 0x1, -R6": lambda a, b, c: a - c,
    "IMAD.HI.U32 R24, R4, R5, RZ": lambda a, b, c: a * b >> 32,
    "IMAD.HI R24, R4, R5, RZ": lambda a, b, c: _signed(a) * _signed(b) >> 32,
    "LOP3.LUT R24, R4, R5, R6, 0x96, !PT": lambda a, b, c: a ^ b ^ c,
    "LOP3.LUT R24, R4, R5, R6, 0x1a, !PT": lambda a, b, c: _lut(0x1A, a, b, c),
    "LOP3.LUT R24, R4, ~R5, R6, 0xe8, !PT": lambda a, b, c: (a & ~b) | (a & c) | (~b & c),
    "SHF.L.U32 R24, R4, R5, RZ": lambda a, b, c: a << b if b < 32 else 0,
    "SHF.L.W.U32 R24, R4, R5, RZ": lambda a, b, c: a << (b & 31),
    "SHF.R.U32.HI R24, RZ, R5, R4": lambda a, b, c: a >> b if b < 32 else 0,
    "SHF.R.S32.HI R24, RZ, R5, R4": lambda a, b, c: _signed(a) >> min(b, 32),
    "SHF.L.U64.HI R24, R4, R5, R6": lambda a, b, c: ((c << 32 | a) << b >> 32) if b < 64 else 0,
    "SHF.R.U64 R24, R4, R5, R6": lambda a, b, c: (c << 32 | a) >> b if b < 64 else 0,
    "SHF.R.S64 R24, R4, R5, R6": lambda a, b, c: _signed(c << 32 | a, 64) >> min(b, 64),
    "LEA R24, R4, R5, 0x3": lambda a, b, c: (a << 3) + b,
    "LEA.HI R24, R4, R5, R6, 0x5": lambda a, b, c: ((c << 32 | a) << 5 >> 32) + b,
    "LEA.HI.SX32 R24, R4, R5, 0x1e": lambda a, b, c: (_signed(a) << 30 >> 32) + b,
    "IABS R24, R4": lambda a, b, c: abs(_signed(a)),
    "POPC R24, R4": lambda a, b, c: a.bit_count(),
    "FLO.U32 R24, R4": lambda a, b, c: a.bit_length() - 1,
    "FLO.U32.SH R24, R4": lambda a, b, c: 32 - a.bit_length() if a else -1,
    "FLO R24, R4": lambda a, b, c: (a if not a >> 31 else ~a & _M).bit_length() - 1,
    "BREV R24, R4": lambda a, b, c: int(f"{a:032b}"[::-1], 2),
    "IMNMX R24, R4, R5, PT": lambda a, b, c: min(_signed(a), _signed(b)),
    "IMNMX R24, R4, R5, !PT": lambda a, b, c: max(_signed(a), _signed(b)),
    "IMNMX.U32 R24, R4, R5, PT": min,
    "VIADD R24, R4, -R5": lambda a, b, c: a - b,
    "VIADDMNMX R24, R4, R5, R6, !PT": lambda a, b, c: max(_signed(a + b), _signed(c)),
    "SGXT R24, R4, 0x5": lambda a, b, c: _signed(a, 5),
    "SGXT.U32 R24, R4, 0x5": lambda a, b, c: a & 31,
    "PRMT R24, R4, 0x7610, R5": lambda a, b, c: (a & 0xFFFF) | (b & 0xFFFF0000),
    "PRMT R24, R4, 0x8880, R5": lambda a, b, c: (a & 0xFF) | (0xFFFFFF00 if a & 0x80 else 0),
    "MOV R24, 0x1234": lambda a, b, c: 0x1234,
}


@pytest.mark.parametrize("line", _INTEGER)
def test_integers(sass, line):
    values = _words(3, 1)
    compute = _INTEGER[line]
    if compute is min:
        compute = lambda a, b, c: min(a, b)  # noqa: E731
    found = sass_programs.run(sass, [line], [values])[0]
    expected = np.array([compute(*map(int, row)) & _M for row in values], np.uint32)
    assert np.array_equal(found, expected)


def test_sums_of_64_bits_carry(sass):
    values = _words(4, 2)
    lines = ["IADD3 R24, P0, R4, R6, RZ", "IADD3.X R25, R5, R7, RZ, P0, !PT",
             "IADD3 R26, P1, R4, -R6, RZ", "IADD3.X R27, R5, ~R7, RZ, P1, !PT"]  # fmt: skip
    found = sass_programs.run(sass, lines, [values])
    a, b = ([int(row[k]) | int(row[k + 1]) << 32 for row in values] for k in (0, 2))
    mask = (1 << 64) - 1
    expected = [((x + y) & mask, (x - y) & mask) for x, y in zip(a, b, strict=True)]
    assert [int(x) for x in _joined(found[0], found[1], np.uint64)] == [each[0] for each in expected]
    assert [int(x) for x in _joined(found[2], found[3], np.uint64)] == [each[1] for each in expected]


@pytest.mark.parametrize("shift", [0, 2, 30])
def test_a_shifted_word_is_taken_from_64_bits(sass, shift):
    """As compilers take it: what is shifted out is taken from the upper word, with the borrow of the lower one."""
    values = _words(3, 5)
    values[:8, 0] = values[4:12, 1] = 0
    lines = [f"SHF.L.U64.HI R8, R4, {hex(shift)}, RZ", f"LEA R24, P0, -R4, R5, {hex(shift)}",
             "IADD3.X R25, ~R8, R6, RZ, P0, !PT"]  # fmt: skip
    found = sass_programs.run(sass, lines, [values])
    expected = [(low + (high << 32) - (a << shift)) & ((1 << 64) - 1) for a, low, high in values.tolist()]
    assert [int(x) for x in _joined(found[0], found[1], np.uint64)] == expected


def test_products_of_64_bits(sass):
    values = _words(4, 3)
    found = sass_programs.run(sass, ["IMAD.WIDE.U32 R24, R4, R5, R6", "IMAD.WIDE R26, R4, R5, R6"], [values])
    mask = (1 << 64) - 1
    for row, low, high in zip(values, _joined(*found[:2], np.uint64), _joined(*found[2:], np.uint64), strict=True):
        a, b = int(row[0]), int(row[1])
        addend = int(row[2]) | int(row[3]) << 32
        assert int(low) == (a * b + addend) & mask
        assert int(high) == (_signed(a) * _signed(b) + addend) & mask


_COMPARISONS = {"LT": "<", "EQ": "==", "LE": "<=", "GT": ">", "NE": "!=", "GE": ">="}


@pytest.mark.parametrize("name", _COMPARISONS)
def test_comparisons_of_integers(sass, name):
    values = _words(2, 4)
    lines = [f"ISETP.{name}.AND P0, PT, R4, R5, PT", f"ISETP.{name}.U32.AND P1, P2, R4, R5, PT",
             "SEL R24, RZ, 0x1, !P0", "SEL R25, RZ, 0x1, !P1", "SEL R26, RZ, 0x1, !P2"]  # fmt: skip
    found = sass_programs.run(sass, lines, [values])
    signed, unsigned = values.view(np.int32), values
    held = [eval(f"x[:, 0] {_COMPARISONS[name]} x[:, 1]", {"x": each}) for each in (signed, unsigned)]
    assert np.array_equal(found[0], held[0].astype(np.uint32))
    assert np.array_equal(found[1], held[1].astype(np.uint32))
    assert np.array_equal(found[2], 1 - held[1].astype(np.uint32))


def test_comparisons_of_64_bits(sass):
    values = _words(4, 5)
    values[::3, 1] = values[::3, 3]  # equal upper words
    lines = ["ISETP.LT.U32.AND P0, PT, R4, R6, PT", "ISETP.LT.AND.EX P1, PT, R5, R7, PT, P0", "SEL R24, RZ, 0x1, !P1"]
    found = sass_programs.run(sass, lines, [values])[0]
    a, b = (_joined(values[:, k], values[:, k + 1], np.int64) for k in (0, 2))
    assert np.array_equal(found, (a < b).astype(np.uint32))


_SINGLE = {
    "FADD R24, R4, R5": lambda a, b, c: a + b,
    "FADD R24, -R4, |R5|": lambda a, b, c: abs(b) - a,
    "FMUL R24, R4, R5": lambda a, b, c: a * b,
}


@pytest.mark.parametrize("line", _SINGLE)
def test_singles(sass, line):
    values = _floats(3, 6)
    found = sass_programs.run(sass, [line], [values])[0].view(np.float32)
    with np.errstate(all="ignore"):
        assert _same(found, _SINGLE[line](*values.T))


@pytest.mark.parametrize(("name", "scale"), [("D2", 0.5), ("D8", 0.125), ("M4", 4)])
def test_scaled_products_round_once(sass, name, scale):
    values = _floats(2, 17)
    found = sass_programs.run(sass, [f"FMUL.{name} R24, R4, R5"], [values])[0].view(np.float32)
    with np.errstate(all="ignore"):
        expected = (values[:, 0].astype(float) * values[:, 1] * scale).astype(np.float32)
        rounded_before = values[:, 0] * values[:, 1] * np.float32(scale)
    assert _same(found, expected)
    assert not _same(rounded_before, expected)


def test_fused_singles_round_once(sass):
    values = _floats(3, 7)
    found = sass_programs.run(sass, ["FFMA R24, R4, R5, R6"], [values])[0].view(np.float32)
    finite = np.isfinite(values).all(1)
    for row, each in zip(values[finite], found[finite], strict=True):
        exact = _fraction(row[0]) * _fraction(row[1]) + _fraction(row[2])
        if exact:
            assert (
                abs(_fraction(each) - exact) <= _half_ulp(exact) if np.isfinite(each) else abs(exact) >= 2**128 - 2**103
            )
    with np.errstate(all="ignore"):
        products = values[:, 0].astype(float) * values[:, 1] + values[:, 2]
    assert np.array_equal(np.isnan(found), np.isnan(products))


def _fraction(value: float):
    from fractions import Fraction

    return Fraction(float(value)) if math.isfinite(value) else None


def _half_ulp(exact):
    from fractions import Fraction

    exponent = max(math.frexp(float(exact))[1], -125)
    return Fraction(2) ** (exponent - 25)


_ROUNDED = {"RM": -1, "RP": 1}


@pytest.mark.parametrize("name", _ROUNDED)
def test_directed_rounding(sass, name):
    values = _floats(2, 8)
    values = values[np.isfinite(values).all(1) & (np.abs(values) < 1e15).all(1)]
    found = sass_programs.run(sass, [f"FFMA.{name} R24, R4, R5, RZ", f"FADD.{name} R25, R4, R5"], [values])
    for product, total, (a, b) in zip(*(each.view(np.float32) for each in found[:2]), values, strict=True):
        for each, exact in ((product, _fraction(a) * _fraction(b)), (total, _fraction(a) + _fraction(b))):
            if not exact:
                continue
            beside = np.nextafter(each, np.float32(-_ROUNDED[name] * math.inf))
            assert (exact - _fraction(each)) * _ROUNDED[name] <= 0  # on the right side
            assert (exact - _fraction(beside)) * _ROUNDED[name] > 0  # and the nearest there


def test_flushed_singles(sass):
    values = _floats(2, 9)
    found = sass_programs.run(sass, ["FMUL.FTZ R24, R4, R5"], [values])[0].view(np.float32)
    least = np.float32(1.17549435e-38)
    flushed = np.where(np.abs(values) < least, np.copysign(np.float32(0), values), values)
    with np.errstate(all="ignore"):
        product = flushed[:, 0] * flushed[:, 1]
    assert _same(found, np.where(np.abs(product) < least, np.copysign(np.float32(0), product), product))


_DOUBLE = {
    "DADD R24, R4, R6": lambda a, b: a + b,
    "DADD R24, -R4, |R6|": lambda a, b: abs(b) - a,
    "DMUL R24, R4, R6": lambda a, b: a * b,
}


@pytest.mark.parametrize("line", _DOUBLE)
def test_doubles(sass, line):
    values = _floats(2, 10, _DOUBLES)
    found = _joined(*sass_programs.run(sass, [line], [_split(values)])[:2])
    with np.errstate(all="ignore"):
        assert _same(found, _DOUBLE[line](*values.T))


@pytest.mark.parametrize(("name", "holds"), [
    ("LT", lambda a, b: a < b), ("NEU", lambda a, b: (a != b) | np.isnan(a) | np.isnan(b)),
    ("NE", lambda a, b: (a != b) & ~np.isnan(a) & ~np.isnan(b)), ("GEU", lambda a, b: ~(a < b)),
    ("NUM", lambda a, b: ~np.isnan(a) & ~np.isnan(b)), ("NAN", lambda a, b: np.isnan(a) | np.isnan(b)),
    ("GTU", lambda a, b: ~(a <= b)), ("EQU", lambda a, b: (a == b) | np.isnan(a) | np.isnan(b)),
])  # fmt: skip
def test_comparisons_of_numbers(sass, name, holds):
    singles, doubles = _floats(2, 11), _floats(2, 11, _DOUBLES)
    lines = [f"FSETP.{name}.AND P0, PT, R4, R5, PT", "SEL R24, RZ, 0x1, !P0"]
    found = sass_programs.run(sass, lines, [singles])[0]
    assert np.array_equal(found, holds(*singles.T).astype(np.uint32))
    lines = [f"DSETP.{name}.AND P0, PT, R4, R6, PT", "SEL R24, RZ, 0x1, !P0"]
    found = sass_programs.run(sass, lines, [_split(doubles)])[0]
    assert np.array_equal(found, holds(*doubles.T).astype(np.uint32))


def test_least_and_greatest_numbers(sass):
    values = _floats(2, 12)
    found = sass_programs.run(sass, ["FMNMX R24, R4, R5, PT", "FMNMX R25, R4, R5, !PT"], [values])
    assert np.array_equal(found[0].view(np.float32), np.fmin(*values.T), equal_nan=True)
    assert np.array_equal(found[1].view(np.float32), np.fmax(*values.T), equal_nan=True)


def test_conversions_to_integers_saturate(sass):
    values = _floats(1, 13)
    found = sass_programs.run(
        sass,
        ["F2I.TRUNC.NTZ R24, R4", "F2I.U32.TRUNC.NTZ R25, R4", "F2I.NTZ R26, R4", "F2I.CEIL.NTZ R27, R4"],
        [values],
    )
    column = [float(each) for each in values[:, 0]]
    rules = ((math.trunc, True), (math.trunc, False), (round, True), (math.ceil, True))
    for result, (rounds, is_signed) in zip(found, rules, strict=True):
        least, most = (-(2**31), 2**31 - 1) if is_signed else (0, 2**32 - 1)
        expected = [
            0
            if math.isnan(x)
            else most
            if x == math.inf
            else least
            if x == -math.inf
            else min(max(rounds(x), least), most)
            for x in column
        ]
        assert result.view(np.int32 if is_signed else np.uint32).tolist() == expected


def test_conversions_between_floats_and_integers(sass):
    values = _words(1, 14)
    found = sass_programs.run(sass, ["I2F R24, R4", "I2F.U32 R25, R4", "I2F.F64 R26, R4"], [values])
    assert np.array_equal(found[0].view(np.float32), values[:, 0].view(np.int32).astype(np.float32))
    assert np.array_equal(found[1].view(np.float32), values[:, 0].astype(np.float32))
    assert np.array_equal(_joined(found[2], found[3]), values[:, 0].view(np.int32).astype(float))


def test_conversions_between_floats(sass):
    doubles = _floats(1, 15, _DOUBLES)
    with np.errstate(all="ignore"):
        narrow = doubles[:, 0].astype(np.float32)
    found = sass_programs.run(sass, ["F2F.F32.F64 R24, R4", "F2F.F64.F32 R26, R24"], [_split(doubles)])
    assert _same(found[0].view(np.float32), narrow)
    assert _same(_joined(found[2], found[3]), narrow.astype(float))
    found = sass_programs.run(sass, ["F2F.F16.F32 R24, R4"], [narrow.reshape(-1, 1)])[0]
    with np.errstate(all="ignore"):
        assert _same((found & 0xFFFF).astype(np.uint16).view(np.float16), narrow.astype(np.float16))


def test_halves(sass):
    generator = np.random.default_rng(16)
    values = generator.normal(0, 100, (400, 6)).astype(np.float16)
    values[:40] = generator.choice(np.array([0, -0.0, 1, 65504, 6e-8, np.inf, np.nan], np.float16), (40, 6))
    words = np.ascontiguousarray(values).view(np.uint32)
    found = sass_programs.run(sass, ["HADD2 R24, R4, R5", "HMUL2 R25, R4, R5", "HFMA2 R26, R4, R5, R6"], [words])
    a, b, c = (values[:, k : k + 2] for k in (0, 2, 4))
    with np.errstate(all="ignore"):
        fused = (a.astype(float) * b.astype(float) + c.astype(float)).astype(np.float16)
        for result, expected in zip(found[:3], (a + b, a * b, fused), strict=True):
            assert _same(result.reshape(-1, 1).view(np.float16), expected)


@pytest.mark.parametrize(("name", "exact", "most"), [
    ("RCP", lambda x: 1 / x, 1), ("RSQ", lambda x: 1 / np.sqrt(x), 1), ("SQRT", np.sqrt, 1),
    ("EX2", np.exp2, 2), ("LG2", np.log2, 2),
])  # fmt: skip
def test_special_functions(sass, name, exact, most):
    values = np.exp2(np.random.default_rng(17).uniform(-20, 6, 400)).astype(np.float32)
    found = sass_programs.run(sass, [f"MUFU.{name} R24, R4"], [values])[0].view(np.float32)
    expected = exact(values.astype(float))
    assert np.all(np.abs(found - expected) <= most * np.spacing(np.abs(expected).astype(np.float32)))


def test_lanes_tell_each_other(sass):
    values = _words(1, 18)[:64]
    lines = [
        "SHFL.DOWN P0, R24, R4, 0x3, 0x1f", "SHFL.BFLY PT, R25, R4, 0x5, 0x1f", "SHFL.IDX PT, R26, R4, 0x2, 0x1c1f",
        "ISETP.GE.AND P1, PT, R4, RZ, PT", "VOTE.ANY R27, PT, P1",
    ]  # fmt: skip
    found = sass_programs.run(sass, lines, [values])
    column = values[:, 0]
    for lane in range(64):
        warp, within = divmod(lane, 32)
        assert found[0][lane] == column[lane + 3 if within + 3 < 32 else lane]
        assert found[1][lane] == column[32 * warp + (within ^ 5)]
        assert found[2][lane] == column[32 * warp + (within & 28) + 2]  # segments of four lanes
        held = sum(int(column[32 * warp + k] < 1 << 31) << k for k in range(32))
        assert found[3][lane] == held


def test_lanes_that_part_meet_again(sass):
    values = np.arange(96, dtype=np.uint32)
    lines = [
        "LOP3.LUT R5, R4, 0x3, RZ, 0xc0, !PT",   # 4 ways
        "ISETP.NE.AND P0, PT, R5, RZ, PT",
        "MOV R24, 0x0",
        "BSSY B0, 0xc0",
        "@!P0 BRA 0xb0",
        "IADD3 R5, R5, -0x1, RZ",                # 0x80: as often as the lane says
        "IADD3 R24, R24, R4, RZ",
        "ISETP.NE.AND P0, PT, R5, RZ, PT",
        "@P0 BRA 0x80",
        "BSYNC B0",
        "VOTE.ALL R25, PT, PT",
    ]  # fmt: skip
    found = sass_programs.run(sass, lines, [values])
    assert found[0].tolist() == [x * (x & 3) for x in range(96)]
    assert set(found[1].tolist()) == {0xFFFFFFFF}


def test_a_block_waits_for_all_its_warps(sass):
    values = np.arange(128, dtype=np.uint32)
    lines = [
        "STS [R0.X4], R4",
        "BAR.SYNC.DEFER_BLOCKING 0x0",
        "LOP3.LUT R5, R0, 0x7f, RZ, 0x3c, !PT",  # from the other end
        "LDS R24, [R5.X4]",
    ]
    assert sass_programs.run(sass, lines, [values], shared_bytes=512)[0].tolist() == list(range(127, -1, -1))


def test_atomics_serve_lanes_in_order(sass):
    values = np.full(64, 3, np.uint32)
    lines = ["MOV R5, RZ", "ATOMS.ADD R24, [R5], R4", "BAR.SYNC 0x0", "LDS R25, [R5]", "BAR.SYNC 0x0",
             "ATOMS.POPC.INC.32 RZ, [R5+0x4]", "BAR.SYNC 0x0", "LDS R26, [R5+0x4]"]  # fmt: skip
    found = sass_programs.run(sass, lines, [values], shared_bytes=8)
    assert found[0].tolist() == [3 * lane for lane in range(64)]
    assert set(found[1].tolist()) == {192}
    assert set(found[2].tolist()) == {64}


@pytest.mark.parametrize(("lines", "said"), [
    (["LDS R24, [R4+0x1000]"], "shared address 0x1000, outside"),
    (["LDG.E R24, [R4.64+0x2]"], "not aligned to 4 bytes"),
    (["MOV R6, 0x8", "BRX R6 0x0"], "jumps to"),
])  # fmt: skip
def test_what_stops_a_launch(sass, lines, said):
    values = np.zeros((32, 2), np.uint32)
    with pytest.raises(sass_programs.StoppedError, match=said):
        sass_programs.run(sass, lines, [values], shared_bytes=64)
