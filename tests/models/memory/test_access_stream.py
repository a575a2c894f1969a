"""Sites and units of a detailed trace."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manyscale.models.memory.access_stream import Sites, access_sites, accesses


def sites(*blocks: list[tuple[bool, int]]) -> Sites:
    """Sites of blocks that are lists of (is_store, bytes)."""
    flat = [(block, *site) for block, found in enumerate(blocks) for site in found]
    offsets = np.concatenate(([0], np.cumsum([len(block) for block in blocks])))
    return Sites(
        np.array([row[0] for row in flat], np.int32),
        np.array([row[1] for row in flat], bool),
        np.array([row[2] for row in flat], np.int32),
        offsets.astype(np.int64),
    )


TWO = sites([(False, 8), (True, 8)], [], [(False, 4)])


@pytest.mark.theory
def test_each_execution_makes_the_accesses_of_its_block_in_order():
    executed = np.array([2, 0, 1, 0], np.int32)
    assert access_sites(executed, TWO).tolist() == [2, 0, 1, 0, 1]


@pytest.mark.theory
def test_a_byte_and_a_word_are_those_of_the_first_byte():
    addresses = np.array([5, 7, 64], np.uint64)
    found = accesses(np.array([0, 2], np.int32), addresses, TWO, 1)
    assert found.unit.tolist() == [5, 7, 64]
    assert accesses(np.array([0, 2], np.int32), addresses, TWO, 8).unit.tolist() == [0, 0, 8]


@pytest.mark.theory
def test_an_access_across_a_line_is_one_to_each_line():
    # 8 bytes at 60 reach into the next line; 8 bytes at 56 do not; 4 bytes at 124 do not
    found = accesses(np.array([0, 2], np.int32), np.array([60, 56, 124], np.uint64), TWO, 64)
    assert found.unit.tolist() == [0, 1, 0, 1]
    assert found.site.tolist() == [0, 0, 1, 2]


@pytest.mark.theory
def test_an_access_of_several_lines_is_one_to_each():
    wide = sites([(False, 130)])
    assert accesses(np.array([0], np.int32), np.array([63], np.uint64), wide, 64).unit.tolist() == [0, 1, 2, 3]


@pytest.mark.contract
@pytest.mark.parametrize("granularity", [0, 3, 48])
def test_other_granularities_are_refused(granularity):
    with pytest.raises(ValueError, match="power of two"):
        accesses(np.array([2], np.int32), np.array([1], np.uint64), TWO, granularity)


@pytest.mark.contract
def test_addresses_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="2 accesses, but 1"):
        accesses(np.array([0], np.int32), np.array([1], np.uint64), TWO, 64)


@pytest.mark.contract
def test_an_access_beyond_the_last_address_is_refused():
    with pytest.raises(ValueError, match="beyond the last address"):
        accesses(np.array([0], np.int32), np.array([0, 2**64 - 4], np.uint64), TWO, 64)


@pytest.mark.property
@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.sampled_from([0, 1, 2]), max_size=50),
    st.sampled_from([16, 64, 128, 4096]),
    st.integers(0, 2**63),
    st.randoms(use_true_random=False),
)
def test_lines_hold_every_byte_once(executed, granularity, base, random):
    blocks = np.array(executed, np.int32)
    site = access_sites(blocks, TWO)
    addresses = np.array([base + random.randrange(10_000) for _ in site], np.uint64)
    found = accesses(blocks, addresses, TWO, granularity)
    expected = []
    for address, one in zip(addresses.tolist(), site.tolist(), strict=True):
        touched = sorted({byte // granularity for byte in range(address, address + int(TWO.bytes[one]))})
        expected += [(unit, one) for unit in touched]
    assert list(zip(found.unit.tolist(), found.site.tolist(), strict=True)) == expected
