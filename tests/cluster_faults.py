"""Runs on a cluster of nodes that share nothing (cluster_nodes.py), during which things go wrong: which, when and where
follows from a seed; when is told in units that are done, never in seconds.

``python tests/cluster_faults.py OUT --runs 20 --faults 10`` is the whole campaign: every run must leave the bytes of a
calm local one, no unit lost or counted twice. OUT/faults.jsonl gets a line per run, OUT/calm.json what the others are
compared with.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import same_runs
import yaml
from cluster_nodes import Node, NodeCluster

NAME: Final = "chaos"
NETWORK: Final = "10.77"
TRACES: Final = "traces"  # a folder of which every node has a copy
MOST_NODES: Final = 4
SLOW: Final = 0.1
LOOK_SECONDS: Final = 0.1
SAMPLE_SECONDS: Final = 0.5
STALL_SECONDS: Final = 120.0  # without a unit done: the run hangs
KINDS: Final = (
    "kill worker",
    "stop worker",
    "kill raylet",
    "stop raylet",
    "kill node",
    "stop node",
    "cut link",
    "late node",
    "slow node",
    "node out of memory",
    "other version",
    "full disk",
    "kill driver",
)


@dataclass(frozen=True)
class Fault:
    """Something that goes wrong once this share of the units is done, at the node that ``pick`` chooses of those that
    it can befall; it is mended once a further share ``lasts`` is done."""

    kind: str
    at: float
    pick: int
    lasts: float


def schedule(seed: int, count: int, kinds: Sequence[str] = KINDS) -> list[Fault]:
    """Faults of a run in the order of their time; in any row of len(kinds) of them, over all seeds, each kind comes
    once, in an order that differs."""
    faults = []
    for number in range(seed * count, (seed + 1) * count):
        order = random.Random(f"kinds {number // len(kinds)}").sample(kinds, len(kinds))
        chance = random.Random(f"fault {number}")
        at = chance.uniform(0.05, 0.85)
        faults.append(Fault(order[number % len(kinds)], at, chance.randrange(1000), chance.uniform(0.05, 0.3)))
    return sorted(faults, key=lambda fault: fault.at)


@dataclass
class Verdict:
    """What became of a run: ``problems`` is empty if all is as it must be."""

    seed: int
    faults: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    wall_seconds: float = 0.0
    worker_cpu_seconds: float = 0.0
    driver_starts: int = 0
    said: list[str] = field(default_factory=list)  # by the drivers


class Journal:
    """Which units are done, by the run directory's journal."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "units.jsonl"

    def entries(self) -> list[dict[str, Any]]:
        """Whole lines."""
        if not self._path.is_file():
            return []
        return [json.loads(line) for line in self._path.read_text().splitlines(keepends=True) if line.endswith("\n")]

    def costs(self) -> dict[str, float]:
        """CPU seconds of the units that are done, by key."""
        return {entry["key"]: entry["cpu_seconds"] for entry in self.entries() if entry["status"] != "failed"}


class WorkerTime:
    """CPU seconds of all workers of a cluster, of those that are gone, too, as last seen."""

    def __init__(self) -> None:
        self._seconds: dict[int, float] = {}

    def look(self, nodes: Sequence[Node]) -> None:
        for node in nodes:
            for process in node.workers():
                with suppress(psutil.Error):
                    times = process.cpu_times()
                    self._seconds[process.pid] = times.user + times.system

    @property
    def total(self) -> float:
        return sum(self._seconds.values())


class Driver:
    """``manyscale run`` on the head of a cluster, as often as it takes. ``arguments`` are those of the command but for
    address, output and cache."""

    def __init__(self, cluster: NodeCluster, arguments: Sequence[str], output: Path) -> None:
        self._cluster, self._arguments, self._output = cluster, arguments, output
        self._log = cluster.folder / f"{output.name}.log"
        self._process: subprocess.Popen[bytes] | None = None
        self.starts = 0

    def start(self) -> None:
        """Begin the run, or go on with it."""
        words = [sys.executable, "-m", "manyscale", *self._arguments, "--address", self._cluster.address]
        words += ["-o", str(self._output), "--cache", str(self._cluster.folder / f"cache-{self._output.name}")]
        if (self._output / "manifest.json").exists():
            words.append("--resume")
        with self._log.open("ab" if self.starts else "wb") as file:
            self._process = subprocess.Popen(
                self._cluster.command(*words), stdin=subprocess.DEVNULL, stdout=file, stderr=file
            )
        self.starts += 1

    def kill(self) -> None:
        """``kill -9``, of ``nsenter`` and of what it began."""
        assert self._process is not None
        with suppress(psutil.NoSuchProcess):
            for process in psutil.Process(self._process.pid).children(recursive=True):
                process.kill()
        self._process.kill()
        self._process.wait()

    @property
    def status(self) -> int | None:
        """Its exit status; None while it runs."""
        assert self._process is not None
        return self._process.poll()

    def wait(self, seconds: float) -> int | None:
        """Its exit status; None if it still runs after so many seconds."""
        assert self._process is not None
        with suppress(subprocess.TimeoutExpired):
            return self._process.wait(seconds)
        return None

    @property
    def said(self) -> list[str]:
        """The lines that it printed, at every start."""
        return self._log.read_text(errors="replace").splitlines()


