"""Lines of Accel-Sim's traces, version by version: small texts, with what they mean worked out by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from accelsim_writer import block_text, head, one_warp, write_trace
from told import told

from manyscale.models.workload import Workload
from manyscale.models.workload.launch_trace import Access, LaunchTrace, Space, UnitClass
from manyscale.runner.readers import accelsim
from manyscale.runner.readers.accelsim import parser as accelsim_parser

SHARED, LOCAL = 0x7F00_0200_0000, 0x7F00_0000_0000  # windows of the heads that are written here
WHOLE = 0xFFFFFFFF


@pytest.fixture(autouse=True)
def _own_cache(private_cache: Path) -> None:
    """Nothing of what others stored is read."""


def launch(workload: Workload) -> LaunchTrace:
    assert workload.gpu is not None
    return workload.gpu.trace(1)


def read(path: Path) -> LaunchTrace:
    return launch(accelsim.read(path))


def requests(trace: LaunchTrace) -> list[tuple[int, int]]:
    """(byte address of the sector, written bytes)."""
    return [(32 * sector, mask) for sector, mask in zip(trace.sector.tolist(), trace.written.tolist(), strict=True)]


def whole(address: int, number: int) -> list[tuple[int, int]]:
    """So many sectors of which all bytes are written."""
    return [(address + 32 * k, WHOLE) for k in range(number)]


def registers(trace: LaunchTrace, side: str) -> list[list[int]]:
    """Of each instruction executed."""
    rows = getattr(trace.static, side)[trace.instruction].tolist()
    return [[register for register in row if register >= 0] for row in rows]


def test_a_launch_is_what_its_head_says(tmp_path: Path) -> None:
    lines = {
        "0,0,0": {0: ["0000 ffffffff 1 R1 MOV 0 0", "0010 0000ffff 0 EXIT 0 0"], 1: ["0000 0000000f 1 R1 MOV 0 0"]}
    }
    trace = read(write_trace(tmp_path / "k.traceg", lines, block="(4,3,4)", binary=75))
    assert (trace.kernel_name, trace.grid, trace.block) == ("k", (1, 1, 1), (4, 3, 4))
    assert (trace.shared_bytes, trace.registers, trace.binary_version) == (48, 17, 75)
    assert trace.block_warps.tolist() == [0, 2]
    assert trace.warp_instructions.tolist() == [0, 2, 3]
    assert trace.active.tolist() == [32, 16, 4]
    assert trace.static.pc[trace.instruction].tolist() == [0, 16, 0]
    assert trace.num_thread_instructions == 52
    assert trace.warps_per_block == 2
    units = trace.static.unit[trace.instruction].tolist()
    assert units == [UnitClass.int, UnitClass.exit, UnitClass.int]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ("1 0x1000 4", [0x1000, 0x1020, 0x1040, 0x1060]),
        ("1 0x1000 0", [0x1000]),
        ("1 0x107c -4", [0x1000, 0x1020, 0x1040, 0x1060]),  # backwards
        ("1 0x101c 4", [0x1000, 0x1020, 0x1040, 0x1060, 0x1080]),
        ("1 0x1000 64", [0x1000 + 64 * lane for lane in range(32)]),
        ("2 0x1000 " + " ".join(["0"] * 30 + ["-64"]), [0xFC0, 0x1000]),
        ("2 0x1000 " + " ".join(["32", "-32"] * 15 + ["128"]), [0x1000, 0x1020, 0x1080]),
        (
            "0 " + " ".join(f"0x{0x2000 - 64 * lane:016x}" for lane in range(32)),
            [0x2000 - 64 * k for k in range(31, -1, -1)],
        ),
    ],
)
def test_address_modes_give_ascending_sectors(tmp_path: Path, fields: str, expected: list[int]) -> None:
    trace = read(
        one_warp(tmp_path / "k.traceg", f"0000 ffffffff 1 R2 LDG.E 1 R4 4 {fields}", "0010 ffffffff 0 EXIT 0 0")
    )
    assert requests(trace) == [(address, 0) for address in expected]
    assert trace.accesses.tolist() == [len(expected), 0]
    assert trace.warp_accesses.tolist() == [0, len(expected)]


def test_deltas_are_one_fewer_than_active_threads(tmp_path: Path) -> None:
    """And of one thread there is none; in version 5 what follows is the immediate, not a delta."""
    lines = [
        "0000 00000011 1 R2 LDG.E 1 R4 4 2 0x1000 256 7",
        "0010 80000000 1 R2 LDG.E 1 R4 4 2 0x5000 9",
        "0020 00000000 1 R2 LDG.E 1 R4 4 2 0xffffdeadbeef0123 11",
        "0030 00000000 0 STG.E 2 R4 R2 4 1 0x7fffdeadbeef 0 0",
    ]
    trace = read(one_warp(tmp_path / "k.traceg", *lines, version=5))
    assert requests(trace) == [(0x1000, 0), (0x1100, 0), (0x5000, 0)]
    assert trace.accesses.tolist() == [2, 1, 0, 0]
    assert trace.active.tolist() == [2, 1, 0, 0]
    assert trace.static.immediate[trace.instruction].tolist() == [7, 9, 11, 0]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("STG.E 2 R4 R2 4 1 0x1008 4", [(0x1000, 0xFFFFFF00), *whole(0x1020, 3), (0x1080, 0xFF)]),
        ("STG.E.U8 2 R4 R2 1 1 0x1000 1", whole(0x1000, 1)),
        ("STG.E.U16 2 R4 R2 2 1 0x1002 4", [(0x1000 + 32 * k, 0xCCCCCCCC) for k in range(4)]),
        ("STG.E.64 2 R4 R2 8 1 0x1000 0", [(0x1000, 0xFF)]),
        ("STG.E 2 R4 R2 4 1 0x107c -4", whole(0x1000, 4)),
    ],
)
def test_stores_know_the_bytes_they_write(tmp_path: Path, line: str, expected: list[tuple[int, int]]) -> None:
    assert requests(read(one_warp(tmp_path / "k.traceg", f"0000 ffffffff 0 {line}"))) == expected


def test_what_straddles_sectors_asks_for_both(tmp_path: Path) -> None:
    lines = ["0000 00000001 0 STG.E.128 2 R4 R8 16 2 0x1018", "0010 00000003 1 R8 LDG.E.64 1 R4 8 2 0x1fc 0"]
    trace = read(one_warp(tmp_path / "k.traceg", *lines))
    assert requests(trace) == [(0x1000, 0xFF000000), (0x1020, 0xFF), (0x1E0, 0), (0x200, 0)]


def test_atomics_that_meet_start_another_request(tmp_path: Path) -> None:
    """Threads 0 and 2 share an address, so do 1 and 3, in one sector; thread 4 is in another before it."""
    lines = [
        "0000 0000001f 1 R2 ATOMG.E.ADD.STRONG.GPU 2 R4 R6 4 2 0x1000 4 -4 4 -36",
        "0010 ffffffff 0 RED.E.ADD.STRONG.GPU 2 R4 R6 4 1 0x2000 0",
    ]
    trace = read(one_warp(tmp_path / "k.traceg", *lines))
    assert requests(trace) == [(0xFE0, WHOLE), (0x1000, WHOLE), (0x1000, WHOLE)] + [(0x2000, WHOLE)] * 32
    assert trace.static.access[trace.instruction].tolist() == [Access.atomic, Access.reduction]
    assert trace.static.bypasses_l1[trace.instruction].all()


def listed(address: Callable[[int], int]) -> str:
    """Addresses of the 32 threads, written out one by one."""
    return " ".join(["0", *(hex(address(thread)) for thread in range(32))])


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("LDS 1 R4 4 1 0x0 4", 1),  # neighbours
        ("LDS 1 R4 4 1 0x40 0", 1),  # one word for all
        ("LDS 1 R4 4 1 0x0 8", 2),
        ("LDS 1 R4 4 1 0x0 128", 32),  # one bank
        ("LDS 1 R4 4 1 0x0 132", 1),  # padded
        ("LDS.64 1 R4 8 1 0x0 8", 2),  # 64 words of 32 banks
        ("LDS.128 1 R4 16 1 0x0 16", 4),
        ("LDS.128 1 R4 16 1 0x0 0", 2),  # one word a bank in each half
        ("LDS.64 1 R4 8 1 0x0 0", 1),
        ("STS.128 2 R4 R8 16 1 0x0 0", 4),  # stores of quarters stay apart
        (f"LDS.64 1 R4 8 {listed(lambda n: 8 * (n // 2))}", 1),  # neighbours load the same
        (f"LDS.64 1 R4 8 {listed(lambda n: 8 * (n & 1) + 16 * (n // 4))}", 1),  # next but one
        (f"LDS.64 1 R4 8 {listed(lambda n: 8 * ((n & 3) % 3))}", 2),  # neither
        (f"LDS.128 1 R4 16 {listed(lambda n: n % 8 * 128 + n // 8 * 16)}", 32),  # eight words of a bank in each quarter
        (f"LDS.64 1 R4 8 {listed(lambda n: n % 16 * 128 + n // 16 * 8)}", 32),
        ("LDS.U8 1 R4 1 1 0x0 1", 1),  # four threads a word
        ("LDSM.16.M88.4 1 R4 2 1 0x0 16", 4),  # 32 rows of 16 bytes
        ("LDSM.16.M88 1 R4 2 1 0x0 16", 1),  # only eight rows
        ("LDSM.16.M88 1 R4 2 1 0x0 128", 8),
    ],
)
def test_shared_memory_takes_what_its_busiest_bank_gives(tmp_path: Path, line: str, words: int) -> None:
    trace = read(one_warp(tmp_path / "k.traceg", f"0000 ffffffff 1 R2 {line}", "0010 00000000 1 R2 LDS 1 R4 4 1 0x0 4"))
    assert trace.accesses.tolist() == [words, 0]
    assert trace.static.space[trace.instruction].tolist() == [Space.shared, Space.shared]
    assert not len(trace.sector)


def test_generic_addresses_are_of_the_window_they_lie_in(tmp_path: Path) -> None:
    """One load that accessed all three, and one that no thread executed: rows for each space, in the order met."""
    lines = [
        f"0000 ffffffff 1 R2 LD.E 1 R4 4 1 {SHARED:#x} 128",
        f"0000 ffffffff 1 R2 LD.E 1 R4 4 1 {LOCAL + 0xFFFF00:#x} 0",
        "0000 ffffffff 1 R2 LD.E 1 R4 4 1 0x1000 4",
        f"0000 ffffffff 1 R2 LD.E 1 R4 4 1 {SHARED + 0x1000000:#x} 4",  # behind the window
        f"0000 ffffffff 1 R2 LD.E 1 R4 4 1 {SHARED + 0xFFFF80:#x} 4",
        "0010 00000000 1 R2 LD.E 1 R4 4 1 0x1000 4",
    ]
    trace = read(one_warp(tmp_path / "k.traceg", *lines))
    spaces = [Space.shared, Space.local, Space.global_, Space.global_, Space.shared, Space.global_]
    assert trace.static.space[trace.instruction].tolist() == spaces
    assert trace.accesses.tolist() == [32, 4, 4, 4, 1, 0]
    assert len(trace.static.pc) == 4


def test_without_windows_small_addresses_are_shared(tmp_path: Path) -> None:
    lines = ["0000 ffffffff 1 R2 LD.E 1 R4 4 1 0x100 4", "0010 ffffffff 1 R2 LD.E 1 R4 4 1 0x7fc841500000 4"]
    trace = read(one_warp(tmp_path / "k.traceg", *lines, shared_base=0, local_base=0))
    assert trace.static.space[trace.instruction].tolist() == [Space.shared, Space.global_]


def test_local_words_of_a_warp_lie_beside_each_other(tmp_path: Path) -> None:
    """Four threads of warp 1 store two words: 16 bytes of each word's line; then each loads another word of its own."""
    warps = {
        0: ["0000 ffffffff 0 STL 2 R1 R2 4 1 0xfffff0 0"],
        1: [
            "0000 000003c0 0 STL.64 2 R1 R2 8 1 0xfffff0 0",
            "0010 00000003 1 R2 LDL 1 R1 4 2 0xfffff0 4",
            "0020 00000002 0 STL.U8 2 R1 R2 1 2 0xfffff1",
        ],
    }
    trace = read(write_trace(tmp_path / "k.traceg", {"0,0,0": warps}, block="(64,1,1)"))
    assert trace.accesses.tolist() == [4, 4, 2, 1]
    line = [32 * sector for sector in trace.sector.tolist()]
    first, second = line[4] // 128 * 128, line[6] // 128 * 128  # warp 1's lines of the two words
    assert line[:4] == [first - 128 + 32 * k for k in range(4)]  # warp 0's stands before it
    assert line[4:8] == [first, first + 32, second, second + 32]
    assert trace.written[4:8].tolist() == [0xFF000000, 0xFF, 0xFF000000, 0xFF]  # threads 6 to 9
    assert line[8:10] == [first, second]  # thread 0's word, thread 1's next word
    assert (line[10], int(trace.written[10])) == (first, 0x20)  # the second byte of thread 1's word


