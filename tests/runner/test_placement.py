"""Ranks on nodes: placements and shares of a core derived by hand."""

from __future__ import annotations

import pytest

from manyscale.models.machine import Machine
from manyscale.runner.errors import UserError
from manyscale.runner.placement import place_ranks
from manyscale.runner.problems import load_yaml
from manyscale.runner.study import Mapping_
from manyscale.runner.targets import shipped_targets


def machine(nodes: int, cores: int) -> Machine:
    content = load_yaml(shipped_targets()["laptop"])
    node = {**content["node"], "sockets": 1, "cores_per_socket": cores}
    return Machine.model_validate({**content, "nodes": nodes, "node": node})


def place(num_ranks: int, nodes: int, cores: int, **mapping: object) -> tuple[list[int], list[float]]:
    node, sharing = place_ranks(Mapping_.model_validate(mapping), machine(nodes, cores), num_ranks)
    return node.tolist(), sharing.tolist()


@pytest.mark.parametrize(
    ("num_ranks", "nodes", "cores", "mapping", "expected"),
    [
        (6, 3, 2, {}, [0, 0, 1, 1, 2, 2]),  # block, full nodes, is the default
        (5, 9, 2, {"placement": "block"}, [0, 0, 1, 1, 2]),
        (6, 9, 4, {"ranks_per_node": 2}, [0, 0, 1, 1, 2, 2]),
        (6, 3, 2, {"placement": "cyclic"}, [0, 1, 2, 0, 1, 2]),
        (5, 9, 2, {"placement": "cyclic"}, [0, 1, 2, 0, 1]),  # on as few nodes as block takes
        (4, 9, 4, {"placement": "cyclic", "ranks_per_node": 1}, [0, 1, 2, 3]),
        (3, 9, 2, {"placement": [8, 0, 8]}, [8, 0, 8]),
        (1, 1, 1, {}, [0]),
    ],
)
def test_placement(num_ranks, nodes, cores, mapping, expected):
    node, sharing = place(num_ranks, nodes, cores, **mapping)
    assert node == expected
    assert sharing == [1.0] * num_ranks


@pytest.mark.parametrize(
    ("num_ranks", "nodes", "cores", "mapping", "expected", "sharing"),
    [
        (5, 2, 2, {}, [0, 0, 0, 1, 1], [1.5, 1.5, 1.5, 1.0, 1.0]),  # three ranks to a node: 3 / 2 a core
        (5, 2, 2, {"placement": "cyclic"}, [0, 1, 0, 1, 0], [1.5, 1.0, 1.5, 1.0, 1.5]),
        (4, 3, 1, {"ranks_per_node": 2}, [0, 0, 1, 1], [2.0] * 4),
        (3, 3, 1, {"placement": [2, 2, 0]}, [2, 2, 0], [2.0, 2.0, 1.0]),
    ],
)
def test_oversubscription_shares_cores(num_ranks, nodes, cores, mapping, expected, sharing):
    assert place(num_ranks, nodes, cores, oversubscribe=True, **mapping) == (expected, sharing)
    with pytest.raises(UserError, match=r"set mapping\.oversubscribe: true"):
        place(num_ranks, nodes, cores, **mapping)


@pytest.mark.parametrize(
    ("placement", "words"),
    [
        ([0, 1], "2 nodes for 3 ranks; list one for each"),
        ([], "0 nodes for 3 ranks"),
        ([0, 1, 2], "node 2 is not one of the 2 of laptop"),
        ([1, -1, 0], "node -1 is not one"),
        ([0, 10**30, 0], "node 10{30} is not one"),
    ],
)
def test_lists_that_do_not_fit(placement, words):
    with pytest.raises(UserError, match=rf"^mapping\.placement: {words}"):
        place(3, 2, 4, placement=placement)
