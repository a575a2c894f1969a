"""Replay of a program: every rank's operations in simulated time, with messages of a known cost.

The law of a message, for ``cost`` = latency + (bytes + envelope) / bandwidth of its route (latency-bandwidth model, as
SimGrid's contention-free replay has it; see latency_bandwidth.py):

* with *match* start the transfer begins when both sides are posted and takes ``cost``;
* with *eager* start an eager message is there at max(receive posted, send posted + cost);
* the sender of an eager message goes on at once, that of a rendezvous message with the end of the transfer;
* the receiver goes on with the end of the transfer.

A collective that costs what a formula says is a gate: it opens its ``cost`` after the last has entered, for all.

Almost nothing depends on the order of execution, so strands run as far as they can, in any order. A step whose outcome
does depend on it (a post that a wildcard receive is part of, a wait for any of several requests) parks its strand in a
heap by simulated time; the earliest parked strand goes on once no other can run, for then whatever is still to happen
happens later. Ties go to the lower strand. Once all wildcard receives of a queue are matched, order matters no more
there: MPI keeps the messages of one pair of ranks in order.

Cost: O(steps + parked steps x log strands); queues of wildcard receives are searched in order of posting. Memory: 33 B
a message, 16 B an operation and 24 B a gate.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from manyscale.models.network.program import Program
from manyscale.models.network.replay.kernel import BOTH_POSTED, ENDED, Script, new_stage, run
from manyscale.models.network.replay.order_kernel import new_order, run_in_order
from manyscale.models.network.replay.steps import ACTION, FIRST, Step
from manyscale.models.network.replay.timeline import ReplayError, Timeline
from manyscale.models.workload import ANY_SOURCE, ANY_TAG

VERSION = 1


@dataclass(frozen=True)
class MessageLaw:
    """What the replay needs of a network: int64 ``cost_ps`` and bool ``is_eager`` per message, whether eager messages
    travel before their receive is posted, and int64 ``gate_cost_ps`` per gate."""

    cost_ps: np.ndarray
    is_eager: np.ndarray
    eager_start: bool
    gate_cost_ps: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))

    def __post_init__(self) -> None:
        for values in (self.cost_ps, self.is_eager, self.gate_cost_ps):
            values.flags.writeable = False


def replay_law(program: Program, compute_ps: np.ndarray, law: MessageLaw) -> Timeline:
    """Timeline of a program whose operation i is preceded by ``compute_ps[i]`` (int64) of compute.

    Raises ReplayError for a deadlock, with what each stuck rank waits for.
    """
    num_operations = int(program.rank_offsets[-1])
    if compute_ps.shape != (num_operations,):
        raise ValueError(f"compute_ps has shape {compute_ps.shape}, not ({num_operations},)")
    if law.gate_cost_ps.shape != program.gate_size.shape:
        raise ValueError(f"{len(law.gate_cost_ps)} costs for {len(program.gate_size)} gates")
    if program.only_computes:
        nothing = np.empty(0, np.int64)
        return Timeline(ends_of_compute(program, compute_ps), nothing, nothing.copy())
    script = Script(
        program.step, program.target, program.strand_steps[1:], read_only(compute_ps), law.cost_ps, law.is_eager,
        law.eager_start,
    )  # fmt: skip
    stage = new_stage(program, law.gate_cost_ps)
    if program.num_queues or len(program.candidate_target):
        run_in_order(script, stage, new_order(program))
    else:
        run(script, stage)
    finished = stage.strand["phase"] == ENDED
    if not finished.all():
        raise ReplayError(deadlock(program, stage.strand["place"], finished))
    if program.num_queues:
        refuse_unreceived(program, stage.message["posted"])
    return Timeline(stage.end_ps, stage.message["sent"], stage.message["received"])


def ends_of_compute(program: Program, compute_ps: np.ndarray) -> np.ndarray:
    """int64 per operation: when it ends if its rank only computes."""
    total = np.concatenate((np.zeros(1, np.int64), np.cumsum(compute_ps, dtype=np.int64)))
    first = program.rank_offsets[:-1]
    ends: np.ndarray = total[1:] - np.repeat(total[first], np.diff(program.rank_offsets))
    return ends


def read_only(values: np.ndarray) -> np.ndarray:
    """A view that cannot be written, as Ray and Arrow hand arrays over: one compiled kernel for all."""
    view = np.ascontiguousarray(values).view()
    view.flags.writeable = False
    return view


def refuse_unreceived(program: Program, status: np.ndarray) -> None:
    lonely = np.flatnonzero(status != BOTH_POSTED)
    if len(lonely):
        message = lonely[0]
        rank = int(program.source[message])
        raise ReplayError(
            f"rank {rank}, operation {int(program.send_operation[message])} sends {int(program.bytes[message])} B to "
            f"rank {int(program.destination[message])}, which never receives it ({len(lonely)} such messages); "
            "the trace is incomplete"
        )


def deadlock(program: Program, place: np.ndarray, finished: np.ndarray) -> str:
    """What the stuck ranks wait for, at most five of them."""
    stuck = np.flatnonzero(finished == 0)
    ranks = np.unique(program.strand_rank[stuck])
    lines = [stuck_strand(program, int(strand), int(place[strand])) for strand in stuck[:5]]
    return deadlock_of(len(ranks), program.num_ranks, lines, len(stuck))


def deadlock_of(num_stuck_ranks: int, num_ranks: int, lines: list[str], num_stuck: int) -> str:
    more = f"; and {num_stuck - len(lines)} more" if num_stuck > len(lines) else ""
    return f"deadlock: {num_stuck_ranks} of {num_ranks} ranks never finish: {'; '.join(lines)}{more}"


def stuck_strand(program: Program, strand: int, place: int) -> str:
    """What a strand waits for at a step."""
    rank = int(program.strand_rank[strand])
    action, target = int(program.step[place]) & ACTION, int(program.target[place])
    begin = int(program.strand_steps[strand])
    if strand < program.num_ranks:
        operation = int(np.count_nonzero(program.step[begin : place + 1] & FIRST)) - 1
        where = f"rank {rank}, operation {operation}"
    else:
        where = f"rank {rank}, in a non-blocking collective"
    if action in (Step.wait_send, Step.wait_receive):
        source, destination = int(program.source[target]), int(program.destination[target])
        size = int(program.bytes[target])
        if action == Step.wait_send:
            return f"{where} waits for rank {destination} to receive {size} B"
        return f"{where} waits for {size} B from rank {source}"
    if action == Step.wait_open_receive:
        wanted = int(program.open_source[target])
        tag = int(program.open_tag[target])
        who = "any rank" if wanted == ANY_SOURCE else f"rank {wanted}"
        return f"{where} waits for a message from {who} with {'any tag' if tag == ANY_TAG else f'tag {tag}'}"
    if action == Step.wait_any:
        count = int(program.candidate_offsets[target + 1] - program.candidate_offsets[target])
        return f"{where} waits for the first of {count} requests"
    if action == Step.call:
        return f"{where} waits for the others of its collective"
    if action == Step.wait_gate:
        return f"{where} waits for the others of its collective ({int(program.gate_size[target])} ranks)"
    return f"{where} waits for its non-blocking collective"