def test_copies_to_shared_memory_are_global_and_do_not_wait(tmp_path: Path) -> None:
    lines = [
        "0000 ffffffff 0 LDGSTS.E.BYPASS.128 2 R4 R2 16 1 0x7fc841500000 16 0",
        "0010 ffffffff 0 LDGDEPBAR 0 0 0",
        "0020 ffffffff 0 DEPBAR.LE 0 0 1",
        "0030 ffffffff 0 BAR.SYNC.DEFER_BLOCKING 0 0 0",
        "0040 ffffffff 0 MEMBAR.SC.GPU 0 0 0",
    ]
    trace = read(one_warp(tmp_path / "k.traceg", *lines, version=5))
    static = trace.static
    assert static.access[trace.instruction].tolist() == [Access.copy, 0, 0, 0, 0]
    assert trace.accesses.tolist() == [16, 0, 0, 0, 0]
    units = [
        UnitClass.load_store,
        UnitClass.copy_group,
        UnitClass.copy_wait,
        UnitClass.barrier,
        UnitClass.memory_barrier,
    ]
    assert static.unit[trace.instruction].tolist() == units
    assert static.immediate[trace.instruction].tolist() == [0, 0, 1, 0, 0]
    assert static.bypasses_l1[trace.instruction].tolist() == [True, False, False, False, False]


