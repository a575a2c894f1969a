"""``manyscale profile``: its figures against the plainest caches there are, its files, and input that is wrong."""

from __future__ import annotations

import json
import lzma
import os
import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import plotly.graph_objects as go
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from naive import (
    COLD,
    DETAIL,
    SMALL,
    SMALL_GEOMETRIES,
    lackey_accesses,
    line_accesses,
    lines_of,
    misses,
    sdcm_hit_ratio,
    stack_distances,
    write_target,
)
from report.test_report import Outline, check_self_contained
from test_streams import shared_out

from manyscale.models.workload.detail_tables import InstructionClass
from manyscale.runner.readers import workload_folder
from manyscale.runner.readers.stores import detail_store
from manyscale.runner.run import directory as rundir

MATMUL = DETAIL / "matmul25_O1.lk.xz"
OPTIONS = DETAIL / "bs16_O1.lk.xz"
SHARED = os.environ.get("MANYSCALE_DATA")
TABLES = [f"{name}.parquet" for name in ("blocks", "counters", "hit_rates", "miss_ratio_curve", "profile")]
FILES = [*TABLES, "report.html", "stats.json", "stats.txt", "transitions.parquet"]

HITS_AND_MISSES = ("load_hits", "load_misses", "store_hits", "store_misses")


def figures(directory: Path) -> dict[str, float]:
    return {name: figure["value"] for name, figure in json.loads((directory / "stats.json").read_text()).items()}


def distances_in(directory: Path) -> Counter[int]:
    """Accesses by distance, all sites together."""
    table = pq.read_table(directory / "profile.parquet")
    found: Counter[int] = Counter()
    for distance, count in zip(table.column("distance").to_pylist(), table.column("count").to_pylist(), strict=True):
        found[distance] += count
    return found


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.name != "manifest.json"}


# -- figures ---------------------------------------------------------------------------------------------------------


@pytest.mark.golden
@pytest.mark.parametrize("trace", [MATMUL, OPTIONS])
def test_figures_are_those_of_plain_caches(cli, tmp_path, trace):
    target = write_target(tmp_path)
    assert cli("profile", trace, "--target", target, "--simulate", "-o", "out").status == 0
    accesses = lackey_accesses(trace)
    lines = lines_of(accesses)
    expected = stack_distances(lines)
    assert distances_in(tmp_path / "out") == expected
    found = figures(tmp_path / "out")
    assert found["memory.accesses"] == len(lines)
    assert found["memory.first_uses"] == len(set(lines))
    assert found["memory.stores"] == len(lines_of(access for access in accesses if access[2]))
    missing = misses(line_accesses(accesses), *SMALL_GEOMETRIES)
    assert missing[0] > 2 * len(set(lines))  # the caches are too small to make this easy
    for level, (sets, ways), missed in zip(("L1", "L2"), SMALL_GEOMETRIES, missing, strict=True):
        assert found[f"memory.{level}.sdcm.hit_ratio"] == pytest.approx(sdcm_hit_ratio(expected, sets * ways, ways))
        assert found[f"memory.{level}.simulated.hit_ratio"] == pytest.approx(1 - missed / len(lines), abs=1e-12)
    assert found["memory.L2.simulated.conditional_hit_ratio"] == pytest.approx(1 - missing[1] / missing[0], abs=1e-12)
    curve = pq.read_table(tmp_path / "out" / "miss_ratio_curve.parquet").to_pydict()
    for units, size, ratio in zip(curve["units"], curve["size_bytes"], curve["miss_ratio"], strict=True):
        held = sum(count for distance, count in expected.items() if COLD < distance < units)
        assert size == 64 * units
        assert ratio == pytest.approx(1 - held / len(lines), abs=1e-12)
    assert ratio == pytest.approx(len(set(lines)) / len(lines), abs=1e-12)  # the last one holds all
    (fully_associative,) = misses(line_accesses(accesses), (1, curve["units"][6]))
    assert curve["miss_ratio"][6] == pytest.approx(fully_associative / len(lines), abs=1e-12)


