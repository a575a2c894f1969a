"""Copies of boxes of tensors and of blocks of bytes (TMA) against NumPy. Where the elements of a box lie follows from
the PTX ISA ("Tensors") and the documentation of cuTensorMapEncodeTiled; the 128 bytes of a map are ours
(tensor_map.h)."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
import sass_programs

from manyscale.models.workload.asynchronous import COPIES
from manyscale.runner.readers.cuda.records import LaunchRecord
from manyscale.runner.tracers.cuda.sass import decode

pytestmark = pytest.mark.theory

_MAP = np.dtype(
    [("name", "<u8"), ("sum", "<u8"), ("address", "<u8"), ("strides", "<u8", 4), ("last", "<u4", 5), ("box", "<u2", 5),
     ("element_strides", "u1", 5), ("kind", "u1"), ("rank", "u1"), ("type", "u1"), ("interleave", "u1"),
     ("swizzle", "u1"), ("promotion", "u1"), ("fill", "u1"), ("lower", "<i2", 3), ("upper", "<i2", 3),
     ("channels", "<u2"), ("pixels", "<u2"), ("unused", "u1", 14)]
)  # fmt: skip
_TYPES = {"u1": 0, "u2": 1, "u4": 2, "i4": 3, "u8": 4, "i8": 5, "f2": 6, "f4": 7, "f8": 8}
_SHARED = 16384  # bytes that are looked at
_BARRIER = _SHARED
_UMOV_BARRIER = f"UMOV UR17, {hex(_BARRIER)}"


def _map(tensor: np.ndarray, box: tuple[int, ...], strides: tuple[int, ...] = (1,) * 5, **more: int) -> np.ndarray:
    """Of a tensor whose last axis is dimension 0; ``box``, ``strides``: dimension 0 first."""
    found = np.zeros((), _MAP)
    found["name"], found["rank"], found["address"] = 0x70616D2D6D736E74, tensor.ndim, tensor.ctypes.data
    found["strides"][: tensor.ndim - 1] = tensor.strides[::-1][1:]
    found["last"][: tensor.ndim] = np.array(tensor.shape[::-1]) - 1
    found["box"][: tensor.ndim], found["element_strides"] = box, strides
    found["type"] = _TYPES[tensor.dtype.str[1:]]
    for name, value in more.items():
        found[name] = value
    return _sealed(found)


def _sealed(found: np.ndarray) -> np.ndarray:
    total = 0xCBF29CE484222325
    for byte in found.tobytes()[16:]:
        total = (total ^ byte) * 0x100000001B3 & (1 << 64) - 1
    found["sum"] = total
    return found


def _pair(first: int, value: int) -> list[str]:
    return [f"UMOV UR{first}, {hex(value & 0xFFFFFFFF)}", f"UMOV UR{first + 1}, {hex(value >> 32)}"]


def _begun(size: int) -> list[str]:
    """Thread 0 (P6) makes a barrier that expects ``size`` bytes."""
    return [
        "ISETP.EQ.U32.AND P6, PT, R0, RZ, PT", f"UMOV UR8, {hex(_BARRIER)}", *_pair(4, 0xFFFFF << 1 | 0xFFFFF << 43),
        "@P6 SYNCS.EXCH.64 URZ, [UR8], UR4", f"MOV R9, {hex(size)}", "@P6 SYNCS.ARRIVE.TRANS64 RZ, [UR8], R9",
    ]  # fmt: skip


_WAITED = ["BAR.SYNC 0x0", "MOV R20, 0x0", "SYNCS.PHASECHK.TRANS64 P0, [UR8], R20", "SEL R8, RZ, 0x1, !P0"]


def _looked_at() -> list[str]:
    """What lies in shared memory, of 512 threads."""
    lines = ["IMAD.SHL.U32 R9, R0, 0x10, RZ"]
    for part in range(_SHARED // 8192):
        lines.append(f"LDS.128 R{24 + 4 * part}, [R9+{hex(8192 * part)}]")
    return [*lines, f"MOV R{24 + _SHARED // 2048}, R8"]


def _run(sass, lines: list[str]) -> tuple[np.ndarray, int]:
    """The bytes of shared memory, and whether the barrier's phase has ended."""
    parts = _SHARED // 8192
    columns = sass_programs.run(
        sass, [*lines, *_looked_at()], [np.zeros(512, np.uint32)], shared_bytes=_SHARED + 64, stored=4 * parts + 1,
        architecture=90,
    )  # fmt: skip
    words = [np.column_stack(columns[4 * part : 4 * part + 4]) for part in range(parts)]
    return np.concatenate(words).reshape(-1).view(np.uint8), int(columns[-1][0])


