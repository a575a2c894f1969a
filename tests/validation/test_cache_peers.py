"""Cache hierarchies against Dinero IV, pycachesim and Valgrind's cachegrind.

Dinero IV's counts of two traces that need no file stand in ``data/memory/dinero.json``; with its program (DINERO
names it, or it is in the path) they are counted again. The other peers run where they are installed.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from cache_traces import Trace, cache, fed, mixed_trace, totals
from memory_programs import program

from manyscale.models.machine.processor import Cache
from manyscale.models.memory.caches.counts import Counter
from manyscale.models.memory.caches.hierarchy import CacheHierarchy

pytestmark = pytest.mark.peer

COUNTS = Path(__file__).parents[1] / "data" / "memory" / "dinero.json"
DATA = Path(os.environ.get("MANYSCALE_DATA", "/nonexistent")) / "mem" / "mm100_full_lackey.npz"
TRACES = {"aligned": mixed_trace(20_000, 1), "straddling": mixed_trace(20_000, 2, straddles=True)}

L1, L2, L3 = (4096, 4), (32768, 8), (65536, 16)
THROUGH, AROUND = {"write": "write-through"}, {"write_allocate": False}
HIERARCHIES: dict[str, list[Cache]] = {
    "one level": [cache(*L1)],
    "two levels": [cache(*L1), cache(*L2)],
    "three levels": [cache(*L1), cache(*L2), cache(*L3)],
    "write-through": [cache(*L1, **THROUGH), cache(*L2)],
    "write-through, no allocation": [cache(*L1, **THROUGH, **AROUND), cache(*L2)],
    "no allocation": [cache(*L1, **AROUND), cache(*L2)],
    "no allocation at all": [cache(*L1, **AROUND), cache(*L2, **AROUND)],
    "second writes through": [cache(*L1), cache(*L2, **THROUGH), cache(*L3)],
    "longer lines": [cache(*L1), cache(*L2, 128)],
    "sectors": [cache(*L1, sector="16 B")],
    "growing sectors": [cache(*L1, sector="16 B"), cache(*L2, sector="32 B")],
    "sectors, then none": [cache(*L1, sector="16 B"), cache(*L2)],
    "sectors further out": [cache(*L1), cache(*L2, 256, sector="64 B")],
}


def hierarchy_of(caches: list[Cache], plain: bool = True) -> CacheHierarchy:
    return CacheHierarchy({f"L{1 + i}": level for i, level in enumerate(caches)}, plain=plain)


def as_dinero_counts(hierarchy: CacheHierarchy) -> list[list[int]]:
    """Per level: reads, writes, read misses, write misses, bytes read from the next level and written to it. Dinero's
    writes are what cores store and what nearer levels hand down."""
    counts, result = hierarchy.counts(), []
    for level in counts.levels[:-1]:
        load_hits, load_misses, store_hits, store_misses, victim_hits, victim_misses = (
            counts.total(level, counter) for counter in list(Counter)[:6]
        )
        writes, write_misses = store_hits + store_misses, store_misses + victim_misses
        bytes_moved = [counts.total(level, counter) for counter in (Counter.fetched_bytes, Counter.written_bytes)]
        reads = load_hits + load_misses
        result.append([reads, writes + victim_hits + victim_misses, load_misses, write_misses, *bytes_moved])
    return result


def dinero(trace: Trace, caches: list[Cache]) -> list[list[int]]:
    """Dinero's own counts, shown after the last access: at its end it would write back all dirty lines."""
    path = os.environ.get("DINERO") or shutil.which("dineroIV")
    if path is None:
        pytest.skip("Dinero IV is not installed (its program: DINERO)")
    options = ["-stat-interval", str(len(trace.address))]
    for i, level in enumerate(caches):
        name = f"-l{1 + i}-u"
        options += [f"{name}size", str(level.size_bytes), f"{name}assoc", str(level.ways)]
        options += [f"{name}bsize", str(level.line_bytes), f"{name}sbsize", str(level.sector_bytes or level.line_bytes)]
        options += [f"{name}wback", "a" if level.write == "write-back" else "n"]
        options += [f"{name}walloc", "a" if level.write_allocate else "n"]
    columns = zip(trace.is_store.tolist(), trace.address.tolist(), trace.num_bytes.tolist(), strict=True)
    text = "".join(f"{'w' if is_store else 'r'} {address:x} {size:x}\n" for is_store, address, size in columns)
    run = subprocess.run([path, "-informat", "D", *options], input=text, capture_output=True, text=True, check=True)
    result = []
    for part in run.stdout.split("-ucache")[1 : 1 + len(caches)]:
        found = {}
        for name in ("Demand Fetches", "Demand Misses", "Bytes From Memory", "Bytes To Memory"):
            line = re.search(rf"{name}(.*)", part)
            assert line is not None
            found[name] = [round(float(number)) for number in line[1].split()]
        bytes_moved = [found["Bytes From Memory"][0], found["Bytes To Memory"][0]]
        result.append([*found["Demand Fetches"][3:5], *found["Demand Misses"][3:5], *bytes_moved])
    return result


