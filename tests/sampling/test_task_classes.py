"""Classes of task instances by basic-block vectors: made of known groups, they must be found."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manyscale.sampling.taskpoint.classes import (
    EPS_BOUNDS,
    FOLDED_COLUMNS,
    KEPT_COLUMNS,
    TaskClasses,
    TaskClassParameters,
    class_rows,
    find_classes,
)


def classes(
    vectors: list[dict[int, int]],
    task_type: list[int] | None = None,
    num_accesses: list[int] | None = None,
    **parameters: float,
) -> TaskClasses:
    """``vectors``: of each instance, instructions by block."""
    indptr = np.cumsum([0, *(len(vector) for vector in vectors)])
    block = np.array([one for vector in vectors for one in vector], np.int64)
    instructions = np.array([count for vector in vectors for count in vector.values()], np.int64)
    return find_classes(
        indptr,
        block,
        instructions,
        None if task_type is None else np.array(task_type),
        None if num_accesses is None else np.array(num_accesses),
        TaskClassParameters(**parameters),
    )


def shared(percent: int) -> dict[int, int]:
    """An instance that executes so many per cent of its instructions in block 1, the others in block 0."""
    return {0: 100 - percent, 1: percent}


@pytest.mark.theory
def test_eps_is_a_share_of_instructions() -> None:
    """Few distinct vectors leave eps at its lower bound: 1 % of instructions elsewhere is one class, 5 % are two."""
    near = classes([shared(0)] * 5 + [shared(1)] * 5)
    assert near.class_of.tolist() == [0] * 10
    assert near.eps == EPS_BOUNDS[0]
    far = classes([shared(0)] * 5 + [shared(5)] * 6)
    assert far.class_of.tolist() == [1] * 5 + [0] * 6
    assert classes([shared(0)] * 5 + [shared(5)] * 6, eps=0.06).num_classes == 1


@pytest.mark.theory
def test_proportional_vectors_are_one_point() -> None:
    found = classes([{3: 10, 7: 20}, {7: 2, 3: 1}, {3: 500, 7: 1000}, {3: 3, 7: 6}])
    assert (found.num_distinct, found.num_points, found.num_classes) == (1, 1, 1)


@pytest.mark.theory
def test_classes_split_and_join_types() -> None:
    """Type 0 divides or sorts, as merge-sort's does (section 4.3.2); type 1 sorts, too."""
    divide, sort = {0: 5, 1: 5}, {2: 400, 3: 200}
    vectors = [divide] * 6 + [sort] * 4 + [sort] * 5
    types = [0] * 10 + [1] * 5
    found = classes(vectors, types)
    assert found.class_of.tolist() == [1] * 6 + [0] * 9
    instructions = np.array([sum(vector.values()) for vector in vectors])
    first, second = class_rows(found.class_of, instructions, np.array(types))
    assert (first.num_instances, first.types) == (9, ((0, 4), (1, 5)))
    assert first.instructions_share == pytest.approx(5400 / 5460)
    assert (second.num_instances, second.types) == (6, ((0, 6),))


@pytest.mark.theory
def test_density_joins_what_lies_in_a_row() -> None:
    """DBSCAN chains: the ends of a row of neighbours differ by more than eps."""
    found = classes([shared(percent) for percent in range(40) for _ in range(4)])
    assert found.num_classes == 1


@pytest.mark.theory
def test_noise() -> None:
    """Lone instances: one at 3 % from a class joins it (less than twice eps); those far away make one class per
    type."""
    found = classes(
        [shared(0)] * 8 + [shared(3), {5: 9}, {6: 7}, {7: 1}],
        [0] * 8 + [0, 1, 1, 2],
        eps=0.02,
    )
    assert found.class_of.tolist() == [0] * 9 + [1, 1, 2]
    assert (found.num_noise, found.num_far_noise) == (4, 3)


@pytest.mark.theory
def test_many_blocks() -> None:
    """Two kernels of hundreds of blocks, each with its equal part: their distance is 1, and stays well above eps when
    blocks are folded; one that executes a tenth of its instructions in the other's blocks is told from both."""
    size = KEPT_COLUMNS + FOLDED_COLUMNS
    one = dict.fromkeys(range(size), 100)
    other = {size + block: 100 for block in range(size)}
    mixed = dict.fromkeys(range(size), 90) | {size + block: 10 for block in range(size)}
    found = classes([one] * 4 + [other] * 4 + [mixed] * 4)
    assert [found.class_of.tolist()[at : at + 4] for at in (0, 4, 8)] == [[0] * 4, [1] * 4, [2] * 4]


