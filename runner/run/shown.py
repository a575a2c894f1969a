"""Which traces and pages a run writes of a result, and which are made when they are asked for.

Traces of a large run, and of the points of a sweep, which nobody opens all, would take most of the disk. A point's page
draws with the script that all pages of the sweep share.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from manyscale.runner.errors import UserError
from manyscale.runner.run import script
from manyscale.runner.run.chosen_ranks import MOST_CHOSEN, MOST_RANKS
from manyscale.runner.run.results import Result

# kinds of traces, and what writes them
TRACES: Final = {"paraver": ("paraver",), "perfetto": ("perfetto",)}
PAGE: Final = "report"
POINT_PAGE: Final = "point-report"
# states, messages, stretches of cores and launches of a run whose traces are written; of the ranks that they hold
MOST_RECORDS: Final = 4_000_000
MOST_RECORDS_OF_POINT: Final = 20_000  # of a point of a sweep: some 2 MB


@dataclass(frozen=True)
class Shown:
    """What a run shows: ``report``: traces up to the limits above, and ``pages``, if not of a sweep's points, whose
    pages are written when they are asked for; ``self_contained``: a sweep's pages hold their script, too; ``traces``:
    kinds that are written whatever their size."""

    report: bool = True
    pages: bool = True
    self_contained: bool = False
    traces: Collection[str] = ()

    def __post_init__(self) -> None:
        for kind in self.traces:
            if kind not in TRACES:
                raise UserError(f"--trace {kind}: is no kind of trace; known are {', '.join(TRACES)}")

    def writers(self, result: Result) -> list[str]:
        """Names of the writers of a result's traces and page."""
        most = MOST_RECORDS_OF_POINT if result.sweep_point and not self.pages else MOST_RECORDS
        is_small = self.report and num_records(result) <= most
        kinds = [kind for kind in TRACES if is_small or kind in self.traces]
        shares = bool(result.sweep_point) and not self.self_contained and script.is_installed()
        page = POINT_PAGE if shares else PAGE
        return [name for kind in kinds for name in TRACES[kind]] + [page] * (self.report and self.pages)


def num_records(result: Result) -> int:
    """Rows of the tables that traces draw; of many ranks, as many as the chosen ones have on average."""
    of_ranks = (result.ranks, result.messages, result.cores)
    rows = sum(table.num_rows for table in of_ranks if table is not None)
    if result.workload.num_ranks > MOST_RANKS:
        rows = rows * MOST_CHOSEN // result.workload.num_ranks
    return rows + sum(table.num_rows for table in (result.launches, result.blocks) if table is not None)


def is_built_in(name: str) -> bool:
    """Whether a writer is one of those that this module chooses among."""
    return name in (PAGE, POINT_PAGE) or any(name in writers for writers in TRACES.values())
