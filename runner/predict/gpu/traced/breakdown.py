"""Where the time of GPUs goes: what they compute, what of communication is exposed, and what they idle.

At an instant a GPU *computes* if a launch, a copy or a set runs on it. Communication is *exposed* while the GPU is in
some and computes nothing: it *transfers* if in any collective all members have come to it (or in a message), else it
*waits* for members that come later. In what is left it is idle: the host gives it nothing in time. The four parts sum
to the time from the begin of a rank's first step to the end of its last one, or of what its GPU does by then.

The *bubble* of a pipeline is the time that its GPUs compute and transfer nothing while they wait for other stages, and
after their own end for that of the last of them. Of 1F1B with p stages, m micro batches and v pieces of a stage it is
(p - 1) / (v m) of the time in which they work (Narayanan et al., SC 2021, 2.2).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from manyscale.models.workload import SENDS, OperationKind, Workload
from manyscale.models.workload.columns import to_numpy
from manyscale.models.workload.gpu_tables import GpuOperationKind
from manyscale.models.workload.quantities import PS_PER_SECOND
from manyscale.runner.predict.gpu.traced.meetings import StreamCollectives
from manyscale.runner.predict.gpu.traced.tables import steps_table
from manyscale.runner.predict.statistic import Statistic

_G: Final = GpuOperationKind
COMPUTES, TRANSFERS, WAITS, IDLES = range(4)
PARTS: Final = ("compute", "exposed_transfer", "exposed_wait", "idle")
_MOST_GROUPS: Final = 64  # that have figures of their own
_PIPELINE: Final = re.compile(r"(?<![a-z])pp(?![a-z])|pipeline")
_RANKS_AT_ONCE: Final = 256  # whose intervals are in memory together


@dataclass(frozen=True)
class Breakdown:
    """``parts_ps`` int64[ranks, 4], by PARTS. Of each group, by its name, int64[ranks]: ``exposed_ps``, and ``wait_ps``
    and ``transfer_ps`` in all of its collectives and messages, overlapped or not; how many of these it has and what
    they move (``operations``, ``bytes``)."""

    parts_ps: np.ndarray
    exposed_ps: dict[str, np.ndarray]
    wait_ps: dict[str, np.ndarray]
    transfer_ps: dict[str, np.ndarray]
    operations: dict[str, int]
    bytes: dict[str, int]
    bubble_ps: np.ndarray


def breakdown(
    workload: Workload, row: np.ndarray, of: StreamCollectives, arrays: Mapping[str, np.ndarray]
) -> Breakdown:
    """``row`` int64[given]: the operation of the workload of each; ``arrays``: the result of the unit that replayed the
    run (run/devices.py). O(given log given)."""
    rank, kind, start, runs, end = (
        arrays[f"given_{name}"] for name in ("rank", "kind", "start_ps", "runs_ps", "end_ps")
    )
    group_of, names = _groups(workload, row, of, kind)
    num_ranks = workload.num_ranks
    first, last = _windows(workload, arrays)
    parts = np.zeros((num_ranks, len(PARTS)), np.int64)
    exposed = {name: np.zeros(num_ranks, np.int64) for name in names}
    stages = _of_stages(of.names)
    of_pipeline = np.array([number for number, name in enumerate(names) if name in stages], np.int64)
    bubble = np.zeros((num_ranks, 2), np.int64)
    meets = of.of_given >= 0
    takes = (start >= 0) & (end > start)
    computes = takes & (kind <= int(_G.set)) & (kind != int(_G.copy_on_host))
    communicates = takes & (kind == int(_G.communication))
    begins = np.where(meets, runs, np.maximum(start, _sent_ps(workload, rank, end, arrays)))  # of the transfer
    for rows in _by_ranks(rank):
        mine = rows[computes[rows]]
        says = rows[communicates[rows]]
        spans = (mine, start[mine], end[mine]), (says, begins[says], end[says]), (says, start[says], begins[says])
        covered = _covered(rank, spans, first, last)
        parts[:, :IDLES] += covered
        for number, name in enumerate(names):
            own = says[group_of[says] == number]
            both = _covered(rank, (spans[0], (own, start[own], end[own])), first, last)
            exposed[name] += both[:, 1]
        if len(of_pipeline):
            own = says[np.isin(group_of[says], of_pipeline)]
            bubble[:, 0] += _covered(rank, (*spans[:2], (own, start[own], begins[own])), first, last)[:, 2]
    parts[:, IDLES] = last - first - parts.sum(axis=1)
    wait, transfer = {}, {}
    counts, moved = {}, {}
    for number, name in enumerate(names):
        own = np.flatnonzero(communicates & (group_of == number))
        wait[name] = _summed(rank[own], (begins - start)[own], num_ranks)
        transfer[name] = _summed(rank[own], (end - begins)[own], num_ranks)
        each = np.unique(of.of_given[own[meets[own]]])
        sends = row[(group_of == number) & ~meets & (row >= 0)]
        sends = sends[np.isin(workload.column("operations", "kind")[sends], SENDS)]
        counts[name] = len(each) + len(sends)
        moved[name] = int(of.bytes[each].sum() + workload.column("operations", "bytes")[sends].sum())
    return Breakdown(parts, exposed, wait, transfer, counts, moved, _bubble(bubble[:, 0], of, first, last))


def _of_stages(names: Mapping[int, str]) -> set[str]:
    """Names of groups, as frameworks give them, of stages of a pipeline: pp, mesh_pp, Megatron-LM's
    PIPELINE_MODEL_PARALLEL_GROUP, and beside it EMBEDDING_GROUP, in which its last stage waits for its first. Of models
    without a pipeline, such as recommenders, groups of embeddings are of something else."""
    found = {name for name in names.values() if _PIPELINE.search(name.lower())}
    return found | {name for name in names.values() if found and "embedding" in name.lower()}


def _bubble(waits_ps: np.ndarray, of: StreamCollectives, first: np.ndarray, last: np.ndarray) -> np.ndarray:
    """int64[ranks, 2]: the waits, and from a rank's end to that of its pipeline's last rank; and the whole time."""
    end, stages = np.full(len(first), -1), _of_stages(of.names)
    for communicator, name in of.names.items():
        if name in stages and len(members := of.members[communicator]) > 1:
            end[members] = np.maximum(end[members], last[members].max())
    is_in = end >= 0
    return np.where(is_in[:, None], np.column_stack((waits_ps + end - last, end - first)), 0)


def _sent_ps(workload: Workload, rank: np.ndarray, end: np.ndarray, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    """int64[given]: when the message began that arrived as a communication of a rank ended, which sent or received it,
    the last of several; 0 for none. Between streams it begins once both have come to it."""
    found = np.zeros(len(rank), np.int64)
    arrives, sent = arrays["receive_ps"], arrays["send_ps"]
    if not len(arrives):
        return found
    to = workload.column("operations", "peer")[workload.send_rows].astype(np.int64)
    if len(start := arrays.get("message_start_ps", sent[:0])):
        waited = np.flatnonzero(start >= 0)
        source = workload.column("operations", "rank")[workload.send_rows[waited]].astype(np.int64)
        to, arrives = np.append(to, source), np.append(arrives, arrives[waited])
        sent = np.append(np.where(start >= 0, np.maximum(start, sent), sent), start[waited])
    order = np.lexsort((sent, arrives, to))
    to, arrives, sent = to[order], arrives[order], sent[order]
    first = np.searchsorted(to, np.arange(workload.num_ranks + 1))
    for rows in _by_ranks(rank):
        for each in np.unique(rank[rows]).tolist():
            mine = rows[rank[rows] == each]
            own = slice(first[each], first[each + 1])
            at = np.searchsorted(arrives[own], end[mine], "right") - 1
            hit = (at >= 0) & (arrives[own][at] == end[mine]) if own.stop > own.start else np.zeros(len(mine), np.bool_)
            found[mine[hit]] = sent[own][at[hit]]
    return np.minimum(found, end)


def _by_ranks(rank: np.ndarray) -> Iterator[np.ndarray]:
    """Rows of some ranks at a time; they are sorted by rank."""
    for least in range(0, int(rank.max(initial=-1)) + 1, _RANKS_AT_ONCE):
        begin, end = np.searchsorted(rank, (least, least + _RANKS_AT_ONCE))
        yield np.arange(begin, end)


def _summed(rank: np.ndarray, took: np.ndarray, num_ranks: int) -> np.ndarray:
    found = np.zeros(num_ranks, np.int64)
    np.add.at(found, rank, took)
    return found


def _windows(workload: Workload, arrays: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """int64[ranks] begin and end of what is looked at."""
    first, last = np.zeros(workload.num_ranks, np.int64), np.zeros(workload.num_ranks, np.int64)
    np.maximum.at(last, arrays["given_rank"], arrays["given_end_ps"])
    if workload.tables["steps"].num_rows:
        steps = steps_table(workload, arrays["end_ps"])
        rank, start, end = (to_numpy(steps.column(name)) for name in ("rank", "start_ps", "end_ps"))
        first[rank] = np.iinfo(np.int64).max
        np.minimum.at(first, rank, start)
        np.maximum.at(last, rank, end)
    else:
        last = np.maximum(last, arrays["rank_end_ps"])
    return first, np.maximum(first, last)


def _groups(
    workload: Workload, row: np.ndarray, of: StreamCollectives, kind: np.ndarray
) -> tuple[np.ndarray, list[str]]:
    """int[given], the place of each communication's group in the names of all, -1 for what is none. Communicators of
    one name are one group; those without are together, and with them, of many names, those that communicate least."""
    communicator = np.full(len(kind), -1, np.int64)
    known = (kind == int(_G.communication)) & (row >= 0)
    of_network = workload.column("operations", "kind")[row[known]]
    ends_group = of_network == int(OperationKind.waitall)  # of messages, which stand before it
    communicator[known] = workload.column("operations", "communicator_id")[row[known] - ends_group]
    used, counts = np.unique(communicator[known], return_counts=True)
    calls: dict[str, int] = {}
    for each, count in zip(used.tolist(), counts.tolist(), strict=True):
        name = of.names.get(each, "")
        calls[name] = calls.get(name, 0) + count
    names = sorted(calls)
    if len(names) > _MOST_GROUPS:
        most = sorted(filter(None, names), key=lambda name: -calls[name])[: _MOST_GROUPS - 1]
        names = ["", *sorted(most)]
    number = {name: at for at, name in enumerate(names)}
    place = np.full(int(used.max(initial=-1)) + 2, -1)
    for each in used.tolist():
        place[each] = number.get(of.names.get(each, ""), 0)
    return place[communicator], [name or "others" for name in names]


def _covered(
    rank: np.ndarray,
    spans: tuple[tuple[np.ndarray, np.ndarray, np.ndarray], ...],
    first: np.ndarray,
    last: np.ndarray,
) -> np.ndarray:
    """int64[ranks, spans]: time of each rank, between ``first`` and ``last``, that some span of each kind covers, and
    none of a kind before. A kind: rows, begins and ends."""
    who = np.concatenate([rank[rows] for rows, _, _ in spans])
    which = np.concatenate([np.full(len(rows), number, np.int8) for number, (rows, _, _) in enumerate(spans)])
    begin = np.clip(np.concatenate([begin for _, begin, _ in spans]), first[who], last[who])
    end = np.clip(np.concatenate([end for _, _, end in spans]), first[who], last[who])
    time = np.concatenate((begin, end))
    who, which = np.tile(who, 2), np.tile(which, 2)
    order = np.lexsort((time, who))
    change = np.ones(len(time), np.int8)
    change[len(begin) :] = -1
    time, who, which, change = time[order], who[order], which[order], change[order]
    lasts = np.diff(time, append=0)
    lasts[np.flatnonzero(np.diff(who, append=-1))] = 0  # between ranks
    found = np.zeros((len(first), len(spans)), np.int64)
    is_free = np.ones(len(time), np.bool_)
    for number in range(len(spans)):
        under_way = np.cumsum(np.where(which == number, change, 0), dtype=np.int64) > 0
        mine = under_way & is_free
        np.add.at(found[:, number], who[mine], lasts[mine])
        is_free &= ~under_way
    return found


def step_statistics(
    workload: Workload, found: Breakdown, end_ps: np.ndarray, peak_flops_per_s: float | None
) -> dict[str, Statistic]:
    """Figures of steps and of the GPUs' time; ``end_ps`` int64[operations]; ``peak_flops_per_s`` of a GPU at the
    precision of the model that is trained, None: no model is known."""
    mean = found.parts_ps.mean(axis=0) / PS_PER_SECOND
    texts = (
        "a GPU runs a launch or moves memory",
        "it does neither, and transfers in a collective or a message that is exposed",
        "it does neither, and waits for other members of a collective",
        "it does none of these: its host has given it nothing",
    )
    figures = {
        f"gpu.time.{name}": Statistic(float(value), "s", "mean", f"time in which {text}, mean over ranks")
        for name, value, text in zip(PARTS, mean.tolist(), texts, strict=True)
    }
    for name, exposed in found.exposed_ps.items():
        members = found.transfer_ps[name] > 0
        count = max(1, int(members.sum()))
        for what, values, text in (
            ("exposed", exposed, "time in which its communication is exposed"),
            ("wait", found.wait_ps[name], "time that its members wait in collectives for others"),
            ("transfer", found.transfer_ps[name], "time that its collectives and messages take once all are there"),
        ):
            value = float(values.sum()) / count / PS_PER_SECOND
            figures[f"group.{name}.{what}"] = Statistic(value, "s", "mean", f"group {name}: {text}, mean over members")
        figures[f"group.{name}.operations"] = Statistic(
            found.operations[name], "1", "count", f"group {name}: its collectives and messages"
        )
        figures[f"group.{name}.bytes"] = Statistic(found.bytes[name], "B", "total", f"group {name}: what they move")
    bubble, whole = found.bubble_ps.sum(axis=0).tolist()
    if whole:
        text = "of the time of a pipeline's GPUs, what they wait for other stages, and for the last one to end"
        figures["step.pipeline_bubble"] = Statistic(bubble / whole, "1", "ratio", text)
    if workload.tables["steps"].num_rows:
        figures |= _of_steps(workload, end_ps, peak_flops_per_s)
    return figures


def _of_steps(workload: Workload, end_ps: np.ndarray, peak_flops_per_s: float | None) -> dict[str, Statistic]:
    steps = steps_table(workload, end_ps)
    number, start, end = (to_numpy(steps.column(name)) for name in ("step", "start_ps", "end_ps"))
    took = (end - start) / PS_PER_SECOND
    _, of = np.unique(number, return_inverse=True)
    count = int(of.max()) + 1
    first, last = np.full(count, np.iinfo(np.int64).max), np.zeros(count, np.int64)
    np.minimum.at(first, of, start)
    np.maximum.at(last, of, end)
    whole = float((last - first).mean()) / PS_PER_SECOND
    figures = {
        "step.count": Statistic(count, "1", "count", "steps"),
        "step.time": Statistic(float(took.mean()), "s", "mean", "time of a step, mean over ranks and steps"),
        "step.longest": Statistic(float(took.max()), "s", "mean", "the longest step of a rank"),
        "step.whole": Statistic(
            whole, "s", "mean", "from the first rank's begin to the last rank's end, mean over steps"
        ),
    }
    if workload.tables["jobs"].num_rows:  # models of several, whose steps are not the same
        return figures
    flops, tokens = (workload.column("trained_models", name) for name in ("flops", "tokens"))
    if len(tokens) and whole:
        text = "tokens that all GPUs train in a second"
        figures["step.tokens_per_second"] = Statistic(float(tokens.sum()) / whole, "1/s", "ratio", text)
    if len(flops) and peak_flops_per_s and whole:
        share = float(flops.sum()) / (peak_flops_per_s * workload.num_ranks * whole)
        text = "floating-point operations that the model asks for, over what the GPUs' data sheets give as peak (MFU)"
        figures["step.model_flops_utilisation"] = Statistic(share, "1", "ratio", text)
    return figures
