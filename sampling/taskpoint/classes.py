"""Classes of task instances that execute the same code in the same proportions, whatever their task type.

Method: Grass, UPC 2017, section 5.3.2 ("Clustering Task Instances"): the basic-block vector of each instance, made to
sum to one, and DBSCAN, which needs no number of clusters. Classes may split a type and join types. The source gives
neither the distance nor DBSCAN's parameters; chosen here:

* Distance: half the L1 distance, which is the share of instructions that one executes in blocks where the other does
  not; 1 for code that has no block in common, however many blocks there are.
* Equal vectors are one point with a weight. Points within EPS_BOUNDS[0] / 4 of an earlier one (of a *leader*: Hartigan,
  "Clustering Algorithms", 1975, ch. 3) join it, within twice as much if there are more than ``most_points`` leaders,
  and so on, and eps is at least twice that: what follows is of their number squared.
* ``eps``, unless given, is the knee of the sorted distances to the ``min_points``-th instance (Ester et al., KDD 1996,
  section 4.2), the point farthest from the chord, between EPS_BOUNDS. With few distinct vectors most of these distances
  are zero, and eps is the lower bound.
* ``min_points`` is 4, as there, and as TaskPoint's history: smaller groups cannot be sampled anyway.
* Noise joins the class of the nearest point that has one, if that is within NEAR_NOISE x eps. The rest of the noise
  makes one class per task type: with a class each, TaskPoint would sample anew for each. Such a class has a large
  spread, and its interval shows it.
* Many blocks: the KEPT_COLUMNS with the most instructions stay, the others are summed up in FOLDED_COLUMNS columns, at
  random; distances can only become smaller.
* Features beside the vector, each added to the distance with a weight: the logarithm (base 2) of the number of
  instructions, and the memory accesses per instruction; in steps of 1/16 octave and 1/64.
* Classes are numbered by their instructions, most first. Instances that execute nothing are a class of their own.

Assumption: blocks say enough. Instances that execute the same blocks on data that lie elsewhere in the hierarchy are in
one class; that is what the correction by a model is for.

Cost: O(blocks executed + d p c) + O(p^2 c) for d distinct vectors, p points and c columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from manyscale.models.kernels import allocation_free

EPS_BOUNDS: Final = (0.02, 0.15)
NEAR_NOISE: Final = 2.0
KEPT_COLUMNS: Final = 192
FOLDED_COLUMNS: Final = 64
_SEED: Final = 20_170  # of the columns that blocks are folded into, and of hashes


@dataclass(frozen=True)
class TaskClassParameters:
    """``eps`` None: found. Weights: distance of a factor of two in instructions, and of one access per instruction
    more. Raises ValueError if one is out of range."""

    eps: float | None = None
    min_points: int = 4
    most_points: int = 2_000
    instructions_weight: float = 0.0
    accesses_weight: float = 0.0

    def __post_init__(self) -> None:
        if self.eps is not None and not 0 < self.eps <= 2:
            raise ValueError(f"eps is {self.eps}; it must lie between 0 and 2 (code in common to none is 1)")
        if self.min_points < 1:
            raise ValueError(f"min_points is {self.min_points}; at least 1 is needed")
        if self.most_points < 2:
            raise ValueError(f"most_points is {self.most_points}; at least 2 are needed")
        if not (0 <= self.instructions_weight < np.inf and 0 <= self.accesses_weight < np.inf):
            raise ValueError("a weight of a feature is negative or not finite")


DEFAULT_PARAMETERS: Final = TaskClassParameters()


@dataclass(frozen=True)
class TaskClasses:
    """``class_of`` int32[instances]. ``num_distinct`` vectors, ``num_points`` of them after joining near ones within
    ``radius``; ``num_noise`` instances that DBSCAN found alone, ``num_far_noise`` of them in classes of the rest."""

    class_of: np.ndarray
    eps: float
    radius: float
    num_distinct: int
    num_points: int
    num_noise: int
    num_far_noise: int

    @property
    def num_classes(self) -> int:
        return int(self.class_of.max(initial=-1)) + 1


@dataclass(frozen=True)
class ClassRow:
    """Of a report: ``types``, ascending, with the number of instances of each."""

    task_class: int
    num_instances: int
    instructions_share: float
    types: tuple[tuple[int, int], ...]


def find_classes(
    indptr: np.ndarray,
    block: np.ndarray,
    instructions: np.ndarray,
    task_type: np.ndarray | None = None,
    num_accesses: np.ndarray | None = None,
    parameters: TaskClassParameters = DEFAULT_PARAMETERS,
) -> TaskClasses:
    """Class of each instance. Of instance i, ``block`` and ``instructions`` (int64, executed there) at
    [indptr[i], indptr[i + 1]); a block may occur several times. ``task_type`` int[instances], for the rest of the
    noise; ``num_accesses`` int64[instances], for their feature.

    Raises ValueError for arrays that do not fit, negative numbers, or a weight of accesses without accesses.
    """
    indptr, block, instructions = _checked(indptr, block, instructions)
    count = len(indptr) - 1
    kind = np.zeros(count, np.int64) if task_type is None else np.ascontiguousarray(task_type, np.int64)
    if len(kind) != count:
        raise ValueError(f"{count} task instances, and task types of {len(kind)}")
    matrix = _matrix(indptr, block, instructions)
    total = np.asarray(matrix.sum(axis=1)).ravel()
    features = _features(total, num_accesses, parameters)
    executes = np.flatnonzero(total > 0)
    first, distinct = _distinct(matrix[executes], features[executes])
    chosen = executes[first]  # an instance for each distinct vector
    columns = np.hstack((_columns(matrix, chosen, total), features[chosen])).astype(np.float32)
    instances = np.bincount(distinct, minlength=len(chosen))
    radius = EPS_BOUNDS[0] / 4
    leaders, leader_of = _leaders(columns, radius, parameters.most_points)
    while np.any(leader_of[-1:] < 0):
        radius *= 2
        leaders, leader_of = _leaders(columns, radius, parameters.most_points)
    weight = np.bincount(leader_of, instances, len(leaders))
    distance = _distances(columns[leaders])
    eps = parameters.eps or max(_knee(distance, weight, parameters.min_points), 2 * radius)
    labels, is_noise = _labels(distance, weight, eps, parameters.min_points)
    label = np.full(count, -2, np.int64)
    label[executes] = labels[leader_of[distinct]]
    far = label == -1
    label[far] = labels.max(initial=-1) + 1 + np.unique(kind[far], return_inverse=True)[1]
    label[label == -2] = label.max(initial=-1) + 1
    return TaskClasses(
        class_of=_by_instructions(label, total),
        eps=eps,
        radius=radius,
        num_distinct=len(chosen),
        num_points=len(leaders),
        num_noise=int(np.count_nonzero(is_noise[leader_of[distinct]])),
        num_far_noise=int(np.count_nonzero(far)),
    )


def class_rows(class_of: np.ndarray, instructions: np.ndarray, task_type: np.ndarray) -> list[ClassRow]:
    """A row per class: its instances, its share of ``instructions`` (of each instance), and the types in it."""
    num_classes = int(class_of.max(initial=-1)) + 1
    share = np.bincount(class_of, instructions, num_classes) / max(int(instructions.sum()), 1)
    pairs, members = np.unique(np.stack((class_of, task_type)), axis=1, return_counts=True)
    rows = []
    for one in range(num_classes):
        mine = np.flatnonzero(pairs[0] == one)
        types = tuple(zip(pairs[1, mine].tolist(), members[mine].tolist(), strict=True))
        rows.append(ClassRow(one, int(members[mine].sum()), float(share[one]), types))
    return rows


def _checked(indptr: np.ndarray, block: np.ndarray, instructions: np.ndarray) -> tuple[np.ndarray, ...]:
    # copies: scipy sorts in place
    indptr, block, instructions = (np.array(each, np.int64) for each in (indptr, block, instructions))
    if len(block) != len(instructions):
        raise ValueError(f"{len(block)} blocks and {len(instructions)} numbers of instructions")
    if len(indptr) < 1 or indptr[0] != 0 or indptr[-1] != len(block) or np.any(np.diff(indptr) < 0):
        raise ValueError(f"indptr does not ascend from 0 to {len(block)}")
    for values, what in ((block, "block"), (instructions, "number of instructions")):
        if np.any(values < 0):
            row = int(np.searchsorted(indptr, int(np.argmax(values < 0)), side="right")) - 1
            raise ValueError(f"task instance {row} has a negative {what}")
    return indptr, block, instructions


def _matrix(indptr: np.ndarray, block: np.ndarray, instructions: np.ndarray):  # type: ignore[no-untyped-def]
    """Sparse instances x blocks, rows sorted, each block once, no zeros."""
    from scipy.sparse import csr_array

    used, column = np.unique(block, return_inverse=True)
    matrix = csr_array((instructions, column, indptr), shape=(len(indptr) - 1, max(len(used), 1)))
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    return matrix


def _features(total: np.ndarray, num_accesses: np.ndarray | None, parameters: TaskClassParameters) -> np.ndarray:
    """float64[instances, 0 to 2]: what is added to distances."""
    features = []
    if parameters.instructions_weight:
        octaves = np.rint(16 * np.log2(np.maximum(total, 1))) / 16
        features.append(parameters.instructions_weight * octaves)
    if parameters.accesses_weight:
        if num_accesses is None or len(num_accesses) != len(total):
            raise ValueError("accesses are given a weight, but not for each task instance")
        features.append(parameters.accesses_weight * np.rint(64 * num_accesses / np.maximum(total, 1)) / 64)
    return np.stack(features, axis=1) if features else np.zeros((len(total), 0))


def _distinct(matrix, features: np.ndarray) -> tuple[np.ndarray, np.ndarray]:  # type: ignore[no-untyped-def]
    """Row of the first of each distinct vector, in order; and which of those each row is.

    Proportional rows are one vector: they are compared divided by their greatest common divisor, by a 64-bit hash that
    is linear in the counts.
    """
    if not matrix.shape[0]:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    random = np.random.default_rng(_SEED)
    odd = random.integers(0, 1 << 63, matrix.shape[1], np.uint64) * np.uint64(2) + np.uint64(1)
    begin = matrix.indptr[:-1]
    divisor = np.gcd.reduceat(matrix.data, begin)
    reduced = (matrix.data // np.repeat(divisor, np.diff(matrix.indptr))).astype(np.uint64)
    code = np.add.reduceat(reduced * odd[matrix.indices], begin)
    for feature in features.T:
        code = code * np.uint64(0x9E3779B97F4A7C15) + np.ascontiguousarray(feature).view(np.uint64)
    _, first, inverse = np.unique(code, return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    return first[order], place[inverse]


def _columns(matrix, chosen: np.ndarray, total: np.ndarray) -> np.ndarray:  # type: ignore[no-untyped-def]
    """float64[chosen, columns]: halves of shares of instructions, so that L1 distances are as the module says."""
    from scipy.sparse import csr_array, diags_array

    shares = diags_array(0.5 / total[chosen]) @ matrix[chosen]
    num_blocks = matrix.shape[1]
    if num_blocks > KEPT_COLUMNS + FOLDED_COLUMNS:
        heaviest = np.argsort(-np.asarray(matrix.sum(axis=0)).ravel(), kind="stable")
        column = np.empty(num_blocks, np.int64)
        column[heaviest[:KEPT_COLUMNS]] = np.arange(KEPT_COLUMNS)
        folded = np.random.default_rng(_SEED).integers(0, FOLDED_COLUMNS, num_blocks - KEPT_COLUMNS)
        column[heaviest[KEPT_COLUMNS:]] = KEPT_COLUMNS + folded
        fold = csr_array((np.ones(num_blocks), (np.arange(num_blocks), column)))
        shares = shares @ fold
    dense: np.ndarray = shares.toarray()
    return dense


def _leaders(columns: np.ndarray, radius: float, most: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows that are leaders, at most ``most``, and the leader of each row, the first within ``radius``; -1 from the
    first row on that would be one too many. O(rows x leaders x columns)."""
    leaders, leader_of = np.empty(min(most, len(columns)), np.int64), np.full(len(columns), -1)
    return leaders[: _find_leaders(columns, radius, leaders, leader_of)], leader_of


