"""Sampling units as vectors of methods, with depths and kinds of operations, by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from manyscale.runner.readers.stacks import unit_counts as unit_stacks
from manyscale.sampling.simprof.stack_population import StackPopulation, stack_units_of

# unit 0: main > map, main > map > sort, main > map > map (recursion), main; unit 1: main > sort; unit 3: main > write
STACKS = ["0\t1\t1,0", "0\t1\t2,1,0", "0\t1\t1,1,0", "0\t1\t0", "1\t1\t2,0", "3\t1\t3,0"]


def units(
    folder: Path, names: list[str], stacks: list[str], operations: dict[str, str] | None = None
) -> StackPopulation:
    path = folder / "a.stk"
    path.write_text("".join(f"M\t{k}\t{name}\n" for k, name in enumerate(names)) + "".join(f"S\t{s}\n" for s in stacks))
    return stack_units_of(unit_stacks.read(path), operations)


def test_shares_depths_and_kinds(tmp_path: Path) -> None:
    found = units(tmp_path, ["main", "A.map", "A.sort", "write"], STACKS)
    assert found.methods == ["main", "A.map", "A.sort", "write"]
    assert found.vectors.tolist() == [[1, 0.75, 0.25, 0], [1, 0, 1, 0], [1, 0, 0, 1]]
    assert found.depth.tolist() == [0, 1, 1.5, 1]  # a method's outermost place on each stack
    kinds = {kind: column.tolist() for kind, column in zip(found.kinds, found.operations.T, strict=True)}
    assert kinds == {
        "io": [0, 0, 1], "reduce": [0, 0, 0], "sort": [0.25, 1, 0], "map": [0.5, 0, 0], "other": [0.25, 0, 0]
    }  # fmt: skip
    assert found.cpi is None


def test_kinds_of_the_user(tmp_path: Path) -> None:
    found = units(tmp_path, ["main", "A.map", "A.sort", "write"], STACKS, {"hash": r"A\.sort"})
    assert found.kinds == ("hash", "io", "reduce", "sort", "map", "other")
    assert found.operations[:, 0].tolist() == [0.25, 1, 0]


def test_vectors_in_the_columns_of_another_run(tmp_path: Path) -> None:
    train = units(tmp_path, ["main", "A.map", "A.sort", "write"], STACKS)
    other = units(tmp_path, ["A.sort", "A.new", "main"], ["0\t1\t1,2", "0\t1\t0,2"])
    assert other.by_methods_of(train) == pytest.approx(np.array([[1, 0, 0.5, 0]]))
