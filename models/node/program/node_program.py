"""What a rank asks of the runtime system of a node: a program of steps, for any number of cores.

A rank's task instances, its initial task among them, each have a sequence of *steps*. Between two steps that concern
the runtime system lies a *piece* of the instance's own work: the time between two neighbours of the rank's sequence of
operations and events (workload/task_tables.py), which takes its traced CPU time, or what a model of the core says.

*Phases* are what is simulated together: the steps of the initial task from one cut to the next, and the instances
created there. Cuts lie at MPI operations that the initial task calls while no other instance is left to do, so phases
are independent of each other. An operation that is called in another place stands in its phase as a step: such a rank
is *coupled*, and its task graph has to join the replay.

Source: MUSA (Grass, UPC 2017, section 6.3.3); MPI inside phases is what section 8.3 of it asks for.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, IntFlag
from typing import Final

import numpy as np

from manyscale.models.workload.notes import Note


class Action(IntEnum):
    """What a step asks for; what ``target`` means."""

    compute = 0  # a piece
    create = 1  # an instance, which other cores may execute
    call = 2  # an instance that this core executes at once, before it goes on (undeferred)
    wait_children = 3  # until all children created so far have completed; not their children
    wait_instance = 4  # an instance: until it has completed
    begin_group = 5
    end_group = 6  # until all instances created since begin_group by it or its descendants have completed
    barrier = 7  # until all instances of the rank created so far have completed
    loop = 8  # a loop: its chunks may be executed from now on, by this core too, which goes on when all are done
    loop_nowait = 9  # the same, but it goes on as soon as no chunk is left to begin
    acquire = 10  # a lock, 0 to num_locks - 1
    release = 11
    operation = 12  # an MPI operation of the rank: its operation_id


class InstanceFlag(IntFlag):
    """Bits of ``instance_flags``."""

    untied = 1  # goes on on any core after it was suspended
    chunk = 2  # of a loop
    pseudo = 4  # holds the dependences of a taskwait; does nothing


class LoopFlag(IntFlag):
    """Bits of ``loop_flags``."""

    asked = 1  # its chunks are handed out to whoever asks (dynamic, guided)
    forks = 2  # a parallel region was begun since the loop before


# arrays of instances and pieces that stay what they are where some of these become another program
OF_INSTANCES: Final = ("task_type", "priority", "instance_flags", "instance_id", "num_predecessors")
OF_PIECES: Final = ("piece_event", "first_segment", "end_segment", "part", "num_parts")


@dataclass(frozen=True)
class NodeProgram:
    """Steps and instances of one rank. Instance 0 is the initial task (implicit tasks are part of it). Arrays:

    ``step_action`` uint8[steps], ``step_target`` int32[steps], ``first_step`` int64[instances + 1]: steps of instance i
    are rows [first_step[i], first_step[i + 1]).
    ``parent``, ``task_type``, ``priority`` int32[instances], ``instance_flags`` uint8[instances]; parent of 0 is -1,
    task_type of 0 is -1; a higher priority goes first. ``instance_id`` int32[instances]: row's task_instance_id in the
    trace, -1 for chunks of loops. An instance is created (or its loop begun) by its parent.
    ``num_predecessors`` int32[instances], ``first_successor`` int64[instances + 1], ``successor`` int32[edges]: the
    graph of dependences between instances.
    ``first_chunk`` int32[loops + 1]: instances [first_chunk[l], first_chunk[l + 1]) are the chunks of loop l. (Loops of
    odd numbers, that no step begins, may stand for the instances between two others.) ``loop_flags`` uint8[loops]: bits
    of LoopFlag; None: all 0.
    ``piece_ps`` int64[pieces]: traced CPU time. ``piece_instance`` int32[pieces]. ``piece_event`` int64[pieces]: row of
    the table ``events`` that ends it, -1 where an operation does, -2 for a sleep before an operation.
    ``first_segment``, ``end_segment`` int64[pieces]: rows of the table ``segments`` that hold its instructions, none
    where the two are equal. ``part``, ``num_parts`` int32[pieces]: the piece is the part-th of num_parts equal parts of
    those segments (0 and 1: all of them; a static loop's chunks are parts).
    ``phase_first_step``: int64[phases + 1], rows of steps of instance 0; ``phase_first_instance`` int32[phases + 1]:
    instances beside instance 0, ascending; ``phase_operation`` int32[phases]: operation_id of the operation that ends
    it, the rank's number of operations for what follows the last one, -1 where it ends for another reason: phases are
    also cut where an iteration of the main loop (the table ``iterations``) begins or ends, if nothing is left to do
    there, and the next phase follows at once. Every operation ends a phase or is a step. ``phase_iteration``
    int32[phases]: the iteration that the phase lies in, -1 for none.
    """

    rank: int
    num_cores: int  # for which static loops were cut
    step_action: np.ndarray
    step_target: np.ndarray
    first_step: np.ndarray
    parent: np.ndarray
    task_type: np.ndarray
    priority: np.ndarray
    instance_flags: np.ndarray
    instance_id: np.ndarray
    num_predecessors: np.ndarray
    first_successor: np.ndarray
    successor: np.ndarray
    first_chunk: np.ndarray
    piece_ps: np.ndarray
    piece_instance: np.ndarray
    piece_event: np.ndarray
    first_segment: np.ndarray
    end_segment: np.ndarray
    part: np.ndarray
    num_parts: np.ndarray
    phase_first_step: np.ndarray
    phase_first_instance: np.ndarray
    phase_operation: np.ndarray
    phase_iteration: np.ndarray
    num_locks: int
    notes: tuple[Note, ...] = ()
    loop_flags: np.ndarray | None = None

    def __post_init__(self) -> None:
        """Raises ValueError for flags of other loops, which kernels would read behind their end."""
        if self.loop_flags is not None and len(self.loop_flags) != len(self.first_chunk) - 1:
            raise ValueError(f"flags of {len(self.loop_flags)} loops for {len(self.first_chunk) - 1}")

    @property
    def num_instances(self) -> int:
        return len(self.parent)

    @property
    def num_pieces(self) -> int:
        return len(self.piece_ps)

    @property
    def num_phases(self) -> int:
        return len(self.phase_operation)

    @property
    def is_coupled(self) -> bool:
        """Whether an MPI operation is called while other instances may be at work."""
        return bool(np.any(self.step_action == Action.operation))
