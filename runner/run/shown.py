"""Which traces and pages a run writes of a result, and which are made when they are asked for.

Traces of a large run, and of the points of a sweep, which nobody opens all, would take most of the disk. A point's page
draws with the script that all pages of the sweep share.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from manyscale.runner.errors import UserError
from manyscale.runner.run import script
from manyscale.runner.run.chosen_ranks import MOST_CHOSEN, MOST_RANKS
from manyscale.runner.run.results import Result

# kinds of traces, and what writes them
TRACES: Final = {"paraver": ("paraver",), "perfetto": ("perfetto",)}
FILES: Final = {"paraver": "trace.prv", "perfetto": "trace.json"}  # how the name of what they write begins
PAGE: Final = "report"
POINT_PAGE: Final = "point-report"
# states, messages, stretches of cores, launches and what streams do of a run whose traces are written; of the ranks
# that they hold
MOST_RECORDS: Final = 4_000_000
MOST_RECORDS_OF_POINT: Final = 20_000  # of a point of a sweep: some 2 MB
_OF_RANKS: Final = ("ranks", "messages", "cores", "gpu_streams")
_OF_GPUS: Final = ("launches", "blocks")  # of which streams, where they were replayed, have the launches


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
        kinds = self.kinds(num_records(result), is_point=bool(result.sweep_point))
        shares = bool(result.sweep_point) and not self.self_contained and script.is_installed()
        page = POINT_PAGE if shares else PAGE
        return [name for kind in kinds for name in TRACES[kind]] + [page] * (self.report and self.pages)

    def kinds(self, records: int, *, is_point: bool) -> list[str]:
        """Kinds of traces that are written of a result of so many ``num_records``."""
        most = MOST_RECORDS_OF_POINT if is_point and not self.pages else MOST_RECORDS
        is_small = self.report and records <= most
        return [kind for kind in TRACES if is_small or kind in self.traces]


def num_records(result: Result) -> int:
    """Rows of the tables that traces draw; of many ranks, as many as the chosen ones have on average."""
    tables = {name: getattr(result, name) for name in (*_OF_RANKS, *_OF_GPUS)}
    rows = {name: table.num_rows for name, table in tables.items() if table is not None}
    return records_of(rows, result.workload.num_ranks)


def records_of(rows: Mapping[str, int], num_ranks: int) -> int:
    """The same of the rows of a result's tables by name."""
    of_ranks = sum(rows.get(name, 0) for name in _OF_RANKS)
    if num_ranks > MOST_RANKS:
        of_ranks = of_ranks * MOST_CHOSEN // num_ranks
    of_gpus = sum(rows.get(name, 0) for name in _OF_GPUS if name != "launches" or not rows.get("gpu_streams"))
    return of_ranks + of_gpus


def kinds_among(files: Iterable[str]) -> list[str]:
    """Kinds of traces that are among files of these names."""
    names = list(files)
    return [kind for kind, begin in FILES.items() if any(name.startswith(begin) for name in names)]


def is_built_in(name: str) -> bool:
    """Whether a writer is one of those that this module chooses among."""
    return name in (PAGE, POINT_PAGE) or any(name in writers for writers in TRACES.values())
