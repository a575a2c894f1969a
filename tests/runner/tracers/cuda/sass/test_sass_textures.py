"""Textures and surfaces against NumPy, written from NVIDIA's CUDA C++ Programming Guide, "Texture Fetching", and from
its PTX ISA (tld4: texels against the clock, from the lower left; suld, sust, sured: x in bytes)."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import sass_programs
from sass_programs import Texture

from manyscale.runner.tracers.cuda.sass import decode

pytestmark = pytest.mark.theory
WRAP, CLAMP, MIRROR, BORDER = range(4)
HANDLE = 5
KINDS = {"i": 0, "u": 1, "f": 2}


def texture(data: np.ndarray, dimensions: int, *, layers: bool = False, **fields) -> Texture:
    """Of data [depth or layers, height, width, channels], in rows one behind the other."""
    depth, height, width, channels = data.shape
    pitch = width * channels * data.itemsize
    made = Texture(
        base=data.ctypes.data, pitch=pitch, slice=pitch * height, width=width, height=height,
        depth=1 if layers else depth, layers=depth if layers else 0, dimensions=dimensions, channels=channels,
        bits=8 * data.itemsize, kind=KINDS[data.dtype.kind], address=(CLAMP,) * 3,
    )  # fmt: skip
    for name, value in fields.items():
        setattr(made, name, (value,) * 3 if name == "address" else value)
    return made


def index_of(index: np.ndarray, size: int, mode: int) -> tuple[np.ndarray, np.ndarray]:
    """(texel, whether it is one of the texture's)."""
    inside = (index >= 0) & (index < size)
    if mode == WRAP:
        return index % size, np.ones_like(inside)
    if mode == MIRROR:
        turn = index % (2 * size)
        return np.where(turn < size, turn, 2 * size - 1 - turn), np.ones_like(inside)
    return np.clip(index, 0, size - 1), inside | (mode == CLAMP)


def texels(values: np.ndarray, index: list[np.ndarray], mode: int, border: float = 0.0) -> np.ndarray:
    """``values`` [z, y, x, channels] at x, y, z: [n, channels]."""
    sizes = values.shape[2::-1]
    found = [index_of(each, size, mode) for each, size in zip(index, sizes, strict=False)]
    places = [each for each, _ in found] + [np.zeros(len(index[0]), int)] * (3 - len(found))
    inside = np.logical_and.reduce([each for _, each in found])
    return np.where(inside[:, None], values[places[2], places[1], places[0]], border)


def fetched(
    values: np.ndarray, coordinates: list[np.ndarray], mode: int, linear: bool, border: float = 0.0
) -> np.ndarray:
    """T[floor(x)], or the sum of the texels around x - 0.5 with weights of eight bits behind the point."""
    if not linear:
        return texels(values, [np.floor(each).astype(int) for each in coordinates], mode, border)
    moved = [each.astype(np.float64) - 0.5 for each in coordinates]
    first = [np.floor(each).astype(int) for each in moved]
    weight = [np.round((each - low) * 256) / 256 for each, low in zip(moved, first, strict=True)]
    total = np.zeros((len(coordinates[0]), values.shape[3]))
    for corner in itertools.product((0, 1), repeat=len(coordinates)):
        share = np.prod([w if c else 1 - w for w, c in zip(weight, corner, strict=True)], axis=0)
        total += share[:, None] * texels(values, [low + c for low, c in zip(first, corner, strict=True)], mode, border)
    return total


def words(values: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(values, np.float32).view(np.uint32)


def sampled(sass, made: Texture, line: str, columns: list[np.ndarray]) -> np.ndarray:
    found = sass_programs.run(sass, [line], columns, textures={HANDLE: made})
    return np.column_stack(found)


def coordinates_for(sizes: list[int], count: int, normalised: bool, seed: int) -> list[np.ndarray]:
    generator = np.random.default_rng(seed)
    found = [generator.uniform(-1.5 * size, 2.5 * size, count) for size in sizes]
    found = [np.concatenate([each, np.arange(-2, 5), np.arange(-2, 5) + 0.5]) for each in found]
    scaled = [each / size if normalised else each for each, size in zip(found, sizes, strict=True)]
    return [each.astype(np.float32) for each in scaled]


MODES = [(mode, True) for mode in (WRAP, CLAMP, MIRROR, BORDER)] + [(CLAMP, False), (BORDER, False)]


@pytest.mark.parametrize("linear", [False, True])
@pytest.mark.parametrize(("mode", "normalised"), MODES)
@pytest.mark.parametrize("dimensions", [1, 2, 3])
def test_filters_and_address_modes(sass, dimensions, mode, normalised, linear):
    sizes = [5, 4, 3][:dimensions]
    shape = [1] * (3 - dimensions) + sizes[::-1]
    data = np.random.default_rng(dimensions).uniform(-9, 9, (*shape, 2)).astype(np.float32)
    made = texture(
        data, dimensions, address=mode, is_normalised=normalised, is_filtered=linear, border=(2.5, 2.5, 2.5, 2.5)
    )
    given = coordinates_for(sizes, 150, normalised, 7)
    handle = np.full(len(given[0]), HANDLE, np.uint32)
    level = words(np.full(len(handle), -32.0))
    if dimensions == 3:
        line, columns = "TEX.B.LL R26, R24, R4, R7, 3D", [*map(words, given), handle, level]
    else:  # one of one dimension is read as one of two
        second = given[1] if dimensions == 2 else np.zeros_like(given[0])
        line, columns = "TEX.SCR.B.LL R26, R24, R4, R6, 2D", [words(given[0]), words(second), handle, level]
    scaled = [each * np.float32(size) if normalised else each for each, size in zip(given, sizes, strict=True)]
    expected = fetched(data, scaled, mode, linear, 2.5)
    found = sampled(sass, made, line, columns).view(np.float32)
    np.testing.assert_allclose(found[:, :2], expected, rtol=1e-6, atol=1e-6)
    inside = np.all([(each >= 0.5) & (each < size - 0.5) for each, size in zip(scaled, sizes, strict=True)], axis=0)
    assert inside.any()
    assert not found[inside, 2:].any()  # channels that it does not have


WIDE = [(each, False) for each in (np.int32, np.uint32, np.float16)]
NARROW = [(each, reads) for each in (np.int8, np.uint8, np.int16, np.uint16) for reads in (False, True)]


@pytest.mark.parametrize(("kind", "normalised_reads"), [*WIDE, *NARROW])
def test_types_and_read_modes(sass, kind, normalised_reads):
    kind = np.dtype(kind)
    generator = np.random.default_rng(3)
    if kind.kind == "f":
        data = generator.uniform(-9, 9, (1, 4, 4, 4)).astype(kind)
    else:
        limits = np.iinfo(kind)
        data = generator.integers(limits.min, limits.max, (1, 4, 4, 4), kind, endpoint=True)
        data[0, 0, 0] = limits.min, limits.max, 0, 1
    made = texture(data, 2, reads_normalised=normalised_reads)
    y, x = (each.ravel().astype(np.float32) + 0.5 for each in np.mgrid[:4, :4])
    handle = np.full(16, HANDLE, np.uint32)
    line = "TEX.LL R26, R24, R4, R7, UR4, 0x0, 2D"
    found = sass_programs.run(
        sass, ["R2UR UR4, R6", line], [words(x), words(y), handle, words(np.zeros(16))], textures={HANDLE: made}
    )
    found = np.column_stack(found)
    expected = data.reshape(16, 4)
    if kind.kind == "f":
        np.testing.assert_array_equal(found.view(np.float32), expected.astype(np.float32))
    elif normalised_reads:
        most = np.iinfo(kind).max
        np.testing.assert_allclose(found.view(np.float32), np.maximum(expected / most, -1), rtol=1e-7)
    else:
        np.testing.assert_array_equal(found.view(np.int32), expected.astype(np.int64).astype(np.uint32).view(np.int32))


@pytest.mark.parametrize(("mask", "components"), [(1, [0]), (2, [1]), (5, [0, 2]), (11, [0, 1, 3]), (15, [0, 1, 2, 3])])
def test_components_that_are_asked_for_come_one_behind_the_other(sass, mask, components):
    data = np.arange(4 * 3 * 4, dtype=np.float32).reshape(1, 3, 4, 4)
    x, y = np.array([0, 3, 2], np.int32), np.array([2, 1, 0], np.int32)
    line = f"TLD.SCR.B.LZ R26, R24, R4, R6, 2D, {hex(mask)}"
    found = sampled(sass, texture(data, 2), line, [x, y, np.full(3, HANDLE, np.uint32)]).view(np.float32)
    np.testing.assert_array_equal(found[:, : len(components)], data[0, y, x][:, components])


def test_linear_memory_gives_zeros_outside(sass):
    data = np.arange(1, 9, dtype=np.int32).reshape(1, 1, 8, 1)
    made = texture(data, 1, is_linear_memory=1, address=BORDER)
    x = np.array([0, 7, 8, -1, 1 << 30], np.int32)
    found = sampled(sass, made, "TLD.SCR.B.LZ RZ, R24, R4, R5, 1D, 0x1", [x, np.full(5, HANDLE, np.uint32)])
    assert found[:, 0].tolist() == [1, 8, 0, 0, 0]


@pytest.mark.parametrize(("name", "component"), [("R", 0), ("G", 1), ("B", 2), ("A", 3)])
def test_gathers(sass, name, component):
    data = np.random.default_rng(1).uniform(-1, 1, (1, 5, 6, 4)).astype(np.float32)
    x, y = (each.astype(np.float32) for each in coordinates_for([6, 5], 60, False, 2))
    columns = [words(x), words(y), np.full(len(x), HANDLE, np.uint32)]
    found = sampled(sass, texture(data, 2), f"TLD4.SCR.{name}.B R26, R24, R4, R6, 2D", columns).view(np.float32)
    left, upper = (np.floor(each - np.float32(0.5)).astype(int) for each in (x, y))
    for place, (right, lower) in enumerate([(0, 1), (1, 1), (1, 0), (0, 0)]):
        expected = texels(data, [left + right, upper + lower], CLAMP)[:, component]
        np.testing.assert_array_equal(found[:, place], expected)


@pytest.mark.parametrize("dimensions", [1, 2])
def test_layers_are_not_filtered_and_clamp(sass, dimensions):
    data = np.random.default_rng(4).uniform(-1, 1, (3, 5 if dimensions == 2 else 1, 6, 1)).astype(np.float32)
    made = texture(data, dimensions, layers=True, is_filtered=1)
    x, y = (each.astype(np.float32) for each in coordinates_for([6, 5], 60, False, 5))
    layer = np.arange(len(x), dtype=np.uint32) % 5
    handle, level = np.full(len(x), HANDLE, np.uint32), words(np.zeros(len(x)))
    if dimensions == 1:
        line, columns = "TEX.SCR.B.LL RZ, R24, R4, R6, ARRAY_1D, 0x1", [layer, words(x), handle, level]
    else:
        line, columns = "TEX.B.LL RZ, R24, R4, R7, ARRAY_2D, 0x1", [layer, words(x), words(y), handle, level]
    found = sampled(sass, made, line, columns)[:, 0].view(np.float32)
    expected = np.empty(len(x))
    for each in range(5):
        mine = layer == each
        own = data[min(each, 2)][None]
        expected[mine] = fetched(own, [x[mine], y[mine]][:dimensions], CLAMP, True)[:, 0]
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-7)


def test_derivatives_choose_no_level_of_one(sass):
    data = np.random.default_rng(9).uniform(-1, 1, (1, 4, 6, 2)).astype(np.float32)
    given = coordinates_for([6, 4], 30, False, 3)
    columns = [*map(words, given), *[words(np.full(len(given[0]), 2.0))] * 4, np.full(len(given[0]), HANDLE, np.uint32)]
    lines = ["R2UR UR4, R10", "TXD RZ, R24, R4, R6, UR4, 0x0, 2D, 0x3"]
    found = np.column_stack(sass_programs.run(sass, lines, columns, textures={HANDLE: texture(data, 2, is_filtered=1)}))
    expected = fetched(data, given, CLAMP, True)
    np.testing.assert_allclose(found[:, :2].view(np.float32), expected, rtol=1e-6, atol=1e-7)


def test_dimensions_are_asked_for(sass):
    made = texture(np.zeros((3, 5, 7, 1), np.float32), 2, layers=True)
    lines = ["TXQ.B R26, R24, R4, TEX_HEADER_DIMENSION, 0x7"]
    found = sass_programs.run(sass, lines, [np.full(2, HANDLE, np.uint32)], textures={HANDLE: made})
    assert np.column_stack(found)[:, :3].tolist() == [[7, 5, 3]] * 2


def array(width_bytes: int, height: int, depth: int) -> tuple[np.ndarray, np.ndarray]:
    """Bytes of an array, and of each byte [z, y, x] its place: blocks of 64 bytes by 8 rows, in which 16 bytes of two
    rows are beside each other (NVIDIA, Tegra X1 TRM)."""
    pitch, rows = -(-width_bytes // 64) * 64, -(-height // 8) * 8
    z, y, x = np.mgrid[:depth, :height, :width_bytes]
    inner = x % 64 // 32 * 256 + y % 8 // 2 * 64 + x % 32 // 16 * 32 + y % 2 * 16 + x % 16
    return np.zeros(pitch * rows * depth, np.uint8), z * pitch * rows + (y // 8 * (pitch // 64) + x // 64) * 512 + inner


def test_arrays_stand_in_blocks_without_overlap():
    content, place = array(200, 21, 2)
    assert len(np.unique(place)) == place.size
    assert place.max() < len(content)


def surface(content: np.ndarray, width_bytes: int, height: int, depth: int, dimensions: int, layers: bool) -> Texture:
    pitch, rows = -(-width_bytes // 64) * 64, -(-height // 8) * 8
    return Texture(
        base=content.ctypes.data, pitch=pitch, slice=pitch * rows, width=width_bytes, height=height,
        depth=1 if layers else depth, layers=depth if layers else 0, dimensions=dimensions, channels=1, bits=8, kind=1,
        is_array=1,
    )  # fmt: skip


@pytest.mark.parametrize(("size", "kind"), [("U8", "u1"), ("S16", "<i2"), ("", "<u4"), ("64", "<u8"), ("128", "<u4")])
@pytest.mark.parametrize("shape", ["2D", "3D", "2D_ARRAY"])
def test_surfaces_read_and_write_bytes(sass, size, kind, shape):
    width, height, depth = 160, 11, 1 if shape == "2D" else 3
    content, place = array(width, height, depth)
    flat = np.random.default_rng(6).integers(0, 256, place.shape, np.uint8)
    content[place] = flat
    made = surface(content, width, height, depth, 3 if shape == "3D" else 2, shape == "2D_ARRAY")
    step = {"U8": 1, "S16": 2, "": 4, "64": 8, "128": 16}[size]
    generator = np.random.default_rng(8)
    x = generator.permutation(width // step)[:10].astype(np.uint32) * step  # no two threads write the same
    y, z = (generator.integers(0, each, 10, np.uint32) for each in (height, depth))
    handle, data = np.full(10, HANDLE, np.uint32), generator.integers(0, 1 << 32, (10, 4), np.uint32)
    ending = f".{size}" if size else ""
    lines = [
        f"SULD.D.BA.{shape}{ending}.STRONG.CTA.TRAP R24, [R4], R7",
        f"SUST.D.BA.{shape}{ending}.STRONG.CTA.TRAP [R4], R8, R7",
    ]
    found = np.column_stack(sass_programs.run(sass, lines, [x, y, z, handle, data], textures={HANDLE: made}))
    each = np.arange(step)
    old = flat[z[:, None], y[:, None], x[:, None] + each]
    if step < 4:
        np.testing.assert_array_equal(found[:, 0].view(np.int32), old.view(kind)[:, 0])
    else:
        np.testing.assert_array_equal(found[:, : step // 4], old.view("<u4"))
    flat[z[:, None], y[:, None], x[:, None] + each] = data.view(np.uint8)[:, :step]
    np.testing.assert_array_equal(content[place], flat)


def test_what_lies_outside_a_surface(sass):
    content, place = array(32, 4, 1)
    content[place] = np.arange(place.size, dtype=np.uint8).reshape(place.shape)
    made = surface(content, 32, 4, 1, 2, False)
    x, y = np.array([28, 32, -4, 0], np.int32), np.array([3, 0, 1, 9], np.int32)
    columns = [x, y, np.full(4, HANDLE, np.uint32)]
    flat = content[place][0].view("<u4")
    zeros = sass_programs.run(sass, ["SULD.D.BA.2D.STRONG.CTA.IGN R24, [R4], R6"], columns, textures={HANDLE: made})[0]
    assert zeros.tolist() == [flat[3, 7], 0, 0, 0]
    clamps = sass_programs.run(sass, ["SULD.D.BA.2D.STRONG.CTA R24, [R4], R6"], columns, textures={HANDLE: made})[0]
    assert clamps.tolist() == [flat[3, 7], flat[0, 7], flat[1, 0], flat[3, 0]]
    with pytest.raises(sass_programs.StoppedError, match=r"thread \(1,0,0\).*byte 32 of row 0.*32 bytes by 4 rows"):
        sass_programs.run(sass, ["SULD.D.BA.2D.STRONG.CTA.TRAP R24, [R4], R6"], columns, textures={HANDLE: made})


@pytest.mark.parametrize(
    ("name", "expected"), [("ADD.S32", 10 + sum(range(-5, 5))), ("MIN.S32", -5), ("MAX.S32", 10), ("OR", -1)]
)
def test_reductions_of_surfaces(sass, name, expected):
    content, place = array(16, 1, 1)
    content[place[0, 0, 4:8]] = np.array([10], "<i4").view(np.uint8)
    made = surface(content, 16, 1, 1, 1, False)
    values = np.arange(-5, 5, dtype=np.int32)
    columns = [np.full(10, 4, np.uint32), np.full(10, HANDLE, np.uint32), values]
    line = f"SURED.D.BA.1D.{name}.STRONG.SYS.TRAP [R4], R6, R5"
    sass_programs.run(sass, [line], columns, textures={HANDLE: made})
    assert content[place[0, 0, 4:8]].view("<i4")[0] == expected


def test_a_handle_of_nothing_is_told(sass):
    with pytest.raises(sass_programs.StoppedError, match="texture object 0x9, which does not exist"):
        sass_programs.run(
            sass, ["TLD.SCR.B.LZ RZ, R24, R4, R5, 1D, 0x1"], [np.zeros(1, np.uint32), np.full(1, 9, np.uint32)]
        )


@pytest.mark.parametrize(
    "text",
    ["TEX.SCR.LL RZ, R9, R8, R14, 0x0, 0x58, CUBE, 0x1", "TEX.SCR.DC.LL RZ, R9, R8, R14, 0x0, 0x58, 2D, 0x1",
     "SUST.P.2D.STRONG.CTA.R.TRAP [R4], R0, 0x0, 0x58", "TLD4.SCR.R.AOFFI R6, R4, R0, R2, 0x0, 0x58, 2D"],
)  # fmt: skip
def test_what_is_not_there_is_unknown(text):
    assert decode.decode([text], [0], [0], 80).unknown == {0: text}


def test_lanes_with_handles_of_their_own_take_turns(sass):
    """As compiled for sm_90: the first lane's handle goes to a uniform register; those with others come again."""
    data = np.arange(12, dtype=np.float32).reshape(1, 1, 12, 1)
    objects = {k: texture(data[:, :, 4 * k : 4 * k + 4], 1) for k in range(3)}
    handles = np.array([0, 2, 1, 1, 2, 0, 2], np.uint32)
    loop = [
        "PLOP3.LUT P0, PT, PT, PT, PT, 0x80, 0x0",
        "MOV R6, RZ",
        "PLOP3.LUT P1, PT, P1, P0, PT, 0xa2, 0x0",
        "@P0 R2UR P1, UR6, R5",
        "PLOP3.LUT P1, PT, P1, P0, PT, 0xa2, 0x0",
        "@P0 R2UR.OR P1, UR7, R6",
        "@!P1 TLD.LZ RZ, R24, R4, UR6, 0x0, 1D, 0x1",
        "@P0 PLOP3.LUT P0, PT, P1, PT, PT, 0x80, 0x0",
        "@P0 BRA.U.ANY 0x60",  # behind the four lines that load two columns, and two of these
    ]
    x = np.array([0, 1, 2, 3, 0, 1, 2], np.uint32)
    found = sass_programs.run(sass, loop, [x, handles], textures=objects)[0].view(np.float32)
    np.testing.assert_array_equal(found, 4 * handles + x)
