"""Blocks made by hand, a node to execute them on, and tasks that each execute some of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from node_programs import node_program

from manyscale.models.machine import Node
from manyscale.models.node.detailed import DetailedPhases, simulate
from manyscale.models.node.instruction_stream import InstructionStream, PieceStream
from manyscale.models.node.program.node_program import Action, NodeProgram
from manyscale.models.node.scheduler.runtime_system import RuntimeSystem
from manyscale.models.workload import SCHEMAS, Workload
from manyscale.models.workload.detail_tables import InstructionClass as Kind

LINE = 64
RUNTIME = RuntimeSystem()
Task = tuple[Sequence[int], Sequence[int]]  # block ids, addresses


@dataclass(frozen=True)
class Op:
    """An instruction: class, registers read and written, accesses (is_store, bytes), and others in its place that no
    instruction is known to make."""

    kind: Kind = Kind.int_alu
    reads: tuple[int, ...] = ()
    writes: tuple[int, ...] = ()
    accesses: tuple[tuple[bool, int], ...] = ()
    loose: tuple[tuple[bool, int], ...] = ()


def load(to: int, address: int = 20) -> Op:
    return Op(Kind.move, (address,), (to,), ((False, 8),))


def store(data: int, address: int = 20) -> Op:
    return Op(Kind.move, (address, data), (), ((True, 8),))


def alu(count: int) -> list[Op]:
    """Instructions that nothing waits for."""
    return [Op()] * count


def blocks(*listed: list[Op], show: bool = True) -> Workload:
    """A workload of such blocks; without their instructions if they are not to be shown."""
    flat = [(block, place, op) for block, ops in enumerate(listed) for place, op in enumerate(ops)]
    rows: dict[str, list[dict[str, Any]]] = {
        "blocks": [
            {"function": "f", "file": "", "line": 0, "module": "m", "offset": LINE * block, "is_entry": False}
            | {"num_instructions": len(ops)}
            for block, ops in enumerate(listed)
        ],
        "instructions": [
            {"block_id": block, "instruction_class": int(op.kind), "lanes": 1, "sources": op.reads}
            | {"destinations": op.writes}
            for block, _, op in flat
            if show
        ],
        "block_accesses": [
            dict(zip(SCHEMAS["block_accesses"].names, (block, place, *each), strict=True))
            for block, at, op in flat
            for place, accesses in ((at if show else -1, op.accesses), (-1, op.loose))
            for each in accesses
        ],
    }
    tables = {level: pa.Table.from_pylist(rows.get(level, []), schema) for level, schema in SCHEMAS.items()}
    return Workload("made", 1, tables)


def node_content(
    cores: int = 1, memory_latency: int = 50, memory_bandwidth: int = 64, shared: str = "", costs: Any = (), **core: Any
) -> dict[str, Any]:
    """1 GHz; width 4, reorder buffer 64; latencies of 4 and 14 cycles (L1D of 64 lines, L2 of 1,024); what does not
    access memory takes no time unless ``costs`` ((class, latency, reciprocal throughput)) say so."""
    cache = {"line": f"{LINE} B", "ways": 4}
    instructions = {kind.name: {"latency": "0 cycles", "reciprocal_throughput": "0 cycles"} for kind in Kind}
    for kind, latency, reciprocal in costs:
        instructions[kind.name] = {
            "latency": f"{latency} cycles",
            "reciprocal_throughput": f"{reciprocal} cycles",
        }
    given = {
        "width": 4, "reorder_buffer": 64, "loads_per_cycle": 4.0, "stores_per_cycle": 4.0, "line_fill_buffers": 64,
        "store_to_load": "5 cycles", "instructions": instructions,
    }  # fmt: skip
    memory = {"latency": f"{memory_latency} ns", "bandwidth": f"{memory_bandwidth} GB/s"}
    return {
        "sockets": 1,
        "cores_per_socket": cores,
        "frequency": "1 GHz",
        "caches": {
            "L1D": {**cache, "size": "4 KiB", "latency": "4 cycles", "bandwidth": "64 GB/s"},
            "L2": {**cache, "size": "64 KiB", "latency": "14 cycles", "bandwidth": "64 GB/s"},
        },
        "main_memory": memory | ({"node_bandwidth": shared} if shared else {}),
        "core": given | core,
    }


def node(*arguments: Any, **options: Any) -> Node:
    """Of ``node_content``."""
    return Node.model_validate(node_content(*arguments, **options))


def tasks_program(count: int, traced_ps: int = 1_000_000, edges: Sequence[tuple[int, int]] = ()) -> NodeProgram:
    """The initial task creates so many tasks, instances 1 to ``count``, of one piece each."""
    creations = [(Action.create, number) for number in range(1, count + 1)]
    return node_program([creations, *([(Action.compute, traced_ps)] for _ in range(count))], edges)


def stream_of(workload: Workload, tasks: Sequence[Task]) -> tuple[InstructionStream, PieceStream]:
    """One piece per task."""
    executions = np.cumsum([0, *(len(ids) for ids, _ in tasks)])
    accesses = np.cumsum([0, *(len(addresses) for _, addresses in tasks)])
    counts = workload.column("blocks", "num_instructions").astype(np.int64)
    ids = np.concatenate([np.asarray(each, np.int32) for each, _ in tasks])
    addresses = np.concatenate([np.asarray(each, np.uint64) for _, each in tasks])
    instructions = np.array([counts[np.asarray(each, np.int64)].sum() for each, _ in tasks], np.int64)
    pieces = PieceStream(executions[:-1], executions[1:], accesses[:-1], instructions)
    return InstructionStream(0, ids, addresses, executions, accesses), pieces


def run_tasks(
    workload: Workload, machine: Node, tasks: Sequence[Task], cores: int = 1, runtime: RuntimeSystem = RUNTIME,
    program: NodeProgram | None = None, **options: Any,
) -> DetailedPhases:  # fmt: skip
    stream, pieces = stream_of(workload, tasks)
    program = tasks_program(len(tasks)) if program is None else program
    return simulate(program, workload, machine, cores, runtime, stream, pieces, **options)


def cycles(
    workload: Workload, machine: Node, block_ids: Sequence[int], addresses: Sequence[int] = (), **options: Any
) -> float:
    """Of one task on one core, per execution of a block."""
    found = run_tasks(workload, machine, [(block_ids, addresses)], **options)
    return int(found.makespan_ps[0]) / 1000 / len(block_ids)
