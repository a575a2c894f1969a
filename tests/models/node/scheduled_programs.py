"""What tests of the scheduler share: programs of instances, and what became of them."""

from __future__ import annotations

import random

import pytest
from node_programs import Steps, node_program

from manyscale.models.node.burst import ScheduledPhases, run_phases
from manyscale.models.node.program.node_program import Action, InstanceFlag, NodeProgram
from manyscale.models.node.scheduler.runtime_system import POLICIES, RuntimeSystem

COMPUTE, CREATE, CALL, WAIT = Action.compute, Action.create, Action.call, Action.wait_children
UNTIED, PSEUDO = int(InstanceFlag.untied), int(InstanceFlag.pseudo)
every_policy = pytest.mark.parametrize("policy", POLICIES)


def runtime_of(**parameters: object) -> RuntimeSystem:
    """Costs in ps."""
    costs = ("create", "schedule", "complete", "steal", "chunk", "fork", "barrier", "lock")
    return RuntimeSystem.model_validate(
        {key: f"{value} ps" if key in costs else value for key, value in parameters.items()}
    )


def run(program: NodeProgram, num_cores: int, **parameters: object) -> ScheduledPhases:
    return run_phases(program, num_cores, runtime_of(**parameters), program.piece_ps, keep=True)


def makespan(program: NodeProgram, num_cores: int, **parameters: object) -> int:
    return int(run(program, num_cores, **parameters).makespan_ps[0, 0])


def flat(times: list[int], edges: list[tuple[int, int]] | None = None, **keywords: object) -> NodeProgram:
    """Instances 1, 2, ... of these times, created at once by the initial task."""
    instances: list[Steps] = [[(CREATE, number + 1) for number in range(len(times))]]
    instances += [[(COMPUTE, time)] for time in times]
    return node_program(instances, edges or [], **keywords)  # type: ignore[arg-type]


def order(result: ScheduledPhases) -> list[int]:
    """Instances in order of their begins, by core."""
    rows = sorted(result.stretches.tolist(), key=lambda row: (row[0], row[4]))
    return [row[5] for row in rows]


def cores_of(result: ScheduledPhases) -> dict[int, set[int]]:
    cores: dict[int, set[int]] = {}
    for *_, core, instance in result.stretches[["core", "instance"]].tolist():
        cores.setdefault(instance, set()).add(core)
    return cores


def drawn_program(seed: int, *, locks: bool = True) -> NodeProgram:
    """A program that ends: of everything a program may hold, up to about 60 instances."""
    draw = random.Random(seed)
    instances: list[list[tuple[Action, int]]] = [[]]
    edges: list[tuple[int, int]] = []
    loops: list[tuple[int, int]] = []
    flags: dict[int, int] = {}

    def fill(number: int, depth: int) -> None:
        steps = instances[number]
        children: list[int] = []
        opened = 0
        for _ in range(draw.randint(0, 7 if depth else 12)):
            what = draw.random()
            if what < 0.3:
                steps.append((COMPUTE, draw.choice([0, 1, 1, 2, 3, 10, 17])))
            elif what < 0.65 and depth < 4 and len(instances) < 60:
                child = len(instances)
                instances.append([])
                flags[child] = draw.choice([0, 0, UNTIED])
                if draw.random() < 0.1:
                    flags[child] = PSEUDO
                edges.extend((before, child) for before in children if draw.random() < 0.3)
                steps.append((draw.choice([CREATE, CREATE, CREATE, CALL]), child))
                children.append(child)
                if flags[child] != PSEUDO:
                    fill(child, depth + 1)
            elif what < 0.72:
                steps.append((WAIT, 0))
            elif what < 0.78 and children:
                steps.append((Action.wait_instance, draw.choice(children)))
            elif what < 0.84:
                steps.append((Action.begin_group, 0))
                opened += 1
            elif what < 0.9 and opened:
                steps.append((Action.end_group, 0))
                opened -= 1
            elif what < 0.95 and locks:
                lock = draw.randint(0, 1)
                steps += [(Action.acquire, lock), (COMPUTE, draw.randint(0, 9)), (Action.release, lock)]
            elif depth == 0:
                if draw.random() < 0.3:
                    steps.append((Action.barrier, 0))
                first = len(instances)
                instances.extend([(COMPUTE, draw.randint(0, 9))] for _ in range(draw.randint(1, 6)))
                loops.append((first, len(instances)))
                steps.append((draw.choice([Action.loop, Action.loop_nowait]), len(loops) - 1))
        steps += [(Action.end_group, 0)] * opened

    fill(0, 0)
    return node_program(instances, edges, loops=loops, flags=flags, num_locks=2)
