"""Where ranks run, and how their times are corrected: a study's keys ``mapping`` and ``ipc_correction``."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from manyscale.models.workload.parameters import Count, Strict

PositiveFloat = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class PlacementFile(Strict):
    """A text file with the number of the node of every rank, in order, separated by blanks or lines; # begins a
    comment."""

    file: str
    """The path of the file."""


class Mapping_(Strict):  # noqa: N801 - `Mapping` is the abstract class
    """Which node each rank runs on: ``block`` fills node after node, ``cyclic`` deals ranks out in turn, ``random``
    shuffles who sits where in ``block`` by the study's seed; a list or a file names the node of every rank.
    Each rank's task instances are scheduled on ``cores_per_rank`` cores; ``ranks_per_node`` defaults to as many as a
    node has cores for. ``launches``: a CSV file with the columns rank, phase (index within the rank) and launch: the
    phase takes the predicted time of that launch of ``workload.gpu_trace``, of several one after the other."""

    placement: Literal["block", "cyclic", "random"] | list[int] | PlacementFile = "block"
    """`block` fills node after node, `cyclic` deals ranks out in turn, `random` shuffles by the seed; or a list with
    the node of every rank, or a file of it."""
    ranks_per_node: Annotated[int, Field(ge=1)] | None = None
    """The most ranks on a node. By default as many as the node has cores for."""
    cores_per_rank: Count = 1
    """The cores on which the task instances of each rank are scheduled."""
    oversubscribe: bool = False
    """Whether ranks may share cores. If not, more ranks than cores are refused."""
    launches: str | None = None
    """A CSV file with the columns rank, phase and launch: which phases take the times of which launches of
    `workload.gpu_trace`."""


class IpcCorrection(Strict):
    """Factors by which the target's IPC is higher than ``cpu_ratio`` says; those that apply to a phase multiply.

    ``phases`` is keyed by "RANK/INDEX", the index of the phase within its rank, or "*/INDEX" for all ranks;
    ``task_types``, of task instances before they are scheduled, by the function or FILE:LINE of their construct;
    ``clusters`` by the numbers that ``manyscale clusters`` gives. With ``balance`` all ranks then compute as long, the
    mean of all (but for those that compute nothing, and before ranks share cores).
    """

    default: PositiveFloat = 1.0
    """The factor of every phase. Factors that apply to a phase multiply; 2 is twice as fast."""
    ranks: dict[int, PositiveFloat] = {}
    """Factors by rank."""
    regions: dict[str, PositiveFloat] = {}
    """Factors by region of the source, such as `solver.c:42`."""
    phases: dict[str, PositiveFloat] = {}
    """Factors by `RANK/INDEX`, the index of the phase within its rank, or `*/INDEX` for all ranks."""
    task_types: dict[str, PositiveFloat] = {}
    """Factors by task type, the function or FILE:LINE of its construct, on its instances before they are scheduled."""
    clusters: dict[int, PositiveFloat] = {}
    """Factors by the number of a phase cluster, as `manyscale clusters` gives it."""
    balance: bool = False
    """Whether all ranks then compute as long: the mean of all."""
