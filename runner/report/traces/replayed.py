"""What formats of traces consist of that are replayed: times and calls."""

from __future__ import annotations

from manyscale.models.workload import Workload
from manyscale.runner.errors import UserError


def check_replayed(workload: Workload, form: str) -> None:
    """Raises UserError for a profile of code, accesses or call stacks without any time, of which nothing could be
    written."""
    is_profile = workload.detail is not None or any(workload.tables[name].num_rows for name in ("intervals", "stacks"))
    if is_profile and workload.num_ranks == 1 and not workload.column("phases", "duration_ps").any():
        raise UserError(
            f"{workload.name}: has neither times nor MPI calls, of which format {form} consists; record it with "
            "manyscale trace -o DIR -- PROGRAM"
        )
