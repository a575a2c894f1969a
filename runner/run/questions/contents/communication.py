"""Of a workload: messages between two ranks, collectives and files."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from manyscale.models.machine.storage import accesses
from manyscale.models.workload import ANY_SOURCE, COLLECTIVES, SENDS, OperationKind, Workload
from manyscale.runner.run.questions.contents.section import Section, Value, columns, shares


def messages(workload: Workload) -> Section | None:
    """Messages between two ranks by the call that sends them and by size."""
    rows = workload.send_rows
    if not len(rows):
        return None
    kind, size, peer, rank = (workload.column("operations", name)[rows] for name in ("kind", "bytes", "peer", "rank"))
    every = workload.column("operations", "kind")
    receives = np.isin(every, (OperationKind.recv, OperationKind.irecv))
    wild = receives & (workload.column("operations", "peer") == ANY_SOURCE)
    wild |= (every == OperationKind.sendrecv) & (workload.column("operations", "source") == ANY_SOURCE)
    pairs = len(np.unique(rank.astype(np.int64) * workload.num_ranks + peer))
    facts: dict[str, Value] = {
        "messages": len(rows),
        "sent_bytes": int(size.sum()),
        "mean_bytes": float(size.mean()),
        "largest_bytes": int(size.max()),
        "pairs_of_ranks": pairs,
    }
    if wild.any():
        facts["receives_from_any_source"] = int(np.count_nonzero(wild))
    calls = [each for each in SENDS if np.any(kind == each)]
    by_call = columns(
        call=[each.name for each in calls], messages=np.array([np.count_nonzero(kind == each) for each in calls]),
        sent_bytes=np.array([int(size[kind == each].sum()) for each in calls]),
    )  # fmt: skip
    return Section("messages", facts, {"message_sizes": _by_size(size), "calls": by_call})


def _by_size(size: np.ndarray) -> pa.Table:
    """Messages and bytes by powers of two: a message of 2^k to 2^(k+1) - 1 bytes stands at 2^k, an empty one at 0."""
    power = np.zeros(len(size), np.int64)
    power[size > 0] = np.frexp(size[size > 0].astype(np.float64))[1]
    count, sent = np.bincount(power), np.zeros(int(power.max()) + 1, np.int64)
    np.add.at(sent, power, size)
    there = np.flatnonzero(count)
    first = np.where(there > 0, np.int64(1) << np.maximum(there - 1, 0), 0)
    return columns(
        from_bytes=first, messages=count[there], sent_bytes=sent[there], messages_share=shares(count[there]),
        sent_share=shares(sent[there]),
    )  # fmt: skip


def collectives(workload: Workload) -> Section | None:
    """Collective calls of all ranks, by kind."""
    kind = workload.column("operations", "kind")
    rows = np.flatnonzero(np.isin(kind, COLLECTIVES))
    if not len(rows):
        return None
    of_kind, size, communicator = (
        workload.column("operations", name)[rows] for name in ("kind", "bytes", "communicator_id")
    )
    offsets, counts = workload.lists("operations", "send_counts")
    before = np.append(0, np.cumsum(counts, dtype=np.int64))
    size = np.where(
        offsets[rows + 1] > offsets[rows], before[offsets[rows + 1]] - before[offsets[rows]], size.astype(np.int64)
    )
    names = [OperationKind(each) for each in np.unique(of_kind)]
    names.sort(key=lambda each: -int(np.count_nonzero(of_kind == each)))
    own = [of_kind == each for each in names]
    table = columns(
        call=[each.name for each in names],
        calls=np.array([np.count_nonzero(mine) for mine in own]),
        communicators=np.array([len(np.unique(communicator[mine])) for mine in own]),
        named_bytes=np.array([int(size[mine].sum()) for mine in own]),
        largest_bytes=np.array([int(size[mine].max()) for mine in own]),
    )
    facts: dict[str, Value] = {
        "calls": len(rows),
        "kinds": len(names),
        "communicators": workload.tables["communicators"].num_rows,
    }
    note = "Calls are counted at every rank. Bytes are those that a call names: what a rank sends, of an alltoall and "
    note += "a scatter what it sends to each, of a vector call the sum of what it sends."
    return Section("collectives", facts, {"collectives": table}, note)


def files(workload: Workload) -> Section | None:
    """Accesses of files."""
    found = accesses(workload)
    if not len(found.row):
        return None
    written = int(workload.column("operations", "bytes")[found.row].sum())
    facts: dict[str, Value] = {
        "accesses": len(found.row),
        "collective_accesses": int(np.count_nonzero(found.is_collective)),
        "written_bytes": written,
        "read_bytes": int(found.bytes.sum()) - written,
        "ranks": len(np.unique(found.rank)),
    }
    return Section("files", facts)
