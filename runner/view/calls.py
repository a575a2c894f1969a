"""Names of the MPI calls behind the operations of a run: from its trace, which a run directory does not hold."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np

from manyscale.models.workload import OperationKind
from manyscale.runner.errors import UserError
from manyscale.runner.readers.paraver.labels import call_name
from manyscale.runner.run import directory as rundir
from manyscale.runner.study import parse_study
from manyscale.runner.study.traces import read_workload


class CallNames:
    """What the operations of a run are, known some time after it was first asked: the trace is read in a thread of its
    own. Of it one byte an operation stays in memory."""

    def __init__(self, directory: Path, cache: Path) -> None:
        self._kinds: np.ndarray | None = None
        self._offsets: np.ndarray | None = None
        self.problem = ""  # why there are no names
        self._reading = threading.Thread(target=self._read, args=(directory, cache), daemon=True)
        self._reading.start()

    def name(self, rank: int, operation: int) -> str | None:
        """``MPI_Send``, or None while the trace is being read, or if it cannot be."""
        if self._kinds is None or self._offsets is None or not 0 <= rank < len(self._offsets) - 1:
            return None
        row = int(self._offsets[rank]) + operation
        if not int(self._offsets[rank]) <= row < int(self._offsets[rank + 1]):
            return None
        return call_name(OperationKind(int(self._kinds[row])))

    def wait(self) -> None:
        """Until the trace was read."""
        self._reading.join()

    def _read(self, directory: Path, cache: Path) -> None:
        try:
            study = parse_study(rundir.read_resolved(directory), str(directory / rundir.RESOLVED))
            workload = read_workload(study.workload, cache)
            known = rundir.read_manifest(directory).get("inputs", {})
            if workload.digest not in known.values():
                raise UserError(f"{study.workload.path}: the trace was changed since the run")
        except (UserError, OSError) as error:
            self.problem = str(error)
            return
        self._offsets = np.array(workload.rank_offsets, np.int64)
        self._kinds = np.array(workload.column("operations", "kind"), np.uint8)
