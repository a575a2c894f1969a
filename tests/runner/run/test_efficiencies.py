"""POP metrics of small measured workloads; expected values from the definitions, computed by hand."""

from __future__ import annotations

import pyarrow as pa
import pytest

import manyscale as ms
from manyscale.models.workload import SCHEMAS, Workload
from manyscale.runner.errors import UserError
from manyscale.runner.readers import paraver
from manyscale.runner.run.questions.efficiencies import efficiencies, scaling, scaling_table
from manyscale.runner.study import parse_study
from manyscale.runner.study.targets import resolve_target

HEAD = "#Paraver (01/01/2020 at 00:00):100_ns:1(2):1:2(1:1,1:1),1\nc:1:1:2:1:2\n"
NAMES = "EVENT_TYPE\n7 42000050 PAPI_TOT_INS [x]\n7 42000059 PAPI_TOT_CYC [x]\n"


def run(folder, computes, *, end=100, counters=True, first="1"):
    """Ranks that compute for some ns, then wait in a barrier until ``end``; 2 instructions and 4 cycles a ns."""
    lines = []
    for task, compute in enumerate(computes, start=1):
        who = f"{task}:1:{task}:1:"
        counts = f":42000050:{2 * compute}:42000059:{4 * compute}" if counters else ""
        begins = f"2:{who}{compute}:50000002:8:50100001:0:50100002:0:50100004:1{counts}\n"
        lines += [f"1:{who}0:{compute}:{first}\n", begins, f"2:{who}{end}:50000002:0\n"]
    path = folder / f"run-{end}.prv"
    path.write_text(HEAD + "".join(lines))
    path.with_suffix(".pcf").write_text(NAMES)
    return paraver.read(path)


@pytest.mark.theory
def test_multiplicative_model(tmp_path):
    figures = efficiencies(run(tmp_path, [80, 60]))
    assert figures.run_time_ps == 100_000
    assert figures.useful_ps.tolist() == [80_000, 60_000]
    assert figures.load_balance == 70 / 80
    assert figures.communication_efficiency == 80 / 100
    assert figures.parallel_efficiency == pytest.approx(70 / 100, rel=1e-15)
    assert (figures.instructions, figures.cycles, figures.ipc) == (280, 560, 0.5)
    assert figures.frequency_hz == pytest.approx(4e9)
    assert figures.serialisation_efficiency is None


@pytest.mark.theory
def test_ideal_network_splits_the_communication_efficiency(tmp_path):
    """On an ideal network the barrier ends when the slower rank arrives, at 80 ns: nothing is serialised."""
    machine, _ = resolve_target(parse_study({"workload": {"path": "x"}, "target": "crossbar256"}, "test"), None)
    figures = efficiencies(run(tmp_path, [80, 60]), machine.network)
    assert figures.ideal_run_time_ps == 80_000
    assert figures.serialisation_efficiency == 1.0
    assert figures.transfer_efficiency == 0.8


@pytest.mark.theory
def test_scaling_against_a_reference(tmp_path):
    slow, fast = efficiencies(run(tmp_path, [80, 80])), efficiencies(run(tmp_path, [32, 32], end=50))
    against = scaling(fast, slow)
    assert against.speedup == 2.0
    assert against.computation_scaling == 2.5
    assert against.global_efficiency == pytest.approx(2.5 * 32 / 50)
    assert (against.instruction_scaling, against.ipc_scaling) == (2.5, 1.0)
    assert against.frequency_scaling == pytest.approx(1.0)
    product = against.instruction_scaling * against.ipc_scaling * against.frequency_scaling
    assert product == pytest.approx(against.computation_scaling)
    table = scaling_table([slow, fast])
    assert table.column("speedup").to_pylist() == [1.0, 2.0]
    assert table.column("useful_max_ps").to_pylist() == [80_000, 32_000]


def test_without_counters_there_is_no_ipc(tmp_path):
    slow, fast = efficiencies(run(tmp_path, [80, 60], counters=False)), efficiencies(run(tmp_path, [40, 30], end=50))
    assert (slow.instructions, slow.ipc, slow.frequency_hz) == (None, None, None)
    assert scaling(fast, slow).ipc_scaling is None


