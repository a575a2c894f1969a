"""Classes and operand widths of SASS opcodes, against Accel-Sim's tables and NVIDIA's manuals."""

from __future__ import annotations

import pytest

from manyscale.models.workload.launch_trace import Access, Space, UnitClass
from manyscale.runner.readers.accelsim.opcodes import classify, wide_registers


@pytest.mark.golden
@pytest.mark.parametrize(
    ("opcode", "unit"),
    [  # categories of gpu-simulator/ISA_Def/ampere_opcode.h: SP, INTP, ALU, DP, SFU, SPECIALIZED_UNIT_1 to _4
        ("FFMA", UnitClass.fp32),
        ("HFMA2.MMA", UnitClass.fp32),
        ("FSETP.GEU.AND", UnitClass.fp32),
        ("IMAD.MOV.U32", UnitClass.int),
        ("IADD3.X", UnitClass.int),
        ("MOV", UnitClass.int),  # ALU: the integer unit, where there is one
        ("PRMT", UnitClass.int),
        ("S2R", UnitClass.int),
        ("F2I.TRUNC.NTZ", UnitClass.int),
        ("SHFL.DOWN", UnitClass.int),
        ("LDC.64", UnitClass.int),
        ("DFMA", UnitClass.fp64),
        ("MUFU.RCP", UnitClass.sfu),
        ("HMMA.16816.F32", UnitClass.tensor),
        ("DMMA.884", UnitClass.tensor),
        ("BRA", UnitClass.branch),
        ("BSYNC", UnitClass.branch),
        ("WARPSYNC", UnitClass.branch),
        ("UIADD3", UnitClass.uniform),
        ("ULDC.64", UnitClass.uniform),
        ("REDUX.SUM", UnitClass.uniform),
        ("TEX.SCR.LL", UnitClass.texture),
        ("BAR.SYNC.DEFER_BLOCKING", UnitClass.barrier),
        ("MEMBAR.SC.GPU", UnitClass.memory_barrier),
        ("EXIT", UnitClass.exit),
        ("KILL", UnitClass.branch),  # tensor there: taken for a slip
    ],
)
def test_units_are_those_of_accelsim(opcode: str, unit: UnitClass) -> None:
    kind = classify(opcode, False, 86)
    assert kind.unit == unit
    assert kind.is_known


@pytest.mark.parametrize(
    ("opcode", "space", "access", "thread_bytes"),
    [
        ("LDG.E", Space.global_, Access.load, 4),
        ("LDG.E.U8", Space.global_, Access.load, 1),
        ("LDG.E.S16", Space.global_, Access.load, 2),
        ("LDG.E.128.CONSTANT", Space.global_, Access.load, 16),
        ("LDG.E.LTC128B.64", Space.global_, Access.load, 8),  # a hint to L2, no width
        ("STG.E.64", Space.global_, Access.store, 8),
        ("LDGSTS.E.BYPASS.LTC128B.128", Space.global_, Access.copy, 16),
        ("LDL", Space.local, Access.load, 4),
        ("STL.128", Space.local, Access.store, 16),
        ("LDS.U.128", Space.shared, Access.load, 16),
        ("STS.U16", Space.shared, Access.store, 2),
        ("ATOMS.ADD", Space.shared, Access.atomic, 4),
        ("ATOMG.E.ADD.F64.RN.STRONG.GPU", Space.global_, Access.atomic, 8),
        ("RED.E.ADD.F16x2.RN", Space.global_, Access.reduction, 4),
        ("STSM.16.M88.2", Space.shared, Access.store, 16),
    ],
)
def test_memory(opcode: str, space: Space, access: Access, thread_bytes: int) -> None:
    kind = classify(opcode, True, 90)
    assert kind.unit == UnitClass.load_store
    assert (kind.space, kind.access, kind.thread_bytes) == (space, access, thread_bytes)
    assert kind.is_generic == opcode.startswith("RED")


@pytest.mark.parametrize(
    ("opcode", "bypasses"),
    [
        ("LDG.E", False),
        ("LDG.E.STRONG.GPU", True),
        ("LDG.E.STRONG.SYS", True),
        ("LDG.E.STRONG.SM", False),
        ("LDG.E.SYS", False),  # Volta's weak loads
        ("STG.E.STRONG.GPU", False),
        ("LDGSTS.E.BYPASS.128", True),
        ("LDGSTS.E", False),
        ("ATOMG.E.ADD", True),
        ("ATOMS.ADD", False),
    ],
)
def test_what_bypasses_l1(opcode: str, bypasses: bool) -> None:
    assert classify(opcode, True, 80).bypasses_l1 == bypasses


def test_generations() -> None:
    """IMMA on Volta is a step of integer instructions; what came later is known as newer."""
    assert classify("IMMA.8816.S8.S8", False, 70).unit == UnitClass.int
    assert classify("IMMA.8816.S8.S8", False, 75).unit == UnitClass.tensor
    assert [classify(opcode, False, 70).since for opcode in ("FFMA", "UMOV", "LDGDEPBAR", "VIADD")] == [0, 75, 80, 90]


@pytest.mark.parametrize(
    ("opcode", "has_addresses", "unit"),
    [
        ("FNEW", False, UnitClass.fp32),
        ("HNEW2", False, UnitClass.fp32),
        ("DNEW", False, UnitClass.fp64),
        ("INEW3", False, UnitClass.int),
        ("UNEW", False, UnitClass.uniform),
        ("OMMA.SF", False, UnitClass.tensor),
        ("UTCHMMA", False, UnitClass.tensor),
        ("BNEW", False, UnitClass.branch),
        ("LDTM", True, UnitClass.load_store),
    ],
)
def test_roots_of_no_table_are_classed_by_family(opcode: str, has_addresses: bool, unit: UnitClass) -> None:
    kind = classify(opcode, has_addresses, 100)
    assert kind.unit == unit
    assert not kind.is_known


