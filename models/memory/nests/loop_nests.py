"""Loop nests in traces: which loops a sequence of basic blocks runs, and what is affine in their counters.

The idea is that of Ketterlin & Clauss, "Prediction and trace compression of data access addresses through nested loop
recognition" (CGO 2008): nests whose trip counts and addresses are affine in the outer counters stand for a trace and,
run, give it back. They grow nests from a stream of numbers. Here blocks are known, so control comes first, then data:

1. Loops are found in the graph of block transitions (``loop_graph``), so one is known even where it takes no or one
   iteration.
2. From the innermost outwards, the iterations of each loop are put together that take the same path (the same blocks
   and inner loops). A loop whose iterations take path A some times, then path B some times, becomes two loops; one that
   takes A B A B ... is unrolled. A loop of one iteration in every trace is none.
3. The counters of all loops around every execution of a block follow; trip counts and addresses are fitted to them,
   and a fit is accepted only if it gives every value of the trace exactly.

Assumptions: several traces of one kernel are recognised together; they number their blocks alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from manyscale.models.memory.nests.loop_graph import Loop, loop_forest

MOST_RUNS: Final = 16  # of like paths in one loop; more is no regular order
MOST_UNROLLED: Final = 32  # iterations in all those runs
PERIODS: Final = (1, 2, 3, 4, 8, 16)  # iterations of a loop that are tried as one
MIXERS: Final = (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)  # splitmix64


class NotAffineError(ValueError):
    """A trace is no affine loop nest; the message gives the reason."""


@dataclass(frozen=True)
class Nest:
    """The static structure of a trace: nodes in the order of the program text, each a block or a loop.

    ``block`` int32[nodes]: the block executed, -1 for a loop; ``end`` int32[nodes]: the node after the whole of this
    one; ``depth`` int32[nodes]: loops around it; ``loop`` int32[nodes]: number of a loop, -1 for a block.
    """

    block: np.ndarray
    end: np.ndarray
    depth: np.ndarray
    loop: np.ndarray

    @property
    def num_loops(self) -> int:
        return int(self.loop.max(initial=-1)) + 1

    @property
    def max_depth(self) -> int:
        return int(self.depth.max(initial=0))

    def describe(self) -> str:
        """The structure in one line, such as ``0 1 loop0 { 2 loop1 { 3 } 4 }``."""
        words: list[str] = []
        ends: list[int] = []
        for node, (block, end, loop) in enumerate(zip(self.block, self.end, self.loop, strict=True)):
            while ends and ends[-1] == node:
                words.append("}")
                ends.pop()
            if block >= 0:
                words.append(str(block))
            else:
                words.append(f"loop{loop} {{")
                ends.append(int(end))
        return " ".join(words + ["}"] * len(ends))


@dataclass(frozen=True)
class Visits:
    """The times that a node is reached, in all traces, in the order of time within each trace.

    ``trace`` int32[n]: which trace; ``counters`` int64[n, depth]: counters of the loops around it, outermost first;
    ``value`` int64[n]: for a block the index of the execution in all traces laid end to end; for a loop its trip count.
    """

    trace: np.ndarray
    counters: np.ndarray
    value: np.ndarray


@dataclass(frozen=True)
class _Tokens:
    """A sequence partly folded: ``token`` int64[n] (a block, or the shape of a loop), ``execution`` int64[n] (the first
    in it), ``instance`` int64[n] (row of the loop's fold, -1 for a block)."""

    token: np.ndarray
    execution: np.ndarray
    instance: np.ndarray


@dataclass(frozen=True)
class _Fold:
    """All executions ("instances") of one loop.

    Iteration t starts at ``iterations[t]`` of ``tokens``. Run r, of iterations of one path, begins with iteration
    ``run_iteration[r]`` and has ``run_count[r]``. The runs of instance i begin with ``instance_run[i]``.
    """

    tokens: _Tokens
    iterations: np.ndarray
    run_iteration: np.ndarray
    run_count: np.ndarray
    instance_run: np.ndarray


@dataclass(frozen=True)
class _Shape:
    """What a loop's token stands for: the paths of its runs, each a tuple of tokens."""

    fold: int
    header: int
    is_regular: bool
    paths: tuple[tuple[int, ...], ...]


class LoopStructure:
    """The loops of several traces of one kernel.

    ``block_ids``: one int32[] array per trace, blocks below ``num_blocks``; ``names``: of the traces, for messages.
    ``shared_headers``: whether several ways back to a header are loops inside each other, or ways through one loop.
    O(executions log executions, times depth, + blocks^2).
    """

    def __init__(
        self, block_ids: Sequence[np.ndarray], num_blocks: int, names: Sequence[str], shared_headers: bool = False
    ) -> None:
        self._num_blocks = num_blocks
        self._names = names
        self._folds: list[_Fold] = []
        self._shapes: dict[int, _Shape] = {}
        self._next_token = num_blocks + 1
        separator = num_blocks
        pieces = [piece for blocks in block_ids for piece in ([separator], blocks)]
        token = np.concatenate(pieces).astype(np.int64)
        is_block = token != separator
        tokens = _Tokens(token, np.cumsum(is_block) - is_block, np.full(len(token), -1))
        for loop in loop_forest(token, separator, shared_headers):
            tokens = self._fold_nest(tokens, loop)
        root = self._folded(tokens, np.arange(self._next_token), np.array([separator]), period=1)[0]
        self._root = root
        ends = np.append(root.iterations[1:], len(tokens.token))
        self._roots = [tuple(tokens.token[a + 1 : b].tolist()) for a, b in zip(root.iterations, ends, strict=True)]

    def nest(self, traces: Sequence[int]) -> tuple[Nest, list[Visits]]:
        """The nest that all of ``traces`` (their numbers, at least one) run, and the visits of its nodes, in which
        ``trace`` is the place in ``traces``.

        Raises NotAffineError where they differ, or where a loop takes its paths in no regular order. O(executions
        times depth).
        """
        for other in traces[1:]:
            if self._roots[traces[0]] != self._roots[other]:
                one, two = self._first_difference(self._roots[traces[0]], self._roots[other])
                raise NotAffineError(f"{self._names[traces[0]]} runs {self._name(one)} where {self._names[other]} runs "
                                     f"{self._name(two)}")  # fmt: skip
        builder = _NestBuilder(self._folds, self._shapes, self._num_blocks)
        rows = np.asarray(traces, np.int64)
        builder.path(
            self._roots[traces[0]],
            self._root,
            self._root.iterations[rows] + 1,
            np.arange(len(rows), dtype=np.int32),
            np.empty((len(rows), 0), np.int64),
        )
        return builder.result()

    def _fold_nest(self, tokens: _Tokens, loop: Loop) -> _Tokens:
        """The sequence with every execution of a loop as one token, inner loops first.

        So many iterations are taken as one that the loop's executions have the fewest shapes: each length of A B A B
        ... is a shape of its own, while all of (A B) (A B) ... are one, or two with a last A.
        """
        members, headers = [loop.blocks], np.array([loop.header])
        for k, child in enumerate(loop.children):
            tokens = self._fold_nest(tokens, child)
            shapes = [token for token, shape in self._shapes.items() if shape.fold == len(self._folds) - 1]
            members.append(np.array(shapes))
            if k == 0 and loop.shares_header:
                headers = members[-1]
        member_ids = np.concatenate(members)
        best = None
        for period in PERIODS:
            tried = self._folded(tokens, member_ids, headers, period)
            shape, first_instance = _substrings(tried[1], tried[0].instance_run)
            num_runs = int(np.diff(tried[0].instance_run, append=len(tried[0].run_iteration)).max())
            quality = (num_runs > MOST_RUNS or num_runs * period > MOST_UNROLLED, len(first_instance))
            if best is None or quality < best[0]:
                best = (quality, tried, shape, first_instance)
            if best[0] == (False, 1):
                break
        assert best is not None
        (is_irregular, _), (fold, run_path, path_iteration, positions), shape, first_instance = best
        iteration_end = np.append(fold.iterations[1:], len(fold.tokens.token))
        run_end = np.append(fold.instance_run[1:], len(run_path))
        for k, instance in enumerate(first_instance):
            iterations = path_iteration[run_path[fold.instance_run[instance] : run_end[instance]]]
            paths = tuple(tuple(fold.tokens.token[fold.iterations[t] : iteration_end[t]].tolist()) for t in iterations)
            self._shapes[self._next_token + k] = _Shape(len(self._folds), loop.header, not is_irregular, paths)
        self._folds.append(fold)
        kept = np.ones(len(tokens.token), bool)
        kept[positions] = False
        starts = positions[fold.iterations[fold.run_iteration[fold.instance_run]]]
        kept[starts] = True
        token, instance_of = tokens.token.copy(), tokens.instance.copy()
        token[starts] = self._next_token + shape
        instance_of[starts] = np.arange(len(starts))
        self._next_token += len(first_instance)
        return _Tokens(token[kept], tokens.execution[kept], instance_of[kept])

    def _folded(
        self, tokens: _Tokens, members: np.ndarray, headers: np.ndarray, period: int
    ) -> tuple[_Fold, np.ndarray, np.ndarray, np.ndarray]:
        """(fold, path of every run, an iteration of every path, positions of the loop's tokens)."""
        is_member = np.zeros(self._next_token, bool)
        is_member[members] = True
        positions = np.flatnonzero(is_member[tokens.token])
        inside = _Tokens(tokens.token[positions], tokens.execution[positions], tokens.instance[positions])
        is_entry = np.diff(positions, prepend=-2) != 1
        if headers[0] == self._num_blocks:
            is_entry = np.arange(len(positions)) == 0
        iterations = np.flatnonzero(is_entry | np.isin(inside.token, headers))
        is_first = is_entry[iterations]
        ordinal = np.arange(len(iterations)) - np.maximum.accumulate(np.where(is_first, np.arange(len(iterations)), 0))
        iterations, is_first = iterations[ordinal % period == 0], is_first[ordinal % period == 0]
        path, path_iteration = _substrings(inside.token, iterations)
        is_run = is_first | (np.diff(path, prepend=-1) != 0)
        run_iteration = np.flatnonzero(is_run)
        run_count = np.diff(run_iteration, append=len(iterations))
        fold = _Fold(inside, iterations, run_iteration, run_count, np.flatnonzero(is_first[run_iteration]))
        return fold, path[run_iteration], path_iteration, positions

    def _first_difference(self, a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, int]:
        """Tokens (-1: the end) at which two paths part, as deep as they belong to one loop."""
        for i in range(max(len(a), len(b))):
            one, two = a[i] if i < len(a) else -1, b[i] if i < len(b) else -1
            if one == two:
                continue
            first, second = self._shapes.get(one), self._shapes.get(two)
            if first and second and first.fold == second.fold and first.is_regular and second.is_regular:
                for p, q in zip(first.paths, second.paths, strict=False):
                    if p != q:
                        return self._first_difference(p, q)
            return one, two
        return -1, -1

    def _name(self, token: int) -> str:
        if token < 0:
            return "nothing more"
        if token in self._shapes:
            shape = self._shapes[token]
            return f"the loop at block {shape.header} in {len(shape.paths)} runs of like iterations"
        return f"block {token}"


class _NestBuilder:
    """Walks down the folds from the whole trace, all visits of a place at once."""

    def __init__(self, folds: list[_Fold], shapes: dict[int, _Shape], num_blocks: int) -> None:
        self._folds, self._shapes, self._num_blocks = folds, shapes, num_blocks
        self._block: list[int] = []
        self._end: list[int] = []
        self._depth: list[int] = []
        self._loop: list[int] = []
        self._num_loops = 0
        self._visits: list[Visits] = []

    def result(self) -> tuple[Nest, list[Visits]]:
        arrays = (np.array(part, np.int32) for part in (self._block, self._end, self._depth, self._loop))
        return Nest(*arrays), self._visits

    def path(
        self, tokens: tuple[int, ...], fold: _Fold, first: np.ndarray, trace: np.ndarray, counters: np.ndarray
    ) -> None:
        """Adds the nodes of a path that begins at tokens ``first`` of a fold, once per visit."""
        for place, token in enumerate(tokens):
            at = first + place
            if token < self._num_blocks:
                node = self._add(token, -1, Visits(trace, counters, fold.tokens.execution[at]))
                self._end[node] = node + 1
                continue
            shape = self._shapes[token]
            inner = self._folds[shape.fold]
            if not shape.is_regular:
                raise NotAffineError(f"the loop at block {shape.header} takes its paths in no regular order")
            for run, path in enumerate(shape.paths):
                self._run(path, inner, inner.instance_run[fold.tokens.instance[at]] + run, trace, counters)

    def _run(
        self, path: tuple[int, ...], fold: _Fold, runs: np.ndarray, trace: np.ndarray, counters: np.ndarray
    ) -> None:
        """Adds the loop of a run of iterations, or just its path where it always takes one iteration."""
        count, iteration = fold.run_count[runs], fold.run_iteration[runs]
        if (count == 1).all():
            self.path(path, fold, fold.iterations[iteration], trace, counters)
            return
        node = self._add(-1, self._num_loops, Visits(trace, counters, count))
        self._num_loops += 1
        counter = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
        self.path(
            path,
            fold,
            fold.iterations[np.repeat(iteration, count) + counter],
            np.repeat(trace, count),
            np.column_stack((np.repeat(counters, count, axis=0), counter)),
        )
        self._end[node] = len(self._block)

    def _add(self, block: int, loop: int, visits: Visits) -> int:
        self._block.append(block)
        self._loop.append(loop)
        self._depth.append(visits.counters.shape[1])
        self._end.append(-1)
        self._visits.append(visits)
        return len(self._block) - 1


def affine_fit(counters: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Values as constant + sum of coefficients times counters, exactly.

    ``counters`` int64[n, depth] in the order of time, of a place in a nest that every iteration of every loop around it
    reaches; ``values`` int64[n, columns], n >= 1. Returns (coefficients int64[1 + depth, columns], is_exact
    bool[columns], is_known bool[1 + depth]: false for a counter that is 0 throughout). O(n depth columns).
    """
    depth = counters.shape[1]
    coefficients = np.zeros((1 + depth, values.shape[1]), np.int64)
    coefficients[0] = values[0]
    is_known = np.ones(1 + depth, bool)
    is_first = np.ones(len(counters), bool)  # iteration 0 of all loops further in
    for k in range(depth - 1, -1, -1):
        rows = np.flatnonzero(is_first)
        second = int(np.argmax(counters[rows, k] == 1))
        is_known[1 + k] = second > 0
        if second > 0:  # the row before is iteration 0 of this loop, and of the same iterations of those around it
            coefficients[1 + k] = values[rows[second]] - values[rows[second - 1]]
        is_first &= counters[:, k] == 0
    fitted = counters @ coefficients[1:] + coefficients[0]
    return coefficients, (fitted == values).all(axis=0), is_known


def _substrings(tokens: np.ndarray, starts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Which of the pieces of ``tokens`` that begin at ``starts`` are equal: (number of the kind int64[pieces], a piece
    of every kind int64[kinds]). By hashing, checked. O(tokens + pieces log pieces)."""
    lengths = np.diff(starts, append=len(tokens))
    place = np.arange(len(tokens)) - np.repeat(starts, lengths)
    mixed = tokens.astype(np.uint64) * np.uint64(MIXERS[0]) + place.astype(np.uint64) * np.uint64(MIXERS[1])
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(MIXERS[2])
    mixed ^= mixed >> np.uint64(27)
    total = np.add.reduceat(mixed * np.uint64(MIXERS[1]), starts) + lengths.astype(np.uint64)
    _, example, kind = np.unique(total, return_index=True, return_inverse=True)
    like = np.repeat(starts[example[kind]], lengths) + place
    if not np.array_equal(lengths[example[kind]], lengths) or not np.array_equal(tokens[like], tokens):
        raise NotAffineError("two different paths have one hash")
    return kind, example