@pytest.mark.peer
@pytest.mark.skipif(SHARED is None, reason="needs the collection of traces (MANYSCALE_DATA)")
def test_misses_of_a_whole_program(cli, tmp_path):
    """On which cachegrind, Dinero IV and pycachesim agree (data/README, mem)."""
    target = write_target(
        tmp_path, "{L1: {size: 32 KiB, line: 64 B, ways: 8}, L2: {size: 1 MiB, line: 64 B, ways: 16}}"
    )
    trace = Path(SHARED or "") / "mem" / "mm100_full_lackey.npz"
    assert cli("profile", trace, "--target", target, "--simulate", "-o", "out", "--no-report").status == 0
    found = figures(tmp_path / "out")
    missed = [(1 - found[f"memory.{name}.simulated.hit_ratio"]) * found["memory.accesses"] for name in ("L1", "L2")]
    assert missed == pytest.approx([131_671, 4_026], abs=0.01)


@pytest.mark.theory
def test_threads_of_a_core_have_half_of_its_caches_each(cli, tmp_path):
    """Of a target that names two, as of one whose caches are half as large; it is said that this is assumed."""
    cost = "{latency: 1 cycles, reciprocal_throughput: 1 cycles}"
    costs = ", ".join(f"{each.name}: {cost}" for each in InstructionClass)
    core = (
        "core: {width: 4, reorder_buffer: 64, loads_per_cycle: 2, stores_per_cycle: 1, line_fill_buffers: 8, "
        f"store_to_load: 4 cycles, hardware_threads: 2, instructions: {{{costs}}}}}"
    )
    halves = "{L1: {size: 1 KiB, line: 64 B, ways: 2}, L2: {size: 4 KiB, line: 64 B, ways: 4}}"
    found = []
    for name, caches in (("half", halves), ("both", f"{SMALL}\n  {core}")):
        words = ["--target", write_target(tmp_path, caches), "--simulate", "--no-report", "-o", name]
        outcome = cli("profile", OPTIONS, *words)
        assert outcome.status == 0
        assert ("changes [hardware-threads] small: threads" in outcome.out + outcome.err) == (name == "both")
        found.append({key: value for key, value in figures(tmp_path / name).items() if "hit_ratio" in key})
    assert found[0] == found[1]
    assert len(found[0]) >= 4


@pytest.mark.contract
@pytest.mark.parametrize(("options", "is_told"), [((), False), (("--prefetch",), True)])
def test_simulated_prefetchers_are_said_not_to_be_interrupted(cli, tmp_path, options, is_told):
    words = ("--target", DETAIL.parent / "memory" / "epyc_zen5.yaml", "--simulate", "--no-report", *options)
    outcome = cli("profile", OPTIONS, *words, "-o", "out")
    assert outcome.status == 0
    assert ("[interrupted-prefetchers]" in outcome.out + outcome.err) == is_told


