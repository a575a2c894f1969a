"""Words of asynchronous operations in a launch's record: damaged ones are told before a model relies on them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from gpu_programs import BARRIER, launch

from manyscale.models.workload.asynchronous import (
    ARRIVES,
    BEGINS,
    COPIES,
    LOADS,
    MEETS,
    WAITS,
    amounts,
    first_word,
    reach,
    run_of_rows,
)
from manyscale.runner.errors import UserError
from manyscale.runner.readers.cuda.launches import CudaKernel, Launch, store_launch
from manyscale.runner.readers.cuda.records import HEAD, RECORDED, BlockBatch
from manyscale.runner.readers.stores.launch_counts import CountsWriter
from manyscale.runner.readers.stores.launch_store import Blocks

SHARED = 64  # bytes of a block, behind the 1,024 of the system
COPY = [first_word(COPIES, 3, 1024 + 56, LOADS), 128, *run_of_rows(0, 64, 2, 256)]
TWO = [first_word(ARRIVES, 3, 1024), amounts(1), first_word(ARRIVES, 0, 1024 + 48, rank=1, remote=True), amounts(1)]
GOOD = [first_word(BEGINS, 1, 1024), 2, *COPY, *TWO, first_word(WAITS, 0, 1024), first_word(MEETS, 1, 15), 64]


def test_how_far_words_reach():
    assert reach(np.array([len(GOOD)]), np.array(GOOD)) == (1024 + 56, 1)
    assert reach(np.array([2, 0, 4]), np.array(GOOD[:6])) == (1024 + 56, 0)
    with pytest.raises(ValueError, match="not all there"):
        reach(np.array([3, 3]), np.array(GOOD[:6]))


@dataclass
class Record:
    """Of a launch of one block."""

    words: list[int]
    cluster: tuple[int, int, int] = (2, 1, 1)
    place: str = "launch-1"
    is_ended: bool = True
    is_stopped: bool = False

    def batches(self):
        trace = launch([[[BARRIER]]])
        columns = {name: getattr(trace, name) for name in ("instruction", "active", "accesses", "sector", "written")}
        head = np.zeros(1, HEAD)
        head["kind"], head["warps"] = RECORDED, 1
        yield BlockBatch(head, Blocks(
            np.array([1]), np.array([2], np.int32), np.array([0], np.int32), **columns,
            warp_words=np.array([len(self.words)], np.int32), words=np.array(self.words, np.int64),
        ))  # fmt: skip


def stored(record, folder):
    described = {"name": "k", "shared_bytes": SHARED, "registers": 16, "architecture": 90}
    kernel = CudaKernel(described, launch([[[BARRIER]]]).static)
    return store_launch(record, Launch(1, 0, (1, 1, 1), (32, 1, 1), 0, 0), kernel, folder / "1", CountsWriter(folder))


def test_whole_words_are_stored(tmp_path):
    assert stored(Record(GOOD), tmp_path) is not None


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([first_word(BEGINS, 1, 1024 + SHARED + 8), 2], "a barrier at byte 1096 of shared memory, of which a block has "
         "64"),
        ([*COPY[:1], 128, *run_of_rows(0, 64)[:1]], "the words of an instruction are not all there"),
        ([first_word(15, 1), 0], "the words of an instruction are not all there"),
        ([0], "the words of an instruction are not all there"),
        ([first_word(WAITS, 1, 1024), first_word(ARRIVES, 0, 1024)], "the words of an instruction are not all there"),
    ],
)  # fmt: skip
def test_damaged_words_are_told_in_a_line(words, told, tmp_path):
    with pytest.raises(UserError) as caught:
        stored(Record([*GOOD, *words]), tmp_path)
    expected = f"launch-1: asynchronous operations are damaged ({told}); trace the program again"
    assert str(caught.value) == expected
    assert not (tmp_path / "1").exists()


def test_blocks_outside_of_a_cluster_are_told(tmp_path):
    with pytest.raises(UserError, match="launch-1: names blocks outside of a cluster; trace the program again"):
        stored(Record(GOOD, cluster=(1, 1, 1)), tmp_path)