def _boxed(tensor: np.ndarray, box: tuple[int, ...], at: tuple[int, ...], strides: tuple[int, ...]) -> np.ndarray:
    """The elements of a box in the order of shared memory, zeros outside of the tensor. Dimension 0 first."""
    counts = [-(-size // stride) for size, stride in zip(box, strides, strict=False)]
    found = np.zeros(counts[::-1], tensor.dtype)
    for index in itertools.product(*(range(count) for count in counts)):
        place = [start + k * stride for start, k, stride in zip(at, index, strides, strict=False)]
        if all(0 <= each < size for each, size in zip(place, tensor.shape[::-1], strict=True)):
            found[index[::-1]] = tensor[tuple(place[::-1])]
    return found


def _swizzled(data: bytes, width: int) -> np.ndarray:
    """Pieces of 16 bytes exchanged in each row of 128 bytes, by the row's number; ``width``: pieces of the pattern."""
    given, found = np.frombuffer(data, np.uint8), np.zeros(len(data), np.uint8)
    for piece in range(len(data) // 16):
        to = piece ^ (piece // 8 % width)
        found[16 * to : 16 * to + 16] = given[16 * piece : 16 * piece + 16]
    return found


def _coordinates(first: int, at: tuple[int, ...]) -> list[str]:
    return [f"UMOV UR{first + k}, {hex(each & 0xFFFFFFFF)}" for k, each in enumerate(at)]


def _tensor(kind: str, shape: tuple[int, ...], seed: int) -> np.ndarray:
    """Random, with rows that lie further apart than they are long."""
    whole = np.random.default_rng(seed).integers(0, 100, (*shape[:-1], shape[-1] + 16)).astype(kind)
    return whole[..., : shape[-1]]


_BOXES = [  # type, shape (dimension 0 last), box and corner (dimension 0 first), steps
    ("f2", (100,), (64,), (8,), (1,)), ("f2", (100,), (64,), (60,), (1,)), ("f4", (64,), (32,), (-8,), (1,)),
    ("f2", (40, 64), (64, 16), (0, 8), (1, 1)), ("f2", (40, 64), (64, 16), (-3, 30), (1, 1)),
    ("f4", (20, 33), (32, 8), (16, -4), (1, 1)), ("u1", (30, 128), (128, 30), (0, 0), (1, 1)),
    ("f8", (9, 20), (16, 4), (3, 2), (1, 1)), ("i4", (40, 64), (16, 16), (4, 5), (1, 2)),
    ("f2", (6, 10, 32), (16, 4, 3), (8, 5, 2), (1, 1, 1)), ("f2", (6, 10, 32), (16, 4, 3), (100, 0, 0), (1, 1, 1)),
    ("u2", (4, 5, 6, 16), (8, 3, 2, 2), (4, 1, 2, 3), (1, 1, 1, 1)),
    ("i8", (3, 4, 5, 6, 8), (2, 3, 2, 2, 2), (1, 2, -1, 3, 1), (1, 2, 1, 1, 1)),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "shape", "box", "at", "strides"), _BOXES)
def test_boxes_are_loaded(sass, kind, shape, box, at, strides):
    tensor = _tensor(kind, shape, 1)
    described = _map(tensor, box, (*strides, 1, 1, 1, 1)[:5])
    expected = _boxed(tensor, box, at, strides)
    lines = [*_begun(expected.nbytes), *_pair(24, described.ctypes.data), "UMOV UR16, 0x400", _UMOV_BARRIER,
             *_coordinates(18, at), f"@P6 UTMALDG.{len(box)}D [UR16], [UR24], desc[UR4]", *_WAITED]  # fmt: skip
    found, ended = _run(sass, lines)
    assert ended == 1
    assert found[1024 : 1024 + expected.nbytes].tobytes() == expected.tobytes()
    assert not found[:1024].any()
    assert not found[1024 + expected.nbytes :].any()


@pytest.mark.parametrize(("swizzle", "width"), [(1, 2), (2, 4), (3, 8)])
def test_a_swizzle_exchanges_pieces(sass, swizzle, width):
    tensor = _tensor("f2", (64, 64), 2)
    box, at = (8 * width, 48), (4, -3)
    described = _map(tensor, box, swizzle=swizzle)
    expected = _boxed(tensor, box, at, (1, 1))
    lines = [*_begun(expected.nbytes), *_pair(24, described.ctypes.data), "UMOV UR16, 0x400", _UMOV_BARRIER,
             *_coordinates(18, at), "@P6 UTMALDG.2D [UR16], [UR24]", *_WAITED]  # fmt: skip
    found, ended = _run(sass, lines)
    assert ended == 1
    assert np.array_equal(found[1024 : 1024 + expected.nbytes], _swizzled(expected.tobytes(), width))


def _words(path: Path) -> np.ndarray:
    """Of the one block of a record."""
    with path.open("rb") as stream:
        (batch,) = LaunchRecord(stream, str(path), 200).batches()
    return batch.whole.words


def _touched(words: np.ndarray) -> tuple[list[int], int]:
    """Bytes that the runs of the only copy name, ascending, and what its barrier expects."""
    (at,) = (k for k in range(len(words)) if words[k] & 15 == COPIES and words[k] >> 4 & 0xFFFF)
    runs = words[at + 2 : at + 1 + (int(words[at]) >> 4 & 0xFFFF)].tolist()
    found: list[int] = []
    for rows, shape in zip(runs[::2], runs[1::2], strict=True):
        start, count, size, stride = rows & (1 << 48) - 1, rows >> 48 & 0xFFFF, shape & 0xFFFFFF, shape >> 24
        found += [start + k * stride + byte for k in range(count) for byte in range(size)]
    return sorted(found), int(words[at + 1]) & 0xFFFFFFFF


def _drawn(seed: int) -> tuple[str, tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...], int]:
    """Type, shape (dimension 0 last), box, corner and steps (dimension 0 first), and a swizzle that the box allows."""
    rng = np.random.default_rng(seed)
    rank, kind = int(rng.integers(1, 6)), str(rng.choice(["f2", "f4", "u1", "f8"]))
    size = np.dtype(kind).itemsize
    box = [int(rng.integers(1, 5)) for _ in range(rank)]
    box[0] = 16 // size * int(rng.choice([1, 2, 4, 8]))
    swizzle = int(rng.integers(0, 2)) and {32: 1, 64: 2, 128: 3}.get(box[0] * size, 0)
    shape = [int(rng.integers(1, 9)) for _ in range(rank)]
    shape[-1] = 16 // size * int(rng.integers(1, 9))
    at = [int(rng.integers(-each // 2 - 1, length + 2)) for each, length in zip(box, shape[::-1], strict=True)]
    steps = [1, *(int(rng.integers(1, 3)) for _ in range(rank - 1))]
    return kind, tuple(shape), tuple(box), tuple(at), tuple(steps), swizzle


@pytest.mark.property
@pytest.mark.parametrize("root", ["UTMALDG", "UTMASTG", "UTMAPF"])
def test_records_of_random_boxes_have_the_bytes_inside_the_tensor(sass, tmp_path, root):
    """The barrier counts those that are filled with zeros, too."""
    for seed in range(25):
        kind, shape, box, at, steps, swizzle = _drawn(seed)
        tensor = _tensor(kind, shape, seed)
        described = _map(tensor, box, (*steps, 1, 1, 1, 1)[:5], swizzle=swizzle)
        counts = [-(-size // step) for size, step in zip(box, steps, strict=True)]
        inside = set()
        for index in itertools.product(*(range(count) for count in counts)):
            place = [start + k * step for start, k, step in zip(at, index, steps, strict=True)]
            if all(0 <= each < size for each, size in zip(place, shape[::-1], strict=True)):
                inside.add(sum(p * s for p, s in zip(place, tensor.strides[::-1], strict=True)))
        total = int(np.prod(counts)) * tensor.itemsize
        loads, prefetches = root == "UTMALDG", root == "UTMAPF"
        first = 16 if prefetches else 18 if loads else 17
        name = f"@P6 {root}.L2.{len(box)}D" if prefetches else f"@P6 {root}.{len(box)}D"
        lines = [*_begun(total), *_pair(24, described.ctypes.data), "UMOV UR16, 0x400", _UMOV_BARRIER,
                 *_coordinates(first, at), f"{name} [UR16], [UR24]"]  # fmt: skip
        record = tmp_path / "record"
        sass_programs.run(
            sass, lines, [np.zeros(32, np.uint32)], shared_bytes=_SHARED + 64, architecture=90, record=record
        )
        found, expected = _touched(_words(record))
        base = tensor.ctypes.data & (1 << 48) - 1
        assert found == sorted(base + place + byte for place in inside for byte in range(tensor.itemsize))
        assert expected == total


def test_a_prefetched_block_is_in_the_record(sass, tmp_path):
    source = np.zeros(512, np.uint8)
    lines = ["ISETP.EQ.U32.AND P6, PT, R0, RZ, PT", *_pair(24, source.ctypes.data), "UMOV UR6, 0x7",
             "@P6 UBLKPF.L2 [UR24], UR6"]  # fmt: skip
    sass_programs.run(sass, lines, [np.zeros(32, np.uint32)], architecture=90, record=tmp_path / "record")
    found, size = _touched(_words(tmp_path / "record"))
    base = source.ctypes.data & (1 << 48) - 1
    assert (found, size) == (list(range(base, base + 112)), 112)


def _filled(values: np.ndarray) -> list[str]:
    """512 threads write 8 KiB to shared memory."""
    return ["IMAD.SHL.U32 R9, R0, 0x10, RZ", *_pair(4, values.ctypes.data), "MOV R16, UR4", "MOV R17, UR5",
            "IMAD.WIDE.U32 R16, R0, 0x10, R16", "LDG.E.128 R12, [R16.64]", "STS.128 [R9], R12", "BAR.SYNC 0x0",
            "ISETP.EQ.U32.AND P6, PT, R0, RZ, PT", "MOV R8, RZ"]  # fmt: skip


_OPERATIONS = {
    "ADD": np.add, "MIN": np.minimum, "MAX": np.maximum, "AND": np.bitwise_and, "OR": np.bitwise_or,
    "XOR": np.bitwise_xor, "INC": lambda old, most: np.where(old >= most, 0, old + 1),
    "DEC": lambda old, most: np.where((old == 0) | (old > most), most, old - (old > 0).astype(old.dtype)),
}  # fmt: skip


@pytest.mark.parametrize(("kind", "operation"), [
    ("f2", None), ("u4", "ADD"), ("f2", "ADD"), ("f4", "ADD"), ("f8", "ADD"), ("i4", "MIN"), ("u4", "MAX"),
    ("i8", "MIN"), ("u8", "OR"), ("u4", "XOR"), ("u4", "AND"), ("u4", "INC"), ("u4", "DEC"), ("f2", "MAX"),
])  # fmt: skip
def test_boxes_are_stored_or_meet_what_is_there(sass, kind, operation):
    shape, box, at = (20, 40), (32, 16), (-5, 9)
    tensor = _tensor(kind, shape, 3)
    if kind[0] == "i":
        tensor -= 50
    before = tensor.copy()
    values = np.zeros(8192, np.uint8)
    given = np.random.default_rng(4).integers(0, 100, (16, 32)).astype(kind)
    values[: given.nbytes] = given.reshape(-1).view(np.uint8)
    described = _map(tensor, box)
    name = "UTMASTG.2D" if operation is None else f"UTMAREDG.2D.{operation}"
    lines = [*_filled(values), *_pair(24, described.ctypes.data), "UMOV UR16, 0x0", *_coordinates(17, at),
             f"@P6 {name} [UR16], [UR24]", "UTMACMDFLUSH", "DEPBAR.LE SB0, 0x0"]  # fmt: skip
    _run(sass, lines)
    expected = before.copy()
    for row, column in itertools.product(range(16), range(32)):
        y, x = row + at[1], column + at[0]
        if 0 <= y < 20 and 0 <= x < 40:
            old = before[y, x]
            expected[y, x] = (
                given[row, column] if operation is None else _OPERATIONS[operation](old, given[row, column])
            )
    assert np.array_equal(tensor, expected)


@pytest.mark.parametrize("width", [2, 8])
def test_a_swizzled_box_is_stored(sass, width):
    tensor, values = np.zeros((32, 8 * width), np.float16), np.zeros(8192, np.uint8)
    given = np.random.default_rng(5).integers(0, 100, tensor.shape).astype(np.float16)
    values[: given.nbytes] = _swizzled(given.tobytes(), width)
    described = _map(tensor, (8 * width, 32), swizzle={2: 1, 8: 3}[width])
    lines = [*_filled(values), *_pair(24, described.ctypes.data), "UMOV UR16, 0x0", *_coordinates(17, (0, 0)),
             "@P6 UTMASTG.2D [UR16], [UR24]"]  # fmt: skip
    _run(sass, lines)
    assert np.array_equal(tensor, given)


def test_blocks_of_bytes_go_both_ways(sass):
    source = np.random.default_rng(6).integers(0, 256, 4096, np.uint8)
    lines = [*_begun(4096 + 1024), *_pair(24, source.ctypes.data), "UMOV UR16, 0x800", f"UMOV UR17, {hex(_BARRIER)}",
             "UMOV UR6, 0x100", "@P6 UBLKCP.S.G [UR16], [UR24], UR6", "UMOV UR18, 0x2000",
             f"UMOV UR19, {hex(_BARRIER)}", "UMOV UR6, 0x40", "@P6 UBLKCP.S.S [UR18], [UR16], UR6, desc[UR4]",
             *_WAITED]  # fmt: skip
    found, ended = _run(sass, lines)
    assert ended == 1
    assert np.array_equal(found[2048 : 2048 + 4096], source)
    assert np.array_equal(found[8192 : 8192 + 1024], source[:1024])
    values, to = np.random.default_rng(7).integers(0, 256, 8192, np.uint8), np.zeros(512, np.uint8)
    lines = [*_filled(values), *_pair(24, to.ctypes.data), "UMOV UR16, 0x40", "UMOV UR6, 0x20",
             "@P6 UBLKCP.G.S [UR24], [UR16], UR6"]  # fmt: skip
    _run(sass, lines)
    assert np.array_equal(to, values[64 : 64 + 512])


@pytest.mark.parametrize(("word", "kind", "operation"), [
    ("ADD", "u4", "ADD"), ("ADD.S32", "i4", "ADD"), ("ADD.U64", "u8", "ADD"), ("ADD.F16.RN", "f2", "ADD"),
    ("ADD.F32.RN", "f4", "ADD"), ("ADD.F64.RN", "f8", "ADD"), ("MIN.S64", "i8", "MIN"), ("MAX.U64", "u8", "MAX"),
    ("MIN.F16.RN", "f2", "MIN"), ("MIN", "u4", "MIN"), ("AND", "u4", "AND"), ("OR.U64", "u8", "OR"),
    ("XOR.U64", "u8", "XOR"), ("INC", "u4", "INC"), ("DEC", "u4", "DEC"),
])  # fmt: skip
def test_blocks_of_elements_meet_what_is_there(sass, word, kind, operation):
    generator = np.random.default_rng(8)
    count = 256 // np.dtype(kind).itemsize
    old, given = (generator.integers(-50 if kind[0] == "i" else 0, 100, count).astype(kind) for _ in range(2))
    values, to = np.zeros(8192, np.uint8), old.copy()
    values[:256] = given.view(np.uint8)
    lines = [*_filled(values), *_pair(24, to.ctypes.data), "UMOV UR16, 0x0", "UMOV UR6, 0x10",
             f"@P6 UBLKRED.G.S.{word} [UR24], [UR16], UR6"]  # fmt: skip
    _run(sass, lines)
    assert np.array_equal(to, _OPERATIONS[operation](old, given).astype(kind))


def test_bfloats_meet_what_is_there(sass):
    old, given = (np.random.default_rng(seed).integers(-99, 99, 128).astype(np.float32) for seed in (9, 10))
    values, to = np.zeros(8192, np.uint8), (old.view(np.uint32) >> 16).astype(np.uint16)
    values[:256] = (given.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
    lines = [*_filled(values), *_pair(24, to.ctypes.data), "UMOV UR16, 0x0", "UMOV UR6, 0x10",
             "@P6 UBLKRED.G.S.ADD.BF16.RN [UR24], [UR16], UR6"]  # fmt: skip
    _run(sass, lines)
    assert np.array_equal((to.astype(np.uint32) << 16).view(np.float32), old + given)


def test_stores_of_lanes_count_at_a_barrier(sass):
    """STAS.64 of 512 threads, REDAS.ADD of all to one place."""
    lines = [*_begun(512 * 8 + 512 * 4), "BAR.SYNC 0x0", "IMAD.SHL.U32 R10, R0, 0x8, RZ", f"MOV R11, {hex(_BARRIER)}",
             "MOV R12, R0", "MOV R13, 0x7", "STAS.64 [R10.64], R12", "MOV R10, 0x1800", "MOV R14, 0x3",
             "REDAS.ADD [R10.64], R14", *_WAITED]  # fmt: skip
    found, ended = _run(sass, lines)
    words = found.view(np.uint32)
    assert ended == 1
    assert np.array_equal(words[:1024:2], np.arange(512))
    assert set(words[1:1024:2]) == {7}
    assert words[0x1800 // 4] == 3 * 512


def _refused(sass, described: np.ndarray, match: str, name: str = "UTMALDG.2D") -> None:
    lines = [*_begun(64), *_pair(24, described.ctypes.data), "UMOV UR16, 0x0", f"UMOV UR17, {hex(_BARRIER)}",
             *_coordinates(18, (0, 0, 0, 0, 0)), f"@P6 {name} [UR16], [UR24]"]  # fmt: skip
    with pytest.raises(sass_programs.StoppedError, match=match):
        _run(sass, lines)


def test_maps_that_are_not_executed_are_told(sass):
    tensor = _tensor("f2", (16, 64), 11)
    described = _map(tensor, (64, 8))
    described["box"][1] = 9
    _refused(sass, described, "which the program has changed|the program has changed")
    described["name"] = 0
    _refused(sass, described, "cuTensorMapEncodeTiled has not made")
    _refused(sass, _map(tensor, (64, 8), interleave=1), "interleaved elements")
    _refused(sass, _map(tensor, (32, 8), swizzle=3), "narrower than its swizzle")
    _refused(sass, _map(tensor, (64, 8), swizzle=4), "swizzle of larger atoms")
    _refused(sass, _map(tensor, (64, 8), kind=1), "im2col")
    _refused(sass, _map(tensor, (64, 8), type=13), "packed elements")
    _refused(sass, _map(tensor, (64, 8)), "another number of dimensions", "UTMALDG.3D")
    _refused(sass, _map(tensor, (64, 250)), "outside of what is allocated")


def test_zeros_for_what_is_no_number_outside_are_refused(sass):
    described = _map(_tensor("f2", (16, 64), 12), (64, 32), fill=1)
    _refused(sass, described, "fills with NaN")


@pytest.mark.parametrize("text", [
    "UTMALDG.4D.IM2COL [UR8], [UR24], UR4", "UTMALDG.2D.2CTA [UR8], [UR24]", "UTMASTG.2D.IM2COL [UR4], [UR14]",
    "UBLKRED.G.S [UR14], [UR4], UR5", "UBLKCP.G.G [UR14], [UR4], UR5",
])  # fmt: skip
def test_no_other_copy_is_guessed(text):
    assert decode.decode([text], [0], [0], 90).unknown == {0: text}
