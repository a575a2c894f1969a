"""What repeats in a trace: ``iterations`` of its main loop, ``clusters`` of its bursts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from manyscale.models.workload import Workload
from manyscale.models.workload.notes import Note
from manyscale.runner.api.answer import Answer, kept
from manyscale.runner.api.folders import Folder, Output
from manyscale.runner.api.inputs import TraceLike, read_workload
from manyscale.runner.errors import UserError

if TYPE_CHECKING:
    import pyarrow as pa

    from manyscale.runner.run.questions.iterations import IterationFigures
    from manyscale.sampling.phases.burst_clusters import BurstClusters

_PathLike = str | PathLike[str]


@dataclass(frozen=True, repr=False, eq=False)
class IterationsResult(Answer):
    """The iterations of a trace's main loop. Table ``iterations``: where each begins and ends on each rank.
    ``found``: what they hold; None where there are none."""

    workload: Workload
    iterations: pa.Table
    found: IterationFigures | None
    folder: Folder | None = None

    @property
    def notes(self) -> Sequence[Note]:  # type: ignore[override]
        return self.workload.notes

    @property
    def title(self) -> str:
        return f"iterations of {self.workload.name}"

    def facts(self) -> Mapping[str, str]:
        from manyscale.runner.report.text import duration, percent

        if self.found is None:
            return {"iterations": "none: nothing repeats often and long enough"}
        count = self.found.count_of_rank
        shown = f"{count.max()}" if (count == count.max()).all() else f"{count.min()} to {count.max()}"
        how = "marked in the source" if self.found.annotated else "found by their period"
        return {
            "iterations": f"{shown} per rank, {how}",
            "compute of one": duration(float(self.found.compute_s.mean())),
            "share of the compute": percent(self.found.compute_share),
        }

    @property
    def figures(self) -> Mapping[str, Any]:
        """Compute in s and operations of each iteration, means over ranks, and the shares that all hold."""
        found = self.found
        if found is None:
            return {"iterations": 0}
        return {
            "iterations": int(found.count_of_rank.max()),
            "annotated": found.annotated,
            "compute_s": found.compute_s.tolist(),
            "operations": found.operations.tolist(),
            "operations_share": found.operations_share,
            "compute_share": found.compute_share,
        }

    def _makers(self) -> Mapping[str, Callable[[], pa.Table]]:
        return {"iterations": lambda: self.iterations}


@dataclass(frozen=True, repr=False, eq=False)
class ClustersResult(Answer):
    """Phase clusters of a trace's bursts (``found``). Table ``clusters``: the cluster of each phase."""

    workload: Workload
    found: BurstClusters
    folder: Folder | None = None

    @property
    def notes(self) -> Sequence[Note]:  # type: ignore[override]
        return self.workload.notes

    @property
    def title(self) -> str:
        return f"phase clusters of {self.workload.name}"

    def facts(self) -> Mapping[str, str]:
        return {"clusters": str(self.found.num_clusters), "axes": f"{self.found.axes}, radius {self.found.eps:.4g}"}

    @property
    def figures(self) -> Mapping[str, Any]:
        """A row per cluster: bursts, share of the time, mean duration in ps, IPC, share of the ranks, place."""
        from dataclasses import asdict

        from manyscale.runner.run.questions.clusters import cluster_rows

        return {"clusters": [asdict(row) for row in cluster_rows(self.workload, self.found)]}

    def _makers(self) -> Mapping[str, Callable[[], pa.Table]]:
        from manyscale.runner.run.questions.clusters import clusters_table

        return {"clusters": lambda: clusters_table(self.found)}

    def _write(self, directory: Path) -> None:
        from manyscale.runner.report import clusters_page
        from manyscale.runner.run.parquet import write_table
        from manyscale.runner.run.questions.clusters import cluster_rows, clusters_table

        write_table(clusters_table(self.found), directory / "clusters.parquet")
        rows = cluster_rows(self.workload, self.found)
        clusters_page.write(self.workload, self.found, rows, directory / "clusters.html")


def iterations(
    trace: TraceLike,
    output: Output = None,
    *,
    format: str = "auto",
    min_repeats: int = 3,
    level: int = 0,
    cache: _PathLike | None = None,
) -> IterationsResult:
    """Find the iterations of a trace's main loop. ``min_repeats``: rounds of a loop; ``level``: 0 the main loop, 1 the
    one inside, and so on. Raises UserError."""
    from manyscale.models.workload.iterations import find_iterations
    from manyscale.runner.run.questions.iterations import iteration_figures

    workload = read_workload(trace, cache, format=format)
    try:
        table = find_iterations(workload, min_repeats, level)
    except ValueError as error:
        raise UserError(f"--min-repeats, --level: {error}") from None
    found = IterationsResult(workload, table, iteration_figures(workload, table))
    return kept(found, output, f"{workload.name}-iterations")


def clusters(
    trace: TraceLike,
    output: Output = None,
    *,
    format: str = "auto",
    axes: Literal["auto", "instructions", "ipc", "duration"] = "auto",
    eps: float | None = None,
    min_points: int = 10,
    coverage: float = 0.99,
    cache: _PathLike | None = None,
) -> ClustersResult:
    """Find the phase clusters of a trace's bursts. ``axes``: what stands beside duration; ``eps``: the radius, of axes
    scaled to 0..1 (found by default); ``min_points``: bursts that are dense; ``coverage``: the share of the time that
    is clustered. Raises UserError."""
    from manyscale.runner.run.questions.clusters import clusters_of

    workload = read_workload(trace, cache, format=format)
    found = clusters_of(workload, axes=axes, eps=eps, min_points=min_points, coverage=coverage)
    return kept(ClustersResult(workload, found), output, f"{workload.name}-clusters")
