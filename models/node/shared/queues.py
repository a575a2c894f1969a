"""How long a line waits for lines of other cores where they share DRAM and caches, at what all ask for together.

A channel of DRAM, a bank, and a shared cache's port each serve one line after the other in a constant time, and the
lines of many cores come at random: a queue M/D/1, in which a request waits s r / 2 (1 - r) at a load r and a service
time s (Pollaczek and Khinchine; Kleinrock, "Queueing Systems", vol. 1, 1975, section 5.6), of which the share of the
others' lines counts: what a core's own lines do to each other is in its cost. Cores wait the longer the more is asked
for, and ask for the less the longer they wait, so there is one load at which both agree: it is looked for by regula
falsi (Illinois) from the one before. Where cores could ask for more than is served, waits grow until they do not, so
that n cores that each ask for b of a capacity C take max(t, n t b / C).

Rows of DRAM: a line whose bank has another row open, if lines come in the order of pieces, takes ``activate`` +
``precharge`` longer and its bank for ``row_cycle``. That cores close each other's rows meanwhile is left out: lines
of a
core come in bursts, to which a bank is rather one row than many.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from manyscale.models.machine import Node
from manyscale.models.machine.processor import data_caches, needed

MOST_LOAD: Final = 0.995
# ``channel``: cycles that a line takes of a channel; ``channels``, ``banks``: of all sockets together, and of each
# channel; ``row_cycle`` of a bank and ``conflict`` of latency for a row that is opened anew. ``far``: cycles that a
# line of another socket takes longer. ``port``: cycles of a shared cache for a line, of ``port_cores`` cores each.
MEMORY: Final = np.dtype(
    [
        ("channel", "f8"), ("channels", "f8"), ("banks", "f8"), ("row_cycle", "f8"), ("conflict", "f8"), ("far", "f8"),
        ("port", "f8"), ("ports", "f8"), ("load", "f8"), ("wait", "f8"), ("port_load", "f8"), ("port_wait", "f8"),
        ("read_share", "f8"),
    ]
)  # fmt: skip


def shared_memory(node: Node, num_cores: int, line_bytes: int) -> np.ndarray:
    """One record of MEMORY, nothing asked for. Raises ValueError where the node lacks a parameter."""
    memory = needed(node.main_memory, "node.main_memory")
    per_ps = needed(node.frequency_hz, "node.frequency") / 1e12
    sockets = min(node.sockets, -(-num_cores // node.cores_per_socket))
    found = np.zeros(1, MEMORY)
    found["banks"] = found["channels"] = found["ports"] = 1.0
    if memory.dram is not None:
        dram = memory.dram
        found["channel"] = line_bytes * dram.channel_ps_per_byte * per_ps
        found["channels"], found["banks"] = dram.channels * sockets, dram.banks
        found["row_cycle"] = dram.row_cycle_ps * per_ps
        found["conflict"] = (dram.activate_ps + dram.precharge_ps) * per_ps
    elif memory.node_ps_per_byte:
        found["channel"] = line_bytes * memory.node_ps_per_byte * per_ps * node.sockets
        found["channels"] = sockets
    if sockets > 1 and node.numa is not None:
        found["far"] = node.numa.latency_ps * per_ps
        if node.numa.pages == "interleave":
            found["far"] *= 1 - 1 / sockets
    for cache in data_caches(node.caches).values():
        if cache.shared_ps_per_byte and min(cache.shared_by_cores, num_cores) > 1:
            found["port"] = line_bytes * cache.shared_ps_per_byte * per_ps
            found["ports"] = -(-num_cores // cache.shared_by_cores)
    return found
