"""``manyscale calibrate --node``: what the system says, what curves say, and a real measurement."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from scipy.special import lambertw

from manyscale.models.machine.processor import data_caches
from manyscale.runner.errors import UserError
from manyscale.runner.problems import load_yaml
from manyscale.runner.run.calibration import fit, measure
from manyscale.runner.run.calibration import node as calibrate_node
from manyscale.runner.run.calibration.last_cache import left_of_last_cache
from manyscale.runner.run.calibration.lines_ahead import lines_ahead
from manyscale.runner.run.calibration.measure import Figure
from manyscale.runner.run.calibration.system_caches import System, SystemCache, read_system
from manyscale.runner.study import parse_study
from manyscale.runner.study.targets import build_machine, resolve_target

KIB, MIB = 2**10, 2**20
Cache = tuple[int, str, str, int | None, str]  # level, type, size, ways, CPUs that share it

ZEN: list[Cache] = [
    (1, "Data", "32K", 8, "0,4"), (1, "Instruction", "32K", 8, "0,4"), (2, "Unified", "1024K", 8, "0,4"),
    (3, "Unified", "32768K", 16, "0-7"),
]  # fmt: skip
INTEL: list[Cache] = [
    (1, "Data", "48K", 12, "0"), (1, "Instruction", "32K", 8, "0"), (2, "Unified", "2048K", 16, "0"),
    (3, "Unified", "36M", 12, "0-7"),
]  # fmt: skip
ARM: list[Cache] = [(1, "Data", "64K", None, "0"), (2, "Unified", "1024K", None, "0"), (3, "Unified", "", None, "")]
GETCONF = "LEVEL1_DCACHE_SIZE  65536\nLEVEL1_DCACHE_ASSOC  4\nLEVEL1_DCACHE_LINESIZE  64\nLEVEL2_CACHE_SIZE  524288\n"


def fake_system(root: Path, caches: list[Cache], cpus: int = 8, threads: int = 1, name: str = "Fake CPU") -> Path:
    """A tree as Linux shows it; with two threads per core, CPU i and i + cpus / 2 are one core."""
    for cpu in range(cpus):
        topology = root / f"sys/devices/system/cpu/cpu{cpu}/topology"
        topology.mkdir(parents=True)
        (topology / "physical_package_id").write_text("0\n")
        (topology / "core_id").write_text(f"{cpu % (cpus // threads)}\n")
    for number, (level, kind, size, ways, shared) in enumerate(caches):
        folder = root / f"sys/devices/system/cpu/cpu0/cache/index{number}"
        folder.mkdir(parents=True)
        values = {"level": level, "type": kind, "size": size, "coherency_line_size": 64, "shared_cpu_list": shared}
        values |= {} if ways is None else {"ways_of_associativity": ways}
        for key, value in values.items():
            if value != "":
                (folder / key).write_text(f"{value}\n")
    (root / "proc").mkdir()
    (root / "proc/cpuinfo").write_text(f"processor : 0\nmodel name\t: {name}\nflags\t\t: fpu hypervisor fma\n")
    (root / "proc/meminfo").write_text("MemTotal:       16777216 kB\nMemFree: 1 kB\n")
    return root


def read(root: Path, getconf: str = "", core: int | None = 0, sizes: dict[str, int] | None = None) -> System:
    return read_system(core, sizes, root, lambda: getconf, frozenset(range(8)))


def test_caches_of_amd(tmp_path: Path) -> None:
    """Two threads per core: eight CPUs that share L3 are four cores."""
    system = read(fake_system(tmp_path, ZEN, threads=2))
    assert list(system.caches) == ["L1D", "L1I", "L2", "L3"]
    assert system.caches["L1D"] == SystemCache(32 * KIB, 64, 8, 1)
    assert system.caches["L3"] == SystemCache(32 * MIB, 64, 16, 4)
    assert (system.num_sockets, system.cores_per_socket, system.core_cpus) == (1, 4, (0, 1, 2, 3))
    assert (system.cpu_name, system.hypervisor, system.memory_bytes) == ("Fake CPU", True, 16 * 1024 * MIB)
    assert system.missing == ()


def test_caches_of_intel(tmp_path: Path) -> None:
    system = read(fake_system(tmp_path, INTEL))
    assert system.caches["L1D"] == SystemCache(48 * KIB, 64, 12, 1)
    assert system.caches["L3"] == SystemCache(36 * MIB, 64, 12, 8)
    assert list(system.data_caches) == ["L1D", "L2", "L3"]


def test_caches_without_ways_are_told(tmp_path: Path) -> None:
    system = read(fake_system(tmp_path, ARM))
    assert system.caches == {"L1D": SystemCache(64 * KIB, 64, None, 1), "L2": SystemCache(MIB, 64, None, 1)}
    assert system.missing == ("the ways of L1D", "the ways of L2", "the size of L3")


def test_ways_that_do_not_fit_are_left_out(tmp_path: Path) -> None:
    """As hypervisors tell of a cache of which they give a part."""
    system = read(fake_system(tmp_path, [(3, "Unified", "33M", 16, "0"), (2, "Unified", "100K", 7, "0")]))
    assert {name: cache.ways for name, cache in system.caches.items()} == {"L2": None, "L3": 16}


def test_without_sysfs_getconf_is_asked(tmp_path: Path) -> None:
    system = read(fake_system(tmp_path, []), GETCONF)
    assert system.caches == {"L1D": SystemCache(64 * KIB, 64, 4, 1), "L2": SystemCache(512 * KIB, 64, None, 1)}
    assert "which cores share a cache (sizes are from getconf)" in system.missing


def test_hidden_caches_are_refused_and_can_be_given(tmp_path: Path) -> None:
    root = fake_system(tmp_path, [])
    with pytest.raises(
        UserError, match=r"no caches are found .* give their sizes by hand, such as --set L1D="
    ) as error:
        read(root, "LEVEL1_DCACHE_SIZE 0\n")
    assert "\n" not in str(error.value)
    system = read(root, sizes={"L2": MIB, "L1D": 32 * KIB})
    assert list(system.caches) == ["L1D", "L2"]


def test_a_given_size_replaces_that_of_the_system(tmp_path: Path) -> None:
    system = read(fake_system(tmp_path, ZEN), sizes={"L3": 8 * MIB})
    assert system.caches["L3"] == SystemCache(8 * MIB, 64, 16, 8)


def test_a_core_that_may_not_be_used_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="--core 9: this process may not use it; name one of 0, 1, 2"):
        read(fake_system(tmp_path, ZEN), core=9)


SHARED = System("", True, 1, 2, (0, 1), 4096, None, {"L3": SystemCache(32 * MIB, 64, 16, 2)}, ())
SIZES = [size for octave in range(12, 28) for size in (2**octave, 3 * 2**octave // 2)]


def staircase(size: int, sharp: bool = True) -> float:
    """4, 14 and 50 cycles in 32 KiB, 1 MiB and 16 MiB, 400 beyond; not sharp: in the octave around each capacity the
    next level serves a growing share."""
    steps = [(32 * KIB, 4.0), (MIB, 14.0), (16 * MIB, 50.0), (None, 400.0)]
    for (capacity, value), (_, after) in zip(steps, [*steps[1:], (None, 0.0)], strict=True):
        if capacity is None or size <= (capacity if sharp else 0.7 * capacity):
            return value
        if not sharp and size < 2 * capacity:
            return value + (after - value) * (size / (0.7 * capacity) - 1) / (2 / 0.7 - 1)
    raise AssertionError


CAPACITIES = {"L1D": 32 * KIB, "L2": MIB, "L3": 16 * MIB}
PLATEAUS = {"L1D": 4.0, "L2": 14.0, "L3": 50.0, "memory": 400.0}


@pytest.mark.theory
@pytest.mark.parametrize("sharp", [True, False])
def test_plateaus_come_back(sharp: bool) -> None:
    assert fit.levels({size: staircase(size, sharp) for size in SIZES}, CAPACITIES) == pytest.approx(PLATEAUS)


@pytest.mark.theory
def test_a_cache_that_others_use_keeps_its_latency() -> None:
    """Of 16 MiB, 4 are left: the plateau is that of what is left, and how much is said."""
    curve = {size: 400.0 if size > 4 * MIB else staircase(size) for size in SIZES}
    assert fit.levels(curve, CAPACITIES) == pytest.approx(PLATEAUS)
    assert fit.held_bytes(curve, MIB, 50.0) == 4 * MIB


def cycled(size: int, held: int) -> float:
    """Loads of a random cycle through a cache of 50 cycles before 650 that lets any of ``held`` bytes give way: the
    hit ratio solves h = exp(-(1 - h) size / held)."""
    ratio = size / held
    hits = float(-lambertw(-ratio * math.exp(-ratio)).real / ratio) if ratio > 1 else 1.0
    return 50 * hits + 650 * (1 - hits)


@pytest.mark.theory
def test_what_is_left_of_a_cache_comes_back() -> None:
    """Of 32 MiB, 20 are left: 69 % of a cycle of 24 MiB and 38 % of one of 32 hit. A cache of one's own shows none."""
    curve = {size: cycled(size, 20 * MIB) for size in SIZES if size > MIB}
    found = fit.mostly_held(curve, MIB, 50, 650)
    assert found == pytest.approx(20 * MIB, rel=1e-6)
    assert left_of_last_cache(SHARED, found) == 20 * MIB
    assert left_of_last_cache(SHARED, 30 * MIB) is None
    assert fit.mostly_held({size: staircase(size) for size in SIZES}, MIB, 50, 400) is None


