"""Machine instructions of AArch64 as the detailed level knows them: what they ask of a core, and their registers.

Registers have the numbers that models know (``models/cpu/dataflow_code.py``): general ones and flags below 32, the
stack pointer 4, the flags 16, vector registers 32 to 63. So x0 to x3 and x5 to x15 have their own numbers, x4 has 17,
x16 and x17 have 18 and 19, x19 to x30 have 20 to 31. x18, which the platform reserves, and the zero register are left
out: nothing waits for them. The disassembler is capstone (extra ``trace``); SVE's instructions are told by how they are
written (``scalable.py``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from manyscale.models.workload.detail_tables import InstructionClass as Kind
from manyscale.runner.readers.binaries import scalable
from manyscale.runner.readers.binaries.instructions import FLAGS, Instruction, need

_STACK_POINTER: Final = 4
_GENERAL: Final = (0, 1, 2, 3, 17, *range(5, 16), 18, 19, -1, *range(20, 32))
_NAMED: Final = {"sp": _STACK_POINTER, "wsp": _STACK_POINTER, "nzcv": FLAGS, "fp": _GENERAL[29], "lr": _GENERAL[30]}
_VECTOR: Final = re.compile(r"\b[vqdshb]\d+\b")
_LANES: Final = re.compile(r"\.(\d+)[bhsd]\b")
# the first pattern that a name matches as a whole tells its class
_KINDS: Final = tuple(
    (re.compile(pattern), kind)
    for pattern, kind in (
        (r"nop|hint|bti|yield|esb|csdb|pac\w*|aut\w*|xpac\w*|prfu?m", Kind.nop),
        (r"bl|blr\w*", Kind.call),
        (r"ret\w*", Kind.call_return),
        (r"b|b\..*|br\w*|cbn?z|tbn?z", Kind.branch),
        (r"cas\w*|swp\w*|(ld|st)(add|clr|eor|set|[su](max|min))\w*|stl?x[rp]\w*", Kind.atomic),
        (r"ld\w*|st\w*|fmov|movi?|mvni|movz|movn", Kind.move),
        (r"fn?m(add|sub)|fml[as]l?2?", Kind.fp_fma),
        (r"fsqrt", Kind.fp_sqrt),
        (r"fdiv", Kind.fp_div),
        (r"fn?mulx?", Kind.fp_mul),
        (r"fadd|fsub|faddp|fabd", Kind.fp_add),
        (r"f\w+|[su]cvtf", Kind.fp_other),
        (r"[su]div", Kind.int_div),
        (r"mul|mneg|m(add|sub)|[su]mull2?|[su]m(add|sub)l|[su]mnegl|[su]mulh", Kind.int_mul),
        (r"(add|sub|and|bic|neg|adc|sbc|ngc)s?|cm[np]|tst|orr|orn|eor|eon|mvn|movk|adrp?", Kind.int_alu),
        (r"ls[lr]v?|asrv?|rorv?|extr|bf\w+|[su]bf\w+|[su]xt[bhw]|cl[sz]|rbit|rev\w*|crc32\w*", Kind.int_alu),
        (r"cs\w+|cinc|cinv|cneg|ccm[np]", Kind.int_alu),
    )
)
_COMPARES: Final = re.compile(r"cm[np]|tst|f?ccm\w+|fcmpe?")
_OF_VECTORS: Final = {Kind.int_alu: Kind.simd_int, Kind.int_mul: Kind.simd_int, Kind.other: Kind.simd_int}
_READ_FLAGS: Final = re.compile(r"b\..*|f?cs\w+|cinc|cinv|cneg|f?ccm\w+|(adc|sbc|ngc)s?")
_WRITE_FLAGS: Final = re.compile(r"(add|sub|and|bic|neg|adc|sbc|ngc)s|cm[np]|tst|f?ccm\w+|fcmpe?")


class Disassembler:
    """Instructions of AArch64 code. ``vector_bytes``: length of SVE's vectors where it ran, 0 where not known."""

    def __init__(self, vector_bytes: int = 0) -> None:
        self._vector_bytes = vector_bytes
        capstone = need()
        self._code = capstone.Cs(capstone.CS_ARCH_ARM64, capstone.CS_MODE_ARM)
        self._code.detail = True
        self._register = capstone.CS_OP_REG
        self._registers: dict[int, int] = {}
        # instructions not known to capstone, those of SVE, and of these such as take a predicate, so far
        self.num_unknown = self.num_scalable = self.num_predicated = 0

    def disassemble(self, code: bytes, address: int) -> Iterator[Instruction]:
        """The instructions of ``code``, which stands at ``address``; one that is not known is ``other``. O(bytes)."""
        for at in range(0, len(code) - 3, 4):
            found = next(self._code.disasm(code[at : at + 4], address + at, 1), None)
            if found is None:
                self.num_unknown += 1
                yield Instruction(address + at, 4, Kind.other, 1, (), ())
            else:
                yield self._instruction(found)

    def _instruction(self, each: Any) -> Instruction:
        name, operands = each.mnemonic, each.op_str
        if scalable.is_scalable(name, operands):
            return self._scalable(each)
        kind = next((kind for pattern, kind in _KINDS if pattern.fullmatch(name)), Kind.other)
        if _VECTOR.search(operands):
            kind = _OF_VECTORS.get(kind, kind)
        sources, destinations = self._accessed(each, name, kind)
        sources |= {FLAGS} if _READ_FLAGS.fullmatch(name) else set()
        destinations |= {FLAGS} if _WRITE_FLAGS.fullmatch(name) else set()
        lanes = _LANES.search(operands)
        return Instruction(
            each.address, each.size, kind, int(lanes[1]) if lanes else 1, tuple(sorted(sources - {-1})),
            tuple(sorted(destinations - {-1})),
        )  # fmt: skip

    def _scalable(self, each: Any) -> Instruction:
        self.num_scalable += 1
        name, operands = each.mnemonic, each.op_str
        self.num_predicated += scalable.takes_predicate(operands)
        read, written, sets_flags = scalable.accessed(name, operands)
        sources, destinations = ({register_number(one) for one in names} for names in (read, written))
        destinations |= {FLAGS} if sets_flags else set()
        return Instruction(
            each.address, each.size, scalable.kind_of(name, operands),
            scalable.lanes_of(operands, self._vector_bytes), tuple(sorted(sources - {-1})),
            tuple(sorted(destinations - {-1})),
        )  # fmt: skip

    def _accessed(self, each: Any, name: str, kind: Kind) -> tuple[set[int], set[int]]:
        """Registers read and written. (capstone says that compares write their first operand, and little of atomics and
        of a return.)"""
        read, written = each.regs_access()
        sources, destinations = ({self._number(each, one) for one in registers} for registers in (read, written))
        plain = [self._number(each, one.reg) for one in each.operands if one.type == self._register]
        if _COMPARES.fullmatch(name):
            return sources | set(plain), set()
        if kind is Kind.call_return and not plain:
            return sources | {_NAMED["lr"]}, destinations
        if kind is Kind.atomic and not name.startswith(("stx", "stlx")) and plain:
            # cas: compared and then loaded, stored; the others: an operand, and where the old value goes
            is_cas = name.startswith("cas")
            return sources | set(plain if is_cas else plain[:1]), {plain[0]} if is_cas else set(plain[1:])
        return sources, destinations

    def _number(self, each: Any, register: int) -> int:
        number = self._registers.get(register)
        if number is None:
            number = self._registers[register] = register_number(each.reg_name(register) or "")
        return number


def register_number(name: str) -> int:
    """The number of a register by its name; -1 for one that nothing waits for."""
    if name in _NAMED:
        return _NAMED[name]
    found = re.fullmatch(r"([xw]|[vqdshb])(\d+)", name)
    if not found:
        return -1
    kind, number = found[1], int(found[2])
    return _GENERAL[number] if kind in "xw" else 32 + number