@allocation_free
def _find_leaders(columns, radius, leaders, leader_of):  # type: ignore[no-untyped-def]
    num_leaders = 0
    for row in range(columns.shape[0]):
        for k in range(num_leaders):
            other = leaders[k]
            apart = 0.0
            for j in range(columns.shape[1]):
                apart += abs(columns[row, j] - columns[other, j])
                if apart > radius:
                    break
            if apart <= radius:
                leader_of[row] = k
                break
        if leader_of[row] < 0:
            if num_leaders == leaders.shape[0]:
                break
            leaders[num_leaders] = row
            leader_of[row] = num_leaders
            num_leaders += 1
    return num_leaders


def _distances(points: np.ndarray) -> np.ndarray:
    """float64[points, points]."""
    from scipy.spatial.distance import cdist

    distance: np.ndarray = cdist(points, points, "cityblock")
    return distance


def _knee(distance: np.ndarray, weight: np.ndarray, min_points: int) -> float:
    """Radius at the knee of the sorted distances of instances to their ``min_points``-th nearest, itself counted."""
    low, high = EPS_BOUNDS
    if weight.sum() < min_points:
        return low
    order = np.argsort(distance, axis=1, kind="stable")
    reached = np.cumsum(weight[order], axis=1) >= min_points
    column = order[np.arange(len(order)), np.argmax(reached, axis=1)]
    each = distance[np.arange(len(distance)), column]
    ascending = np.argsort(each, kind="stable")
    curve = each[ascending]
    if curve[-1] <= curve[0]:
        return low
    end = np.cumsum(weight[ascending])  # instances up to and with each point
    share = (end - end[0]) / max(end[-1] - end[0], 1.0)
    rise = (curve - curve[0]) / (curve[-1] - curve[0])
    return float(np.clip(curve[int(np.argmax(share - rise))], low, high))


