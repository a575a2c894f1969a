"""Commands that ask about predictions: critical path, what-if, compare, pop. Expected values are worked out by hand.

On crossbar256 a message of S bytes takes 10 us + 0.8 ns (S + 16); one unit of `compute` is 1 ns.
"""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from manyscale.models.workload import MEASURED_SCHEMA, Workload
from manyscale.models.workload.columns import to_numpy
from manyscale.runner.errors import UserError
from manyscale.runner.readers import simgrid_ti, workload_folder
from manyscale.runner.run.places import occurrence, places
from manyscale.runner.run.questions.efficiencies import efficiencies
from manyscale.runner.run.questions.pop import pop_table, run_efficiencies
from manyscale.runner.study import apply_what_if, parse_study, sweep_points, what_if

COST_US = 10 + 0.8e-3 * (984 + 16)  # of 984 bytes

# rank 0 computes 100 us and sends; rank 1 computes 20 us, receives, computes 30 us
UNEQUAL = {
    0: ["init", "compute 100000", "send 1 0 984 6", "finalize"],
    1: ["init", "compute 20000", "recv 0 0 984 6", "compute 30000", "finalize"],
}


def figures(run: Path) -> dict[str, float]:
    return {name: entry["value"] for name, entry in json.loads((run / "stats.json").read_text()).items()}


@pytest.fixture
def run(cli, write_trace, tmp_path):
    """``run(name, ranks, *options)`` predicts a trace on crossbar256 and returns the run directory."""

    def predict(name: str, ranks=UNEQUAL, *options: object) -> Path:
        trace = tmp_path / f"trace-{name}"
        trace = trace if trace.is_dir() else write_trace(ranks, trace.name)
        command = ("run", "--workload", trace, "--target", "crossbar256", "-o", name, "--no-report", *options)
        outcome = cli(*command)
        assert outcome.status == 0, outcome.err
        return tmp_path / name

    return predict


@pytest.fixture
def measured(tmp_path, write_trace):
    """A workload folder of UNEQUAL with measured times: the message took 50 us, all else as in the trace."""
    workload = simgrid_ti.read(write_trace(UNEQUAL, "measured-trace") / "ti.txt")
    start = np.array([0, 100, 100, 0, 20, 180]) * 10**6
    end = np.array([0, 100, 100, 0, 150, 180]) * 10**6
    table = pa.Table.from_arrays([pa.array(start), pa.array(end)], schema=MEASURED_SCHEMA)
    whole = Workload("measured", 2, {**workload.tables, "measured": table})
    folder = tmp_path / "measured"
    folder.mkdir()
    workload_folder.write(whole, folder)
    return folder


@pytest.mark.theory
class TestCriticalPath:
    def test_file_and_figures(self, run):
        directory = run("a")
        path = pq.read_table(directory / "timeline" / "critical_path.parquet")
        assert path.column("kind").to_pylist() == ["compute", "transfer", "compute"]
        assert path.column("rank").to_pylist() == [0, 1, 1]
        assert path.column("source").to_pylist() == [0, 0, 1]
        assert path.column("operation_id").to_pylist() == [1, 1, 2]
        assert path.column("message_id").to_pylist() == [-1, 0, -1]
        value = figures(directory)
        assert value["critical_path.compute"] == pytest.approx(130e-6, rel=1e-12)
        assert value["critical_path.transfer"] == pytest.approx(COST_US * 1e-6, rel=1e-12)
        assert value["critical_path.changes"] == 1
        parts = sum(value[f"critical_path.{kind}"] for kind in ("compute", "transfer", "collective", "overhead"))
        assert parts == pytest.approx(value["application.makespan"], rel=1e-12)

    def test_path_of_a_real_trace_tiles_the_run(self, cli, tmp_path):
        assert cli("run", "comd-8", "-o", "run").status == 0
        path = pq.read_table(tmp_path / "run" / "timeline" / "critical_path.parquet")
        start, end = to_numpy(path.column("start_ps")), to_numpy(path.column("end_ps"))
        assert start[0] == 0
        assert np.array_equal(start[1:], end[:-1])
        assert end[-1] == round(figures(tmp_path / "run")["application.makespan"] * 1e12)
        page = (tmp_path / "run" / "report.html").read_text()
        assert "<h2>Critical path</h2>" in page
        assert 'id="critical-path"' in page
        with gzip.open(tmp_path / "run" / "trace.json.gz") as file:
            events = [event for event in json.load(file)["traceEvents"] if event["pid"] == 2]
        assert [event["name"] for event in events if event["ph"] == "X"] == path.column("kind").to_pylist()
        assert [event["args"]["name"] for event in events if event["ph"] == "M"] == ["critical path"]