class FaultyRun:
    """One run with its faults."""

    def __init__(self, cluster: NodeCluster, arguments: Sequence[str], output: Path, calm: Path) -> None:
        self._cluster, self._output, self._calm = cluster, output, calm
        self._driver = Driver(cluster, arguments, output)
        self._costs = Journal(calm).costs()  # the work is done to the share of these
        self._journal = Journal(output)
        self._time = WorkerTime()
        self._harmed: dict[Node, str] = {}
        self._mends: list[tuple[float, Callable[[], object]]] = []
        self.verdict = Verdict(0)

    def run(self, seed: int, faults: Sequence[Fault], num_nodes: int = 2, seconds: float = 900) -> Verdict:
        """Start nodes and driver, let the faults come, and wait for the end."""
        self.verdict = Verdict(seed)
        begin = last_change = time.monotonic()
        next_sample, num_done, waiting = 0.0, 0, list(faults)
        while len(self._cluster.nodes) < num_nodes:
            self._cluster.add()
        for node in self._cluster.nodes:
            node.wait_until_joined()
        self._driver.start()
        try:
            while True:
                now = time.monotonic()
                if now > next_sample:
                    self._time.look(self._cluster.nodes)
                    self._replace_dead(num_nodes)
                    next_sample = time.monotonic() + SAMPLE_SECONDS
                done = self._journal.costs().keys()
                if len(done) > num_done:
                    num_done, last_change = len(done), now
                share = sum(self._costs.get(key, 0.0) for key in done) / sum(self._costs.values())
                self._mend(share)
                while waiting and waiting[0].at <= share:
                    self._befall(waiting.pop(0), share)
                if self._has_ended():
                    break
                if now - last_change > STALL_SECONDS or now - begin > seconds:
                    self._tell(f"hangs at {num_done} of {len(self._costs)} units after {now - begin:.0f} s")
                    break
                time.sleep(LOOK_SECONDS)
            self._time.look(self._cluster.nodes)
            if self.verdict.problems:
                self._keep_logs()
            if waiting:
                self._tell(f"{len(waiting)} faults had no time to come")
        finally:
            self._driver.kill()
            self._mend(float("inf"))
        self.verdict.wall_seconds = time.monotonic() - begin
        self.verdict.worker_cpu_seconds = self._time.total
        self.verdict.driver_starts = self._driver.starts
        self.verdict.said = [
            line for line in self._driver.said if line.startswith("manyscale:") and " left" not in line
        ]
        return self.verdict

    def check(self) -> Verdict:
        """Compare what the run left with the calm one's directory."""
        self.verdict.problems += problems_of(self._output, self._calm)
        return self.verdict

    def _tell(self, problem: str) -> None:
        self.verdict.problems.append(problem)

    def _has_ended(self) -> bool:
        if (status := self._driver.status) is None:
            return False
        if status:
            self._tell(f"exit status {status}: {self._driver.said[-1:]}")
        return True

    def _keep_logs(self) -> None:
        """Of the head's Ray, and of the driver's part of it."""
        files = "gcs_server.out raylet.out python-core-driver*.log"
        words = ["sh", "-c", f"cd /tmp/ray/session_latest/logs && tail -n 200 {files}"]
        (self._cluster.folder / f"{self._output.name}.ray.log").write_text(self._cluster.head.inside(*words))

    # Faults

    def _befall(self, fault: Fault, share: float) -> None:
        """Let a fault come, and see to its mending."""
        self._time.look(self._cluster.nodes)
        until = share + fault.lasts
        if fault.kind == "kill driver":
            self._driver.kill()
            self._driver.start()
        elif fault.kind in ("late node", "node out of memory", "other version"):
            self._add_node(fault.kind, until)
        else:
            self._harm(fault, until)
        self.verdict.faults.append(fault.kind)

    def _add_node(self, kind: str, until: float) -> None:
        if kind == "late node":
            self._make_room()
            self._cluster.add()
            return
        if kind == "other version":
            node = self._cluster.add(python_path=[other_numba(self._cluster.folder)])
        else:
            node = self._cluster.add(environment=OUT_OF_MEMORY)
        self._harmed[node] = kind
        self._mends.append((until, partial(self._remove, node)))

    def _harm(self, fault: Fault, until: float) -> None:
        node = self._victim(fault)
        what, _, whom = fault.kind.partition(" ")
        names = {"worker": ("ray::Shard",), "raylet": ("raylet",), "node": ()}.get(whom, ())
        if what == "kill":
            if whom == "node":
                node.kill()
                self._remove(node)
            else:
                node.signal(signal.SIGKILL, *names)
            return
        self._harmed[node] = fault.kind
        if what == "stop":
            node.signal(signal.SIGSTOP, *names)
            mend: Callable[[], object] = partial(node.signal, signal.SIGCONT)
        elif what == "cut":
            node.cut()
            mend = node.restore
        elif what == "slow":
            node.slow_down(SLOW)
            mend = partial(node.slow_down, 0)
        else:
            node.fill_disk()
            mend = node.free_disk
        self._mends.append((until, partial(self._heal, node, mend)))

    def _heal(self, node: Node, mend: Callable[[], object]) -> None:
        self._harmed.pop(node, None)
        if node in self._cluster.nodes and node.is_up():
            mend()

    def _victim(self, fault: Fault) -> Node:
        """A sound node, one with workers if there is any; another one stays sound, and is added if need be."""
        sound = self._sound()
        busy = [node for node in sound if node.workers()]
        if len(sound) < 2:
            self._make_room()
            self._cluster.add()
        candidates = busy or sound or [self._cluster.nodes[-1]]
        return candidates[fault.pick % len(candidates)]

    def _sound(self) -> list[Node]:
        return [node for node in self._cluster.nodes if node not in self._harmed]

    def _replace_dead(self, num_nodes: int) -> None:
        """As whoever runs a cluster would."""
        for node in [node for node in self._cluster.nodes if node.has_ended()]:
            self._remove(node)
        while len(self._sound()) < num_nodes and len(self._cluster.nodes) < MOST_NODES:
            self._cluster.add()

    def _make_room(self) -> None:
        """A machine holds so many nodes: harmed ones go first."""
        while len(self._cluster.nodes) >= MOST_NODES:
            self._remove(next(iter(self._harmed), self._cluster.nodes[0]))

    def _remove(self, node: Node) -> None:
        self._harmed.pop(node, None)
        if node in self._cluster.nodes:
            self._cluster.remove(node)

    def _mend(self, share: float) -> None:
        due = [mend for until, mend in self._mends if until <= share]
        self._mends = [(until, mend) for until, mend in self._mends if until > share]
        for mend in due:
            mend()


