"""What the tables of a workload promise beyond their schemas, as data: the order of rows, the ranges of columns, spans.
``checks`` hold tables to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from manyscale.models.workload.detail_tables import InstructionClass
from manyscale.models.workload.gpu_step_tables import KernelClass
from manyscale.models.workload.gpu_tables import GpuOperationKind
from manyscale.models.workload.operation_tables import (
    ANY_TAG,
    NO_RANK,
    NO_REQUEST,
    OperationKind,
    PhaseKind,
)
from manyscale.models.workload.task_tables import DependenceKind, EventKind, TaskFlag

RULES_VERSION: Final = 3  # raised when a rule is added or sharpened


@dataclass(frozen=True)
class Values:
    """Values of ``column`` (of a list column, in its lists) are at least ``least`` and, where ``end`` is given, below
    it: a number, or the number of ranks ("ranks"), or of rows of a table and ``more``; if ``per_rank``, of rows of the
    row's rank."""

    column: str
    least: int = 0
    end: int | str | None = None
    per_rank: bool = False
    more: int = 0


@dataclass(frozen=True)
class Rules:
    """Rows ascend by the columns of ``order``, and if ``is_unique`` no two rows have the same values there."""

    order: tuple[str, ...] = ()
    is_unique: bool = False
    values: tuple[Values, ...] = ()


_OPERATION = Values("operation_id", 0, "operations", per_rank=True)
_BEFORE_OPERATION = Values("operation_id", 0, "operations", per_rank=True, more=1)  # behind the last one, too
_TASK = Values("task_instance_id", 0, "tasks", per_rank=True)
_TASK_TYPE = Values("task_type_id", -1, "task_types")
_BLOCK = Values("block_id", 0, "blocks")