@pytest.mark.theory
class TestPlaces:
    def test_regions_and_calls(self, write_trace):
        workload = simgrid_ti.read(write_trace(UNEQUAL) / "ti.txt")
        found = places(workload)
        assert [found.names[i] for i in found.call] == ["init", "send", "finalize", "init", "recv", "finalize"]
        assert found.names[found.compute[4]] == "before recv"

    def test_occurrence_counts_within_a_rank(self):
        rank = np.array([0, 0, 0, 0, 1, 1])
        place = np.array([7, 3, 7, 7, 7, 3])
        assert occurrence(rank, place).tolist() == [0, 0, 1, 2, 0, 0]


@pytest.mark.theory
class TestWhatIf:
    def test_table(self, cli, run, tmp_path):
        outcome = cli("what-if", run("a"), "-o", "asked", "--what-if", "faster:rank:0=4")
        assert outcome.status == 0, outcome.err
        table = pq.read_table(tmp_path / "asked" / "what_if.parquet").to_pydict()
        assert table["what_if"] == ["base", "faster:rank:0=4"]
        seconds = [(100 + COST_US + 30) * 1e-6, (25 + COST_US + 30) * 1e-6]
        assert table["makespan_seconds"] == pytest.approx(seconds, rel=1e-12)
        assert table["change_seconds"] == pytest.approx([0, -75e-6], abs=1e-15)
        assert table["speedup"] == pytest.approx([1, seconds[0] / seconds[1]], rel=1e-12)
        assert "faster:rank:0=4" in outcome.out
        assert "65.80 us" in outcome.out

    def test_standard_ones(self, cli, run, tmp_path):
        assert cli("what-if", run("a"), "-o", "asked").status == 0
        table = pq.read_table(tmp_path / "asked" / "what_if.parquet").to_pydict()
        expected = {
            "base": 100 + COST_US + 30,
            "ideal-network": 130,
            "zero-latency": 130.8,
            "infinite-bandwidth": 140,
            # both ranks compute 75 us: rank 0 its 100 in 75, rank 1 its 20 + 30 in 30 + 45
            "perfect-balance": 75 + COST_US + 45,
        }
        assert table["what_if"] == list(expected)
        assert table["makespan_seconds"] == pytest.approx([value * 1e-6 for value in expected.values()], rel=1e-9)

    def test_ideal_network_is_what_serialisation_is_measured_on(self, cli, tmp_path):
        for name in ("lulesh-8", "nas-is-A-8"):
            assert cli("what-if", name, "-o", name, "--what-if", "ideal-network").status == 0
            base, ideal = (figures(tmp_path / name / "points" / point) for point in ("0000", "0001"))
            expected = base["application.makespan"] * base["application.transfer_efficiency"]
            assert ideal["application.makespan"] == pytest.approx(expected, rel=1e-12)

    def test_perfect_balance_keeps_the_work(self, cli, tmp_path):
        assert cli("what-if", "lulesh-8", "-o", "asked", "--what-if", "perfect-balance").status == 0
        base, balanced = (figures(tmp_path / "asked" / "points" / point) for point in ("0000", "0001"))
        assert base["application.load_balance"] < 0.9
        assert balanced["application.load_balance"] == pytest.approx(1, abs=1e-6)
        assert balanced["application.compute"] == pytest.approx(base["application.compute"], rel=1e-6)

    def test_perfect_balance_of_what_the_study_corrects(self, cli, run, tmp_path):
        # rank 0 computes 50 us then, as rank 1 does: there is nothing to balance
        corrected = ("--set", "ipc_correction.ranks={0: 2}", "--what-if", "perfect-balance")
        assert cli("what-if", run("a"), "-o", "asked", *corrected).status == 0
        table = pq.read_table(tmp_path / "asked" / "what_if.parquet").to_pydict()
        assert table["makespan_seconds"] == pytest.approx([(50 + COST_US + 30) * 1e-6] * 2, rel=1e-9)

    def test_shares_units_with_the_base(self, cli, run, tmp_path):
        cli("what-if", run("a"), "-o", "asked", "--what-if", "zero-latency", "--what-if", "faster:rank:0=2")
        units = json.loads((tmp_path / "asked" / "simulator.json").read_text())["units"]
        # two bursts and a replay are those of the run; new are two replays and one burst of rank 0
        assert (units["reused"], units["simulated"]) == (3, 3)

    def test_is_a_key_of_a_study_beside_a_sweep(self):
        content = {
            "workload": {"path": "-"},
            "target": "laptop",
            "sweep": {"cpu_ratio": [1.0, 2.0]},
            "what_if": ["zero-latency", "target.network.bandwidth=3 GB/s"],
        }
        points = list(sweep_points(content, "here"))
        assert [tuple(axes.values()) for axes, _ in points] == [
            (ratio, what) for ratio in (1.0, 2.0) for what in ("base", *content["what_if"])
        ]
        assert points[0][1].target == "laptop"
        assert points[1][1].target_overrides["network"]["self"] == {"latency": "0 s"}
        assert points[5][1].target_overrides == {"network": {"bandwidth": "3 GB/s"}}
        assert parse_study(content, "here").model_dump(by_alias=True)["sweep"]["what_if"][0] == "base"

    def test_faster_multiplies_what_the_study_says(self):
        content = {"ipc_correction": {"regions": {"a.b": 3.0}}}
        assert apply_what_if(content, "faster:region:a.b=2") == {"ipc_correction": {"regions": {"a.b": 6.0}}}
        assert apply_what_if({}, "faster:phase:*/7=2") == {"ipc_correction": {"phases": {"*/7": 2.0}}}
        assert apply_what_if({}, "faster:cluster:1=2") == {"ipc_correction": {"clusters": {1: 2.0}}}

    def test_the_same_phase_of_every_rank(self, cli, run, tmp_path):
        cli("what-if", run("a"), "-o", "asked", "--what-if", "faster:phase:*/0=2")
        makespan = figures(tmp_path / "asked" / "points" / "0001")["application.makespan"]
        assert makespan == pytest.approx((50 + COST_US + 30) * 1e-6, rel=1e-12)  # rank 0's 100 us are 50 now

    @pytest.mark.parametrize(
        ("text", "needle"),
        [
            ("nonsense", "known are base, ideal-network"),
            ("faster:region=2", "write faster:LEVEL:NAME=N"),
            ("faster:core:1=2", "of levels, known are region, rank, cluster, phase"),
            ("faster:rank:x=2", "is not the number of a rank"),
            ("faster:rank:1=fast", "'fast' is not a number"),
            ("faster:rank:9=2", "rank 9 is not one of the trace's 2"),
            ("faster:rank:0=0", "0.0 is not above 0"),
            ("faster:phase:*/99=2", "no rank has a phase 99"),
            ("faster:cluster:77=2", "there is no phase cluster 77"),
            ("faster:region:solve=2", "unknown region 'solve'"),
            ("workload.path=x", "is the same for all points"),
            ("target.network.latency=3", "latency"),
        ],
    )
    def test_refused(self, cli, run, refused, text, needle):
        refused(cli("what-if", run("a"), "-o", "asked", "--what-if", text), needle)

    def test_of_a_sweep_is_refused(self, cli, tmp_path, refused):
        study = {"workload": {"path": "x"}, "target": "laptop", "sweep": {"cpu_ratio": [1, 2]}}
        (tmp_path / "s.yaml").write_text(yaml.safe_dump(study))
        refused(cli("what-if", "s.yaml"), "is a sweep")

    def test_unknown_kind_of_value(self):
        with pytest.raises(UserError, match="what-if 3"):
            what_if.changes(3)