OUT_OF_MEMORY: Final = {"RAY_memory_usage_threshold": "0.001", "RAY_memory_monitor_refresh_ms": "50"}


def other_numba(folder: Path) -> Path:
    """A folder by which Python finds another version of Numba before the one that is installed."""
    place = folder / "other-version" / "numba-0.1.dist-info"
    place.mkdir(parents=True, exist_ok=True)
    (place / "METADATA").write_text("Metadata-Version: 2.1\nName: numba\nVersion: 0.1\n")
    return place.parent


def problems_of(found: Path, calm: Path) -> list[str]:
    """In what a run differs from a calm one: its bytes, its units, and how often each is counted."""
    if not (found / "units.parquet").is_file():
        return ["has no results"]
    differing = same_runs.differing(calm, found)
    problems = [f"{len(differing)} files differ: {', '.join(map(str, differing[:3]))}"] if differing else []
    keys = {side: sorted(pq.read_table(side / "units.parquet")["key"].to_pylist()) for side in (calm, found)}
    if keys[found] != keys[calm]:
        problems.append("its units are others")
    simulated = Counter(entry["key"] for entry in Journal(found).entries() if entry["status"] == "simulated")
    twice = [key for key, count in simulated.items() if count > 1]
    if twice:
        problems.append(f"{len(twice)} units are counted twice")
    counts = json.loads((found / "simulator.json").read_text())["units"]
    expected = json.loads((calm / "simulator.json").read_text())["units"]["total"]
    if (counts["total"], counts["failed"], counts["simulated"] + counts["reused"]) != (expected, 0, expected):
        problems.append(f"its counts are {counts}, of {expected} units")
    return problems


