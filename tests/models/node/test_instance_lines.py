"""Lines of instances by their last use, against brute force."""

from __future__ import annotations

import numpy as np
import pytest
from instance_streams import Op, instance_stream, sites_of_blocks

from manyscale.models.node.instance_lines import InstanceLines, lines_from, lines_of_instances

BLOCKS = [[Op(), Op(loads=1)], [Op(stores=1), Op(loads=1)]]


def lines_of(pieces: list[tuple[int, list[tuple[int, tuple[int, ...]]]]], count: int) -> InstanceLines:
    owner, stream, where = instance_stream(pieces)
    return lines_of_instances(owner, count, stream, where, sites_of_blocks(BLOCKS))


@pytest.mark.slow  # compiles
@pytest.mark.property
@pytest.mark.parametrize("spread", [1, 20_000])  # of lines: tables grow for the second
def test_against_brute_force(spread: int) -> None:
    random = np.random.default_rng(3)
    count = 4
    pieces = [
        (
            int(random.integers(count)),
            [
                (block, tuple((64 * spread * random.integers(0, 40, 1 + block)).tolist()))
                for block in random.integers(0, 2, random.integers(1, 3000 if spread > 1 else 30)).tolist()
            ],
        )
        for _ in range(12)
    ]
    found = lines_of(pieces, count)
    for instance in range(count):
        last: dict[int, int] = {}
        written = set()
        place = 0
        for owner, executed in pieces:
            for block, addresses in executed if owner == instance else []:
                for site, address in enumerate(addresses):
                    place += 1
                    last[address // 64] = place
                    if block == 1 and site == 0:
                        written.add(address // 64)
        rows = slice(*found.first_line[instance : instance + 2].tolist())
        assert found.line_number[found.line[rows]].tolist() == sorted(last, key=last.__getitem__)
        assert set(found.line_number[found.line[rows]][found.line_written[rows]].tolist()) == written


@pytest.mark.slow
@pytest.mark.property
def test_columns_grow_and_are_read_back() -> None:
    """More lines in one instance than there is room for at first."""
    lines = 40_000
    found = lines_of([(0, [(0, (64 * 64 * k,)) for k in range(lines)]), (1, [(1, (0, 64))])], 2)
    assert found.first_line.tolist() == [0, lines, lines + 2]
    assert found.line_number[found.line[:lines]].tolist() == list(range(0, 64 * lines, 64))
    again = lines_from({name: values.copy() for name, values in found.arrays().items()})
    assert again.line_bytes == 64
    assert again.line.tolist() == found.line.tolist()
    with pytest.raises(ValueError, match="of a power of two"):
        lines_of_instances(*instance_stream([(0, [(0, (0,))])])[:1], 1, *instance_stream([(0, [(0, (0,))])])[1:],
                           sites_of_blocks(BLOCKS), 48)  # fmt: skip
