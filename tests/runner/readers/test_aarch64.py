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
        # SVE, by Arm's DDI 0487 part C8; vectors of 256 bits
        (0xA5E44021, Kind.move, 4, {1, X4}, {33}),  # ld1d {z1.d}, p0/z, [x1, x4, lsl #3]
        (0xC5E1C001, Kind.move, 4, {0, 33}, {33}),  # ld1d {z1.d}, p0/z, [x0, z1.d, lsl #3]
        (0xE5E44000, Kind.move, 4, {0, X4, 32}, set()),  # st1d {z0.d}, p0, [x0, x4, lsl #3]
        (0xE58003E0, Kind.move, 1, {STACK_POINTER}, set()),  # str p0, [sp]
        (0x65E10440, Kind.fp_fma, 4, {32, 33, 34}, {32}),  # fmla z0.d, p1/m, z2.d, z1.d
        (0x65830841, Kind.fp_mul, 8, {34, 35}, {33}),  # fmul z1.s, z2.s, z3.s
        (0x65C02400, Kind.fp_add, 4, {32}, {32}),  # faddv d0, p1, z0.d
        (0x658DA041, Kind.fp_sqrt, 8, {33, 34}, {33}),  # fsqrt z1.s, p0/m, z2.s
        (0x65824031, Kind.fp_other, 8, {33, 34}, set()),  # fcmgt p1.s, p0/z, z1.s, z2.s
        (0x24828031, Kind.simd_int, 8, {33, 34}, {FLAGS}),  # cmpgt p1.s, p0/z, z1.s, z2.s
        (0x44820020, Kind.simd_int, 8, {32, 33, 34}, {32}),  # sdot z0.s, z1.b, z2.b
        (0x64A28020, Kind.fp_fma, 8, {32, 33, 34}, {32}),  # fmlalb z0.s, z1.h, z2.h
        (0x44827020, Kind.simd_int, 8, {32, 33, 34}, {32}),  # sqrdmlah z0.s, z1.s, z2.s
        (0x44C20C20, Kind.simd_int, 4, {32, 33, 34}, {32}),  # sqdmlslbt z0.d, z1.s, z2.s
        (0x44821020, Kind.simd_int, 8, {32, 33, 34}, {32}),  # cdot z0.s, z1.b, z2.b, #0
        (0x4547E020, Kind.simd_int, 8, {32, 33}, {32}),  # ssra z0.s, z1.s, #25
        (0x4543F420, Kind.simd_int, 8, {32, 33}, {32}),  # sli z0.s, z1.s, #3
        (0x05222C20, Kind.simd_int, 32, {32, 33, 34}, {32}),  # tbx z0.b, z1.b, z2.b
        (0x4502D020, Kind.simd_int, 8, {32, 33, 34}, {32}),  # adclb z0.s, z1.s, z2.s
        (0x45829020, Kind.simd_int, 8, {32, 33, 34}, {32}),  # eorbt z0.s, z1.s, z2.s
        (0x45A26420, Kind.simd_int, 16, {32, 33, 34}, {32}),  # addhnt z0.h, z1.s, z2.s
        (0x453D0C20, Kind.simd_int, 16, {32, 33}, {32}),  # sqrshrunt z0.h, z1.s, #3
        (0x04940020, Kind.int_div, 8, {32, 33}, {32}),  # sdiv z0.s, p0/m, z0.s, z1.s
        (0x05A03820, Kind.move, 8, {1}, {32}),  # mov z0.s, w1
        (0x25E31C80, Kind.int_alu, 1, {3, X4}, {FLAGS}),  # whilelo p0.d, x4, x3
        (0x04F0E3E4, Kind.int_alu, 1, {X4}, {X4}),  # incd x4
        (0x0430F3E3, Kind.int_alu, 1, {3}, {3}),  # sqincb x3
        (0x25434440, Kind.int_alu, 1, set(), {FLAGS}),  # ands p0.b, p1/z, p2.b, p3.b
        (0x8581C000, Kind.nop, 1, {0, 1}, set()),  # prfd pldl1keep, p0, [x0, x1, lsl #3]
    ],
)
def test_classes_and_registers(code, kind, lanes, sources, destinations):
    (found,) = Disassembler(vector_bytes=32).disassemble(code.to_bytes(4, "little"), 0x1000)
    assert (found.kind, found.lanes, found.size) == (kind, lanes, 4)
    assert (set(found.sources), set(found.destinations)) == (sources, destinations)


@pytest.mark.parametrize(("vector_bytes", "lanes"), [(0, 1), (16, 4), (64, 16)])
def test_lanes_follow_from_the_length_of_vectors(vector_bytes, lanes):
    (found,) = Disassembler(vector_bytes).disassemble((0x65830841).to_bytes(4, "little"), 0)  # fmul z1.s, z2.s, z3.s
    assert found.lanes == lanes


def test_what_is_not_known_is_counted():
    disassembler = Disassembler()
    codes = (0x04E00000, 0xFFFFFFFF, 0xD503201F)  # add z0.d, z0.d, z0.d of SVE, none, nop
    found = list(disassembler.disassemble(b"".join(code.to_bytes(4, "little") for code in codes), 0))
    assert [each.kind for each in found] == [Kind.simd_int, Kind.other, Kind.nop]
    assert (disassembler.num_unknown, disassembler.num_scalable) == (1, 1)


def test_numbers_of_registers_are_distinct_and_those_of_the_models():
    general = [register_number(f"x{number}") for number in range(31) if number != 18]
    assert len({*general, FLAGS, STACK_POINTER}) == 32
    assert max(general) < FIRST_VECTOR_REGISTER
    assert register_number("sp") == STACK_POINTER
    assert register_number("w7") == register_number("x7")
    assert register_number("q31") == register_number("s31") == FIRST_VECTOR_REGISTER + 31
    assert register_number("xzr") == register_number("x18") == -1