def study(folder: Path, num_widths: int) -> Path:
    """The shipped design space of nodes in detail, with so many issue widths: 24 units of up to half a second for each,
    and many small ones that follow from these."""
    examples = Path(__file__).parents[1] / "runner" / "examples"
    content = yaml.safe_load((examples / "multizone-8-design.yaml").read_text())
    for name in ("path", "detail"):
        content["workload"][name] = str(_unpacked(examples / content["workload"][name], folder / TRACES))
    content["sweep"]["target.node.core.width"] = list(range(1, num_widths + 1))
    path = folder / "study.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


def _unpacked(archive: Path, folder: Path) -> Path:
    """The one folder that a .tar.zst holds: workers read the streams of a trace themselves."""
    with (
        pa.CompressedInputStream(pa.OSFile(str(archive)), "zstd") as stream,
        tarfile.open(fileobj=stream, mode="r|") as tar,
    ):
        tar.extractall(folder, filter="data")
    return folder / archive.name.removesuffix(".tar.zst")


def calm_local(folder: Path, arguments: Sequence[str]) -> Path:
    """The run directory that all others must equal: in this process's place, without Ray."""
    output = folder / "calm"
    words = [sys.executable, "-m", "manyscale", *arguments, "--executor", "local", "-o", str(output)]
    done = subprocess.run([*words, "--cache", str(folder / "cache-calm")], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return output


def one_run(folder: Path, arguments: Sequence[str], calm: Path, seed: int, faults: Sequence[Fault]) -> Verdict:
    """A cluster, a run with faults, and the verdict. The run's directory goes if all is well."""
    output = folder / f"run-{seed}"
    shutil.rmtree(output, ignore_errors=True)
    shutil.rmtree(folder / f"cache-run-{seed}", ignore_errors=True)
    with NodeCluster(NAME, NETWORK, folder, keep=[folder / TRACES]) as cluster:
        run = FaultyRun(cluster, arguments, output, calm)
        run.run(seed, faults)
    verdict = run.check()
    if not verdict.problems:
        shutil.rmtree(output)
        shutil.rmtree(folder / f"cache-run-{seed}")
    return verdict


def with_and_without_a_slow_node(folder: Path, arguments: Sequence[str], calm: Path) -> Iterator[Verdict]:
    """Runs on one node, and on one node beside one at 10 % of its speed."""
    for number, slow in enumerate((False, True, False, True)):
        output = folder / f"slow-{number}"
        with NodeCluster(NAME, NETWORK, folder, keep=[folder / TRACES]) as cluster:
            nodes = [cluster.add() for _ in range(1 + slow)]
            for node in nodes:
                node.wait_until_joined()
            for node in nodes[1:]:
                node.slow_down(SLOW)
            run = FaultyRun(cluster, arguments, output, calm)
            run.run(number, [], len(nodes))
        run.verdict.faults = ["slow node"] * slow
        yield run.check()


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("output", type=Path)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--faults", type=int, default=10)
    parser.add_argument("--widths", type=int, default=6)
    parser.add_argument("--slow-node", action="store_true")
    parser.add_argument("--kind", action="append", choices=KINDS)
    options = parser.parse_args()
    folder = options.output.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    arguments = ["run", str(study(folder, options.widths)), "--no-report"]
    calm = folder / "calm"
    if not (calm / "simulator.json").is_file():
        shutil.rmtree(calm, ignore_errors=True)
        calm_local(folder, arguments)
    if options.slow_node:
        verdicts: Iterable[Verdict] = with_and_without_a_slow_node(folder, arguments, calm)
    else:
        seeds = range(options.first, options.first + options.runs)
        kinds = options.kind or KINDS
        verdicts = (one_run(folder, arguments, calm, seed, schedule(seed, options.faults, kinds)) for seed in seeds)
    num_bad = 0
    for verdict in verdicts:
        line = json.dumps(asdict(verdict))
        with (folder / "faults.jsonl").open("a") as file:
            file.write(line + "\n")
        print(line, flush=True)
        num_bad += bool(verdict.problems)
    return num_bad


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # nodes are cleaned up
    sys.exit(main() > 0)
