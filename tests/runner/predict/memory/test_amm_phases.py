"""``model: {cpu: amm}``: phases with a detailed level are predicted from it, all others scaled like those."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from manyscale.models.cpu import amm_phases
from manyscale.models.memory.access_stream import accesses, sites_of
from manyscale.models.memory.amm import amm
from manyscale.models.memory.amm.block_probabilities import count_transitions
from manyscale.models.memory.amm.program_counts import program_counts
from manyscale.models.memory.distances.histogram import reuse_profile
from manyscale.models.workload import PHASES_SCHEMA, REGIONS_SCHEMA, PhaseKind, Workload
from manyscale.models.workload.columns import to_arrow
from manyscale.models.workload.detail_tables import (
    BLOCK_ACCESSES_SCHEMA,
    BLOCKS_SCHEMA,
    INSTRUCTIONS_SCHEMA,
    InstructionClass,
)
from manyscale.models.workload.task_tables import EVENTS_SCHEMA, ITERATIONS_SCHEMA, TASKS_SCHEMA, EventKind
from manyscale.runner.predict.memory import amm_source
from manyscale.runner.predict.memory.phase_streams import streams_by_phase
from manyscale.runner.predict.phase_source import Case, Finished, SweepShared
from manyscale.runner.readers import workload_folder
from manyscale.runner.readers.stores import detail_store
from manyscale.runner.readers.stores.detail_store import DetailWriter
from manyscale.runner.study import WorkloadChoice, parse_study
from manyscale.runner.study.targets import resolve_target
from manyscale.runner.study.traces import read_workload

ADD, LOAD = 0, 1  # blocks: an addition that waits for the one before; a load and an addition to what it loads
NS = 1000
TARGET = "xeon-e5-2695"
CLOCK = "target.node.frequency=1 GHz"
Segment = tuple[int, int, int, list[int]]  # rank, operation, event, blocks


def rows(schema: pa.Schema, *values: Sequence[object]) -> pa.Table:
    """A table of rows."""
    columns = zip(*values, strict=True) if values else [[] for _ in schema]
    return pa.table([pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)], schema)


def static_tables() -> dict[str, pa.Table]:
    add, load = int(InstructionClass.fp_add), int(InstructionClass.move)
    return {
        "blocks": rows(BLOCKS_SCHEMA, *(["f", "f.c", line, "app", 16 * line, line == 0, 1 + line] for line in (0, 1))),
        "instructions": rows(
            INSTRUCTIONS_SCHEMA, [ADD, add, 1, [32], [32]], [LOAD, load, 1, [0], [33]], [LOAD, add, 1, [33, 34], [34]]
        ),
        "block_accesses": rows(BLOCK_ACCESSES_SCHEMA, [LOAD, 0, False, 8]),
    }


@pytest.fixture
def detailed(write_trace: Callable[..., Path], tmp_path: Path) -> Callable[..., Workload]:
    """``detailed(operations, phases, segments, iterations=, events=)``: a workload of ranks that all do the same
    ``operations``, unless each has its own. ``phases``: (rank, operation, region, ns). Loads walk through memory, a
    line each."""

    def make(
        operations: Sequence[str] | dict[int, Sequence[str]],
        phases: Sequence[tuple[int, int, int, int]],
        segments: Sequence[Segment],
        iterations: Sequence[tuple[int, int, int]] = (),
        events: Sequence[tuple[int, int, int]] = (),
    ) -> Workload:
        ranks = range(1 + max(rank for rank, *_ in phases))
        of_rank = operations if isinstance(operations, dict) else dict.fromkeys(ranks, operations)
        folder = write_trace(of_rank, f"trace-{len(list(tmp_path.iterdir()))}")
        plain = read_workload(WorkloadChoice(path=str(folder)))
        writer = DetailWriter(tmp_path / f"{folder.name}.stream")
        line = 0
        for rank, operation, event, block_list in segments:
            block_ids = np.array(block_list, np.int32)
            counts = (block_ids == LOAD).astype(np.int32)
            addresses = 64 * (line + np.arange(counts.sum(), dtype=np.uint64))
            line += int(counts.sum())
            writer.add(block_ids, counts, addresses)
            writer.end_segment(rank, 0, operation, event, -1, int(len(block_ids) + counts.sum()))
        segment_table, store = writer.close()
        tables = {
            **plain.tables,
            **static_tables(),
            "segments": segment_table,
            "regions": rows(REGIONS_SCHEMA, ["solve"], ["halo"]),
            "phases": rows(PHASES_SCHEMA, *([r, o, PhaseKind.compute, g, ns * NS] for r, o, g, ns in phases)),
            "iterations": rows(
                ITERATIONS_SCHEMA,
                *([rank, i, first, end, 0, 0, True] for i, (rank, first, end) in enumerate(iterations)),
            ),
            "events": rows(
                EVENTS_SCHEMA, *([rank, o, EventKind.mark_begin, 0, -1, 0, ns * NS] for rank, o, ns in events)
            ),
            "tasks": rows(
                TASKS_SCHEMA, *([rank, 0, -1, -1, 0, 0, 0] for rank in sorted({rank for rank, *_ in events}))
            ),
        }
        return replace(plain, tables=tables, detail=store)

    return make


FOUR = ["init", "barrier", "barrier", "barrier", "finalize"]


def times(workload: Workload, ns: Sequence[float]) -> amm_phases.PhaseTimes:
    pieces = amm_phases.pieces_of(workload)
    return amm_phases.phase_times(workload, pieces, np.array([1000 * each for each in ns], np.int64))


@pytest.mark.theory
def test_each_phase_takes_the_ratio_of_what_is_most_like_it(detailed):
    """Of rank 0, the second of three iterations is detailed: 100 ns in region 0 become 50, 200 ns in region 1 become
    400. A phase outside all iterations has the ratio of its region, one outside all regions that of all: 450 / 300."""
    phases = [
        (0, 0, -1, 80),
        (0, 1, 0, 100), (0, 2, 1, 200),
        (0, 3, 0, 110), (0, 4, 1, 210),
        (1, 0, 1, 30),
        (1, 1, 0, 120), (1, 2, 1, 220),
        (1, 3, 0, 130), (1, 4, 0, 70),
    ]  # fmt: skip
    iterations = [(rank, first, first + 2) for rank in (0, 1) for first in (1, 3)]
    segments = [(0, 1, -1, [ADD]), (0, 2, -1, [ADD])]
    workload = detailed([*FOUR[:-1], "barrier", "finalize"], phases, segments, iterations)
    found = times(workload, [50, 400])
    assert found.duration_ps.tolist() == [
        120_000, 50_000, 400_000, 55_000, 420_000, 60_000, 60_000, 440_000, 65_000, 35_000
    ]  # fmt: skip
    total = sum(ns for *_, ns in phases)
    # 70 ns lie in region 0, but where the detailed iteration is in region 1
    same_place, same_region = 110 + 210 + 120 + 220 + 130, 30 + 70
    assert found.share_by_basis == pytest.approx(np.array([300, same_place, same_region, 80]) / total, rel=1e-12)
    assert found.ratio == pytest.approx(found.duration_ps.sum() / 1000 / total, rel=1e-12)


@pytest.mark.theory
def test_ranks_with_fewer_neighbours_have_the_same_places(detailed):
    """Rank 0 sends to two, rank 1 to one; each sends in two runs, with a barrier behind each."""
    operations = {
        0: ["init", *["isend 1 0 8 6"] * 2, "barrier", *["isend 1 0 8 6"] * 2, "barrier", "finalize"],
        1: ["init", "isend 0 0 8 6", "barrier", "isend 0 0 8 6", "barrier", "finalize"],
    }
    ratios = {1: 0.5, 2: 3, 3: 2, 4: 4, 5: 7, 6: 5}
    phases = [(rank, at, -1, 100) for rank, last in ((0, 6), (1, 4)) for at in range(1, last + 1)]
    workload = detailed(operations, phases, [(0, at, -1, [ADD]) for at in ratios], [(0, 1, 7), (1, 1, 5)])
    found = times(workload, [100 * ratio for ratio in ratios.values()])
    assert (found.duration_ps[6:] / 100_000).tolist() == [ratios[at] for at in (1, 3, 4, 6)]
    assert found.share_by_basis == pytest.approx([0.6, 0.4, 0, 0])


@pytest.mark.theory
def test_a_phase_that_is_detailed_in_part_scales_the_rest_of_it(detailed):
    """Of the 100 ns before operation 1, the 30 between two events were recorded, and of the 50 before operation 2 the
    20 behind its last event: what they take is predicted, the rest is scaled by 18 / 50."""
    events = [(0, 1, 40), (0, 1, 30), (0, 2, 30)]
    segments = [(0, 1, 1, [ADD]), (0, 2, -1, [ADD])]
    workload = detailed(FOUR, [(0, 1, -1, 100), (0, 2, -1, 50)], segments, events=events)
    assert amm_phases.pieces_of(workload).traced_ps.tolist() == [30 * NS, 20 * NS]
    found = times(workload, [6, 12])
    assert found.duration_ps.tolist() == [6_000 + round(70_000 * 0.36), 12_000 + round(30_000 * 0.36)]
    assert found.share_by_basis == pytest.approx([50 / 150, 0, 0, 100 / 150])


@pytest.mark.theory
def test_events_tell_the_phases_of_one_operation_apart(detailed):
    """Before operation 1 lie 10 ns outside, 60 in "solve" and 30 outside; marks cut them, and "solve" was recorded."""
    events = [(0, 1, 10), (0, 1, 60)]
    phases = [(0, 1, -1, 10), (0, 1, 0, 60), (0, 1, -1, 30), (0, 2, 0, 20)]
    found = times(detailed(FOUR, phases, [(0, 1, 1, [ADD])], events=events), [15])
    assert found.duration_ps.tolist() == [2_500, 15_000, 7_500, 5_000]
    assert found.share_by_basis == pytest.approx([60 / 120, 0, 20 / 120, 40 / 120])


@pytest.mark.theory
def test_segments_without_events_are_all_that_precedes_their_operation(detailed):
    phases = [(0, 1, 0, 60), (0, 1, 1, 20)]
    found = times(detailed(FOUR, phases, [(0, 1, -1, [ADD])], events=[(0, 1, 60)]), [40])
    assert found.duration_ps.tolist() == [30_000, 10_000]
    assert found.share_by_basis.tolist() == [1, 0, 0, 0]


@pytest.mark.theory
def test_sleep_is_not_scaled(detailed):
    workload = detailed(FOUR, [(0, 1, -1, 100), (0, 2, -1, 50)], [(0, 1, -1, [ADD])])
    kind = to_arrow(np.array([PhaseKind.compute, PhaseKind.sleep], np.int8))
    phases = workload.tables["phases"].set_column(2, PHASES_SCHEMA.field(2), kind)
    workload = replace(workload, tables={**workload.tables, "phases": phases})
    assert times(workload, [10]).duration_ps.tolist() == [10_000, 50_000]


def chains(detailed, lengths: Sequence[int], num_ranks: int = 1) -> Workload:
    """Phases of 100 ns; before operation 1, 2, ... of rank 0 a chain of so many additions was recorded."""
    phases = [(rank, operation, -1, 100) for rank in range(num_ranks) for operation in (1, 2, 3)]
    return detailed(FOUR, phases, [(0, at, -1, [ADD] * length) for at, length in enumerate(lengths, start=1)])


def durations_ps(workload: Workload, **study: object) -> np.ndarray:
    """Times of all phases, by units that are computed here."""
    content = {"workload": {"path": "it"}, "target": TARGET, "model": {"cpu": "amm"}, **study}
    chosen = parse_study(content, "study")
    source = amm_source.AmmSource(Case(workload, chosen, *resolve_target(chosen), SweepShared()))
    (stage,) = source.stages({})
    results = [
        amm_source.predict_pieces(unit.parameters, {"stream": stage.inputs[unit.inputs["stream"]]})
        for unit in stage.units
    ]
    done = {stage.name: Finished(stage.units, results)}
    assert source.stages(done) == []
    return source.phase_times(done)


@pytest.mark.theory
def test_a_detailed_phase_takes_what_its_chain_of_additions_takes(cli, detailed, tmp_path):
    """At 1 GHz an addition that waits for the one before takes 3 ns; up to a pipeline's length at the ends."""
    workload = chains(detailed, [2000, 500], num_ranks=2)
    found = durations_ps(workload, target={"name": TARGET, "node": {"frequency": "1 GHz"}})
    assert found[:2] == pytest.approx([6000 * NS, 1500 * NS], abs=50 * NS)
    workload_folder.write(workload, tmp_path / "w")
    words = ("--workload", tmp_path / "w", "--target", TARGET, "--set", CLOCK, "--model", "cpu=amm", "-o", "run")
    outcome = cli("run", *words)
    assert (outcome.status, outcome.err) == (0, "")
    figures = json.loads((tmp_path / "run" / "stats.json").read_text())
    value = {name.removeprefix("application."): entry["value"] for name, entry in figures.items()}
    assert value["compute_detailed"] == pytest.approx(200 / 600)
    assert value["compute_other"] == pytest.approx(400 / 600)
    assert value["cpu_ratio"] == pytest.approx(37.5, rel=0.01)  # 7500 ns instead of 200
    assert value["compute"] == pytest.approx(300e-9 * 37.5, rel=0.01)
    assert "CPU amm (overlap)" in (tmp_path / "run" / "report.html").read_text()


