"""``manyscale predict``: against the program itself at the predicted input, equations by hand, and input that is
wrong."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from importlib.resources import files
from pathlib import Path

import loop_traces
import memory_programs
import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml
from loop_traces import num_executions, num_instructions, write_trace
from naive import DETAIL, SMALL_GEOMETRIES, misses, sdcm_hit_ratio, stack_distances, write_target
from test_profile_command import checked_page, contents, figures

from manyscale.models.memory.reuse_profile import COLD, ReuseProfile
from manyscale.runner.predict.memory import prediction
from manyscale.runner.predict.memory.growth import mean_distances
from manyscale.runner.readers.stores import detail_store

TRACED = (8, 16, 24, 32, 40)  # alike modulo the 8 elements of a line
TARGET = 64
CACHES = {
    "L1": {"size": "2 KiB", "line": "64 B", "ways": 2, "latency": "4 cycles", "bandwidth": "100 GB/s"},
    "L2": {"size": "8 KiB", "line": "64 B", "ways": 4, "latency": "12 cycles", "bandwidth": "50 GB/s"},
    "L3": {"size": "256 KiB", "line": "64 B", "ways": 16, "latency": "40 cycles", "bandwidth": "20 GB/s"},  # holds all
}
GEOMETRIES = {"L1": SMALL_GEOMETRIES[0], "L2": SMALL_GEOMETRIES[1], "L3": (256, 16)}


@pytest.fixture(scope="module")
def traces(tmp_path_factory) -> list[str]:
    folder = tmp_path_factory.mktemp("traces")
    return [f"{n}={write_trace(folder, n)}" for n in TRACED]


TLBS = {
    "L1": {"entries": 4, "ways": 4, "page": "4 KiB"},
    "L2": {"entries": 9, "ways": 9, "page": "4 KiB", "latency": "7 cycles"},
}
WALK_CYCLES = 1000  # long: what few walks take is no small part of the time
TLB_GEOMETRIES = ((1, 4), (1, 9))  # a column of B lies in 8 pages


def small_xeon(folder: Path, tlbs: Mapping[str, object]) -> Path:
    """The shipped Xeon with small caches and other TLBs."""
    machine = yaml.safe_load(files("manyscale.cluster_configs").joinpath("target/xeon-e5-2695.yaml").read_text())
    machine["name"] = "small-xeon"
    machine["node"]["caches"] = CACHES
    machine["node"]["tlbs"] = dict(tlbs)
    path = folder / "small-xeon.yaml"
    path.write_text(yaml.safe_dump(machine))
    return path


@pytest.fixture
def target(tmp_path) -> Path:
    return small_xeon(tmp_path, {})


def lines_at(n: int) -> list[tuple[int, bool]]:
    """The lines that are accessed, and whether the access stores."""
    block_ids, addresses = loop_traces.executed(n)
    stores = np.array(
        [block == loop_traces.STORE for block in block_ids.tolist() for _ in loop_traces.accesses_of(block)]
    )
    return list(zip((addresses // 64).tolist(), stores.tolist(), strict=True))


# -- figures ---------------------------------------------------------------------------------------------------------


@pytest.mark.theory
@pytest.mark.parametrize("steady", [False, True])
def test_a_loop_nest_is_predicted_as_it_is(cli, tmp_path, traces, target, steady):
    words = ["--target", target, "--sizes", f"48,{TARGET}", "--no-report", *(["--steady"] if steady else [])]
    outcome = cli("predict", *traces, *words, "-o", "out")
    assert outcome.status == 0, outcome.err
    assert "affine loop nest" in outcome.out
    found = figures(tmp_path / "out")
    for n in (48, TARGET):
        lines = lines_at(n)
        assert found[f"size.{n}.accesses"] == 2 * n**3 + n * n == len(lines)
        assert found[f"size.{n}.instructions"] == num_instructions(n)
        runs = np.array([misses(passes * lines, *GEOMETRIES.values()) for passes in (1, 2)])
        missing = runs[1] - runs[0] if steady else runs[0]
        for level, missed in zip(GEOMETRIES, missing, strict=True):
            assert found[f"size.{n}.{level}.set_aware.hit_ratio"] == pytest.approx(1 - missed / len(lines), abs=1e-12)
    table = pq.read_table(tmp_path / "out" / "blocks.parquet").to_pylist()
    for kind, sizes in (("traced", TRACED), ("predicted", (48, TARGET))):
        for n in sizes:
            mine = [row for row in table if (row["kind"], row["size"]) == (kind, n)]
            assert [row["executions"] for row in sorted(mine, key=lambda row: row["offset"])] == num_executions(n)


@pytest.mark.theory
@pytest.mark.parametrize("recipe", ["operands", "paper"])
def test_extrapolated_profiles_are_near_the_true_one(cli, tmp_path, traces, target, recipe):
    words = ["--target", target, "--sizes", TARGET, "--recipe", recipe, "--no-report"]
    assert cli("predict", *traces, *words, "-o", "out").status == 0
    found = json.loads((tmp_path / "out" / "stats.json").read_text())
    distances = stack_distances([line for line, _ in lines_at(TARGET)])
    error = {"operands": 0.01, "paper": 0.15}[recipe]  # the paper's five bins blur distances near a cache's size
    for level, (sets, ways) in GEOMETRIES.items():
        figure = found[f"size.{TARGET}.{level}.sdcm.hit_ratio"]
        assert figure["value"] == pytest.approx(sdcm_hit_ratio(distances, sets * ways, ways), abs=error)
        assert figure["ci_low"] <= figure["value"] <= figure["ci_high"]
    profile = pq.read_table(tmp_path / "out" / "profile.parquet").to_pandas()
    assert profile["count"].sum() == pytest.approx(2 * TARGET**3 + TARGET**2, rel=1e-6)
    if recipe == "operands":  # shares that are polynomials in x, the paper's, lose the few first uses
        assert profile["count"][profile["distance"] == COLD].sum() == pytest.approx(distances[COLD], rel=1e-6)


CYCLE = 1 / 2.1e9
COSTS = [(4 * CYCLE, 1 / 100e9), (12 * CYCLE, 1 / 50e9), (40 * CYCLE, 1 / 20e9), (95e-9, 1 / 11.2e9)]
# Broadwell's latencies and reciprocal throughputs in cycles
OPERATIONS = {"int_alu": (1, 0.25), "fp_mul": (3, 0.5), "fp_add": (3, 1)}


def operations(n: int) -> dict[str, int]:
    return {"int_alu": n**3 + 2 * n * n + n + 1, "fp_mul": n**3, "fp_add": n**3}


def memory_times(shares: Iterable[float], n: int) -> dict[str, float]:
    """Eq. 7 of a word's 8 bytes, by the level that serves."""
    accesses = 2 * n**3 + n * n
    levels = zip((*GEOMETRIES, "main"), shares, COSTS, strict=True)
    return {
        f"memory.{name}": accesses * share * (latency + 7 * per_byte) for name, share, (latency, per_byte) in levels
    }


