"""Tiny programs of task instances, written by hand: blocks of instructions, and what each instance executes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from manyscale.models.memory.access_stream import Sites
from manyscale.models.node.instance_profile import InstanceProfiles, profile_instances
from manyscale.models.node.instruction_stream import InstructionStream, PieceStream
from manyscale.models.node.program.node_program import NodeProgram


@dataclass(frozen=True)
class Op:
    """An instruction's loads and stores."""

    loads: int = 0
    stores: int = 0


Execution = tuple[int, tuple[int, ...]]  # block, addresses


def profiles_of(
    blocks: Sequence[Sequence[Op]], pieces: Sequence[tuple[int, Sequence[Execution]]], num_instances: int | None = None
) -> InstanceProfiles:
    """The profile of ``pieces`` (instance, executions), executed one after the other."""
    owner, stream, where = instance_stream(pieces)
    count = 1 + max(instance for instance, _ in pieces) if num_instances is None else num_instances
    return profile_instances(
        _program(owner, count), stream, where, sites_of_blocks(blocks), np.array([len(block) for block in blocks])
    )


def instance_stream(
    pieces: Sequence[tuple[int, Sequence[Execution]]],
) -> tuple[np.ndarray, InstructionStream, PieceStream]:
    """(instance of each piece, what was executed, where the pieces are in it), by instance."""
    ids = [block for _, executed in pieces for block, _ in executed]
    addresses = [address for _, executed in pieces for _, accessed in executed for address in accessed]
    ends = np.cumsum([0] + [len(executed) for _, executed in pieces])
    accesses = np.cumsum([0] + [sum(len(a) for _, a in executed) for _, executed in pieces])
    order = np.argsort([instance for instance, _ in pieces], kind="stable")
    owner = np.array([instance for instance, _ in pieces], np.int32)[order]
    stream = InstructionStream(0, np.array(ids, np.int32), np.array(addresses, np.uint64), ends, accesses)
    where = PieceStream(ends[:-1][order], ends[1:][order], accesses[:-1][order], np.zeros(len(pieces), np.int64))
    return owner, stream, where


def sites_of_blocks(blocks: Sequence[Sequence[Op]]) -> Sites:
    rows = [
        (b, is_store)
        for b, block in enumerate(blocks)
        for op in block
        for is_store in [False] * op.loads + [True] * op.stores
    ]
    block, is_store = np.array(rows, np.int64).reshape(-1, 2).T
    offsets = np.concatenate(([0], np.cumsum(np.bincount(block, minlength=len(blocks)))))
    return Sites(block.astype(np.int32), is_store.astype(bool), np.full(len(block), 8, np.int32), offsets)


def _program(piece_instance: np.ndarray, num_instances: int) -> NodeProgram:
    empty, count = np.zeros(0, np.int64), len(piece_instance)
    values: dict[str, object] = dict.fromkeys(NodeProgram.__dataclass_fields__, empty)
    values |= {"piece_instance": piece_instance, "parent": np.zeros(num_instances, np.int32)}
    values |= {"piece_ps": np.zeros(count, np.int64), "loop_flags": None}
    return NodeProgram(**(values | {"rank": 0, "num_cores": 1, "num_locks": 0, "notes": ()}))  # type: ignore[arg-type]
