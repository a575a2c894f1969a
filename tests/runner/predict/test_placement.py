"""Ranks on nodes: placements and shares of a core derived by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from manyscale.models.machine import Machine
from manyscale.runner.errors import UserError
from manyscale.runner.predict.placement import place_ranks
from manyscale.runner.problems import load_yaml
from manyscale.runner.study import Mapping_, load_study_content, parse_study
from manyscale.runner.study.targets import shipped_targets


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


@pytest.mark.property
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("per_node", [1, 2, 4])
def test_random_only_changes_who_sits_where(seed, per_node):
    target = machine(9, 4)
    block, _ = place_ranks(Mapping_(ranks_per_node=per_node), target, 9)
    mapping = Mapping_(placement="random", ranks_per_node=per_node)
    node, sharing = place_ranks(mapping, target, 9, seed)
    assert sorted(node) == sorted(block)
    assert np.array_equal(node, place_ranks(mapping, target, 9, seed)[0])
    assert sharing.tolist() == [1.0] * 9


def test_seeds_place_differently():
    placements = {tuple(place_ranks(Mapping_(placement="random"), machine(64, 1), 64, seed)[0]) for seed in range(20)}
    assert len(placements) == 20


def write(folder: Path, text: str) -> dict[str, str]:
    (folder / "nodes.txt").write_text(text)
    return {"file": str(folder / "nodes.txt")}


def test_a_file_names_the_node_of_every_rank(tmp_path):
    text = "# two of the first node\n8 0\n\n 8 # and again\n"
    assert place(3, 9, 2, placement=write(tmp_path, text)) == ([8, 0, 8], [1.0] * 3)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("0\n1\n", "nodes.txt: 2 nodes for 3 ranks; list one for each"),
        ("0\n1 2\n", "nodes.txt: node 2 is not one of the 2 of laptop"),
        ("0\n1 -1\n", r"nodes.txt:2: the number of a node is '-1', not a whole number from 0"),
        ("0\n1\n0x1", "nodes.txt:3: the number of a node is '0x1', not a whole number from 0"),
        ("", "nodes.txt: 0 nodes for 3 ranks"),
        ("0 0 0", "node 0 of laptop would run 3 ranks on 2 cores"),
    ],
)
def test_files_that_do_not_fit(text, words, tmp_path):
    with pytest.raises(UserError, match=words):
        place(3, 2, 2, placement=write(tmp_path, text))


def test_a_file_that_is_no_text(tmp_path):
    with pytest.raises(UserError, match=r"nodes.txt: cannot be read \(No such file.*mapping.placement.file names it"):
        place(3, 2, 4, placement={"file": str(tmp_path / "nodes.txt")})
    (tmp_path / "nodes.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(UserError, match="is not a text file"):
        place(3, 2, 4, placement={"file": str(tmp_path / "nodes.txt")})


def test_a_file_stands_beside_the_study(tmp_path):
    write(tmp_path, "0 1")
    study = tmp_path / "study.yaml"
    study.write_text("workload: {path: x}\ntarget: laptop\nmapping: {placement: {file: nodes.txt}}\n")
    mapping = parse_study(load_study_content(study), "study").mapping
    assert place_ranks(mapping, machine(2, 1), 2)[0].tolist() == [0, 1]


@pytest.mark.parametrize("placement", ["blok", {"file": 5}, {"path": "x"}, [0, "a"]])
def test_unknown_placements_are_refused(placement):
    content = {"workload": {"path": "x"}, "target": "laptop", "mapping": {"placement": placement}}
    with pytest.raises(UserError, match=r"^study: mapping\.placement"):
        parse_study(content, "study")
