"""What Linux says of the machine it runs on: cores, caches, pages and memory.

Caches are read from /sys/devices/system/cpu/cpuN/cache, where there are none from ``getconf -a``. Virtual machines and
containers hide some of it: ``System.missing`` says what was not to be found.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from manyscale.runner.errors import UserError
from manyscale.runner.system import usable_cpus

_CPUS: Final = Path("sys/devices/system/cpu")
_KINDS: Final = {"Data": "D", "Instruction": "I", "Unified": ""}
_UNITS: Final = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}
_GETCONF: Final = {"L1D": "LEVEL1_DCACHE", "L1I": "LEVEL1_ICACHE", "L2": "LEVEL2_CACHE", "L3": "LEVEL3_CACHE"}
_USUAL_LINE_BYTES: Final = 64


@dataclass(frozen=True)
class SystemCache:
    """One cache of a core; ``ways`` is None where the system does not say."""

    size_bytes: int
    line_bytes: int
    ways: int | None
    shared_by_cores: int


@dataclass(frozen=True)
class System:
    """``core_cpus``: one logical CPU of each core that this process may use. ``caches``: by name (L1D, L1I, L2, L3),
    the nearest to the core first. ``missing``: what the system hides, one phrase each."""

    cpu_name: str
    hypervisor: bool
    num_sockets: int
    cores_per_socket: int
    core_cpus: tuple[int, ...]
    page_bytes: int
    memory_bytes: int | None
    caches: Mapping[str, SystemCache]
    missing: tuple[str, ...]

    @property
    def data_caches(self) -> dict[str, SystemCache]:
        return {name: cache for name, cache in self.caches.items() if not name.endswith("I")}

    def with_sizes(self, sizes: Mapping[str, int]) -> System:
        """The caches with sizes that the user knows better; what stood there of ways stays where it still fits."""
        caches = dict(self.caches)
        for name, size in sizes.items():
            known = caches.get(name, SystemCache(size, _USUAL_LINE_BYTES, None, 1))
            caches[name] = _sound(replace(known, size_bytes=size))
        order = sorted(caches, key=lambda name: (name[:2], name))
        return replace(self, caches={name: caches[name] for name in order})


def _getconf() -> str:
    try:
        return subprocess.run(["getconf", "-a"], capture_output=True, text=True, check=False).stdout
    except OSError:
        return ""


def read_system(
    core: int | None = None,
    sizes: Mapping[str, int] | None = None,
    root: Path = Path("/"),
    getconf: Callable[[], str] = _getconf,
    allowed: frozenset[int] | None = None,
) -> System:
    """The machine under ``root``, with the caches of CPU ``core`` (default: the last that this process may use).

    ``sizes``: bytes of caches by name, instead of what the system says. Raises UserError where no cache is found, and
    for a CPU that does not exist or that this process may not use.
    """
    cpus = allowed if allowed is not None else usable_cpus()
    chosen = max(cpus) if core is None else core
    if chosen not in cpus:
        raise UserError(f"--core {chosen}: this process may not use it; name one of {_listed(cpus)}")
    missing: list[str] = []
    place = _place_of_cpus(root)
    cores = {cpu: place.get(cpu, (0, cpu)) for cpu in sorted(cpus)}
    sockets = {socket for socket, _ in place.values()} or {0}
    num_cores = len(set(place.values()) or set(cores.values()))
    if not place:
        missing.append("the arrangement of cores and sockets")
    threads = max(1, len(place) // num_cores) if place else 1
    caches = _caches_of_sysfs(root / _CPUS / f"cpu{chosen}" / "cache", threads, missing)
    if not any(not name.endswith("I") for name in caches):
        caches = _caches_of_getconf(getconf())
        if caches:
            missing.append("which cores share a cache (sizes are from getconf)")
    text = _text(root / "proc/cpuinfo")
    memory = re.search(r"MemTotal:\s*(\d+) kB", _text(root / "proc/meminfo"))
    if memory is None:
        missing.append("the size of memory")
    name = next(iter(re.findall(r"^(?:model name|cpu model|Processor|cpu)\s*:\s*(.+)$", text, re.M)), "")
    if not name:
        missing.append("the CPU's name")
    system = System(
        cpu_name=name.strip() or os.uname().machine,
        hypervisor=re.search(r"^flags\s*:.*\bhypervisor\b", text, re.M) is not None,
        num_sockets=len(sockets),
        cores_per_socket=max(1, num_cores // len(sockets)),
        core_cpus=tuple({each: cpu for cpu, each in reversed(cores.items())}.values())[::-1],
        page_bytes=os.sysconf("SC_PAGESIZE"),
        memory_bytes=int(memory.group(1)) * 1024 if memory else None,
        caches={name: _sound(cache) for name, cache in caches.items()},
        missing=tuple(missing),
    ).with_sizes(sizes or {})
    if not system.data_caches:
        raise UserError(
            f"no caches are found in {root / _CPUS}/cpu{chosen}/cache nor by getconf; give their sizes by hand, such "
            "as --set L1D='32 KiB' --set L2='1 MiB' --set L3='32 MiB'"
        )
    return system


def _place_of_cpus(root: Path) -> dict[int, tuple[int, int]]:
    """Socket and core of every CPU that is online."""
    places = {}
    for folder in (root / _CPUS).glob("cpu[0-9]*/topology"):
        socket, core = _number(folder / "physical_package_id"), _number(folder / "core_id")
        if core is not None:
            places[int(folder.parent.name[3:])] = (max(0, socket or 0), core)
    return dict(sorted(places.items()))


def _caches_of_sysfs(folder: Path, threads: int, missing: list[str]) -> dict[str, SystemCache]:
    found: dict[str, SystemCache] = {}
    for index in sorted(folder.glob("index[0-9]*"), key=lambda index: int(index.name[5:])):
        level, kind = _number(index / "level"), _KINDS.get(_text(index / "type").strip())
        if level is None or kind is None:
            continue
        name = f"L{level}{kind}"
        line = _number(index / "coherency_line_size")
        ways, sets = _number(index / "ways_of_associativity"), _number(index / "number_of_sets")
        size = _bytes(_text(index / "size").strip()) or (line or 0) * (ways or 0) * (sets or 0)
        if not size:
            missing.append(f"the size of {name}")
            continue
        if not line:
            missing.append(f"the line of {name} ({_USUAL_LINE_BYTES} B taken)")
        if not ways:
            missing.append(f"the ways of {name}")
        shared = len(_cpu_list(_text(index / "shared_cpu_list")))
        found[name] = SystemCache(size, line or _USUAL_LINE_BYTES, ways or None, max(1, shared // threads))
    return dict(sorted(found.items(), key=lambda each: (each[0][:2], each[0])))


def _caches_of_getconf(text: str) -> dict[str, SystemCache]:
    values = {name: int(value) for name, value in re.findall(r"^(LEVEL\w+)\s+(\d+)\s*$", text, re.M)}
    return {
        name: SystemCache(
            size, values.get(f"{key}_LINESIZE") or _USUAL_LINE_BYTES, values.get(f"{key}_ASSOC") or None, 1
        )
        for name, key in _GETCONF.items()
        if (size := values.get(f"{key}_SIZE", 0))
    }


def _sound(cache: SystemCache) -> SystemCache:
    """Without ways that do not divide the lines: what a hypervisor says does not always fit together."""
    lines, rest = divmod(cache.size_bytes, cache.line_bytes)
    if rest:
        raise UserError(f"a cache of {cache.size_bytes} B is no whole number of lines of {cache.line_bytes} B")
    fits = cache.ways is not None and lines % cache.ways == 0
    return cache if fits else replace(cache, ways=None)


def _cpu_list(text: str) -> set[int]:
    """``0-3,8`` as numbers."""
    cpus: set[int] = set()
    for first, last in re.findall(r"(\d+)(?:-(\d+))?", text):
        cpus |= set(range(int(first), int(last or first) + 1))
    return cpus


def _bytes(text: str) -> int:
    match = re.fullmatch(r"(\d+)([KMG]?)B?", text)
    return int(match.group(1)) * _UNITS[match.group(2)] if match else 0


def _number(path: Path) -> int | None:
    text = _text(path).strip()
    return int(text) if re.fullmatch(r"-?\d+", text) else None


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def _listed(cpus: frozenset[int]) -> str:
    numbers = sorted(cpus)
    return ", ".join(map(str, numbers[:8])) + (", ..." if len(numbers) > 8 else "")
