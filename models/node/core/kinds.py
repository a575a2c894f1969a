"""What cores of a kind are, in cycles of the node's clock: limits of each, and the tables of code for all kinds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from manyscale.models.machine.processor import Core
from manyscale.models.node.core.block_limits import NOBODY
from manyscale.models.node.core.code import CoreCode

FETCHED_AHEAD: Final = 8.0  # cycles that the front end is before the reorder buffer at most

LIMITS: Final = np.dtype(
    [
        ("slot", "f8"), ("spacing", "f8"), ("drain", "f8"), ("store", "f8"),
        ("misprediction", "f8"), ("reorder", "i8"), ("stores", "i8"), ("marks", "i8"),
        ("line_shift", "i8"), ("tail", "i8"), ("fetch", "f8"), ("access", "f8"), ("ahead", "f8"),
    ]
)  # fmt: skip


def limits_of(core: Core, clock: float, marks: int) -> np.ndarray:
    """A record; ``clock``: cycles of the node for one of the core."""
    limits = np.zeros(1, LIMITS)
    limits["slot"], limits["spacing"] = clock / core.width, clock / (core.commit or core.width)
    limits["drain"] = max(clock / core.width, clock / (core.commit or core.width))
    limits["store"] = clock / core.stores_per_cycle
    limits["misprediction"], limits["reorder"] = core.misprediction_cycles * clock, core.reorder_buffer
    limits["stores"], limits["marks"] = core.store_buffer, marks
    limits["fetch"] = clock if core.fetch_bytes else 0.0
    limits["access"] = clock / core.accesses_per_cycle if core.accesses_per_cycle else 0.0
    limits["ahead"] = FETCHED_AHEAD * clock
    return limits


def code_of_kinds(codes: Sequence[CoreCode], clocks: Sequence[float]) -> CoreCode:
    """The tables of one workload for several kinds of cores, one after the other: block b of kind k is number
    k x blocks + b. ``clocks``: of each, cycles that count for one of the core."""
    tables: list[CoreCode] = []
    nodes = terms = outs = blocks = 0
    for code, clock in zip(codes, clocks, strict=True):
        block, node, term, out = (each.copy() for each in (code.block, code.node, code.term, code.out))
        for name in ("slot", "commit_entry", "branch_entry", "load_slack", "access_slack"):
            block[name] *= clock
        for name in ("entry", "tail", "delay", "forward", "unit"):
            node[name] *= clock
        term["cycles"] *= clock
        out["entry"] *= clock
        for name, by in (("node", nodes), ("out", outs), ("commit", terms), ("branch", terms)):
            block[f"first_{name}"] += by
            block[f"end_{name}"] += by
        for each in (node, out):
            each["first_term"] += terms
            each["end_term"] += terms
        block["before"] = np.where(block["before"] == NOBODY, NOBODY, block["before"] + blocks)
        tables.append(code._replace(block=block, node=node, term=term, out=out))
        nodes, terms, outs, blocks = nodes + len(node), terms + len(term), outs + len(out), blocks + len(block)
    joined = [np.concatenate(each) for each in zip(*tables, strict=True)]
    return CoreCode._make([*joined[:-1], np.array([max(int(each.num_places[0]) for each in codes)])])