@pytest.mark.parametrize("trace", TRACES)
@pytest.mark.parametrize("name", HIERARCHIES)
def test_counts_of_dinero(name: str, trace: str) -> None:
    expected = json.loads(COUNTS.read_text())[name][trace]
    for plain in (True, False):
        assert as_dinero_counts(fed(hierarchy_of(HIERARCHIES[name], plain), TRACES[trace])) == expected


@pytest.mark.parametrize("name", HIERARCHIES)
def test_dinero_itself(name: str) -> None:
    for key, trace in TRACES.items():
        assert dinero(trace, HIERARCHIES[name]) == json.loads(COUNTS.read_text())[name][key]


def matmul() -> Trace:
    if not DATA.is_file():
        pytest.skip("MANYSCALE_DATA does not name the folder of the traces")
    with np.load(DATA) as data:  # kinds: 1 load, 2 store, 3 modify, one access for all peers
        return Trace(data["addr"], data["size"].astype(np.int32), data["kind"] == 2)


@pytest.mark.parametrize("plain", [True, False])
def test_a_real_program(plain: bool) -> None:
    """Multiplication of 100 x 100 matrices, a whole process: cachegrind, Dinero IV and pycachesim agree on the
    misses."""
    counts = fed(hierarchy_of([cache(32768, 8), cache(1 << 20, 16)], plain), matmul()).counts()
    assert counts.num_references == 2_058_016
    assert counts.misses("L1").sum() == 131_671
    assert counts.misses("L2").sum() == 4_026


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in HIERARCHIES if "sectors" not in name])
def test_a_real_program_in_dinero(name: str) -> None:
    trace = matmul()
    assert as_dinero_counts(fed(hierarchy_of(HIERARCHIES[name]), trace)) == dinero(trace, HIERARCHIES[name])


def pycachesim(trace: Trace, caches: list[Cache]) -> list[dict[str, int]]:
    cachesim = pytest.importorskip("cachesim", reason="pycachesim is not installed")
    memory, further, levels = cachesim.MainMemory(), None, []
    for i in reversed(range(len(caches))):
        level = cachesim.Cache(
            f"L{1 + i}", caches[i].num_sets, caches[i].ways, 64, "LRU", store_to=further, load_from=further
        )
        if further is None:
            memory.load_to(level)
            memory.store_from(level)
        levels.insert(0, level)
        further = level
    simulator = cachesim.CacheSimulator(levels[0], memory)
    for address, size, is_store in zip(
        trace.address.tolist(), trace.num_bytes.tolist(), trace.is_store.tolist(), strict=True
    ):
        (simulator.store if is_store else simulator.load)(address, length=size)
    return [level.stats() for level in levels]


