"""Runs of programs of which some intervals are simulated: estimates, tables, plan, resumption, and what is refused.

Expected: the units of sampled_units.py, whose cycles are known, stand for the core."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import sampled_units
from test_interval_units import PROGRAM, study

import manyscale
from manyscale.models.workload.columns import to_numpy
from manyscale.runner.errors import UserError
from manyscale.runner.predict.intervals import interval_units, methods
from manyscale.runner.shipped import folder
from manyscale.sampling.population import Choice
from manyscale.sampling.sampler import Sampler


@pytest.fixture
def known_cycles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interval_units, "KIND", sampled_units.KIND)


def run(place: Path, method: str, seed: int = 0, report: bool = False, **intervals: Any) -> manyscale.Result:
    content = study(**intervals) | {"sampling": {"intervals": method}, "seed": seed}
    return manyscale.run(content, place, executor="local", cache=place.parent / "cache", report=report)


@pytest.mark.theory
@pytest.mark.parametrize("caches", ["last-uses", "cold", "warm", "stitched"])
def test_all_intervals_have_no_error(known_cycles, tmp_path, caches):
    found = run(tmp_path / "run", "full", caches=caches)
    table = found.intervals
    cycles = to_numpy(table.column("cycles"))
    instructions = to_numpy(table.column("instructions"))
    assert instructions.sum() == 60_978
    cpi = found.statistics["intervals.cpi"]
    assert cpi.value == pytest.approx(cycles.sum() / 60_978, rel=1e-12)
    assert (cpi.ci_low, cpi.ci_high) == (None, None)  # nothing was sampled
    assert found.statistics["intervals.share"].value == 1
    assert found.makespan_seconds == pytest.approx(cycles.sum() / sampled_units.FREQUENCY_HZ, abs=1e-12)
    assert found.statistics["application.compute"].value == found.makespan_seconds


@pytest.mark.parametrize(("method", "rules"), [
    ("simpoint", {}), ("simpoint", {"per_cluster": 2}), ("code", {}), ("random", {"intervals": 4}),
    ("systematic", {"period": 3}), ("second", {"intervals": 2}),
])  # fmt: skip
def test_an_estimate_is_the_weighed_sum_of_what_was_simulated(known_cycles, tmp_path, method, rules):
    found = run(tmp_path / "run", method, **rules)
    plan = pq.read_table(tmp_path / "run" / "plan.parquet").to_pydict()
    assert set(plan["element_kind"]) == {"interval"}
    assert sum(plan["weight"]) == pytest.approx(1)
    units = pq.read_table(tmp_path / "run" / "units.parquet").to_pydict()
    of_intervals = {key for key, kind in zip(units["key"], units["kind"], strict=True) if kind == sampled_units.KIND}
    assert set(plan["unit_key"]) == of_intervals
    table = pq.read_table(tmp_path / "run" / "timeline" / "intervals.parquet").to_pandas()
    simulated = table[table.cycles.notna()]
    assert simulated.interval.tolist() == plan["element_id"]
    assert simulated.weight.tolist() == plan["weight"]
    assert simulated.cpi.tolist() == pytest.approx((simulated.cycles / simulated.instructions).tolist())
    assert (simulated.cpi_base + simulated.cpi_memory).tolist() == pytest.approx(simulated.cpi.tolist())
    assert set(simulated.hit_ratio_L1D) == {0.75}
    estimate = float(simulated.weight @ simulated.cpi)
    assert found.statistics["intervals.cpi"].value == pytest.approx(estimate)
    assert found.statistics["intervals.cpi.memory"].value == pytest.approx(estimate / 2)
    assert found.statistics["intervals.hit_ratio.L1D"].value == pytest.approx(0.75)
    assert found.makespan_seconds == pytest.approx(estimate * 60_978 / sampled_units.FREQUENCY_HZ, abs=1e-12)
    stacks = found.cpi_stacks.to_pandas()
    assert stacks.cycles.sum() == pytest.approx(estimate * 60_978)


@pytest.mark.parametrize(("method", "rules", "tells"), [
    ("simpoint", {"per_cluster": 3, "max_k": 2}, True), ("random", {"intervals": 4}, True), ("simpoint", {}, False),
    ("systematic", {}, False), ("second", {"intervals": 3}, False),
])  # fmt: skip
def test_only_random_samples_have_an_interval(known_cycles, tmp_path, method, rules, tells):
    found = run(tmp_path / "run", method, **rules)
    cpi, makespan = (found.statistics[name] for name in ("intervals.cpi", "application.makespan"))
    if not tells:
        assert (cpi.ci_low, makespan.ci_high) == (None, None)
        assert "do not say how sure the estimate is" in cpi.description
        return
    assert cpi.ci_low is not None
    assert makespan.ci_low is not None
    assert cpi.ci_low < cpi.value < cpi.ci_high
    assert makespan.ci_high / makespan.value == pytest.approx(cpi.ci_high / cpi.value, rel=1e-6)


def test_a_run_that_is_resumed_or_draws_again_finds_what_was_simulated(known_cycles, tmp_path):
    first = run(tmp_path / "one", "random", intervals=8)
    again = run(tmp_path / "two", "random", intervals=8)
    assert again.statistics == first.statistics
    assert counts(tmp_path / "two")["simulated"] == 0
    other = run(tmp_path / "three", "random", seed=1, intervals=8)
    seen = {*elements(first)} & {*elements(other)}
    new = {*elements(other)} - seen
    assert seen
    assert counts(tmp_path / "three")["simulated"] == len(new) + 2  # and the rank's phases, and the replay


def elements(result: manyscale.Result) -> list[int]:
    return result.plan.column("element_id").to_pylist()


def counts(directory: Path) -> dict[str, int]:
    return json.loads((directory / "simulator.json").read_text())["units"]


def test_equal_units_that_weigh_otherwise_give_another_time(known_cycles, tmp_path, monkeypatch):
    """Nothing is simulated again, and yet the time is another."""
    found = {}
    for name, weight in (("even", [0.5, 0.5]), ("odd", [0.1, 0.9])):
        choice = Choice(np.array([0, 9]), np.zeros(2, np.int32), np.array(weight))
        sampler = Sampler(lambda population, rules, seed, choice=choice: choice)
        monkeypatch.setattr(methods, "sampler_named", lambda level, name, sampler=sampler: sampler)
        found[name] = run(tmp_path / name, name)
        cpi = found[name].intervals.to_pandas().cpi.to_numpy()[[0, 9]]
        seconds = float(weight @ cpi) * 60_978 / sampled_units.FREQUENCY_HZ
        assert found[name].makespan_seconds == pytest.approx(seconds, abs=1e-12)
    assert counts(tmp_path / "odd")["simulated"] == 2  # the rank's phases, and the replay


def test_the_report_shows_the_run_and_its_stack(known_cycles, tmp_path):
    run(tmp_path / "run", "simpoint", report=True)
    page = (tmp_path / "run" / "report.html").read_text()
    for text in ("Cycles per instruction over the run", "Intervals of the program", "The sample does not tell",
                 "Caches at the begin of each are filled with"):  # fmt: skip
        assert text in page
    run(tmp_path / "other", "simpoint", report=True, per_cluster=2)
    assert "The sample does not tell" not in (tmp_path / "other" / "report.html").read_text()


def test_a_trace_that_knows_no_phases_takes_what_its_intervals_say(known_cycles, tmp_path):
    lines = [f"I  {0x1000 + 4 * (k % 50):x},4\n L {0x2000 + 8 * k:x},8\n" for k in range(3000)]
    (tmp_path / "prog.lk").write_text("".join(lines))
    content = study(instructions=500) | {"workload": {"path": str(tmp_path / "prog.lk")}}
    found = manyscale.run(content, tmp_path / "run", executor="local", cache=tmp_path / "cache", report=False)
    cpi = found.statistics["intervals.cpi"].value
    assert found.makespan_seconds == pytest.approx(cpi * 3000 / sampled_units.FREQUENCY_HZ, abs=1e-12)


def test_the_command_says_what_it_found(known_cycles, cli):
    words = ("--workload", PROGRAM["path"], "--target", "epyc-zen4", "--model", "cpu=detailed", "--sampling",
             "intervals=simpoint", "--set", "intervals.instructions=5000")  # fmt: skip
    done = cli("run", *words, "--set", "intervals.per_cluster=2", "-o", "run", "--executor", "local", "--no-report")
    assert done.status == 0, done.err
    assert re.search(r"CPI [\d.]+ \([\d.]+ to [\d.]+\) from \d+ of 13 intervals, [\d.]+% of the instructions", done.out)
    done = cli("run", "--resume", "-o", "run", "--executor", "local")
    assert done.status == 0, done.err
    assert " 0 simulated" in done.out
    done = cli("run", *words, "--dry-run")
    assert done.status == 0, done.err
    assert "work units" in done.out
    done = cli("plan", *words, "-o", "plan")
    assert done.status == 0, done.err
    assert re.match(r"\d+ intervals would be simulated: ", done.out)
    assert sum(pq.read_table("plan/plan.parquet").to_pydict()["weight"]) == pytest.approx(1)


@pytest.mark.contract
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sampling": {"intervals": "simpiont"}}, "intervals: unknown method 'simpiont'; did you mean 'simpoint'"),
        ({"intervals": {"per_clustre": 2}}, "intervals.per_clustre: unknown key; did you mean 'per_cluster'?"),
        ({"intervals": {"period": 2}}, "intervals.period: unknown key"),
        ({"intervals": {"caches": "hot"}}, "intervals.caches: 'hot' is not one of 'last-uses', 'warm'"),
        ({"intervals": {"instructions": 0}}, "intervals.instructions: "),
        ({"intervals": {"instructions": 70_000}}, "an interval of 70,000 instructions is as long as the program"),
        ({"sampling": {}}, "intervals: says how sampling.intervals samples; choose a method there"),
        ({"model": {"cpu": "burst"}}, "sampling.intervals: simpoint samples model cpu: detailed; choose that model"),
        ({"model": {"cpu": "interval"}}, "sampling.intervals: simpoint samples model cpu: detailed"),
        ({"sampling": {"intervals": "simpoint", "ranks": [0]}}, "leave ranks, iterations, tasks out"),
        ({"mapping": {"cores_per_rank": 2}}, "leave mapping.cores_per_rank out"),
        ({"target": "crossbar256"}, "crossbar256: simulated cores need node.main_memory, node.core, node.caches"),
        (
            {"workload": {"path": str(folder() / "lulesh-8.tar.zst")}, "mapping": {"oversubscribe": True}},
            "lulesh-8.tar.zst: has 8 ranks; sampling.intervals samples a program of one",
        ),
        ({"workload": {**PROGRAM, "detail": PROGRAM["path"]}}, "leave workload.detail out"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused_in_one_line(tmp_path, changes, message):
    content = study() | {"sampling": {"intervals": "simpoint"}, **changes}
    with pytest.raises(UserError, match=re.escape(message)) as caught:
        manyscale.run(content, tmp_path / "run", executor="local", cache=tmp_path / "cache")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_a_workload_without_detail_is_refused(tmp_path):
    (tmp_path / "ti").write_text("0 init\n0 compute 1000\n0 finalize\n")
    content = study() | {"workload": {"path": str(tmp_path / "ti"), "format": "simgrid-ti"}}
    with pytest.raises(UserError, match="ti: has no detailed level, which tells what was accessed"):
        manyscale.run(content, tmp_path / "run", executor="local", cache=tmp_path / "cache")
