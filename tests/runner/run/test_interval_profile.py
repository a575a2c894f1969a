"""What ``manyscale profile --interval`` writes: intervals of a simulated node as .bb files, read back as they were."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from manyscale.models.node.interval_watch import NodeIntervals
from manyscale.runner.predict.intervals.node_intervals import population_of
from manyscale.runner.readers import simpoint_bb
from manyscale.runner.run.questions.interval_profile import write_intervals
from manyscale.sampling.population import intervals_of

# two cores, three blocks, three intervals; core 1 executes nothing in the first one and nothing of block 0
FOUND = NodeIntervals(
    cycles=np.array([100.5, 70, 80]),
    instructions=np.array([[30.0, 0], [10, 20], [5, 25]]),
    offcore_requests=np.array([[3.0, 0], [1, 2], [0, 4]]),
    llc_misses=np.array([[1.0, 0], [0, 0], [0, 2]]),
    coherence_answers=np.array([[0.0, 7], [1, 1], [6, 0]]),
    first_block=np.array([0, 2, 4, 7]),
    core_block=np.array([0, 2, 1, 4, 0, 4, 5]),
    block_instructions=np.array([12.0, 18, 10, 20, 5, 15, 10]),
    num_blocks=3,
)


@pytest.mark.contract
def test_what_is_read_is_what_was_written(tmp_path: Path) -> None:
    file = write_intervals(population_of(FOUND), FOUND.num_blocks, tmp_path, "prog")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["prog.bb", "prog.bb.2", "prog.cpi.csv"]
    assert (tmp_path / "prog.bb.2").read_text().splitlines()[0].strip() == "T"
    assert simpoint_bb.can_read(file)
    ours, read = population_of(FOUND), intervals_of(simpoint_bb.read(file))
    assert read.number.tolist() == [0, 1, 2]
    assert read.instructions.tolist() == [30, 30, 30]
    assert read.thread_instructions.tolist() == FOUND.instructions.tolist()
    assert read.counters["cycles"].tolist() == FOUND.cycles.tolist()
    assert read.cpi == pytest.approx(FOUND.cycles / 30)
    for name, values in ours.thread_counters.items():
        assert read.thread_counters[name].tolist() == values.tolist(), name
    assert (read.num_threads, ours.num_threads) == (2, 2)
    assert read.vectors.value.tolist() == ours.vectors.value.tolist()
    assert read.vectors.first.tolist() == ours.vectors.first.tolist()
    assert read.vectors.column.tolist() == ours.vectors.column.tolist()