def test_version_4_with_lines_of_the_source(tmp_path: Path) -> None:
    """A decimal field before the PC; the same instruction, whatever line it names."""
    lines = [
        "17 0000 ffffffff 1 R2 LDG.E 1 R4 4 1 0x1000 4",
        "105 0010 00000001 0 EXIT 0 0",
        "9 0000 00000000 1 R2 LDG.E 1 R4 4 1 0x0 0",
    ]
    trace = read(one_warp(tmp_path / "k.traceg", *lines, version=4, more="-enable lineinfo = 1\n"))
    assert trace.static.pc[trace.instruction].tolist() == [0, 16, 0]
    assert trace.accesses.tolist() == [4, 0, 0]
    assert len(trace.static.pc) == 2


def test_version_6_with_values_and_uniform_registers(tmp_path: Path) -> None:
    lines = [
        "0000 ffffffff 1 UR4 UMOV 1 UR63 0 -1 0 NoVal",
        "0010 ffffffff 1 R2 LDG.E 2 R4 UR4 4 1 0x1000 4 16 0 Val 0xdead 0xbeef 1",
        "0010 ffffffff 1 R2 LDG.E 2 R4 UR4 4 1 0x1000 4 16 0 Val 0x0 0x1 2",
        "0020 ffffffff 0 DEPBAR.LE 0 0 3 0 NoVal",
        "0030 ffffffff 1 R5 MOV 1 R255 0 -1 0 NoVal",
    ]
    trace = read(one_warp(tmp_path / "k.traceg", *lines, version=6))
    assert registers(trace, "destinations") == [[260], [2], [2], [], [5]]
    assert registers(trace, "sources") == [[], [4, 260, 5], [4, 260, 5], [], []]
    assert trace.static.immediate[trace.instruction].tolist() == [-1, 16, 16, 3, -1]
    assert trace.accesses.tolist() == [0, 4, 4, 0, 0]
    assert len(trace.static.pc) == 4


