"""Runs whose launches overlap: simulated together, and taken to the replay. What a run should give is known from one
launch that has the blocks of all, which the cycle model simulates without knowing of streams, or from each alone."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gpu_host import with_gpus, with_other_rows
from gpu_launches import workload_of_traces
from gpu_programs import Instruction, integer, launch, load, special

from manyscale.models.gpu import detailed
from manyscale.models.gpu.parameters import Gpu
from manyscale.models.gpu.together.model import Arriving, simulate_together
from manyscale.models.workload import Workload
from manyscale.models.workload.gpu_tables import GpuOperationKind as G
from manyscale.models.workload.launch_trace import LaunchTrace
from manyscale.runner.api import studies
from manyscale.runner.predict.gpu.streams import overlaps
from manyscale.runner.predict.gpu.streams.sets import Runs, sets_of
from manyscale.runner.problems import load_yaml
from manyscale.runner.readers import simgrid_ti
from manyscale.runner.run.results import Result
from manyscale.runner.study.targets import shipped_targets

GPU: dict[str, Any] = {
    "sms": 4, "l2": {"size": "1 MiB", "slices": 8}, "dram": {"channels": 4, "bandwidth": "112.016 GB/s"},
    "launch_latency": "0 cycles",
}  # fmt: skip
Block = list[list[Instruction]]


def gpu() -> Gpu:
    content = load_yaml(shipped_targets()["rtx3070"])["node"]["gpu"]
    for name, own in GPU.items():
        content[name] = {**content[name], **own} if isinstance(own, dict) else own
    return Gpu.model_validate(content)


@pytest.fixture
def run_workload(tmp_path, monkeypatch) -> Callable[..., Result]:
    def of(workload: Workload, **keys: Any) -> Result:
        monkeypatch.setattr("manyscale.runner.run.study_runs.read_workload", lambda choice, cache=None: workload)
        study = {
            "schema": 1, "workload": {"path": "launches"}, "target": {"name": "rtx3070", "node": {"gpu": GPU}}, **keys,
        }  # fmt: skip
        number = len(list(tmp_path.iterdir()))
        return studies.run(study, tmp_path / f"out{number}", executor="local", cache=tmp_path / "cache", report=False)

    return of


@pytest.fixture
def run(run_workload) -> Callable[..., Result]:
    def of_traces(*traces: LaunchTrace, streams: Sequence[int] = (), **keys: Any) -> Result:
        return run_workload(workload_of_traces(*traces, streams=streams), **keys)

    return of_traces


def cycles(result: Result) -> float:
    return float(result.statistics["application.makespan"].value) * gpu().frequency_hz


def reading(count: int, first: int) -> Block:
    """Loads of lines of their own that nothing waits for, in 8 warps."""
    lines = first + 4 * np.arange(8 * count).reshape(8, count)
    return [[load(k % 40, *range(at, at + 4)) for k, at in enumerate(row)] for row in lines.tolist()]


def codes(result: Result) -> dict[str, str]:
    return {note.code: note.text for note in result.notes if note.code.startswith("launches-")}


@pytest.mark.theory
def test_loads_of_two_streams_wait_for_each_other_as_those_of_one_launch(run):
    """DRAM's rows and queues are what they meet in; the model of devices alone is 31 % too short here."""
    far = 1 << 20
    first = [reading(24, 4 * 8 * 24 * b) for b in range(8)]
    second = [reading(24, far + 4 * 8 * 24 * b) for b in range(8)]
    both, _ = detailed.simulate(launch([*first, *second]), gpu())
    found = run(launch(first), launch(second))
    assert cycles(found) == pytest.approx(both.busy_cycles, abs=0.01)
    assert codes(found).keys() == {"launches-together"}
    alone = run(launch(first), launch(second), streams=[1, 1])
    assert not codes(alone)


@pytest.mark.theory
def test_a_launch_behind_another_in_its_stream_begins_when_that_one_ends(run):
    """Chains of two streams on SMs of their own, of different lengths: each stream takes the sum of its launches."""

    def block(count: int) -> list[Block]:
        return [[[special(1, 1) for _ in range(count)]]]

    sizes = ((150, 1), (400, 2), (220, 1), (90, 2), (310, 1))
    traces = [launch(block(count)) for count, _ in sizes]
    streams = [stream for _, stream in sizes]
    alone = [detailed.simulate(trace, gpu())[0].busy_cycles for trace in traces]
    found = run(*traces, streams=streams)
    of_stream = [sum(each for each, own in zip(alone, streams, strict=True) if own == k) for k in (1, 2)]
    assert cycles(found) == pytest.approx(max(of_stream), abs=0.01)
    assert codes(found).keys() == {"launches-together"}
    assert "1 set of them" in codes(found)["launches-together"]