@pytest.mark.theory
class TestCompare:
    def rows(self, path: Path) -> dict[tuple[str, str], dict]:
        content = json.loads(path.read_text())
        return {(row["group"], row["item"]): row for row in content["rows"]}

    def test_a_run_with_itself_shows_no_difference(self, cli, run, tmp_path):
        outcome = cli("compare", run("a"), "a", "--json", "c.json")
        assert outcome.status == 0, outcome.err
        assert {row["difference"] for row in self.rows(tmp_path / "c.json").values()} == {0}
        notes = [line for line in outcome.out.splitlines() if line.startswith("note")]
        assert [line.split()[2] for line in notes] == ["[shared-links]"]  # what either side says, once

    def test_states_places_ranks_and_path(self, cli, run, tmp_path):
        run("a")
        (tmp_path / "trace-b").symlink_to(tmp_path / "trace-a")
        run("b", UNEQUAL, "--set", "ipc_correction.ranks={0: 2}")
        outcome = cli("compare", "a", "b", "--json", "c.json", "-o", "c.parquet")
        assert outcome.status == 0, outcome.err
        rows = self.rows(tmp_path / "c.json")
        expected = {
            ("figure", "makespan"): -50e-6,
            ("state", "compute"): -25e-6,  # mean of the two ranks
            ("state", "receive"): -25e-6,  # rank 1 waits for 50 us less
            ("critical path", "compute"): -50e-6,
            ("critical path", "transfer"): 0,
            ("place", "before send"): -25e-6,
            ("visit", "recv #0"): -25e-6,
            ("rank", "rank 0, compute"): -50e-6,
            ("rank", "rank 1, receive"): -50e-6,
        }
        assert {key: rows[key]["difference"] for key in expected} == pytest.approx(expected, abs=1e-15)
        assert pq.read_table(tmp_path / "c.parquet").num_rows == len(rows)
        assert outcome.out.index("by state") < outcome.out.index("by rank")

    def test_different_applications_compare_what_can_be(self, cli, run, tmp_path):
        run("a")
        run("b", {**UNEQUAL, 2: ["init", "compute 5000", "finalize"]})
        outcome = cli("compare", "a", "b", "--json", "c.json")
        assert outcome.status == 0, outcome.err
        groups = {group for group, _ in self.rows(tmp_path / "c.json")}
        assert groups == {"figure", "state", "critical path", "place"}
        assert "[not-compared] 2 and 3 ranks: rank by rank they cannot be compared" in outcome.out
        assert "visits one by one cannot be compared" in outcome.out

    def test_a_run_whose_trace_is_gone(self, cli, run, tmp_path):
        run("a")
        shutil.rmtree(tmp_path / "trace-a")
        outcome = cli("compare", "a", "a")
        assert outcome.status == 0, outcome.err
        assert "[not-compared] regions and calls are not known" in outcome.out

    def test_a_run_against_its_measured_trace(self, cli, tmp_path, measured):
        assert cli("run", "--workload", measured, "--target", "crossbar256", "-o", "a", "--no-report").status == 0
        outcome = cli("compare", "a", measured, "--json", "c.json")
        assert outcome.status == 0, outcome.err
        rows = self.rows(tmp_path / "c.json")
        assert rows["figure", "makespan"]["b"] == pytest.approx(180e-6)
        assert rows["figure", "messages"]["b"] == 1
        assert rows["figure", "makespan"]["difference"] == pytest.approx((50 - COST_US) * 1e-6)
        assert rows["visit", "recv #0"]["b"] == pytest.approx(65e-6)  # rank 1 in it from 20 to 150 us, mean of two
        assert rows["state", "compute"]["difference"] == pytest.approx(0, abs=1e-15)
        assert "has no critical path" in outcome.out

    @pytest.mark.parametrize(
        ("spoil", "needle"),
        [
            (lambda run: (run / "stats.json").write_text("{"), "is damaged"),
            (lambda run: (run / "timeline" / "ranks.parquet").write_bytes(b"no"), "is damaged"),
            (lambda run: (run / "points").mkdir(), "is a sweep"),
            (lambda run: (run / "manifest.json").write_text('{"status": "failed"}'), "the run is failed"),
        ],
    )
    def test_refused(self, cli, run, refused, spoil, needle):
        spoil(run("a"))
        refused(cli("compare", "a", "a"), "a: " if needle == "is damaged" else "", needle)

    def test_a_trace_without_times_is_refused(self, cli, run, tmp_path, refused):
        run("a")
        refused(cli("compare", "a", tmp_path / "trace-a"), "does not say when")
        refused(cli("compare", "a", "nowhere"), "nowhere: does not exist")


