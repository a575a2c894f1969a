"""Products of groups of warps against NumPy; how matrices lie in shared memory is written out as the PTX ISA states it
("Matrices in shared memory"), and CUTLASS's ``mma_sm90_desc.hpp``: pieces of 16 bytes, which the swizzle exchanges."""

from __future__ import annotations

import numpy as np
import pytest
import sass_programs

from manyscale.runner.tracers.cuda.sass import decode

pytestmark = pytest.mark.theory

_WIDTHS = {"none": 1, "128B": 8, "64B": 4, "32B": 2}  # pieces of a row; in the order of the descriptor's numbers
_BYTES = {"F16": 2, "BF16": 2, "TF32": 4, "S8": 1, "U8": 1, "E4M3": 1, "E5M2": 1}


def _places(rows: int, elements: int, size: int, width: int, leading: int, stride: int, turned: bool) -> np.ndarray:
    """int64[rows, elements]: the byte of each element."""
    row, k = np.meshgrid(np.arange(rows), np.arange(elements), indexing="ij")
    if not turned:
        piece, within = k * size // 16, k * size % 16
        across = leading if width == 1 else 16
        place = row // 8 * stride + row % 8 * 16 * width + piece * across + within
    else:
        piece, within = row // 8, row % 8 * size
        if width == 1:
            place = piece * stride + k % 8 * 16 + k // 8 * leading + within
        else:
            place = piece // width * leading + piece % width * 16 + k % 8 * 16 * width + k // 8 * stride + within
    return place ^ ((place >> 7 & (width - 1)) << 4)


def _strides(rows: int, width: int, turned: bool) -> tuple[int, int]:
    """Bytes (leading, stride) that part what lies apart, with a gap where there may be one."""
    if not turned:  # room for four pieces of a row
        return (128, 512) if width == 1 else (16, 128 * width)
    if width == 1:
        return rows // 8 * 128, 128
    return 2 * 128 * width, 128 * width


def _descriptor(start: int, leading: int, stride: int, width: int) -> int:
    number = list(_WIDTHS.values()).index(width)
    return start >> 4 | leading >> 4 << 16 | stride >> 4 << 32 | number << 62


def _encoded(values: np.ndarray, kind: str) -> np.ndarray:
    if kind == "BF16":
        return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    if kind in ("E4M3", "E5M2"):
        return _SMALL[kind][1][np.searchsorted(_SMALL[kind][0], values)]
    types = {"F16": np.float16, "TF32": np.float32, "S8": np.int8, "U8": np.uint8}
    return values.astype(types[kind])


