"""What a run says of each of the jobs that share its machine (models/workload/jobs.py)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from manyscale.models.workload import Workload
from manyscale.models.workload.columns import to_numpy
from manyscale.models.workload.domain import TAKES
from manyscale.models.workload.jobs import idles
from manyscale.models.workload.notes import Errs, Note, changes, informs, percent
from manyscale.models.workload.quantities import PS_PER_SECOND
from manyscale.runner.predict.phase_source import Case
from manyscale.runner.predict.statistic import Statistic
from manyscale.runner.registry import lookup

_ALIKE: Final = 0.02  # jobs whose times differ by less share the machine to the end


@dataclass(frozen=True)
class Job:
    """``number`` from 1; its ranks are those of ``ranks``."""

    number: int
    name: str
    ranks: slice


def jobs_of(workload: Workload) -> Iterator[Job]:
    """Those that run: ranks of others idle. None of a workload of one program."""
    rows = workload.tables["jobs"].to_pylist()
    for number, row in enumerate(rows, 1):
        ranks = slice(row["first_rank"], min(row["first_rank"] + row["num_ranks"], workload.num_ranks))
        if not idles(workload, ranks.start, ranks.stop):
            yield Job(number, row["job_name"], ranks)


def statistics(workload: Workload, arrays: Mapping[str, np.ndarray], steps: pa.Table | None) -> dict[str, Statistic]:
    """Times of jobs. ``arrays``: the result of the unit that replayed the run; ``steps``: rank, step, start_ps,
    end_ps."""
    found: dict[str, Statistic] = {}
    if not workload.tables["jobs"].num_rows:
        return found
    rank_end_ps = arrays.get("rank_end_ps")
    if rank_end_ps is None:
        rank_end_ps = np.zeros(workload.num_ranks, np.int64)
        np.maximum.at(rank_end_ps, workload.column("operations", "rank"), arrays["end_ps"])
    for job in jobs_of(workload):
        number, text = job.number, f"job {job.number} ({job.name}, {job.ranks.stop - job.ranks.start} ranks)"
        last = int(rank_end_ps[job.ranks].max())
        found[f"job.{number}.time"] = Statistic(
            last / PS_PER_SECOND, "s", "mean", f"{text}: from the begin of the run until its last rank has ended"
        )
        if steps is None:
            continue
        rank, start, end = (to_numpy(steps.column(name)) for name in ("rank", "start_ps", "end_ps"))
        mine = (rank >= job.ranks.start) & (rank < job.ranks.stop)
        if mine.any():
            took = float((end - start)[mine].mean()) / PS_PER_SECOND
            found[f"job.{number}.step_time"] = Statistic(
                took, "s", "mean", f"{text}: time of a step, mean over ranks and steps"
            )
    return found


def notes_before(case: Case, node_of_rank: np.ndarray) -> list[Note]:
    """What jobs do not share although they run side by side."""
    running = list(jobs_of(case.workload))
    if len(running) < 2:
        return []
    found, network = [], case.study.model.network
    domain = getattr(lookup("network", network), "DOMAIN", None)
    shares = domain is None or domain.features["shared-links"] == TAKES
    if not shares or (network == "flow" and case.machine.network.topology is None):
        text = (
            f"{len(running)} jobs run side by side and do not slow each other: the network model {network} shares no "
            "links between them; choose flow (model.network)"
        )
        found.append(changes("jobs-share-nothing", text, count=len(running), errs=Errs.short))
    on_node = np.zeros(case.machine.num_nodes, np.int64)
    for job in running:
        on_node[np.unique(node_of_rank[job.ranks])] += 1
    if shared := int(np.count_nonzero(on_node > 1)):
        text = (
            f"{shared} node{'s have' if shared > 1 else ' has'} ranks of several jobs: there these share links of the "
            "network alone, and no caches, memory or links of the host"
        )
        found.append(changes("jobs-share-nodes", text, count=shared, errs=Errs.short))
    return found


def notes_after(figures: Mapping[str, Statistic]) -> list[Note]:
    """Where a job ends while others go on."""
    times = {name.split(".")[1]: each.value for name, each in figures.items()
             if name.startswith("job.") and name.endswith(".time")}  # fmt: skip
    if len(times) < 2 or min(times.values()) >= (1 - _ALIKE) * max(times.values()):
        return []
    least, most = min(times, key=times.__getitem__), max(times, key=times.__getitem__)
    text = (
        f"job {least} ends when {percent(times[least] / times[most])} of the time of job {most} have passed, which has "
        "the machine to itself from then on: jobs that go on cost each other more"
    )
    return [informs("jobs-overlap-in-part", text)]
