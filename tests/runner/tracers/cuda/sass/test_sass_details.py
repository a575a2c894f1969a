"""Control bits, operands and source lines of instructions, from words and texts that ``cuobjdump`` prints."""

from __future__ import annotations

import pytest

from manyscale.runner.tracers.cuda.sass.details import details

# Volta, as Jia et al. (2018, section 2.1) take its words apart: reuse 4, waits 6, read 3, write 3, yield 1, stall 4
CASES = [  # (high word, stall, yields, write barrier, read barrier, waits, reuse)
    (0x000FE400078E00FF, 2, 0, -1, -1, 0, 0),  # IMAD.MOV.U32 of sm_86
    (0x000E280000002500, 4, 0, 0, -1, 0, 0),  # S2R sets barrier 0
    (0x001FCA00078E0203, 5, 1, -1, -1, 1, 0),  # IMAD waits for it
    (0x000EA2000C1E1900, 1, 0, 2, -1, 0, 0),  # LDG sets barrier 2
    (0x004FD40000400000, 10, 1, -1, -1, 4, 0),  # FMUL waits for it
    (0x040FE20000400000, 1, 0, -1, -1, 0, 1),  # FMUL R4, R0.reuse, ...
]


@pytest.mark.parametrize("case", CASES)
def test_control_bits(case):
    word, *expected = case
    found = details(["NOP"], [word << 64], ["0 NOP 0 0"], [0])
    names = ("stall", "yields", "write_barrier", "read_barrier", "waits", "reuse")
    assert [int(getattr(found, name)[0]) for name in names] == expected


P0, P1, P2, UP0 = 1, 2, 4, 256
TEXTS = [  # (text, predicates written, read, uniform registers written, read, constants)
    ("@P0 EXIT", 0, P0, [], [], []),
    ("@!UP0 UIADD3 UR4, UP1, UR5, UR6, URZ", 2 * UP0, UP0, [4], [5, 6], []),
    ("ISETP.GE.AND P0, PT, R2, c[0x0][0x170], PT", P0, 0, [], [], [(0, 0x170)]),
    ("ISETP.GE.AND P0, P1, R2, R3, !P2", P0 | P1, P2, [], [], []),
    ("IADD3 R4, P1, P2, R6, 0x8, RZ", P1 | P2, 0, [], [], []),
    ("IADD3.X R5, RZ, R7, RZ, P1, !PT", 0, P1, [], [], []),
    ("SEL R3, R4, R5, !P1", 0, P1, [], [], []),
    ("VOTE.ANY R6, PT, P1", 0, P1, [], [], []),
    ("VOTE.ALL P0, P2", P0, P2, [], [], []),
    ("PLOP3.LUT P0, PT, P1, P2, PT, 0x80, 0x0", P0, P1 | P2, [], [], []),
    ("ULDC.64 UR4, c[0x0][0x118]", 0, 0, [4], [], [(0, 0x118)]),
    ("LDG.E R4, desc[UR4][R4.64]", 0, 0, [], [4], []),
    ("LDC R1, c[0x3][R2+-0x10]", 0, 0, [], [], [(3, -16)]),
    ("R2UR UR7, R3", 0, 0, [7], [], []),
    ("UISETP.NE.AND UP0, UPT, UR4, UR8, UPT", UP0, 0, [], [4, 8], []),
    ("@P1 STG.E [R2.64+UR6], R5", 0, P1, [], [6], []),
    ("BRA P2, 0x90", 0, P2, [], [], []),
]


@pytest.mark.parametrize("case", TEXTS, ids=[case[0] for case in TEXTS])
def test_operands(case):
    text, written, read, uniform_written, uniform_read, constants = case
    found = details([text], [0], [""], [0])
    assert (int(found.predicates_written[0]), int(found.predicates_read[0])) == (written, read)
    for values, expected in ((found.uniform_written, uniform_written), (found.uniform_read, uniform_read)):
        assert [each for each in values[0].tolist() if each >= 0] == expected
    pairs = zip(found.constant_bank[0].tolist(), found.constant_offset[0].tolist(), strict=True)
    assert [pair for pair in pairs if pair != (-1, -1)] == constants


def test_rows_that_repeat_an_instruction():
    found = details(
        ["MOV R0, R1", "LD.E R2, [R4]"], [0, 3 << 105], ["a", "b", "b", "b"], [0, 1, 1, 1], [("x.cu", 7), ("x.cu", 8)]
    )
    assert found.text == ("MOV R0, R1", "LD.E R2, [R4]", "LD.E R2, [R4]", "LD.E R2, [R4]")
    assert found.stall.tolist() == [0, 3, 3, 3]
    assert [found.source(row) for row in range(4)] == ["x.cu:7", "x.cu:8", "x.cu:8", "x.cu:8"]
    assert found.rows(slice(1, 3)).stall.tolist() == [3, 3]
