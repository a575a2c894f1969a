"""What code for compute capabilities 10.0 and 12.0 has in ordinary kernels, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
import sass_programs

from manyscale.runner.tracers.cuda.sass import decode

pytestmark = pytest.mark.theory

_WORDS = np.array([0, 1, 2, 0x7FFFFFFF, 0x80000000, 0x80000001, 0xFFFFFFFF, 5] * 4, np.uint32)
_LONGS = np.array([0, 1, 2**32, 2**63 - 1, 2**63, 2**64 - 1, 2**32 - 1, 7] * 4, np.uint64)


def _run(sass, lines, *inputs):
    return sass_programs.run(sass, lines, inputs, architecture=100)


def _pairs(seed: int) -> np.ndarray:
    found = np.random.default_rng(seed).normal(0, 2, (32, 2)).astype(np.float32)
    found[0], found[1] = (np.inf, 1e-40), (np.nan, -0.0)
    return found


def _long(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    return low.astype(np.uint64) | high.astype(np.uint64) << np.uint64(32)


@pytest.mark.parametrize(("line", "operation"), [
    ("FADD2 R24, R4.F32x2.HI_LO, R6.F32x2.HI_LO", lambda a, b, c: a + b),
    ("FADD2 R24, R4.F32x2.HI_LO, -R6.F32x2.HI_LO", lambda a, b, c: a - b),
    ("FMUL2 R24, R4.F32x2.HI_LO, R6.F32x2.HI_LO", lambda a, b, c: a * b),
    ("FFMA2 R24, R4.F32x2.HI_LO, R6.F32x2.HI_LO, R8.F32x2.HI_LO", lambda a, b, c: a * b + c),
])  # fmt: skip
def test_two_singles_at_once(sass, line, operation):
    a, b, c = _pairs(1), _pairs(2), _pairs(3)
    found = np.column_stack(_run(sass, [line], a, b, c)[:2]).view(np.float32)
    with np.errstate(all="ignore"):  # products of singles are exact in a double: rounded once
        expected = operation(*(each.astype(np.float64) for each in (a, b, c))).astype(np.float32)
    assert np.array_equal(found, expected, equal_nan=True)


def test_two_singles_are_flushed(sass):
    a = np.full((32, 2), 1e-40, np.float32)
    kept = _run(sass, ["FADD2 R24, R4.F32x2.HI_LO, RZ"], a)[0].view(np.float32)
    gone = _run(sass, ["FADD2.FTZ R24, R4.F32x2.HI_LO, RZ"], a)[0].view(np.float32)
    assert set(kept) == {np.float32(1e-40)}
    assert set(gone) == {0}


@pytest.mark.parametrize(("least", "operation"), [("PT", np.fmin), ("!PT", np.fmax)])
def test_least_and_greatest_of_three(sass, least, operation):
    a, b, c = (_pairs(seed)[:, 0].copy() for seed in (4, 5, 6))
    a[2:5] = b[3:5] = c[4] = np.nan
    found = _run(sass, [f"FMNMX3 R24, R4, -R5, R6, {least}"], a, b, c)[0].view(np.float32)
    assert np.array_equal(found, operation(operation(a, -b), c), equal_nan=True)


def test_sums_of_integers(sass):
    a, b = _WORDS, np.roll(_WORDS, 3)
    assert np.array_equal(_run(sass, ["IADD R24, R4, -R5"], a, b)[0], a - b)
    low, high = _run(sass, ["IADD.64 R24, R4, R6"], _LONGS, np.roll(_LONGS, 5))[:2]
    assert np.array_equal(_long(low, high), _LONGS + np.roll(_LONGS, 5))
    low, high = _run(sass, ["UMOV UR70, 0xffffffff", "UMOV UR71, 0x1", "IADD.64 R24, R4, UR70"], _LONGS)[:2]
    assert np.array_equal(_long(low, high), _LONGS + np.uint64(0x1FFFFFFFF))
    low, high = _run(sass, ["IADD.64 R24, R4, -0x8"], _LONGS)[:2]
    assert np.array_equal(_long(low, high), _LONGS - np.uint64(8))


@pytest.mark.parametrize(("word", "operation"), [
    ("LT", np.less), ("EQ", np.equal), ("LE", np.less_equal), ("GT", np.greater), ("NE", np.not_equal),
    ("GE", np.greater_equal),
])  # fmt: skip
@pytest.mark.parametrize("kind", ["U64", "S64"])
def test_comparisons_of_64_bits(sass, word, operation, kind):
    a, b = _LONGS, np.roll(_LONGS, 5)
    b[:4] = a[:4]
    found = _run(sass, [f"ISETP.{word}.{kind}.AND P0, PT, R4, R6, PT", "SEL R24, RZ, 0x1, !P0"], a, b)[0]
    left, right = (each.view(np.int64) if kind == "S64" else each for each in (a, b))
    assert np.array_equal(found, operation(left, right).astype(np.uint32))


def test_reductions_into_uniform_registers(sass):
    for line, expected in (("CREDUX.MAX UR66, R4", 0xFFFFFFFF), ("CREDUX.MIN.S32 UR66, R4", 0x80000000)):
        assert set(_run(sass, [line, "MOV R24, UR66"], _WORDS)[0]) == {expected}


def test_uniform_loads_of_constants(sass):
    lines = ["LDCU.64 UR64, c[0x0][0x168]", "MOV R24, UR64", "MOV R25, UR65", "UMOV UR5, 0x8",
             "LDCU UR6, c[0x0][UR5+0x160]", "MOV R26, UR6", "LDC.64 R28, c[0x0][0x168]", "MOV R27, R28"]  # fmt: skip
    first, second, third, expected = _run(sass, lines, _WORDS)
    assert np.array_equal(first, expected)
    assert np.array_equal(third, expected)
    assert second[0] != 0


def test_lanes_meet_again(sass):
    lines = ["ISETP.LT.U32.AND P0, PT, R0, 0x7, PT", "BSSY.RECONVERGENT B0, 0x90", f"@P0 BRA {hex(16 * 8)}",
             "MOV R24, 0x1", "BRA 0x80", "BSYNC.RECONVERGENT B0", "VOTE.ALL R25, PT, PT"]  # fmt: skip
    assert set(_run(sass, lines, _WORDS)[1]) == {0xFFFFFFFF}


@pytest.mark.parametrize("text", [
    "FADD2 R24, R4.F32x2.HI_LO, R6", "FMNMX3 R24, R4, R5, R6, P0", "CREDUX.ADD UR4, R4", "IADD.X R4, R5, R6",
    "UTCHMMA gdesc[UR4], gdesc[UR6], tmem[UR8], tmem[UR10], idesc[UR11], UPT",
])  # fmt: skip
def test_no_other_form_is_guessed(text):
    assert decode.decode([text], [0], [0], 100).unknown == {0: text}
