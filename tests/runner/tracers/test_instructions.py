"""What instructions access, by Intel's manual (volume 2): the direction of moves between registers and memory."""

from __future__ import annotations

import pytest

from manyscale.models.workload.detail_tables import InstructionClass as Kind
from manyscale.runner.readers.binaries.blocks import unseen_accesses
from manyscale.runner.readers.binaries.instructions import Disassembler

LOADS = {
    "movups xmm0, [rdi]": "0f1007", "movupd xmm0, [rdi]": "660f1007", "movaps xmm0, [rdi]": "0f2807",
    "movlpd xmm0, [rdi]": "660f1207", "movhpd xmm0, [rdi]": "660f1607", "mov rax, [rdi]": "488b07",
    "movsd xmm0, [rdi]": "f20f1007", "push [rdi]": "ff37",
}  # fmt: skip
STORES = {
    "movups [rdi], xmm0": "0f1107", "movupd [rdi], xmm0": "660f1107", "movaps [rdi], xmm0": "0f2907",
    "movlpd [rdi], xmm0": "660f1307", "movhpd [rdi], xmm0": "660f1707", "mov [rdi], rax": "488907",
    "movsd [rdi], xmm0": "f20f1107", "vmovups [rdi], ymm0": "c5fc1107", "movnti [rdi], eax": "0fc307",
}  # fmt: skip


@pytest.mark.golden
@pytest.mark.parametrize(
    ("code", "is_store"), [*((code, False) for code in LOADS.values()), *((code, True) for code in STORES.values())]
)
def test_direction_of_moves(code, is_store):
    pytest.importorskip("capstone")
    (instruction,) = Disassembler().disassemble(bytes.fromhex(code), 0)
    directions = [each for each, _ in instruction.memory]
    assert directions == [is_store]


@pytest.mark.golden
@pytest.mark.parametrize("code", ["a4", "480107"])  # movsb [rdi], [rsi]; add [rdi], rax
def test_what_reads_and_writes_memory(code):
    pytest.importorskip("capstone")
    (instruction,) = Disassembler().disassemble(bytes.fromhex(code), 0)
    assert sorted(each for each, _ in instruction.memory) == [False, True]


@pytest.mark.golden
@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("f0480107", Kind.atomic),  # lock add [rdi], rax
        ("f0480fb10f", Kind.atomic),  # lock cmpxchg [rdi], rcx
        ("488707", Kind.atomic),  # xchg [rdi], rax: with memory always as if locked (volume 2, XCHG)
        ("4887c8", Kind.int_alu),  # xchg rax, rcx
        ("480107", Kind.int_alu),  # add [rdi], rax
    ],
)
def test_what_is_atomic(code, kind):
    pytest.importorskip("capstone")
    (instruction,) = Disassembler().disassemble(bytes.fromhex(code), 0)
    assert instruction.kind == kind


@pytest.mark.theory
def test_what_code_generation_accesses_beside_the_source_is_unseen():
    """add rax, [rdi]; mov [rsp + 8], rax; mulsd xmm0, [rip]; inc dword ptr [rsi]: coverage reported the first, and the
    load of the last."""
    code = bytes.fromhex("4803074889442408f20f590500000000ff06")
    instructions = list(Disassembler().disassemble(code, 0))
    found = unseen_accesses(instructions, [(0, False, 8), (3, False, 4)])
    assert found == [(1, True, 8), (2, False, 8), (3, True, 4)]
