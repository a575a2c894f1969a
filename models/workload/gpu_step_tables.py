"""What is known of ranks that drive GPUs without their instructions: traces of frameworks (Kineto, Nsight, Chakra), and
steps that were made from the shape of a model.

``kernels``
    What the GPU executes, one row per kernel of one shape: ``kernel_id`` is the row. Operations of ``gpu_operations``
    name it, and say how long it took. ``flops`` and ``bytes`` are those of one execution, NaN where they are unknown;
    ``blocks`` and ``block_threads`` say how it was launched, 0 where it is unknown.
``traced_gpus``
    Which GPU each rank was traced on, by its device; a rank that was not traced has no row.
``gpu_memory``
    What a step keeps in the memory of a rank's GPU at most: weights, their gradients, what the optimiser keeps, and
    activations. Of a rank of which it is not known there is no row.
``groups``
    Names of communicators by what they are for (``dp``, ``tp``, ``pp``, ``ep``, or as the framework calls them).
``steps``
    Steps of ranks: a step begins when operation ``first_operation_id`` has ended and ends when ``last_operation_id``
    has; both are ``other`` and stand in the rank's first thread.
``measured_steps``
    When steps began and ended where they were traced, from the begin of the first rank's record: what predicted steps
    are compared with. A step of which the trace does not tell it has no row.
``trained_models``
    What a step does to a model, one row per model that the ranks train: its parameters, the tokens of a step and the
    floating-point operations that these ask for (``flops``; what is recomputed to save memory is none of them): what a
    utilisation of the GPUs (MFU) is counted by.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Final

import pyarrow as pa

from manyscale.models.workload.columns import to_numpy

SYNTHESISED: Final = "transformer"  # format of workloads that were made from a model's shape
KERNELS_SCHEMA: Final = pa.schema(
    [
        pa.field("kernel_name", pa.string(), nullable=False),
        pa.field("kernel_class", pa.int8(), nullable=False),  # KernelClass
        pa.field("precision", pa.string(), nullable=False),  # of the arithmetic: fp32, tf32, fp16, ...; "" for unknown
        pa.field("flops", pa.float64(), nullable=False),
        pa.field("bytes", pa.float64(), nullable=False),  # that DRAM moves at least
        pa.field("blocks", pa.int64(), nullable=False),
        pa.field("block_threads", pa.int32(), nullable=False),
    ]
)
TRACED_GPUS_SCHEMA: Final = pa.schema(
    [
        pa.field("rank", pa.int32(), nullable=False),
        pa.field("device", pa.int32(), nullable=False),
        pa.field("gpu_name", pa.string(), nullable=False),  # as its driver says: Tesla V100-SXM2-32GB
    ]
)
GPU_MEMORY_SCHEMA: Final = pa.schema(
    [
        pa.field("rank", pa.int32(), nullable=False),
        pa.field("device", pa.int32(), nullable=False),
        pa.field("weights_bytes", pa.float64(), nullable=False),
        pa.field("gradients_bytes", pa.float64(), nullable=False),
        pa.field("optimiser_bytes", pa.float64(), nullable=False),
        pa.field("activations_bytes", pa.float64(), nullable=False),
    ]
)
GROUPS_SCHEMA: Final = pa.schema(
    [
        pa.field("communicator_id", pa.int32(), nullable=False),
        pa.field("group_name", pa.string(), nullable=False),
    ]
)
STEPS_SCHEMA: Final = pa.schema(
    [
        pa.field("rank", pa.int32(), nullable=False),
        pa.field("step", pa.int32(), nullable=False),  # its number in the trace
        pa.field("first_operation_id", pa.int32(), nullable=False),
        pa.field("last_operation_id", pa.int32(), nullable=False),
    ]
)
MEASURED_STEPS_SCHEMA: Final = pa.schema(
    [
        pa.field("rank", pa.int32(), nullable=False),
        pa.field("step", pa.int32(), nullable=False),  # as in steps
        pa.field("start_ps", pa.int64(), nullable=False),
        pa.field("end_ps", pa.int64(), nullable=False),
    ]
)
TRAINED_MODELS_SCHEMA: Final = pa.schema(
    [
        pa.field("model_name", pa.string(), nullable=False),
        pa.field("parameters", pa.float64(), nullable=False),
        pa.field("tokens", pa.float64(), nullable=False),  # of a step
        pa.field("flops", pa.float64(), nullable=False),  # of a step, on all ranks together
        pa.field("precision", pa.string(), nullable=False),  # of its products of matrices: fp16, bf16, ...
    ]
)
SCHEMAS: Final = {
    "kernels": KERNELS_SCHEMA,
    "traced_gpus": TRACED_GPUS_SCHEMA,
    "gpu_memory": GPU_MEMORY_SCHEMA,
    "groups": GROUPS_SCHEMA,
    "steps": STEPS_SCHEMA,
    "measured_steps": MEASURED_STEPS_SCHEMA,
    "trained_models": TRAINED_MODELS_SCHEMA,
}


def has_times(tables: Mapping[str, pa.Table]) -> bool:
    """Whether a workload's ``tables`` tell what GPUs do by kernels, times and steps, and not by instructions: one of
    communications alone has steps."""
    operations = tables["gpu_operations"]
    if tables["kernels"].num_rows or (operations.num_rows and tables["steps"].num_rows):
        return True
    return operations.num_rows > 0 and int(to_numpy(operations.column("duration_ps")).max()) >= 0


class KernelClass(IntEnum):
    """What a kernel does, as far as its name and shape tell."""

    other = 0
    matrix = 1  # products of matrices, convolutions
    attention = 2
    elementwise = 3
    normalisation = 4
    reduction = 5
    embedding = 6  # gathers and scatters of rows
    optimiser = 7
    movement = 8  # copies, transposes, sorts
