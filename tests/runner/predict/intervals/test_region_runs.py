"""Runs of parallel programs of which some regions are simulated: the whole, what stands for it, and what is refused."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from region_traces import CHUNKS, EXECUTIONS, INSTRUCTIONS, loops

import manyscale
from manyscale.models.workload.columns import to_numpy
from manyscale.runner.errors import UserError
from manyscale.runner.predict.intervals.region_source import RegionSource
from manyscale.runner.shipped import folder

OF_LOOP = CHUNKS * EXECUTIONS * INSTRUCTIONS
MIXED = [1, 1, 0, 1, 0, 0, 1, 1]  # kinds of loops
SHIPPED = {"path": str(folder() / "stream-9600.tar.zst")}


def study(trace: Path, method: str | None = "full", **intervals: Any) -> dict[str, Any]:
    content: dict[str, Any] = {
        "workload": {"path": str(trace)}, "target": "marenostrum3", "model": {"cpu": "detailed"},
        "mapping": {"cores_per_rank": 2}, "detailed": {"caches": "cold"},
    }  # fmt: skip
    if method is not None:
        content |= {"sampling": {"intervals": method}, "intervals": {"instructions": OF_LOOP, **intervals}}
    return content


def run(place: Path, content: dict[str, Any], **options: Any) -> manyscale.Result:
    options = {"executor": "local", "report": False} | options
    return manyscale.run(content, place / "run", cache=place / "cache", **options)


@pytest.mark.slow  # compiles the detailed model
@pytest.mark.theory
@pytest.mark.parametrize("cores", [1, 2, 16])
def test_all_regions_in_order_are_the_whole_program_to_the_picosecond(tmp_path, cores):
    trace, mapping = loops(tmp_path / "trace", MIXED, lines=40), {"mapping": {"cores_per_rank": cores}}
    whole = run(tmp_path / "whole", study(trace, None) | mapping)
    found = run(tmp_path / "regions", study(trace, caches="stitched") | mapping)
    assert found.makespan_seconds == whole.makespan_seconds
    assert found.intervals.num_rows == len(MIXED)
    assert to_numpy(found.intervals.column("instructions")).tolist() == [OF_LOOP] * len(MIXED)
    assert found.statistics["intervals.share"].value == 1
    for figure in ("node.core_utilisation", "application.thread_efficiency"):
        assert (figure in found.statistics) == (figure in whole.statistics)
        if figure in whole.statistics:
            assert found.statistics[figure].value == pytest.approx(whole.statistics[figure].value, rel=1e-9)


@pytest.mark.slow
@pytest.mark.theory
def test_one_of_equal_regions_is_the_whole(tmp_path):
    """Without memory every loop takes the same, so one says all, but for the cycle (at 2.6 GHz) in which it begins."""
    trace = loops(tmp_path / "trace", [0] * 6)
    whole = run(tmp_path / "whole", study(trace, caches="stitched"))
    found = run(tmp_path / "one", study(trace, "simpoint", max_k=1))
    assert found.statistics["intervals.simulated"].value == 1
    assert "sampling-saves-little" not in {note.code for note in found.notes}
    assert found.makespan_seconds == pytest.approx(whole.makespan_seconds, abs=6 / 2.6e9)


@pytest.mark.slow
@pytest.mark.theory
def test_large_regions_are_cut_into_windows(tmp_path):
    """A loop of as many chunks as cores, eight times as long as regions are to be: in a window every core executes a
    seventh of its chunk. Instances have no row then, and the windows together have the program's instructions."""
    trace, content = loops(tmp_path / "trace", [0] * 3), study(tmp_path / "trace", "simpoint", max_k=2)
    content |= {"mapping": {"cores_per_rank": CHUNKS}}
    content["intervals"]["instructions"] = OF_LOOP // 8
    found = run(tmp_path / "windows", content | {"workload": {"path": str(trace)}})
    rows = found.intervals
    assert rows.num_rows == 3 * 7
    assert np.ptp(to_numpy(rows.column("instructions"))) <= CHUNKS * INSTRUCTIONS
    assert to_numpy(rows.column("instructions")).sum() == 3 * OF_LOOP
    for code in ("regions-in-windows", "short-windows"):
        assert [note.count for note in found.notes if note.code == code] == [21]
    assert "task_type" in found.table("task_instances").column_names
    assert found.table("task_instances").num_rows == 0
    whole = run(tmp_path / "whole", content | {"sampling": {"intervals": "full"}, "intervals": {"instructions": 200}})
    assert whole.intervals.num_rows == 3  # all regions are the program as it is
    assert found.makespan_seconds > 0.9 * whole.makespan_seconds
    # windows share a fork and a barrier, of two doublings, and the taking of a chunk: three loops pay them
    content |= {"runtime": {"barrier": "100 ns", "fork": "50 ns", "schedule": "30 ns"}}
    paying = run(tmp_path / "paying", content | {"workload": {"path": str(trace)}})
    cost = paying.makespan_seconds - found.makespan_seconds
    assert cost == pytest.approx(3 * (2 * (100 + 50) + 30) * 1e-9, rel=0.03)  # windows are not of equal length


