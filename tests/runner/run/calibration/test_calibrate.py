"""``manyscale calibrate``: files of the usual benchmarks to a machine that a study can name."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from manyscale.runner.errors import UserError
from manyscale.runner.problems import load_yaml
from manyscale.runner.readers.ping_pong import read
from manyscale.runner.study.targets import build_machine

DATA = Path(__file__).parents[3] / "data" / "pingpong"
OSU = "# OSU MPI Latency Test v5.6.2\n# Size          Latency (us)\n0   1.50\n1   1.50\n1024   2.50\n"
OSU_7 = "# OSU MPI Latency Test v7.5\n# Datatype: MPI_CHAR.\n# Size       Avg Latency(us)\n1   1.50\n1024   2.50\n"
OSU_BW = "# OSU MPI Bandwidth Test v5.9\n# Size      Bandwidth (MB/s)\n1   4.00\n1024   2048.00\n"
IMB = """\
# Benchmarking PingPong
# #processes = 2
#---------------------------------------------------
       #bytes #repetitions      t[usec]   Mbytes/sec
            0         1000         1.50         0.00
         1024         1000         2.50       390.63

# All processes entering MPI_Finalize
"""
NETPIPE_OUT = "1 5.086263 0.00000150\n1024 3276.8 0.0000025\n"
NETPIPE = """\
  0:       1 bytes  19999 times -->      5.09 Mbps in       1.50 usec
  1: 1024 B 99 times --> 3 Mbps in 2.5 usecs
