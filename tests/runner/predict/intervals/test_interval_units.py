"""Programs cut into intervals, and their work units: what each reads, what its key depends on."""

from __future__ import annotations

import json
import pickle
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from manyscale.models.workload import Workload
from manyscale.runner.errors import UserError
from manyscale.runner.predict.intervals import interval_units
from manyscale.runner.predict.intervals.program import GRAIN, CutProgram, ProgramStream, cut, program_of
from manyscale.runner.predict.phase_source import Case, SweepShared
from manyscale.runner.predict.units import WorkUnit
from manyscale.runner.shipped import folder
from manyscale.runner.study import parse_study
from manyscale.runner.study.targets import resolve_target
from manyscale.runner.study.traces import read_workload

PROGRAM = {"path": str(folder() / "matmul-20.tar.zst")}
EVERY = 5000


def study(**intervals: Any) -> dict[str, Any]:
    return {
        "workload": PROGRAM, "target": "epyc-zen4", "model": {"cpu": "detailed"}, "sampling": {"intervals": "random"},
        "intervals": {"instructions": EVERY} | intervals,
    }  # fmt: skip


@pytest.fixture(scope="module")
def workload() -> Workload:
    return read_workload(parse_study(study(), "study").workload)


@pytest.fixture(scope="module")
def parts(workload) -> tuple[ProgramStream, CutProgram, np.ndarray]:
    """The stream, its intervals, and instructions before each block execution."""
    program, stream = program_of(workload, "place")
    size = workload.column("blocks", "num_instructions")
    executed = np.concatenate([ids for ids, _ in stream.batches()])
    return program, cut(stream, size, EVERY, "place"), np.append(0, np.cumsum(size[executed]))


def units(parts, chosen=(0, 3, 9), target: Any = "epyc-zen4", seed=0, **intervals) -> Sequence[WorkUnit]:
    point = parse_study(study(**intervals) | {"target": target, "seed": seed}, "study")
    last_uses = {"used": np.arange(len(chosen)), "first": np.arange(len(chosen) + 1)}
    if point.intervals.caches != "last-uses":
        last_uses = None
    case = Case(parts[0].program, point, *resolve_target(point), SweepShared())
    return interval_units.stage(parts[0], parts[1], np.array(chosen), case, last_uses).units


def test_intervals_cover_the_program(workload, parts):
    _, found, before = parts
    assert found.bounds[0] == 0
    assert found.bounds[-1] == workload.column("segments", "num_blocks")[0]
    assert found.begin.tolist() == before[found.bounds].tolist()
    assert found.population.instructions.sum() == workload.column("segments", "num_instructions")[0]
    largest = workload.column("blocks", "num_instructions").max()
    assert np.all(np.abs(found.begin[:-1] - np.arange(len(found.population)) * EVERY) <= largest)


@pytest.mark.parametrize("instructions", [0, 1, 999, 1000, 4321, 10**9])
def test_what_precedes_an_interval_is_as_long_as_it_is_to_be(workload, parts, instructions):
    _, found, before = parts
    largest = int(workload.column("blocks", "num_instructions").max())
    for interval in range(len(found.population)):
        there = int(found.begin[interval] - before[found.before(interval, instructions)])
        wanted = min(instructions, int(found.begin[interval]))
        assert wanted <= there <= wanted + GRAIN + largest


@pytest.mark.parametrize(
    ("options", "lengths"),
    [
        ({"caches": "cold"}, (0, 0)),
        ({"caches": "warm", "warm_up": 12000, "pipeline": 2000}, (12000, 2000)),
        ({"caches": "warm", "warm_up": 0, "pipeline": 2000}, (0, 0)),
        ({"caches": "warm", "warm_up": "all", "pipeline": 0}, (45000, 0)),
        ({"caches": "stitched", "pipeline": 2000}, (2000, 2000)),
    ],
)
def test_stretches_begin_where_the_study_says(parts, options, lengths):
    """Of interval 9, which begins at 45,000 instructions; places are at most a grain and a block earlier."""
    before = parts[2]
    warm, simulated, first, end = units(parts, [9], **options)[0].parameters["stretches"][0]
    assert (first, end) == tuple(parts[1].bounds[9:11])
    for place, wanted in ((warm, lengths[0]), (simulated, lengths[1])):
        there = before[first] - before[place]
        assert wanted <= there <= wanted + (wanted > 0 or options["caches"] != "cold") * 1100


