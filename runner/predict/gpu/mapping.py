"""Which phases of a run are kernel launches: those of a GPU's own trace, those that ranks made between their MPI calls,
or what a file says of an MPI run."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

import numpy as np

from manyscale.models.workload import PhaseKind, Workload
from manyscale.runner.errors import UserError
from manyscale.runner.study import Study, WorkloadChoice
from manyscale.runner.study.traces import read_workload

COLUMNS: Final = ("rank", "phase", "launch")


@dataclass(frozen=True)
class Executions:
    """``phase`` int64[n]: rows of the run's phases; ``launch`` int64[n]: rows of the table of launches. Sorted by
    phase; launches of one phase run one after the other, as they stand."""

    phase: np.ndarray
    launch: np.ndarray


class Launches:
    """The launches of a run: where they are from, which phases they are, and whether the run is nothing else
    (``is_whole_run``). Raises UserError."""

    def __init__(self, workload: Workload, study: Study) -> None:
        self.workload = workload
        if study.mapping.launches is None:
            self.source, self.place = workload, study.workload.path
            self.is_whole_run = not workload.tables["gpu_operations"].num_rows
            self.executions = of_stream(workload) if self.is_whole_run else of_ranks(workload)
        else:
            assert study.workload.gpu_trace is not None
            self.place = study.workload.gpu_trace
            self.is_whole_run = False
            chosen = WorkloadChoice(path=self.place, launches=study.workload.launches)
            self.source = read_workload(chosen)
            if not self.source.tables["launches"].num_rows:
                raise UserError(f"{self.place}: has no kernel launches; workload.gpu_trace names a GPU's trace")
            path = Path(study.mapping.launches).expanduser()
            self.executions = read_mapping(path, workload, self.source, self.place)

    @cached_property
    def rows(self) -> np.ndarray:
        """int64[]: rows of the table of launches that are executed, ascending."""
        return np.unique(self.executions.launch)

    @cached_property
    def is_launch(self) -> np.ndarray:
        """bool[phases of the run]."""
        found = np.zeros(self.workload.tables["phases"].num_rows, np.bool_)
        found[self.executions.phase] = True
        return found


def of_stream(workload: Workload) -> Executions:
    """Every launch of a GPU's trace is a phase of rank 0, in the order of the trace. Raises UserError."""
    count = workload.tables["launches"].num_rows
    if workload.tables["phases"].num_rows != count:
        raise UserError(f"{workload.name}: has {count} launches in {workload.tables['phases'].num_rows} phases")
    rows = np.arange(count)
    return Executions(rows, rows)


def of_ranks(workload: Workload) -> Executions:
    """Launches that ranks made: each is the last phase before its operation; those without a row in the table of
    launches take no part. Raises UserError. O(phases + launches log launches)."""
    operations = {name: workload.column("gpu_operations", name) for name in ("rank", "operation_id", "launch_id")}
    known = workload.column("launches", "launch_id")
    mine = np.isin(operations["launch_id"], known)
    first = workload.rank_offsets
    row = first[operations["rank"][mine]] + operations["operation_id"][mine]
    of_phase = first[workload.column("phases", "rank")] + workload.column("phases", "operation_id")
    phase = np.searchsorted(of_phase, row, "right") - 1
    if len(row) and (phase.min() < 0 or np.any(of_phase[phase] != row)):
        raise UserError(f"{workload.name}: a launch has no phase before its operation; trace the program again")
    return Executions(phase, np.searchsorted(known, operations["launch_id"][mine]))


def read_mapping(path: Path, workload: Workload, launches: Workload, trace: str) -> Executions:
    """What the file ``path`` says: a CSV with the columns of COLUMNS, a row per launch; phases are counted from 0 in
    their rank. ``trace``: where ``launches`` are from, for errors. Raises UserError that names the line."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            lines = [(number, row) for number, row in enumerate(csv.reader(file), 1) if any(map(str.strip, row))]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"{path}: cannot be read ({reason}); mapping.launches names a CSV file") from None
    head = [cell.strip() for cell in lines[0][1]] if lines else []
    if sorted(head) != sorted(COLUMNS):
        raise UserError(f"{path}: line 1: the columns are {', '.join(COLUMNS)}, not {', '.join(head) or 'none'}")
    if len(lines) == 1:
        raise UserError(f"{path}: maps no phase; add lines of rank, phase and launch")
    row_of = {launch_id: row for row, launch_id in enumerate(launches.column("launches", "launch_id").tolist())}
    offsets = workload.phase_offsets
    kind = workload.column("phases", "kind")
    phase, launch = [], []
    for number, cells in lines[1:]:
        place = f"{path}: line {number}"
        rank, index, launch_id = _numbers(place, head, cells)
        if not 0 <= rank < workload.num_ranks:
            raise UserError(f"{place}: rank {rank} is not one of the run's {workload.num_ranks} ranks")
        count = int(offsets[rank + 1] - offsets[rank])
        if not 0 <= index < count:
            raise UserError(f"{place}: rank {rank} has no phase {index}; its {count} phases are counted from 0")
        if launch_id not in row_of:
            raise UserError(f"{place}: {trace} has no launch {launch_id}; it has {_some(list(row_of))}")
        row = int(offsets[rank]) + index
        if kind[row] != PhaseKind.compute:
            raise UserError(f"{place}: phase {index} of rank {rank} computes nothing; a launch cannot stand for it")
        phase.append(row)
        launch.append(row_of[launch_id])
    order = np.argsort(np.array(phase), kind="stable")
    return Executions(np.array(phase, np.int64)[order], np.array(launch, np.int64)[order])


def _numbers(place: str, head: list[str], cells: list[str]) -> tuple[int, int, int]:
    try:
        found = {name: int(cell) for name, cell in zip(head, cells, strict=True)}
    except ValueError:
        raise UserError(f"{place}: {','.join(cells)!r} is not a whole number for each of {', '.join(head)}") from None
    return found["rank"], found["phase"], found["launch"]


def _some(numbers: list[int]) -> str:
    return (
        ", ".join(map(str, numbers)) if len(numbers) <= 8 else f"{len(numbers)} of them, {numbers[0]} to {numbers[-1]}"
    )
