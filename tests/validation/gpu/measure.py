"""Prints the tables of RESULTS.md; ``tests`` and ``tests/validation/gpu`` must stand in PYTHONPATH."""

from __future__ import annotations

import tempfile
from pathlib import Path

import gpu_micro
import numpy as np
import test_accelsim as stored
import test_further_micro as further


def line(*cells: object) -> None:
    print("| " + " | ".join(map(str, cells)) + " |")


def of_stored() -> None:
    line("trace", "SMs", "launches", "mean error", "largest", "mean with launch latency")
    line(*["---"] * 6)
    cases = [("bfs", 46, stored.cycles_of(stored.DATA / "bfs/accelsim_rtx3070_reference.csv"))]
    names = ("simple-trace-example", stored.BTREE, stored.FFMA, "simtune-ffmakernel-1-32-40")
    cases += [(f"misc/{name}", 46, stored.cycles_of(stored.HERE / "accelsim_misc.csv", trace=name)) for name in names]
    cases += [
        (path, sms, stored.cycles_of(stored.HERE / "accelsim_few_sms.csv", trace=Path(path).name, sms=sms))
        for path in ("bfs", f"misc/{stored.BTREE}", f"misc/{stored.FFMA}")
        for sms in (1, 2, 4)
    ]
    for path, sms, expected in cases:
        found = stored.simulated(path, sms=sms)
        without = np.abs(stored.errors(found, expected))
        with_launch = np.abs(stored.errors(found, expected, 0))
        each = f"{without.mean():.2%}", f"{without.max():.2%}", f"{with_launch.mean():.2%}"
        line(Path(path).name, sms, len(expected), *each)


def of_further() -> None:
    line("trace", "scheduler", "launch", "cycles", "Accel-Sim", "error", "cause, where above 2 %")
    line(*["---"] * 7)
    for (name, scheduler), rows in further.references().items():
        with tempfile.TemporaryDirectory() as folder:
            results = further.simulated(gpu_micro.write(Path(folder) / name, further.kernels_of()[name]), scheduler)
        for result, row in zip(results, rows, strict=True):
            error = further.relative_error(result, row)
            expected = int(row["cycles"]) - result.launch_latency_cycles
            cause = further.KNOWN_GAPS[name][1] if abs(error) > further.TOLERANCE else ""
            line(name, scheduler, row["launch"], result.busy_cycles, expected, f"{error:+.1%}", cause)


if __name__ == "__main__":
    of_stored()
    print()
    of_further()
