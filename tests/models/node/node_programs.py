"""Small programs for tests, and a second scheduler: first in first out, in plain Python, by its rules and not by state.

The peer asks of every suspended instance after every completion whether its condition holds now, from the set of
completed instances and the tree of creation; it keeps no counts.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from manyscale.models.node.program.node_program import Action, InstanceFlag, NodeProgram
from manyscale.models.node.scheduler.runtime_system import RuntimeSystem

Steps = Sequence[tuple[Action, int]]  # what a step asks for; a compute's value is its time in ps


def node_program(
    instances: Sequence[Steps],
    edges: Sequence[tuple[int, int]] = (),
    *,
    loops: Sequence[tuple[int, int]] = (),
    flags: dict[int, int] | None = None,
    priority: dict[int, int] | None = None,
    phases: Sequence[tuple[int, int]] = (),
    num_locks: int = 0,
) -> NodeProgram:
    """Instance 0 is the initial task; ``loops`` are ranges of chunks, ascending; ``phases``: (steps of the initial
    task, instances) of each, one phase by default."""
    count = len(instances)
    action = [step[0] for steps in instances for step in steps]
    target = [step[1] for steps in instances for step in steps]
    piece_ps, piece_instance = [], []
    parent = np.full(count, -1, np.int32)
    bits = np.zeros(count, np.uint8)
    at = 0
    for number, steps in enumerate(instances):
        for what, value in steps:
            if what == Action.compute:
                target[at] = len(piece_ps)
                piece_ps.append(value)
                piece_instance.append(number)
            elif what in (Action.create, Action.call):
                parent[value] = number
            elif what in (Action.loop, Action.loop_nowait):
                parent[slice(*loops[value])] = number
                bits[slice(*loops[value])] = InstanceFlag.chunk
                target[at] = 2 * value  # those of odd numbers are what lies between
            at += 1
    for number, bit in (flags or {}).items():
        bits[number] |= bit
    ordered = sorted(edges)
    cut = list(phases) or [(len(instances[0]), count - 1)]
    pieces = len(piece_ps)
    none = np.zeros(pieces, np.int64)
    return NodeProgram(
        rank=3,
        num_cores=1,
        step_action=np.array(action, np.uint8),
        step_target=np.array(target, np.int32),
        first_step=np.concatenate([[0], np.cumsum([len(steps) for steps in instances])]),
        parent=parent,
        task_type=np.where(np.arange(count) == 0, -1, 0).astype(np.int32),
        priority=np.array([(priority or {}).get(number, 0) for number in range(count)], np.int32),
        instance_flags=bits,
        instance_id=np.where(bits & InstanceFlag.chunk, -1, np.arange(count)).astype(np.int32),
        num_predecessors=np.bincount([after for _, after in ordered], minlength=count).astype(np.int32),
        first_successor=np.searchsorted([before for before, _ in ordered], np.arange(count + 1)),
        successor=np.array([after for _, after in ordered], np.int32),
        first_chunk=np.array([*(bound for pair in loops for bound in pair), count], np.int32),
        piece_ps=np.array(piece_ps, np.int64),
        piece_instance=np.array(piece_instance, np.int32),
        piece_event=none,
        first_segment=none,
        end_segment=none,
        part=none.astype(np.int32),
        num_parts=none.astype(np.int32) + 1,
        phase_first_step=np.concatenate([[0], np.cumsum([steps for steps, _ in cut])]),
        phase_first_instance=(1 + np.concatenate([[0], np.cumsum([number for _, number in cut])])).astype(np.int32),
        phase_operation=np.arange(len(cut), dtype=np.int32),
        phase_iteration=np.full(len(cut), -1, np.int32),
        num_locks=num_locks,
    )


@dataclass
class _Instance:
    number: int
    steps: list[tuple[Action, int]]
    parent: int
    place: int = 0
    core: int = -1
    paid: bool = False
    groups: list[int] = field(default_factory=list)  # that it opened
    member_of: int = -1
    inherited: int = -1
    called_by: int = -1
    waits: str = ""
    target: int = 0

    @property
    def open_group(self) -> int:
        return self.groups[-1] if self.groups else self.inherited


class Peer:
    """First in first out on one phase of a program, with costs; no priorities, no speedup of creators."""

    def __init__(self, program: NodeProgram, num_cores: int, runtime: RuntimeSystem, phase: int = 0) -> None:
        self.program, self.runtime, self.num_cores = program, runtime, num_cores
        first, end = program.phase_first_instance[phase : phase + 2].tolist()
        self.instances: dict[int, _Instance] = {}
        for number in (0, *range(first, end)):
            steps = slice(*program.first_step[number : number + 2].tolist())
            if number == 0:
                steps = slice(*program.phase_first_step[phase : phase + 2].tolist())
            pairs = zip(program.step_action[steps].tolist(), program.step_target[steps].tolist(), strict=True)
            listed = [(Action(action), target) for action, target in pairs]
            self.instances[number] = _Instance(number, listed, int(program.parent[number]))
        self.before: dict[int, set[int]] = {number: set() for number in self.instances}
        for number in self.instances:
            for after in program.successor[slice(*program.first_successor[number : number + 2].tolist())].tolist():
                self.before[after].add(number)
        self.created: list[int] = []
        self.done: set[int] = set()
        self.held: list[int] = []  # created, predecessors not complete
        self.ready: list[int] = []
        self.chunks: list[tuple[int, list[int]]] = []  # of loops: (owner, chunks left to begin)
        self.suspended: list[int] = []
        self.resumed: list[list[int]] = [[] for _ in range(num_cores)]
        self.running: list[int | None] = [None] * num_cores
        self.state = ["idle"] * num_cores
        self.counted: set[int] = set()
        self.locks: dict[int, list[int]] = {}
        self.num_groups = 0
        self.events: list[tuple[int, int]] = []
        self.late: list[int] = []  # untied instances that go on after what became ready by the same completion
        self.depth = 0

    def makespan(self) -> int:
        """Picoseconds; -1 if it does not end."""
        self.running[0] = 0
        self.state[0] = "running"
        self.instances[0].core = 0
        self.events = [(0, 0)]
        while self.events:
            time, core = heapq.heappop(self.events)
            if self.advance(core, time):
                return time
        return -1

    def advance(self, core: int, time: int) -> bool:
        self.state[core] = "running"
        while True:
            if self.running[core] is None:
                cost = self.find(core)
                self.wake(time)
                if self.running[core] is None:
                    self.state[core] = "idle"
                    return False
                if cost:
                    heapq.heappush(self.events, (time + cost, core))
                    return False
            me = self.instances[self.running[core] or 0]
            if me.place == len(me.steps):
                if me.number == 0:
                    if set(self.created) <= self.done:
                        return True
                    self.suspend(core, me, "all", 0)
                    continue
                if self.runtime.complete_ps and not me.paid:
                    me.paid = True
                    heapq.heappush(self.events, (time + self.runtime.complete_ps, core))
                    return False
                self.running[core] = None
                self.complete(me.number, core, time)
                continue
            action, target = me.steps[me.place]
            if action in (Action.create, Action.call):
                pseudo = int(self.program.instance_flags[target]) & InstanceFlag.pseudo
                if self.runtime.create_ps and not me.paid and not pseudo:
                    me.paid = True
                    heapq.heappush(self.events, (time + self.runtime.create_ps, core))
                    return False
                me.paid = False
                me.place += 1
                self.create(me, target, core, time, action == Action.call)
            elif action == Action.compute:
                me.place += 1
                heapq.heappush(self.events, (time + int(self.program.piece_ps[target]), core))
                return False
            elif action == Action.acquire:
                me.place += 1
                self.locks.setdefault(target, []).append(core)
                if self.locks[target][0] != core:
                    self.state[core] = "spinning"
                    return False
            elif action == Action.release:
                me.place += 1
                self.locks[target].pop(0)
                if self.locks[target]:
                    heapq.heappush(self.events, (time, self.locks[target][0]))
            elif action == Action.begin_group:
                me.place += 1
                me.groups.append(self.num_groups)
                self.num_groups += 1
            elif action in (Action.loop, Action.loop_nowait):
                me.place += 1
                chunks = list(range(*self.program.first_chunk[target : target + 2].tolist()))
                if chunks:
                    self.created += chunks
                    for chunk in chunks:
                        self.instances[chunk].member_of = self.instances[chunk].inherited = me.open_group
                    self.chunks.append((me.number, chunks))
                    self.suspend(core, me, "loop" if action == Action.loop else "begun", target)
            else:
                kind = {
                    Action.wait_children: "children",
                    Action.wait_instance: "instance",
                    Action.end_group: "group",
                    Action.barrier: "all",
                }[action]
                if kind == "group":
                    target = me.groups[-1]
                if not self.holds(me, kind, target):
                    self.suspend(core, me, kind, target)
                    continue
                if kind == "group":
                    me.groups.pop()
                me.place += 1

    def holds(self, me: _Instance, kind: str, target: int) -> bool:
        """Whether what an instance waits for has come."""
        alive = [self.instances[number] for number in self.created if number not in self.done]
        chunk = InstanceFlag.chunk
        if kind == "children":
            flags = self.program.instance_flags
            return not any(other.parent == me.number and not flags[other.number] & chunk for other in alive)
        if kind in ("instance", "call"):
            return target in self.done
        if kind == "group":
            return not any(other.member_of == target for other in alive)
        if kind == "loop":
            return set(range(*self.program.first_chunk[target : target + 2].tolist())) <= self.done
        if kind == "begun":
            return not any(owner == me.number for owner, _ in self.chunks)
        return not alive

    def suspend(self, core: int, me: _Instance, kind: str, target: int) -> None:
        me.waits, me.target = kind, target
        self.suspended.append(me.number)
        self.running[core] = None

    def settle(self, core: int, time: int) -> None:
        """Resume whoever may go on."""
        for kind in ("begun", "loop", "children", "call", "instance", "group", "all"):
            for number in list(self.suspended):
                me = self.instances[number]
                if me.waits == kind and self.holds(me, kind, me.target):
                    self.suspended.remove(number)
                    untied = int(self.program.instance_flags[number]) & InstanceFlag.untied
                    if kind == "call" and self.running[core] is None and (untied or me.core == core):
                        self.running[core] = number
                        me.core = core
                    elif untied:
                        self.late.append(number)
                    else:
                        self.put_on(me.core, number, time)

    def put_on(self, core: int, number: int, time: int) -> None:
        self.resumed[core].append(number)
        if self.state[core] == "idle":
            self.state[core] = "woken"
            heapq.heappush(self.events, (time, core))

    def release(self, core: int, time: int) -> None:
        for number in list(self.held):
            me = self.instances[number]
            if number not in self.held or not self.before[number] <= self.done:
                continue
            self.held.remove(number)
            if int(self.program.instance_flags[number]) & InstanceFlag.pseudo:
                self.complete(number, core, time)
            elif me.called_by >= 0:
                self.put_on(self.instances[me.called_by].core, number, time)
            else:
                self.ready.append(number)

    def create(self, parent: _Instance, number: int, core: int, time: int, called: bool) -> None:
        me = self.instances[number]
        me.member_of = me.inherited = parent.open_group
        self.created.append(number)
        pseudo = int(self.program.instance_flags[number]) & InstanceFlag.pseudo
        complete = self.before[number] <= self.done
        if called and not (complete and pseudo):
            me.called_by = parent.number
            self.suspend(core, parent, "call", number)
            if complete:
                self.running[core], me.core = number, core
                return
        self.held.append(number)
        self.release(core, time)
        self.wake(time)

    def complete(self, number: int, core: int, time: int) -> None:
        self.done.add(number)
        self.settle(core if self.running[core] is None else -1, time)
        self.depth += 1
        self.release(core, time)
        self.depth -= 1
        if self.depth == 0:
            self.ready += self.late
            self.late = []
        if self.running[core] is not None:
            self.wake(time)

    def find(self, core: int) -> int:
        self.counted.discard(core)
        cost = 0
        if self.resumed[core]:
            number = self.resumed[core].pop(0)
        elif len(self.ready) + sum(len(chunks) for _, chunks in self.chunks) <= len(self.counted):
            return 0  # idle cores are on their way to what there is
        elif self.chunks:
            chunks = self.chunks[0][1]
            number = chunks.pop(0)
            cost = self.runtime.schedule_ps
            if not chunks:
                self.chunks.pop(0)
                self.instances[number].core = core
                self.running[core] = number
                self.settle(-1, 0)
                self.ready += self.late
                self.late = []
        else:
            number = self.ready.pop(0)
            cost = self.runtime.schedule_ps if self.instances[number].core < 0 else 0
        self.instances[number].core = core
        self.running[core] = number
        return cost

    def wake(self, time: int) -> None:
        work = len(self.ready) + sum(len(chunks) for _, chunks in self.chunks)
        for core in range(self.num_cores):
            if self.state[core] == "idle" and work > len(self.counted):
                self.state[core] = "woken"
                self.counted.add(core)
                heapq.heappush(self.events, (time, core))
