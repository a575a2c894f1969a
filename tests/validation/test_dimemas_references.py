"""The Dimemas model against Dimemas itself, through the whole path: .dim trace, .cfg as target, replay.

References: seconds that Dimemas (bsc-performance-tools/dimemas at 4ab5099) prints, with nine digits; tolerance one unit
of the last of them. The small programs are those of tests/data/dimemas (see SOURCES.md there). The traces are those of
the folder ``mpi/dimemas`` in $MANYSCALE_DATA, run with ``-S 65536``; without it these tests are skipped.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from manyscale.models.network.dimemas import model as dimemas
from manyscale.models.network.program import build_program
from manyscale.models.network.replay.timeline import Placement
from manyscale.runner.predict.placement import place_ranks
from manyscale.runner.readers import dimemas as dimemas_dim
from manyscale.runner.run.pipeline import compute_per_operation
from manyscale.runner.study import parse_study
from manyscale.runner.study.targets import resolve_target

pytestmark = pytest.mark.peer

DATA = Path(__file__).parents[1] / "data" / "dimemas"
LAST_DIGIT_S = 1.0e-9
MAKESPAN_S = {
    ("hpcg-8", "dim8"): 0.051360399,
    ("hpcg-8", "dim8u0"): 0.031095785,
    ("lulesh-64", "dim64"): 0.061580094,
    ("lulesh-64", "dim64u0"): 0.035263255,
}

traces = Path(os.environ.get("MANYSCALE_DATA", "/nonexistent")) / "mpi" / "dimemas"
needs_traces = pytest.mark.skipif(not traces.is_dir(), reason="MANYSCALE_DATA does not name the folder of the traces")


def makespan_s(trace: Path, configuration: Path, changes: dict | None = None) -> float:
    target = {"name": str(configuration), **(changes or {})}
    study = parse_study({"workload": {"path": str(trace)}, "target": target}, "test")
    machine, _ = resolve_target(study)
    workload = dimemas_dim.read(trace)
    node_of_rank, _ = place_ranks(study.mapping, machine, workload.num_ranks)
    compute = compute_per_operation(workload, workload.column("phases", "duration_ps"))
    program = build_program(workload, machine.network.collectives)
    timeline = dimemas.replay(program, compute, machine.network, Placement(node_of_rank, machine.num_nodes))
    return timeline.makespan_ps * 1e-12


@pytest.mark.parametrize("name", json.loads((DATA / "makespans.json").read_text()))
def test_small_programs_take_as_long_as_in_dimemas(name):
    reference = json.loads((DATA / "makespans.json").read_text())[name]
    found = makespan_s(DATA / f"{name}.dim.gz", DATA / f"{name}.cfg")
    assert found == pytest.approx(reference, abs=LAST_DIGIT_S, rel=0)


@needs_traces
@pytest.mark.parametrize(("trace", "configuration"), MAKESPAN_S)
def test_traces_take_as_long_as_in_dimemas(trace, configuration):
    eager = {"network": {"eager_threshold": "65536 B"}}  # -S 65536
    found = makespan_s(traces / f"{trace}.dim.gz", traces / f"{configuration}.cfg", eager)
    assert found == pytest.approx(MAKESPAN_S[trace, configuration], abs=LAST_DIGIT_S, rel=0)


@pytest.mark.parametrize(("model", "factor"), [(1, 1), (2, 7), (3, 3)])
def test_the_three_models_of_an_allreduce(model, factor, tmp_path):
    """(L + S / B) x factor for the fan-in and the fan-out: 1 MiB at 1250 MiB/s, 10 us, and 2 ms of compute."""
    text = (DATA / "dim8.cfg").read_text().replace("1250.0, 0, 3}", f"1250.0, 0, {model}}}")
    (tmp_path / "machine.cfg").write_text(text)
    found = makespan_s(DATA / "ar.dim.gz", tmp_path / "machine.cfg")
    assert found - 0.002 == pytest.approx(2 * factor * (10e-6 + 1 / 1250), rel=1e-12)


def test_the_command_line_runs_a_trace_on_a_configuration(cli):
    outcome = cli("run", "--workload", DATA / "ar.dim.gz", "--target", DATA / "dim8.cfg", "--model", "network=dimemas")
    assert outcome.status == 0, outcome.err
    assert "0.006860 s" in outcome.out
