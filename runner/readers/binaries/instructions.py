"""Machine instructions of x86-64 as the detailed level knows them: what they ask of a core, and their registers.

Registers are numbered as a core renames them, a sub-register as the whole: 0 to 15 rax, rcx, rdx, rbx, rsp, rbp, rsi,
rdi, r8 ... r15; 16 the flags; 32 to 63 the vector registers, whatever their width; 64 to 71 the mask registers; 80 to
87 the x87 stack. The instruction pointer and the segment registers are left out: nothing waits for them. An instruction
that clears a register by xor or subtraction reads nothing. The disassembler is capstone (extra ``trace``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

from manyscale.models.workload.detail_tables import InstructionClass as Kind
from manyscale.runner.errors import UserError

FLAGS: Final = 16
_GENERAL: Final = ("ax", "cx", "dx", "bx", "sp", "bp", "si", "di")


class Flow(IntEnum):
    """Where an instruction sends the control flow."""

    on = 0
    branch = 1  # or on
    jump = 2
    back = 3  # return
    call = 4
    stop = 5  # nothing comes behind


@dataclass(frozen=True)
class Instruction:
    """``memory``: (is_store, bytes) of each operand in memory, a load before a store. ``target``: address that a
    branch, jump or call goes to, or None; ``slot``: address of the pointer that it goes through, or None; ``counter``:
    address whose byte it increments, or None."""

    address: int
    size: int
    kind: Kind
    lanes: int
    sources: tuple[int, ...]
    destinations: tuple[int, ...]
    memory: tuple[tuple[bool, int], ...] = ()
    flow: Flow = Flow.on
    target: int | None = None
    slot: int | None = None
    counter: int | None = None


def need() -> Any:
    """The module capstone. Raises UserError, naming the extra, where it is not installed."""
    try:
        import capstone  # type: ignore[import-untyped]
    except ImportError:
        raise UserError("the detailed level needs capstone and pyelftools; pip install 'manyscale[trace]'") from None
    return capstone


class Disassembler:
    """Instructions of x86-64 code."""

    def __init__(self) -> None:
        capstone = need()
        self._x86 = capstone.x86
        self._code = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
        self._code.detail = True
        self._groups = {
            capstone.CS_GRP_JUMP: Flow.jump,
            capstone.CS_GRP_CALL: Flow.call,
            capstone.CS_GRP_RET: Flow.back,
            capstone.CS_GRP_IRET: Flow.back,
        }
        self._read, self._write = capstone.CS_AC_READ, capstone.CS_AC_WRITE
        self._registers: dict[int, int] = {}

    def disassemble(self, code: bytes, address: int) -> Iterator[Instruction]:
        """The instructions of ``code``, which stands at ``address``; ends early where it is no code. O(bytes)."""
        for each in self._code.disasm(code, address):
            yield self._instruction(each)

    def _instruction(self, each: Any) -> Instruction:
        mnemonic = each.mnemonic.rsplit(" ", 1)[-1]
        memory, slot, target, counter = [], None, None, None
        flow = self._flow(each, mnemonic)
        for number, operand in enumerate(each.operands):
            if operand.type == self._x86.X86_OP_MEM:
                absolute = operand.mem.base == self._x86.X86_REG_RIP and not operand.mem.index
                place = each.address + each.size + operand.mem.disp if absolute else None
                if flow in (Flow.call, Flow.jump, Flow.branch):
                    slot = place
                if not mnemonic.startswith(("lea", "nop", "prefetch")):
                    # (capstone says of movups, movupd, movlpd and movhpd to memory that they read it)
                    is_target = number == 0 and len(each.operands) > 1 and mnemonic.startswith(("mov", "vmov"))
                    access = self._write if is_target else operand.access
                    memory += [(False, operand.size)] if access & self._read else []
                    memory += [(True, operand.size)] if access & self._write else []
                if mnemonic in ("add", "inc") and operand.size == 1 and place is not None:
                    counter = place
            elif operand.type == self._x86.X86_OP_IMM and flow in (Flow.call, Flow.jump, Flow.branch):
                target = operand.imm
        read, written = each.regs_access()
        sources, destinations = self._numbers(each, read), self._numbers(each, written)
        if mnemonic.lstrip("v") in _CLEARS and _same_operands(each):
            sources = ()
        # (an exchange with memory is atomic without saying so)
        atomic = memory and ("lock" in each.mnemonic.split() or mnemonic == "xchg")
        kind = Kind.atomic if atomic else classify(mnemonic, bool(memory))
        lanes = _lanes(mnemonic, each) if kind in _VECTOR else 1
        return Instruction(
            each.address, each.size, kind, lanes, sources, destinations, tuple(memory), flow, target, slot, counter
        )

    def _flow(self, each: Any, mnemonic: str) -> Flow:
        if mnemonic in ("ud2", "hlt"):
            return Flow.stop
        for group in each.groups:
            flow = self._groups.get(group)
            if flow == Flow.jump and mnemonic not in ("jmp", "ljmp"):
                return Flow.branch
            if flow is not None:
                return flow
        return Flow.on

    def _numbers(self, each: Any, registers: list[int]) -> tuple[int, ...]:
        numbers = {self._number(each, register) for register in registers}
        return tuple(sorted(numbers - {-1}))

    def _number(self, each: Any, register: int) -> int:
        number = self._registers.get(register)
        if number is None:
            number = self._registers[register] = register_number(each.reg_name(register) or "")
        return number


def register_number(name: str) -> int:
    """The number of a register by its name; -1 for one that nothing waits for."""
    found = re.fullmatch(r"(?:[re]?(ax|cx|dx|bx|sp|bp|si|di)|([a-d])[lh]|(sp|bp|si|di)l|r(\d+)[dwb]?)", name)
    if found:
        whole, letter, low, number = found.groups()
        return int(number) if number else _GENERAL.index(whole or low or f"{letter}x")
    if name in ("rflags", "eflags", "flags"):
        return FLAGS
    for pattern, first in ((r"[xyz]mm(\d+)", 32), (r"k(\d)", 64), (r"st\((\d)\)", 80), (r"mm(\d)", 80)):
        found = re.fullmatch(pattern, name)
        if found:
            return first + int(found.group(1))
    return -1


_CLEARS: Final = frozenset(
    ["xor", "sub", "xorps", "xorpd", "pxor", "pxord", "pxorq"] + [f"psub{size}" for size in "bwdq"]
)  # fmt: skip
_VECTOR: Final = (
    Kind.fp_add, Kind.fp_mul, Kind.fp_fma, Kind.fp_div, Kind.fp_sqrt, Kind.fp_other, Kind.simd_int, Kind.move,
)  # fmt: skip
_FLOAT: Final = "[sp][sdh]"  # scalar or packed, single, double or half
# the first pattern that a name matches as a whole tells its class
_KINDS: Final = tuple(
    (re.compile(pattern), kind)
    for pattern, kind in (
        (r"f?nop.*|endbr64|pause|prefetch.*", Kind.nop),
        (r"l?call", Kind.call),
        (r"i?ret.*", Kind.call_return),
        (r"l?jmp|j.*|loop.*", Kind.branch),
        (r"i?div", Kind.int_div),
        (r"i?mul|mulx", Kind.int_mul),
        (r"vfn?m(add|sub).*", Kind.fp_fma),
        (rf"v?sqrt{_FLOAT}|fsqrt", Kind.fp_sqrt),
        (rf"v?div{_FLOAT}|fi?divr?p?", Kind.fp_div),
        (rf"v?(add|sub|hadd|hsub|addsub){_FLOAT}|fi?(add|subr?)p?", Kind.fp_add),
        (rf"v?mul{_FLOAT}|fi?mulp?", Kind.fp_mul),
        (rf"v?u?comis[sdh]|v?cmp\w*{_FLOAT}|v?(min|max|round|rcp|rsqrt|dp|rndscale)\w*{_FLOAT}", Kind.fp_other),
        (r"v?cvt.*|f(n?st|u?comi?|i?ld|ist|abs|chs|xch).*", Kind.fp_other),
        (rf"v?movnt.*|v?mov([auhl]|hl|lh|d?dup|sh|sl)?({_FLOAT}|[dq]|dq.*)?(dup)?", Kind.move),
        (r"v?lddqu|vbroadcast.*", Kind.move),
        (r"cmov.*|lea|push.*|popf?.?|leave|xchg|set.*|mov[sz].*|movabs|movbe|lods.|stos.*|bswap", Kind.int_alu),
        (r"adc?x?|add|adox|sbb|sub|inc|dec|neg|not|andn?|x?or|cmp|test|xadd|cmpxchg.*", Kind.int_alu),
        (r"sh[lr]d?x?|sa[lr]x?|r[oc][lr]x?|bt[src]?|bs[fr]|[lt]zcnt|popcnt|bextr|bls\w+|bzhi|pdep|pext", Kind.int_alu),
        (r"c[bwdq][wdqo]e?|cl[cd]|cmc|st[cd]|lahf|sahf|crc32", Kind.int_alu),
        (r"v?p\w+|v?(andn?|x?or)p[sd]|v?(unpck|shuf|blend|perm|insert|extract|test|movmsk)\w*", Kind.simd_int),
        (r"v?(compress|expand|align|gather|scatter|zero)\w*|k\w+", Kind.simd_int),
    )
)


def classify(mnemonic: str, in_memory: bool) -> Kind:
    """The class of an instruction by its name. Conversions from memory and vector moves count once, by what they do."""
    if mnemonic in ("push", "pop") or (mnemonic.startswith(("movz", "movsx")) and in_memory):
        return Kind.move
    return next((kind for pattern, kind in _KINDS if pattern.fullmatch(mnemonic)), Kind.other)


def _lanes(mnemonic: str, each: Any) -> int:
    """Elements by the widest register's size and the name's last letters; 1 for scalars."""
    found = re.search(r"[^a-z]?(p[sdh]|s[sdh])(\d|x|$)", mnemonic)
    width = max((operand.size for operand in each.operands), default=8)
    if found and found.group(1)[0] == "p":
        return max(1, width // {"s": 4, "d": 8, "h": 2}[found.group(1)[1]])
    if mnemonic.startswith(("p", "vp")) and not mnemonic.startswith(("push", "pop", "pext", "pdep", "prefetch")):
        return max(1, width // {"b": 1, "w": 2, "d": 4, "q": 8}.get(mnemonic[-1], width))
    return 1


def _same_operands(each: Any) -> bool:
    operands = each.operands
    return len(operands) >= 2 and operands[-1].type == operands[-2].type == 1 and operands[-1].reg == operands[-2].reg