@pytest.mark.contract
def test_a_unit_reads_its_own_part_and_travels(parts):
    for unit in units(parts):
        assert list(unit.inputs) == ["stream", "used"]
        assert json.loads(json.dumps(dict(unit.parameters))) == dict(unit.parameters)
        assert pickle.loads(pickle.dumps(unit)) == unit
    stream = pickle.loads(pickle.dumps(parts[0]))
    assert stream.content == parts[0].content
    assert stream.open().digest == parts[0].detail_digest
    assert len(pickle.dumps(parts[0])) < 20_000  # the path of the stream, not the stream


@pytest.mark.contract
def test_stitched_intervals_are_one_unit(parts):
    found = units(parts, caches="stitched")
    assert [unit.parameters["intervals"] for unit in found] == [[0, 3, 9]]
    assert [unit.parameters["intervals"] for unit in units(parts)] == [[0], [3], [9]]


@pytest.mark.contract
@pytest.mark.parametrize(
    "change",
    [
        {"target": {"name": "epyc-zen4", "node": {"frequency": "2 GHz"}}},
        {"target": {"name": "epyc-zen4", "node": {"core": {"reorder_buffer": 100}}}},
        {"warm_up": 2000},
        {"caches": "cold"},
        {"instructions": 6000},
    ],
)
def test_what_changes_results_changes_keys(workload, parts, change):
    own = {unit.key for unit in units(parts, [3])}
    if "instructions" in change:
        program, stream = program_of(workload, "place")
        size = workload.column("blocks", "num_instructions")
        parts = program, cut(stream, size, change["instructions"], "place"), parts[2]
    assert not own & {unit.key for unit in units(parts, [3], **change)}


@pytest.mark.contract
def test_equal_intervals_of_other_choices_have_equal_keys(parts):
    own = {unit.parameters["intervals"][0]: unit.key for unit in units(parts, [0, 3, 9])}
    other = {unit.parameters["intervals"][0]: unit.key for unit in units(parts, [3, 4, 9], seed=7)}
    assert (own[3], own[9]) == (other[3], other[9])
    assert len({*own.values(), *other.values()}) == 4
    network = {"name": "epyc-zen4", "network": {"latency": "9 us"}}
    assert [unit.key for unit in units(parts, [3], target=network)] == [own[3]]


def test_programs_of_several_ranks_threads_or_tasks_are_refused(workload):
    path = str(folder() / "multizone-8-detail.tar.zst")
    tasks = read_workload(parse_study(study() | {"workload": {"path": path}}, "study").workload)
    with pytest.raises(UserError, match=r"^place: has 8 ranks; sampling.intervals samples a program of one"):
        program_of(tasks, "place")
    with pytest.raises(UserError, match=r"^place: has task instances or chunks of loops"):
        program_of(SimpleNamespace(num_ranks=1, column=tasks.column, tables=tasks.tables), "place")
    segments = workload.tables["segments"]
    thread = segments.schema.get_field_index("thread")
    other = segments.set_column(thread, segments.schema.field(thread), [np.array([1], np.int32)])
    two = replace(workload, tables={**workload.tables, "segments": _joined(segments, other)})
    with pytest.raises(UserError, match=r"^place: has 2 threads; sampling.intervals samples a program of one"):
        program_of(two, "place")


def _joined(*tables):
    import pyarrow as pa

    return pa.concat_tables(tables).combine_chunks()


def test_a_program_as_short_as_an_interval_is_refused(workload):
    _, stream = program_of(workload, "place")
    size = workload.column("blocks", "num_instructions")
    message = r"^place: an interval of 70,000 instructions is as long as the program \(60,978\); set "
    with pytest.raises(UserError, match=message):
        cut(stream, size, 70_000, "place")