@pytest.mark.parametrize(
    ("opcode", "destinations", "sources"),
    [
        ("LDG.E.128.CONSTANT", [2, 3, 4, 5], [10, 11]),
        ("LDS.U.64", [2, 3], [10]),
        ("IMAD.WIDE", [2, 3], [10]),
        ("DADD", [2, 3], [10, 11]),
        ("FADD", [2], [10]),
        ("F2F.F32.F64", [2], [10, 11]),
        ("I2F.F64", [2, 3], [10]),
        ("CS2R", [2, 3], [10]),
    ],
)
def test_all_registers_of_wide_operands_are_listed(
    tmp_path: Path, opcode: str, destinations: list[int], sources: list[int]
) -> None:
    is_memory = opcode.startswith("LD")
    line = f"0000 ffffffff 1 R2 {opcode} 1 R10 {'16 1 0x1000 16' if is_memory else '0'}"
    trace = read(one_warp(tmp_path / "k.traceg", line))
    assert registers(trace, "destinations") == [destinations]
    assert registers(trace, "sources") == [sources]


def test_zero_is_no_register(tmp_path: Path) -> None:
    trace = read(
        one_warp(
            tmp_path / "k.traceg",
            "0000 ffffffff 1 R255 IADD3 3 R255 R7 R255 0",
            "0010 00000001 0 STG.E.64 2 R4 R255 8 2 0x1000",
        )
    )
    assert registers(trace, "destinations") == [[], []]
    assert registers(trace, "sources") == [[7], [4, 5]]