@pytest.mark.theory
def test_a_set_that_is_split_is_known_though_its_parts_take_most_of_what_may_be_simulated(run, monkeypatch):
    """Chains on SMs of their own, of which each runs beside one or two of the other stream: four fit together. All five
    may be simulated once, but not what is left once their two parts have been."""

    def block(count: int) -> list[Block]:
        return [[[special(1, 1) for _ in range(count)]]]

    sizes = ((300, 1), (450, 2), (310, 1), (460, 2), (320, 1))
    traces = [launch(block(count)) for count, _ in sizes]
    monkeypatch.setattr(overlaps, "MOST_LAUNCHES", 4)
    monkeypatch.setattr(overlaps, "FREE", 0)
    found = run(*traces, streams=[stream for _, stream in sizes])
    assert codes(found).keys() == {"launches-together"}
    assert "2 sets of them" in codes(found)["launches-together"]
    alone = [detailed.simulate(trace, gpu())[0].busy_cycles for trace in traces]
    assert cycles(found) == pytest.approx(max(sum(alone[0::2]), sum(alone[1::2])), abs=0.01)


def test_what_cannot_be_simulated_together_is_said_with_its_share(run, monkeypatch):
    """Blocks that are sampled, SMs in windows, sets that are too large, and no more than so many sets."""
    traces = [launch([[[integer(k % 40, 100) for k in range(300)] for _ in range(8)]] * 12) for _ in range(2)]
    whole = run(*traces)
    assert codes(whole).keys() == {"launches-together"}
    for keys in ({"gpu": {"order": "windows"}}, {"sampling": {"blocks": "tbpoint"}}, {"model": {"gpu": "gpumech"}}):
        found = codes(run(*traces, **keys))
        assert found.keys() == {"launches-overlap"}
        assert "not simulated together" in found["launches-overlap"]
        assert re.search(r"in (100|99\.\d) % of the time", found["launches-overlap"])
    for name in ("MOST_BYTES", "MOST_SETS"):
        with monkeypatch.context() as patched:
            patched.setattr(overlaps, name, 0)
            assert codes(run(*traces)).keys() == {"launches-overlap"}


def always(_: np.ndarray) -> bool:
    return True


def runs(*rows: tuple[int, int, int], stream: Sequence[int] = (), launches: Sequence[int] = ()) -> Runs:
    """(start, end, GPU) of each, in streams of their own."""
    count = len(rows)
    start, end, on = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    zero = np.zeros(count, np.int64)
    return Runs(
        np.arange(count), on, zero, np.array(stream or range(count)), zero, np.array(launches or range(count)),
        start, start, end,
    )  # fmt: skip


def test_sets_are_launches_that_run_beside_each_other_or_by_way_of_others():
    """0 and 1 overlap, 1 and 2; 3 is on another GPU; 4 overlaps 2 for a thousandth of its time."""
    rows = (0, 1000, 0), (500, 3000, 0), (2500, 9000, 0), (0, 9000, 1), (8999, 9999, 0)
    found = sets_of(runs(*rows), 1.0, always, always)
    assert [each.given for each in found] == [(0, 1, 2)]
    assert found[0].at == (0, 500, 2500)
    assert found[0].overlap_ps == 2 * (500 + 500)


def test_a_launch_that_waited_for_another_follows_it():
    """1 is behind 0 in its stream, and comes when it ends; 2 runs beside both."""
    (found,) = sets_of(runs((0, 1000, 0), (1000, 2000, 0), (10, 3000, 0), stream=(1, 1, 2)), 10.0, always, always)
    assert found.given == (0, 2, 1)
    assert found.after == (-1, -1, 0)
    assert found.at == (0, 1, 0)


