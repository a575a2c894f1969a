"""What cores do to each other in regions of a traced program, as counters that methods choose by (parallel_phases.py).

Either a native run tells, whose counters stand in a profile (``manyscale profile --interval`` of ``perf script``), or
the trace does. Task instances run then in the order and on the cores of a burst schedule, in which every instruction
takes as long as any other, and use the lines that they were traced to use, each once:

- ``coherence_answers`` (CCV) of a core: lines that it was the last to write, of which another core is the first to read
  or write. Caches are taken to hold all.
- ``llc_misses`` (MCV) of a core: first uses of lines, and those after as many others as the last cache holds.
- ``offcore_requests`` (TCV): the same of the last cache that a core has to itself.

They only choose regions; what these take is simulated.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from manyscale.models.kernels import allocation_free, read_only
from manyscale.models.machine import Node
from manyscale.models.machine.processor import data_caches
from manyscale.models.memory.distances.stack_distance import StackDistances
from manyscale.models.node.detailed import last_cache_of
from manyscale.models.node.instance_lines import InstanceLines
from manyscale.models.node.private_stacks import CORE_SHIFT, private_lines
from manyscale.models.workload.notes import Note, informs
from manyscale.runner.errors import UserError
from manyscale.runner.predict.intervals.open_regions import Before, line_rows
from manyscale.runner.predict.intervals.regions import Regions
from manyscale.runner.predict.node.schedule_units import phase_of_pieces
from manyscale.runner.study import WorkloadChoice
from manyscale.runner.study.traces import read_workload
from manyscale.sampling.population import IntervalPopulation, intervals_of

if TYPE_CHECKING:
    from collections.abc import Iterator

_AT_ONCE: Final = 4_000_000  # uses of lines


def traced_counters(
    regions: Regions, used: InstanceLines, before: Before, node: Node, cores: int, parts: tuple[str, ...]
) -> IntervalPopulation:
    """The regions' population with instructions of each core, and what ``parts`` need of the counters above.
    O(uses of lines x log lines)."""
    program, pieces = regions.program, regions.pieces
    region = np.searchsorted(regions.phase, before.phase, "right") - 1
    counted = np.where(regions.creates, 0, pieces.num_instructions)
    rows = program.num_instances + program.num_phases
    of_row = np.bincount(line_rows(program, phase_of_pieces(program)), counted, rows)
    count = len(regions.population)
    own = private_lines(pieces.stack, used.line_number, used.line_bytes)
    counters = {}
    if "ccv" in parts:
        answers = np.zeros((count, cores))
        rows_of = (read_only(each, np.int64) for each in (before.row, before.core, region))
        columns = (used.first_line.astype(np.int64), used.line, used.line_written, own)
        _answer(*rows_of, *columns, np.full(len(own), -1, np.int32), answers)
        counters["coherence_answers"] = answers
    caches = list(data_caches(node.caches).values())
    private = [cache for cache in caches if cache.shared_by_cores == 1] or caches[:1]
    for part, name, cache, group in (
        ("mcv", "llc_misses", caches[-1], last_cache_of(node, cores)),
        ("tcv", "offcore_requests", private[-1], np.arange(cores)),
    ):
        if part in parts:
            lines = cache.size_bytes // used.line_bytes
            counters[name] = _misses(before, region, used, own, lines, np.asarray(group), (count, cores))
    of_cores = np.bincount(region * cores + before.core, of_row[before.row], count * cores).reshape(count, cores)
    sums = {name: values.sum(axis=1) for name, values in counters.items()}
    return replace(
        regions.population, num_threads=cores, counters=sums, thread_instructions=of_cores, thread_counters=counters
    )


def native_counters(regions: Regions, path: Path, place: str) -> tuple[IntervalPopulation, Note]:
    """The regions' population with the counters of threads in a profile of another run of the program: a region has
    what that had in the same share of its instructions. Raises UserError for a file that is no such profile."""
    profile = intervals_of_profile(path)
    done = np.concatenate(([0.0], np.cumsum(profile.instructions)))
    at = regions.begin / max(float(regions.begin[-1]), 1.0) * done[-1]

    def laid(values: np.ndarray) -> np.ndarray:
        sums = np.concatenate((np.zeros((1, values.shape[1])), np.cumsum(np.nan_to_num(values), axis=0)))
        return np.diff(np.stack([np.interp(at, done, each) for each in sums.T], axis=1), axis=0)

    counters = {name: laid(values) for name, values in profile.thread_counters.items()}
    text = (
        f"counters of {path} ({len(profile)} intervals of {profile.num_threads} threads) are laid on regions by their "
        "share of the instructions"
    )
    population = replace(
        regions.population, num_threads=profile.num_threads, thread_instructions=laid(profile.thread_instructions),
        thread_counters=counters, counters={name: values.sum(axis=1) for name, values in counters.items()},
    )  # fmt: skip
    return population, informs("counters-by-position", text, place)


def intervals_of_profile(path: Path) -> IntervalPopulation:
    """Intervals of a file with counters of threads. Raises UserError for others."""
    try:
        profile = intervals_of(read_workload(WorkloadChoice(path=str(path))))
    except ValueError as error:
        raise UserError(f"{path}: {error}") from None
    if not profile.thread_counters or not profile.instructions.sum() > 0:
        raise UserError(
            f"{path}: has no counters of threads beside its blocks; `manyscale profile --interval` of perf script's "
            "text writes them"
        )
    return profile


def _misses(
    before: Before, region: np.ndarray, used: InstanceLines, own: np.ndarray, capacity: int, group: np.ndarray,
    shape: tuple[int, int],
) -> np.ndarray:  # fmt: skip
    """float64[regions, cores]: uses of lines that a cache of so many lines for each ``group`` of cores (int[cores])
    does not hold, if it replaces what was used least recently."""
    found = np.zeros(shape[0] * shape[1])
    stacks = [StackDistances() for _ in range(int(group.max()) + 1)]
    for first, end in _runs(np.diff(used.first_line)[before.row]):
        row, core = before.row[first:end], before.core[first:end]
        counts = used.first_line[row + 1] - used.first_line[row]
        line = used.line[np.repeat(used.first_line[row] - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())]
        of_core, of_region = np.repeat(core, counts), np.repeat(region[first:end], counts)
        unit = line + np.where(own[line], of_core << CORE_SHIFT, 0)
        for number, stack in enumerate(stacks):
            mine = np.flatnonzero(group[of_core] == number)
            distance = stack.feed(unit[mine])
            missed = mine[(distance < 0) | (distance >= capacity)]
            found += np.bincount(of_region[missed] * shape[1] + of_core[missed], minlength=len(found))
    return found.reshape(shape)


def _runs(counts: np.ndarray) -> Iterator[tuple[int, int]]:
    """Ranges of rows that have some _AT_ONCE together."""
    group = np.cumsum(counts) // _AT_ONCE
    cuts = [0, *(np.flatnonzero(np.diff(group)) + 1).tolist(), len(counts)]
    yield from pairwise(cuts)


@allocation_free
def _answer(row, core, region, first_line, line, written, is_own, owner, answers):  # type: ignore[no-untyped-def]
    """``owner`` int32[lines]: who wrote a line last, if no other core has asked for it since. O(uses)."""
    for k in range(row.shape[0]):
        me = core[k]
        for place in range(first_line[row[k]], first_line[row[k] + 1]):
            number = line[place]
            if is_own[number]:
                continue
            if owner[number] >= 0 and owner[number] != me:
                answers[region[k], owner[number]] += 1
                owner[number] = -1
            if written[place]:
                owner[number] = me
