"""Matrix instructions against NumPy; how fragments lie over the lanes is written out as the PTX ISA states it."""

from __future__ import annotations

import numpy as np
import pytest
import sass_programs

from manyscale.runner.readers.cuda.records import LaunchRecord
from manyscale.runner.tracers.cuda.sass import decode

pytestmark = pytest.mark.theory


def _fragment(matrix: np.ndarray, per: int) -> np.ndarray:
    """[lanes, elements] of A (rows x depth), or of B's transpose; ``per``: elements in 32 bits (1: F64, TF32)."""
    rows, depth = matrix.shape
    halves = rows // 8
    found = np.zeros((32, rows * depth // 32), matrix.dtype)
    for lane in range(32):
        group, own = divmod(lane, 4)
        for element in range(found.shape[1]):
            register, within = divmod(element, per)
            row = group + 8 * (register % halves)
            found[lane, element] = matrix[row, 4 * per * (register // halves) + per * own + within]
    return found


def _accumulator(matrix: np.ndarray) -> np.ndarray:
    found = np.zeros((32, matrix.size // 32), matrix.dtype)
    for lane in range(32):
        group, own = divmod(lane, 4)
        for element in range(found.shape[1]):
            found[lane, element] = matrix[group + 8 * (element >> 1), 2 * own + (element & 1)]
    return found


def _brain(values: np.ndarray) -> np.ndarray:
    return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


def _nibbles(values: np.ndarray) -> np.ndarray:
    low, high = (values[:, k::2] & 15 for k in (0, 1))
    return (low | high << 4).astype(np.uint8)


_PER = {"F16": 2, "BF16": 2, "TF32": 1, "F64": 1, "S8": 4, "U8": 4, "S4": 8, "U4": 8, "B1": 32}
_STORED = {
    "F16": lambda x: x.astype(np.float16), "BF16": _brain, "TF32": lambda x: x.astype(np.float32), "F64": np.asarray,
    "S8": lambda x: x.astype(np.int8), "U8": lambda x: x.astype(np.uint8), "S4": _nibbles, "U4": _nibbles,
    "B1": lambda x: np.packbits(x.astype(np.uint8), axis=1, bitorder="little"),
}  # fmt: skip
_RANGES = {"S8": (-128, 128), "U8": (0, 256), "S4": (-8, 8), "U4": (0, 16), "B1": (0, 2)}


def _random(kind: str, shape: tuple[int, int], generator: np.random.Generator) -> np.ndarray:
    """Numbers whose products and sums are exact."""
    if kind in _RANGES:
        return generator.integers(*_RANGES[kind], shape)
    return generator.integers(-16, 17, shape) / 8


def _words(values: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(values).view(np.uint32)


def _multiplied(sass, opcode: str, a: np.ndarray, b: np.ndarray, c: np.ndarray, kinds: tuple[str, str]) -> np.ndarray:
    """D's fragment for A, B (depth x 8) and C, whose type is the accumulator's."""
    left = _words(_STORED[kinds[0]](_fragment(a, _PER[kinds[0]])))
    right = _words(_STORED[kinds[1]](_fragment(np.ascontiguousarray(b.T), _PER[kinds[1]])))
    third = _words(_accumulator(c))
    first, last = 4 + left.shape[1], 4 + left.shape[1] + right.shape[1]
    suffixes = ("", "") if opcode[:2] in ("HM", "DM") else (".ROW", ".COL")
    line = f"{opcode} R24, R4{suffixes[0]}, R{first}{suffixes[1]}, R{last}"
    width = third.shape[1]
    found = sass_programs.run(sass, [line], [left, right, third])
    if width > 4:  # the second half of the result
        lines = [line, *(f"MOV R{24 + k}, R{28 + k}" for k in range(4))]
        found += sass_programs.run(sass, lines, [left, right, third])
    return np.ascontiguousarray(np.column_stack(found[:width])).view(c.dtype)


_PRODUCTS = [
    ("HMMA.1688.F32", 16, 8, "F16", "F16", np.float32), ("HMMA.16816.F32", 16, 16, "F16", "F16", np.float32),
    ("HMMA.1688.F16", 16, 8, "F16", "F16", np.float16), ("HMMA.16816.F16", 16, 16, "F16", "F16", np.float16),
    ("HMMA.1688.F32.BF16", 16, 8, "BF16", "BF16", np.float32),
    ("HMMA.16816.F32.BF16", 16, 16, "BF16", "BF16", np.float32),
    ("HMMA.1684.F32.TF32", 16, 4, "TF32", "TF32", np.float32),
    ("HMMA.1688.F32.TF32", 16, 8, "TF32", "TF32", np.float32),
    ("IMMA.8816.S8.U8", 8, 16, "S8", "U8", np.int32), ("IMMA.16816.U8.S8", 16, 16, "U8", "S8", np.int32),
    ("IMMA.16832.S8.S8", 16, 32, "S8", "S8", np.int32), ("IMMA.16832.U8.U8", 16, 32, "U8", "U8", np.int32),
    ("IMMA.8832.U4.S4", 8, 32, "U4", "S4", np.int32), ("IMMA.16832.S4.U4", 16, 32, "S4", "U4", np.int32),
    ("IMMA.16864.S4.S4", 16, 64, "S4", "S4", np.int32),
    ("DMMA.884", 8, 4, "F64", "F64", np.float64), ("DMMA.16x8x4", 16, 4, "F64", "F64", np.float64),
    ("DMMA.16x8x8", 16, 8, "F64", "F64", np.float64),
]  # fmt: skip


@pytest.mark.parametrize(("opcode", "rows", "depth", "left", "right", "kind"), _PRODUCTS)
def test_products_of_matrices(sass, opcode, rows, depth, left, right, kind):
    generator = np.random.default_rng(1)
    a, b = _random(left, (rows, depth), generator), _random(right, (depth, 8), generator)
    c = generator.integers(-90, 90, (rows, 8)).astype(kind)
    assert np.array_equal(_multiplied(sass, opcode, a, b, c, (left, right)), _accumulator((a @ b + c).astype(kind)))


@pytest.mark.parametrize(("opcode", "rows", "depth", "meets"), [
    ("BMMA.88128.XOR.POPC", 8, 128, False), ("BMMA.168128.AND.POPC", 16, 128, True),
    ("BMMA.168256.XOR.POPC", 16, 256, False),
])  # fmt: skip
def test_products_of_bits(sass, opcode, rows, depth, meets):
    generator = np.random.default_rng(2)
    a, b = _random("B1", (rows, depth), generator), _random("B1", (depth, 8), generator)
    c = generator.integers(-90, 90, (rows, 8)).astype(np.int32)
    both = a @ b
    counted = both if meets else a.sum(1)[:, None] + b.sum(0) - 2 * both
    assert np.array_equal(
        _multiplied(sass, opcode, a, b, c, ("B1", "B1")), _accumulator((counted + c).astype(np.int32))
    )


def test_sums_saturate_or_wrap(sass):
    a, b = np.full((8, 16), 100), np.full((16, 8), 100)
    c = np.full((8, 8), 2**31 - 1, np.int32)
    assert set(_multiplied(sass, "IMMA.8816.S8.S8.SAT", a, b, c, ("S8", "S8")).flat) == {2**31 - 1}
    assert set(_multiplied(sass, "IMMA.8816.S8.S8", a, b, c, ("S8", "S8")).flat) == {-(2**31) - 1 + 160000}


def test_sums_are_rounded_once(sass):
    generator = np.random.default_rng(3)
    a, b = (generator.normal(0, 1, shape).astype(np.float16) for shape in ((16, 16), (16, 8)))
    for opcode, kind in (("HMMA.16816.F32", np.float32), ("HMMA.16816.F16", np.float16)):
        c = generator.normal(0, 1, (16, 8)).astype(kind)
        exact = a.astype(float) @ b.astype(float) + c
        assert np.array_equal(_multiplied(sass, opcode, a, b, c, ("F16", "F16")), _accumulator(exact.astype(kind)))


def test_halves_of_all_sizes(sass):
    """Subnormal ones, too, and the least bits of a TF32 operand, which are not there."""
    a = np.zeros((16, 8), np.float16)
    a[:, 0] = [6e-8, -6e-8, 6.1e-5, 6.0e-5, -0.0, 65504, 1e-6, 3e-5, 1, -2, 1e-4, 0.1, 100, -65504, 5.96e-8, 0]
    one = np.eye(8, dtype=np.float16)
    found = _multiplied(sass, "HMMA.1688.F32", a, one, np.zeros((16, 8), np.float32), ("F16", "F16"))
    assert np.array_equal(found, _accumulator(a.astype(np.float32)))
    single = np.random.default_rng(6).normal(0, 1, (16, 8)).astype(np.float32)
    zeros = np.zeros((16, 8), np.float32)
    found = _multiplied(sass, "HMMA.1688.F32.TF32", single, np.eye(8), zeros, ("TF32", "TF32"))
    assert np.array_equal(found.view(np.uint32), _accumulator(single.view(np.uint32) & 0xFFFFE000))


def test_what_is_no_number_stays_in_its_row(sass):
    a, b, c = np.ones((16, 8), np.float16), np.ones((8, 8), np.float16), np.zeros((16, 8), np.float32)
    a[3, 2], a[5, 1] = np.inf, np.nan
    expected = np.full((16, 8), 8, np.float32)
    expected[3], expected[5] = np.inf, np.nan
    found = _multiplied(sass, "HMMA.1688.F32", a, b, c, ("F16", "F16"))
    assert np.array_equal(found, _accumulator(expected), equal_nan=True)


@pytest.mark.parametrize("text", [
    "HMMA.16832.F32 R24, R4, R8, R12", "HMMA.16816.F32 R24, -R4, R8, R12", "IMMA.8816.S8.S8 R24, R4.COL, R8.COL, R12",
    "HMMA.SP.16864.F32 R24, R4, R8, R12, R13, 0x0", "HMMA.SP.16832.F32 R24, R4, R8, R12",
    "BMMA.88128.POPC R24, R4.ROW, R5.COL, R6",
])  # fmt: skip
def test_no_other_product_is_guessed(text):
    assert decode.decode([text], [0], [0], 80).unknown == {0: text}


def _rows_of(words: np.ndarray) -> np.ndarray:
    """A matrix of 8 x 8 halves from its lanes' words."""
    return np.ascontiguousarray(words).view(np.uint16).reshape(8, 8)


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_matrices_in_shared_memory(sass, count, turned):
    generator = np.random.default_rng(4)
    words = generator.integers(0, 1 << 32, (32, 4), np.uint32)
    places = (16 * generator.permutation(32)).astype(np.uint32)  # of the rows that the lanes name
    form = f"16.{'MT88' if turned else 'M88'}{'' if count == 1 else f'.{count}'}"
    lines = ["IMAD.SHL.U32 R9, R0, 0x10, RZ", "STS.128 [R9], R4", "BAR.SYNC 0x0", f"LDSM.{form} R24, [R8]"]
    found = sass_programs.run(sass, lines, [words, places], shared_bytes=512)
    halves = words.view(np.uint16)
    for matrix in range(count):
        rows = halves[places[8 * matrix : 8 * matrix + 8] // 16]
        assert np.array_equal(_rows_of(found[matrix]), rows.T if turned else rows)
    lines = ["IMAD.SHL.U32 R9, R0, 0x10, RZ", "STS.128 [R9], RZ", "BAR.SYNC 0x0", f"STSM.{form} [R8], R4",
             "BAR.SYNC 0x0", "LDS.128 R24, [R9]"]  # fmt: skip
    stored = np.column_stack(sass_programs.run(sass, lines, [words, places], shared_bytes=512)).view(np.uint16)
    expected = np.zeros((32, 8), np.uint16)
    for matrix in range(count):
        rows = _rows_of(words[:, matrix])
        expected[places[8 * matrix : 8 * matrix + 8] // 16] = rows.T if turned else rows
    assert np.array_equal(stored, expected)


@pytest.mark.theory
@pytest.mark.parametrize("form", ["LDSM.16.M88", "LDSM.16.MT88", "STSM.16.M88"])
@pytest.mark.parametrize(
    ("stride", "shift", "conflicts"), [(16, 0, 1), (128, 0, 8), (144, 0, 1), (128, 16, 1), (32, 0, 2)]
)
def test_banks_of_matrices_in_shared_memory(sass, tmp_path, form, stride, shift, conflicts):
    """Eight rows of 16 bytes, a matrix, take all banks once where they lie in different ones: in a piece, padded by 16
    bytes a row, or swizzled; rows of 128 bytes are in the same four banks."""
    places = np.array([stride * k + shift * (k % 8) for k in range(32)], np.uint32)
    values = np.zeros((32, 4), np.uint32)
    for count in (1, 2, 4):
        name = form if count == 1 else f"{form}.{count}"
        line = f"{name} R24, [R8]" if form.startswith("LDSM") else f"{name} [R8], R4"
        sass_programs.run(sass, [line], [values, places], shared_bytes=8192, record=tmp_path / "record")
        with (tmp_path / "record").open("rb") as stream:
            (batch,) = LaunchRecord(stream, "record", 1 << 10).batches()
        assert int(batch.whole.accesses[7]) == count * conflicts  # behind what brings the values


def test_a_matrix_is_transposed_between_the_lanes(sass):
    words = np.random.default_rng(5).integers(0, 1 << 32, 32, np.uint32)
    found = sass_programs.run(sass, ["MOVM.16.MT88 R24, R4"], [words])[0]
    assert np.array_equal(_rows_of(found), _rows_of(words).T)


def test_rows_outside_of_shared_memory_are_told(sass):
    with pytest.raises(sass_programs.StoppedError, match="shared address 0x1000, outside"):
        sass_programs.run(sass, ["LDSM.16.M88 R24, [R4]"], [np.full(32, 0x1000, np.uint32)], shared_bytes=64)


def _halved(kind: str, depth: int, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A matrix of which half of the elements are left, those, and four bits for each row and chunk: two of its four
    units (an element of 8 or 16 bits, two of 4 bits, half of one of 32)."""
    a = _random(kind, (16, depth), generator)
    per = {1: 2, 8: 8}.get(_PER[kind], 4)
    kept, stored, bits = np.zeros_like(a), np.zeros((16, depth // 2), a.dtype), np.zeros((16, depth // per), np.uint32)
    for row in range(16):
        for chunk in range(depth // per):
            units = [0, 1] if per == 2 else sorted(generator.choice(4, 2, replace=False).tolist())
            if per == 2 and generator.integers(2):
                units = [2, 3]
            places = [per * unit // 4 + k for unit in units for k in range(max(1, per // 4))]
            places = sorted(set(places))
            kept[row, [per * chunk + place for place in places]] = a[row, [per * chunk + place for place in places]]
            stored[row, per // 2 * chunk : per // 2 * (chunk + 1)] = [a[row, per * chunk + place] for place in places]
            bits[row, chunk] = units[0] | units[1] << 2
    return kept, stored, bits


def _metadata(bits: np.ndarray, is_narrow: bool, selector: int) -> np.ndarray:
    """uint32[32]. Of elements up to 8 bits a lane has 8 chunks of one row, else 4 chunks of two; which lanes of four:
    CUTLASS's ELayout (mma_traits_sm90_gmma_sparse.hpp, mma_traits_sm120_sparse.hpp)."""
    chunks = bits.shape[1]
    found = np.random.default_rng(0).integers(0, 1 << 32, 32, np.uint32)
    for lane in range(32):
        group, own = divmod(lane, 4)
        word = 0
        if is_narrow:
            first = 8 * (own >> 1) if chunks == 16 else 0
            if chunks == 8 and own >> 1 != selector:
                continue
            for chunk in range(8):
                word |= int(bits[group + 8 * (own & 1), first + chunk]) << 4 * chunk
        else:
            if own != selector if chunks == 4 else own >> 1 != selector:
                continue
            first = 0 if chunks == 4 else 4 * (own & 1)
            for chunk in range(4):
                word |= (
                    int(bits[group, first + chunk]) << 4 * chunk | int(bits[group + 8, first + chunk]) << 16 + 4 * chunk
                )
        found[lane] = word
    return found


@pytest.mark.parametrize(("opcode", "depth", "left", "right", "kind", "selector"), [
    ("HMMA.SP.16816.F32", 16, "F16", "F16", np.float32, 3), ("HMMA.SP.16832.F32", 32, "F16", "F16", np.float32, 1),
    ("HMMA.SP.16832.F16", 32, "F16", "F16", np.float16, 0), ("HMMA.SP.16816.F16", 16, "F16", "F16", np.float16, 2),
    ("HMMA.SP.16832.F32.BF16", 32, "BF16", "BF16", np.float32, 0),
    ("HMMA.SP.1688.F32.TF32", 8, "TF32", "TF32", np.float32, 1),
    ("HMMA.SP.16816.F32.TF32", 16, "TF32", "TF32", np.float32, 1),
    ("IMMA.SP.16832.S8.U8", 32, "S8", "U8", np.int32, 1), ("IMMA.SP.16864.U8.S8", 64, "U8", "S8", np.int32, 0),
    ("IMMA.SP.16864.S4.U4", 64, "S4", "U4", np.int32, 1), ("IMMA.SP.168128.U4.S4", 128, "U4", "S4", np.int32, 0),
])  # fmt: skip
def test_products_of_matrices_of_which_half_is_stored(sass, opcode, depth, left, right, kind, selector):
    generator = np.random.default_rng(7)
    kept, stored, bits = _halved(left, depth, generator)
    b = _random(right, (depth, 8), generator)
    c = generator.integers(-90, 90, (16, 8)).astype(kind)
    words = [_words(_STORED[left](_fragment(stored, _PER[left]))),
             _words(_STORED[right](_fragment(np.ascontiguousarray(b.T), _PER[right]))), _words(_accumulator(c)),
             _metadata(bits, _PER[left] >= 4, selector)]  # fmt: skip
    first = np.cumsum([4, *(each.shape[1] for each in words[:3])])
    suffixes = (".ROW", ".COL") if opcode[0] == "I" else ("", "")
    line = f"{opcode} R24, R4{suffixes[0]}, R{first[1]}{suffixes[1]}, R{first[2]}, R{first[3]}, {hex(selector)}"
    found = np.column_stack(sass_programs.run(sass, [line], words)[: words[2].shape[1]])
    assert np.array_equal(np.ascontiguousarray(found).view(kind), _accumulator((kept @ b + c).astype(kind)))


def _small(exponent: int, fraction: int) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of 8 bits of small size, by the formats' definition, ascending, with their bits."""
    bits = np.arange(256)
    power, part, bias = bits >> fraction & (1 << exponent) - 1, bits & (1 << fraction) - 1, (1 << exponent - 1) - 1
    values = np.where(power, (1 + part / 2**fraction) * 2.0 ** (power - bias), part * 2.0 ** (1 - bias - fraction))
    values = np.where(bits >> 7, -values, values)
    keep = (np.abs(values) <= 8) & (np.abs(values) >= 0.25)
    order = np.argsort(values[keep])
    return values[keep][order], bits[keep][order].astype(np.uint8)


@pytest.mark.parametrize("kinds", [("E4M3", "E4M3"), ("E4M3", "E5M2"), ("E5M2", "E4M3"), ("E5M2", "E5M2")])
@pytest.mark.parametrize(("opcode", "depth", "kind"), [
    ("QMMA.16832.F32", 32, np.float32), ("QMMA.16816.F32", 16, np.float32), ("QMMA.16832.F16", 32, np.float16),
])  # fmt: skip
def test_products_of_numbers_of_8_bits(sass, kinds, opcode, depth, kind):
    generator = np.random.default_rng(8)
    formats = {"E4M3": _small(4, 3), "E5M2": _small(5, 2)}
    picked = [generator.integers(0, len(formats[each][0]), shape)
              for each, shape in zip(kinds, ((16, depth), (depth, 8)), strict=True)]  # fmt: skip
    a, b = (formats[each][0][chosen] for each, chosen in zip(kinds, picked, strict=True))
    left, right = (formats[each][1][chosen] for each, chosen in zip(kinds, picked, strict=True))
    c = generator.integers(-90, 90, (16, 8)).astype(kind)
    words = [_words(_fragment(left, 4)), _words(_fragment(np.ascontiguousarray(right.T), 4)), _words(_accumulator(c))]
    first = np.cumsum([4, *(each.shape[1] for each in words[:2])])
    line = f"{opcode}.{kinds[0]}.{kinds[1]} R24, R4.ROW, R{first[1]}.COL, R{first[2]}"
    found = np.column_stack(sass_programs.run(sass, [line], words)[: words[2].shape[1]])
    assert np.array_equal(np.ascontiguousarray(found).view(kind), _accumulator((a @ b + c).astype(kind)))
