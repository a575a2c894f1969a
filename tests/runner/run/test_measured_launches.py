"""Predicted launches against measured ones: partners, errors, and files of profilers."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from manyscale.runner.errors import UserError
from manyscale.runner.readers.launch_counters import measured
from manyscale.runner.report.figures.hardware import hardware as drawn
from manyscale.runner.run.evaluation import hardware
from manyscale.runner.run.evaluation.hardware import Launch, comparable, figures_of, partners

HEADER = (
    '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device",'
    '"CC","Section Name","Metric Name","Metric Unit","Metric Value","Rule Name","Rule Type","Rule Description"\n'
)
KERNEL = "Kernel(Node *, int *, bool *, bool *, bool *, int *, int)"
KERNEL2 = "Kernel2(bool *, bool *, bool *, bool *, int)"


def details(*launches, metric="Elapsed Cycles", unit="cycle", grid="(8, 1, 1)"):
    """Nsight Compute's page of details, as it writes it: the program's own lines before the table, rows that end where
    the columns of rules begin, and rows of rules."""
    lines = ["==PROF== Connected to process 7 (/home/me/bfs)\n", "Reading File\n", HEADER]
    for number, (name, value) in enumerate(launches):
        head = f'"{number}","7","bfs","127.0.0.1","{name}","1","7","(512, 1, 1)","{grid}","0","8.6",'
        lines.append(f'{head}"GPU Speed Of Light Throughput","{metric}","{unit}","{value}",\n')
        lines.append(f'{head}"SpeedOfLight","","","","SOLBottleneck","OPT","This kernel, of, commas"\n')
    return "".join(lines)


@pytest.fixture
def file(tmp_path):
    def write(text, name="ncu.csv"):
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run directory of four launches: Kernel and Kernel2, twice, of 6000, 5500, 8000 and 5500 cycles."""
    folder = tmp_path_factory.mktemp("runs") / "bfs"
    (folder / "timeline").mkdir(parents=True)
    (folder / "manifest.json").write_text(json.dumps({"status": "complete", "version": "0"}))
    (folder / "stats.json").write_text(json.dumps({"notes": {"list": []}}))
    (folder / "resolved.yaml").write_text("target: {node: {gpu: {sms: 4, frequency: 1 GHz}}}\n")
    cycles = [6000, 5500, 8000, 5500]
    # 1 GHz: 1000 ps a cycle. The launches are in streams, and each waits until the one before it has ended.
    end = [sum(cycles[: number + 1]) * 1000 for number in range(4)]
    columns = {
        "launch_id": [1, 2, 3, 4],
        "kernel_name": ["_Z6KernelP4NodePiPbS2_S2_S1_i", "_Z7Kernel2PbS_S_S_i"] * 2,
        "cycles": cycles, "launch_latency_cycles": [5000] * 4, "model": ["detailed"] * 4,
        "start_ps": [0] * 4, "end_ps": end,
        **{f"grid_{axis}": [8 if axis == "x" else 1] * 4 for axis in "xyz"},
        **{f"block_{axis}": [512 if axis == "x" else 1] * 4 for axis in "xyz"},
    }  # fmt: skip
    pq.write_table(pa.table(columns), folder / "timeline" / "launches.parquet")
    return folder


def test_launches_are_matched_in_order_and_their_errors_told(run, file):
    """Kernel 6000 and 8000 for 5000 and 10000; Kernel2 5500 for 5000, once."""
    found = hardware.compare(
        [run], file(details((KERNEL, 5000), (KERNEL2, "5,000"), (KERNEL, "10,000"), ("x(int)", 7)))
    )
    errors = {row["launch_id"]: row["error"] for row in found.launches.to_pylist()}
    assert errors == {1: pytest.approx(0.2), 2: pytest.approx(0.1), 3: pytest.approx(-0.2)}
    assert [row["line"] for row in found.launches.to_pylist()] == [4, 6, 8]
    assert found.figures["mean_absolute_error"] == pytest.approx((0.2 + 0.1 + 0.2) / 3)
    assert found.figures["mean_absolute_error_without_latency"] == pytest.approx((0.8 + 0.9 + 0.7) / 3)
    assert found.figures["geometric_mean"] == pytest.approx((1.2 * 1.1 * 0.8) ** (1 / 3))
    assert found.figures["error"] == pytest.approx(19500 / 20000 - 1)
    kernels = {row["kernel"]: (row["launches"], row["error"]) for row in found.kernels.to_pylist()}
    assert kernels == {"Kernel": (2, pytest.approx(14000 / 15000 - 1)), "Kernel2": (1, pytest.approx(0.1))}
    assert [note.text for note in found.notes] == [
        "1 of 4 predicted launches have no measured one: Kernel2 (1)",
        "1 of 4 measured launches have no predicted one: x (1)",
    ]