"""
CSV = "bytes,time_us\n0,1.4\n1024,2.5\n0,1.6\n0,1.5\n"


@pytest.mark.golden
@pytest.mark.parametrize(
    ("text", "sizes", "times_us", "is_stream"),
    [
        (OSU, [0, 1, 1024], [1.5, 1.5, 2.5], False),
        (OSU_7, [1, 1024], [1.5, 2.5], False),
        (OSU_BW, [1, 1024], [0.25, 0.5], True),
        (IMB, [0, 1024], [1.5, 2.5], False),
        (NETPIPE_OUT, [1, 1024], [1.5, 2.5], False),
        (NETPIPE, [1, 1024], [1.5, 2.5], False),
        (CSV, [0, 1024], [1.5, 2.5], False),
    ],
    ids=["OSU 5", "OSU 7", "OSU bandwidth", "IMB", "NetPIPE file", "NetPIPE output", "CSV, median"],
)
def test_formats(tmp_path: Path, text: str, sizes: list[int], times_us: list[float], is_stream: bool) -> None:
    path = tmp_path / "measured.txt"
    path.write_text(text)
    measured = read(path)
    assert measured.sizes.tolist() == sizes
    assert measured.times_ps.tolist() == pytest.approx([time * 1e6 for time in times_us])
    assert measured.is_stream == is_stream


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hello\n", "is no ping-pong that is known"),
        ("", "is no ping-pong that is known"),
        (OSU + "2048   x\n", r"measured.txt:6: a row of OSU latency needs 2 numbers"),
        ("# OSU MPI Latency Test\n# Size\n", "holds no measurement"),
        ("bytes,seconds\n1,2\n", "measured.txt:1: the header needs"),
        ("bytes,time_us\n1,two\n", "measured.txt:2: time_us is 'two', not a number from 0"),
        ("bytes,time_us\n1,0\n", "time of 1 B is not positive"),
        ("bytes,time_us\n1.5,1\n", "1.5 is no number of bytes"),
    ],
)
def test_bad_files_are_refused_in_one_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "measured.txt"
    path.write_text(text)
    with pytest.raises(UserError, match=message) as caught:
        read(path)
    assert "\n" not in str(caught.value)


@pytest.mark.golden
def test_a_measured_machine_is_a_target(tmp_path: Path, cli, private_cache) -> None:  # type: ignore[no-untyped-def]
    """MPICH between two cores: what is fitted has to explain what was measured."""
    outcome = cli("calibrate", DATA / "mpich-shared-memory.latency", DATA / "mpich-shared-memory.bandwidth",
                  "-o", tmp_path / "machine")  # fmt: skip
    assert outcome.status == 0, outcome.err
    content = load_yaml(tmp_path / "machine" / "machine.yaml")
    network = build_machine(content, "machine.yaml").network
    fit = json.loads((tmp_path / "machine" / "calibration.json").read_text())
    residuals = np.array([each["residual"] for each in fit["measurements"]])
    assert np.mean(np.abs(residuals)) < 0.1
    assert network.loggops is not None
    smallest = fit["measurements"][0]["time_ps"]
    assert network.loggops.latency_ps + 2 * network.loggops.overhead_ps == pytest.approx(smallest, rel=0.1)
    assert network.latency_ps == pytest.approx(smallest, rel=0.1)
    assert "residual" in (tmp_path / "machine" / "calibration.html").read_text()
    run = cli("run", "nas-is-A-8", "--target", tmp_path / "machine" / "machine.yaml", "-o", tmp_path / "run",
              "--no-report")  # fmt: skip
    assert run.status == 0, run.err


def test_a_stream_alone_is_refused(tmp_path: Path, cli) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "bw").write_text(OSU_BW)
    outcome = cli("calibrate", tmp_path / "bw", "-o", tmp_path / "out")
    assert outcome.status == 2
    assert "is a stream of messages; give a ping-pong" in outcome.err
    assert not (tmp_path / "out").exists()


@pytest.mark.theory
def test_every_model_explains_the_ping_pong_it_was_fitted_to(tmp_path: Path, cli, private_cache) -> None:  # type: ignore[no-untyped-def]
    """Two classes exactly: 2 us and 1 GB/s below 8192 B, 6 us and 4 GB/s from there; a stream of 0.3 us a message. One
    round trip of 64 B and one of 64 KiB then takes twice the sum of both times, in the models that know the class."""
    sizes = [0, *(2**k for k in range(21))]
    times = [2 + size / 1000 if size < 8192 else 6 + size / 4000 for size in sizes]
    rows = "".join(f"{size},{time:.9f}\n" for size, time in zip(sizes, times, strict=True))
    (tmp_path / "latency.csv").write_text("bytes,time_us\n" + rows)
    stream = "".join(f"{size} {size / 0.3:.6f}\n" for size in sizes[1:8])
    (tmp_path / "stream").write_text(f"# OSU MPI Bandwidth Test v5.9\n{stream}")
    outcome = cli("calibrate", tmp_path / "latency.csv", tmp_path / "stream", "--base", "crossbar256",
                  "-o", tmp_path / "machine")  # fmt: skip
    assert outcome.status == 0, outcome.err
    ranks = ["init;send 1 0 {0};recv 1 0 {0};finalize", "init;recv 0 0 {0};send 0 0 {0};finalize"]
    for size, model in ((64, "flow"), (65536, "flow"), (64, "loggops")):
        trace = tmp_path / f"trace-{size}.txt"
        trace.write_text("".join(
            f"{rank} {line}\n" for rank, text in enumerate(ranks) for line in text.format(size).split(";")
        ))  # fmt: skip
        directory = tmp_path / f"{model}-{size}"
        run = cli("run", "--workload", trace, "--target", tmp_path / "machine" / "machine.yaml", "--model",
                  f"network={model}", "-o", directory, "--no-report")  # fmt: skip
        assert run.status == 0, run.err
        makespan = json.loads((directory / "stats.json").read_text())["application.makespan"]["value"]
        once = 2 + size / 1000 if size < 8192 else 6 + size / 4000
        if model == "loggops":  # one rate for all sizes, that of the largest
            once = 2 + 63 / 4000
        assert makespan * 1e6 == pytest.approx(2 * once, rel=1e-4)
