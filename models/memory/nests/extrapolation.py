"""A loop nest at any input, from traces of small ones.

Trip counts and addresses are affine in the counters of the loops around them (``loop_nests``); each of the coefficients
is a polynomial in the input x, found exactly and accepted only where at least one more input than it needs confirms it.
So STREAM, matrix multiply, stencils and triangular factorisations are given back exactly at inputs that never ran. AMM
(section 4) extrapolates distributions of distances instead; a regenerated stream shows a target's caches the very
sets and lines.

Unrolled and vectorised loops have trip counts floor(x / w), and other remainders run other blocks. Inputs are therefore
taken apart by their remainder modulo 1, 2, 3, 4, 8, 16: the first modulus at which all goes well. Give inputs that are
congruent to the target: at a remainder that was not traced, a trip count that is a fraction is refused, but blocks that
only such inputs run cannot be known. Nor can code that a size decides which no traced input passed (memcpy). Where
arrays lie at the target is assumed (``nest_arrays``).

References whose addresses are not affine (indices read from memory) are refused unless ``min_coverage`` allows them;
then their accesses have the address IRREGULAR.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise, product
from typing import Final

import numpy as np

from manyscale.models.memory.access_stream import Sites, sites_of
from manyscale.models.memory.nests.arrays import Array, arrays_of, origins
from manyscale.models.memory.nests.exact_polynomials import Polynomial, polynomial_through, value_at
from manyscale.models.memory.nests.instance import BATCH_ACCESSES, NestInstance, Window
from manyscale.models.memory.nests.loop_nests import (
    LoopStructure,
    Nest,
    NotAffineError,
    Visits,
    affine_fit,
)
from manyscale.models.workload import Workload
from manyscale.models.workload.notes import Note

MODULI: Final = (1, 2, 3, 4, 8, 16)
LEAST_INPUTS: Final = 3  # two for a line, one to confirm it
IRREGULAR: Final = 0


@dataclass(frozen=True)
class NestFit:
    """A nest whose numbers are polynomials, for inputs of one remainder.

    ``first_reference`` int64[nodes + 1]: references of each node. ``trips`` [loops][1 + depth]: of each trip count the
    constant and the coefficients of the counters around it; ``strides`` [references][depth]: those of each address;
    constants of addresses are the arrays'. ``is_regular`` bool[references]: whether affine; ``coverage``: share of the
    accesses that are, at the largest input; ``notes``: what was assumed.
    """

    inputs: tuple[int, ...]
    nest: Nest
    first_reference: np.ndarray
    reference_bytes: np.ndarray
    trips: tuple[tuple[Polynomial, ...], ...]
    strides: tuple[tuple[Polynomial, ...], ...]
    arrays: tuple[Array, ...]
    is_regular: np.ndarray
    coverage: float
    notes: tuple[Note, ...]


@dataclass(frozen=True)
class NestProgram:
    """A kernel as loop nests, at any input x. ``fits`` by x modulo ``modulus``; other remainders are unknown.

    ``at(x)`` gives the nest with its numbers; the other methods are short for its methods of the same names.
    """

    modulus: int
    fits: dict[int, NestFit]
    num_blocks: int

    @cached_property
    def coverage(self) -> float:
        """Share of the accesses whose addresses are affine, at the largest inputs traced."""
        return min(fit.coverage for fit in self.fits.values())

    @cached_property
    def notes(self) -> tuple[Note, ...]:
        """What was assumed beyond what the traces show."""
        return tuple(dict.fromkeys(note for fit in self.fits.values() for note in fit.notes))

    def at(self, x: int, placement_seed: int | None = None) -> NestInstance:
        """The nest at input x, with arrays a page apart or, with a seed, a random number of pages (1 to 512).

        Raises NotAffineError where no traced input has x's remainder, where a polynomial is not whole at x, or where x
        is too small for a loop.
        """
        if x % self.modulus not in self.fits:
            known = ", ".join(map(str, sorted(self.fits)))
            raise NotAffineError(f"input {x}: trace inputs that are {x % self.modulus} modulo {self.modulus}; those "
                                 f"traced are {known}")  # fmt: skip
        return _instance(self.fits[x % self.modulus], x, self.num_blocks, placement_seed)

    def counts(self, x: int) -> np.ndarray:
        """int64[blocks]: executions of each block at x, exactly."""
        return self.at(x).counts()

    def num_accesses(self, x: int) -> int:
        return self.at(x).num_accesses()

    def num_outer(self, x: int) -> int:
        """Outer iterations at x."""
        return self.at(x).num_outer

    def generate(
        self,
        x: int,
        first_outer: int = 0,
        end_outer: int | None = None,
        max_accesses: int = BATCH_ACCESSES,
        placement_seed: int | None = None,
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """(block_ids int32[], addresses uint64[]) of outer iterations [first_outer, end_outer) at x, in batches."""
        return self.at(x, placement_seed).generate(first_outer, end_outer, max_accesses)

    def windows(self, x: int, num_windows: int, num_iterations: int = 5, min_accesses: int = 0) -> list[Window]:
        """Windows of outer iterations at x, with what each stands for."""
        return self.at(x).windows(num_windows, num_iterations, min_accesses)


def recognise(
    traces: Sequence[tuple[int, np.ndarray, np.ndarray]], sites: Sites, min_coverage: float = 1.0
) -> NestProgram:
    """The loop nests of one kernel from its traces at several inputs: (x, block_ids int32[], addresses uint64[]).

    All traces number their blocks as ``sites`` does (``common_blocks`` sees to it). At least three inputs of a
    remainder are needed, five where a size grows with the cube of x. Raises NotAffineError with the reason where the
    kernel is no affine nest, or where less than ``min_coverage`` of its accesses have affine addresses; ValueError
    where blocks and addresses do not fit together. O((executions + accesses) depth), times the moduli tried.
    """
    ordered = sorted(traces, key=lambda trace: trace[0])
    inputs = [x for x, _, _ in ordered]
    if len(set(inputs)) != len(inputs) or len(inputs) < LEAST_INPUTS:
        raise NotAffineError(f"inputs {inputs}: at least {LEAST_INPUTS} different ones are needed")
    if not all(len(block_ids) for _, block_ids, _ in ordered):
        raise NotAffineError("one of the traces is empty")
    recorded = _Recorded(ordered, sites)
    reasons = []
    leniences = dict.fromkeys([(1.0, True), (1.0, False), (min_coverage, False)])
    for (coverage, is_strict), shared_headers in product(leniences, (False, True)):
        for modulus in MODULI:
            groups: dict[int, list[int]] = {}
            for place, x in enumerate(inputs):
                groups.setdefault(x % modulus, []).append(place)
            enough = {key: group for key, group in groups.items() if len(group) >= LEAST_INPUTS}
            try:
                fits = {
                    key: _fit(recorded, group, coverage, is_strict, shared_headers) for key, group in enough.items()
                }
            except NotAffineError as error:
                reasons.append(error)
                continue
            if fits:
                return NestProgram(modulus, fits, sites.num_blocks)
    raise reasons[0]


def traces_of(workloads: Mapping[int, Workload]) -> tuple[list[tuple[int, np.ndarray, np.ndarray]], Sites]:
    """Detailed traces by input, read whole, as ``recognise`` takes them. Raises ValueError where a workload has no
    detailed level, or that of several ranks or threads."""
    streams, sites = [], []
    for x, workload in workloads.items():
        strands = {*zip(*(workload.column("segments", name).tolist() for name in ("rank", "thread")), strict=True)}
        if workload.detail is None or len(strands) != 1:
            raise ValueError(
                f"input {x}: the detailed trace of one thread of one rank is needed, not of {len(strands)}"
            )
        streams.append(workload.detail.read_executions(0, int(workload.detail.execution_bounds()[-1])))
        sites.append(sites_of(workload))
    modules = [workload.tables["blocks"].column("module").to_pylist() for workload in workloads.values()]
    maps, common = common_blocks(modules, [w.column("blocks", "offset") for w in workloads.values()], sites)
    numbered = zip(workloads, maps, streams, strict=True)
    return [(x, numbers[batch.block_ids], batch.addresses) for x, numbers, batch in numbered], common


def common_blocks(
    modules: Sequence[Sequence[str]], offsets: Sequence[np.ndarray], sites: Sequence[Sites]
) -> tuple[list[np.ndarray], Sites]:
    """One numbering of blocks for several traces, which number them in the order in which they ran.

    Of each trace the module and the offset of every block (columns of table ``blocks``), and its sites. Returns (for
    each trace int32[blocks]: its blocks' common numbers; their sites). Blocks at one place with different accesses are
    different blocks. O(blocks).
    """
    numbers: dict[tuple[str, int, bytes, bytes], int] = {}
    stores, widths, counts, maps = [], [], [], []
    for module, offset, site in zip(modules, offsets, sites, strict=True):
        result = np.empty(len(module), np.int32)
        for block, (low, high) in enumerate(pairwise(site.offsets.tolist())):
            is_store, width = site.is_store[low:high], site.bytes[low:high]
            key = (module[block], int(offset[block]), is_store.tobytes(), width.tobytes())
            if key not in numbers:
                numbers[key] = len(numbers)
                stores.append(is_store)
                widths.append(width)
                counts.append(high - low)
            result[block] = numbers[key]
        maps.append(result)
    block_of_site = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
    bounds = np.concatenate(([0], np.cumsum(counts, dtype=np.int64)))
    return maps, Sites(block_of_site, np.concatenate(stores), np.concatenate(widths), bounds)


class _Recorded:
    """All traces end to end, and their structure."""

    def __init__(self, traces: Sequence[tuple[int, np.ndarray, np.ndarray]], sites: Sites) -> None:
        self.inputs = [x for x, _, _ in traces]
        self.sites = sites
        self.num_sites = np.diff(sites.offsets)
        for x, block_ids, addresses in traces:
            expected = int(self.num_sites[block_ids].sum())
            if expected != len(addresses):
                raise ValueError(
                    f"input {x}: blocks make {expected} accesses, but {len(addresses)} addresses are given"
                )
        self.addresses = np.concatenate([addresses for _, _, addresses in traces]).astype(np.int64)
        executed = np.concatenate([block_ids for _, block_ids, _ in traces])
        self.first_access = np.concatenate(([0], np.cumsum(self.num_sites[executed])))
        self._executed = [block_ids for _, block_ids, _ in traces]
        self._structures: dict[bool, LoopStructure] = {}

    def structure(self, shared_headers: bool) -> LoopStructure:
        """Found when it is first asked for."""
        if shared_headers not in self._structures:
            names = [f"input {x}" for x in self.inputs]
            found = LoopStructure(self._executed, self.sites.num_blocks, names, shared_headers)
            self._structures[shared_headers] = found
        return self._structures[shared_headers]


class _Coefficients:
    """Affine fits of one group of traces: of each row (loop or reference) and trace a constant and coefficients.

    ``value``, ``is_known`` [rows, traces, 1 + depth]; ``is_exact`` bool[rows].
    """

    def __init__(self, num_rows: int, num_traces: int, depth: int) -> None:
        self.value = np.zeros((num_rows, num_traces, 1 + depth), np.int64)
        self.is_known = np.zeros(self.value.shape, bool)
        self.is_exact = np.ones(num_rows, bool)

    def fit(self, rows: slice, visits: Visits, values: np.ndarray) -> None:
        """``values`` int64[visits, rows]."""
        depth = visits.counters.shape[1]
        bounds = np.searchsorted(visits.trace, np.arange(self.value.shape[1] + 1))
        for trace, (low, high) in enumerate(pairwise(bounds)):
            found, is_exact, is_known = affine_fit(visits.counters[low:high], values[low:high])
            self.value[rows, trace, : 1 + depth] = found.T
            self.is_known[rows, trace, : 1 + depth] = is_known
            self.is_exact[rows] &= is_exact

    def polynomials(self, inputs: tuple[int, ...], row: int, first_column: int) -> tuple[Polynomial, ...] | None:
        """A row's columns from ``first_column`` as polynomials in the input; None where one is none."""
        result = []
        for value, is_known in zip(self.value[row].T[first_column:], self.is_known[row].T[first_column:], strict=True):
            points = tuple(zip(np.array(inputs)[is_known].tolist(), value[is_known].tolist(), strict=True))
            found = polynomial_through(points) if points else ()
            if found is None:
                return None
            result.append(found)
        return tuple(result)


def _fit(recorded: _Recorded, group: list[int], min_coverage: float, is_strict: bool, shared_headers: bool) -> NestFit:
    """The nest of a group of traces and its polynomials."""
    nest, visits = recorded.structure(shared_headers).nest(group)
    inputs = tuple(recorded.inputs[place] for place in group)
    is_block = nest.block >= 0
    num_references = np.where(is_block, recorded.num_sites[np.where(is_block, nest.block, 0)], 0)
    first_reference = np.concatenate(([0], np.cumsum(num_references, dtype=np.int64)))
    trips = _fit_trips(nest, visits, inputs)
    total = int(first_reference[-1])
    found = _Coefficients(total, len(group), nest.max_depth)
    low, end = np.zeros((2, total, len(group)), np.int64)
    weight, width = np.zeros(total), np.ones(total, np.int64)
    for node in np.flatnonzero(num_references).tolist():
        visit, rows = visits[node], slice(*first_reference[node : node + 2].tolist())
        values = recorded.addresses[recorded.first_access[visit.value][:, np.newaxis] + np.arange(num_references[node])]
        found.fit(rows, visit, values)
        first_site = int(recorded.sites.offsets[nest.block[node]])
        width[rows] = np.maximum(recorded.sites.bytes[first_site : first_site + num_references[node]], 1)
        starts = np.searchsorted(visit.trace, np.arange(len(group)))
        low[rows] = np.minimum.reduceat(values, starts).T
        end[rows] = np.maximum.reduceat(values, starts).T + width[rows, np.newaxis]
        weight[rows] = len(visit.trace) - starts[-1]
    strides = [found.polynomials(inputs, row, 1) if found.is_exact[row] else None for row in range(total)]
    is_regular = np.array([row is not None for row in strides], bool)
    coverage = float(weight[is_regular].sum() / weight.sum()) if total else 1.0
    if coverage < min_coverage:
        row = int(np.flatnonzero(~is_regular)[0])
        block = int(nest.block[np.searchsorted(first_reference, row, "right") - 1])
        raise NotAffineError(f"{1 - coverage:.1%} of the accesses are not affine in loop counters and polynomial in "
                             f"the input, such as those of block {block}")  # fmt: skip
    arrays, notes = arrays_of(inputs, np.flatnonzero(is_regular), found.value[:, :, 0], low, end, is_strict)
    return NestFit(
        inputs, nest, first_reference, width, trips, tuple(row or ((),) * nest.max_depth for row in strides),
        tuple(arrays), is_regular, coverage, tuple(notes),
    )  # fmt: skip


def _fit_trips(nest: Nest, visits: list[Visits], inputs: tuple[int, ...]) -> tuple[tuple[Polynomial, ...], ...]:
    """Of each loop, its trip count."""
    found = _Coefficients(nest.num_loops, len(inputs), nest.max_depth)
    result = []
    for loop, node in enumerate(np.flatnonzero(nest.loop >= 0).tolist()):
        found.fit(slice(loop, loop + 1), visits[node], visits[node].value[:, np.newaxis])
        blocks = nest.block[node:]
        where = f"trip count of the loop that begins with block {blocks[blocks >= 0][0]}: "
        if not found.is_exact[loop]:
            raise NotAffineError(f"{where}not affine in the counters of the loops around it")
        polynomials = found.polynomials(inputs, loop, 0)
        if polynomials is None:
            raise NotAffineError(f"{where}no polynomial in the inputs {inputs} that one more input confirms")
        result.append(polynomials)
    return tuple(result)


def _instance(fit: NestFit, x: int, num_blocks: int, placement_seed: int | None) -> NestInstance:
    """All polynomials at x, and the arrays laid out."""
    nest, depth = fit.nest, fit.nest.max_depth
    trips = np.array([_values(row, x) for row in fit.trips], np.int64).reshape(len(fit.trips), 1 + depth)
    if (trips[:, 0] < 0).any():
        raise NotAffineError(f"input {x}: too small for one of the loops found at inputs {fit.inputs}")
    references = np.zeros((len(fit.strides), 1 + depth), np.int64)
    references[:, 1:] = np.array([_values(row, x) for row in fit.strides], np.int64).reshape(len(fit.strides), depth)
    for array in fit.arrays:
        references[array.references, 0] = _values(array.offsets, x)
    lowest, highest = _bounds(nest, trips, fit.first_reference, references)
    page_offsets = _values([array.page_offset for array in fit.arrays], x)
    places = origins(fit.arrays, page_offsets, lowest, highest + fit.reference_bytes, placement_seed)
    for array, origin in zip(fit.arrays, places, strict=True):
        references[array.references, 0] += origin
    references[~fit.is_regular, 0] = IRREGULAR
    return NestInstance(nest, trips, fit.first_reference, references, num_blocks)


def _values(polynomials: Sequence[Polynomial], x: int) -> list[int]:
    values = [value_at(polynomial, x) for polynomial in polynomials]
    for value in values:
        if value.denominator != 1:
            raise NotAffineError(
                f"input {x}: a trip count or an address would be {value}; trace inputs congruent to {x}"
            )
    return [int(value) for value in values]


def _bounds(
    nest: Nest, trips: np.ndarray, first_reference: np.ndarray, references: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The lowest and the highest address of each reference, or beyond them (in triangular loops). O(references)."""
    lowest, highest = references[:, 0].copy(), references[:, 0].copy()
    last = np.zeros(nest.max_depth, np.int64)  # largest values of the counters around a node
    for node, depth in enumerate(nest.depth.tolist()):
        if nest.loop[node] >= 0:
            trip = trips[nest.loop[node]]
            last[depth] = max(int(trip[0] + np.maximum(trip[1 : 1 + depth] * last[:depth], 0).sum()) - 1, 0)
            continue
        rows = slice(*first_reference[node : node + 2].tolist())
        reach = references[rows, 1 : 1 + depth] * last[:depth]
        lowest[rows] += np.minimum(reach, 0).sum(axis=1)
        highest[rows] += np.maximum(reach, 0).sum(axis=1)
    return lowest, highest
