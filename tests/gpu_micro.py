"""Launches written by hand in the format of Accel-Sim's traces, each for one rule of a GPU: what they take on Accel-Sim
stands in tests/validation/gpu/accelsim_further_micro.csv, beside the digest of their text.

``python tests/gpu_micro.py FOLDER`` writes them all as folders that Accel-Sim reads.
"""

from __future__ import annotations

import hashlib
import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ALL: Final = 0xFFFFFFFF
BASE: Final = 0x7FC8_4150_0000
LOCAL: Final = 0x7FC8_6500_0000
MIB: Final = 1 << 20
LINE: Final = 128
HEAD: Final = """-kernel name = k
-kernel id = {number}
-grid dim = ({blocks},1,1)
-block dim = ({threads},1,1)
-shmem = {shared}
-nregs = {registers}
-binary version = 86
-cuda stream id = 0
-shmem base_addr = 0x00007fc867000000
-local mem base_addr = {local:#018x}
-nvbit version = 1.5.3
-accelsim tracer version = 3

#traces format = PC mask dest_num [reg_dests] opcode src_num [reg_srcs] mem_width [adrrescompress?] [mem_addresses]

"""

Lines = list[str]  # of a warp, without their addresses of instructions


@dataclass(frozen=True)
class Kernel:
    """``warp(block, number)``: the lines of a warp, EXIT excluded."""

    warp: Callable[[int, int], Lines]
    blocks: int = 1
    warps: int = 1
    shared: int = 0
    registers: int = 16

    def text(self, number: int) -> Iterator[str]:
        yield HEAD.format(
            number=number, blocks=self.blocks, threads=32 * self.warps, shared=self.shared, registers=self.registers,
            local=LOCAL,
        )  # fmt: skip
        for block in range(self.blocks):
            yield f"#BEGIN_TB\n\nthread block = {block},0,0\n"
            for warp in range(self.warps):
                lines = [*self.warp(block, warp), alu("EXIT")]
                yield f"\nwarp = {warp}\ninsts = {len(lines)}\n"
                yield "".join(f"{16 * place:04x} {line} \n" for place, line in enumerate(lines))
            yield "\n#END_TB\n\n"


def alu(opcode: str, to: int | None = None, *sources: int, mask: int = ALL) -> str:
    return f"{mask:08x} {'0' if to is None else f'1 R{to}'} {opcode} {_registers(sources)} 0"


def memory(
    opcode: str,
    to: int | None,
    sources: tuple[int, ...],
    address: int,
    stride: int | list[int] = 4,
    mask: int = ALL,
    width: int = 4,
) -> str:
    """Thread k accesses ``address + k * stride``; or addresses that follow each other at the steps of a list."""
    text = f"{mask:08x} {'0' if to is None else f'1 R{to}'} {opcode} {_registers(sources)} {width}"
    if isinstance(stride, list):
        return f"{text} 2 {address:#x} {' '.join(map(str, stride))}"
    return f"{text} 1 {address:#x} {stride}"


def _registers(registers: tuple[int, ...]) -> str:
    return " ".join([str(len(registers)), *(f"R{register}" for register in registers)])


def load(to: int, address: int, stride: int | list[int] = 4, source: int = 200, op: str = "LDG.E", **more: int) -> str:
    return memory(op, to, (source,), address, stride, **more)


def store(address: int, stride: int | list[int] = 4, op: str = "STG.E", source: int = 3, **more: int) -> str:
    return memory(op, None, (2, source), address, stride, **more)


def atomic(to: int, address: int, stride: int | list[int] = 4, op: str = "ATOMG.E.ADD.STRONG.GPU", **more: int) -> str:
    return memory(op, to, (2, 3), address, stride, **more)


def reduction(address: int, stride: int | list[int] = 4, op: str = "RED.E.ADD.STRONG.GPU", **more: int) -> str:
    return memory(op, None, (2, 3), address, stride, **more)


def integers(count: int, dependent: bool = True) -> Lines:
    return [alu("IADD3", 2 if dependent else 10 + i % 40, 2 if dependent else 200) for i in range(count)]


def one(lines: Lines, **more: int) -> list[Kernel]:
    return [Kernel(lambda _block, _warp: lines, **more)]


