"""Kernels of a trace with times whose instructions another trace has (``workload.gpu_trace``): the model of GPUs says
what they take on the target, so that no ratio of peaks stands in for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from manyscale.models.workload import Workload
from manyscale.models.workload.notes import Note, changes, informs, percent
from manyscale.models.workload.quantities import PS_PER_SECOND
from manyscale.runner.errors import UserError
from manyscale.runner.kernel_names import demangled
from manyscale.runner.predict.gpu.options import GpuChoice
from manyscale.runner.predict.gpu.predicted_launches import PredictedLaunches
from manyscale.runner.predict.phase_source import Case, Done
from manyscale.runner.registry import lookup
from manyscale.runner.study import WorkloadChoice
from manyscale.runner.study.traces import read_workload

_MOST_NAMES: Final = 3  # that an error names


class SimulatedKernels:
    """``launches``: those of the instruction trace that the workload has kernels of. Raises UserError where there are
    none."""

    def __init__(self, case: Case, place: str) -> None:
        study, self._workload = case.study, case.workload
        named = place, tuple(study.workload.launches or ())
        source: Workload = case.shared.once(
            ("gpu trace", *named), lambda: read_workload(WorkloadChoice(path=place, launches=study.workload.launches))
        )
        if not source.tables["launches"].num_rows:
            raise UserError(f"{place}: has no kernel launches; workload.gpu_trace names a GPU's trace")
        self._kernel, self._launch = case.shared.once(
            ("same kernels", *named, self._workload.digest), lambda: same_kernels(self._workload, source)
        )
        if not len(self._kernel):
            names = sorted(set(source.tables["launches"].column("kernel_name").to_pylist()))
            some = ", ".join(names[:_MOST_NAMES]) + (", ..." if len(names) > _MOST_NAMES else "")
            raise UserError(
                f"{place}: none of its launches ({some}) has the name, the blocks and the threads of a block of a "
                f"kernel of {study.workload.path}; trace the same program on the same input, or leave "
                "workload.gpu_trace out"
            )
        self.launches = PredictedLaunches(case, source, np.unique(self._launch), place)
        self._caches = study.options(GpuChoice).caches

    @property
    def is_simulated(self) -> np.ndarray:
        """bool[kernels]."""
        return np.bincount(self._kernel, minlength=self._workload.tables["kernels"].num_rows) > 0

    def kernel_ps(self, done: Done) -> np.ndarray:
        """int64[kernels]: what each takes, the mean of its launches, -1 of those that were not simulated. Without the
        latency of a launch: hosts and streams have theirs."""
        found = self.launches.predictions(done)
        cycles = (found.cycles - found.latency_cycles)[np.searchsorted(found.plan.row, self._launch)]
        number = self._workload.tables["kernels"].num_rows
        count = np.bincount(self._kernel, minlength=number)
        mean = np.bincount(self._kernel, cycles, number) / np.maximum(count, 1)
        duration = np.rint(mean * (PS_PER_SECOND / self.launches.gpu.frequency_hz)).astype(np.int64)
        return np.where(self.is_simulated, duration, -1)

    def notes(self, done: Done, mine: np.ndarray, takes_ps: np.ndarray, traced_ps: np.ndarray) -> Sequence[Note]:
        """``mine`` bool[given]: launches that were simulated; ``takes_ps``, ``traced_ps`` int64[given]: what each takes
        on the target, and took where it was traced, -1 unknown."""
        count, timed = int(np.count_nonzero(mine)), mine & (traced_ps >= 0)
        text = f"{count:,} launches take what model.gpu: {self.launches.name} says of their instructions"
        if np.any(np.bincount(self._kernel) > 1):
            text += ", where a kernel has several launches their mean"
        if both := int(traced_ps[timed].sum()):
            text += f": {int(takes_ps[timed].sum()) / both:.3g} times as long as they took where they were traced"
        model = lookup("gpu", self.launches.name)
        found = self.launches.predictions(done)
        own = model.notes(found.result) if hasattr(model, "notes") else []
        sampled = self._sampled(found.relative_half_width)
        return [
            informs("kernels-simulated", text, count=count),
            *sampled,
            *self.launches.plan.notes(self._caches),
            *own,
        ]

    def _sampled(self, off: float) -> list[Note]:
        """Where launches or their blocks were sampled. ``off``: as Predictions has it, of all together."""
        if off == 0:
            return []
        plan = self.launches.plan
        told = "nothing tells by how much" if np.isnan(off) else f"by {percent(off)} in all (95 %)"
        text = (
            f"of {len(plan.row):,} launches of {self.launches.place} {len(plan.chosen):,} were simulated, in part or "
            f"whole, and the others follow from these: what kernels take may be off, {told}; intervals do not have it"
        )
        return [changes("kernels-sampled", text, count=len(plan.row) - len(plan.chosen))]


def same_kernels(workload: Workload, launches: Workload) -> tuple[np.ndarray, np.ndarray]:
    """Pairs (row of ``kernels`` of ``workload``, row of the table of launches) of what has one name, as many blocks and
    as many threads in a block; by kernel. O(kernels + launches + pairs)."""
    table = launches.tables["launches"]
    names = map(_printed, table.column("kernel_name").to_pylist())
    threads = np.prod([launches.column("launches", f"block_{axis}").astype(np.int64) for axis in "xyz"], axis=0)
    blocks = launches.column("launches", "blocks")
    rows: dict[tuple[str, int, int], list[int]] = {}
    for row, key in enumerate(zip(names, blocks.tolist(), threads.tolist(), strict=True)):
        rows.setdefault(key, []).append(row)
    kernels = workload.tables["kernels"].column("kernel_name").to_pylist()
    shapes = (workload.column("kernels", name).tolist() for name in ("blocks", "block_threads"))
    found = [rows.get(key, []) for key in zip(map(_printed, kernels), *shapes, strict=True)]
    kernel = np.repeat(np.arange(len(found)), [len(each) for each in found])
    return kernel, np.array([row for each in found for row in each], np.int64)


def _printed(name: str) -> str:
    """A kernel's name as frameworks print it, without blanks, which versions print differently."""
    return "".join(demangled(name).split())
