"""Instructions of AArch64: classes and registers by the architecture's manual, from their encodings."""

from __future__ import annotations

import pytest

from manyscale.models.cpu.dataflow_code import FIRST_VECTOR_REGISTER, STACK_POINTER
from manyscale.models.workload.detail_tables import InstructionClass as Kind

pytest.importorskip("capstone")

from manyscale.runner.readers.binaries.aarch64 import Disassembler, register_number
from manyscale.runner.readers.binaries.instructions import FLAGS

X4, X30 = 17, 31
pytestmark = pytest.mark.theory


@pytest.mark.parametrize(
    ("code", "kind", "lanes", "sources", "destinations"),
    [
        (0x1F410040, Kind.fp_fma, 1, {32, 33, 34}, {32}),  # fmadd d0, d2, d1, d0
        (0x4E62D420, Kind.fp_add, 2, {33, 34}, {32}),  # fadd v0.2d, v1.2d, v2.2d
        (0x4EA28420, Kind.simd_int, 4, {33, 34}, {32}),  # add v0.4s, v1.4s, v2.4s
        (0x913EC042, Kind.int_alu, 1, {2}, {2}),  # add x2, x2, #0xfb0
        (0xEB03001F, Kind.int_alu, 1, {0, 3}, {FLAGS}),  # cmp x0, x3
        (0x54FFFF61, Kind.branch, 1, {FLAGS}, set()),  # b.ne
        (0xFC606842, Kind.move, 1, {0, 2}, {34}),  # ldr d2, [x2, x0]
        (0xF9000484, Kind.move, 1, {X4}, set()),  # str x4, [x4, #8]
        (0x9AC20820, Kind.int_div, 1, {1, 2}, {0}),  # udiv x0, x1, x2
        (0x9B027C20, Kind.int_mul, 1, {1, 2}, {0}),  # mul x0, x1, x2
        (0x94000000, Kind.call, 1, set(), {X30}),  # bl
        (0xD65F03C0, Kind.call_return, 1, {X30}, set()),  # ret
        (0xD503201F, Kind.nop, 1, set(), set()),  # nop
        (0xF8E10002, Kind.atomic, 1, {0, 1}, {2}),  # ldaddal x1, x2, [x0]
        (0x04E00000, Kind.other, 1, None, None),  # of SVE
    ],
)
def test_classes_and_registers(code, kind, lanes, sources, destinations):
    (found,) = Disassembler().disassemble(code.to_bytes(4, "little"), 0x1000)
    assert (found.kind, found.lanes, found.size) == (kind, lanes, 4)
    if sources is not None:
        assert (set(found.sources), set(found.destinations)) == (sources, destinations)


def test_what_is_not_known_is_counted():
    disassembler = Disassembler()
    codes = (0x04E00000, 0xFFFFFFFF, 0xD503201F)  # of SVE, none, nop
    found = list(disassembler.disassemble(b"".join(code.to_bytes(4, "little") for code in codes), 0))
    assert [each.kind for each in found] == [Kind.other, Kind.other, Kind.nop]
    assert disassembler.num_unknown == 2


def test_numbers_of_registers_are_distinct_and_those_of_the_models():
    general = [register_number(f"x{number}") for number in range(31) if number != 18]
    assert len({*general, FLAGS, STACK_POINTER}) == 32
    assert max(general) < FIRST_VECTOR_REGISTER
    assert register_number("sp") == STACK_POINTER
    assert register_number("w7") == register_number("x7")
    assert register_number("q31") == register_number("s31") == FIRST_VECTOR_REGISTER + 31
    assert register_number("xzr") == register_number("x18") == -1
