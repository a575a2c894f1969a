"""Policies of the runtime system on a blocked Cholesky factorisation, beside bounds that no schedule beats.

``python -m scheduling.compare_policies`` in tests/validation, with manyscale importable, prints the rows of RESULTS.md.
The graph is that of N x N blocks (potrf, trsm, syrk, gemm; right-looking, as programs create it); creation takes no
time. Times of types are those that ``manyscale show`` says of a traced program (apps/cholesky, 16 x 16 blocks of 32 on
one core: 4.81, 9.71, 7.81 and 14.4 us, spread 11 to 19 %), each instance's drawn from a log-normal distribution.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2] / "models" / "node"))
from node_programs import node_program

from manyscale.models.node.burst import run_phases
from manyscale.models.node.program.node_program import Action, NodeProgram
from manyscale.models.node.program.task_graph import dependence_edges
from manyscale.models.node.scheduler.runtime_system import POLICIES, RuntimeSystem
from manyscale.models.workload.task_tables import DependenceKind

MEAN_NS: Final = (4806.0, 9713.0, 7812.0, 14400.0)  # potrf, trsm, syrk, gemm
SPREAD: Final = 0.15
SEEDS: Final = range(10)
# name, cores, speeds of the kinds with how many there are
NODES: Final = (
    ("16 alike", ((16, 1.0),)),
    ("64 alike", ((64, 1.0),)),
    ("4 + 12 of 0.4", ((4, 1.0), (12, 0.4))),
    ("16 + 48 of 0.4", ((16, 1.0), (48, 0.4))),
)


def tasks_of(blocks: int) -> list[tuple[int, list[tuple[int, bool]]]]:
    """Type and accesses (block, whether written) of each instance, in program order."""
    found = []
    for k in range(blocks):
        found.append((0, [(k * blocks + k, True)]))
        found += [(1, [(k * blocks + k, False), (i * blocks + k, True)]) for i in range(k + 1, blocks)]
        for i in range(k + 1, blocks):
            found.append((2, [(i * blocks + k, False), (i * blocks + i, True)]))
            found += [
                (3, [(i * blocks + k, False), (j * blocks + k, False), (i * blocks + j, True)])
                for j in range(k + 1, i)
            ]  # fmt: skip
    return found


def cholesky(blocks: int, seed: int, spread: float = SPREAD) -> NodeProgram:
    """The program, its times drawn."""
    tasks = tasks_of(blocks)
    kind = np.array([each for each, _ in tasks])
    sigma = np.sqrt(np.log1p(spread**2))
    drawn = np.random.default_rng(seed).normal(-(sigma**2) / 2, sigma, len(kind))
    times = np.rint(np.array(MEAN_NS)[kind] * np.exp(drawn) * 1000).astype(np.int64)
    named = [(number + 1, write, block) for number, (_, blocks_) in enumerate(tasks) for block, write in blocks_]
    parent = np.append(np.int64(-1), np.zeros(len(tasks), np.int64))
    kinds = [int(DependenceKind.depend_inout if write else DependenceKind.depend_in) for _, write, _ in named]
    before, after = dependence_edges(
        parent, np.array([number for number, _, _ in named]), np.array(kinds, np.int8),
        np.array([block for _, _, block in named]),
    )  # fmt: skip
    steps = [[(Action.create, number + 1) for number in range(len(tasks))]]
    steps += [[(Action.compute, int(time))] for time in times]
    program = node_program(steps, list(zip(before.tolist(), after.tolist(), strict=True)))
    return type(program)(**{**vars(program), "task_type": np.append(np.int32(-1), kind.astype(np.int32))})


def bound_ps(program: NodeProgram, speed: np.ndarray) -> float:
    """No schedule is shorter: all work by all speed, and the critical path on the fastest core."""
    endless = run_phases(program, 1024, RuntimeSystem(), program.piece_ps).makespan_ps[0, 0]
    return max(float(program.piece_ps.sum()) / float(speed.sum()), float(endless) / float(speed.max()))


def main() -> int:
    print(f"{'blocks':>6} {'tasks':>6} {'node':<16} " + " ".join(f"{each:>24}" for each in POLICIES))
    for blocks in (20, 32):
        programs = [cholesky(blocks, seed) for seed in SEEDS]
        for name, kinds in NODES:
            speed = np.concatenate([np.full(count, value) for count, value in kinds])
            cells = []
            for policy in POLICIES:
                over = []
                for seed, program in zip(SEEDS, programs, strict=True):
                    found = run_phases(
                        program, len(speed), RuntimeSystem(policy=policy), program.piece_ps, speed=speed, seed=seed
                    )
                    over.append(float(found.makespan_ps[0, 0]) / bound_ps(program, speed) - 1)
                cells.append(f"{100 * np.mean(over):15.2f} +- {100 * np.std(over, ddof=1):5.2f}")
            print(f"{blocks:6} {programs[0].num_instances - 1:6} {name:<16} " + " ".join(cells), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