@pytest.mark.parametrize("trace", TRACES)
def test_loads_in_pycachesim(trace: str) -> None:
    loads = Trace(TRACES[trace].address, TRACES[trace].num_bytes, np.zeros(20_000, bool))
    caches = [cache(*L1), cache(*L2), cache(3 * 16384, 12)]
    hierarchy = fed(hierarchy_of(caches), loads)
    for i, peer in enumerate(pycachesim(loads, caches)):
        expected = (peer["HIT_count"], peer["MISS_count"])
        assert totals(hierarchy, f"L{1 + i}", Counter.load_hits, Counter.load_misses) == expected


def test_write_backs_in_pycachesim() -> None:
    """Of updates, a load and a store each: its stores do not make a line the latest."""
    trace = TRACES["aligned"]
    updates = Trace(np.repeat(trace.address, 2), np.repeat(trace.num_bytes, 2), np.tile([False, True], 20_000))
    peer = pycachesim(updates, [cache(*L1), cache(*L2)])
    hierarchy = fed(hierarchy_of([cache(*L1), cache(*L2)]), updates)
    assert totals(hierarchy, "L1", Counter.load_misses, Counter.write_backs) == (
        peer[0]["MISS_count"],
        peer[0]["EVICT_count"],
    )
    assert totals(hierarchy, "L1", Counter.store_misses) == (0,)


@pytest.mark.known_gap
def test_stores_do_not_count_as_uses_in_pycachesim() -> None:
    """A load, B load, A store, C load in two lines: here the store keeps A, pycachesim evicts it."""
    address = np.array([0, 64, 0, 128, 0], np.uint64)
    trace = Trace(address, np.full(5, 8, np.int32), np.array([False, False, True, False, False]))
    assert totals(fed(hierarchy_of([cache(128, 2)]), trace), "L1", Counter.load_misses) == (3,)
    assert pycachesim(trace, [cache(128, 2)])[0]["MISS_count"] == 4


def valgrind(*words: str) -> str:
    if shutil.which("valgrind") is None:
        pytest.skip("valgrind is not installed")
    return subprocess.run(["valgrind", *words], capture_output=True, text=True, check=True).stderr


@pytest.mark.parametrize("name", ["matmul", "gather"])
def test_cachegrind(name: str, tmp_path: Path) -> None:
    """The same program under lackey and under cachegrind. Their preloaded libraries have other names, so the stack
    begins elsewhere: misses within 0.5 % and 20, references within 10 of a thousand times ten."""
    command = [str(program(name, 1)), "40"]
    text = valgrind("--tool=lackey", "--trace-mem=yes", f"--log-file={tmp_path / 'trace'}", *command)
    kinds, addresses, sizes = [], [], []
    for line in (tmp_path / "trace").read_text().splitlines():
        if line[:3] in (" L ", " S ", " M "):
            address, size = line[3:].split(",")
            kinds.append(line[1])
            addresses.append(int(address, 16))
            sizes.append(int(size))
    trace = Trace(np.array(addresses, np.uint64), np.array(sizes, np.int32), np.array(kinds) == "S")
    geometry = ["--D1=8192,4,64", "--LL=1048576,16,64", "--I1=32768,8,64", "--cache-sim=yes"]
    text = valgrind("--tool=cachegrind", *geometry, f"--cachegrind-out-file={tmp_path / 'out'}", *command)
    found = {}
    for counter in ("D   refs", "D1  misses", "LLd misses"):
        line = re.search(rf"{counter}:\s+([\d,]+)", text)
        assert line is not None
        found[counter] = int(line[1].replace(",", ""))
    counts = fed(hierarchy_of([cache(8192, 4), cache(1 << 20, 16)]), trace).counts()
    missed = counts.misses("L1").sum() - counts.references[2].sum()  # a reference that misses two lines counts once
    assert counts.num_references == pytest.approx(found["D   refs"], abs=100)
    assert missed == pytest.approx(found["D1  misses"], rel=0.005, abs=20)
    assert counts.misses("L2").sum() == pytest.approx(found["LLd misses"], rel=0.005, abs=20)
    print(f"\n{name}: {counts.num_references} references, {missed}, {counts.misses('L2').sum()} misses; {found}")