def printed_by_hand(hits: list[float], n: int) -> dict[str, float]:
    """Seconds of AMM as printed, eq. 4 and 8, by cause: hit rates of all accesses, and one mean operation."""
    missing = np.concatenate(([1], np.cumprod(1 - np.array(hits))))
    counts = operations(n)
    number = sum(counts.values())
    latency, throughput = (sum(counts[name] * cost[i] for name, cost in OPERATIONS.items()) / number for i in (0, 1))
    parts = memory_times((missing * np.array([*hits, 1])).tolist(), n)
    return {**parts, "cpu.other": CYCLE * (latency + (number - 1) * throughput)}


def corrected_by_hand(hits: list[float], page_hits: list[float], n: int) -> dict[str, float]:
    """Each level serves what it holds beyond the nearer ones; operations are pipelined class by class."""
    parts = memory_times(np.diff([0, *hits, 1]).tolist(), n)
    for name, share, cycles in zip(
        ("L1", "L2", "walk"), np.diff([0, *page_hits, 1]).tolist(), (0, 7, WALK_CYCLES), strict=True
    ):
        parts[f"translation.{name}"] = (2 * n**3 + n * n) * share * cycles * CYCLE
    for name, number in operations(n).items():
        parts[f"cpu.{name}"] = CYCLE * (OPERATIONS[name][0] + (number - 1) * OPERATIONS[name][1])
    return parts