@pytest.mark.theory
def test_a_trace_without_times_takes_what_is_predicted(cli, detailed, tmp_path):
    """As an emulator's: 2000 additions, 3 ns each at 1 GHz; there is no traced time to compare with."""
    workload_folder.write(detailed(["init", "finalize"], [(0, 1, -1, 0)], [(0, 1, -1, [ADD] * 2000)]), tmp_path / "w")
    words = ("--workload", tmp_path / "w", "--target", TARGET, "--set", CLOCK, "--model", "cpu=amm", "-o", "run")
    outcome = cli("run", *words, "--no-report")
    assert (outcome.status, outcome.err) == (0, "")
    assert "changes [as-if-repeated]" in outcome.out
    figures = json.loads((tmp_path / "run" / "stats.json").read_text())
    assert figures["application.makespan"]["value"] == pytest.approx(6000e-9, rel=0.01)
    assert figures["application.compute_detailed"]["value"] == 1
    assert "application.cpu_ratio" not in figures


@pytest.mark.theory
@pytest.mark.parametrize("chunk_size", [70, 1 << 20])
def test_each_rank_runs_by_itself_and_warm(detailed, monkeypatch, chunk_size):
    """Segments of two ranks lie in one chunk, or in several. Each load is added to one sum, 3 ns each at 1 GHz where
    the loads hit the first cache; the first time, main memory's bandwidth would make it 5.7 ns."""
    phases = [(0, 1, -1, 100), (0, 2, -1, 100), (1, 1, -1, 100)]
    segments = [(0, 1, -1, [LOAD] * 100), (1, 1, -1, [LOAD] * 200), (0, 2, -1, [LOAD] * 50)]
    target = {"name": TARGET, "node": {"frequency": "1 GHz"}}
    monkeypatch.setattr(detail_store, "CHUNK_SIZE", chunk_size)
    workload = detailed(FOUR, phases, segments)
    expected = [300 * NS, 150 * NS, 600 * NS]
    assert durations_ps(workload, target=target) == pytest.approx(expected, abs=25 * NS)
    streams, _ = streams_by_phase(workload, amm_phases.pieces_of(workload).of_segment)
    # executions 0 to 99 and 300 to 349 are of rank 0: chunks 0, 1 and 4 of 70; those of rank 1 are in 1 to 4
    assert [len(stream.chunks) for stream in streams] == ([3, 4] if chunk_size == 70 else [1, 1])
    lines = []
    for stream in streams:
        stretches = stream.stretches(stream.open(), range(len(stream.chunks)))
        lines.append([int(address) // 64 for _, _, addresses, _ in stretches for address in addresses])
    assert lines == [[*range(100), *range(300, 350)], [*range(100, 300)]]


@pytest.mark.theory
def test_the_analytical_form_is_amm_of_the_repeated_stream(detailed):
    """One piece, run again and again: its profile is that of the steady state, its time the equations'."""
    workload = detailed(FOUR, [(0, 1, -1, 100)], [(0, 1, -1, [LOAD] * 3000 + [ADD] * 10)])
    study = parse_study({"workload": {"path": "it"}, "target": TARGET}, "study")
    node = resolve_target(study)[0].node
    batch = workload.detail.read(0, 1)
    accessed = accesses(batch.block_ids, batch.addresses, sites_of(workload), 64)
    profile = reuse_profile([accessed], 64, steady=True)
    counts = program_counts(workload, count_transitions(workload).executions.astype(float))
    for form in ("corrected", "printed"):
        expected = amm.predict(counts, profile, node, amm.AmmParameters(form=form)).total_ps
        assert durations_ps(workload, amm={"form": form}).tolist() == [expected]


@pytest.mark.contract
def test_forms_in_which_nothing_overlaps_say_so(cli, detailed, tmp_path):
    workload_folder.write(chains(detailed, [100]), tmp_path / "w")
    words = ("run", "--workload", tmp_path / "w", "--target", TARGET, "--model", "cpu=amm", "--no-report")
    for form in ("overlap", "corrected", "printed"):
        outcome = cli(*words, "--set", f"amm.form={form}", "-o", form)
        assert ("changes [nothing-overlaps]" in outcome.out) == (form != "overlap")
        assert ("address translation takes no time" in outcome.out) == (form != "overlap")
        assert ("prefetchers fetch nothing" in outcome.out) == (form != "overlap")


@pytest.mark.property
def test_where_the_stream_is_cut_into_units_changes_little(detailed, monkeypatch):
    """Loads that miss some caches, and chains between them; what precedes a unit fills all caches."""
    small = {"L2": {"size": "16 KiB"}, "L3": {"size": "80 KiB"}}
    target = {"name": TARGET, "node": {"caches": small}}
    monkeypatch.setattr(detail_store, "CHUNK_SIZE", 2000)
    part = [LOAD] * 900 + [ADD] * 300
    workload = detailed(FOUR, [(0, at, -1, 100) for at in (1, 2, 3)], [(0, at, -1, part * 4) for at in (1, 2, 3)])
    assert len(workload.detail.execution_bounds()) > 6
    whole = durations_ps(workload, target=target)
    monkeypatch.setattr(amm_source, "CHUNKS_PER_UNIT", 3)
    assert durations_ps(workload, target=target) == pytest.approx(whole, rel=0.02)


@pytest.mark.contract
def test_results_are_keyed_by_the_node_and_shared_by_networks(cli, detailed, tmp_path):
    workload_folder.write(chains(detailed, [200, 50], num_ranks=2), tmp_path / "w")
    words = ("--workload", tmp_path / "w", "--target", TARGET, "--model", "cpu=amm", "--no-report")
    assert "4 work units, 0 of them stored already" in cli("run", *words, "--dry-run").out

    def simulated(*more: str) -> dict[str, int]:
        output = tmp_path / f"run-{len(list(tmp_path.iterdir()))}"
        outcome = cli("run", *words, "-o", output, *(word for each in more for word in ("--set", each)))
        assert outcome.status == 0, outcome.err
        return json.loads((output / "simulator.json").read_text())["units"]

    assert simulated() == {"total": 4, "simulated": 4, "reused": 0, "failed": 0}  # pieces, two ranks, replay
    assert "4 work units, 4 of them stored already" in cli("run", *words, "--dry-run").out
    assert simulated("target.network.latency=3 us")["simulated"] == 1
    assert simulated("target.node.cores_per_socket=12")["simulated"] == 0
    assert simulated("target.node.frequency=2100 MHz")["simulated"] == 0
    assert simulated("target.node.caches.L2.latency=13 cycles")["simulated"] == 4
    assert simulated("target.node.tlbs.L1.latency=1 cycles")["simulated"] == 4
    assert simulated("amm.form=corrected")["simulated"] == 4
    assert simulated("ipc_correction.ranks={1: 2.0}")["simulated"] == 2


@pytest.mark.contract
def test_a_sweep_over_clocks_predicts_each_once_and_resumes(cli, detailed, tmp_path):
    workload_folder.write(chains(detailed, [400]), tmp_path / "w")
    words = ["--workload", tmp_path / "w", "--target", TARGET, "--model", "cpu=amm", "--no-report"]
    words += ["--set", "sweep={target.node.frequency: [1 GHz, 2 GHz], target.network.latency: [1 us, 2 us]}"]
    assert cli("run", *words, "-o", "run").status == 0
    units = json.loads((tmp_path / "run" / "simulator.json").read_text())["units"]
    assert units["simulated"] == 2 + 2 + 4
    made = [json.loads((tmp_path / "run" / "points" / f"000{i}" / "stats.json").read_text()) for i in (0, 2)]
    compute = [each["application.compute"]["value"] for each in made]
    assert compute[0] == pytest.approx(2 * compute[1], rel=0.01)
    assert cli("run", "--resume", "-o", "run").status == 0


@pytest.mark.contract
def test_perfect_balance_balances_what_was_predicted(cli, detailed, tmp_path):
    phases = [(0, 1, 0, 100), (1, 1, 1, 300)]
    segments = [(0, 1, -1, [ADD] * 1000), (1, 1, -1, [ADD] * 3000)]
    workload_folder.write(detailed(FOUR, phases, segments), tmp_path / "w")
    words = ("--workload", tmp_path / "w", "--target", TARGET, "--model", "cpu=amm", "--no-report")
    assert cli("run", *words, "-o", "run", "--set", CLOCK, "--set", "ipc_correction.balance=true").status == 0
    figures = json.loads((tmp_path / "run" / "stats.json").read_text())
    assert figures["application.load_balance"]["value"] == pytest.approx(1, abs=1e-6)
    assert figures["application.compute"]["value"] == pytest.approx(6e-6, rel=0.01)


@pytest.mark.contract
def test_what_cannot_be_predicted_is_refused_in_one_line(cli, detailed, refused, tmp_path):
    workload = chains(detailed, [100])
    workload_folder.write(workload, tmp_path / "w")

    def run(path: str, *more: str, target: str = TARGET):
        return cli("run", "--workload", tmp_path / path, "--target", target, "--model", "cpu=amm", "-o", "run", *more)

    refused(run("trace-0"), "trace-0: has no detailed level", "manyscale trace --level detailed")
    refused(run("w", target="crossbar256"), "crossbar256: model cpu: amm needs node.", "node.core", "node.main_memory")
    refused(run("w", "--set", "cpu_ratio=0.5"), "cpu_ratio: model cpu: amm computes it; leave it out")
    refused(run("w", "--set", "amm.form=other"), "amm.form", "'overlap', 'corrected' or 'printed'")
    segments = workload.tables["segments"]
    unknown = segments.set_column(2, segments.schema.field(2), to_arrow(np.full(len(segments), -1, np.int32)))
    function = replace(workload, tables={**workload.tables, "segments": unknown})
    workload_folder.write(function, tmp_path / "function")
    refused(run("function"), "function: none of its detailed level", "without --function")
    bare = {"instructions": INSTRUCTIONS_SCHEMA.empty_table(), "blocks": workload.tables["blocks"]}
    bare["blocks"] = bare["blocks"].set_column(6, BLOCKS_SCHEMA.field(6), to_arrow(np.full(2, -1, np.int32)))
    workload_folder.write(replace(workload, tables={**workload.tables, **bare}), tmp_path / "bare")
    refused(run("bare"), "bare: its blocks show no instructions")


@pytest.mark.contract
def test_a_stream_that_is_gone_is_told_with_what_to_do(detailed, tmp_path):
    workload = chains(detailed, [100])
    study = parse_study({"workload": {"path": "it"}, "target": TARGET, "model": {"cpu": "amm"}}, "study")
    (stage,) = amm_source.AmmSource(Case(workload, study, *resolve_target(study), SweepShared())).stages({})
    (unit,) = stage.units
    workload.detail.path.rename(tmp_path / "moved")
    with pytest.raises(ValueError, match=r"\.stream: cannot be read .*trace the program again"):
        amm_source.predict_pieces(unit.parameters, {"stream": stage.inputs[unit.inputs["stream"]]})


@pytest.mark.slow
@pytest.mark.contract
def test_executors_give_the_same_bytes(cli, detailed, tmp_path):
    segments = [(rank, at, -1, [LOAD, ADD] * 500) for rank in (0, 1) for at in (1, 2)]
    workload = detailed(FOUR, [(rank, at, -1, 100) for rank in (0, 1) for at in (1, 2, 3)], segments)
    workload_folder.write(workload, tmp_path / "w")
    words = ("--workload", tmp_path / "w", "--target", TARGET, "--model", "cpu=amm", "--no-report")
    for executor in ("local", "ray"):
        outcome = cli("run", *words, "-o", executor, "--executor", executor, "--cache", f"c-{executor}")
        assert outcome.status == 0, outcome.err
        assert json.loads((tmp_path / executor / "simulator.json").read_text())["units"]["simulated"] == 5
    for name in ("timeline/ranks.parquet", "stats.json", "plan.parquet"):
        assert (tmp_path / "local" / name).read_bytes() == (tmp_path / "ray" / name).read_bytes()