def _labels(distance: np.ndarray, weight: np.ndarray, eps: float, min_points: int) -> tuple[np.ndarray, np.ndarray]:
    """Cluster of each point, -1 for noise that is far from all; and which points DBSCAN found to be noise."""
    from sklearn.cluster import DBSCAN

    if not len(distance):
        return np.empty(0, np.int64), np.empty(0, bool)
    model = DBSCAN(eps=eps, min_samples=min_points, metric="precomputed")
    labels: np.ndarray = model.fit(distance, sample_weight=weight).labels_.astype(np.int64)
    is_noise = labels < 0
    clustered = np.flatnonzero(~is_noise)
    if len(clustered):
        rows = np.flatnonzero(is_noise)
        nearest = clustered[np.argmin(distance[rows][:, clustered], axis=1)]
        near = distance[rows, nearest] <= NEAR_NOISE * eps
        labels[rows[near]] = labels[nearest[near]]
    return labels, is_noise


def _by_instructions(label: np.ndarray, instructions: np.ndarray) -> np.ndarray:
    """int32: labels renumbered by the instructions that they stand for, most first."""
    used, label = np.unique(label, return_inverse=True)
    total = np.bincount(label, instructions, len(used))
    number = np.empty(len(used), np.int32)
    number[np.argsort(-total, kind="stable")] = np.arange(len(used))
    return number[label]