@pytest.mark.theory
@pytest.mark.parametrize(("ordered", "pages", "prefetcher"), [(9, 65, "2 MiB"), (9, 10, "4 KiB"), (400, 400, None)])
def test_prefetchers_and_page_faults_come_back(
    tmp_path: Path, ordered: float, pages: float, prefetcher: str | None
) -> None:
    """At 400 cycles of memory: lines in order are quick where they are prefetched, pages at random where it begins
    anew in each."""
    system = read(fake_system(tmp_path, ZEN))
    found = figures(system)
    last = measure.working_sets(system, measure.FULL)[-1]
    for name, value in (("ordered", ordered), ("ordered_pages", pages)):
        found[f"{name}:{last}"] = Figure(value / 2, (value / 2,))
    for number in measure.BESIDE:  # five latencies in a page of 64 lines
        found[f"beside:{number}"] = Figure(16.0, (16.0,))
    found["fault:1024"] = Figure(700.0, (700.0,))
    built, content = machine(system, calibrate_node.read_off(found, system, node_read=3.0))
    kept = content["node"]["caches"]["L1D"].get("prefetcher") or {}
    assert kept.get("page") == prefetcher
    assert kept.get("interrupted_page") == ("4 KiB" if prefetcher == "2 MiB" else None)
    measures = "prefetched is measured, and how far ahead where" in content["sources"]["node"]
    assert measures == ("interrupted_page" in kept)
    assert built.node.main_memory is not None
    assert built.node.main_memory.page_fault_ps == 700_000