def _small(exponent: int, fraction: int) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of 8 bits that are finite and small enough for exact sums, ascending, with their bits."""
    bits = np.arange(256)
    power, part = bits >> fraction & ((1 << exponent) - 1), bits & ((1 << fraction) - 1)
    bias = (1 << exponent - 1) - 1
    values = np.where(power == 0, part * 2.0 ** (1 - bias - fraction), (1 + part / 2**fraction) * 2.0 ** (power - bias))
    values = np.where(bits >> 7, -values, values)
    keep = (np.abs(values) <= 8) & (np.abs(values) >= 0.25) | (bits == 0)
    order = np.argsort(values[keep])
    return values[keep][order], bits[keep][order].astype(np.uint8)


_SMALL = {"E4M3": _small(4, 3), "E5M2": _small(5, 2)}


def _random(kind: str, shape: tuple[int, int], generator: np.random.Generator) -> np.ndarray:
    if kind in _SMALL:
        return generator.choice(_SMALL[kind][0], shape)
    low, high = {"S8": (-128, 128), "U8": (0, 256)}.get(kind, (-16, 17))
    return generator.integers(low, high, shape) / (1 if kind[1:] == "8" else 8)


def _filled(image: np.ndarray) -> list[str]:
    """SASS of 128 threads that copies an image to shared memory."""
    address = image.ctypes.data
    lines = ["IMAD.SHL.U32 R9, R0, 0x10, RZ", f"MOV R16, {hex(address & 0xFFFFFFFF)}", f"MOV R17, {hex(address >> 32)}",
             "IMAD.WIDE.U32 R16, R0, 0x10, R16"]  # fmt: skip
    for at in range(0, len(image), 2048):
        lines += [f"LDG.E.128 R12, [R16.64+{hex(at)}]", f"STS.128 [R9+{hex(at)}], R12"]
    return [*lines, "BAR.SYNC 0x0"]


def _sums(columns: list[np.ndarray], kind: type) -> np.ndarray:
    """D[64, N] from what the threads hold."""
    words = np.column_stack(columns)
    values = np.ascontiguousarray(words).view(kind)
    number = values.shape[1] // 4
    found = np.zeros((64, 8 * number), kind)
    for thread in range(128):
        warp, lane = divmod(thread, 32)
        for i in range(values.shape[1]):
            found[16 * warp + lane // 4 + 8 * (i >> 1 & 1), 8 * (i >> 2) + 2 * (lane % 4) + (i & 1)] = values[thread, i]
    return found


def _uniforms(first: int, *descriptors: int) -> list[str]:
    words = [half for each in descriptors for half in (each & 0xFFFFFFFF, each >> 32)]
    return [f"UMOV UR{first + place}, {hex(word)}" for place, word in enumerate(words)]


def _product(sass, form, kinds, number, a, b, *, layouts=("none", "none"), turned=(False, False), signs=("", ""),
             register_a=None, kind=np.float32, before=(), with_=", UP0", accumulator="R24", metadata=None):  # fmt: skip
    """D of a product of A, as rows, and B, as columns."""
    images, descriptors, start = [], [], 0
    for values, name, turns, of in zip((a, b), layouts, turned, kinds, strict=True):
        width, size = _WIDTHS[name], _BYTES[of]
        leading, stride = _strides(len(values), width, turns)
        places = _places(*values.shape, size, width, leading, stride, turns)
        image = np.zeros(-(-(int(places.max()) + 16) // 1024) * 1024, np.uint8)
        encoded = np.ascontiguousarray(_encoded(values, of)).view(np.uint8).reshape(*values.shape, size)
        for byte in range(size):
            image[places + byte] = encoded[:, :, byte]
        descriptors.append(_descriptor(start, leading, stride, width))
        images.append(image)
        start += len(image)
    image = np.concatenate(images)
    image = np.concatenate([image, np.zeros(-len(image) % 2048, np.uint8)])
    words = "".join(f".tnsp{each}" for each, turns in zip("AB", turned, strict=True) if turns)
    if register_a is None:
        source = f"gdesc[UR4]{''.join(signs)}{words}"
        uniforms = _uniforms(4, *descriptors)
    else:
        source = f"{signs[0]}R4, gdesc[UR4]{signs[1]}{words}"
        uniforms = _uniforms(6, descriptors[1])  # where it stands behind A's, as nvcc's code has it
    inputs = [np.zeros((128, 4), np.uint32)] if register_a is None else [register_a]
    if metadata is not None:
        inputs.append(metadata)
    lines = ["MOV R20, R8", *_filled(image), *uniforms, *before,
             f"{form} R24, {source}, {accumulator}{with_}, gsb0", "WARPGROUP.DEPBAR.LE gsb0, 0x0"]  # fmt: skip
    stored = number // 2 * np.dtype(kind).itemsize // 4
    found = sass_programs.run(sass, lines, inputs, shared_bytes=len(image), stored=stored, architecture=90)
    return _sums(found, kind)


_FALSE = "UISETP.NE.AND UP0, UPT, URZ, URZ, UPT"
_TRUE = "UISETP.EQ.AND UP0, UPT, URZ, URZ, UPT"


def _form(kinds: tuple[str, str], number: int, half: bool = False) -> tuple[str, int]:
    depth = 32 // _BYTES[kinds[0]]
    if kinds[0][1:] == "8":
        return f"IGMMA.64x{number}x{depth}.{kinds[0]}.{kinds[1]}", depth
    words = "" if kinds[0] == "F16" else f".{kinds[0]}" + (f".{kinds[1]}" if kinds[0] in _SMALL else "")
    root = "QGMMA" if kinds[0] in _SMALL else "HGMMA"
    return f"{root}.64x{number}x{depth}.{'F16' if half else 'F32'}{words}", depth


_KINDS = [("F16", "F16"), ("BF16", "BF16"), ("TF32", "TF32"), ("E4M3", "E4M3"), ("E4M3", "E5M2"), ("E5M2", "E4M3"),
          ("E5M2", "E5M2"), ("S8", "S8"), ("S8", "U8"), ("U8", "S8"), ("U8", "U8")]  # fmt: skip


@pytest.mark.parametrize("kinds", _KINDS)
@pytest.mark.parametrize("layout", list(_WIDTHS))
def test_products_of_all_elements_and_layouts(sass, kinds, layout):
    generator = np.random.default_rng(1)
    for number in (8, 24):
        form, depth = _form(kinds, number)
        a, b = _random(kinds[0], (64, depth), generator), _random(kinds[1], (number, depth), generator)
        kind = np.int32 if kinds[0][1:] == "8" else np.float32
        found = _product(sass, form, kinds, number, a, b, layouts=(layout, layout), kind=kind, before=[_FALSE])
        assert np.array_equal(found, (a @ b.T).astype(kind))


@pytest.mark.parametrize("number", [8 * k for k in range(1, 33)])
def test_products_of_all_widths(sass, number):
    generator = np.random.default_rng(number)
    a, b = _random("F16", (64, 16), generator), _random("F16", (number, 16), generator)
    found = _product(sass, f"HGMMA.64x{number}x16.F32", ("F16", "F16"), number, a, b, before=[_FALSE])
    assert np.array_equal(found, (a @ b.T).astype(np.float32))


@pytest.mark.parametrize("kind", ["F16", "BF16"])
@pytest.mark.parametrize("layout", list(_WIDTHS))
@pytest.mark.parametrize("turned", [(True, False), (False, True), (True, True)])
def test_matrices_whose_columns_lie_together(sass, kind, layout, turned):
    generator = np.random.default_rng(2)
    number = 128 if layout == "128B" else 64
    form, _ = _form((kind, kind), number)
    a, b = _random(kind, (64, 16), generator), _random(kind, (number, 16), generator)
    found = _product(sass, form, (kind, kind), number, a, b, layouts=(layout, layout), turned=turned, before=[_FALSE])
    assert np.array_equal(found, (a @ b.T).astype(np.float32))


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize(
    ("signs", "sign"), [(("", ""), 1), ((".negA", ""), -1), (("", ".negB"), -1), ((".negA", ".negB"), 1)]
)
def test_signs_and_what_is_added(sass, half, signs, sign):
    generator = np.random.default_rng(3)
    a, b = _random("F16", (64, 16), generator), _random("F16", (8, 16), generator)
    form, _ = _form(("F16", "F16"), 8, half)
    kind = np.float16 if half else np.float32
    two = 0x40004000 if half else 0x40000000
    before = [_TRUE, *(f"MOV R{24 + k}, {hex(two)}" for k in range(4))]
    exact = sign * (a @ b.T)
    for with_, accumulator, added in ((", UP0", "R24", 2), ("", "R24", 2), (", !UP0", "R24", 0), (", !UPT", "RZ", 0)):
        found = _product(sass, form, ("F16", "F16"), 8, a, b, signs=signs, kind=kind, before=before, with_=with_,
                         accumulator=accumulator)  # fmt: skip
        assert np.array_equal(found, (exact + added).astype(kind))


def _of_registers(a: np.ndarray, kind: str) -> np.ndarray:
    """uint32[128, 4]: A's rows as the threads hold them."""
    words = np.ascontiguousarray(_encoded(a, kind)).view(np.uint32)  # [64, 8]
    thread = np.arange(128)
    row, own = 16 * (thread // 32) + thread % 32 // 4, thread % 4
    return np.column_stack([words[row + 8 * (r % 2), 4 * (r // 2) + own] for r in range(4)])


@pytest.mark.parametrize(("kinds", "sign"), [(("F16", "F16"), ""), (("F16", "F16"), "-"), (("TF32", "TF32"), ""),
                                             (("E4M3", "E5M2"), ""), (("S8", "U8"), "")])  # fmt: skip
def test_rows_in_registers(sass, kinds, sign):
    generator = np.random.default_rng(4)
    form, depth = _form(kinds, 16)
    a, b = _random(kinds[0], (64, depth), generator), _random(kinds[1], (16, depth), generator)
    kind = np.int32 if kinds[0] == "S8" else np.float32
    found = _product(sass, form, kinds, 16, a, b, kind=kind, before=[_FALSE], register_a=_of_registers(a, kinds[0]),
                     signs=(sign, ""))  # fmt: skip
    assert np.array_equal(found, ((-1 if sign else 1) * (a @ b.T)).astype(kind))


def test_sums_of_bytes_saturate_or_wrap(sass):
    a, b = np.full((64, 32), 100), np.full((8, 32), 100)
    before = [_TRUE, *(f"MOV R{24 + k}, 0x7fffffff" for k in range(4))]
    for word, expected in ((".SAT", 2**31 - 1), ("", -(2**31) - 1 + 320000)):
        found = _product(sass, f"IGMMA.64x8x32.S8.S8{word}", ("S8", "S8"), 8, a, b, kind=np.int32, before=before)
        assert set(found.flat) == {expected}


def test_products_of_bits_count_what_both_have(sass):
    generator = np.random.default_rng(5)
    a, b = generator.integers(0, 2, (64, 256)), generator.integers(0, 2, (8, 256))
    packed = [np.packbits(each.astype(np.uint8), axis=1, bitorder="little") for each in (a, b)]
    found = _product(sass, "BGMMA.64x8x256.AND.POPC", ("U8", "U8"), 8, *packed, kind=np.int32, before=[_FALSE])
    assert np.array_equal(found, a @ b.T)


def test_sums_are_rounded_once(sass):
    generator = np.random.default_rng(6)
    a, b = (generator.normal(0, 1, shape).astype(np.float16) for shape in ((64, 16), (8, 16)))
    exact = a.astype(float) @ b.T.astype(float)
    for half, kind in ((False, np.float32), (True, np.float16)):
        form, _ = _form(("F16", "F16"), 8, half)
        found = _product(sass, form, ("F16", "F16"), 8, a, b, kind=kind, before=[_FALSE])
        assert np.array_equal(found, exact.astype(kind))


def test_numbers_of_8_bits(sass):
    """Each of the 256, by the formats' definition (Micikevicius et al., "FP8 formats for deep learning", 2022)."""
    for kind, exponent, fraction in (("E4M3", 4, 3), ("E5M2", 5, 2)):
        bits = np.arange(256).reshape(64, 4)
        power, part, bias = bits >> fraction & (1 << exponent) - 1, bits & (1 << fraction) - 1, (1 << exponent - 1) - 1
        values = np.where(power, (1 + part / 2**fraction) * 2.0 ** (power - bias), part * 2.0 ** (1 - bias - fraction))
        if kind == "E4M3":
            values[(bits & 127) == 127] = np.nan
        else:
            values[(power == 31) & (part == 0)], values[(power == 31) & (part > 0)] = np.inf, np.nan
        values = np.where(bits >> 7, -values, values)
        for column in range(4):
            a = np.zeros((64, 32), np.uint8)
            a[:, 0] = bits[:, column]
            one = np.zeros((8, 32), np.uint8)
            one[:, 0] = {"E4M3": 0x38, "E5M2": 0x3C}[kind]
            found = _raw(sass, kind, a, one)
            assert np.array_equal(found[:, 0], values[:, column].astype(np.float32), equal_nan=True)


def _raw(sass, kind: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """A product of numbers of 8 bits that are given by their bits."""
    return _product(sass, f"QGMMA.64x8x32.F32.{kind}.{kind}", ("U8", "U8"), 8, a, b, before=[_FALSE])


def test_matrices_outside_of_shared_memory_are_told(sass):
    lines = [*_uniforms(4, _descriptor(0, 128, 256, 1), _descriptor(0x8000, 128, 256, 1)),
             "HGMMA.64x8x16.F32 R24, gdesc[UR4], RZ, !UPT, gsb0"]  # fmt: skip
    with pytest.raises(sass_programs.StoppedError, match="shared address 0x8000, outside"):
        sass_programs.run(sass, lines, [np.zeros(128, np.uint32)], shared_bytes=4096, architecture=90)


def test_a_base_offset_is_refused(sass):
    lines = [*_uniforms(4, 1 << 49, 1 << 49), "HGMMA.64x8x16.F32 R24, gdesc[UR4], RZ, !UPT, gsb0"]
    with pytest.raises(sass_programs.StoppedError, match="base offset is not executed"):
        sass_programs.run(sass, lines, [np.zeros(128, np.uint32)], shared_bytes=4096, architecture=90)


@pytest.mark.parametrize("text", [
    "HGMMA.SP.64x8x16.F32 R24, gdesc[UR8], R24, UP0, R37, 0x1, gsb0", "HGMMA.64x8x32.F32 R24, gdesc[UR8], R24",
    "HGMMA.SP.64x8x32.F32 R24, gdesc[UR8], R24, UP0, gsb0", "BGMMA.SP.64x8x512.AND.POPC R24, gdesc[UR8], R24, R8",
    "HGMMA.64x12x16.F32 R24, gdesc[UR8], R24", "HGMMA.64x264x16.F32 R24, gdesc[UR8], R24",
    "IGMMA.64x8x32.S8.S8 R24, gdesc[UR8].tnspB, R24", "BGMMA.64x8x256.XOR.POPC R24, gdesc[UR8], R24",
    "HGMMA.64x8x16.BF16 R24, gdesc[UR8], R24", "QGMMA.64x8x32.F32.E4M3 R24, gdesc[UR8], R24",
])  # fmt: skip
def test_no_other_product_is_guessed(text):
    assert decode.decode([text], [0], [0], 90).unknown == {0: text}


def _stored_half(a: np.ndarray, per: int, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of a matrix of rows: one in which of each chunk of ``per`` elements half are left; those; and for each row and
    chunk four bits, the places of its two units."""
    rows, depth = a.shape
    kept, stored, bits = (
        np.zeros_like(a),
        np.zeros((rows, depth // 2), a.dtype),
        np.zeros((rows, depth // per), np.uint32),
    )
    for row in range(rows):
        for chunk in range(depth // per):
            places = np.sort(generator.choice(per, per // 2, replace=False))
            kept[row, per * chunk + places] = a[row, per * chunk + places]
            stored[row, per // 2 * chunk : per // 2 * (chunk + 1)] = a[row, per * chunk + places]
            units = (2 * places[0], 2 * places[0] + 1) if per == 2 else places
            bits[row, chunk] = units[0] | units[1] << 2
    return kept, stored, bits


def _metadata_of(bits: np.ndarray, is_narrow: bool, selector: int) -> np.ndarray:
    """uint32[128]: as CUTLASS's ELayout_64x64, 64x32 and 64x16 (mma_traits_sm90_gmma_sparse.hpp) lay them out."""
    found = np.random.default_rng(0).integers(0, 1 << 32, 128, np.uint32)
    for thread in range(128):
        warp, lane = divmod(thread, 32)
        group, own = divmod(lane, 4)
        word = 0
        if is_narrow:  # thread bits: 8 rows, 32 elements
            for chunk in range(8):
                word |= int(bits[16 * warp + group + 8 * (own & 1), 8 * (own >> 1) + chunk]) << 4 * chunk
        elif own >> 1 == selector:  # half of the elements; two rows
            for chunk in range(4):
                for half in range(2):
                    word |= int(bits[16 * warp + group + 8 * half, 4 * (own & 1) + chunk]) << 16 * half + 4 * chunk
        else:
            continue
        found[thread] = word
    return found


@pytest.mark.parametrize("kinds", [("F16", "F16"), ("BF16", "BF16"), ("TF32", "TF32"), ("E4M3", "E5M2"), ("S8", "U8")])
@pytest.mark.parametrize("layout", ["none", "64B", "128B"])
@pytest.mark.parametrize("in_registers", [False, True])
def test_products_of_matrices_of_which_half_is_stored(sass, kinds, layout, in_registers):
    generator = np.random.default_rng(7)
    number, depth, size = 24, 64 // _BYTES[kinds[0]], _BYTES[kinds[0]]
    kept, stored, bits = _stored_half(_random(kinds[0], (64, depth), generator), 2 if size == 4 else 4, generator)
    b = _random(kinds[1], (number, depth), generator)
    form, _ = _form(kinds, number)
    form = form.replace("GMMA.", "GMMA.SP.").replace(f"x{depth // 2}", f"x{depth}")
    kind = np.int32 if kinds[0] == "S8" else np.float32
    for selector in (0,) if size == 1 else (0, 1):
        found = _product(
            sass, form, kinds, number, stored, b, layouts=(layout, layout), kind=kind, before=[_FALSE],
            with_=f", UP0, R20, {hex(selector)}", metadata=_metadata_of(bits, size == 1, selector),
            register_a=_of_registers(stored, kinds[0]) if in_registers else None,
        )  # fmt: skip
        assert np.array_equal(found, (kept @ b.T).astype(kind))
