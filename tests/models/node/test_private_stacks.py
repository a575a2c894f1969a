"""Each core has its own frames of task instances, and shares those of instances that create others."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from block_programs import LINE, RUNTIME, blocks, load, node, store, stream_of, tasks_program
from node_programs import node_program

from manyscale.models.node.detailed import simulate
from manyscale.models.node.private_stacks import private_lines, private_stacks
from manyscale.models.node.program.node_program import Action
from manyscale.models.workload import SCHEMAS

STACK, LINES, TASKS, CORES = 0x7FFE_0000_0000, 8, 40, 2


def misses(stack: tuple[int, int] | None) -> int:
    """Accesses that first caches do not serve, of tasks that each write and read the same lines from STACK on."""
    program = blocks([store(1)], [load(1)])
    lines = [STACK + LINE * line for line in range(LINES)]
    tasks = [([0] * LINES + [1] * LINES, lines + lines)] * TASKS
    stream, pieces = stream_of(program, tasks)
    if stack is not None:
        pieces = replace(pieces, stack=np.tile(np.array(stack), (TASKS, 1)))
    found = simulate(tasks_program(TASKS), program, node(CORES), CORES, RUNTIME, stream, pieces)
    assert np.count_nonzero(found.core_stack[:, 0]) == CORES  # both execute tasks
    return int(found.counts[:, 1:, 0].sum())


@pytest.mark.theory
def test_local_variables_are_not_shared():
    """Each core misses each line once, the first time; those of one stack pass from core to core."""
    assert misses((STACK, STACK + LINE * LINES)) == CORES * LINES
    assert misses(None) > 2 * CORES * LINES
    assert misses((STACK + LINE * LINES, STACK + 2 * LINE * LINES)) == misses((0, 0)) == misses(None)


def test_frames_of_creators_and_of_the_initial_task_stay_shared():
    """Task 1 creates task 2; of task 3 the trace tells nothing."""
    program = node_program(
        [
            [(Action.compute, 1), (Action.create, 1), (Action.create, 3), (Action.compute, 1)],
            [(Action.compute, 1), (Action.create, 2)],
            [(Action.compute, 1)],
            [(Action.compute, 1)],
        ]
    )
    rows = np.arange(program.num_pieces)
    program = replace(program, rank=0, first_segment=rows, end_segment=rows + 1)
    segments = [
        {"rank": 0, "thread": 0, "operation_id": 0, "event_id": -1, "task_instance_id": int(owner)}
        | {"num_blocks": 0, "num_accesses": 0, "num_instructions": 0}
        for owner in program.piece_instance
    ]
    stacks = [
        {"rank": 0, "task_instance_id": each, "first_address": 100, "end_address": 200 + each} for each in range(3)
    ]
    plain = blocks([load(1)])
    tables = {
        **plain.tables,
        "segments": pa.Table.from_pylist(segments, SCHEMAS["segments"]),
        "task_stacks": pa.Table.from_pylist(stacks, SCHEMAS["task_stacks"]),
    }
    stacked = replace(plain, tables=tables, is_checked=True)  # of a program without a table of its tasks
    found = private_stacks(program, stacked)
    assert found is not None
    of_instance = {
        owner: tuple(each) for owner, each in zip(program.piece_instance.tolist(), found.tolist(), strict=True)
    }
    assert of_instance == {0: (0, 0), 1: (0, 0), 2: (100, 202), 3: (0, 0)}
    shifted = replace(program, first_segment=rows + 7, end_segment=rows + 8)
    assert np.array_equal(private_stacks(shifted, stacked, 7), found)
    assert private_stacks(program, plain) is None  # a trace that tells no stacks


def test_lines_that_hold_a_byte_of_a_stack_are_private():
    stack = np.array([[130, 257], [0, 0]])
    assert private_lines(stack, np.array([1, 2, 3, 4, 5]), 64).tolist() == [False, True, True, True, False]
    assert not private_lines(None, np.array([2]), 64).any()
    assert not private_lines(np.zeros((2, 2), np.int64), np.array([0, 2]), 64).any()