def test_the_base_s_prefetcher_is_said_to_be_that(tmp_path: Path) -> None:
    system = read(fake_system(tmp_path, ZEN))
    found = figures(system)
    found[f"ordered:{measure.working_sets(system, measure.FULL)[-1]}"] = Figure(4.5, (4.5,))
    measured = calibrate_node.read_off(found, system, node_read=3.0)
    _, content = machine(system, measured, "epyc-zen4")
    assert content["node"]["caches"]["L1D"]["prefetcher"]["streams"] == 16
    assert "is measured; the prefetcher is that of epyc-zen4, whose" in content["sources"]["node"]


@pytest.mark.theory
@pytest.mark.parametrize(("latencies", "distances"), [(14, {4}), (9, {8, 9})])
def test_how_far_ahead_a_prefetcher_is_comes_back(latencies: int, distances: set[int]) -> None:
    """A core that sees a line at a time. Lines 0 and 1 of a page of 64 are not foreseen, lines 2 and 3 come with the
    second of these, lines 4 on a latency later: five of them at a distance of 4, and so on for five (then 12 groups
    more), six and then nine at a distance of 8 (7 groups more), which nobody tells from ten at 9."""
    beside = dict.fromkeys((4, 8), latencies * 1000 / 64)
    few = dict.fromkeys((4, 8), 0.1)
    assert lines_ahead(beside, few, 1000, 40, 1000.0, 64) in distances
    assert lines_ahead(few, few, 1000, 40, 1000.0, 64) is None
    assert lines_ahead(beside, few, 1000, None, 1000.0, 64) is None


@pytest.mark.parametrize(
    ("processes", "told"),
    [
        ((1.0, 1.0, 1.05), None),
        ((1.0, 1.3, 1.0), "best of 3 processes.*main memory differ by 30 % between processes"),
        ((1.0,), "best of 1 processes.*one process alone was done in time"),
    ],
)
def test_a_machine_says_that_its_figures_scatter(
    tmp_path: Path, processes: tuple[float, ...], told: str | None
) -> None:
    system = read(fake_system(tmp_path, [*ZEN[:3], (3, "Unified", "16M", 16, "0-7")]))
    found = {
        name: Figure(each.best, tuple(each.best * factor for factor in processes))
        for name, each in figures(system).items()
    }
    measured = calibrate_node.read_off(found, system, node_read=3.0)
    assert len(calibrate_node.uncertain(measured)) == (told is not None)
    if told is not None:
        assert re.search(told, machine(system, measured)[1]["sources"]["node"])


