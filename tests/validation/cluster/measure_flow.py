"""The flow network at scale: CPU seconds of its kernel by number of ranks, and what solving in steps costs in accuracy.

``python tests/validation/cluster/measure_flow.py slopes mpich 64 256 1024 4096 16384``: the halo program of 100
iterations under the collectives of ``mpich`` (recursive doubling) or ``simgrid-3.32`` (all send to one, then a tree).
``python tests/validation/cluster/measure_flow.py steps``: each program exactly, and with steps of a hundredth, a tenth
and the whole of a route's latency (10 us).
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import yaml

sys.path.insert(0, str(Path(__file__).parents[2]))
from halo_program import halo, target

from manyscale.models.machine import Machine
from manyscale.models.network import latency_bandwidth
from manyscale.models.network.flow import model as flow
from manyscale.models.network.flow.parameters import Flow
from manyscale.models.network.program import Program, build_program
from manyscale.models.network.replay.strand_state import new_state
from manyscale.models.network.routes import routes
from manyscale.models.workload import Workload
from manyscale.runner import shipped
from manyscale.runner.problems import load_yaml
from manyscale.runner.readers import simgrid_ti
from manyscale.runner.run.pipeline import compute_per_operation
from manyscale.runner.study.targets import build_machine, shipped_targets

STEPS = ("100 ns", "1 us", "10 us")


def kernel(program: Program, compute_ps: np.ndarray, machine: Machine, step: str = "0 s") -> tuple[float, float]:
    """CPU seconds of the kernel alone, and the makespan in ps."""
    network = machine.network.model_copy(update={"flow": Flow(step=step)})
    node = np.arange(program.num_ranks, dtype=np.int32)
    law = latency_bandwidth.message_law(program, network, node)
    source, destination = program.source, program.destination
    ways = routes(network, machine.num_nodes, node[source], node[destination], source == destination)
    traffic, sharing = flow.traffic_of(program, network, ways)
    no_delay = np.zeros(program.num_messages)
    steps, state = new_state(
        program, compute_ps.astype(np.float64), law.is_eager, no_delay, law.gate_cost_ps.astype(np.float64)
    )
    begin = time.process_time()
    flow.run(steps, state, traffic, sharing, law.eager_start)
    taken = time.process_time() - begin
    assert state.finished.all()
    return taken, float(state.end.max())


def uneven(program: Program, workload: Workload, spread: float = 0.1) -> np.ndarray:
    """Compute before each operation, evenly spread by up to ``spread`` of it."""
    compute = compute_per_operation(workload, workload.column("phases", "duration_ps"))
    factor = 1 + spread * (2 * np.random.default_rng(3).random(len(compute)) - 1)
    return np.rint(compute * factor).astype(np.int64)


def wide(num_ranks: int, topology: str = "", collectives: str = "mpich") -> Machine:
    """A crossbar, or a fat tree of two levels whose lower switches have 16 nodes."""
    content = dict(yaml.safe_load(target(num_ranks)))
    content["network"]["collectives"] = collectives
    if topology == "fat-tree":
        content["network"]["topology"] = {
            "kind": "fat-tree", "down": [16, num_ranks // 16], "up": [1, 8], "cables": [1, 1],
        }  # fmt: skip
    return build_machine(content, "wide")


def all_to_all(num_ranks: int, skew: float) -> Workload:
    """An all-to-all-v of 100,000 B a block, each changed at random by up to ``skew``."""
    random = np.random.default_rng(7).random((num_ranks, num_ranks))
    blocks = np.rint(1e5 * (1 + skew * (2 * random - 1))).astype(int)
    lines = []
    for rank in range(num_ranks):
        sent, received = (" ".join(map(str, part.tolist())) for part in (blocks[rank], blocks[:, rank]))
        action = f"alltoallv {blocks[rank].sum()} {sent} {blocks[:, rank].sum()} {received} 6 6"
        lines += [f"{rank} init", f"{rank} compute {10 * rank}", f"{rank} {action}", f"{rank} finalize"]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.txt"
        path.write_text("".join(f"{line}\n" for line in lines))
        return simgrid_ti.read(path)


def programs() -> Iterator[tuple[str, Workload, np.ndarray | None, Machine]]:
    for num_ranks in (64, 1024):
        for topology in ("crossbar", "fat-tree"):
            yield (
                f"halo, {num_ranks} ranks, 10 iterations, {topology}",
                halo(num_ranks, 10),
                None,
                wide(num_ranks, topology),
            )
    for name in ("crossbar256", "fattree256"):
        machine = build_machine(load_yaml(shipped_targets()[name]), name)
        for trace in ("nas-cg-A-64", "nas-is-A-64", "hpcg-64", "lulesh-64", "lulesh-imb-64"):
            workload = simgrid_ti.read(shipped.folder() / f"{trace}.tar.zst")
            compute = compute_per_operation(workload, workload.column("phases", "duration_ps"))
            yield f"{trace}, {name}", workload, compute, machine
        for num_ranks in (64, 256):
            workload = all_to_all(num_ranks, 0.5)
            compute = compute_per_operation(workload, workload.column("phases", "duration_ps"))
            yield f"uneven all-to-all, {num_ranks} ranks, {name}", workload, compute, machine


def measure_steps() -> None:
    print("| program | exact, CPU s | " + " | ".join(f"step {step}: error | CPU s" for step in STEPS) + " |")
    print("| --- " * (2 + 2 * len(STEPS)) + "|")
    for name, workload, compute, machine in programs():
        program = build_program(workload, machine.network.collectives)
        before = uneven(program, workload) if compute is None else compute
        seconds, exact = kernel(program, before, machine)
        cells = []
        for step in STEPS:
            taken, makespan = kernel(program, before, machine, step)
            cells.append(f"{100 * (makespan / exact - 1):+.3f} % | {taken:.2f}")
        print(f"| {name} | {seconds:.2f} | {' | '.join(cells)} |", flush=True)


def measure_slopes(collectives: str, counts: list[int], iterations: int = 100) -> None:
    kernel(build_program(halo(16, 1), "simgrid-3.32"), np.zeros(16 * 10), wide(16))  # compiles
    print("| ranks | messages | build, CPU s | kernel, even compute | ratio | uneven by 10 % | ratio | peak GB |")
    print("| --- " * 8 + "|")
    last: tuple[float, float] | None = None
    for num_ranks in counts:
        begin = time.process_time()
        workload, machine = halo(num_ranks, iterations), wide(num_ranks, "", collectives)
        program = build_program(workload, machine.network.collectives)
        built = time.process_time() - begin
        even, _ = kernel(program, compute_per_operation(workload, workload.column("phases", "duration_ps")), machine)
        spread, _ = kernel(program, uneven(program, workload), machine)
        ratios = ("", "") if last is None else (f"{even / last[0]:.1f}", f"{spread / last[1]:.1f}")
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
        print(
            f"| {num_ranks:,} | {program.num_messages:,} | {built:.1f} | {even:.2f} | {ratios[0]} | {spread:.2f} "
            f"| {ratios[1]} | {peak:.1f} |",
            flush=True,
        )
        last = even, spread


if __name__ == "__main__":
    if sys.argv[1] == "steps":
        measure_steps()
    else:
        measure_slopes(sys.argv[2], [int(count) for count in sys.argv[3:]])
