"""The table of instructions: what the decoder takes, models class and the documentation tells is the same set."""

from __future__ import annotations

import pytest

from manyscale.models.workload.launch_trace import Access, Space, UnitClass
from manyscale.runner.tracers.cuda.sass.given import Given
from manyscale.runner.tracers.cuda.sass.instructions import instructions
from manyscale.runner.tracers.cuda.sass.meanings import MEANINGS
from manyscale.runner.tracers.cuda.sass.rules import rules


def test_every_root_has_a_meaning_and_a_class():
    """A new rule wants a line in meanings.py, and its root a unit in readers/accelsim/opcodes.py."""
    assert sorted(MEANINGS) == sorted(rules())
    assert [each.root for each in instructions() if not each.is_classed] == []


def test_what_does_nothing_says_so():
    for root, rule in rules().items():
        try:
            does_nothing = root != "NOP" and rule(Given(root, (), (), 0, 0)).op == "NOP"
        except (ValueError, IndexError, StopIteration):
            continue  # a rule that wants operands
        says_so = "no effect here" in MEANINGS[root] or "done at once here" in MEANINGS[root]
        assert says_so or not does_nothing, root


@pytest.mark.parametrize(
    ("root", "uniform", "unit", "space", "access", "since", "modifiers"),
    [  # NVIDIA, "CUDA Binary Utilities", tables of instructions; PTX ISA for their modifiers
        ("IADD3", "UIADD3", UnitClass.int, Space.none, Access.none, 0, {"X"}),
        ("MUFU", "", UnitClass.sfu, Space.none, Access.none, 0, {"RCP", "RSQ", "SIN", "COS", "EX2", "LG2", "TANH"}),
        ("LDG", "", UnitClass.load_store, Space.global_, Access.load, 0, {"E", "64", "128", "CONSTANT"}),
        ("RED", "", UnitClass.load_store, Space.global_, Access.reduction, 0, {"ADD", "MIN", "MAX"}),
        ("LDGSTS", "", UnitClass.load_store, Space.global_, Access.copy, 80, {"BYPASS", "ZFILL"}),
        ("REDUX", "", UnitClass.uniform, Space.none, Access.none, 80, set()),
        ("SHFL", "", UnitClass.int, Space.none, Access.none, 0, {"IDX", "UP", "DOWN", "BFLY"}),
        ("VIADD", "", UnitClass.int, Space.none, Access.none, 90, set()),
    ],
)
def test_rows(root, uniform, unit, space, access, since, modifiers):
    (row,) = [each for each in instructions() if each.root == root]
    assert (row.uniform, row.unit, row.space, row.access, row.since) == (uniform, unit, space, access, since)
    assert modifiers <= set(row.modifiers)
