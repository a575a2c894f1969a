"""What the driver of a run on Ray costs, in CPU time.

python measure_executor.py overhead 100000 16    # units of 10 ms (asleep) on 16 workers of this machine
python measure_executor.py shares STUDY 2 OUT    # a study's run on 2 workers: CPU of the driver and of each worker
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time
from contextlib import closing, suppress
from pathlib import Path

import numpy as np
import psutil

TESTS = Path(__file__).parents[2] / "runner" / "run" / "execute"


def overhead(count: int, num_workers: int) -> None:
    """CPU of this process for each unit: handing out, results, journal and status.json included."""
    from manyscale.runner.predict.units import WorkUnit
    from manyscale.runner.run import standing
    from manyscale.runner.run.directory import Journal
    from manyscale.runner.run.execute.execution import Execution
    from manyscale.runner.run.execute.ray import RayExecutor
    from manyscale.runner.run.store import Store

    def units(first: int, last: int) -> list[WorkUnit]:
        return [
            WorkUnit(f"{index:032x}", "odd_units:doubled", {"offset": index, "seconds": 0.01}, {"values": "values"})
            for index in range(first, last)
        ]

    shared = {"values": np.arange(4)}
    with (
        tempfile.TemporaryDirectory() as folder,
        closing(RayExecutor(num_workers=num_workers)) as executor,
        standing.told(Path(folder), lambda *_: None) as now,
    ):
        execution = Execution(Store(Path(folder, "units")), executor, Journal(Path(folder)).record, now.progress)
        now.shows(execution)
        execution.execute(units(count, count + 100), lambda _names: shared)  # workers start
        begin, wall = time.process_time(), time.monotonic()
        execution.execute(units(0, count), lambda _names: shared)
        cpu, wall = time.process_time() - begin, time.monotonic() - wall
        twice = sum(outcome.attempts > 1 for _, outcome, _ in execution.outcomes.values())
    print(f"{count} units: {1000 * cpu / count:.3f} ms of driver CPU each, {wall:.0f} s wall, {twice} run twice")


def shares(study: str, num_workers: str, output: str) -> None:
    """CPU of the driver and of each worker; what more workers can gain follows (Amdahl)."""
    from manyscale.runner import cli

    seen: dict[int, float] = {}
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(0.5):
            for process in psutil.Process().children(recursive=True):
                with suppress(psutil.Error):
                    if process.name().startswith("ray::Shard"):
                        times = process.cpu_times()
                        seen[process.pid] = times.user + times.system

    threading.Thread(target=watch, daemon=True).start()
    arguments = ["run", study, "--executor", "ray", "--workers", num_workers, "-o", output, "--no-report"]
    sys.argv = ["manyscale", *arguments, "--cache", f"{output}-cache"]
    begin, wall = time.process_time(), time.monotonic()
    with suppress(SystemExit):
        cli.process()
    driver, wall = time.process_time() - begin, time.monotonic() - wall
    ended.set()
    work = sum(seen.values())
    gain = (driver + work) / (driver + max(seen.values()))
    each = ", ".join(f"{cpu:.1f}" for cpu in seen.values())
    print(f"driver {driver:.1f} s, workers {each} s of CPU: gain {gain:.2f} by CPU time; {wall:.0f} s wall")


if __name__ == "__main__":
    os.environ["PYTHONPATH"] = os.pathsep.join([*filter(None, sys.path), str(TESTS)])
    sys.path.append(str(TESTS))
    if sys.argv[1] == "overhead":
        overhead(int(sys.argv[2]), int(sys.argv[3]))
    else:
        shares(*sys.argv[2:5])