@pytest.mark.parametrize(("unit", "value"), [("nsecond", "5000"), ("usecond", "5"), ("us", "5.0"), ("ns", "5,000")])
def test_times_are_compared_where_there_are_no_cycles(run, file, unit, value):
    found = hardware.compare([run], file(details((KERNEL, value), metric="Duration", unit=unit)))
    (row,) = found.launches.to_pylist()
    assert (row["unit"], row["measured"]) == ("s", pytest.approx(5e-6))
    assert row["error"] == pytest.approx(0.2)  # 6000 cycles at 1 GHz


def test_launches_of_another_shape_are_no_partners(run, file):
    with pytest.raises(
        UserError, match=r"ncu.csv: has no launch of .*kernels there are Kernel; those of the run Kernel, "
    ):
        hardware.compare([run], file(details((KERNEL, 5000), grid="(16, 1, 1)")))


def test_ncu_raw_page_in_either_spelling_of_numbers(run, file):
    text = (
        '"ID","Kernel Name","Block Size","Grid Size","gpc__cycles_elapsed.max","gpu__time_duration.sum"\n'
        '"","","","","cycle","us"\n'
        f'"0","{KERNEL}","(512, 1, 1)","(8, 1, 1)","12.000","12,5"\n'
    )
    (row,) = hardware.compare([run], file(text)).launches.to_pylist()
    assert (row["measured"], row["unit"], row["error"]) == (12000, "cycles", -0.5)


def test_nvprof_gpu_trace(run, file):
    """Copies are left out; the correlation number behind a name, too."""
    text = (
        "==12== NVPROF is profiling process 12, command: ./bfs\n==12== Profiling result:\n"
        '"Start","Duration","Grid X","Grid Y","Grid Z","Block X","Block Y","Block Z","Size","Device","Name"\n'
        "ms,us,,,,,,,MB,,\n"
        "1.5,1.1,,,,,,,0.1,GTX,[CUDA memcpy HtoD]\n"
        '2.5,12.0,8,1,1,512,1,1,,GTX,"Kernel(Node*, int*, bool*, bool*, bool*, int*, int) [114]"\n'
        '2.6,11.0,8,1,1,512,1,1,,GTX,"Kernel2(bool*, bool*, bool*, bool*, int) [118]"\n'
    )
    found = hardware.compare([run], file(text))
    assert [(row["launch_id"], row["error"]) for row in found.launches.to_pylist()] == [
        (1, pytest.approx(-0.5)), (2, pytest.approx(-0.5)),
    ]  # fmt: skip


def test_sums_over_sms_are_divided_by_those_of_the_target(run, file):
    """nvprof's elapsed_cycles_sm, of a table that R wrote: 4 SMs."""
    found = hardware.compare([run], file('"","name","elapsed_cycles_sm"\n"9","Kernel",24000\n'))
    (row,) = found.launches.to_pylist()
    assert (row["measured"], row["error"]) == (6000, 0)
    assert "divided by the target's 4 SMs" in found.notes[-1].text


def test_a_table_of_cycles_by_launch(run, file):
    found = hardware.compare([run], file("launch_id,cycles\n3,16000\n1,6000\n"))
    rows = found.launches.to_pylist()
    assert [(row["launch_id"], row["line"], row["error"]) for row in rows] == [(1, 2, 0), (3, 1, -0.5)]
    assert found.notes[0].text == "2 of 4 launches have no row in ncu.csv"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            details((KERNEL, 7), metric="Registers Per Thread", unit=""),
            "has neither cycles nor times of launches; collect",
        ),
        ('"Device","Kernel","Invocations","Min","Max","Avg","duration"\n"0","Kernel",8,1,2,1,1\n', "is a summary over"),
        (details((KERNEL, "fast")) + "\n", "has neither cycles nor times"),
        (details((KERNEL, 0)), "launch 1 took no time"),
        ("launch_id,time\n1,2\n", "needs the columns launch_id and cycles"),
        ("launch_id,cycles\n9,2\n", "has no cycles of any launch"),
        (details((KERNEL, 5), (KERNEL2, 6)).replace('"cycle","6"', '"second","6"'), "profile with --print-units base"),
    ],
)
def test_what_cannot_be_compared_is_told_in_a_line(run, file, text, reason):
    with pytest.raises(UserError) as error:
        hardware.compare([run], file(text))
    assert reason in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("_Z1kILi4EfEvPT0_", "void k<(int)4, float>(T2 *)"),
        ("_Z1kILb1EEvv", "void k<(bool)1>()"),
        ("_Z1kILj3EEvv", "void k<3u>()"),
        ("_ZN12_GLOBAL__N_11kEi", "<unnamed>::k(int)"),
        ("vecadd", "vecadd"),
    ],
)
def test_names_of_tracers_and_profilers_meet(one, other):
    assert comparable(one) == comparable(other)


def test_other_arguments_of_a_template_are_another_function():
    assert comparable("_Z1kILi4EfEvPT0_") != comparable("_Z1kILi8EfEvPT0_")


def launches(*names, shape=()):
    return [Launch(name, shape) for name in names]


