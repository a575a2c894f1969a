"""Counters of kernel launches, as nvprof and Nsight Compute write them."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import numpy as np
import pytest
from told import told

from manyscale.models.workload import Workload
from manyscale.runner.errors import UserError
from manyscale.runner.readers import launch_counters
from manyscale.runner.readers.launch_counters import can_read
from manyscale.runner.readers.launch_counters.reader import LaunchCounters, read_counters
from manyscale.runner.readers.options import ReadOptions
from manyscale.runner.registry import lookup

DATA = Path(os.environ.get("MANYSCALE_DATA", "/nowhere"))
VECTOR_ADD = DATA / "formats" / "nsight" / "microgpusim"
NVPROF = """\
==11== NVPROF is profiling process 11, command: ./a.out
==11== Profiling result:
"Device","Grid X","Grid Y","Grid Z","Block X","Block Y","Block Z","Registers Per Thread","Static SMem","Dynamic SMem",\
"Duration","Name","inst_executed","thread_inst_executed","gld_transactions","gst_transactions","elapsed_cycles_sm"
,,,,,,,,KB,B,us,,,,,,
"K40 (0)",,,,,,,,,,3.5,"[CUDA memcpy HtoD]",,,,,
"K40 (0)",64,2,1,16,16,1,32,1.5,512,12.25,"void add<int>(int, int*) [87]",1000,31000,400,100,75000
==11== Warning: a counter overflowed
"K40 (0)",32,1,1,128,1,1,20,0,0,6,"scale [90]",200,6400,50,50,30000
"""
RAW = """\
==PROF== Connected to process 5 (/a.out)
"ID","Process ID","Kernel Name","Context","Stream","Block Size","Grid Size","Device","CC",\
"gpu__time_duration.sum","launch__registers_per_thread","launch__shared_mem_per_block_static",\
"l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum","l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",\
"sm__cycles_elapsed.max","smsp__inst_executed.sum","smsp__thread_inst_executed.sum"
"","","","","","","","","","usecond","register/thread","Kbyte/block","sector","sector","cycle","inst","inst"
"0","5","add(int, int *)","1","7","(256, 1, 1)","(1,024, 2, 1)","0","8.0","12.5","32","1.02","4,096","1,024","15,000",\
"1,234,567","39,000,000"
"1","5","scale","1","7","(128, 1, 1)","(32, 1, 1)","0","8.0","4","20","0","64","64","5,100","1,000","32,000"
==PROF== Disconnected from process 5
"""
LONG_HEAD = (
    '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device",'
    '"CC","Section Name","Metric Name","Metric Unit","Metric Value"'
)


def long_page(*launches: dict[str, tuple[str, str]], separator: str = ",") -> str:
    """Metrics (unit, value) of launches with ids from 0."""
    lines = [LONG_HEAD.replace(",", separator) if separator != "," else LONG_HEAD]
    for number, metrics in enumerate(launches):
        for name, (unit, value) in metrics.items():
            fields = [number, 5, "a.out", "127.0.0.1", "add", 1, 7, "(256, 1, 1)", "(8, 1, 1)", 0, "8.0", "Any"]
            lines.append(separator.join(f'"{field}"' for field in (*fields, name, unit, value)))
    return "\n".join(lines) + "\n"


LONG = {
    "Elapsed Cycles": ("cycle", "15,000"),
    "Duration": ("us", "12.50"),
    "Registers Per Thread": ("register/thread", "32"),
    "smsp__inst_executed.sum": ("inst", "1,234,567"),
    "smsp__thread_inst_executed.sum": ("inst", "39,000,000"),
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum": ("sector", "4,096"),
}


def counters(folder: Path, text: str | bytes, name: str = "run.csv") -> LaunchCounters:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    assert can_read(path)
    return read_counters(path)


def error(folder: Path, text: str | bytes) -> str:
    with pytest.raises(UserError) as raised:
        counters(folder, text)
    message = str(raised.value)
    assert "\n" not in message
    return message.replace(str(folder), "")


def test_nvprof(tmp_path: Path) -> None:
    found = counters(tmp_path, NVPROF)
    assert found.kernel_name == ("void add<int>(int, int*)", "scale")
    assert found.grid.tolist() == [[64, 2, 1], [32, 1, 1]]
    assert found.block.tolist() == [[16, 16, 1], [128, 1, 1]]
    assert found.registers.tolist() == [32, 20]
    assert found.shared_bytes.tolist() == [1536 + 512, 0]
    assert found.warp_instructions.tolist() == [1000, 200]
    assert found.thread_instructions.tolist() == [31000, 6400]
    assert found.memory_requests.tolist() == [500, 100]
    assert found.cycles is not None
    assert found.cycles.tolist() == [75000, 30000]
    assert found.cycles_are_summed
    assert found.duration_s == pytest.approx([12.25e-6, 6e-6])
    assert told(found.notes) == ("elapsed_cycles_sm is the sum over all SMs",)


def test_table_of_r(tmp_path: Path) -> None:
    """Dotted names, no units, compressed; thread instructions by type."""
    text = (
        '"","input.size.1","duration","grid.x","grid.y","block.x","static.smem","name","kernel","elapsed_cycles_sm",'
        '"inst_executed","global_load_transactions","global_store_transactions","fp_instructions.single.",'
        '"integer_instructions","control.flow_instructions","load.store_instructions","misc_instructions"\n'
        '"3",64,8e-06,6,7,16,3,"calculate_temp",6,167684,66168,4368,832,241040,904288,110592,114372,343652\n'
    )
    found = counters(tmp_path, gzip.compress(text.encode()), "run.csv.gz")
    assert found.kernel_name == ("calculate_temp",)
    assert found.grid.tolist() == [[6, 7, 1]]
    assert found.thread_instructions.tolist() == [241040 + 904288 + 110592 + 114372 + 343652]
    assert found.memory_requests.tolist() == [5200]
    assert found.duration_s == pytest.approx([8e-6])
    assert found.shared_bytes.tolist() == [0]
    assert len(found.notes) == 3


def test_nsight_raw_page(tmp_path: Path) -> None:
    found = counters(tmp_path, RAW)
    assert found.kernel_name == ("add(int, int *)", "scale")
    assert found.warp_instructions.tolist() == [1234567, 1000]
    assert found.thread_instructions.tolist() == [39e6, 32000]
    assert found.memory_requests.tolist() == [5120, 128]
    assert found.cycles is not None
    assert found.cycles.tolist() == [15000, 5100]
    assert not found.cycles_are_summed
    assert found.duration_s == pytest.approx([12.5e-6, 4e-6])
    assert found.block.tolist() == [[256, 1, 1], [128, 1, 1]]
    assert found.shared_bytes.tolist() == [1020, 0]
    assert found.notes == ()


def test_sizes_may_have_separators_of_their_own(tmp_path: Path) -> None:
    assert counters(tmp_path, RAW).grid.tolist() == [[1024, 2, 1], [32, 1, 1]]
    assert counters(tmp_path, RAW.replace("(1,024, 2, 1)", "(1024,2,1)")).grid.tolist() == [[1024, 2, 1], [32, 1, 1]]
    for wrong in ("(1,024, 2, 1, 1)", "(1, two, 1)", "()"):
        assert "no size such as (16, 1, 1)" in error(tmp_path, RAW.replace("(1,024, 2, 1)", wrong))


def test_nsight_long_page(tmp_path: Path) -> None:
    second = LONG | {"smsp__inst_executed.sum": ("inst", "1,000"), "Elapsed Cycles": ("cycle", "5,100")}
    found = counters(tmp_path, "==PROF== Profiling \n" + long_page(LONG, second))
    assert found.num_launches == 2
    assert found.warp_instructions.tolist() == [1234567, 1000]
    assert found.memory_requests.tolist() == [4096, 4096]
    assert found.cycles is not None
    assert found.cycles.tolist() == [15000, 5100]
    assert found.duration_s == pytest.approx([12.5e-6] * 2)
    assert found.registers.tolist() == [32, 32]
    assert found.grid.tolist() == [[8, 1, 1]] * 2


@pytest.mark.parametrize("separator", [",", ";"])
def test_swapped_marks(tmp_path: Path, separator: str) -> None:
    """A locale with decimal commas says the same."""
    swapped = {name: (unit, value.translate(str.maketrans(",.", ".,"))) for name, (unit, value) in LONG.items()}
    found = counters(tmp_path, long_page(swapped, separator=separator))
    assert found.warp_instructions.tolist() == [1234567]
    assert found.duration_s == pytest.approx([12.5e-6])
    assert found.cycles is not None
    assert found.cycles.tolist() == [15000]


def test_counts_are_whole(tmp_path: Path) -> None:
    """Where each number could be either, 15.000 cycles and 4.096 sectors are no fractions, and 1,500 us is one and a
    half."""
    small = LONG | {
        "Duration": ("us", "1,500"),
        "Elapsed Cycles": ("cycle", "15.100"),
        "smsp__inst_executed.sum": ("inst", "234.567"),
        "smsp__thread_inst_executed.sum": ("inst", "639.000"),
        "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum": ("sector", "4.096"),
    }
    found = counters(tmp_path, long_page(small))
    assert found.warp_instructions.tolist() == [234567]
    assert found.duration_s == pytest.approx([1.5e-6])
    plain = counters(tmp_path, long_page(LONG | {"smsp__inst_executed.sum": ("inst", "1,000")}))
    assert plain.warp_instructions.tolist() == [1000]


def test_spaces_and_apostrophes_separate_thousands(tmp_path: Path) -> None:
    text = long_page(LONG | {"Elapsed Cycles": ("cycle", "15\u202f000"), "smsp__inst_executed.sum": ("inst", "1'000")})
    found = counters(tmp_path, text)
    assert (found.warp_instructions.tolist(), found.cycles.tolist()) == ([1000], [15000])  # type: ignore[union-attr]


def test_scaled_units(tmp_path: Path) -> None:
    scaled = LONG | {"smsp__inst_executed.sum": ("Minst", "1.25"), "Duration": ("ms", "3")}
    found = counters(tmp_path, long_page(scaled))
    assert found.warp_instructions.tolist() == [1.25e6]
    assert found.duration_s == pytest.approx([3e-3])


def test_a_unit_is_of_one_value(tmp_path: Path) -> None:
    """Nsight Compute scales each value by itself: 5 us, then 2 ms (cases of its --print-units auto)."""
    second = LONG | {
        "Duration": ("ms", "2.00"),
        "smsp__inst_executed.sum": ("Minst", "1.28"),
        "smsp__thread_inst_executed.sum": ("Ginst", "0.04096"),
        "dram__cycles_elapsed.avg.per_second": ("GHz", "1.21"),
        "launch__shared_mem_per_block_static": ("Kbyte/block", "1.02"),
    }
    first = LONG | {
        "Duration": ("us", "5.00"),
        "dram__cycles_elapsed.avg.per_second": ("MHz", "990.12"),
        "launch__shared_mem_per_block_static": ("byte/block", "16"),
    }
    found = counters(tmp_path, long_page(first, second))
    assert found.num_launches == 2
    assert found.duration_s == pytest.approx([5e-6, 2e-3])
    assert found.warp_instructions.tolist() == [1_234_567, 1.28e6]
    assert found.thread_instructions.tolist() == [39e6, 40.96e6]
    assert found.shared_bytes.tolist() == [16, 1020]
    swapped = long_page(first, second).replace("5.00", "5,00").replace("2.00", "2,00")
    assert "another decimal mark" in error(tmp_path, swapped)


@pytest.mark.parametrize(
    ("unit", "seconds"),
    [("s", 2), ("second", 2), ("sec", 2), ("ms", 2e-3), ("msecond", 2e-3), ("us", 2e-6), ("usecond", 2e-6),
     ("\u00b5s", 2e-6), ("ns", 2e-9), ("nsecond", 2e-9), ("nseconds", 2e-9), ("minute", 120)],
)  # fmt: skip
def test_units_of_time(tmp_path: Path, unit: str, seconds: float) -> None:
    found = counters(tmp_path, long_page(LONG, LONG | {"Duration": (unit, "2")}))
    assert found.duration_s == pytest.approx([12.5e-6, seconds])


@pytest.mark.parametrize(
    ("unit", "factor"),
    [("byte", 1), ("Kbyte", 1e3), ("Mbyte", 1e6), ("B", 1), ("KB", 1024), ("KiB", 1024), ("byte/block", 1),
     ("Kbyte/block", 1e3)],
)  # fmt: skip
def test_units_of_bytes(tmp_path: Path, unit: str, factor: float) -> None:
    """nvprof's KB are 1024 B (as its manual has them), Nsight Compute's Kbyte 1000."""
    found = counters(tmp_path, long_page(LONG | {"launch__shared_mem_per_block_static": (unit, "2")}))
    assert found.shared_bytes.tolist() == [2 * factor]


def test_units_in_the_cells(tmp_path: Path) -> None:
    text = NVPROF.replace("KB,B,us", ",,").replace("12.25", "12.25us").replace(",6,", ",0.006ms,")
    assert counters(tmp_path, text).duration_s == pytest.approx([12.25e-6, 6e-6])


def test_what_the_program_printed_before_the_table(tmp_path: Path) -> None:
    found = counters(tmp_path, "Hello, world: 1, 2, 3\n\n==PROF== Profiling\n" + long_page(LONG))
    assert found.warp_instructions.tolist() == [1_234_567]


def test_a_metric_that_some_launches_lack(tmp_path: Path) -> None:
    """The next of the same meaning that all have is taken."""
    both = LONG | {"gpc__cycles_elapsed.max": ("cycle", "14,000")}
    found = counters(tmp_path, long_page(both, LONG))
    assert found.cycles is not None
    assert found.cycles.tolist() == [15_000, 15_000]


def test_stand_ins(tmp_path: Path) -> None:
    """Threads by instruction; requests of warps instead of sectors."""
    metrics = {
        "smsp__inst_executed.sum": ("inst", "100"),
        "smsp__thread_inst_executed_per_inst_executed.ratio": ("", "30.5"),
        "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum": ("", "8"),
        "l1tex__t_requests_pipe_lsu_mem_local_op_st.sum": ("", "2"),
    }
    found = counters(tmp_path, long_page(metrics))
    assert found.thread_instructions.tolist() == [3050]
    assert found.memory_requests.tolist() == [10]
    assert (found.cycles, found.duration_s) == (None, None)
    assert len(found.notes) == 2


def test_workload(tmp_path: Path) -> None:
    path = tmp_path / "run.csv"
    path.write_text(NVPROF)
    workload: Workload = lookup("reader", "launch-counters").read(path)
    assert workload.column("launches", "launch_id").tolist() == [1, 2]
    assert workload.column("launches", "blocks").tolist() == [128, 32]
    assert workload.column("launches", "warps").tolist() == [128 * 8, 32 * 4]
    assert workload.column("launches", "thread_instructions").tolist() == [31000, 6400]
    assert np.all(np.isnan(workload.column("launches", "block_size_cov")))
    assert workload.source_format == "launch-counters"
    assert told(workload.notes) == ("elapsed_cycles_sm is the sum over all SMs",)
    chosen = launch_counters.read(path, ReadOptions(launches=(2,)))
    assert chosen.column("launches", "launch_id").tolist() == [2]
    assert chosen.tables["launches"].column("kernel_name").to_pylist() == ["scale"]
    with pytest.raises(UserError, match="has 2 launches, none of number 5"):
        launch_counters.read(path, ReadOptions(launches=(2, 5)))


def test_alike_launches_have_one_digest(tmp_path: Path) -> None:
    path = tmp_path / "run.csv"
    path.write_text(NVPROF + NVPROF.splitlines()[-1] + "\n")
    digests = launch_counters.read(path).tables["launches"].column("digest").to_pylist()
    assert digests[1] == digests[2] != digests[0]


def test_what_is_no_table_of_launches(tmp_path: Path) -> None:
    for name, text in (("a.csv", "a,b\n1,2\n"), ("b.csv", ""), ("c.csv", "==1== NVPROF\n"), ("d.bin", "\0\1")):
        (tmp_path / name).write_text(text)
        assert not can_read(tmp_path / name)
    assert not can_read(tmp_path)
    assert not can_read(tmp_path / "none.csv")


def test_errors_name_the_line_and_what_to_do(tmp_path: Path) -> None:
    cut = NVPROF[: NVPROF.rindex(",50,50")]
    assert error(tmp_path, cut).startswith("/run.csv:8: has 14 fields, the header has 17")
    no_number = NVPROF.replace(",200,6400,", ",<OVERFLOW>,6400,")
    assert error(tmp_path, no_number).startswith("/run.csv:8: inst_executed is '<OVERFLOW>'")
    negative = NVPROF.replace(",200,6400,", ",-200,6400,")
    assert error(tmp_path, negative).startswith("/run.csv:8: inst_executed is negative")
    assert "collect inst_executed" in error(tmp_path, RAW.replace("smsp__inst_executed.sum", "smsp__other.sum"))
    assert "collect thread_inst_executed" in error(tmp_path, NVPROF.replace('"thread_inst_executed"', '"other"'))
    assert "collect gld_transactions" in error(tmp_path, NVPROF.replace("_transactions", "_throughput"))
    assert "no launches" in error(tmp_path, "\n".join(NVPROF.splitlines()[:4]))
    assert "copies but no kernels" in error(tmp_path, "\n".join(NVPROF.splitlines()[:5]))
    mixed = long_page(LONG | {"Elapsed Cycles": ("cycle", "1.234.567"), "Duration": ("us", "12.5")})
    assert "another decimal mark than" in error(tmp_path, mixed)
    units = long_page(LONG, LONG | {"Duration": ("cycle", "1")})
    assert "run.csv:8: duration is in 'cycle', which is no unit of time" in error(tmp_path, units)
    units = long_page(LONG, LONG | {"smsp__inst_executed.sum": ("us", "1")})
    assert "run.csv:8: smsp_inst_executed_sum is in us, in inst before; profile with" in error(tmp_path, units)
    units = long_page(LONG, LONG | {"smsp__inst_executed.sum": ("dozen", "1")})
    assert "run.csv:8: smsp_inst_executed_sum is in dozen, in inst before" in error(tmp_path, units)
    for nothing in ("", "n/a", "nan", "inf"):
        empty = long_page(LONG, LONG | {"smsp__inst_executed.sum": ("inst", nothing)})
        assert f"run.csv:8: smsp_inst_executed_sum is {nothing!r}, which is no number" in error(tmp_path, empty)


def test_damaged_archive(tmp_path: Path) -> None:
    whole = gzip.compress(NVPROF.encode() * 50)
    path = tmp_path / "run.csv.gz"
    path.write_bytes(whole[: len(whole) - 20])
    with pytest.raises(UserError, match="damaged or cut short"):
        read_counters(path)


@pytest.mark.peer
@pytest.mark.skipif(not VECTOR_ADD.is_dir(), reason="needs the files in $MANYSCALE_DATA")
def test_two_profilers_of_one_program() -> None:
    """vectorAdd of 100 elements, a block of 1024 threads: 344 warp instructions by both; nvprof gives 96.438953 % of
    threads active (10,616), and 95.530523 % without those predicated off (10,516)."""
    nvprof = read_counters(VECTOR_ADD / "nvprof_vectoradd_100_32_metrics_all.txt")
    nsight = read_counters(VECTOR_ADD / "nsight_vectoradd_100_32_metrics_all.csv")
    assert nvprof.warp_instructions.tolist() == [344]
    assert nsight.warp_instructions.tolist() == [344] * 3
    assert nvprof.thread_instructions.tolist() == [round(0.95530523 * 344 * 32)]
    assert nsight.thread_instructions == pytest.approx([0.96438953 * 344 * 32] * 3, rel=1e-3)
    assert nsight.block.tolist() == [[1024, 1, 1]] * 3
    assert nsight.cycles is not None
    assert nsight.cycles.tolist() == [5774, 5761, 5801]
    assert nsight.duration_s == pytest.approx([2.72e-6] * 3)
