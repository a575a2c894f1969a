"""``calibrate nccl-tests``: what is put into a table comes out again, and what is no table is refused in one line."""

from __future__ import annotations

import json
import lzma
from pathlib import Path

import pytest

from manyscale.runner.api.machines import calibrate
from manyscale.runner.cli import main
from manyscale.runner.errors import UserError
from manyscale.runner.readers import nccl_tests
from manyscale.runner.study.targets import build_machine

SIZES = [8 << power for power in range(27)]  # to 512 MiB
HEAD = """\
# nccl-tests version 2.17.6
# Collective test starting: {name}_perf
# nThread 1 nGpus {gpus} minBytes 8 maxBytes 536870912 step: 2(factor) warmup iters: 1 iters: 20
#
# Using devices
{ranks}
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)
"""


def ring_us(gpus: int, size: int, copy: float, floor: float) -> float:
    """NCCL's figures for A100s: a ring of 12 channels of 20 GB/s, LL or Simple, whose steps take as long."""
    steps, work = 2 * (gpus - 1), (2 * (gpus - 1) + copy) / gpus
    small = 6.6 + 0.6 * steps + size * work / 87.7e3
    return floor + min(small, 8.4 + 0.6 * steps + size * work / 240e3)


def text_of(gpus: int, copy: float = 0.0, floor: float = 0.0, hosts: int = 1) -> str:
    rank = "#  Rank {0:2d} Group  0 Pid   1234 on  node{1} device {0:2d} [0000:07:00] NVIDIA A100-SXM4-80GB"
    ranks = "\n".join(rank.format(each, each * hosts // gpus) for each in range(gpus))
    rows = [HEAD.format(name="all_reduce", gpus=gpus, ranks=ranks)]
    for size in SIZES:
        time = ring_us(gpus, size, copy, floor)
        bus = size / time / 1e3 * 2 * (gpus - 1) / gpus
        part = f"{time:.6g} {size / time / 1e3:.6g} {bus:.6g} 0"
        rows.append(f"{size} {size // 4} float sum -1 {part} {part}\n")
    return "".join([*rows, "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 1\n"])


def test_floor_and_last_copy_of_a_made_up_machine_are_found(tmp_path: Path) -> None:
    file = tmp_path / "all_reduce.txt"
    file.write_text(text_of(4, copy=0.4, floor=9.0))
    made = calibrate(file, nccl=True, base="dgx-a100")
    (table,) = made.figures["tables"]
    assert table["floor_ps"] == pytest.approx(9e6, rel=0.02)
    assert made.figures["tuner"]["last_copy_ratio"] == pytest.approx(0.4, abs=0.01)
    assert table["after_mean_large"] < 0.01
    assert table["after_mean_small"] < 0.03
    assert build_machine(made.machine, "machine.yaml").name == "dgx-a100-calibrated"


def test_other_counts_are_predicted_from_one_table(tmp_path: Path) -> None:
    """The made-up machine's 8 GPUs from its 4: the law of the tables is its own law."""
    files = [tmp_path / f"all_reduce-{gpus}.txt" for gpus in (4, 8)]
    for file, gpus in zip(files, (4, 8), strict=True):
        file.write_text(text_of(gpus, copy=0.4))
    of_four, of_eight = calibrate(files, nccl=True, base="dgx-a100").figures["tables"]
    assert (of_four["table"], of_eight["table"]) == (
        "allreduce of 4 GPUs on one node", "allreduce of 8 GPUs on one node",
    )  # fmt: skip
    assert of_eight["held_out_mean_large"] < 0.01


def test_gpus_follow_from_the_bus_bandwidth(tmp_path: Path) -> None:
    for gpus in (2, 3, 8, 16):
        times = [ring_us(gpus, size, 0, 0) for size in SIZES]
        part = 2 * (gpus - 1) / gpus / 1e3
        rows = [f"{size},{time:.6g},{size / time * part:.2f}" for size, time in zip(SIZES, times, strict=True)]
        file = tmp_path / "allreduce.csv.xz"
        file.write_bytes(lzma.compress("\n".join(["bytes,time_us,busbw", *rows]).encode()))
        read = nccl_tests.read(file)
        assert (read.gpus, read.collective, read.nodes, len(read.sizes)) == (gpus, "allreduce", None, len(SIZES))


def test_gpus_follow_from_the_bus_bandwidth_of_the_collective_that_is_named(tmp_path: Path) -> None:
    """Of an all-gather (n - 1) / n; taken for that of an all-reduce, 64 GPUs would be 2."""
    for gpus in (2, 8, 64):
        rows = [f"{size},100,{size / 100e3 * (gpus - 1) / gpus:.6g}" for size in SIZES]
        (tmp_path / "measured.csv").write_text("\n".join(["bytes,time_us,busbw", *rows]))
        assert nccl_tests.read(tmp_path / "measured.csv", "allgather").gpus == gpus


def test_command_writes_machine_fit_and_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, out = tmp_path / "all_reduce.txt", tmp_path / "out"
    file.write_text(text_of(16, floor=5.0, hosts=2))
    assert main(["calibrate", "nccl-tests", str(file), "--base", "p4de", "-o", str(out)]) == 0
    told = capsys.readouterr().out
    assert "allreduce of 16 GPUs on 2 nodes" in told
    assert {each.name for each in out.iterdir()} == {"machine.yaml", "calibration.json", "calibration.html"}
    assert json.loads((out / "calibration.json").read_text())["tables"][0]["rows"] == len(SIZES)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nothing\n", "no head with the columns size and time"),
        (text_of(4).replace(" 0\n", "\n8 2 float\n", 1), "needs 13 columns"),
        ("bytes,speed\n1,2\n", "out_time_us"),
        ("bytes,time_us\n8,0\n", "not positive"),
        ("bytes,time_us\n8,12\n", "--gpus N"),
        (text_of(4), "4 GPUs on 3 nodes"),
    ],
)
def test_what_is_no_table_is_refused(text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "all_reduce.txt"
    file.write_text(text)
    with pytest.raises(UserError, match=message) as told:
        calibrate(file, nccl=True, nodes=3 if "3 nodes" in message else None)
    assert "\n" not in str(told.value)


def test_the_same_twice_and_a_base_without_gpus_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "all_reduce.txt"
    file.write_text(text_of(4))
    with pytest.raises(UserError, match="one file of each"):
        calibrate([file, file], nccl=True)
    with pytest.raises(UserError, match=r"no network\.nccl"):
        calibrate(file, nccl=True, base="laptop")
    with pytest.raises(UserError, match="--collective: unknown collective 'alreduce'; did you mean 'allreduce'"):
        calibrate(file, nccl=True, collective="alreduce")
    with pytest.raises(UserError, match="4 GPUs on -1 nodes do not fit"):
        calibrate(file, nccl=True, nodes=-1)
    with pytest.raises(UserError, match="goes with files of nccl-tests"):
        calibrate(file, gpus=4)
