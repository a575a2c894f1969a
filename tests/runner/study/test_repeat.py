"""Repeated main loops: their pattern, that they replay, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from rank_events import Recorder

import manyscale
from manyscale.models.workload.columns import to_numpy
from manyscale.runner.errors import UserError
from manyscale.runner.readers import workload_folder
from manyscale.runner.readers.options import DEFAULT_OPTIONS
from manyscale.runner.registry import lookup
from manyscale.runner.shipped import folder
from manyscale.runner.study import Repeat
from manyscale.runner.study.repeat import _medians_of_others, repeat


@pytest.fixture(scope="module")
def sparselu():
    return lookup("reader", "workload").read(folder() / "sparselu-8.tar.zst", DEFAULT_OPTIONS)


@pytest.mark.theory
def test_as_many_iterations_as_traced_change_nothing(sparselu):
    same = repeat(sparselu, Repeat(iterations=3), "trace")
    for level in ("operations", "phases"):
        assert same.tables[level].equals(sparselu.tables[level])
    assert not same.repetition.any()


@pytest.mark.theory
def test_the_first_comes_first_and_the_others_in_turn(sparselu):
    """Three traced iterations 0 1 2 to seven: 0 1 2 1 2 1 2."""
    more = repeat(sparselu, Repeat(iterations=7), "trace")
    rank = 5
    traced = sparselu.tables["iterations"].filter(sparselu.column("iterations", "rank") == rank)
    first, end = (to_numpy(traced.column(name)) for name in ("first_operation_id", "end_operation_id"))
    parts = [np.arange(first[0]), *(np.arange(first[i], end[i]) for i in (0, 1, 2, 1, 2, 1, 2))]
    parts.append(np.arange(end[-1], np.diff(sparselu.rank_offsets)[rank]))
    mine = slice(more.rank_offsets[rank], more.rank_offsets[rank + 1])
    assert more.base_operation[mine].tolist() == np.concatenate(parts).tolist()
    expected = np.repeat([0, 0, 0, 0, 1, 1, 2, 2, 0], [len(part) for part in parts])
    assert more.repetition[mine].tolist() == expected.tolist()
    kinds = sparselu.column("operations", "kind")[sparselu.rank_offsets[rank] :]
    assert more.column("operations", "kind")[mine].tolist() == kinds[np.concatenate(parts)].tolist()


@pytest.mark.theory
def test_compute_time_is_that_of_the_pattern(sparselu):
    more = repeat(sparselu, Repeat(iterations=7), "trace")
    for rank in range(8):
        before = [
            int(w.column("phases", "duration_ps")[w.column("phases", "rank") == rank].sum()) for w in (sparselu, more)
        ]
        rows = sparselu.column("phases", "rank") == rank
        operation = sparselu.column("phases", "operation_id")[rows]
        mine = sparselu.column("iterations", "rank") == rank
        first, end = (sparselu.column("iterations", name)[mine] for name in ("first_operation_id", "end_operation_id"))
        loops = [
            int(sparselu.column("phases", "duration_ps")[rows][(operation >= first[i]) & (operation < end[i])].sum())
            for i in (1, 2)
        ]
        assert before[1] == before[0] + 2 * sum(loops)


@pytest.mark.theory
def test_a_repeated_run_takes_as_long_as_its_iterations(tmp_path):
    """Jitter 0: each two iterations more take the same time more."""
    study = {"workload": {"path": str(folder() / "sparselu-8.tar.zst")}, "target": "crossbar256"}
    makespans = []
    for number in (3, 5, 7, 9):
        study["workload"]["repeat"] = {"iterations": number}
        makespans.append(manyscale.run(study, tmp_path / str(number), executor="local", report=False).makespan_seconds)
    steps = np.diff(makespans)
    assert steps == pytest.approx(steps[1], rel=0.02)
    assert steps[0] > 0


@pytest.mark.theory
def test_traces_without_a_main_loop_are_refused():
    plain = lookup("reader", "simgrid-ti").read(folder() / "nas-is-A-8.tar.zst", DEFAULT_OPTIONS)
    with pytest.raises(UserError, match="knows no iterations of a main loop"):
        repeat(plain, Repeat(iterations=7), "trace")


@pytest.mark.theory
@pytest.mark.parametrize(
    ("times_ms", "iterations", "words"),
    [
        # 0 1 2 3 4 5 1 2 3 4 5 take 2 + 2 * 7 = 16 ms; with 1 ms in place of the second 3 ms they would take 14
        (
            [2, 1, 3, 1, 1, 1],
            11,
            "computes 0.003 s, the others 0.001 s (median), and comes 2 times, not once: that makes the run about "
            "0.002 s (14.3 %) longer",
        ),
        ([2, 4, 1, 4, 4, 4], 11, "traced iteration 2 computes 0.001 s, the others 0.004 s (median)"),
        ([9, 1, 1, 1, 1, 1], 11, ""),  # the first is not repeated
        ([2, 1, 3, 1, 1, 1], 6, ""),  # nothing is
        ([2, 1.0, 1.2, 1.4, 0.9, 1.1], 11, ""),  # 0.7 of the scaled deviation, 0.3 of the median
        ([2, 1, 3, 1], 7, ""),  # two others do not say what is usual
    ],
)  # fmt: skip
def test_an_outlier_that_is_repeated_is_told_with_what_it_does(times_ms, iterations, words):
    recorder = Recorder(lap_ps=0)
    for number, each in enumerate(times_ms):
        begin = {"first_operation_id": recorder.operation_id, "first_event_id": 0}
        recorder.lap_ps = round(each * 1e9)
        recorder.operation()
        end = {"end_operation_id": recorder.operation_id, "end_event_id": 0}
        recorder.rows["iterations"].append({"iteration": number, **begin, **end, "annotated": True})
    more = repeat(recorder.workload(), Repeat(iterations=iterations), "trace")
    found = [note for note in more.notes if note.code == "outlier-repeated"]
    assert len(found) == bool(words)
    assert words in "".join(note.text for note in found)
    assert all(note.errs == ("too long" if "longer" in note.text else "too short") for note in found)


@pytest.mark.theory
@pytest.mark.parametrize("number", range(2, 9))
def test_medians_of_all_but_each_are_numpy_s(number):
    values = np.random.default_rng(number).integers(0, 4, number).astype(np.float64)
    expected = [np.median(np.delete(values, each)) for each in range(number)]
    assert _medians_of_others(values).tolist() == expected


@pytest.mark.theory
@pytest.mark.parametrize(("cores", "expected_ms"), [(1, 3 + 3 * 1 + 0.5), (2, 1.5 + 3 * 0.5 + 0.5)])
def test_an_iteration_ends_with_its_own_tasks_however_often_it_is_repeated(tmp_path, cores, expected_ms):
    """Each iteration is an operation and then two tasks: of 1.5 ms in the first, of 0.5 ms in the second, which comes
    three times. What is behind the loop, 0.5 ms, comes once. No core does two things at once."""
    recorder = Recorder(lap_ps=0)
    for number, half_ms in enumerate((1.5, 0.5)):
        begin = {"first_operation_id": recorder.operation_id, "first_event_id": len(recorder.rows["events"])}
        recorder.operation()
        for _ in range(2):
            with recorder.execute(recorder.create()):
                recorder.lap_ps = round(half_ms * 1e9)
            recorder.lap_ps = 0
        recorder.wait()
        end = {"end_operation_id": recorder.operation_id, "end_event_id": len(recorder.rows["events"])}
        recorder.rows["iterations"].append({"iteration": number, **begin, **end, "annotated": True})
    recorder.lap_ps = 5 * 10**8
    recorder.operation()
    workload_folder.write(recorder.workload(), tmp_path / "trace")
    found = manyscale.run(
        {
            "workload": {"path": str(tmp_path / "trace"), "repeat": {"iterations": 4}},
            "target": "marenostrum3",
            "mapping": {"cores_per_rank": cores},
        },
        tmp_path / "run", executor="local", report=False,
    )  # fmt: skip
    assert found.makespan_seconds == pytest.approx(expected_ms / 1e3, rel=1e-12)
    assert found.cores is not None
    core, start, end = (to_numpy(found.cores.column(name)) for name in ("core", "start_ps", "end_ps"))
    order = np.lexsort((start, core))
    follows = np.diff(core[order]) == 0
    assert np.all(start[order][1:][follows] >= end[order][:-1][follows])
    assert (end - start).sum() == 6 * 10**9  # of iterations alone