@pytest.mark.slow
@pytest.mark.theory
def test_caches_begin_as_the_cores_used_lines_last(tmp_path):
    """Chunks use lines of their own again in each loop: behind last uses they find them as the whole program does,
    in first levels or the next; in cold caches every loop goes to memory."""
    trace = loops(tmp_path / "trace", [1] * 4, lines=40)
    cycles = {
        caches: to_numpy(run(tmp_path / caches, study(trace, caches=caches, warm_up=0)).intervals.column("cycles"))
        for caches in ("stitched", "last-uses", "cold")
    }
    assert cycles["last-uses"][0] == cycles["cold"][0] == cycles["stitched"][0]  # nothing ran before
    saved = {name: (cycles["cold"] - each)[1:] for name, each in cycles.items()}
    assert np.all(saved["stitched"] > 0)
    assert np.all(saved["last-uses"] > 0.8 * saved["stitched"])
    warmed = run(tmp_path / "warmed", study(trace, warm_up="all")).intervals
    assert to_numpy(warmed.column("cycles")).tolist() == cycles["stitched"].tolist()


@pytest.mark.slow
@pytest.mark.contract
def test_regions_are_chosen_by_what_cores_do_to_each_other(tmp_path):
    """Loops that load lines of their own miss the first time alone, and no core answers for another one's."""
    trace = loops(tmp_path / "trace", [1] * 4, lines=40)
    found = run(tmp_path / "mcv", study(trace, "sbbv+mcv", max_k=4))
    assert (
        to_numpy(found.intervals.column("cluster")).tolist()[0] not in to_numpy(found.intervals.column("cluster"))[1:]
    )
    silent = run(tmp_path / "ccv", study(trace, "sbbv+ccv", max_k=4))
    assert [note.where for note in silent.notes if note.code == "part-without-counts"] == ["ccv"]


@pytest.mark.slow
@pytest.mark.contract
def test_the_same_bytes_on_any_executor(tmp_path):
    trace = loops(tmp_path / "trace", MIXED, lines=40)
    content = study(trace, "simpoint", per_cluster=2, max_k=2)
    places = []
    for name, options in (("local", {}), ("ray", {"executor": "ray", "workers": 2})):
        places.append(tmp_path / name / "run")
        run(tmp_path / name, content, report=True, **options)
    for output in ("plan.parquet", "stats.json", "timeline/intervals.parquet", "timeline/cores.parquet",
                   "timeline/cpi_stacks.parquet", "timeline/task_instances.parquet", "report.html"):  # fmt: skip
        assert len({(place / output).read_bytes() for place in places}) == 1, output
    report = (places[0] / "report.html").read_text()
    assert "Cycles per instruction over the run" in report
    assert "the chosen regions have 50% of the instructions" in report  # four of eight


@pytest.mark.contract
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sampling": {"intervals": "sbbv+cvc"}}, "sampling.intervals: unknown method 'sbbv+cvc'"),
        (
            {"workload": SHIPPED, "mapping": {}, "sampling": {"intervals": "sbbv+ccv"}},
            "has one thread, and sampling.intervals: sbbv+ccv chooses by what cores do to each other",
        ),
        ({"intervals": {"caches": "warm"}}, "intervals.caches: warm is for programs of one thread"),
        ({"intervals": {"instructions": 10**9}}, "make fewer than two of the 12,800 that were traced in detail"),
        ({"sampling": {"intervals": "full", "tasks": "lazy"}}, "leave ranks, iterations, tasks out"),
        ({"target": "crossbar256", "mapping": {}}, "crossbar256: simulated cores need node.main_memory"),
        ({"workload": {"path": str(folder() / "multizone-8-detail.tar.zst")}}, "has 8 ranks; sampling.intervals"),
        ({"workload": SHIPPED}, "has no task instances, so it has one thread, on one core"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused_in_one_line(tmp_path, changes, message):
    content = study(loops(tmp_path / "trace", MIXED, lines=40)) | changes
    with pytest.raises(UserError, match=re.escape(message)) as caught:
        run(tmp_path, content)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


@pytest.mark.theory
@pytest.mark.parametrize(
    ("is_part", "of_loop", "errs"),
    [
        ([1, 1, 0], [2, 2, 1], "too short"),
        ([0, 0, 0], [1, 2, 2], "too long"),
        ([1, 1, 0], [2, 2, 2], ""),
        ([0], [1], ""),
    ],
)
def test_windows_say_which_way_their_ends_err(is_part, of_loop, errs):
    """Parts of chunks wait too little, consecutive chunks too often, and serial parts for nobody."""
    windows = SimpleNamespace(
        num_windows=2, num_cut=1, num_short=0, row_is_part=np.array(is_part, bool), of_loop=np.array(of_loop)
    )
    source = SimpleNamespace(_regions=SimpleNamespace(windows=windows), _place="app")
    assert [note.errs for note in RegionSource._of_windows.fget(source)] == [errs]