def test_what_is_too_large_is_split_with_all_that_is_beside():
    """Four in a row, of which two and two overlap. Three fit together: the first two with the third, and so on; where
    not all may be simulated, each with its neighbours."""
    chain = runs((0, 1000, 0), (500, 1600, 0), (1400, 2400, 0), (2200, 3000, 0))

    def of(most: int, all_of_them: bool):  # type: ignore[no-untyped-def]
        found = sets_of(chain, 1.0, lambda members: len(members) <= most, lambda _: all_of_them)
        cores = [tuple(row for row, core in zip(each.given, each.is_core, strict=True) if core) for each in found]
        return sorted(zip(cores, (each.given for each in found), strict=True))

    assert of(4, True) == of(4, False) == [((0, 1, 2, 3), (0, 1, 2, 3))]
    assert of(3, True) == [((0, 1), (0, 1, 2)), ((2, 3), (1, 2, 3))]
    assert of(3, False) == [((0,), (0, 1)), ((1,), (0, 1, 2)), ((2,), (1, 2, 3)), ((3,), (2, 3))]
    assert of(2, True) == [((0,), (0, 1)), ((3,), (2, 3))]


def test_like_sets_differ_by_a_hundredth_of_their_shortest_launch():
    def of(at: int, *launches: int):  # type: ignore[no-untyped-def]
        return sets_of(runs((0, 5000, 0), (at, at + 1000, 0), launches=launches), 1.0, always, always)[0]

    assert of(500, 7, 8).is_like(of(510, 7, 8))
    assert not of(500, 7, 8).is_like(of(511, 7, 8))
    assert not of(500, 7, 8).is_like(of(500, 7, 7))


@pytest.mark.theory
def test_ranks_that_share_a_gpu_have_memory_of_their_own(tmp_path, run_workload):
    """Two ranks, side by side with MPS, read the same addresses: as two launches of one rank that read others."""
    one, other = (launch([reading(24, first + 4 * 8 * 24 * b) for b in range(8)]) for first in (0, 1 << 20))
    ranks = with_other_rows(_two_ranks(tmp_path))
    operations = [
        {"rank": rank, "operation_id": row, "kind": kind, "stream": 1, "launch_id": launch_id}
        for rank in range(2)
        for row, kind, launch_id in ((1, G.launch, 1 + rank), (2, G.synchronize_device, 0))
    ]
    of_ranks = run_workload(
        with_gpus(ranks, workload_of_traces(one, one), operations), gpu={"mps": True}, mapping={"ranks_per_node": 2}
    )
    assert codes(of_ranks).keys() == {"launches-together"}
    same = run_workload(workload_of_traces(one, one))
    apart = run_workload(workload_of_traces(one, other))
    assert cycles(same) < 0.8 * cycles(apart)
    assert cycles(of_ranks) == pytest.approx(cycles(apart), rel=0.1)


def _two_ranks(folder: Path) -> Workload:
    path = folder / "actions.txt"
    path.write_text("".join(f"{rank} {what}\n" for rank in range(2) for what in ("init", "init", "init", "finalize")))
    return simgrid_ti.read(path)


@pytest.mark.theory
def test_a_host_that_waits_comes_later_when_launches_hinder_each_other(tmp_path, run_workload):
    """It waits for A, beside which B runs, then computes, and gives C: after A's end as the two together have it, which
    the model of devices, with which the replay begins, has a third too early."""
    traces = [launch([reading(24, (k << 20) + 4 * 8 * 24 * b) for b in range(8)]) for k in range(3)]
    cycle_ps = 1e12 / gpu().frequency_hz
    gap = 700
    path = tmp_path / "actions.txt"
    lines = ["init", "init", "init", "init", f"sleep {gap * cycle_ps * 1e-12!r}", "init", "init", "finalize"]
    path.write_text("".join(f"0 {line}\n" for line in lines))
    rows = (
        (G.launch, 1, 1), (G.launch, 2, 2), (G.synchronize_stream, 1, 0), (G.launch, 1, 3), (G.synchronize_device, 0, 0)
    )  # fmt: skip
    operations = [
        {"rank": 0, "operation_id": 1 + row, "kind": kind, "stream": stream, "launch_id": launch_id}
        for row, (kind, stream, launch_id) in enumerate(rows)
    ]
    found = run_workload(with_gpus(with_other_rows(simgrid_ti.read(path)), workload_of_traces(*traces), operations))
    a, b, c = traces
    ended, _, _ = simulate_together([Arriving(a), Arriving(b), Arriving(c, at=gap, after=0)], gpu())
    assert cycles(found) == pytest.approx(max(each.end for each in ended), rel=0.01)
    assert codes(found).keys() == {"launches-together"}