@pytest.mark.golden
def test_run_times_follow_the_equations(cli, tmp_path, traces):
    target = small_xeon(tmp_path, TLBS)
    words = ["--target", target, "--set", f"target.node.main_memory.page_walk={WALK_CYCLES} cycles", "--no-report"]
    outcome = cli("predict", *traces, *words, "--sizes", TARGET, "-o", "out")
    assert outcome.status == 0
    found = figures(tmp_path / "out")
    rows = pq.read_table(tmp_path / "out" / "times.parquet").to_pylist()
    parts = {
        model: {row["cause"]: row["seconds"] for row in rows if row["model"] == model}
        for model in ("printed", "corrected", "overlap")
    }
    sdcm = [found[f"size.{TARGET}.{level}.sdcm.hit_ratio"] for level in GEOMETRIES]
    assert parts["printed"] == pytest.approx(printed_by_hand(sdcm, TARGET), rel=1e-6)
    real = [found[f"size.{TARGET}.{level}.set_aware.hit_ratio"] for level in GEOMETRIES]
    addresses = loop_traces.executed(TARGET)[1]
    missed = misses([(page, False) for page in (addresses // 4096).tolist()], *TLB_GEOMETRIES)
    page_hits = [1 - each / len(addresses) for each in missed]
    assert 0.05 < page_hits[0] < page_hits[1] < 1
    assert parts["corrected"] == pytest.approx(corrected_by_hand(real, page_hits, TARGET), rel=1e-6, abs=1e-11)
    for model, causes in parts.items():
        assert sum(causes.values()) == pytest.approx(found[f"size.{TARGET}.time.{model}"], rel=1e-9)
    assert parts["corrected"]["translation.walk"] > 0.01 * found[f"size.{TARGET}.time.overlap"]
    assert "overlap: walks of page tables do not wait for each other" in outcome.out
    # a core of width 4 takes at least a quarter of a cycle for each instruction but fused branches
    least = CYCLE / 4 * (num_instructions(TARGET) - TARGET**3 - TARGET**2)
    assert least < found[f"size.{TARGET}.time.overlap"] < found[f"size.{TARGET}.time.corrected"]


@pytest.mark.golden
def test_parameters_of_amm_are_taken(cli, tmp_path, traces, target):
    """Operations that wait for each other: n lambda, and as printed one less."""
    words = ["--target", target, "--sizes", TARGET, "--no-report", "--set", "amm.bound=latency"]
    outcome = cli("predict", *traces, *words, "-o", "out")
    assert outcome.status == 0
    assert "walks of page tables" not in outcome.out  # the target names no TLBs
    rows = pq.read_table(tmp_path / "out" / "times.parquet").to_pylist()
    seconds = {(row["model"], row["cause"]): row["seconds"] for row in rows}
    counts = operations(TARGET)
    for name, number in counts.items():
        assert seconds["corrected", f"cpu.{name}"] == pytest.approx(CYCLE * number * OPERATIONS[name][0], rel=1e-6)
    whole = sum(number * OPERATIONS[name][0] for name, number in counts.items())
    number = sum(counts.values())
    assert seconds["printed", "cpu.other"] == pytest.approx(CYCLE * whole * (number - 1) / number, rel=1e-6)


@pytest.mark.theory
def test_measured_times_are_compared(cli, tmp_path, traces, target):
    (tmp_path / "measured.csv").write_text(f"size,seconds\n48,1e-3\n{TARGET},2e-3\n80,1\n")
    words = ["--target", target, "--sizes", f"{TARGET},56", "--measured", "measured.csv"]
    outcome = cli("predict", *traces, *words, "-o", "out")
    found = figures(tmp_path / "out")
    seconds = found[f"size.{TARGET}.time.overlap"]
    assert found[f"size.{TARGET}.error.overlap"] == pytest.approx(seconds / 2e-3 - 1)
    assert f"{100 * (seconds / 2e-3 - 1):+.1f} %" in outcome.out
    assert "size.56.time.overlap" in found
    assert not [name for name in found if name.startswith(("size.56.error", "size.48"))]
    page = checked_page(tmp_path / "out" / "report.html")
    (overlap,) = [bar for bar in page.charts["errors"]["data"] if bar["name"] == "overlap"]
    assert overlap["x"] == [str(TARGET)]
    assert overlap["y"] == [pytest.approx(seconds / 2e-3 - 1)]


@pytest.mark.contract
def test_a_machine_without_times_gets_hit_rates(cli, tmp_path, traces):
    outcome = cli("predict", *traces, "--target", write_target(tmp_path), "--sizes", 48, "-o", "out")
    assert outcome.status == 0
    assert "no run time: small: " in outcome.out
    found = figures(tmp_path / "out")
    assert "size.48.L1.set_aware.hit_ratio" in found
    assert not [name for name in found if ".time." in name]
    page = checked_page(tmp_path / "out" / "report.html")
    assert "times" not in page.charts
    assert "no run time: small: " in page.text


@pytest.mark.golden
@pytest.mark.slow
def test_a_stream_that_cannot_be_made_again_outgrows_caches(cli, tmp_path, traces, target, monkeypatch):
    """From the largest traced stream at the extrapolated distances, against the stream itself on the same model: 13 %
    short, and 75 % without what outgrown caches cost."""
    words = ("predict", *traces, "--target", target, "--sizes", 160, "--steady", "--no-report")
    assert cli(*words, "-o", "exact").status == 0
    monkeypatch.setattr(prediction, "nest_of", lambda training: (None, "it is hidden"))
    outcome = cli(*words, "-o", "out")
    assert "changes [cache-outgrown]" in outcome.out
    exact, found = (figures(tmp_path / name)["size.160.time.overlap"] for name in ("exact", "out"))
    assert found == pytest.approx(exact, rel=0.2)


@pytest.mark.contract
def test_that_nothing_interrupts_simulated_prefetchers_is_told(cli, tmp_path, traces, target):
    machine = yaml.safe_load(target.read_text())
    next(iter(machine["node"]["caches"].values()))["prefetcher"] = {"interrupted_page": "4 KiB"}
    target.write_text(yaml.safe_dump(machine))
    outcome = cli("predict", *traces, "--target", target, "--sizes", 48, "-o", "out", "--no-report")
    assert "changes [interrupted-prefetchers] corrected: other misses between" in outcome.out


@pytest.mark.contract
def test_where_only_amm_is_known_it_is_said_that_nothing_overlaps(cli, tmp_path, traces, target, monkeypatch):
    def unknown(own):
        raise ValueError("accesses that belong to no instruction")

    monkeypatch.setattr(prediction, "_own_time", unknown)
    outcome = cli("predict", *traces, "--target", target, "--sizes", 48, "-o", "out", "--no-report")
    assert outcome.status == 0
    assert "changes [no-overlap-time] no overlap time: small-xeon: accesses that belong to" in outcome.out
    assert "8.7 times at the mean, printed 8.4 times (the time is too long)" in outcome.out
    found = figures(tmp_path / "out")
    assert "size.48.time.corrected" in found
    assert "size.48.time.overlap" not in found


@pytest.mark.contract
def test_a_format_without_instructions_gets_hit_rates(cli, tmp_path):
    """And a program that is no loop nest: Black-Scholes, thrice the same."""
    trace = DETAIL / "bs16_O1.lk.xz"
    outcome = cli("predict", *(f"{n}={trace}" for n in (16, 24, 32)), "--sizes", 40, "-o", "out")
    assert outcome.status == 0, outcome.err
    assert "show no instructions" in outcome.out
    found = figures(tmp_path / "out")
    assert found["size.40.accesses"] == 2168
    assert not [name for name in found if ".time." in name or "instructions" in name]


@pytest.mark.theory
def test_mean_distances_of_fourths():
    """Of distances 0 0 0 1 | 1 1 2 2 | 4 4 4 4 | 4 8 8 8, first uses left out; then of a count that cuts a row."""
    distance, count = np.array([COLD, 0, 1, 2, 4, 8]), np.array([5.0, 3, 3, 2, 5, 3])
    profile = ReuseProfile(64, np.zeros(6, np.int32), distance, count)
    assert mean_distances(profile).tolist() == [0.25, 1.5, 4, 7]
    assert mean_distances(ReuseProfile(64, np.zeros(2, np.int32), distance[4:], np.ones(2))).tolist() == [4, 4, 8, 8]
    assert np.isnan(mean_distances(ReuseProfile(64, np.zeros(1, np.int32), distance[:1], count[:1]))).all()


# -- files -----------------------------------------------------------------------------------------------------------


@pytest.mark.contract
def test_the_page_shows_the_figures(cli, tmp_path, traces, target):
    words = ["--target", target, "--sizes", f"48,{TARGET}"]
    assert cli("predict", *traces, *words, "-o", "out").status == 0
    page = checked_page(tmp_path / "out" / "report.html")
    charts = {"blocks", "growth", "hit-rates", "levels", "profile", "times"}
    assert set(page.charts) == charts
    (menu,) = page.charts["profile"]["layout"]["updatemenus"]
    assert [button["label"] for button in menu["buttons"]] == ["40 (traced)", "48", str(TARGET)]
    found = figures(tmp_path / "out")
    lines = page.text.split("\n")
    for level in GEOMETRIES:
        for model in ("sdcm", "set_aware"):
            assert f"{100 * found[f'size.{TARGET}.{level}.{model}.hit_ratio']:.2f} %" in lines
    assert f"{2 * TARGET**3 + TARGET**2:,}" in lines
    for trace in page.charts["times"]["data"]:
        assert trace["y"][-1] == found[f"size.{TARGET}.time.{trace['name']}"]
    share = {bar["name"]: bar["y"] for bar in page.charts["blocks"]["data"]}
    inner = TARGET**3 / sum(num_executions(TARGET))  # eq. 3
    assert max(share[str(TARGET)]) == pytest.approx(inner, abs=1e-6)
    points = [trace for trace in page.charts["growth"]["data"] if trace["mode"] == "markers"]
    assert points
    assert all(trace["x"] == list(TRACED) for trace in points)


@pytest.mark.contract
def test_files_are_the_same_each_time_and_however_traces_are_cut(cli, tmp_path, traces, target, monkeypatch):
    words = ["--target", target, "--sizes", "48"]
    assert cli("predict", *traces, *words, "-o", "a", "--cache", "one").status == 0
    assert cli("predict", *traces, *words, "-o", "b", "--cache", "one").status == 0
    monkeypatch.setattr(detail_store, "CHUNK_SIZE", 1500)
    (tmp_path / "cut").mkdir()
    again = [f"{n}={write_trace(tmp_path / 'cut', n)}" for n in reversed(TRACED)]
    assert cli("predict", *again, *words, "-o", "c", "--cache", "two").status == 0
    expected = ["blocks.parquet", "predictions.parquet", "profile.parquet", "times.parquet"]
    assert sorted(contents(tmp_path / "a")) == [*expected[:3], "report.html", "stats.json", "stats.txt", expected[3]]
    assert contents(tmp_path / "a") == contents(tmp_path / "b") == contents(tmp_path / "c")


@pytest.mark.slow
@pytest.mark.contract
def test_ray_gives_the_same_bytes_and_results_are_kept(cli, tmp_path, traces, target):
    words = ("predict", *traces, "--sizes", "20,30", "--target", target)
    for name, executor, cache in (("a", "local", "one"), ("b", "ray", "two"), ("c", "local", "two")):
        outcome = cli(*words, "--executor", executor, "--cache", cache, "-o", name)
        assert outcome.status == 0, outcome.err
    assert contents(tmp_path / "a") == contents(tmp_path / "b") == contents(tmp_path / "c")
    kept = sorted((tmp_path / "two" / "units").rglob("*.arrow"))
    assert len(kept) == len(traces) + 2  # a profile of each trace, a stream of each size


@pytest.mark.contract
def test_tables_have_their_columns(cli, tmp_path, traces, target):
    assert cli("predict", *traces, "--target", target, "--sizes", "48", "-o", "out", "--no-report").status == 0
    expected = {
        "predictions": "size: int64, quantity: string, value: double, low: double, high: double, unit: string",
        "times": "size: int64, model: string, cause: string, seconds: double",
        "blocks": "size: int64, kind: string, block_id: int32, function: string, file: string, line: int32, "
        "module: string, offset: int64, executions: int64",
        "profile": "size: int64, block_id: int32, distance: int64, count: double",
    }
    for name, columns in expected.items():
        schema = pq.read_schema(tmp_path / "out" / f"{name}.parquet")
        assert ", ".join(f"{field.name}: {field.type}" for field in schema) == columns
    rows = pq.read_table(tmp_path / "out" / "predictions.parquet").to_pylist()
    found = figures(tmp_path / "out")
    del found["notes"]
    assert {f"size.{row['size']}.{row['quantity']}": row["value"] for row in rows} == found


# -- a program -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.theory
@pytest.mark.parametrize("name", ["matmul", "stencil5"])
def test_a_traced_program_is_predicted_as_it_is(cli, tmp_path, name):
    """The largest trace is not predicted from, but what the prediction is held against."""
    wanted = 72
    traces = {n: memory_programs.traced(name, 1, n).detail.path.parent for n in (16, 24, 32, 40, 48, wanted)}
    inputs = [f"{n}={path}" for n, path in traces.items() if n != wanted]
    target = write_target(tmp_path)
    assert cli("predict", *inputs, "--sizes", wanted, "--target", target, "-o", "out", "--no-report").status == 0
    assert cli("profile", traces[wanted], "--target", target, "--simulate", "-o", "true", "--no-report").status == 0
    found, true = figures(tmp_path / "out"), figures(tmp_path / "true")
    assert found[f"size.{wanted}.accesses"] == pytest.approx(true["memory.accesses"], rel=1e-3)
    for level in ("L1", "L2"):
        expected = true[f"memory.{level}.simulated.hit_ratio"]
        assert found[f"size.{wanted}.{level}.set_aware.hit_ratio"] == pytest.approx(expected, abs=0.002)
        expected = true[f"memory.{level}.sdcm.hit_ratio"]
        assert found[f"size.{wanted}.{level}.sdcm.hit_ratio"] == pytest.approx(expected, abs=0.02)


# -- wrong input -----------------------------------------------------------------------------------------------------


def with_csv(text: str):
    def make(folder: Path, traces: list[str]) -> list[object]:
        (folder / "m.csv").write_text(text)
        return [*traces, "--sizes", "48", "--measured", "m.csv"]

    return make


def two_programs(folder: Path, traces: list[str]) -> list[object]:
    return [*traces[1:], f"8={write_trace(folder, 8, 'other')}", "--sizes", "48"]


def threads(folder: Path, traces: list[str]) -> list[object]:
    from test_streams import shared_out

    from manyscale.runner.readers import workload_folder

    (folder / "made").mkdir()
    workload_folder.write(shared_out(folder / "made", [(0, 0), (0, 1)], 4), folder / "two")
    return ["8=two", *traces[1:], "--sizes", "48"]


OPTIONS = DETAIL / "bs16_O1.lk.xz"
BAD = {
    "no equals sign": (lambda _, t: [t[0].partition("=")[2], *t[1:], "--sizes", "48"], ("write SIZE=TRACE",)),
    "a broken size": (lambda _, t: ["8.5=x", *t[1:], "--sizes", "48"], ("'8.5=x'", "write SIZE=TRACE")),
    "one size twice": (lambda _, t: [*t, t[0], "--sizes", "48"], ("two traces have the same size",)),
    "two inputs": (lambda _, t: [*t[:2], "--sizes", "48"], ("2 inputs cannot be extrapolated", "at least 3")),
    "one input": (lambda _, t: [t[0], "--sizes", "48"], ("1 inputs cannot be extrapolated", "at least 3")),
    "sizes in words": (lambda _, t: [*t, "--sizes", "48,many"], ("--sizes '48,many'", "100,200,400")),
    "size zero": (lambda _, t: [*t, "--sizes", "0"], ("--sizes '0'",)),
    "no file": (lambda _, t: ["4=nowhere", *t, "--sizes", "48"], ("nowhere: does not exist",)),
    "no detailed level": (
        lambda _, t: [*t, f"7={DETAIL / 'phases.m.bb.xz'}", "--sizes", "48"],
        ("phases.m.bb.xz", "no detailed level"),
    ),
    "two threads": (threads, ("two: holds 2 threads", "one thread")),
    "another program": (two_programs, ("size 8: 100% of the accesses", "no other trace runs", "trace one binary")),
    "two formats": (
        lambda _, t: [*t[1:], f"8={OPTIONS}", "--sizes", "48"],
        ("size 8: 100% of the accesses", "trace one binary"),
    ),
    "no such CSV": (lambda _, t: [*t, "--sizes", "48", "--measured", "no.csv"], ("no.csv: cannot be read",)),
    "other columns": (with_csv("n,time\n48,1\n"), ("m.csv, line 2", "the columns size and seconds")),
    "text for seconds": (with_csv("size,seconds\n40,1\n48,soon\n"), ("m.csv, line 3", "with numbers")),
    "a cell too few": (with_csv("size,seconds\n48\n"), ("m.csv, line 2",)),
    "seconds below zero": (with_csv("size,seconds\n48,-1\n"), ("m.csv, line 2", "above zero")),
    "not a number": (with_csv("size,seconds\n48,nan\n"), ("m.csv, line 2", "above zero")),
    "a size twice": (with_csv("size,seconds\n48,1\n\n48,2\n"), ("m.csv, line 4", "each size once")),
    "an empty CSV": (with_csv(""), ("m.csv: holds no row",)),
    "a binary CSV": (with_csv("\0\0"), ("m.csv",)),
    "no caches": (lambda _, t: [*t, "--sizes", "48", "--target", "fattree256"], ("fattree256: node.caches",)),
    "unknown target": (lambda _, t: [*t, "--sizes", "48", "--target", "nosuch"], ("unknown target 'nosuch'",)),
    "unknown parameter": (
        lambda _, t: [*t, "--sizes", "48", "--set", "amm.gap=8"],
        ("--set amm.gap: unknown parameter", "gap_bytes"),
    ),
    "no value": (
        lambda _, t: [*t, "--sizes", "48", "--set", "amm.gap_bytes"],
        ("--set 'amm.gap_bytes': write KEY=VALUE",),
    ),
    "a truth for a number": (
        lambda _, t: [*t, "--sizes", "48", "--set", "amm.gap_bytes=true"],
        ("gap_bytes", "no number"),
    ),
    "endless gaps": (lambda _, t: [*t, "--sizes", "48", "--set", "amm.gap_bytes=.inf"], ("gap_bytes", "no number")),
    "gaps of a kind": (lambda _, t: [*t, "--sizes", "48", "--set", "amm.gap_bytes=wide"], ("gap_bytes", "no number")),
    "gaps below zero": (lambda _, t: [*t, "--sizes", "48", "--set", "amm.gap_bytes=-1"], ("--set amm.gap_bytes: ",)),
    "other bound": (
        lambda _, t: [*t, "--sizes", "48", "--set", "amm.bound=both"],
        ("unknown value 'both'; known are throughput, latency",),
    ),
    "no sizes": (lambda _, t: t, ("--sizes",)),
}


@pytest.mark.contract
@pytest.mark.parametrize("case", BAD)
def test_wrong_input_is_one_line_and_leaves_nothing(cli, refused, tmp_path, traces, case):
    make, needles = BAD[case]
    words = make(tmp_path, traces)
    refused(cli("predict", *words, "-o", "out"), *needles)
    assert not (tmp_path / "out").exists()