def test_partners_in_order_of_each_function():
    assert partners(launches("a", "b", "a", "c"), launches("a", "a", "b", "b")) == [(0, 0), (1, 2), (2, 1)]


def test_arguments_of_templates_may_be_missing_where_it_stays_clear_which_is_which():
    assert partners(launches("k<4>", "a"), launches("k", "a")) == [(0, 0), (1, 1)]
    assert partners(launches("k<4>", "k<8>", "a"), launches("k", "a")) == [(2, 1)]


def test_shapes_count_only_if_both_sides_tell_them():
    mine = [Launch("k", (1, 64)), Launch("k", (2, 64))]
    assert partners(mine, [Launch("k", (2, 64)), Launch("k", (1, 64))]) == [(0, 1), (1, 0)]
    assert partners(mine, launches("k", "k")) == [(0, 0), (1, 1)]


@pytest.mark.parametrize(("predicted", "correlation"), [([1, 2, 3, 4], 1.0), ([4, 3, 2, 1], -1.0), ([2, 1, 4, 3], 0.6)])
def test_rank_correlation_is_spearmans(predicted, correlation):
    """1 - 6 sum d^2 / (n (n^2 - 1)): of the last one 1 - 6 x 4 / 60."""
    values = [float(each) for each in predicted]
    table = pa.table({"predicted": values, "predicted_inside": values, "measured": [10.0, 20.0, 30.0, 40.0]})
    assert figures_of(table)["rank_correlation"] == pytest.approx(correlation)
    assert math.isnan(figures_of(table.slice(0, 2))["rank_correlation"])


def test_the_figure_spans_what_there_is(run, file):
    """From 5000 to 10000, a half more on both sides."""
    found = hardware.compare([run], file(details((KERNEL, 5000), (KERNEL2, 5000), (KERNEL, 10000))))
    equal, *kernels = drawn(found.launches)["data"]
    assert equal["x"] == equal["y"] == [pytest.approx(5000 / 1.5), pytest.approx(15000)]
    assert [(each["name"], each["x"], each["y"]) for each in kernels] == [
        ("Kernel", [5000, 10000], [6000, 8000]), ("Kernel2", [5000], [5500]),
    ]  # fmt: skip


def test_the_command_writes_tables_and_a_page(cli, run, file, tmp_path):
    path = file(details((KERNEL, 5000), (KERNEL2, 5000), (KERNEL, 10000)))
    outcome = cli("evaluate", run, "--cycles", path, "-o", tmp_path / "out", "--json", tmp_path / "figures.json")
    assert outcome.status == 0, outcome.err
    assert "3 launches: mean absolute error 16.7%" in outcome.out
    assert pq.read_table(tmp_path / "out" / "evaluation.parquet").num_rows == 3
    assert pq.read_table(tmp_path / "out" / "kernels.parquet").num_rows == 2
    page = (tmp_path / "out" / "report.html").read_text()
    assert "Predicted launches against measured ones" in page
    figures = json.loads((tmp_path / "figures.json").read_text())["figures"]
    assert {"name": "launches", "of": {}, "value": 3, "unit": "1"} in figures


def test_a_run_needs_measured_cycles_and_a_trace_is_no_run(cli, run, tmp_path):
    outcome = cli("evaluate", run, "-o", tmp_path / "out")
    assert (outcome.status, outcome.err.count("\n")) == (2, 1)
    assert "--cycles FILE" in outcome.err
    outcome = cli("evaluate", run, "bfs-16", "--cycles", "x.csv", "-o", tmp_path / "out")
    assert outcome.status == 2
    assert "is a run, others are traces" in outcome.err
    for option, what in (("--method", "random"), ("--on", "other"), ("--set", "taskpoint.history=8")):
        outcome = cli("evaluate", run, "--cycles", "x.csv", option, what, "-o", tmp_path / "out")
        assert (outcome.status, outcome.err.count("\n")) == (2, 1)
        assert option in outcome.err
    assert not (tmp_path / "out").exists()


def test_profilers_tables_are_known_by_their_columns(file):
    assert measured.can_read(file(details((KERNEL, 1))))
    assert not measured.can_read(file("launch_id,cycles\n1,2\n"))


HARDWARE = Path(os.environ.get("MANYSCALE_DATA", "/nonexistent")) / "gpu" / "hardware" / "gpuperfpredict"


@pytest.mark.skipif(not HARDWARE.is_dir(), reason="MANYSCALE_DATA does not name the folder of the traces")
def test_tables_of_a_published_campaign_are_read():
    """Its first row: 14 us, a grid of 51 blocks of 256 threads, 251,176 cycles over all SMs of a GTX 980."""
    found = measured.read(HARDWARE / "kernel-GTX-980.csv.gz")
    assert (len(found.kernel_name), found.kernel_name[0]) == (5270, "kernel")
    assert (found.duration_s[0], found.cycles[0], found.cycles_are_summed) == (1.4e-5, 251176, True)
    assert (found.grid[0].tolist(), found.block[0].tolist()) == ([51, 1, 1], [256, 1, 1])
