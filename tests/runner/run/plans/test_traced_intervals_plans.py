"""Plans of detailed traces: intervals cut from their stream, vectors of blocks and of blocks and memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from manyscale.runner.errors import UserError
from manyscale.runner.predict.intervals import traced
from manyscale.runner.predict.intervals.traced import BINS, TracedRules
from manyscale.runner.predict.memory.streams import Stream, streams_of
from manyscale.runner.readers import lackey, simpoint_bb
from manyscale.sampling.phases.traced_intervals import TracedIntervals
from manyscale.sampling.population import intervals_of
from manyscale.sampling.vectors import Vectors

DATA = Path(__file__).parents[3] / "data" / "detail"
MATMUL = DATA / "matmul25_O1.lk.xz"  # 117,662 instructions


@pytest.fixture(scope="module")
def matmul():
    return lackey.read(MATMUL)


def walked_back(stream: Stream, sites, bounds: np.ndarray) -> np.ndarray:
    """Distances as Mattson tells them: a list of lines, the last one used in front."""
    found = np.zeros((len(bounds) - 1, BINS), np.int64)
    stack: list[int] = []
    executed = 0
    for blocks, addresses in stream.batches():
        place = 0
        for block in blocks.tolist():
            row = int(np.searchsorted(bounds, executed, "right")) - 1
            for site in range(sites.offsets[block], sites.offsets[block + 1]):
                address, size = int(addresses[place]), int(sites.bytes[site])
                place += 1
                for line in range(address // 64, (address + size - 1) // 64 + 1):
                    if line in stack:
                        distance = stack.index(line)
                        found[row, max(distance, 1).bit_length() - 1] += 1
                        stack.remove(line)
                    stack.insert(0, line)
            executed += 1
    return found


@pytest.mark.theory
def test_distances_are_those_of_a_list_of_lines(matmul, monkeypatch) -> None:
    (stream,), sites = streams_of(matmul, "matmul")
    intervals = traced.cut(stream, matmul.column("blocks", "num_instructions"), 9_000)
    expected = walked_back(stream, sites, intervals.bounds)
    assert np.array_equal(traced.distances(stream, sites, intervals.bounds, 64), expected)
    pieces = [stream.read(first, min(first + 1000, stream.num_blocks)) for first in range(0, stream.num_blocks, 1000)]
    monkeypatch.setattr(Stream, "batches", lambda self: iter(pieces))
    assert np.array_equal(traced.distances(stream, sites, intervals.bounds, 64), expected)


def test_a_signature_by_hand() -> None:
    """30 instructions: 2 reuses below two lines, 4 below eight weigh 10 and 20; with the root of the distance 0 and 30.
    An interval without reuses has its blocks alone."""
    intervals = TracedIntervals(
        np.array([0, 4, 5]), np.array([30, 5]),
        Vectors(np.array([0, 2, 3]), np.array([0, 7, 1]), np.array([12.0, 18.0, 5.0])),
    )  # fmt: skip
    histogram = np.zeros((2, BINS), np.int64)
    histogram[0, [0, 2]] = 2, 4
    found = traced.with_distances(intervals, histogram)
    assert found.first.tolist() == [0, 4, 5]
    assert found.column.tolist() == [0, 2, BINS, BINS + 7, BINS + 1]
    assert found.value.tolist() == [10.0, 20.0, 12.0, 18.0, 5.0]
    rooted = traced.with_distances(intervals, histogram, 0.5)
    assert (rooted.column.tolist(), rooted.value.tolist()) == ([2, BINS, BINS + 7, BINS + 1], [30.0, 12.0, 18.0, 5.0])


@pytest.mark.parametrize("vectors", ["blocks", "signature"])
def test_a_plan_of_a_trace(cli, tmp_path: Path, vectors: str) -> None:
    out = tmp_path / "out"
    done = cli("plan", "--method", "simpoint", MATMUL, "--set", "interval=5000", "--set", f"vectors={vectors}",
               "--set", "max_k=4", "--export", "bb", "-o", out)  # fmt: skip
    assert done.status == 0, done.err
    assert " of 24 intervals" in done.out
    plan = pq.read_table(out / "plan.parquet")
    assert np.sum(plan.column("weight")) == pytest.approx(1)
    written = intervals_of(simpoint_bb.read(out / "matmul25_O1.bb"))
    factor = {"blocks": 1, "signature": 2}[vectors]
    assert written.instructions[1:-1] == pytest.approx(factor * 5000, abs=factor * 15)
    if vectors == "blocks":
        assert written.instructions.sum() == 117_662


STUDY = ("--workload", MATMUL, "--target", "epyc-zen4", "--model", "cpu=detailed", "--sampling", "intervals=simpoint",
         "--set", "intervals.instructions=5000")  # fmt: skip


def test_a_study_chooses_the_same_intervals(cli, tmp_path: Path) -> None:
    chosen = {}
    for vectors in ("blocks", "signature"):
        done = cli("plan", *STUDY, "--set", f"intervals.vectors={vectors}", "-o", tmp_path / f"study-{vectors}")
        assert done.status == 0, done.err
        done = cli("plan", "--method", "simpoint", MATMUL, "--set", "interval=5000", "--set", f"vectors={vectors}",
                   "-o", tmp_path / vectors)  # fmt: skip
        assert done.status == 0, done.err
        one, other = (pq.read_table(tmp_path / name / "plan.parquet").to_pydict()
                      for name in (f"study-{vectors}", vectors))  # fmt: skip
        chosen[vectors] = [number for kind, number in zip(one["element_kind"], one["element_id"], strict=True)
                           if kind == "interval"]  # fmt: skip
        assert chosen[vectors] == other["element_id"]
        assert one["weight"][-len(other["weight"]) :] == pytest.approx(other["weight"])
    assert chosen["blocks"] != chosen["signature"]
    done = cli("plan", *STUDY, "--set", "intervals.vectors=signature", "--set", "intervals.line_bytes=48",
               "-o", tmp_path / "out")  # fmt: skip
    assert (done.status, "is not a power of two" in done.err) == (2, True), done.err


def test_memory_tells_intervals_apart_that_blocks_do_not(matmul) -> None:
    """In the first interval of the product lines are used first, and distances grow with each row."""
    by_blocks, _ = traced.population_of(matmul, TracedRules(interval=10_000), "matmul")
    by_memory, _ = traced.population_of(matmul, TracedRules(interval=10_000, vectors="signature"), "matmul")

    def spread(vectors: Vectors) -> float:
        points = vectors.normalised().projected(1, 15)[:-1]
        return float(np.linalg.norm(points - points.mean(axis=0), axis=1).max())

    assert spread(by_memory.vectors) > 2 * spread(by_blocks.vectors)
    assert np.array_equal(by_memory.instructions, by_blocks.instructions)


@pytest.mark.parametrize(("path", "assignments", "line"), [
    (MATMUL, (), "is a trace; say how many instructions an interval has"),
    (MATMUL, ("interval=0",), "--set: interval: "),
    (MATMUL, ("interval=5000", "vectors=memory"), "--set: vectors: 'memory' is not one of 'blocks' or 'signature'"),
    (MATMUL, ("interval=5000", "vectors=signature", "line_bytes=48"), "is not a power of two"),
    (MATMUL, ("interval=5000", "rank=3"), "--set rank=3: traced are rank 0 thread 0"),
    (DATA / "phases.m.bb.xz", ("interval=5000",), "is a profile, whose intervals are cut already"),
    (DATA / "bs16_clangO1_sancov.npz", ("interval=50",), "does not say how many instructions its blocks have"),
])  # fmt: skip
def test_what_is_refused(cli, tmp_path: Path, path: Path, assignments: tuple[str, ...], line: str) -> None:
    sets = [word for text in assignments for word in ("--set", text)]
    done = cli("plan", "--method", "simpoint", path, *sets, "-o", tmp_path / "out")
    assert (done.status, line in done.err) == (2, True), done.err
    assert not (tmp_path / "out").exists()


def test_whose_stream_is_cut(matmul) -> None:
    (stream,), _ = streams_of(matmul, "matmul")
    several = [stream, Stream(1, 0, *list(vars(stream).values())[2:])]
    with pytest.raises(UserError, match=r"holds the streams of rank 0 thread 0, rank 1 thread 0; say which"):
        traced._stream(several, None, "trace")
    assert traced._stream(several, 1, "trace").rank == 1