def test_one_text_at_two_places_and_two_texts_at_one(tmp_path: Path) -> None:
    """Instructions are told apart by PC and by text (a kernel that was patched while it ran), and by immediate."""
    lines = [
        "0000 ffffffff 1 R2 MOV 0 0 1",
        "0010 ffffffff 1 R2 MOV 0 0 1",
        "0000 ffffffff 1 R3 MOV 0 0 1",
        "0000 ffffffff 1 R3 MOV 0 0 2",
    ]
    trace = read(one_warp(tmp_path / "k.traceg", *lines, *lines, version=5))
    assert trace.instruction.tolist() == [0, 1, 2, 3] * 2
    assert registers(trace, "destinations") == [[2], [2], [3], [3]] * 2
    assert trace.static.immediate.tolist() == [1, 1, 1, 2]


def test_empty_warps_unknown_keys_and_blank_lines(tmp_path: Path) -> None:
    text = head(grid="(2,1,1)", block="(64,1,1)", more="-cluster dim = (1,1,1)\n")
    text += "#BEGIN_TB\r\nthread block = 0,0,0\r\ncluster id = 0\r\n\r\nwarp = 0\r\ninsts = 0\r\n"
    text += "warp = 1\r\ninsts = 1\r\n\r\n0000 ffffffff 0 EXIT 0 0 \r\n#END_TB\r\n"
    text += "#BEGIN_TB\nthread block = 1,0,0\ncluster id = 0\nwarp = 0\ninsts = 0\n#END_TB"
    (tmp_path / "k.traceg").write_bytes(text.encode())
    workload = accelsim.read(tmp_path / "k.traceg")
    trace = launch(workload)
    assert trace.block_warps.tolist() == [0, 2, 3]
    assert trace.warp_instructions.tolist() == [0, 0, 1, 1]
    assert told(workload.notes) == ("lines of keys that are not known, left out: cluster id 2, cluster dim 1",)


RAW = [  # two blocks of two warps, interleaved
    "1 0 0 1 0000 ffffffff 1 R2 LDG.E 1 R4 4 1 0x3000 4",
    "0 0 0 0 0000 ffffffff 1 R2 LDG.E 1 R4 4 1 0x1000 0",
    "1 0 0 0 0000 00000001 0 STS 2 R1 R2 4 2 0x0",
    "0 0 0 0 0010 ffffffff 0 EXIT 0 0",
    "1 0 0 1 0010 ffffffff 0 EXIT 0 0",
    "0 0 0 1 0000 0000ffff 1 R2 LDG.E 1 R4 4 1 0x2000 4",
]


