"""Replay of programs whose large collectives are called: each instance by itself, once all of its ranks are there.

In execution, not in simulated time: a rank's step of a call ends when the schedule of the collective, replayed from the
times at which its ranks come, says so. Messages of a collective are of no other operation, and nothing depends on the
order of execution, so that the times are those of the program with all collectives written out (``written_out``). Only
where a rank can leave a collective before another enters, and that one waits for it, does the replay of calls stop
(EntangledCallsError); the program has to be written out then.

Cost: that of the program written out. Memory: that of an instance of each of at most 16 collectives beside the program
of calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Final

import numpy as np

from manyscale.models.kernels import allocation_free, by_reference
from manyscale.models.network.collectives.calls import Calls
from manyscale.models.network.matching import Mode
from manyscale.models.network.program import Program
from manyscale.models.network.replay.kernel import ENDED, FRESH, Script, Stage, new_stage, run, run_ready
from manyscale.models.network.replay.replay import MessageLaw, deadlock, read_only
from manyscale.models.network.replay.steps import ACTION, CALL, FIRST, LAST
from manyscale.models.network.replay.timeline import ReplayError, Timeline

VERSION = 1
_MOST_REPLAYS: Final = 16
_MOST_MESSAGES: Final = 2**31 - 1  # of a program written out


class EntangledCallsError(ReplayError):
    """No rank goes on, and no collective has all of its ranks: a deadlock, or one that its ranks leave one by one."""


def called_programs(calls: Calls) -> list[Program]:
    """Of each collective that is called, one instance: a program of its participants, with one operation each."""
    return [_one_instance(calls, number) for number in range(len(calls.schedules))]


def _one_instance(calls: Calls, number: int) -> Program:
    plan = calls.schedules[number]
    count = plan.num_participants
    step = plan.step.astype(np.uint8)
    step[plan.participant_offsets[:-1]] |= FIRST
    step[plan.participant_offsets[1:] - 1] |= LAST
    numbers, codes = np.empty(0, np.int32), np.empty(0, np.uint8)
    return Program(
        num_ranks=count, rank_offsets=np.arange(count + 1), step=step, target=plan.message,
        strand_steps=plan.participant_offsets, strand_rank=np.arange(count, dtype=np.int32), source=plan.source,
        destination=plan.destination, bytes=plan.bytes, mode=np.full(plan.num_messages, Mode.standard, np.uint8),
        send_queue=numbers, send_tag=numbers, send_operation=numbers, open_queue=numbers, open_source=numbers,
        open_tag=numbers, num_queues=0, candidate_offsets=np.zeros(1, np.int64), candidate_action=codes,
        candidate_target=numbers, gate_size=numbers, gate_model=np.empty((0, 2), np.uint8),
        gate_bytes=np.empty((0, 2), np.int64),
    )  # fmt: skip


def law_of_calls(
    program: Program, node_of_rank: np.ndarray, law_of: Callable[[Program, np.ndarray], MessageLaw]
) -> list[tuple[Program, MessageLaw]]:
    """Program and law of each collective that ``program`` calls; none where it calls none. ``law_of`` a program, whose
    ranks run on the given nodes."""
    if program.calls is None:
        return []
    parts = zip(called_programs(program.calls), program.calls.members, strict=True)
    return [(part, law_of(part, node_of_rank[members])) for part, members in parts]


class CalledReplay:
    """Replays instances of one collective that is called, in the same memory: a timeline is valid until the next."""

    def __init__(self, part: Program, law: MessageLaw) -> None:
        self.part, self.law = part, law
        self._stage = new_stage(part, law.gate_cost_ps)
        self._fresh = [values.copy() for values in (self._stage.strand, self._stage.message, self._stage.ready)]

    def timeline(self, entered_ps: np.ndarray) -> Timeline:
        """Of the instance that its participants enter at these times."""
        stage = self._stage
        for values, fresh in zip((stage.strand, stage.message, stage.ready), self._fresh, strict=True):
            values[:] = fresh
        stage.counter[:] = len(entered_ps), 0
        part, law = self.part, self.law
        run(
            Script(
                part.step, part.target, part.strand_steps[1:], read_only(entered_ps), law.cost_ps, law.is_eager,
                law.eager_start,
            ),
            stage,
        )  # fmt: skip
        finished = stage.strand["phase"] == ENDED
        if not finished.all():
            raise ReplayError(deadlock(part, stage.strand["place"], finished))
        return Timeline(stage.end_ps, stage.message["sent"], stage.message["received"])


def called_replays(parts: Sequence[tuple[Program, MessageLaw]]) -> Callable[[int], CalledReplay]:
    """The replay of each collective by its number, from program and law of each. Of many that differ (all-to-alls with
    sizes of their own) only the latest stay in memory."""
    return lru_cache(_MOST_REPLAYS)(lambda kind: CalledReplay(*parts[kind]))


def replay_calls(
    program: Program, compute_ps: np.ndarray, law: MessageLaw, parts: Sequence[tuple[Program, MessageLaw]]
) -> Timeline:
    """As replay_law, of a program with ``calls``; ``parts``: program and law of one instance of each that is called.
    Times of messages are those of the messages that stand in the program. Raises EntangledCallsError."""
    calls = program.calls
    assert calls is not None
    stage = new_stage(program, law.gate_cost_ps)
    script = Script(
        program.step, program.target, program.strand_steps[1:], read_only(compute_ps), law.cost_ps, law.is_eager,
        law.eager_start,
    )  # fmt: skip
    replay_of = called_replays(parts)
    missing = calls.num_participants
    parked = np.empty(program.num_ranks, np.int32)
    while count := run_to_calls(script, stage, parked):
        instances, arrived = np.unique(program.target[stage.strand["place"][parked[:count]]], return_counts=True)
        missing[instances] -= arrived
        complete = instances[missing[instances] == 0]
        if not len(complete):
            raise EntangledCallsError(deadlock(program, stage.strand["place"], stage.strand["phase"] == ENDED))
        for instance in complete.tolist():
            kind = int(calls.kind[instance])
            members = calls.members[kind]
            _go_on(stage, members, replay_of(kind).timeline(stage.strand["clock"][members]).end_ps)
    finished = stage.strand["phase"] == ENDED
    if not finished.all():
        raise EntangledCallsError(deadlock(program, stage.strand["place"], finished))
    return Timeline(stage.end_ps, stage.message["sent"], stage.message["received"])


def _go_on(stage: Stage, members: np.ndarray, ends_ps: np.ndarray) -> None:
    """The ranks of a call have left it: each is before its next operation, and can go on."""
    strand = stage.strand
    stage.end_ps[strand["operation"][members]] = ends_ps
    strand["clock"][members] = ends_ps
    strand["place"][members] += 1
    strand["operation"][members] += 1
    strand["phase"][members] = FRESH
    first = int(stage.counter[0])
    stage.ready[first : first + len(members)] = members[::-1]
    stage.counter[0] += len(members)


@allocation_free
def run_to_calls(script, stage, parked):  # type: ignore[no-untyped-def]
    """Run all strands until none can go on: how many stand before a call, which are ``parked``."""
    script, stage = by_reference(script), by_reference(stage)
    count = 0
    strand = run_ready(script, stage)
    while strand >= 0:
        parked[count] = strand
        count += 1
        strand = run_ready(script, stage)
    return count


def written_out(program: Program) -> Program:
    """The same with the steps and messages of all instances, which follow its own messages. O(steps). Raises
    ReplayError for more messages than have numbers."""
    calls = program.calls
    if calls is None:
        return program
    parts = called_programs(calls)
    total = program.num_messages + sum(parts[kind].num_messages for kind in calls.kind.tolist())
    if total > _MOST_MESSAGES:
        raise ReplayError(
            f"{total} messages with the collectives that ranks leave one by one; at most 2^31 - 1 can be replayed"
        )
    row_of = np.cumsum(program.step & FIRST > 0) - 1  # non-blocking collectives follow those of all ranks
    at = [np.searchsorted(row_of[: program.strand_steps[program.num_ranks]], rows) for rows in calls.rows]
    length = np.ones(len(program.step), np.int64)
    for kind, steps in zip(calls.kind.tolist(), at, strict=True):
        length[steps] = np.diff(parts[kind].strand_steps)
    begin = np.concatenate((np.zeros(1, np.int64), np.cumsum(length)))
    step, target = np.empty(begin[-1], np.uint8), np.empty(begin[-1], np.int32)
    own = np.flatnonzero(program.step & ACTION != CALL)
    step[begin[own]], target[begin[own]] = program.step[own], program.target[own]
    first_message = program.num_messages
    for kind, steps in zip(calls.kind.tolist(), at, strict=True):
        part = parts[kind]
        place = np.repeat(begin[steps] - part.strand_steps[:-1], np.diff(part.strand_steps)) + np.arange(len(part.step))
        step[place], target[place] = part.step, part.target + first_message
        first_message += part.num_messages
    source, destination, size, mode = (
        np.concatenate([getattr(program, name), *_of_instances(calls, parts, name)])
        for name in ("source", "destination", "bytes", "mode")
    )
    return replace(
        program, step=step, target=target, strand_steps=begin[program.strand_steps], source=source,
        destination=destination, bytes=size, mode=mode, calls=None,
    )  # fmt: skip


def _of_instances(calls: Calls, parts: Sequence[Program], name: str) -> Iterator[np.ndarray]:
    """A column of messages, of one instance after the other."""
    for kind in calls.kind.tolist():
        values = getattr(parts[kind], name)
        yield calls.members[kind][values] if name in ("source", "destination") else values