def each(warp: Callable[[int, int], Lines], **more: int) -> list[Kernel]:
    return [Kernel(warp, **more)]


def _shared() -> Iterator[tuple[str, list[Kernel]]]:
    for ways in (1, 2, 8, 32):
        yield f"shared_chain_{ways}", one([load(2, 0, 4 * ways, 2, "LDS") for _ in range(40)], shared=8192)
        yield (
            f"shared_loads_{ways}",
            one([load(10 + i % 40, 0, 4 * ways, 200, "LDS") for i in range(60)], warps=8, shared=8192),
        )
    yield "shared_stores_1", one([store(0, 4, "STS") for _ in range(60)], warps=8, shared=8192)
    yield "shared_stores_4", one([store(0, 16, "STS") for _ in range(60)], warps=8, shared=8192)
    yield "shared_broadcast", one([load(10 + i % 40, 64, 0, 200, "LDS") for i in range(60)], warps=4, shared=8192)
    yield "shared_wide", one([load(10 + 4 * (i % 10), 0, 16, 200, "LDS.128") for i in range(40)], warps=4, shared=8192)
    yield "shared_atomics", one([atomic(2, 0, 0, "ATOMS.ADD") for _ in range(20)], warps=4, shared=8192)
    yield "shared_atomics_apart", one([atomic(2, 0, 4, "ATOMS.ADD") for _ in range(20)], warps=4, shared=8192)

    def tile(_block: int, warp: int) -> Lines:
        phase = [
            store(128 * warp, 4, "STS"), alu("BAR.SYNC"), load(4, 128 * (7 - warp), 4, 200, "LDS"),
            alu("FFMA", 5, 4, 5), alu("BAR.SYNC"),
        ]  # fmt: skip
        return phase * 12

    yield "shared_tile", each(tile, warps=8, blocks=46, shared=8192)

    def both(_block: int, _warp: int) -> Lines:
        lines = []
        for i in range(20):
            lines += [
                load(10 + i % 20, 0, 8, 200, "LDS"),
                load(40 + i % 20, BASE + LINE * (i % 4)),
                *integers(2, False),
            ]
        return lines

    yield "shared_and_l1", each(both, warps=8, shared=8192)