def test_counters_of_some_phases_are_none(tmp_path):
    workload = run(tmp_path, [80, 60])
    tables = {**workload.tables, "counters": workload.tables["counters"].slice(0, 2)}
    assert efficiencies(Workload("part", 2, tables)).instructions is None


def test_a_workload_that_was_not_measured_is_refused(tmp_path):
    workload = run(tmp_path, [80, 60])
    tables = {**workload.tables, "measured": pa.Table.from_pylist([], schema=SCHEMAS["measured"])}
    with pytest.raises(UserError, match="does not say when its operations began and ended"):
        efficiencies(Workload("bare", 2, tables))


def test_a_run_that_never_computes_is_refused(tmp_path):
    with pytest.raises(UserError, match="no rank computes"):
        efficiencies(run(tmp_path, [80, 60], first="2", counters=False))


@pytest.mark.theory
def test_a_hybrid_trace_counts_its_threads(tmp_path, cli):
    """Two ranks of two threads, 100 ns: each is alone for 20 ns, then in a region for 40 and 20 ns, in which the second
    thread of the first rank lacks 10 ns; then a barrier. 150 of 400 ns."""
    lines = []
    for task, region in enumerate((40, 20), start=1):
        end = 20 + region
        lines += [f"1:{task}:1:{task}:1:0:{end}:1", f"1:{task}:1:{task}:2:0:20:2"]
        lines += [f"2:{task}:1:{task}:1:20:60000001:1", f"1:{task}:1:{task}:2:20:{30 + 20 * (task == 1)}:1"]
        lines += [f"1:{task}:1:{task}:2:{30 + 20 * (task == 1)}:{end}:{1 if task == 2 else 5}"]
        lines += [f"2:{task}:1:{task}:1:{end}:60000001:0"]
        lines += [f"2:{task}:1:{task}:1:{end}:50000002:8:50100001:0:50100002:0:50100004:1"]
        lines += [f"2:{task}:1:{task}:1:100:50000002:0"]
    head = "#Paraver (01/01/2020 at 00:00):100_ns:1(4):1:2(2:1,2:1),1\nc:1:1:2:1:2\n"
    (tmp_path / "hybrid.prv").write_text(head + "\n".join(lines) + "\n")
    found = ms.pop(tmp_path / "hybrid.prv", target="crossbar256").table().to_pylist()[0]
    expected = {
        "num_cores": 4, "parallel_efficiency": 150 / 400, "process_efficiency": 0.5, "load_balance": 50 / 60,
        "communication_efficiency": 0.6, "serialisation_efficiency": 1, "transfer_efficiency": 0.6,
        "thread_efficiency": 0.75, "serial_efficiency": 150 / 190, "thread_load_balance": 190 / 200,
    }  # fmt: skip
    assert {name: found[name] for name in expected} == pytest.approx(expected)
    assert found["scheduling_efficiency"] is found["ipc"] is None
    outcome = cli("pop", tmp_path / "hybrid.prv")
    assert "Thread efficiency" in outcome.out
    assert "threads-left-out" not in outcome.out


def test_threads_that_are_not_counted_are_told(tmp_path, cli):
    """Without parallel regions nothing tells when cores could have been at work."""
    lines = ["1:1:1:1:1:0:60:1", "1:1:1:1:2:0:60:1", "1:2:1:2:1:0:60:1"]
    for task in (1, 2):
        lines += [f"2:{task}:1:{task}:1:60:50000002:8:50100001:0:50100002:0:50100004:1"]
        lines += [f"2:{task}:1:{task}:1:100:50000002:0"]
    head = "#Paraver (01/01/2020 at 00:00):100_ns:1(4):1:2(2:1,1:1),1\nc:1:1:2:1:2\n"
    (tmp_path / "hybrid.prv").write_text(head + "\n".join(lines) + "\n")
    outcome = cli("pop", tmp_path / "hybrid.prv")
    assert outcome.status == 0, outcome.err
    assert "note: changes [threads-left-out]" in outcome.out
