"""What NVIDIA's machine instructions (SASS) do, by their opcodes' names: unit, memory, and registers of wide operands.

A name is a root and modifiers behind dots (``LDG.E.64.CONSTANT``). Which unit executes a root follows the trace-driven
front end of Accel-Sim (Khairy et al., ISCA 2020; gpu-simulator/ISA_Def of release 2260456, a table for each of Kepler,
Pascal, Volta, Turing and Ampere) where it lists it: moves, conversions, votes and constant loads execute on the integer
units there. Roots that came with Hopper are classed by what NVIDIA's "CUDA Binary Utilities" (table of Hopper
instructions) says of them, and those of no table by the family of their name. One entry of Accel-Sim's is taken for a
slip: KILL (tensor there) executes as other control instructions do.

Widths of operands: of memory accesses from the size in the name; of matrix instructions from their shape, whose
fragments are spread over the 32 threads of a warp (NVIDIA, PTX ISA, "Matrix fragments for mma").
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from manyscale.models.workload.launch_trace import Access, Space, UnitClass

ALL_LANES: Final = 32
UNIFORM_REGISTER: Final = 256  # number of uniform register 0
ZERO_REGISTER: Final = 255

_UNITS: Final = {
    UnitClass.int: (
        "BFE BFI BMSK BREV FLO IABS IADD IADD3 IADD32I ICMP IDP IDP4A IMAD IMADSP IMNMX IMUL IMUL32I ISAD ISCADD "
        "ISCADD32I ISET ISETP ISUB LEA LOP LOP3 LOP32I POPC SHF SHL SHR VABSDIFF VABSDIFF4 VADD VMNMX XMAD "
        "F2F F2I F2IP FRND I2F I2FP I2I I2IP "
        "MOV MOV32I MOVM PRMT SEL SGXT SHFL CSET CSETP P2R PLOP3 PSET PSETP R2P "
        "LDC MATCH QSPC CCTL CCTLL CCTLT ERRBAR SUATOM SUBFM SUCLAMP SUEAU SULD SULDGA SUQUERY SURED SUST SUSTGA "
        "B2R CS2R CSMTEST GETLMEMBASE LEPC NOP PMTRIG R2B S2R SETCTAID SETLMEMBASE VOTE VOTE_VTG "
        "VHMNMX VIADD VIADDMNMX VIMNMX VIMNMX3 F2FP ELECT ARRIVES SYNCS CGAERRBAR"
    ),
    UnitClass.fp32: (
        "FADD FADD32I FCHK FCMP FFMA FFMA32I FMNMX FMUL FMUL32I FSEL FSET FSETP FSWZ FSWZADD RRO "
        "HADD2 HADD2_32I HFMA2 HFMA2_32I HMNMX2 HMUL2 HMUL2_32I HSET2 HSETP2 FADD2 FFMA2 FMUL2 FMNMX3"
    ),
    UnitClass.fp64: "DADD DFMA DMNMX DMUL DSET DSETP",
    UnitClass.sfu: "MUFU",
    UnitClass.tensor: "BGMMA BMMA DMMA HGMMA HMMA IGMMA IMMA QGMMA QMMA",
    UnitClass.branch: (
        "BMOV BPT BRA BREAK BRK BRX BRXU BSSY BSYNC CAL CALL CONT JCAL JMP JMX JMXU KILL NANOSLEEP PBK PCNT PEXIT PRET "
        "RET RPCMOV RTT SSY SYNC WARPSYNC YIELD ACQBULK ENDCOLLECTIVE PREEXIT WARPGROUP WARPGROUPSET"
    ),
    UnitClass.uniform: (
        "R2UR REDUX S2UR UBMSK UBREV UCLEA UF2FP UFLO UIADD3 UIMAD UISETP ULDC ULEA ULOP ULOP3 ULOP32I UMOV UP2UR "
        "UPLOP3 UPOPC UPRMT UPSETP UR2UP USEL USGXT USHF USHL USHR VOTEU CS2UR UCGABAR_ARV UCGABAR_WAIT USETMAXREG "
        "USETSHMSZ UTMACCTL UTMACMDFLUSH UTMALDG UTMAPF UTMAREDG UTMASTG UBLKCP UBLKPF UBLKRED "
        "CREDUX LDCU"
    ),
    UnitClass.texture: "TEX TEXS TLD TLD4 TLD4S TLDS TMML TXD TXQ",
    UnitClass.barrier: "BAR",
    UnitClass.memory_barrier: "MEMBAR FENCE",
    UnitClass.exit: "EXIT",
    UnitClass.copy_group: "LDGDEPBAR",
    UnitClass.copy_wait: "DEPBAR",
}
# root: (space, access); the generic ones (LD, ST, ATOM, RED) access whatever window their address lies in
_MEMORY: Final = {
    "LD": (Space.global_, Access.load),
    "LDG": (Space.global_, Access.load),
    "LDGMC": (Space.global_, Access.load),
    "LDL": (Space.local, Access.load),
    "LDS": (Space.shared, Access.load),
    "LDSLK": (Space.shared, Access.load),
    "LDSM": (Space.shared, Access.load),
    "LDGSTS": (Space.global_, Access.copy),
    "ST": (Space.global_, Access.store),
    "STG": (Space.global_, Access.store),
    "STL": (Space.local, Access.store),
    "STS": (Space.shared, Access.store),
    "STSCUL": (Space.shared, Access.store),
    "STSM": (Space.shared, Access.store),
    "STAS": (Space.shared, Access.store),
    "ATOM": (Space.global_, Access.atomic),
    "ATOMG": (Space.global_, Access.atomic),
    "ATOMS": (Space.shared, Access.atomic),
    "RED": (Space.global_, Access.reduction),
    "REDG": (Space.global_, Access.reduction),
    "REDAS": (Space.shared, Access.reduction),
}
_GENERIC: Final = frozenset(("LD", "ST", "ATOM", "RED"))
# SM versions that brought roots which older ones do not have
_SINCE: Final = {
    75: (
        "BMMA BRXU JMXU LDSM MOVM R2UR S2UR UBMSK UBREV UCLEA UFLO UIADD3 UIMAD UISETP ULDC ULEA ULOP "
        "ULOP3 ULOP32I UMOV UP2UR UPLOP3 UPOPC UPRMT UPSETP UR2UP USEL USGXT USHF USHL USHR VOTEU"
    ),
    80: "DMMA F2IP HMNMX2 I2FP LDGDEPBAR LDGSTS REDUX SUQUERY UF2FP ARRIVES",
    89: "QMMA",
    90: (
        "ACQBULK BGMMA CGAERRBAR CS2UR ELECT ENDCOLLECTIVE FENCE HGMMA IGMMA LDGMC PREEXIT QGMMA REDAS REDG "
        "STAS STSM SYNCS UBLKCP UBLKPF UBLKRED UCGABAR_ARV UCGABAR_WAIT USETMAXREG UTMACCTL UTMACMDFLUSH "
        "UTMALDG UTMAPF UTMAREDG UTMASTG VHMNMX VIADD VIADDMNMX VIMNMX WARPGROUP WARPGROUPSET"
    ),
    100: "CREDUX FADD2 FFMA2 FMNMX3 FMUL2 LDCU VIMNMX3",
}
_UNIT_OF: Final = {root: unit for unit, roots in _UNITS.items() for root in roots.split()}
_SINCE_OF: Final = {root: version for version, roots in _SINCE.items() for root in roots.split()}
_FAMILIES: Final = (  # of roots in no table, the first that fits
    (re.compile(r".*MMA"), UnitClass.tensor),
    (re.compile(r"MUFU.*"), UnitClass.sfu),
    (re.compile(r"U.*"), UnitClass.uniform),
    (re.compile(r"D.*"), UnitClass.fp64),
    (re.compile(r"[FH].*"), UnitClass.fp32),
    (re.compile(r"(BAR|BARRIER).*"), UnitClass.barrier),
    (re.compile(r"(B|J|CALL|RET|YIELD|WARP).*"), UnitClass.branch),
    (re.compile(r"(TEX|TLD|TX|TMML).*"), UnitClass.texture),
    (re.compile(r"MEMBAR.*"), UnitClass.memory_barrier),
)
_SIZE: Final = re.compile(r"(?:[USFB]|BF)?(8|16|32|64|128|256)")


@dataclass(frozen=True)
class OpcodeClass:
    """What an opcode does. ``is_generic``: its space is that of the window its address lies in. ``thread_bytes``: that
    each thread accesses; ``lanes``: the threads whose addresses count. ``since``: the SM version that brought it (0:
    Kepler or earlier); ``is_known``: whether its root stands in a table, not only in a family."""

    unit: UnitClass
    space: Space = Space.none
    access: Access = Access.none
    is_generic: bool = False
    thread_bytes: int = 0
    lanes: int = ALL_LANES
    bypasses_l1: bool = False
    since: int = 0
    is_known: bool = True


def is_known_root(root: str) -> bool:
    """Whether a table has it, so that it is not only classed by its family."""
    return root in _UNIT_OF or root in _MEMORY


@lru_cache(maxsize=1 << 14)
def classify(opcode: str, has_addresses: bool, binary_version: int) -> OpcodeClass:
    """The class of an opcode in code for an SM version (80: sm_80; 0: not known). ``has_addresses``: the trace holds
    addresses of it, so that an opcode in no table accesses memory."""
    root, *modifiers = opcode.split(".")
    since, known = _SINCE_OF.get(root, 0), True
    if root in _MEMORY:
        space, access = _MEMORY[root]
    elif root in _UNIT_OF and not (has_addresses and root in ("SYNCS", "ARRIVES")):
        unit = _UNIT_OF[root]
        if root == "IMMA" and 0 < binary_version < 75:  # on Volta its steps are integer instructions
            unit = UnitClass.int
        if root == "LDC":
            return OpcodeClass(unit, Space.constant, Access.load, thread_bytes=_thread_bytes(modifiers), since=since)
        return OpcodeClass(unit, since=since)
    elif has_addresses:
        space, access = _by_name(root)
        known = root in _UNIT_OF
    else:
        unit = next((unit for pattern, unit in _FAMILIES if pattern.fullmatch(root)), UnitClass.int)
        return OpcodeClass(unit, is_known=False)
    is_strong = "STRONG" in modifiers and ("GPU" in modifiers or "SYS" in modifiers)
    bypasses = access in (Access.load, Access.copy) and (is_strong or "BYPASS" in modifiers)
    thread_bytes, lanes = _thread_bytes(modifiers), ALL_LANES
    if root in ("LDSM", "STSM"):  # eight threads give the rows, of 16 bytes, of each 8 x 8 matrix
        thread_bytes, lanes = 16, 8 * _matrices(modifiers)
    return OpcodeClass(
        UnitClass.load_store,
        space,
        access,
        root in _GENERIC or not known,
        thread_bytes,
        lanes,
        bypasses or (space is Space.global_ and access in (Access.atomic, Access.reduction)),
        since,
        known,
    )


def _by_name(root: str) -> tuple[Space, Access]:
    """Space and access of a root in no table."""
    access = Access.load
    for start, each in (("ATOM", Access.atomic), ("RED", Access.reduction), ("ST", Access.store)):
        if root.startswith(start):
            access = each
    if root in ("SYNCS", "ARRIVES"):
        return Space.shared, Access.atomic
    for start, space in (("LDS", Space.shared), ("STS", Space.shared), ("ATOMS", Space.shared), ("LDL", Space.local),
                         ("STL", Space.local)):  # fmt: skip
        if root.startswith(start):
            return space, access
    return Space.global_, access


def _thread_bytes(modifiers: Sequence[str]) -> int:
    """Bytes that a thread accesses: the first size among the modifiers, else 4 (a packed pair, F16x2, is 4)."""
    for modifier in modifiers:
        if match := _SIZE.fullmatch(modifier):
            return int(match[1]) // 8
    return 4


def _matrices(modifiers: Sequence[str]) -> int:
    return next((int(modifier) for modifier in modifiers if modifier in ("2", "4")), 1)


def wide_registers(opcode: str, destinations: Sequence[int], sources: Sequence[int]) -> tuple[list[int], list[int]]:
    """All registers that an instruction writes and reads, from those that a trace lists: the first of each operand.

    Registers that hold zero are left out, and no register stands twice; those that the trace lists come first. General
    registers from 0, uniform ones from 256.
    """
    first, of_sources = _operand_widths(opcode, len(sources))
    if "GMMA." in opcode:
        of_sources = _group_widths(opcode, first, list(destinations[:1]), sources)
    widths = [first if place == 0 else 1 for place in range(len(destinations))]
    return _widened(destinations, widths), _widened(sources, of_sources)


def _widened(registers: Sequence[int], widths: Sequence[int]) -> list[int]:
    listed = [register for register in registers if register != ZERO_REGISTER]
    found = dict.fromkeys(listed)
    for register, width in zip(registers, widths, strict=True):
        if register != ZERO_REGISTER:
            end = ZERO_REGISTER if register < ZERO_REGISTER else UNIFORM_REGISTER + 255
            found.update(dict.fromkeys(range(register, min(register + width, end))))
    return list(found)


@lru_cache(maxsize=1 << 14)
def _operand_widths(opcode: str, num_sources: int) -> tuple[int, tuple[int, ...]]:
    """Registers of the first destination and of each source."""
    root, *modifiers = opcode.split(".")
    plain = (1,) * num_sources
    if root in _MEMORY:
        return _memory_widths(root, modifiers, num_sources)
    if root in ("LDC", "ULDC"):
        return max(1, _thread_bytes(modifiers) // 4), plain
    if root.endswith("MMA"):
        return _matrix_widths(root, modifiers, num_sources)
    if _UNIT_OF.get(root) == UnitClass.fp64:
        return 2, (2,) * num_sources
    if root in ("IMAD", "UIMAD", "XMAD") and "WIDE" in modifiers:  # the addend, if none of the three is a constant
        return 2, (1, 1, 2) if num_sources == 3 else plain
    if root in ("F2F", "FRND", "F2I", "I2F", "I2FP"):
        return _conversion_widths(root, modifiers, num_sources)
    if root == "CS2R":
        return 1 if "32" in modifiers else 2, plain
    if root == "LEPC":
        return 2, plain
    if root in ("RET", "BRX", "JMX", "CALL"):
        return 1, (2,) * num_sources
    wide = next((int(modifier) // 32 for modifier in modifiers if modifier in ("64", "128")), 1)
    return (wide if root in ("MOV", "UMOV", "IADD", "UIADD", "S2UR", "CS2UR") or root not in _UNIT_OF else 1), plain


def _memory_widths(root: str, modifiers: Sequence[str], num_sources: int) -> tuple[int, tuple[int, ...]]:
    """Addresses are pairs with the modifier E; the data of stores and atomics is what the last sources hold."""
    _, access = _MEMORY[root]
    data = _matrices(modifiers) if root in ("LDSM", "STSM") else max(1, _thread_bytes(modifiers) // 4)
    widths = [1] * num_sources
    if "E" in modifiers and root != "LDGSTS" and num_sources:
        widths[0] = 2
    elif "E" in modifiers and num_sources > 1:  # behind the address in shared memory
        widths[1] = 2
    if access not in (Access.load, Access.copy) and num_sources:
        num_data = 2 if "CAS" in modifiers and num_sources > 2 else 1
        widths[-num_data:] = [data] * num_data
    return data, tuple(widths)


def _conversion_widths(root: str, modifiers: Sequence[str], num_sources: int) -> tuple[int, tuple[int, ...]]:
    """The modifiers name the destination's type, then the source's; a type of 32 bits may be left out."""
    types = [modifier for modifier in modifiers if re.fullmatch(r"[FUS](8|16|32|64)", modifier)]
    floats = [each for each in types if each[0] == "F"]
    integers = [each for each in types if each[0] != "F"]
    if root == "F2F":
        to, source = (*types, "F32", "F32")[:2]
    elif root == "FRND":
        to = source = (*floats, "F32")[0]
    elif root == "F2I":
        to, source = (*integers, "S32")[0], (*floats, "F32")[0]
    else:
        to, source = (*floats, "F32")[0], (*integers, "S32")[0]
    return 1 + to.endswith("64"), (1 + source.endswith("64"),) * num_sources


def _matrix_widths(root: str, modifiers: Sequence[str], num_sources: int) -> tuple[int, tuple[int, ...]]:
    """Of D = A x B + C: rows x columns of each by the bits of an element, over 32 threads and 32 bits."""
    shape = next((modifier for modifier in modifiers if re.fullmatch(r"(16|8)x?8x?\d+|64x\d+x\d+", modifier)), None)
    if shape and not shape.startswith("64x"):
        shape = shape.replace("x", "")  # on Hopper DMMA.16x8x4
    if shape is None:
        return 1, (1,) * num_sources
    if "x" in shape:  # a group of four warps: sources as in _group_widths
        rows, columns, _ = map(int, shape.split("x"))
        return rows * columns * _accumulator_bits(root, modifiers) // (4 * 1024), (1,) * num_sources
    if root == "HMMA" and shape == "884":  # Volta: four quads, in steps that each write two registers
        return 2, (2,) * num_sources
    rows = 16 if shape.startswith("16") and shape != "168" else 8
    depth = int(shape[3 if rows == 16 else 2 :])
    bits = _element_bits(root, modifiers)
    result = max(1, rows * 8 * _accumulator_bits(root, modifiers) // 1024)
    stored = depth // 2 if "SP" in modifiers else depth  # of A
    widths = (max(1, rows * stored * bits // 1024), max(1, 8 * depth * bits // 1024), result)
    return result, (*widths, *(1 for _ in range(num_sources - 3)))[:num_sources]


def _group_widths(opcode: str, sums: int, first: Sequence[int], sources: Sequence[int]) -> tuple[int, ...]:
    """Of a product of four warps: the sums, uniform registers of descriptors, A where it is in registers (64 rows of 32
    bytes over 128 threads), and last the metadata of a sparse A."""
    widths = [sums if register in first else 1 if register >= UNIFORM_REGISTER else 4 for register in sources]
    if "SP" in opcode.split("."):
        last = next((place for place in reversed(range(len(widths))) if widths[place] == 4), None)
        if last is not None:
            widths[last] = 1
    return tuple(widths)


def _element_bits(root: str, modifiers: Sequence[str]) -> int:
    if root == "DMMA":
        return 64
    if root == "BMMA":
        return 1
    if root == "QMMA":
        return 8
    if root == "IMMA":
        return 4 if any(modifier in ("S4", "U4") for modifier in modifiers) else 8
    return 32 if "TF32" in modifiers else 16


def _accumulator_bits(root: str, modifiers: Sequence[str]) -> int:
    if root == "DMMA":
        return 64
    return 16 if root in ("HMMA", "QMMA", "HGMMA", "QGMMA") and "F32" not in modifiers else 32
