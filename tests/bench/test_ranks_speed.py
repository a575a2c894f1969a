"""CPU time of a run grows with the ranks, not faster: at most 5 times for 4 times as many."""

from __future__ import annotations

from pathlib import Path

import halo_program
import pytest
from cpu_time import least_cpu

from manyscale.models.network.program import build_program
from manyscale.models.workload import Workload
from manyscale.runner.readers import workload_folder
from manyscale.runner.run import replay_units
from manyscale.runner.run.pipeline import compute_per_operation
from manyscale.runner.run.results import messages_table, ranks_table

pytestmark = pytest.mark.bench

MOST = 5


def predicted(workload: Workload) -> None:
    """What a run does for each rank: its program, its replay with the critical path, and the tables."""
    compute = compute_per_operation(workload, workload.column("phases", "duration_ps"))
    network = {
        "latency": "10 us", "bandwidth": "1.25 GB/s", "envelope": "16 B", "eager_threshold": "64 KiB",
        "transfer_start": "match", "collectives": "mpich", "topology": {"kind": "crossbar"},
        "intra_node": {"latency": "10 us", "bandwidth": "1.25 GB/s"},
        "self": {"latency": "0 us", "bandwidth": "1 GB/s"},
    }  # fmt: skip
    parameters = {
        "network": network, "node_of_rank": range(workload.num_ranks), "num_nodes": workload.num_ranks,
        "model": "latency-bandwidth", "num_point_to_point": len(workload.send_rows),
    }  # fmt: skip
    program = build_program(workload, "mpich", called_from=256)
    arrays = replay_units.replay_point(parameters, {"program": program, "compute_ps": compute})
    ranks_table(workload, compute, arrays["end_ps"])
    messages_table(workload, arrays["send_ps"], arrays["receive_ps"])


def test_cpu_grows_with_the_ranks(tmp_path: Path) -> None:
    taken = []
    for num_ranks in (256, 1024):
        halo_program.write(num_ranks, tmp_path / str(num_ranks), 50)
        workload = workload_folder.read(tmp_path / str(num_ranks) / "halo", verify=False)
        taken.append(least_cpu(lambda given=workload: predicted(given), 3))
    print(f"CPU seconds of 256 and 1,024 ranks: {taken[0]:.2f}, {taken[1]:.2f}")
    assert taken[1] / taken[0] < MOST
