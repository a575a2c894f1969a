"""LogGOPSim's results, to the nanosecond: published schedules, stored small cases, and random schedules beside it.

The stored figures are LogGOPSim's own (spcl/LogGOPSim 76451de, built from source), see tests/data/goal/SOURCES.md. Its
-S n sends n bytes eagerly, so our threshold is n + 1; each of its times is whole nanoseconds.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from manyscale.models.machine import Link, Network
from manyscale.models.network.loggops import model as loggops
from manyscale.models.network.loggops.parameters import LogGops
from manyscale.models.network.program import build_program
from manyscale.models.network.replay.timeline import Placement, ReplayError
from manyscale.runner.readers import goal
from manyscale.runner.run.pipeline import compute_per_operation

CASES = Path(__file__).parents[1] / "data" / "goal"
DATA = os.environ.get("MANYSCALE_DATA")

Parameters = tuple[int, int, int, int, int, int]  # L, o, g, G, S, O in ns, bytes and ns a byte


def network(parameters: Parameters) -> Network:
    latency, overhead, gap, per_byte, threshold, overhead_per_byte = parameters

    def bandwidth(nanoseconds: int) -> str:
        return f"{1e9 / nanoseconds!r} B/s" if nanoseconds else "inf B/s"

    return Network(
        latency=f"{latency} ns", bandwidth=bandwidth(per_byte), envelope="0 B", eager_threshold=f"{threshold + 1} B",
        transfer_start="eager", collectives="mpich", intra_node=Link(latency="0 s", bandwidth="inf B/s"),
        self=Link(latency="0 s", bandwidth="inf B/s"),
        loggops=LogGops(
            overhead=f"{overhead} ns", gap=f"{gap} ns", overhead_bandwidth=bandwidth(overhead_per_byte)
        ),
    )  # fmt: skip


def predict(path: Path, parameters: Parameters) -> int:
    """Our makespan in ps."""
    workload = goal.read(path)
    program = build_program(workload, "mpich", keep_graph=True)
    compute = compute_per_operation(workload, workload.column("phases", "duration_ps"))
    place = Placement.one_per_node(workload.num_ranks)
    return loggops.replay(program, compute, network(parameters), place).makespan_ps


@pytest.mark.golden
@pytest.mark.skipif(DATA is None, reason="MANYSCALE_DATA does not name the reference traces")
@pytest.mark.parametrize(
    ("name", "parameters", "nanoseconds"),
    [
        ("hpcg-8", (10000, 0, 0, 1, 65536, 0), 33_798_147),
        ("hpcg-8", (10000, 500, 200, 1, 65536, 0), 34_700_748),
        ("hpcg-8", (2000, 1000, 1000, 2, 8192, 0), 34_746_550),
        ("lulesh-64", (10000, 0, 0, 1, 65536, 0), 37_930_079),
        ("lulesh-64", (10000, 500, 200, 1, 65536, 0), 39_007_912),
        ("lulesh-64", (2000, 1000, 1000, 2, 8192, 0), 40_114_220),
    ],
)
def test_application_schedules(name, parameters, nanoseconds):
    assert predict(Path(DATA or "") / "mpi" / "goal" / f"{name}.goal.gz", parameters) == nanoseconds * 1000


def stored() -> list[tuple[str, list[int], int]]:
    cases = json.loads((CASES / "ends.json").read_text())
    return [(name, run["parameters"], run["nanoseconds"]) for name, runs in cases.items() for run in runs]


@pytest.mark.golden
@pytest.mark.parametrize(("name", "parameters", "nanoseconds"), stored())
def test_stored_cases(name, parameters, nanoseconds):
    assert predict(CASES / name, tuple(parameters)) == nanoseconds * 1000


def random_schedule(seed: int) -> tuple[str, Parameters]:
    """A schedule of a few ranks whose sends and receives fit, with wildcards and random dependencies."""
    draw = random.Random(seed)
    ranks = draw.randint(2, 6)
    rows: list[list[str]] = [[] for _ in range(ranks)]
    wild = draw.choice((0.0, 0.0, 0.3))
    # a receive has its message's size, since LogGOPSim takes the protocol of an early message from its receive
    sizes = draw.sample((1, 8, 100, 1000, 2000), 3)
    for _ in range(draw.randint(1, 12 * ranks)):
        source, to = draw.randrange(ranks), draw.randrange(ranks)
        if max(len(rows[source]), len(rows[to])) > 14:
            continue  # of more than 16 vertices that become ready at once LogGOPSim's order is not defined
        if draw.random() < 0.4:
            rows[source].append(f"calc {draw.randint(0, 3000)}")
        else:
            tag = draw.randint(0, 2)
            size = sizes[tag]
            rows[source].append(f"send {size}b to {to} tag {tag}")
            who = -1 if draw.random() < wild else source
            if draw.random() < wild:
                tag = -1
            rows[to].append(f"recv {size}b from {who} tag {tag}")
    lines = [f"num_ranks {ranks}"]
    dense = draw.choice((0.2, 0.6, 1.0))
    for rank, operations in enumerate(rows):
        lines.append(f"rank {rank} {{")
        for number, operation in enumerate(operations):
            lines.append(f"l{number}: {operation}")
            # without many required ends of sends, so that most rendezvous do not deadlock
            for other in draw.sample(range(number), min(number, draw.randint(0, 2))):
                if draw.random() < dense:
                    verb = "irequires" if draw.random() < 0.3 else "requires"
                    lines.append(f"l{number} {verb} l{other}")
        lines.append("}")
    threshold = draw.choice((10_000, 500, 500))
    if wild:
        threshold = 10_000  # a wildcard may take a message of another size
    parameters = (
        draw.choice((0, 1, 100, 5000)), draw.choice((0, 7, 300)), draw.choice((0, 50, 900)), draw.choice((0, 1, 3)),
        threshold, draw.choice((0, 0, 1, 5)),
    )  # fmt: skip
    return "\n".join(lines) + "\n", parameters


def loggopsim(path: Path, parameters: Parameters) -> list[int] | None:
    """LogGOPSim's end of every rank in ns; None if it does not finish."""
    binary = path.with_suffix(".bin")
    subprocess.run(["txt2bin", "-i", path, "-o", binary], check=True, capture_output=True)
    options = [text for name, value in zip("LogGSO", parameters, strict=True) for text in (f"-{name}", str(value))]
    run = subprocess.run(["LogGOPSim", "-f", binary, *options], check=False, capture_output=True, text=True)
    ends = re.findall(r"^Host \d+: (\d+)$", run.stdout, re.MULTILINE)
    return [int(end) for end in ends] or None


@pytest.mark.peer
@pytest.mark.slow
@pytest.mark.skipif(shutil.which("LogGOPSim") is None, reason="LogGOPSim is not on PATH")
def test_random_schedules_beside_loggopsim(tmp_path):
    agreed = refused = 0
    for seed in range(200):
        text, parameters = random_schedule(seed)
        path = tmp_path / f"{seed}.goal"
        path.write_text(text)
        theirs = loggopsim(path, parameters)
        if theirs is None:
            with pytest.raises(ReplayError):
                predict(path, parameters)
            refused += 1
            continue
        assert predict(path, parameters) == max(theirs) * 1000, (seed, parameters)
        agreed += 1
    assert agreed > 100, (agreed, refused)


def test_random_schedules_are_many_and_of_all_kinds():
    texts = [random_schedule(seed)[0] for seed in range(200)]
    assert len(set(texts)) == 200
    for part in ("from -1", "tag -1", "irequires", "calc", "send 2000b"):
        assert sum(part in text for text in texts) > 20
    assert np.mean([text.count("\n") for text in texts]) > 20