def _barriers() -> Iterator[tuple[str, list[Kernel]]]:
    def uneven(_block: int, warp: int) -> Lines:
        return [line for phase in range(10) for line in (*integers(3 * ((warp + phase) % 8)), alu("BAR.SYNC"))]

    yield "barrier_8", each(uneven, warps=8)
    yield "barrier_two_blocks", each(uneven, warps=8, blocks=92)

    def early(_block: int, warp: int) -> Lines:
        return [line for _ in range(4 + warp // 4) for line in (*integers(5), alu("BAR.SYNC"))]

    yield "barrier_early_exit", each(early, warps=8)
    yield "barrier_only", one([alu("BAR.SYNC") for _ in range(50)], warps=4)
    yield "barrier_one_warp", one([alu("BAR.SYNC") for _ in range(50)])

    def loads(_block: int, warp: int) -> Lines:
        lines = []
        for i in range(6):
            lines += [load(4, BASE + LINE * (8 * i + warp)), alu("BAR.SYNC"), alu("IADD3", 5, 4)]
        return lines

    yield "barrier_after_load", each(loads, warps=8)

    def membar(_block: int, warp: int) -> Lines:
        lines = []
        for i in range(8):
            lines += [store(BASE + LINE * (8 * i + warp)), alu("MEMBAR.SC.GPU"), *integers(3)]
        return lines

    yield "membar_stores", each(membar, warps=2)

    def membar_loads(_block: int, warp: int) -> Lines:
        lines = []
        for i in range(8):
            lines += [load(4 + i, BASE + LINE * (8 * i + warp)), alu("MEMBAR.SC.GPU"), *integers(3)]
        return lines

    yield "membar_loads", each(membar_loads, warps=2)


def _units() -> Iterator[tuple[str, list[Kernel]]]:
    for name, opcode in (
        ("int", "IADD3"), ("fp32", "FFMA"), ("fp16", "HFMA2"), ("sfu", "MUFU.RCP"), ("fp64", "DADD"),
        ("tensor", "HMMA.1688.F32"), ("branch", "BRA"), ("uniform", "UIADD3"), ("move", "MOV"), ("texture", "TEX"),
    ):  # fmt: skip
        to = (lambda i: None) if opcode == "BRA" else (lambda i: 10 + 4 * (i % 20))
        yield f"unit_{name}", one([alu(opcode, to(i), 200) for i in range(60)], warps=8)
        if opcode != "BRA":
            yield f"unit_{name}_chain", one([alu(opcode, 4, 4) for _ in range(40)])
    yield "unit_no_source", one([alu("MOV", 10 + i % 40) for i in range(80)], warps=4)

    def mixed(count: int, dependent: int, seed: int) -> Callable[[int, int], Lines]:
        def warp(block: int, number: int) -> Lines:
            numbers = random.Random(seed + 100 * block + number)
            lines = []
            for _ in range(count):
                kind = numbers.choices(
                    ("IADD3", "FFMA", "MUFU.RCP", "DADD", "HMMA.1688.F32", "BRA", "UIADD3", "MOV"),
                    (30, 30, 4, 2, 2, 6, 6, 10),
                )[0]
                to = None if kind == "BRA" else 4 * numbers.randrange(2, 12)
                source = 4 * numbers.randrange(2, 12) if numbers.randrange(100) < dependent else 200
                lines.append(alu(kind, to, source))
            return lines

        return warp

    yield "mixed_free", each(mixed(120, 0, 1), warps=8)
    yield "mixed_dependent", each(mixed(120, 70, 2), warps=8)
    yield "mixed_one_warp", each(mixed(200, 50, 3))
    yield "mixed_many_warps", each(mixed(60, 50, 4), warps=16, blocks=3 * 46)


def _stores() -> Iterator[tuple[str, list[Kernel]]]:
    yield "stores_coalesced", each(lambda _, w: [store(BASE + LINE * (100 * w + i)) for i in range(40)], warps=4)
    yield "stores_divergent", each(lambda _, w: [store(BASE + 65536 * w + LINE * i, LINE) for i in range(8)], warps=2)
    yield "stores_same_line", one([store(BASE) for _ in range(40)], warps=4)
    yield "stores_same_part", one([store(BASE, 0) for _ in range(40)], warps=4)
    yield (
        "stores_all_sms",
        each(lambda b, w: [store(BASE + LINE * (64 * (8 * b + w) + i)) for i in range(16)], warps=8, blocks=92),
    )
    yield (
        "write_read_full",
        one([line for i in range(16) for line in (store(BASE + LINE * i), load(2, BASE + LINE * i))]),
    )
    yield (
        "write_read_part",
        one([line for i in range(16) for line in (store(BASE + LINE * i, 8, mask=1), load(2, BASE + LINE * i))]),
    )
    yield (
        "write_read_masked",
        one([line for i in range(16) for line in (store(BASE + LINE * i, 4, mask=0xFF0), load(2, BASE + LINE * i))]),
    )
    yield (
        "read_write_read",
        one(
            [
                line
                for i in range(8)
                for line in (load(2, BASE + LINE * i), store(BASE + LINE * i, mask=0x3C), load(3, BASE + LINE * i))
            ]
        ),
    )
    yield (
        "write_read_l2",
        one(
            [
                line
                for i in range(16)
                for line in (store(BASE + LINE * i), load(2, BASE + LINE * i, op="LDG.E.STRONG.GPU"))
            ]
        ),
    )
    yield (
        "write_part_read_l2",
        one(
            [
                line
                for i in range(16)
                for line in (store(BASE + LINE * i, mask=3), load(2, BASE + LINE * i, op="LDG.E.STRONG.GPU"))
            ]
        ),
    )


def _atomics() -> Iterator[tuple[str, list[Kernel]]]:
    yield "atomics_apart", one([atomic(2, BASE + LINE * i) for i in range(10)])
    yield "atomics_same", one([atomic(2, BASE, 0) for _ in range(6)])
    yield "atomics_pairs", one([atomic(2, BASE + LINE * i, [0, 4] * 15 + [0]) for i in range(6)])
    yield "atomics_divergent", each(lambda _, w: [atomic(2, BASE + 65536 * w, LINE) for _ in range(5)], warps=4)
    yield "reductions_apart", one([reduction(BASE + LINE * i) for i in range(20)], warps=4)
    yield "reductions_same_all_sms", one([reduction(BASE, 0, mask=1) for _ in range(4)], blocks=46)
    yield "atomics_one_thread", one([atomic(2, BASE, mask=1) for _ in range(20)], warps=8)
    yield (
        "atomics_and_work",
        one([line for _ in range(8) for line in (atomic(4, BASE, mask=1), *integers(20, False))], warps=4),
    )


def _l1() -> Iterator[tuple[str, list[Kernel]]]:
    warm = [load(9, BASE + LINE * i) for i in range(8)] + [alu("IADD3", 9, 9)]
    yield "l1_hits", one(warm + [load(10 + i % 40, BASE + LINE * (i % 8)) for i in range(60)], warps=16)
    yield "l1_hits_one_sector", one(warm + [load(10 + i % 40, BASE, 0) for i in range(60)], warps=16)
    yield (
        "l1_hits_used",
        one(
            warm + [line for i in range(40) for line in (load(10, BASE + LINE * (i % 8)), alu("FFMA", 11, 10, 11))],
            warps=32,
        ),
    )
    spread = [load(9, BASE + LINE * 32 * i, LINE) for i in range(2)] + [alu("IADD3", 9, 9)]
    yield "l1_hits_one_bank", one(spread + [load(10 + i % 40, BASE, LINE) for i in range(20)], warps=4)
    yield "l1_capacity", one([load(2, BASE + LINE * (i % 1100)) for i in range(2200)])
    yield "l1_capacity_wide", one([load(2 + i % 4, BASE + 32 * LINE * (i % 40), LINE) for i in range(120)], warps=2)
    yield "l1_merges", one([load(10 + i % 60, BASE + LINE * (i // 60)) for i in range(180)])
    yield "l1_merges_one_sector", one([load(10 + i % 100, BASE, 0) for i in range(100)])
    yield "l1_merges_warps", one([load(10 + i, BASE + LINE * i) for i in range(8)], warps=32)
    yield "l1_misses_one_sm", each(lambda _, w: [load(10 + i, BASE + LINE * (64 * w + i)) for i in range(30)], warps=32)
    yield "l1_masked", one([load(10 + i % 40, BASE, mask=0) for i in range(60)], warps=2)
    yield "l1_masked_chain", one([load(2, BASE, 4, 2, mask=0) for _ in range(30)])
    yield "l1_wide", one(warm + [load(10 + 4 * (i % 10), BASE, 16, op="LDG.E.128") for i in range(40)], warps=8)
    yield (
        "local_chain",
        one(
            [
                line
                for i in range(20)
                for line in (store(LOCAL + 4096 * (i % 5), 0, "STL"), load(2, LOCAL + 4096 * (i % 5), 0, 2, "LDL"))
            ]
        ),
    )
    yield (
        "local_warps",
        each(lambda _, w: [load(10 + i % 20, LOCAL + 512 * (w + 8 * i), 4, 200, "LDL") for i in range(20)], warps=8),
    )


def _l2() -> Iterator[tuple[str, list[Kernel]]]:
    strong = "LDG.E.STRONG.GPU"
    yield "l2_chain", one([load(2, BASE + LINE * (i % 2), 4, 2, strong) for i in range(20)])
    yield "l2_same_line", one([load(10 + i, BASE) for i in range(4)], blocks=46, warps=4)
    yield "l2_same_sector_all_sms", one([load(2, BASE, 0, 2, strong) for i in range(12)], blocks=46, warps=8)
    yield (
        "l2_stream",
        each(lambda _, w: [load(10 + i, BASE + LINE * (16 * w + i), op=strong) for i in range(16)], warps=8, blocks=46),
    )
    # (the same lines for all blocks: hits and misses in flight)
    yield (
        "l2_shared_lines",
        each(lambda _, w: [load(10 + i, BASE + LINE * (30 * w + i)) for i in range(30)], warps=8, blocks=92),
    )
    two = lambda _, w: [load(10 + i, BASE + LINE * (20 * w + i)) for i in range(20)]  # noqa: E731
    yield "launches_l2_kept", [Kernel(two, blocks=46, warps=4) for _ in range(3)]
    writes = lambda b, w: [store(BASE + LINE * (20 * (4 * b + w) + i)) for i in range(20)]  # noqa: E731
    reads = lambda b, w: [load(10 + i, BASE + LINE * (20 * (4 * b + w) + i)) for i in range(20)]  # noqa: E731
    yield "launches_write_then_read", [Kernel(writes, blocks=46, warps=4), Kernel(reads, blocks=46, warps=4)]
    yield (
        "l2_capacity",
        [
            Kernel(
                lambda b, w: [load(10 + i, BASE + LINE * (64 * (8 * b + w) + i)) for i in range(64)], blocks=92, warps=8
            )
            for _ in range(2)
        ],
    )
    yield (
        "l2_write_back",
        [
            Kernel(lambda b, w: [store(BASE + LINE * (64 * (8 * b + w) + i)) for i in range(64)], blocks=92, warps=8)
            for _ in range(2)
        ],
    )


def _dram() -> Iterator[tuple[str, list[Kernel]]]:
    yield "dram_chain", one([load(2, BASE + 4096 * i, 4, 2) for i in range(20)])
    yield "dram_chain_one_sector", one([load(2, BASE + 4096 * i, 0, 2) for i in range(20)])
    yield (
        "dram_reads",
        each(lambda b, w: [load(10 + i, BASE + LINE * (32 * (8 * b + w) + i)) for i in range(32)], warps=8, blocks=46),
    )
    yield (
        "dram_reads_apart",
        each(lambda b, w: [load(10 + i, BASE + LINE * (368 * i + 8 * b + w)) for i in range(32)], warps=8, blocks=46),
    )
    yield (
        "dram_writes",
        each(lambda b, w: [store(BASE + LINE * (32 * (8 * b + w) + i)) for i in range(32)], warps=8, blocks=46),
    )
    yield "dram_copy", each(
        lambda b, w: [
            line
            for i in range(16)
            for at in (BASE + LINE * (368 * i + 8 * b + w),)
            for line in (load(10 + i, at), store(at + 64 * MIB, source=10 + i))
        ],
        warps=8, blocks=46,
    )  # fmt: skip
    # one bank of one channel or few of them: rows change with every access
    yield "dram_rows", each(lambda b, w: [load(10 + i, BASE + (1 << 19) * (i + 4 * w)) for i in range(8)], warps=4)
    yield (
        "dram_rows_one_sector",
        each(lambda b, w: [load(10 + i, BASE + (1 << 19) * (i + 8 * w), 0) for i in range(8)], warps=8),
    )
    yield (
        "dram_divergent",
        each(
            lambda b, w: [load(10 + i, BASE + 131072 * (8 * b + w) + 4096 * i, LINE) for i in range(4)],
            warps=8,
            blocks=46,
        ),
    )

    def scattered(block: int, warp: int) -> Lines:
        numbers = random.Random(1000 * block + warp)
        lines = []
        for i in range(12):
            steps = [4 * numbers.randrange(1, 2000) for _ in range(31)]
            lines.append(load(10 + i, BASE + 4 * numbers.randrange(1 << 20), steps))
        return lines

    yield "dram_scattered", each(scattered, warps=4, blocks=46)


def _blocks() -> Iterator[tuple[str, list[Kernel]]]:
    yield "blocks_many_small", each(lambda b, w: integers(10 + 7 * (b % 13)), blocks=2000)
    yield "blocks_uneven", each(lambda b, w: integers(20 * (1 + b * 37 % 11)), blocks=300, warps=8)
    yield "blocks_registers", each(lambda b, w: integers(40 + b % 7), blocks=300, warps=4, registers=128)
    yield "blocks_shared", each(lambda b, w: integers(40 + b % 7), blocks=300, warps=2, shared=20000)
    yield "blocks_empty", one([], blocks=1000)
    yield "blocks_stores", each(lambda b, w: [store(BASE + LINE * (2 * b + w)), *integers(b % 5)], blocks=800, warps=2)
    yield "blocks_loads", each(
        lambda b, w: [
            *(load(10 + i, BASE + LINE * (16 * (b % 60) + 8 * w + i)) for i in range(6)),
            *(alu("IADD3", 20, 10 + i) for i in range(6)),
        ],
        blocks=600, warps=4,
    )  # fmt: skip
    yield "blocks_large", each(lambda b, w: integers(30 + 5 * (w % 3)), blocks=100, warps=32)
    yield "blocks_odd_size", each(lambda b, w: integers(30 + 5 * (w % 3), False), blocks=200, warps=5)


def _random_program(seed: int, warps: int, blocks: int, length: int) -> list[Kernel]:
    """Instructions of all kinds whose registers, addresses and masks are drawn: blocks are those of one program."""

    def warp(block: int, number: int) -> Lines:
        shape = random.Random(seed)  # which instructions, the same for all warps
        data = random.Random(10_000 * seed + 100 * block + number)  # addresses and masks
        lines = []
        for _ in range(length):
            kind = shape.choices(
                ("int", "fp", "sfu", "load", "store", "lds", "sts", "bar", "branch", "atomic", "red", "wide"),
                (30, 20, 3, 12, 6, 6, 4, 1, 6, 0.6, 0.6, 3),
            )[0]
            to, source, other = (4 * shape.randrange(2, 8) for _ in range(3))  # (wide operands do not overlap)
            stride = shape.choice((0, 4, 4, 4, 8, 32, 128))
            far = shape.randrange(3)
            mask = data.choice((ALL, ALL, ALL, 0xFFFF, 0x0F0F0F0F, 1, 0))
            address = BASE + 4 * data.randrange((64, 4096, 1 << 18)[far])
            if kind == "int":
                lines.append(alu("IADD3", to, source, other))
            elif kind == "fp":
                lines.append(alu("FFMA", to, source, other, to))
            elif kind == "sfu":
                lines.append(alu("MUFU.RCP", to, source))
            elif kind == "branch":
                lines.append(alu("BRA", mask=mask))
            elif kind == "bar":
                lines.append(alu("BAR.SYNC"))
            elif kind == "load":
                lines.append(load(to, address, _steps(stride, mask), source, mask=mask))
            elif kind == "wide":
                lines.append(load(to, address & ~15, _steps(16, mask), source, "LDG.E.128", mask=mask))
            elif kind == "store":
                lines.append(store(address, _steps(stride, mask), source=source, mask=mask))
            elif kind == "lds":
                lines.append(load(to, 4 * data.randrange(64), _steps(stride, mask), source, "LDS", mask=mask))
            elif kind == "sts":
                lines.append(store(4 * data.randrange(64), _steps(stride, mask), "STS", source, mask=mask))
            elif kind == "atomic":
                lines.append(atomic(to, BASE + 4 * data.randrange(64), _steps(4, mask), mask=mask))
            else:
                lines.append(reduction(BASE + 4 * data.randrange(64), _steps(4, mask), mask=mask))
        return lines

    return [Kernel(warp, blocks=blocks, warps=warps, shared=8192, registers=32)]


def _steps(stride: int, mask: int) -> list[int]:
    return [stride] * max(0, mask.bit_count() - 1)


def _random() -> Iterator[tuple[str, list[Kernel]]]:
    yield "random_one_warp", _random_program(11, 1, 1, 400)
    yield "random_one_block", _random_program(12, 8, 1, 200)
    yield "random_blocks", _random_program(13, 4, 100, 80)
    yield "random_full", _random_program(14, 8, 276, 50)
    yield "random_large_blocks", _random_program(15, 24, 60, 50)


def traces() -> Iterator[tuple[str, list[Kernel]]]:
    for part in (_shared, _barriers, _units, _stores, _atomics, _l1, _l2, _dram, _blocks, _random):
        yield from part()


def texts(kernels: list[Kernel]) -> list[str]:
    return ["".join(kernel.text(number)) for number, kernel in enumerate(kernels, start=1)]


def digest(kernels: list[Kernel]) -> str:
    return hashlib.sha256("".join(texts(kernels)).encode()).hexdigest()[:16]


def write(folder: Path, kernels: list[Kernel]) -> Path:
    """A folder that Accel-Sim reads."""
    folder.mkdir(parents=True, exist_ok=True)
    names = []
    for number, text in enumerate(texts(kernels), start=1):
        names.append(f"kernel-{number}.traceg")
        (folder / names[-1]).write_text(text)
    (folder / "kernelslist.g").write_text("".join(f"{name}\n" for name in names))
    return folder


if __name__ == "__main__":
    for name, kernels in traces():
        write(Path(sys.argv[1]) / name, kernels)