RULES: Final[dict[str, Rules]] = {
    "operations": Rules(
        ("rank",),
        values=(
            Values("kind", 0, len(OperationKind)),
            Values("peer", NO_RANK, "ranks"),
            Values("source", NO_RANK, "ranks"),
            Values("tag", ANY_TAG),
            Values("bytes"),
            Values("receive_bytes"),
            Values("communicator_id", 0, "communicators"),
            Values("request", NO_REQUEST),
            Values("completes"),
            Values("send_counts"),
            Values("receive_counts"),
        ),
    ),
    "phases": Rules(
        ("rank", "operation_id"),
        values=(
            _OPERATION,
            Values("kind", 0, len(PhaseKind)),
            Values("region_id", -1, "regions"),
            Values("duration_ps"),
        ),
    ),
    "communicators": Rules(values=(Values("members", 0, "ranks"),)),
    "counters": Rules(("phase_id",), values=(Values("phase_id", 0, "phases"),)),
    "measured": Rules(values=(Values("start_ps"),)),
    "phase_times": Rules(values=(Values("thread_ps"), Values("process_ps"), Values("wall_ps"))),
    "dependencies": Rules(
        ("rank", "operation_id"), values=(_OPERATION, Values("requires", 0, "operations", per_rank=True))
    ),
    "jobs": Rules(
        ("first_rank",),
        is_unique=True,
        values=(Values("first_rank", 0, "ranks"), Values("num_ranks", 0, "ranks", more=1)),
    ),
    "task_types": Rules(values=(Values("line"),)),
    "events": Rules(
        ("rank", "operation_id"),
        values=(
            _BEFORE_OPERATION,
            Values("kind", 0, len(EventKind)),
            _TASK,
            _TASK_TYPE,
            Values("cpu_ps"),
        ),
    ),
    "tasks": Rules(
        ("rank", "task_instance_id"),
        is_unique=True,
        values=(
            _TASK,
            Values("parent_id", -1, "tasks", per_rank=True),
            _TASK_TYPE,
            _BEFORE_OPERATION,
            Values("flags", 0, 2 * max(TaskFlag)),
            Values("cpu_ps"),
        ),
    ),
    "task_dependences": Rules(("rank", "task_instance_id"), values=(_TASK, Values("kind", 0, len(DependenceKind)))),
    "loops": Rules(
        ("rank", "loop_id"),
        is_unique=True,
        values=(_TASK_TYPE, Values("num_iterations", -1), Values("chunk_iterations")),
    ),
    "loop_chunks": Rules(
        ("rank", "loop_id"), values=(Values("first_iteration"), Values("num_iterations"), Values("cpu_ps"))
    ),
    "task_counters": Rules(("rank", "task_instance_id"), values=(_TASK, Values("value"))),
    "chunk_counters": Rules(("rank", "loop_id"), values=(Values("first_iteration"), Values("value"))),
    "page_faults": Rules(
        ("rank", "operation_id"),
        values=(_BEFORE_OPERATION, Values("event_id", -1, "events", per_rank=True), Values("num_faults")),
    ),
    "iterations": Rules(
        ("rank", "iteration"),
        is_unique=True,
        values=(
            Values("iteration"),
            Values("first_operation_id", 0, "operations", per_rank=True, more=1),
            Values("end_operation_id", 0, "operations", per_rank=True, more=1),
            Values("first_event_id", 0, "events", per_rank=True, more=1),
            Values("end_event_id", 0, "events", per_rank=True, more=1),
        ),
    ),
    "blocks": Rules(values=(Values("line"), Values("num_instructions", -1))),
    "instructions": Rules(
        ("block_id",), values=(_BLOCK, Values("instruction_class", 0, len(InstructionClass)), Values("lanes"))
    ),
    "block_accesses": Rules(("block_id",), values=(_BLOCK, Values("instruction", -1), Values("bytes"))),
    "unseen_accesses": Rules(("block_id",), values=(_BLOCK, Values("instruction"), Values("bytes"))),
    "segments": Rules(
        values=(
            Values("operation_id", -1, "operations", per_rank=True, more=1),
            Values("event_id", -1, "events", per_rank=True, more=1),
            Values("task_instance_id", -1, "tasks", per_rank=True),
            Values("num_blocks"),
            Values("num_accesses"),
            Values("num_instructions", -1),
        )
    ),
    "task_stacks": Rules(("rank", "task_instance_id"), values=(_TASK,)),
    "intervals": Rules(
        ("interval_id", "thread"), is_unique=True, values=(Values("interval_id"), Values("num_instructions"))
    ),
    "interval_blocks": Rules(("interval_id", "thread", "block"), values=(Values("interval_id"), Values("count"))),
    "interval_counters": Rules(values=(Values("interval_id"),)),
    "stacks": Rules(values=(Values("frames", 0, "frames"),)),
    "stack_units": Rules(
        ("rank", "thread", "unit_id"),
        is_unique=True,
        values=(Values("unit_id"), Values("cpu_ps", -1), Values("num_instructions", -1)),
    ),
    "stack_samples": Rules(
        ("rank", "thread", "unit_id", "time_ps"),
        values=(Values("unit_id"), Values("stack_id", 0, "stacks"), Values("weight")),
    ),
    "unit_counters": Rules(values=(Values("unit_id"),)),
    "launches": Rules(
        ("launch_id",),
        is_unique=True,
        values=(
            Values("launch_id", 1),
            *(Values(f"{what}_{axis}", 1) for what in ("grid", "block") for axis in "xyz"),
            *(Values(name) for name in ("shared_bytes", "registers", "blocks", "warps", "warp_instructions")),
            *(Values(name) for name in ("thread_instructions", "memory_requests")),
        ),
    ),
    "copies": Rules(("before_launch_id",), values=(Values("before_launch_id", 1), Values("bytes"))),
    "gpu_operations": Rules(
        ("rank", "operation_id"),
        is_unique=True,
        values=(
            _OPERATION,
            Values("kind", 0, len(GpuOperationKind)),
            Values("launch_id"),
            Values("bytes"),
            Values("event"),
            Values("device"),
            Values("peer", -1),
            Values("flags", 0, 32),
            Values("thread"),
            Values("kernel_id", -1, "kernels"),
            Values("duration_ps", -1),
        ),
    ),
    "kernels": Rules(
        values=(Values("kernel_class", 0, len(KernelClass)), Values("blocks"), Values("block_threads")),
    ),
    "traced_gpus": Rules(("rank", "device"), is_unique=True, values=(Values("device"),)),
    "gpu_memory": Rules(
        ("rank", "device"),
        is_unique=True,
        values=(
            Values("device"),
            *(Values(f"{what}_bytes") for what in ("weights", "gradients", "optimiser", "activations")),
        ),
    ),
    "trained_models": Rules(values=(Values("parameters"), Values("tokens"), Values("flops"))),
    "groups": Rules(("communicator_id",), is_unique=True, values=(Values("communicator_id", 0, "communicators"),)),
    "steps": Rules(
        ("rank", "step"),
        is_unique=True,
        values=(
            Values("step"),
            Values("first_operation_id", 0, "operations", per_rank=True),
            Values("last_operation_id", 0, "operations", per_rank=True),
        ),
    ),
    "measured_steps": Rules(("rank", "step"), is_unique=True, values=(Values("step"), Values("start_ps"))),
}
ENDS: Final = {  # (first, last) columns of spans whose end must not lie before their beginning
    "measured": (("start_ps", "end_ps"),),
    "steps": (("first_operation_id", "last_operation_id"),),
    "measured_steps": (("start_ps", "end_ps"),),
    "iterations": (("first_operation_id", "end_operation_id"), ("first_event_id", "end_event_id")),
    "task_stacks": (("first_address", "end_address"),),
    "stack_units": (("start_ps", "end_ps"),),
}
