"""What caches left as they were by fast-forwarding (``fast_forward: stale``) hide from TaskPoint's samples.

A sample in stale caches finds lines where the last instance done in detail has left them, though skipped ones would
have driven them out, changed them on another core, or brought in others. Samples of all rounds may agree on that, so
no spread shows it. But the lines of each instance are known. So each line of an instance is followed back to its use
before, by an instance of the whole run (as it would have been), and by one done in detail (as it was): it is served by
the core's own caches if the same core used it and they hold what that core has used since, by shared ones if they hold
what all have, else by main memory. Caches are taken for fully associative with least-recently-used replacement; of a
window of uses that has that many different lines as the run's windows of that length have in the mean (the footprint
of Xiang et al., "HOTL: a higher order theory of locality", ASPLOS 2013, section 3). Where caches begin as if the
phases had run before, both begin with all instances.

A line that is served from further away takes the difference of latencies times the share of latencies that the run's
instances in detail have waited for: the rest was overlapped.

Lines are sampled by a hash of their number where there are too many (Waldspurger et al., "SHARDS", FAST 2015), with
uses since in units of the sample. Left out: what a line more costs others that queue for memory, and write-backs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from manyscale.models.machine import Node
from manyscale.models.machine.processor import data_caches, needed
from manyscale.models.node.detailed import DetailedPhases
from manyscale.models.node.program.node_program import NodeProgram
from manyscale.runner.predict.node.cells.sampled_kernel import SkippedLines
from manyscale.sampling.taskpoint.decisions import TaskPoint
from manyscale.sampling.taskpoint.state import FORWARDED, FORWARDED_BY_ALL, VALID, WARM_UP

MOST_USES: Final = 2_000_000  # of lines, that are followed
OWN, SHARED, MEMORY = range(3)


@dataclass(frozen=True)
class _Lines:
    """Of instance i: ``line`` int64[] from first[i] on. ``per``: how many lines each of them stands for."""

    first: np.ndarray
    line: np.ndarray
    is_own: np.ndarray
    per: float


def hidden_cycles(
    point: TaskPoint, result: DetailedPhases, program: NodeProgram, lines: SkippedLines, node: Node, begins_warm: bool
) -> float:
    """Cycles that fast-forwarded pieces would take longer, all together, than samples in stale caches show (negative:
    shorter). O(uses log uses), at most MOST_USES of them."""
    started = result.instances["start_ps"]
    order = np.flatnonzero(started >= 0)
    order = order[(order > 0) & (order < len(lines.first_line) - 1)]
    order = order[np.argsort(started[order], kind="stable")]
    core = result.instances["core"].astype(np.int64)
    owner, count = program.piece_instance, program.num_instances
    in_detail = np.zeros(count, bool)
    in_detail[owner[point.role >= WARM_UP]] = True
    known = _sampled_lines(lines, order)
    before = order if begins_warm else order[:0]
    room, latency = _hierarchy(node, len(result.core_stack))
    took = result.served[:, 1 : len(latency) + 1].sum(axis=0) @ latency
    waited = result.type_stack[:, -len(latency) - 1 :].sum()  # behind the first cache, and what another core had
    price = np.array([0.0, latency[-2] if len(latency) > 1 else latency[-1], latency[-1]])
    price *= min(waited / took, 1.0) if took else 1.0
    was, is_sampled = (
        _cost(np.concatenate((before, then)), len(before), core, known, room, price, count)
        for then in (order, order[in_detail[order]])
    )
    return _difference(point, owner, count, was, is_sampled)


def _hierarchy(node: Node, cores: int) -> tuple[tuple[int, int], np.ndarray]:
    """Lines that a core's own caches hold, and all shared ones; load-to-use cycles beyond the first cache of each
    further level, main memory last."""
    caches = list(data_caches(node.caches).values())
    own = sum(cache.num_lines for cache in caches if cache.shared_by_cores == 1)
    shared = sum(-(-cores // each.shared_by_cores) * each.num_lines for each in caches if each.shared_by_cores > 1)
    latencies = [needed(cache.latency_cycles, "latency") for cache in caches]
    memory = needed(node.main_memory, "node.main_memory")
    latencies.append(memory.latency_ps * needed(node.frequency_hz, "node.frequency") / 1e12)
    return (own, shared), np.array(latencies[1:]) - latencies[0]


def _sampled_lines(lines: SkippedLines, order: np.ndarray) -> _Lines:
    uses = int((lines.first_line[order + 1] - lines.first_line[order]).sum())
    share = min(1.0, MOST_USES / max(2 * uses, 1))
    line = lines.line.astype(np.int64)
    hashed = (np.arange(len(lines.line_number), dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(40)
    kept = (hashed < share * 2**24)[line] if share < 1 else np.ones(len(line), bool)
    first = np.concatenate(([0], np.cumsum(kept)))[lines.first_line]
    return _Lines(first, line[kept], lines.is_own, 1 / share)


def _cost(
    order: np.ndarray, skip: int, core: np.ndarray, lines: _Lines, room: tuple[int, int], price: np.ndarray,
    count: int,
) -> np.ndarray:  # fmt: skip
    """float64[``count``]: of each instance of ``order`` behind the first ``skip``, what its lines take."""
    counts = lines.first[order + 1] - lines.first[order]
    row = np.repeat(np.arange(len(order)), counts)
    start = np.cumsum(counts) - counts
    line = lines.line[np.arange(len(row)) + np.repeat(lines.first[order] - start, counts)]
    place = core[order][row]
    line = np.where(lines.is_own[line], line + (1 + place) * len(lines.is_own), line)
    by_line = np.argsort(line, kind="stable")
    again = np.flatnonzero(line[by_line][1:] == line[by_line][:-1])
    before = np.full(len(line), -1)
    before[by_line[again + 1]] = by_line[again]
    by_core = np.argsort(place, kind="stable")
    turn = np.empty(len(place), np.int64)
    turn[by_core] = np.arange(len(place)) - np.searchsorted(place[by_core], place[by_core])
    counted = np.flatnonzero(row >= skip)
    before = before[counted]
    known = before >= 0
    since = np.where(known, start[row[counted]] - start[row[before]], 0)
    is_same = known & (place[counted] == place[before])
    different = _footprint(since[known], len(counted))[since] * lines.per
    level = np.full(len(counted), MEMORY)
    level[known & (different < room[1])] = SHARED
    level[is_same & ((turn[counted] - turn[before]) * lines.per < room[0])] = OWN
    return np.bincount(order[row[counted]], price[level], count) * lines.per


def _footprint(since: np.ndarray, uses: int) -> np.ndarray:
    """float64[]: the mean number of different lines in windows of 0, 1, ... uses: a use adds one if its line was not
    used in the window, as the share of uses whose line was used longer ago (or never) says."""
    longer = uses - np.cumsum(np.bincount(since, minlength=1))
    return np.concatenate(([0.0], np.cumsum(longer / max(uses, 1))))


def _difference(point: TaskPoint, owner: np.ndarray, count: int, was: np.ndarray, is_sampled: np.ndarray) -> float:
    """What the lines of forwarded pieces take in the run, less what those of the samples that they go by took. An
    instance's lines are its pieces' by their instructions."""
    share = point.instructions / np.maximum(np.bincount(owner, point.instructions, count), 1)[owner]
    classes = len(point.classes)
    forwarded = np.flatnonzero((point.role == FORWARDED) | (point.role == FORWARDED_BY_ALL))
    group = point.round.astype(np.int64) * classes + point.class_of
    took, work = is_sampled[owner] * share, point.instructions.astype(np.float64)
    size = int(group.max(initial=0)) + 1
    valid, all_detail = np.flatnonzero(point.role == VALID), np.flatnonzero(point.role >= WARM_UP)
    of_round = _ratio(group[valid], took[valid], work[valid], size)[group[forwarded]]
    of_class = _ratio(point.class_of[all_detail], took[all_detail], work[all_detail], classes)
    by_all = (point.role[forwarded] == FORWARDED_BY_ALL) | np.isnan(of_round)
    rate = np.where(by_all, of_class[point.class_of[forwarded]], of_round)
    return float((was[owner[forwarded]] * share[forwarded]).sum() - np.nansum(rate * work[forwarded]))


def _ratio(group: np.ndarray, took: np.ndarray, work: np.ndarray, size: int) -> np.ndarray:
    """By group; NaN of none."""
    totals = [np.bincount(group, each, size) for each in (took, work)]
    return np.divide(totals[0], totals[1], out=np.full(size, np.nan), where=totals[1] > 0)