def test_raw_traces_are_grouped_by_warp(tmp_path: Path) -> None:
    """The same as the post-processing makes of it."""
    shape = {"grid": "(2,1,1)", "block": "(64,1,1)", "version": 2}
    (tmp_path / "k.trace").write_text(head(**shape) + "".join(f"{line} \n" for line in RAW))  # type: ignore[arg-type]
    warps = {
        (block, warp): [line for line in RAW if line.startswith(f"{block} 0 0 {warp}")]
        for block in "01"
        for warp in "01"
    }
    blocks = {f"{block},0,0": {int(warp): warps[block, warp] for warp in "01"} for block in "01"}
    raw, grouped = (
        accelsim.read(tmp_path / "k.trace"),
        accelsim.read(write_trace(tmp_path / "k.traceg", blocks, **shape)),
    )
    trace = launch(raw)
    assert trace.block_warps.tolist() == [0, 2, 4]
    assert trace.warp_instructions.tolist() == [0, 2, 3, 4, 6]
    assert trace.warp_accesses.tolist() == [0, 1, 3, 3, 7]
    assert [address for address, _ in requests(trace)] == [0x1000, 0x2000, 0x2020, 0x3000, 0x3020, 0x3040, 0x3060]
    assert trace.accesses.tolist() == [1, 0, 2, 1, 4, 0]
    assert raw.column("launches", "warp_instructions") == grouped.column("launches", "warp_instructions")
    expected = launch(grouped)
    for name in ("warp_instructions", "warp_accesses", "active", "accesses", "sector", "written"):
        assert getattr(trace, name).tolist() == getattr(expected, name).tolist()


def test_the_first_line_of_a_raw_copy_is_its_shared_address(tmp_path: Path) -> None:
    """The tracer writes a line for each operand in memory; the second one of a warp is that in global memory."""
    lines = [
        "0 0 0 0 0000 ffffffff 0 LDGSTS.E.128 2 R4 R2 16 1 0x0 16 0",
        "0 0 0 1 0000 00000000 0 LDGSTS.E.128 2 R4 R2 16 1 0x0 16 0",
        "0 0 0 0 0000 ffffffff 0 LDGSTS.E.128 2 R4 R2 16 1 0x7fc841500000 0 0",
        "0 0 0 1 0000 00000000 0 LDGSTS.E.128 2 R4 R2 16 1 0x7fc841500000 0 0",
    ]
    (tmp_path / "k.trace").write_text(head(block="(64,1,1)", version=5) + "".join(f"{line}\n" for line in lines))
    trace = read(tmp_path / "k.trace")
    assert trace.warp_instructions.tolist() == [0, 1, 2]
    assert trace.active.tolist() == [32, 0]
    assert requests(trace) == [(0x7FC841500000, 0)]


def test_pieces_of_the_text_may_end_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = {
        f"{block},0,0": {
            warp: [f"{16 * k:04x} ffffffff 1 R2 LDG.E 1 R4 4 1 0x{4096 * block + 128 * k:x} 4" for k in range(30)]
            for warp in range(2)
        }
        for block in range(3)
    }
    path = write_trace(tmp_path / "k.traceg", blocks, grid="(3,1,1)", block="(64,1,1)")
    whole = accelsim.read(path)
    header, body = path.read_text().split("#BEGIN_TB", 1)
    for size in (100, 137, 500, 1021):
        (tmp_path / f"k{size}.traceg").write_text(f"{header}# pieces of {size} bytes\n#BEGIN_TB{body}")
        monkeypatch.setattr(accelsim_parser, "TEXT_BYTES", size)
        monkeypatch.setattr("manyscale.runner.readers.accelsim.launch.MAX_HEADER_BYTES", len(header))
        cut = accelsim.read(tmp_path / f"k{size}.traceg")
        digests = [workload.tables["launches"].column("digest").to_pylist() for workload in (cut, whole)]
        assert digests[0] == digests[1]


def test_blocks_out_of_order_are_sorted(tmp_path: Path) -> None:
    lines = {warp: [f"0000 {mask} 0 EXIT 0 0"] for warp, mask in ((1, "000000ff"), (0, "ffffffff"))}
    later = {0: ["0000 0000000f 0 EXIT 0 0", "0000 00000001 0 EXIT 0 0"]}
    text = head(grid="(1,2,1)", block="(64,1,1)") + block_text("0,1,0", later) + block_text("0,0,0", lines)
    (tmp_path / "k.traceg").write_text(text)
    trace = read(tmp_path / "k.traceg")
    assert trace.block_warps.tolist() == [0, 2, 3]
    assert trace.active.tolist() == [32, 8, 4, 1]