@pytest.mark.theory
def test_features() -> None:
    """Three octaves of 0.05 are more than eps, one octave of 0.01 less; so are 0.2 and 0.01 accesses."""
    small, double, large = {0: 1000}, {0: 2000}, {0: 8000}
    assert classes([small] * 4 + [large] * 4).num_classes == 1
    assert classes([small] * 4 + [large] * 4, instructions_weight=0.05).num_classes == 2
    assert classes([small] * 4 + [double] * 4, instructions_weight=0.01).num_classes == 1
    few, more, many = [100] * 4, [110] * 4, [300] * 4
    assert classes([small] * 8, num_accesses=few + many, accesses_weight=1.0).num_classes == 2
    assert classes([small] * 8, num_accesses=few + more, accesses_weight=1.0).num_classes == 1


@pytest.mark.theory
def test_instances_that_execute_nothing() -> None:
    found = classes([{}, {0: 5}, {1: 0}, {0: 5}, {0: 5}, {0: 5}, {}])
    assert found.class_of.tolist() == [1, 0, 1, 0, 0, 0, 1]
    assert classes([]).num_classes == 0
    assert classes([{}]).class_of.tolist() == [0]


@pytest.mark.theory
def test_eps_grows_with_the_spread_inside_classes() -> None:
    """Vectors all differ; neighbours of a class lie 4 % apart on average, which the lower bound would make noise."""
    random = np.random.default_rng(3)
    vectors = []
    for kernel in (0, 10):
        for _ in range(60):
            parts = 1000 + random.integers(-300, 300, 4)
            vectors.append({kernel + i: int(part) for i, part in enumerate(parts)})
    found = classes(vectors)
    assert EPS_BOUNDS[0] < found.eps < EPS_BOUNDS[1]
    assert found.class_of.tolist() in ([0] * 60 + [1] * 60, [1] * 60 + [0] * 60)
    assert classes(vectors, eps=EPS_BOUNDS[0]).num_noise > 10


@pytest.mark.property
@settings(max_examples=30, deadline=None)
@given(st.integers(1, 6), st.integers(4, 30), st.integers(0, 1000))
def test_known_groups_in_any_order(num_groups: int, size: int, seed: int) -> None:
    """Groups of disjoint blocks, with up to 1 % of instructions moved about inside each, on a grid of 200 vectors."""
    random = np.random.default_rng(seed)
    truth = random.permutation(np.repeat(np.arange(num_groups), size))
    vectors = []
    for group in truth:
        moved = int(random.integers(0, 10))
        vectors.append({3 * int(group): 500 + moved, 3 * int(group) + 1: 500 - moved})
    found = classes(vectors)
    pairs = set(zip(truth.tolist(), found.class_of.tolist(), strict=True))
    assert len(pairs) == num_groups == found.num_classes
    assert found.class_of.tobytes() == classes(vectors).class_of.tobytes()


@pytest.mark.property
def test_work_is_bounded() -> None:
    """As many different vectors as instances are joined until few enough points are left."""
    vectors = [dict(enumerate(row)) for row in np.random.default_rng(0).integers(1, 1000, (2000, 5)).tolist()]
    found = classes(vectors, most_points=50)
    assert found.num_distinct == 2000
    assert 2 <= found.num_points <= 50
    assert found.eps >= 2 * found.radius > EPS_BOUNDS[0] / 2
    assert classes(vectors[:300]).radius == EPS_BOUNDS[0] / 4


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        (([0, 1], [0, 1], [1, 1]), "indptr does not ascend from 0 to 2"),
        (([0, 2, 1, 2], [0, 1], [1, 1]), "indptr does not ascend"),
        (([], [], []), "indptr does not ascend"),
        (([0, 2], [0, 1], [1]), "2 blocks and 1 numbers of instructions"),
        (([0, 1, 2], [0, 1], [1, -1]), "task instance 1 has a negative number of instructions"),
        (([0, 1, 2], [-1, 1], [1, 1]), "task instance 0 has a negative block"),
        (([0, 1, 2], [0, 1], [1, 1], [0]), "2 task instances, and task types of 1"),
    ],
)
def test_refuses_arrays(arrays: tuple, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        find_classes(*(np.array(each) for each in arrays))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"eps": 0.0}, "eps is 0.0"),
        ({"eps": 3.0}, "eps is 3.0"),
        ({"min_points": 0}, "min_points is 0"),
        ({"most_points": 1}, "most_points is 1"),
        ({"instructions_weight": -1.0}, "weight"),
        ({"accesses_weight": np.inf}, "weight"),
        ({"accesses_weight": 1.0}, "not for each task instance"),
    ],
)
def test_refuses_parameters(given: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        classes([{0: 1}], **given)


def test_vectors_are_left_as_they_are() -> None:
    given = (np.array([0, 3, 5]), np.array([2, 0, 2, 1, 0]), np.array([5, 6, 7, 8, 9]))
    before = [each.copy() for each in given]
    find_classes(*given)
    assert all((one == other).all() for one, other in zip(given, before, strict=True))
