"""Efficiencies that count cores, of runs whose ranks have several.

Source: the POP centre's hybrid metrics for MPI x threads, multiplicative model (co-design.pop-coe.eu/metrics/hm: hybrid
parallel efficiency = MPI parallel efficiency x OpenMP parallel efficiency), with the thread level split as NAG's PyPOP
has it (pypop/metrics/hybrid.py, MPI_OpenMP_Multiplicative_Metrics): OpenMP region efficiency x serial region
efficiency. With C the time in which a rank computes, n its cores, U what these execute of the program, V their time in
the runtime system, and S what the initial task executes alone, all summed over ranks; T the run time, P the ranks:

* parallel efficiency = U / (P n T) = process efficiency x thread efficiency;
* process efficiency = C / (P T) = load balance x serialisation x transfer (run/results.py);
* thread efficiency = U / (n C) = serial efficiency x scheduling efficiency x thread load balance;
* serial efficiency = U / (U + (n - 1) S): what Amdahl's part costs;
* scheduling efficiency = (U + (n - 1) S) / (U + (n - 1) S + V): what the runtime system costs;
* thread load balance = (U + (n - 1) S + V) / (n C): cores without work, or waiting for dependences and locks, while
  other instances are under way. The last two are PyPOP's OpenMP region efficiency.

None is above 1. BSC's split of the thread level (hybrid load balance over that of processes) may be, where the rank
that computes longest has the most idle cores, so that it is not used here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from manyscale.runner.predict.phase_source import CoreUse
from manyscale.runner.predict.statistic import Statistic

_PARALLEL: Final = "application.parallel_efficiency"


def with_cores(figures: Mapping[str, Statistic], compute_ps: np.ndarray, use: CoreUse) -> dict[str, Statistic]:
    """``figures`` with efficiencies of cores behind those of processes. ``compute_ps`` int64[ranks]: how long each
    computes, by which the shares of its cores' time count."""
    total = np.maximum(use.total, 1)
    weight = compute_ps / total
    busy, serial, overhead, whole = (
        float(weight @ part) for part in (use.busy, use.serial_idle, use.overhead, np.where(use.total > 0, total, 0))
    )
    process = figures[_PARALLEL]
    thread = _ratio(busy, whole)
    of_all = {
        "application.parallel_efficiency": Statistic(
            float(process.value) * thread, "1", "ratio",
            "process efficiency x thread efficiency: time of all cores that executes the program / makespan",
        ),
        "application.process_efficiency": Statistic(
            float(process.value), "1", "ratio", "time in which a rank computes, mean of the ranks / makespan"
        ),
    }  # fmt: skip
    of_threads = {
        "application.thread_efficiency": Statistic(
            thread, "1", "ratio", "time of cores that executes the program / their time while their ranks compute"
        ),
        "application.serial_efficiency": Statistic(
            _ratio(busy, busy + serial), "1", "ratio",
            "of cores' time that executes the program, or is idle while the initial task works alone, the first",
        ),
        "application.thread_load_balance": Statistic(
            _ratio(busy + serial + overhead, whole), "1", "ratio",
            "1 less the share in which cores lack work, or wait, while task instances are under way",
        ),
        "application.scheduling_efficiency": Statistic(
            _ratio(busy + serial, busy + serial + overhead), "1", "ratio",
            "1 less the share of what is left that the runtime system takes",
        ),
    }  # fmt: skip
    found: dict[str, Statistic] = {}
    for name, statistic in figures.items():
        if name == _PARALLEL:
            found |= of_all
            continue
        found[name] = statistic
        if name == "application.transfer_efficiency":
            found |= of_threads
    return found


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else 1.0
