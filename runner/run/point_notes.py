"""Notes on the number of a sweep's point, beside those of its workload and of what predicts its phases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from manyscale.models.workload.notes import Errs, Note, changes, informs, percent
from manyscale.runner.predict.features import domain_notes, found_features, setting_notes
from manyscale.runner.predict.gpu.untimed import untimed_notes
from manyscale.runner.predict.phase_source import Case, CoreUse, PhaseSource
from manyscale.runner.predict.statistic import Statistic
from manyscale.runner.run import what_if_notes
from manyscale.runner.study.what_if import BASE
from manyscale.sampling.plan import Plan


def before(case: Case, node_of_rank: np.ndarray, source: PhaseSource, asked: str) -> list[Note]:
    """What is known before anything is simulated: what the models leave out, and settings of no effect; of a what-if
    (``asked``), which is no setting of the user's, whether all of it has none."""
    launches = source.launches
    found = found_features(case, node_of_rank, launches)
    has_launches = launches is not None or "traced-kernels" in found
    return [
        *([] if launches is None or launches is case.traced else launches.notes),
        *domain_notes(case, found, has_launches=has_launches),
        *([] if launches is None else untimed_notes(case, launches)),
        *(
            setting_notes(case, found, has_launches=has_launches)
            if asked == BASE
            else what_if_notes.of_point(case, asked, found, has_launches=has_launches)
        ),
    ]


def of_samples(plans: Sequence[Plan], figures: Mapping[str, Statistic]) -> list[Note]:
    """A note on each kind of element of which some were chosen, if these do not tell how far the time may be off."""
    if figures["application.makespan"].ci_low is not None:
        return []
    whole = Statistic(1.0, "1", "ratio", "")
    notes = []
    tells_cycles = "gpu.cycles" in figures and figures["gpu.cycles"].ci_low is not None
    if tells_cycles:
        text = (
            "the cycles of launches have an interval, and the time of the run has none: hosts, copies and launches "
            "that overlap stand between the two"
        )
        notes.append(changes("sample-without-interval", text, "sample of launches or their blocks"))
    for plan in plans:
        if plan.element_kind == "launch" and tells_cycles:
            continue
        is_interval = plan.element_kind == "interval"  # their weights are shares of the instructions
        if figures.get("intervals.share", whole).value < 1 if is_interval else not plan.is_census:
            number = len(plan.element_id)
            of = "" if is_interval else f" of {plan.population}"
            text = f"{number}{of} stand for all, and do not tell how far the time may be off"
            notes.append(changes("sample-without-interval", text, f"sample of {plan.element_kind}", number))
    return notes


def of_ideal_network(figures: Mapping[str, Statistic]) -> list[Note]:
    """Where the run on an ideal network takes longer, which is no error: Graham, "Bounds on multiprocessing timing
    anomalies" (SIAM Journal on Applied Mathematics 17(2), 1969)."""
    if "application.transfer_efficiency" not in figures:
        return []
    transfer = float(figures["application.transfer_efficiency"].value)
    if transfer <= 1:
        return []
    text = (
        f"on an ideal network the run takes {percent(transfer - 1)} longer: messages that come sooner change the order "
        "of what waits for them; transfer efficiency is above 100 % for that reason"
    )
    return [informs("slower-on-ideal-network", text)]


def of_cores(cores_per_rank: int, use: CoreUse | None) -> list[Note]:
    """Where ranks have several cores and it is not known what these do, as where kernel launches stand for phases."""
    if cores_per_rank == 1 or use is not None:
        return []
    text = f"parallel efficiency is that of processes: what the {cores_per_rank} cores of a rank do is not known"
    return [informs("cores-not-counted", text)]


def of_files(*, takes_time: bool, is_coupled: bool) -> list[Note]:
    """What is to be said of files where ranks communicate inside their phases (``is_coupled``)."""
    if not (takes_time and is_coupled):
        return []
    text = "ranks that communicate inside tasks access files in no time"
    return [changes("storage-inside-tasks", text, errs=Errs.short)]