@pytest.mark.golden
@pytest.mark.parametrize("name", ["byte", "word"])
def test_fine_units_are_addresses(cli, tmp_path, name):
    outcome = cli("profile", OPTIONS, "--granularity", name, "-o", "out")
    assert outcome.status == 0
    size = {"byte": 1, "word": 8}[name]
    assert distances_in(tmp_path / "out") == stack_distances(
        [place // size for place, _, _ in lackey_accesses(OPTIONS)]
    )
    assert f"units of {size} B" in outcome.out
    assert pq.read_table(tmp_path / "out" / "hit_rates.parquet").num_rows == 0  # caches hold lines
    assert "Miss ratio by capacity" in (tmp_path / "out" / "report.html").read_text()


@pytest.mark.theory
def test_steady_is_the_second_of_two_runs(cli, tmp_path):
    (tmp_path / "twice.lk").write_bytes(2 * lzma.decompress(OPTIONS.read_bytes()))
    target = write_target(tmp_path)
    for name, trace, *options in (("once", OPTIONS), ("twice", "twice.lk"), ("steady", OPTIONS, "--steady")):
        words = ["--target", target, "--simulate", "--no-report", *options]
        assert cli("profile", trace, *words, "-o", name).status == 0
    once, twice, steady = (distances_in(tmp_path / name) for name in ("once", "twice", "steady"))
    assert steady == twice - once
    assert steady[COLD] == 0 < once[COLD]
    found = {name: figures(tmp_path / name) for name in ("once", "twice", "steady")}
    for level in ("L1", "L2"):
        missed = {
            name: (1 - each[f"memory.{level}.simulated.hit_ratio"]) * each["memory.accesses"]
            for name, each in found.items()
        }
        assert missed["steady"] == pytest.approx(missed["twice"] - missed["once"], abs=1e-6)


@pytest.mark.theory
@pytest.mark.parametrize(
    "sampling", ["blocks --rate 100%", "blocks --rate 20%", "statstack --rate 10%", "shards --rate 50%"]
)
def test_sampled_curves_are_near_the_exact_one(cli, tmp_path, sampling):
    """As the papers measure it: mean absolute error of the miss ratio, here over 60 sizes of equal ratio. Half of the
    1,881 words tell distances to within 1 / sqrt(940) = 3 %, so that the curve's cliffs move as much."""
    words = ["--granularity", "word", "--no-report"]
    assert cli("profile", MATMUL, *words, "-o", "exact").status == 0
    assert cli("profile", MATMUL, *words, "--method", *sampling.split(), "--seed", 3, "-o", "sampled").status == 0
    curves = []
    for name in ("exact", "sampled"):
        curve = pq.read_table(tmp_path / name / "miss_ratio_curve.parquet").to_pydict()
        curves.append(np.interp(np.geomspace(1, 2500, 60), curve["units"], curve["miss_ratio"]))
    assert np.ptp(curves[0]) > 0.9
    assert np.abs(curves[0] - curves[1]).mean() < 0.03
    is_whole = sampling == "blocks --rate 100%"  # all executions of blocks are a sample without error
    assert (distances_in(tmp_path / "sampled") == distances_in(tmp_path / "exact")) == is_whole


@pytest.mark.theory
def test_a_share_of_the_sets_tells_its_error(cli, tmp_path):
    target = write_target(tmp_path)
    outcome = cli("profile", MATMUL, "--target", target, "--simulate", "50%", "-o", "some")
    cli("profile", MATMUL, "--target", target, "--simulate", "-o", "all", "--no-report")
    sampled = json.loads((tmp_path / "some" / "stats.json").read_text())
    exact = figures(tmp_path / "all")
    for level in ("L1", "L2"):
        figure = sampled[f"memory.{level}.simulated.hit_ratio"]
        assert figure["ci_low"] < figure["value"] < figure["ci_high"]
        assert figure["value"] == pytest.approx(exact[f"memory.{level}.simulated.hit_ratio"], abs=0.1)
    assert outcome.out.count(" ± ") == 2
    assert " ± " in (tmp_path / "some" / "report.html").read_text()


# -- several threads -------------------------------------------------------------------------------------------------

SHARED_L2 = (
    "{L1: {size: 2 KiB, line: 64 B, ways: 2}, L2: {size: 8 KiB, line: 64 B, ways: 4, shared_by_cores: 2}}"
)  # fmt: skip


@pytest.fixture
def two_threads(tmp_path) -> Path:
    """The trace of Black-Scholes, its blocks dealt out to two threads of a rank."""
    (tmp_path / "made").mkdir()
    workload_folder.write(shared_out(tmp_path / "made", [(0, 0), (0, 1)], 40), tmp_path / "two")
    return tmp_path / "two"


def threads_of(folder: Path) -> list[list[tuple[int, bool]]]:
    """The lines that each thread accesses, and whether it stores."""
    workload = workload_folder.read(folder)
    static = workload.tables["block_accesses"].to_pylist()
    found: list[list[tuple[int, bool]]] = [[], []]
    for segment, thread in enumerate(workload.column("segments", "thread").tolist()):
        batch = workload.detail.read(segment, segment + 1)
        its = [row for block in batch.block_ids.tolist() for row in static if row["block_id"] == block]
        addresses = zip(batch.addresses.tolist(), its, strict=True)
        found[thread] += line_accesses((address, row["bytes"], row["is_store"]) for address, row in addresses)
    return found


@pytest.mark.golden
def test_threads_together_share_a_cache_in_turns(cli, tmp_path, two_threads):
    target = write_target(tmp_path, SHARED_L2)
    outcome = cli("profile", two_threads, "--target", target, "--together", "--simulate", "-o", "out")
    assert outcome.status == 0, outcome.err
    one, other = ([line for line, _ in mine] for mine in threads_of(two_threads))
    alone = stack_distances(one) + stack_distances(other)
    longest = max(len(one), len(other))
    turns = [line for i in range(longest) for mine in (one, other) for line in mine[i : i + 1]]
    found = figures(tmp_path / "out")
    assert distances_in(tmp_path / "out") == alone
    assert found["memory.L1.sdcm.hit_ratio"] == pytest.approx(sdcm_hit_ratio(alone, 32, 2))
    assert found["memory.L2.sdcm.hit_ratio"] == pytest.approx(sdcm_hit_ratio(stack_distances(turns), 128, 4))
    assert found["memory.L2.simulated.hit_ratio"] >= found["memory.L1.simulated.hit_ratio"] > 0.5
    blocks = pq.read_table(tmp_path / "out" / "blocks.parquet").to_pandas()
    for level in ("L1", "L2"):
        for model, column in (("sdcm", "hit_ratio"), ("simulated", "simulated_hit_ratio")):
            weighed = (blocks["share"] * blocks[f"{level}_{column}"]).sum()
            assert weighed == pytest.approx(found[f"memory.{level}.{model}.hit_ratio"])


@pytest.mark.golden
def test_threads_are_alone_unless_asked(cli, tmp_path, two_threads):
    target = write_target(tmp_path, SHARED_L2)
    assert cli("profile", two_threads, "--target", target, "--simulate", "-o", "out").status == 0
    streams = threads_of(two_threads)
    found = figures(tmp_path / "out")
    missed = np.sum([misses(lines, *SMALL_GEOMETRIES) for lines in streams], axis=0)
    for level, count in zip(("L1", "L2"), missed, strict=True):
        expected = 1 - count / sum(map(len, streams))
        assert found[f"memory.{level}.simulated.hit_ratio"] == pytest.approx(expected, abs=1e-12)
    assert "2 threads have been profiled each for itself" in (tmp_path / "out" / "report.html").read_text()
    assert cli("profile", two_threads, "--target", target, "--thread", 1, "-o", "one", "--no-report").status == 0
    assert figures(tmp_path / "one")["memory.accesses"] == len(streams[1])


# -- files -----------------------------------------------------------------------------------------------------------


@pytest.mark.contract
def test_tables_have_their_columns(cli, tmp_path):
    assert cli("profile", OPTIONS, "-o", "out", "--simulate", "--no-report").status == 0
    expected = {
        "profile": "rank: int32, thread: int32, block_id: int32, site: int32, is_store: bool, distance: int64, "
        "count: double",
        "blocks": "block_id: int32, function: string, file: string, line: int32, offset: int64, executions: int64, "
        "accesses: double, share: double, first_uses: double, "
        + ", ".join(f"{name}_hit_ratio: double, {name}_simulated_hit_ratio: double" for name in ("L1D", "L2", "L3")),
        "hit_rates": "level: string, model: string, size_bytes: int64, ways: int64, line_bytes: int64, "
        "hit_ratio: double, conditional_hit_ratio: double",
        "miss_ratio_curve": "size_bytes: int64, units: int64, miss_ratio: double",
        "transitions": "source_block_id: int32, target_block_id: int32, count: int64, probability: double",
        "counters": "level: string, block_id: int32, counter: string, count: int64",
    }
    for name, columns in expected.items():
        schema: pa.Schema = pq.read_schema(tmp_path / "out" / f"{name}.parquet")
        assert ", ".join(f"{field.name}: {field.type}" for field in schema) == columns
    blocks = pq.read_table(tmp_path / "out" / "blocks.parquet").to_pydict()
    counters = pq.read_table(tmp_path / "out" / "counters.parquet").to_pandas()
    first = counters[(counters.level == "L1D") & counters.counter.isin(HITS_AND_MISSES)]
    by_block = first.groupby("block_id")["count"].sum().to_dict()
    assert by_block == dict(zip(blocks["block_id"], blocks["accesses"], strict=True))
    transitions = pq.read_table(tmp_path / "out" / "transitions.parquet").to_pandas()
    leaving = transitions.groupby("source_block_id")["probability"].sum()
    assert (leaving <= 1 + 1e-12).all()
    assert (leaving < 1 - 1e-12).sum() <= 1  # but for the last block
    profile = pq.read_table(tmp_path / "out" / "profile.parquet").to_pandas().groupby("block_id")["count"].sum()
    assert dict(zip(blocks["block_id"], blocks["accesses"], strict=True)) == profile.to_dict()
    assert sum(blocks["share"]) == pytest.approx(1)
    assert blocks["accesses"] == sorted(blocks["accesses"], reverse=True)
    rates = pq.read_table(tmp_path / "out" / "hit_rates.parquet").to_pylist()
    ratios = np.array(blocks["L1D_simulated_hit_ratio"]) @ np.array(blocks["share"])
    assert ratios == pytest.approx(
        next(r["hit_ratio"] for r in rates if (r["level"], r["model"]) == ("L1D", "simulated"))
    )


@pytest.mark.contract
def test_files_are_the_same_each_time_and_however_the_trace_is_cut(cli, tmp_path, monkeypatch):
    words = ["--simulate", "--executor", "local"]
    assert cli("profile", MATMUL, *words, "-o", "a", "--cache", "one").status == 0
    assert cli("profile", MATMUL, *words, "-o", "b", "--cache", "one").status == 0  # from the cache
    monkeypatch.setattr(detail_store, "CHUNK_SIZE", 300)
    assert cli("profile", MATMUL, *words, "-o", "c", "--cache", "two").status == 0
    assert sorted(contents(tmp_path / "a")) == FILES
    assert contents(tmp_path / "a") == contents(tmp_path / "b") == contents(tmp_path / "c")
    num_units = [len(list((tmp_path / cache / "units").rglob("*.arrow"))) for cache in ("one", "two")]
    assert num_units[0] == 1 < 10 < num_units[1], num_units


@pytest.mark.slow
@pytest.mark.contract
def test_ray_gives_the_same_bytes(cli, tmp_path, monkeypatch):
    monkeypatch.setattr(detail_store, "CHUNK_SIZE", 300)
    assert cli("profile", MATMUL, "--executor", "local", "-o", "local", "--cache", "one").status == 0
    outcome = cli("profile", MATMUL, "--executor", "ray", "--workers", 2, "-o", "ray", "--cache", "two")
    assert outcome.status == 0, outcome.err
    assert contents(tmp_path / "local") == contents(tmp_path / "ray")


def checked_page(path: Path) -> Outline:
    """A page that is whole: it fetches nothing, and plotly knows all that its figures say."""
    html = path.read_text(encoding="utf-8")
    assert len(html.encode()) < 6_000_000
    page = check_self_contained(html)
    for chart in page.charts.values():
        assert chart["kind"] == "figure"
        go.Figure(data=chart["data"], layout=chart["layout"])  # raises for what plotly does not know
        for choice in chart.get("choices", []):
            assert len(choice["shown"]) == len(chart["data"])
    return page


@pytest.mark.contract
def test_the_page_shows_the_figures(cli, tmp_path):
    target = write_target(tmp_path)
    assert cli("profile", MATMUL, "--target", target, "--simulate", "-o", "out").status == 0
    page = checked_page(tmp_path / "out" / "report.html")
    assert set(page.charts) == {"profile", "curve", "levels"}
    found = figures(tmp_path / "out")
    lines = page.text.split("\n")
    assert f"{found['memory.accesses']:,.0f}" in lines
    for level in ("L1", "L2"):
        for model in ("sdcm", "simulated"):
            assert f"{100 * found[f'memory.{level}.{model}.hit_ratio']:.1f} %" in lines
    bars = page.charts["profile"]["data"]
    expected = distances_in(tmp_path / "out")
    shown = sum(sum(bar["y"]) for bar in bars) * found["memory.accesses"]
    assert shown == pytest.approx(found["memory.accesses"] - expected[COLD], rel=1e-4)
    at_zero = sum(y for bar in bars for x, y in zip(bar["x"], bar["y"], strict=True) if x == 0.5)
    assert at_zero == pytest.approx(expected[0] / found["memory.accesses"], rel=1e-4)


# -- wrong input -----------------------------------------------------------------------------------------------------


def small(caches: str):
    return lambda folder: [OPTIONS, "--target", write_target(folder, caches)]


def cut_text(folder: Path) -> list[object]:
    (folder / "cut.lk.xz").write_bytes(MATMUL.read_bytes()[:9000])
    return ["cut.lk.xz"]


def cut_stream(folder: Path) -> list[object]:
    made = shared_out(folder, [(0, 0)], 2)
    workload_folder.write(made, folder / "cut")
    stream = folder / "cut" / "detail.stream"
    os.truncate(stream, stream.stat().st_size - 40)
    return ["cut"]


def damaged_stream(folder: Path) -> list[object]:
    made = shared_out(folder, [(0, 0)], 2)
    workload_folder.write(made, folder / "damaged")
    content = bytearray((folder / "damaged" / "detail.stream").read_bytes())
    content[60] ^= 0xFF
    (folder / "damaged" / "detail.stream").write_bytes(content)
    return ["damaged"]


BAD = {
    "no detailed level": (lambda _: [DETAIL / "phases.m.bb.xz"], ("phases.m.bb.xz", "no detailed level", "--level")),
    "a text cut short": (cut_text, ("cut.lk.xz", "cut short", "again")),
    "a stream cut short": (cut_stream, ("detail.stream", "cut short", "trace the program again")),
    "a damaged stream": (damaged_stream, ("detail.stream", "damaged", "trace the program again")),
    "no file": (lambda _: ["nowhere"], ("nowhere: does not exist",)),
    "unknown target": (lambda _: [OPTIONS, "--target", "nosuch"], ("unknown target 'nosuch'", "laptop")),
    "no caches": (lambda _: [OPTIONS, "--target", "fattree256"], ("fattree256: node.caches names no data cache",)),
    "no ways": (small("{L1: {size: 2 KiB, line: 64 B}}"), ("node.caches.L1.ways is not given",)),
    "no line": (small("{L1: {size: 2 KiB, ways: 2}}"), ("node.caches.L1.line is not given",)),
    "lines of two sizes": (
        small("{L1: {size: 2 KiB, line: 32 B, ways: 2}, L2: {size: 8 KiB, line: 64 B, ways: 4}}"),
        ("lines of different sizes",),
    ),
    "a line of 48 B": (small("{L1: {size: 480 B, line: 48 B, ways: 2}}"), ("L1", "48 B is not a power of two")),
    "half a set": (small("{L1: {size: 2 KiB, line: 64 B, ways: 5}}"), ("32 lines cannot be divided into sets of 5",)),
    "half a line": (small("{L1: {size: 2000 B, line: 64 B, ways: 2}}"), ("no whole number of lines",)),
    "other lines": (lambda _: [OPTIONS, "--granularity", "128 B"], ("lines of 64 B", "leave the option out")),
    "odd units": (lambda _: [OPTIONS, "--granularity", "100 B"], ("100 B", "power of two")),
    "no unit": (lambda _: [OPTIONS, "--granularity", "64"], ("--granularity", "no unit")),
    "caches of bytes": (lambda _: [OPTIONS, "--granularity", "byte", "--simulate"], ("leave --granularity out",)),
    "no such rank": (lambda _: [OPTIONS, "--rank", 1], ("--rank and --thread leave nothing", "rank 0 thread 0")),
    "no rate": (lambda _: [OPTIONS, "--method", "shards", "--rate", "0"], ("--rate '0'", "such as '1 %'")),
    "too few units": (lambda _: [OPTIONS, "--method", "shards", "--rate", "9%"], ("rank 0 thread 0", "--rate")),
    "no sets": (lambda _: [OPTIONS, "--simulate", "0%"], ("--simulate '0%'",)),
    "sets together": (lambda _: [OPTIONS, "--together", "--simulate", "5%"], ("--simulate takes no share",)),
    "a negative seed": (lambda _: [OPTIONS, "--seed", -1], ("--seed -1",)),
}


@pytest.mark.contract
@pytest.mark.parametrize("case", BAD)
def test_wrong_input_is_one_line_and_leaves_nothing(cli, refused, tmp_path, case):
    make, needles = BAD[case]
    words = make(tmp_path)
    refused(cli("profile", *words, "-o", "out"), *needles)
    assert not (tmp_path / "out").exists()


@pytest.mark.contract
def test_a_folder_in_use_is_kept(cli, refused, tmp_path):
    assert cli("profile", OPTIONS, "-o", "out", "--no-report").status == 0
    before = contents(tmp_path / "out")
    refused(cli("profile", MATMUL, "-o", "out"), "out: is not empty")
    assert contents(tmp_path / "out") == before
    shutil.copy(OPTIONS, tmp_path / "file")
    refused(cli("profile", OPTIONS, "-o", "file"), "file: is a file")


# -- the least that there can be -------------------------------------------------------------------------------------

ONE_BLOCK = "I  0400d7d4,8\n L 1ffefff000,8\n S 1ffefff008,8\n L 7fefe0584,4\n M 1ffefff040,8\nI  0400d7dc,4\n"


@pytest.mark.parametrize(
    ("text", "accesses", "first_uses"),
    [
        (f"==1234== Lackey, an example Valgrind tool\n{ONE_BLOCK} L 1ffefff000,8\n", 6, 3),
        ("I  0400d7d4,8\n L 10,8\n", 1, 1),
        ("I  0400d7d4,8\n L 10,8\nI  0500d7d4,8\n S 10,8\n", 2, 1),
    ],
)
@pytest.mark.parametrize("method", ["exact", "blocks", "blocks-statstack"])
def test_blocks_that_never_follow_one_another(cli, tmp_path, text, accesses, first_uses, method):
    """A change of a word is a load and a store; the addresses are in as many lines of 64 B as there are first uses."""
    (tmp_path / "a.lk").write_text(text)
    outcome = cli("profile", "a.lk", "--method", method, "--rate", "100 %", "--simulate", "-o", "out")
    assert outcome.status == 0
    found = figures(tmp_path / "out")
    assert (found["memory.accesses"], found["memory.first_uses"]) == (accesses, first_uses)
    transitions = pq.read_table(tmp_path / "out" / "transitions.parquet").to_pydict()
    assert sum(transitions["count"]) == found["memory.blocks"] - 1


@pytest.mark.contract
@pytest.mark.parametrize("method", ["statstack", "shards"])
def test_a_sample_of_nothing_is_one_line(cli, tmp_path, method):
    (tmp_path / "a.lk").write_text("I  0400d7d4,8\n L 10,8\n")
    outcome = cli("profile", "a.lk", "--method", method, "-o", "out")
    assert outcome.status == 2
    assert "sample more with --rate, or use --method exact" in outcome.err
    assert outcome.err.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.contract
def test_results_that_cannot_be_written_leave_nothing(tmp_path):
    for there in (False, True):
        output = tmp_path / f"out{there}"
        if there:
            output.mkdir()

        def interrupted(output: Path = output) -> None:
            with rundir.new_results(output, "a") as directory:
                (directory / "a.parquet").write_text("half")
                (directory / "kept").mkdir()
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            interrupted()
        assert output.exists() is there
        assert not there or not list(output.iterdir())