@pytest.mark.theory
class TestPop:
    # per rank 100 us of compute on 2 ranks, then 60 us on 4: half the work would be 50
    TWO = {rank: ["init", "compute 100000", "barrier", "finalize"] for rank in range(2)}
    FOUR = {rank: ["init", f"compute {60000 if rank else 30000}", "barrier", "finalize"] for rank in range(4)}

    def test_strong_and_weak(self, run):
        runs = [run_efficiencies(run("four", self.FOUR)), run_efficiencies(run("two", self.TWO))]
        strong = pop_table(runs).to_pylist()
        assert [row["num_ranks"] for row in strong] == [2, 4]
        assert strong[0]["computation_scaling"] == 1
        assert strong[1]["computation_scaling"] == pytest.approx(200 / 210)
        assert strong[1]["load_balance"] == pytest.approx(52.5 / 60)
        assert strong[1]["global_efficiency"] == pytest.approx(strong[1]["parallel_efficiency"] * 200 / 210)
        weak = pop_table(runs, weak=True).to_pylist()
        assert weak[1]["computation_scaling"] == pytest.approx(100 / 52.5)
        assert weak[1]["speedup"] == pytest.approx(2 * strong[1]["speedup"])

    def test_command(self, cli, run, tmp_path, measured):
        run("two", self.TWO)
        outcome = cli("pop", "two", measured, "--target", "crossbar256", "-o", "pop.parquet")
        assert outcome.status == 0, outcome.err
        lines = {line[:30].strip(): line.split()[-3:] for line in outcome.out.splitlines()}
        assert lines["Parallel efficiency"][-2:] == [f"{100 * 75 / 180:.1f}", "%"]
        row = pq.read_table(tmp_path / "pop.parquet").to_pylist()[1]
        assert row["transfer_efficiency"] == pytest.approx(130 / 180)  # 100 + 30 us on the ideal network
        assert row["serialisation_efficiency"] == pytest.approx(100 / 130)

    def test_a_run_has_the_efficiencies_of_its_statistics(self, run):
        directory = run("a")
        value = figures(directory)
        found = run_efficiencies(directory)
        assert found.parallel_efficiency == value["application.parallel_efficiency"]
        assert found.total_useful_ps == 150 * 10**6

    def test_measured_times_alone(self, measured):
        found = efficiencies(workload_folder.read(measured))
        assert run_efficiencies(measured).parallel_efficiency == found.parallel_efficiency

    def test_refused(self, cli, run, tmp_path, refused):
        run("a")
        refused(cli("pop", tmp_path / "trace-a"), "does not say when")
        refused(cli("pop", "a", "--target", "nowhere"), "unknown target")
        refused(cli("pop"), "RUN")
