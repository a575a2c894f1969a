"""Blocks that are resident together, against NVIDIA's occupancy calculator, and what is left of memory for L1."""

from __future__ import annotations

import pytest

from manyscale.models.gpu.occupancy import DoesNotFitError, l1_bytes, resident_blocks
from manyscale.models.gpu.parameters import Gpu
from manyscale.runner.problems import load_yaml
from manyscale.runner.study.targets import shipped_targets

KIB = 1024


def gpu(name="a100", **changes):
    return Gpu.model_validate({**load_yaml(shipped_targets()[name])["node"]["gpu"], **changes})


@pytest.mark.golden
@pytest.mark.parametrize(
    ("threads", "registers", "shared", "blocks"),
    [  # compute capability 8.0: 64 warps, 32 blocks, 65,536 registers in units of 256 for a warp, 164 KiB
        (256, 32, 0, 8),
        (256, 33, 0, 6),  # 33 take 1,280 for a warp, as 40 do
        (256, 64, 0, 4),
        (1024, 64, 0, 1),
        (128, 255, 0, 2),
        (32, 16, 0, 32),
        (48, 16, 0, 32),
        (96, 16, 0, 21),
        (256, 32, 48 * KIB, 3),  # 1 KiB of each block is the system's
        (256, 32, 163 * KIB, 1),
        (256, 32, 40 * KIB, 4),
        (256, 32, 40 * KIB + 1, 3),  # units of 128 B
    ],
)
def test_compute_capability_8_0(threads, registers, shared, blocks):
    assert resident_blocks(gpu(), threads, registers, shared) == blocks


@pytest.mark.golden
@pytest.mark.parametrize(
    ("threads", "registers", "shared", "blocks"),
    [  # compute capability 2.0: 48 warps, 8 blocks, 32,768 registers in units of 64 for a warp, 48 KiB
        (192, 16, 0, 8),
        (256, 20, 0, 6),
        (256, 21, 0, 5),  # 704 for a warp
        (256, 16, 16 * KIB, 3),
        (64, 16, 0, 8),
    ],
)
def test_compute_capability_2_0(threads, registers, shared, blocks):
    limits = {"warps": 48, "threads": 1536, "blocks": 8, "registers": 32768, "register_unit": 64}
    shared_memory = {"size": "48 KiB", "latency": "30 cycles"}
    assert resident_blocks(gpu(**limits, shared_memory=shared_memory), threads, registers, shared) == blocks


@pytest.mark.theory
def test_threads_count_in_whole_warps():
    assert resident_blocks(gpu(threads=128), 48, 16, 0) == 2
    assert resident_blocks(gpu(threads=128), 64, 16, 0) == 2


@pytest.mark.theory
@pytest.mark.parametrize(
    ("block", "what"),
    [
        ((1025, 16, 0), "threads than an SM has .1,024"),
        ((512, 160, 0), "registers than an SM has .65,536"),
        ((32, 16, 163 * KIB + 1), "shared memory than an SM has .167,936"),
    ],
)
def test_what_a_block_needs_too_much_of(block, what):
    with pytest.raises(DoesNotFitError, match=f"a block needs more {what}"):
        resident_blocks(gpu(threads=1024), *block)


@pytest.mark.golden
@pytest.mark.parametrize(
    ("blocks", "shared", "kib"),
    [  # RTX 3070: 128 KiB, of which shared memory takes 0, 8, 16, 32, 64 or 100
        (4, 0, 128),
        (1, 1, 120),
        (4, 2 * KIB, 120),
        (4, 2 * KIB + 1, 112),
        (2, 20_000, 64),
        (1, 100 * KIB, 28),
    ],
)
def test_shared_memory_takes_the_smallest_split_of_l1_that_is_enough(blocks, shared, kib):
    size = l1_bytes(gpu("rtx3070"), blocks, shared)
    assert size == pytest.approx(kib * KIB, abs=0)


@pytest.mark.theory
def test_l1_of_its_own_does_not_shrink():
    own = gpu("rtx3070", shared_memory={"size": "48 KiB", "latency": "30 cycles"})
    assert l1_bytes(own, 1, 48 * KIB) == 128 * KIB


@pytest.mark.theory
def test_what_the_system_takes_of_a_block_counts_for_the_split():
    """Seven blocks of 1 KiB with 1 KiB each need 14: 8 are too few."""
    shared = {"size": "100 KiB", "latency": "29 cycles", "splits": ["8 KiB", "16 KiB"], "per_block_reserved": "1 KiB"}
    assert l1_bytes(gpu("rtx3070", shared_memory=shared), 7, KIB) == 112 * KIB