@pytest.mark.theory
def test_translation_buffers_come_back() -> None:
    """72 entries for nothing, then 7 cycles up to 3072, a walk of 60 beyond."""
    numbers = [2**k * n // 8 for k in range(4, 13) for n in (8, 9, 10, 12, 14)]
    cost = {pages: 0.0 if pages <= 72 else 7.0 if pages <= 3072 else 60.0 for pages in numbers}
    assert fit.entries(cost) == [(72, 0.0), (3072, 7.0)]
    assert fit.entries(dict.fromkeys(numbers, 0.0)) == []


@pytest.mark.theory
def test_buffers_and_window_come_back() -> None:
    assert fit.buffers({k: 100 / min(k, 12) for k in (1, 2, 4, 8, 12, 16, 32)}) == 12
    times = {number: 100 + number / 10 if number < 224 else 200 + number / 10 for number in range(32, 640, 16)}
    assert fit.window(times) == pytest.approx(224, abs=16)
    assert fit.window(times | {32: 40.0, 48: 60.0}) == pytest.approx(224, abs=16)
    assert fit.window({number: 100 + number / 10 for number in range(32, 640, 16)}) is None


def figures(system: System, without: str = "never") -> dict[str, Figure]:
    """What the benchmark would say of a machine of 2 GHz with ``PLATEAUS``, every instruction 2 cycles."""
    values = {}
    for request in measure.requests(system, measure.FULL):
        name, _, number = request.partition(":")
        value = 2.0
        if name in ("chase", "huge"):
            value = staircase(int(number)) + (20 if name == "chase" and int(number) > 16 * MIB else 0)
        elif name == "pages":
            value = staircase(int(number) * 64) + (0 if int(number) <= 64 else 7 if int(number) <= 1536 else 60)
        elif name in ("read", "read_half", "write", "copy"):
            value = staircase(int(number)) / 400
        elif name == "parallel":
            value = 400 / min(16, int(number))
        elif name in ("window", "vector_window"):
            value = 400.0 if int(number) < 200 else 800.0
        elif name == "clock":
            value = 1.0
        if not re.match(without, request):
            values[request] = Figure(value / 2, (value / 2, value / 2 * 1.1))
    return values


def machine(system: System, measured: calibrate_node.Measured, base: str = "laptop"):  # type: ignore[no-untyped-def]
    _, content = resolve_target(parse_study({"workload": {"path": "-"}, "target": base}, "here"))
    result = calibrate_node.machine_of(content, system, measured, measure.FULL, "none here")
    return build_machine(result, "machine.yaml"), result


@pytest.mark.theory
def test_figures_become_a_machine(tmp_path: Path) -> None:
    system = read(fake_system(tmp_path, [*ZEN[:3], (3, "Unified", "16M", 16, "0-7")]))
    measured = calibrate_node.read_off(figures(system), system, node_read=3.0)
    node = machine(system, measured)[0].node
    assert node.frequency_hz == 2e9
    assert {name: cache.latency_cycles for name, cache in data_caches(node.caches).items()} == {
        "L1D": 4.0, "L2": 14.0, "L3": 50.0,
    }  # fmt: skip
    assert node.caches["L2"].ps_per_byte == pytest.approx(14 / 400 / 2 * 1000, rel=1e-3)
    assert node.caches["L1I"].latency_cycles is None
    assert node.main_memory is not None
    assert node.main_memory.latency_ps == 200_000
    assert node.main_memory.page_walk_cycles == 20
    assert node.main_memory.node_ps_per_byte == pytest.approx(1000 / 3, rel=1e-3)
    assert [(tlb.entries, tlb.latency_cycles) for tlb in node.tlbs.values()] == [(64, 0), (1536, 7)]
    assert node.core is not None
    assert (node.core.line_fill_buffers, node.core.reorder_buffer) == (16, 200)  # from 200 on no overlap
    assert node.core.instructions["fp_sqrt"].latency_cycles == 0.0  # two cycles beside it are taken off
    assert node.core.instructions["fp_add"].latency_cycles == 2.0
    assert node.core.vector_registers == 200


def test_elsewhere_than_on_x86_there_are_no_instructions(tmp_path: Path) -> None:
    """The parts in plain C still make a machine, which says what it lacks."""
    system = read(fake_system(tmp_path, [*ZEN[:3], (3, "Unified", "16M", 16, "0-7")]))
    measured = calibrate_node.read_off(
        figures(system, r"[a-z_]+$(?<!clock)|\w*window|read_half"), system, node_read=3.0
    )
    built, content = machine(system, measured)
    assert built.node.core is None
    assert "no costs of instructions on this architecture" in content["sources"]["node"]


def test_without_huge_pages_it_is_said(tmp_path: Path) -> None:
    system = read(fake_system(tmp_path, [*ZEN[:3], (3, "Unified", "16M", 16, "0-7")]))
    measured = calibrate_node.read_off(figures(system, "huge"), system, node_read=3.0)
    assert measured.latency_cycles["memory"] == 420.0
    assert "no huge pages" in machine(system, measured)[1]["sources"]["node"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "calibrate needs measured ping-pongs, or --node to measure this node"),
        (("--node", "latency.txt"), "calibrate one, then the other with --base DIR/machine.yaml"),
        (("latency.txt", "--quick"), "--quick goes with --node"),
        (("--node", "--cache-size", "node.x=1"), "of a node this sets sizes of caches, such as L1D='32 KiB'"),
        (("--node", "--cache-size", "L3=32"), "--cache-size L3: '32' has no unit"),
        (("--node", "--core", "100000"), "--core 100000: this process may not use it"),
        (("--node", "--base", "cray1"), "unknown target 'cray1'"),
    ],
)
def test_bad_arguments_are_refused_in_one_line(cli, tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:  # type: ignore[no-untyped-def]
    outcome = cli("calibrate", *arguments, "-o", tmp_path / "machine")
    assert outcome.status == 2
    assert message in outcome.err
    assert outcome.err.count("\n") == 1
    assert not (tmp_path / "machine").exists()


def test_without_a_compiler_nothing_is_written(cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setenv("CC", "no-such-compiler")
    outcome = cli("calibrate", "--node", "-o", tmp_path / "machine")
    assert outcome.status == 2
    assert outcome.err == (
        "manyscale: no C compiler 'no-such-compiler' to build the micro-benchmark; install one (Debian: gcc libc6-dev) "
        "or set CC\n"
    )
    assert not (tmp_path / "machine").exists()


def nominal_ghz() -> float | None:
    found = re.search(r"^cpu MHz\s*:\s*([0-9.]+)", Path("/proc/cpuinfo").read_text(), re.M)
    return float(found.group(1)) / 1000 if found else None


@pytest.mark.slow
@pytest.mark.peer
def test_a_real_node(cli: Callable[..., object], tmp_path: Path) -> None:
    """Each level is slower than the one before; the machine is a target. A clock may be up to twice the nominal one:
    /proc/cpuinfo of a virtual machine shows the rate of its time stamps, not the turbo frequency."""
    outcome = cli("calibrate", "--node", "--quick", "-o", tmp_path / "machine")
    assert outcome.status == 0, outcome.err  # type: ignore[attr-defined]
    content = load_yaml(tmp_path / "machine" / "machine.yaml")
    node = build_machine(content, "machine.yaml").node
    assert node.main_memory is not None
    assert node.frequency_hz is not None
    caches = list(data_caches(node.caches).values())
    latencies = [cache.latency_cycles for cache in caches]
    latencies.append(node.main_memory.latency_ps * node.frequency_hz / 1e12)
    assert all(a < b for a, b in pairwise(latencies)), latencies
    costs = [cache.ps_per_byte for cache in caches] + [node.main_memory.ps_per_byte]
    assert all(a < b for a, b in pairwise(costs)), costs
    nominal = nominal_ghz()
    assert nominal is None or 0.8 * nominal < node.frequency_hz / 1e9 < 2 * nominal
    kept = json.loads((tmp_path / "machine" / "calibration.json").read_text())
    assert all(figure["best_ns"] > 0 for figure in kept["figures"].values())
    assert "plotly" in (tmp_path / "machine" / "calibration.html").read_text()
    run = cli("run", "nas-is-A-8", "--target", tmp_path / "machine" / "machine.yaml", "-o", tmp_path / "run",
              "--set", "mapping.oversubscribe=true", "--no-report")  # fmt: skip
    assert run.status == 0, run.err  # type: ignore[attr-defined]
