"""POP metrics of EPOCH on 1 to 8 ranks against those that the traces' authors published beside them.

Reference: github.com/numericalalgorithmsgroup/pypop, examples/mpi/epoch_example_traces/modelfactors.csv (BSC's
modelfactors.py: Paraver's own analysis) and precomputed.csv. Traces and figures lie in $MANYSCALE_DATA; without it
these tests are skipped. Serialisation and transfer efficiency come from a replay on an ideal network there as here, but
by Dimemas: they agree to 4e-4.
"""

from __future__ import annotations

import csv
import os
from functools import lru_cache
from pathlib import Path

import pytest
from simgrid.prediction import predict_workload

from manyscale.models.machine import Machine
from manyscale.models.workload import Workload
from manyscale.runner.readers import paraver
from manyscale.runner.run.questions.efficiencies import Efficiencies, efficiencies, scaling
from manyscale.runner.run.questions.pop import run_efficiencies
from manyscale.runner.study import parse_study
from manyscale.runner.study.targets import resolve_target

FOLDER = Path(os.environ.get("MANYSCALE_DATA", "/nowhere")) / "formats" / "paraver" / "pypop-epoch"
RANKS = (1, 2, 4, 8)
pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="needs the traces in $MANYSCALE_DATA")


@lru_cache
def crossbar() -> Machine:
    return resolve_target(parse_study({"workload": {"path": "x"}, "target": "crossbar256"}, "test"), None)[0]


@lru_cache
def trace(num_ranks: int) -> Workload:
    return paraver.read(FOLDER / f"epoch_{num_ranks}proc.prv.gz")


@lru_cache
def measured(num_ranks: int) -> Efficiencies:
    return efficiencies(trace(num_ranks), crossbar().network)


@lru_cache
def model_factors() -> dict[str, dict[int, str]]:
    """Printed figure by metric and number of ranks."""
    with (FOLDER / "modelfactors.csv").open() as file:
        rows = [row for row in csv.reader(file, delimiter=";") if len(row) > 1]
    ranks = [int(each) for each in rows[0][1:]]
    return {row[0].lstrip("#"): dict(zip(ranks, row[1:], strict=True)) for row in rows[1:]}


def metrics(num_ranks: int) -> dict[str, float]:
    run, against = measured(num_ranks), scaling(measured(num_ranks), measured(1))
    assert run.ipc is not None
    assert run.frequency_hz is not None
    return {
        "Parallel efficiency": 100 * run.parallel_efficiency,
        "Load balance": 100 * run.load_balance,
        "Communication efficiency": 100 * run.communication_efficiency,
        "Computation scalability": 100 * against.computation_scaling,
        "Global efficiency": 100 * against.global_efficiency,
        "IPC scalability": 100 * (against.ipc_scaling or 0),
        "Instruction scalability": 100 * (against.instruction_scaling or 0),
        "Frequency scalability": 100 * (against.frequency_scaling or 0),
        "Speedup": against.speedup,
        "Average IPC": run.ipc,
        "Average frequency (GHz)": run.frequency_hz / 1e9,
        "Runtime (us)": run.run_time_ps / 1e6,
        "Useful duration (average)": run.useful_ps.mean() / 1e6,
        "Useful duration (maximum)": run.useful_ps.max() / 1e6,
        "Useful duration (total)": run.total_useful_ps / 1e6,
        "Useful instructions (total)": run.instructions or 0,
        "Useful cycles (total)": run.cycles or 0,
    }


@pytest.mark.peer
@pytest.mark.parametrize("num_ranks", RANKS)
def test_every_printed_digit(num_ranks):
    for name, value in metrics(num_ranks).items():
        printed = model_factors()[name][num_ranks]
        digits = len(printed.partition(".")[2])
        # the printed figure is rounded: half a unit of its last digit, and what floating point adds
        assert abs(value - float(printed)) <= 0.5000001 * 10**-digits, (name, value, printed)


@pytest.mark.known_gap
@pytest.mark.parametrize("num_ranks", RANKS)
def test_ideal_network_by_another_replay(num_ranks):
    """Here the time that is neither computing nor MPI (start of the tracer, its flushes) is not replayed."""
    run = measured(num_ranks)
    theirs = {name: float(model_factors()[name][num_ranks]) / 100 for name in model_factors() if "efficiency" in name}
    serialisation = run.serialisation_efficiency - theirs["Serialization efficiency"]
    transfer = run.transfer_efficiency - theirs["Transfer efficiency"]
    assert 1e-6 < abs(serialisation) < 4e-4
    assert 1e-6 < abs(transfer) < 4e-4


@pytest.mark.peer
@pytest.mark.parametrize("num_ranks", RANKS)
def test_replay_on_a_contention_free_machine(num_ranks):
    """The run time is near the measured one, whose communication takes 3 % at most, and no less than the compute."""
    predicted_ps = predict_workload(trace(num_ranks)).makespan_s * 1e12
    assert predicted_ps == pytest.approx(measured(num_ranks).run_time_ps, rel=0.01)
    assert predicted_ps >= measured(num_ranks).useful_ps.max()


def test_compute_is_that_of_the_trace():
    assert {n: measured(n).total_useful_ps for n in (1, 8)} == {1: 21882362819000, 8: 26902030728000}


# Of ImageMagick with OpenMP, pypop/examples/openmp/"OMP Metrics Example.ipynb", as printed there
OPENMP = FOLDER.with_name("pypop-imagemagick")
PUBLISHED = {
    1: (0.998414, 1.000000, 0.995348, 1.000000, 0.995348),
    2: (0.998448, 0.728963, 0.723112, 0.977705, 0.706990),
    4: (0.995565, 0.498454, 0.488539, 0.875288, 0.427612),
    6: (0.951526, 0.438806, 0.384788, 0.739129, 0.284408),
    8: (0.957615, 0.373220, 0.325171, 0.717507, 0.233313),
}


@pytest.mark.peer
@pytest.mark.skipif(not OPENMP.is_dir(), reason="needs pypop's traces of ImageMagick in $MANYSCALE_DATA")
@pytest.mark.parametrize("threads", PUBLISHED)
def test_openmp_as_published(threads):
    """PyPOP's region and serial efficiencies of OpenMP alone are additive: 1 less what each costs of the run time."""
    one, run = (run_efficiencies(OPENMP / f"omp{number}.prv.gz") for number in (1, threads))
    against = scaling(run, one)
    found = [run.parallel_efficiency, against.computation_scaling, against.global_efficiency]
    region, serial, *others = PUBLISHED[threads]
    assert found == pytest.approx(others, abs=1e-6)
    if threads > 1:
        lost = run.process_efficiency / run.serial_efficiency * run.thread_efficiency - run.parallel_efficiency
        assert 1 - lost == pytest.approx(serial, abs=1e-6)
        idle = run.process_efficiency * (1 - run.thread_load_balance)
        assert 1 - idle == pytest.approx(region, abs=1e-6)
