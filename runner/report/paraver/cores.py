"""Task instances on cores as a Paraver trace of its own: ``cores.prv``, ``cores.pcf`` and ``cores.row``.

One application, a task and a node per rank that was chosen, a thread and a CPU per core, as the source's simulator
writes them (Grass, UPC 2017, figure 6.2b): a state Running while a core executes an instance, and an event of type
TASK_TYPE with the number of the task type at its begin, 0 at its end. Times are nanoseconds, rounded to nearest; what
rounds to no duration is left out. The trace ends with the run, so that it has the time scale of ``trace.prv``.

Cost: as paraver.py; four records per row.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from manyscale.models.workload.columns import to_numpy
from manyscale.runner.predict.node.tables import codes_and_names
from manyscale.runner.readers.paraver.labels import STATES
from manyscale.runner.report.paraver.files import opened_prv
from manyscale.runner.report.paraver.ranks import Records, nanoseconds, write_sorted
from manyscale.runner.report.text_columns import integers, join, picked
from manyscale.runner.run.results import Result

TASK_TYPE: Final = 60000023  # "Executed OpenMP task function" of Extrae 4 (TASKFUNC_EV), known to its configurations
_DATE: Final = "01/01/2000 at 00:00"


def write(result: Result, directory: Path) -> None:
    """Write the three files; nothing where no cores were simulated. Equal results give equal bytes."""
    cores = result.cores
    if cores is None or not cores.num_rows:
        return
    rank, core = (to_numpy(cores.column(name)).astype(np.int64) for name in ("rank", "core"))
    ranks, task = np.unique(rank, return_inverse=True)
    width = np.zeros(len(ranks), np.int64)
    np.maximum.at(width, task, core + 1)
    first_cpu = np.concatenate(([0], np.cumsum(width)))
    who = [
        f"{first_cpu[owner] + number + 1}:1:{owner + 1}:{number + 1}:"
        for owner in range(len(ranks))
        for number in range(int(width[owner]))
    ]
    begin, end = (nanoseconds(to_numpy(cores.column(name))) for name in ("start_ps", "end_ps"))
    kind, types = codes_and_names(cores.column("task_type"))
    keep = begin < end
    place, code = (first_cpu[task] + core)[keep], kind[keep]
    records = [_states(who, place, begin[keep], end[keep]), _events(who, place, begin[keep], end[keep], code)]
    run_end = nanoseconds(to_numpy(result.ranks.column("end_ps"))).max(initial=0)
    last = max(int(end.max(initial=0)), int(run_end))
    tasks = ",".join(f"{number}:{owner + 1}" for owner, number in enumerate(width.tolist()))
    with opened_prv(directory / "cores.prv") as file:
        nodes = f"{len(ranks)}({','.join(map(str, width.tolist()))})"
        file.write(f"#Paraver ({_DATE}):{last}_ns:{nodes}:1:{len(ranks)}({tasks})\n".encode())
        write_sorted(file, records)
    (directory / "cores.pcf").write_text(_configuration(types), encoding="utf-8", errors="backslashreplace")
    (directory / "cores.row").write_text(_names(ranks, width), encoding="utf-8", errors="backslashreplace")


def _states(who: list[str], place: np.ndarray, begin: np.ndarray, end: np.ndarray) -> Records:
    prefix = [f"1:{name}" for name in who]

    def lines(rows: np.ndarray) -> pa.Array:
        return join(picked(prefix, place[rows]), integers(begin[rows]), ":", integers(end[rows]), ":1\n")

    return Records(begin, end, lines)


def _events(who: list[str], place: np.ndarray, begin: np.ndarray, end: np.ndarray, code: np.ndarray) -> Records:
    """Ends first, so that at equal times the end of one instance stands before the begin of the next."""
    time = np.concatenate((end, begin))
    at = np.concatenate((place, place))
    value = np.concatenate((np.zeros(len(code), np.int64), code.astype(np.int64) + 1))
    prefix = [f"2:{name}" for name in who]

    def lines(rows: np.ndarray) -> pa.Array:
        return join(
            picked(prefix, at[rows]), integers(time[rows]), f":{TASK_TYPE}:", integers(value[rows]), "\n"
        )  # fmt: skip

    return Records(time, time, lines)


def _configuration(types: list[str]) -> str:
    lines = ["DEFAULT_OPTIONS", "", "LEVEL THREAD", "UNITS NANOSEC", "", "STATES"]
    lines += [f"{number}    {name}" for number, name, _ in STATES]
    lines += ["", "STATES_COLOR"]
    lines += [f"{number}    {{{','.join(map(str, colour))}}}" for number, _, colour in STATES]
    lines += ["", "EVENT_TYPE", f"0    {TASK_TYPE}    Task type", "VALUES", "0    End"]
    lines += [f"{number}    {' '.join(name.split())}" for number, name in enumerate(types, start=1)]
    return "\n".join(lines) + "\n"


def _names(ranks: np.ndarray, width: np.ndarray) -> str:
    total = int(width.sum())
    pairs = [(rank, core) for rank, cores in zip(ranks.tolist(), width.tolist(), strict=True) for core in range(cores)]
    cpus = "".join(f"rank {rank} core {core}\n" for rank, core in pairs)
    return (
        f"LEVEL CPU SIZE {total}\n{cpus}\n"
        f"LEVEL NODE SIZE {len(ranks)}\n{''.join(f'rank {rank}' + chr(10) for rank in ranks.tolist())}\n"
        f"LEVEL THREAD SIZE {total}\n{cpus}"
    )
