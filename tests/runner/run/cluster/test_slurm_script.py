"""slurm.sh through an attempt that is cut and one that is queued again, with stand-ins that do what the manual says of
Slurm's commands (sbatch(1): --requeue and --signal; scontrol(1): requeue)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

import pytest
import yaml

SCRIPT = files("manyscale.cluster_configs").joinpath("host", "slurm.sh")
LINES = {0: ["init", "compute 1e6", "send 1 0 800 6", "finalize"], 1: ["init", "recv 0 0 800 6", "finalize"]}
OF_THE_RUN = ("manifest.json", "simulator.json", "status.json", "units.jsonl", "units.parquet")

# A job is the script, once and again as long as it was queued again meanwhile; Slurm does not start it anew by itself.
SBATCH = """
export SLURM_JOB_ID=42 SLURM_JOB_NODELIST=here SLURM_JOB_NUM_NODES=1 SLURM_CPUS_PER_TASK=1
for SLURM_RESTART_COUNT in 0 1 2; do
    export SLURM_RESTART_COUNT
    rm -f requeued
    bash "$@" &
    echo $! >job
    wait $!
    status=$?
    echo "attempt $SLURM_RESTART_COUNT: $status" >>attempts
    [ -e requeued ] || exit $status
done
"""
# Steps of a job that is queued again are terminated.
SCONTROL = """
case $1 in
    show) echo here ;;
    requeue) touch requeued; kill -TERM "$(cat step)" ;;
esac
"""
SRUN = """
while case $1 in --*) true ;; *) false ;; esac; do shift; done
[ "$1" != ray ] || echo $$ >step
exec "$@"
"""
RAY = """
while [ "$1" != -- ]; do shift; done
shift
exec "$@"
"""
# On one machine without Ray; in the first attempt the time is almost over when three points are there.
MANYSCALE = """
import os, signal, sys, time
from manyscale.runner.cli import main
from manyscale.runner.run.sweeps.finished import FinishedPoints

words = sys.argv[1:]
open("words", "a").write(" ".join(words) + "\\n")
if words[0] == "run":
    assert words[-4:] == ["--executor", "ray", "--address", "auto"]
    words[-4:] = ["--executor", "local"]
    if os.environ["SLURM_RESTART_COUNT"] == "0":
        add, seen = FinishedPoints.add, []

        def added(self, point):
            add(self, point)
            seen.append(point)
            if len(seen) == 3:
                os.kill(int(open("job").read()), signal.SIGUSR1)
                while True:
                    time.sleep(0.1)

        FinishedPoints.add = added
sys.exit(main(words))
"""


@pytest.mark.slow
@pytest.mark.contract
def test_a_job_that_is_queued_again_ends_with_the_same_bytes(
    cli: Callable, write_trace: Callable, tmp_path: Path
) -> None:
    study = {
        "schema": 1, "workload": {"path": str(write_trace(LINES))}, "target": "crossbar256",
        "sweep": {"cpu_ratio": [1.0, 0.5, 0.25], "target.network.latency": ["1 us", "2 us"]},
    }  # fmt: skip
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(study, sort_keys=False))
    assert cli("run", "study.yaml", "-o", "calm", "--executor", "local", "--no-report").status == 0

    (tmp_path / "job.py").write_text(MANYSCALE)
    program = f'exec {sys.executable} {tmp_path}/job.py "$@"'
    commands = {"sbatch": SBATCH, "scontrol": SCONTROL, "srun": SRUN, "ray": RAY, "manyscale": program}
    (tmp_path / "bin").mkdir()
    for name, body in commands.items():
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\n{body}")
        (tmp_path / "bin" / name).chmod(0o755)
    (tmp_path / "manyscale-env" / "bin").mkdir(parents=True)
    (tmp_path / "manyscale-env" / "bin" / "activate").touch()
    environment = {
        **os.environ,
        "PATH": f"{tmp_path}/bin:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "XDG_CACHE_HOME": str(tmp_path / "of-the-job"),
    }
    job = ["sbatch", str(SCRIPT), "study.yaml", "-o", "out", "--no-report"]
    done = subprocess.run(job, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr

    assert (tmp_path / "attempts").read_text() == "attempt 0: 143\nattempt 1: 0\n"
    first, asked, second = (tmp_path / "words").read_text().splitlines()
    assert (asked, second) == ("status out", first.replace(" --executor", " --resume --executor"))
    units = [json.loads(line) for line in (tmp_path / "out" / "units.jsonl").read_text().splitlines()]
    simulated = [unit["key"] for unit in units if unit["status"] == "simulated"]
    assert len(simulated) == len(set(simulated)), "nothing is simulated twice"
    assert contents(tmp_path / "out") == contents(tmp_path / "calm")


def contents(directory: Path) -> dict[str, bytes]:
    """What a run predicted."""
    paths = [path for path in directory.rglob("*") if path.is_file() and path.name not in OF_THE_RUN]
    return {str(path.relative_to(directory)): path.read_bytes() for path in paths}