def test_unknown_memory_is_classed_by_its_name() -> None:
    kinds = [classify(opcode, True, 100) for opcode in ("LDX", "LDSX", "STLX", "ATOMX", "REDX")]
    assert [kind.space for kind in kinds] == [1, 3, 2, 1, 1]
    assert [kind.access for kind in kinds] == [Access.load, Access.load, Access.store, Access.atomic, Access.reduction]


@pytest.mark.golden
@pytest.mark.parametrize(
    ("opcode", "result", "a", "b", "c"),
    [  # registers of a thread: PTX ISA, matrix fragments for mma.m16n8k16 and so on
        ("HMMA.16816.F32", 4, 4, 2, 4),
        ("HMMA.16816.F16", 2, 4, 2, 2),
        ("HMMA.1688.F32", 4, 2, 1, 4),
        ("HMMA.1688.F32.TF32", 4, 4, 2, 4),
        ("HMMA.1684.F32.TF32", 4, 2, 1, 4),
        ("HMMA.16816.F32.BF16", 4, 4, 2, 4),
        ("IMMA.8816.S8.S8", 2, 1, 1, 2),
        ("IMMA.16832.S8.S8", 4, 4, 2, 4),
        ("IMMA.16864.S4.S4", 4, 4, 2, 4),
        ("BMMA.168256.XOR.POPC", 4, 4, 2, 4),
        ("DMMA.884", 4, 2, 2, 4),
        ("DMMA.8x8x4", 4, 2, 2, 4),
        ("DMMA.16x8x16", 8, 16, 8, 8),
        ("HMMA.884.F32.F32.STEP0", 2, 2, 2, 2),
    ],
)
def test_matrix_fragments(opcode: str, result: int, a: int, b: int, c: int) -> None:
    destinations, sources = wide_registers(opcode, [40], [0, 16, 80])
    assert destinations == list(range(40, 40 + result))
    assert sorted(sources) == [*range(a), *range(16, 16 + b), *range(80, 80 + c)]
    assert sources[:3] == [0, 16, 80]  # those that the trace lists come first


@pytest.mark.parametrize(
    ("opcode", "listed", "expected"),
    [
        ("LDG.E.64", ([2], [4]), ([2, 3], [4, 5])),
        ("LDG.64", ([2], [4]), ([2, 3], [4])),  # no extended address
        ("LDSM.16.M88.4", ([2], [4]), ([2, 3, 4, 5], [4])),
        ("STG.E.128", ([], [4, 8]), ([], [4, 5, 8, 9, 10, 11])),
        ("STS.64", ([], [4, 8]), ([], [4, 8, 9])),
        ("ATOMG.E.CAS.64.STRONG.GPU", ([2], [4, 8, 10]), ([2, 3], [4, 5, 8, 9, 10, 11])),
        ("LDGSTS.E.128", ([], [4, 8]), ([], [4, 8, 9])),
        ("IMAD.WIDE.U32", ([2], [4, 6, 8]), ([2, 3], [4, 6, 8, 9])),
        ("IMAD.WIDE", ([2], [4, 6]), ([2, 3], [4, 6])),  # which of them is the addend is not known
        ("DSETP.GT.AND", ([], [4, 6]), ([], [4, 5, 6, 7])),
        ("F2F.F64.F32", ([2], [4]), ([2, 3], [4])),
        ("F2I.S64.F64.TRUNC", ([2], [4]), ([2, 3], [4, 5])),
        ("I2F.F64.S64", ([2], [4]), ([2, 3], [4, 5])),
        ("I2F.U64", ([2], [4]), ([2], [4, 5])),
        ("CS2R.32", ([2], []), ([2], [])),
        ("ULDC.64", ([260], []), ([260, 261], [])),
        ("RET.REL.NODEC", ([], [20]), ([], [20, 21])),
        ("SHF.L.U64.HI", ([2], [4, 5]), ([2], [4, 5])),
        ("MOV", ([255], [255]), ([], [])),
        ("LDG.E.128", ([253], [254]), ([253, 254], [254])),  # nothing behind the last register
    ],
)
def test_wide_operands(opcode: str, listed: tuple[list[int], list[int]], expected: tuple[list[int], list[int]]) -> None:
    destinations, sources = wide_registers(opcode, *listed)
    assert (destinations, sorted(sources)) == expected


@pytest.mark.golden
@pytest.mark.parametrize(
    ("opcode", "listed", "read"),
    [  # PTX ISA, wgmma: N / 2 sums of FP32 a thread, four registers of A, one of metadata
        ("HGMMA.64x64x16.F32", [24, 260], [*range(24, 56), 260]),
        ("HGMMA.64x64x16.F32", [4, 260, 24], [*range(4, 8), *range(24, 56), 260]),
        ("HGMMA.64x8x16.F16", [24, 260], [24, 25, 260]),
        ("HGMMA.SP.64x64x32.F32", [24, 260, 90], [*range(24, 56), 90, 260]),
        ("HGMMA.SP.64x64x32.F32", [4, 260, 24, 90], [*range(4, 8), *range(24, 56), 90, 260]),
        ("IGMMA.64x16x32.S8.S8", [24, 260], [*range(24, 32), 260]),
    ],
)
def test_registers_of_products_of_groups(opcode: str, listed: list[int], read: list[int]) -> None:
    destinations, sources = wide_registers(opcode, [24], listed)
    assert sorted(sources) == read
    assert destinations == [register for register in read if 24 <= register < 56]
