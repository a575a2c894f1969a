"""What operations of streams take on the target, from what they took where they were traced."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from manyscale.models.gpu.device.hosts import Given
from manyscale.models.gpu.parameters import Gpu
from manyscale.models.workload import PhaseKind, Workload
from manyscale.models.workload.gpu_step_tables import SYNTHESISED
from manyscale.models.workload.gpu_tables import GpuOperationKind
from manyscale.models.workload.notes import Errs, Note, changes
from manyscale.runner.predict.gpu.traced.meetings import StreamCollectives
from manyscale.runner.predict.gpu.traced.scaling import copy_ratio, gpu_named, has_no_link, kernel_ratios, roofline_ps

_G: Final = GpuOperationKind
SHORT_PS: Final = 5_000_000  # what small kernels take beside their bytes (models/transformer/times.py, kernel_least)
_WITH_HOST: Final = (int(_G.copy_to_device), int(_G.copy_to_host))
_INSIDE: Final = (int(_G.copy_on_device), int(_G.set))


@dataclass(frozen=True)
class TracedGiven:
    """Of what ranks give: ``takes_ps`` int64[given] on the target, -1 of what takes none or is not known, and the
    collectives among it; ``takes_traced`` bool[collectives]: those that take their traced times, as far as they are
    known; ``is_priced`` bool[collectives]: those whose sizes and members are all known, so that a model can say.
    ``messages_ps`` int64[messages of the workload]: what those between GPUs take from when both ends (of eager ones the
    sender) have come to them, -1 of those of which the network says it."""

    takes_ps: np.ndarray
    collectives: StreamCollectives
    takes_traced: np.ndarray
    is_priced: np.ndarray
    messages_ps: np.ndarray


@dataclass(frozen=True)
class Traced:
    """``takes_ps`` int64[given], as TracedGiven has it; ``notes`` on what was assumed of it; ``is_same_gpu``: the
    target has the GPU that all ranks were traced on."""

    takes_ps: np.ndarray
    notes: tuple[Note, ...]
    is_same_gpu: bool


def on_target(
    workload: Workload,
    given: Given,
    kernel: np.ndarray,
    duration_ps: np.ndarray,
    gpu: Gpu,
    is_simulated: np.ndarray,
    base: Gpu | None = None,
) -> Traced:
    """``kernel`` int[given]: rows of kernels, -1; ``duration_ps`` int64[given], where they were traced;
    ``is_simulated`` bool[given]: launches that take what a model says, and are left as they are; ``base``: what the GPU
    of the target is before the study changes it (None: it changes nothing that is known). O(given)."""
    names = workload.tables["traced_gpus"].column("gpu_name").to_pylist()
    of_rank = _gpu_of_ranks(workload, names)
    every = sorted(set(names))
    takes, notes, scaled = duration_ps, [], []
    launched = (given.kind == _G.launch) & ~is_simulated
    shaped = launched & (duration_ps < 0) & (kernel >= 0)
    if shaped.any():
        roofline = roofline_ps(workload, gpu)[np.maximum(kernel, 0)]
        shaped &= np.isfinite(roofline)
        takes = np.where(shaped, np.rint(np.where(shaped, roofline, 0.0)).astype(np.int64), takes)
        notes.append(_shaped(int(np.count_nonzero(shaped))))
    if untimed := int(np.count_nonzero(launched & (takes < 0))):
        text = f"{untimed:,} launches take no time: neither their times nor their operations or bytes are known"
        notes.append(changes("kernels-untimed", text, count=untimed, errs=Errs.short))
    unknown = [name for name in every if name not in gpu.names and gpu_named(name) is None]
    for name in every:
        traced = base if name in gpu.names else gpu_named(name)
        if traced is None:
            continue
        ratio = np.append(kernel_ratios(workload, traced, gpu), 1.0)[kernel]
        host, inside = copy_ratio(traced, gpu)
        ratio = np.where(np.isin(given.kind, _WITH_HOST), host, np.where(np.isin(given.kind, _INSIDE), inside, ratio))
        mine = (of_rank[given.rank] == every.index(name)) & (duration_ps >= 0) & (given.kind != _G.communication)
        takes = np.where(mine, np.rint(duration_ps * ratio).astype(np.int64), takes)
        launches = mine & launched
        kept = int(np.count_nonzero(mine & np.isin(given.kind, _WITH_HOST))) if has_no_link(traced, gpu) else 0
        short = int(np.count_nonzero(launches & (duration_ps <= SHORT_PS) & (ratio != 1)))
        scaled.append(_Scaled(name, int(np.count_nonzero(launches)), short, kept))
    if scaled:
        notes += _scaled(scaled, made_for=every if workload.source_format == SYNTHESISED else ())
    if unknown or (not every and np.any(duration_ps[~is_simulated] >= 0)):
        what = ", ".join(unknown) or "the GPU of the trace"
        text = f"kernels and copies take their traced times: no target says that its GPU is {what} (node.gpu.names)"
        notes.append(changes("kernels-as-traced", text))
    return Traced(takes, tuple(notes), bool(every) and all(name in gpu.names for name in every))


def _shaped(count: int) -> Note:
    text = (
        f"{count:,} launches have no times: they take what their operations and bytes need at the peak of the target's "
        "units and the bandwidth of its DRAM"
    )
    return changes("kernels-at-peak", text, count=count, errs=Errs.short)


def traced_messages(workload: Workload, given: Given, duration_ps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of each message of the workload: bool, whether a stream sends it, and int64, what it took where it was traced
    once both ends had come to it (``duration_ps`` int64[given]: the lesser of its ends), -1 unknown. O(operations)."""
    took, sends = np.full(workload.num_operations, -1, np.int64), np.zeros(workload.num_operations, np.bool_)
    mine = (given.kind == _G.communication) & (given.row >= 0)
    took[given.row[mine]], sends[given.row[mine]] = duration_ps[mine], True
    return sends[workload.send_rows], took[workload.send_rows]


def slowed(takes_ps: np.ndarray, given: Given, slower: Mapping[int, float]) -> np.ndarray:
    """``takes_ps`` int64[given] where the launches of some ranks take so many times as long."""
    found = takes_ps
    for rank, times in slower.items():
        mine = (given.rank == rank) & (given.kind == _G.launch) & (takes_ps >= 0)
        found = np.where(mine, np.rint(takes_ps * times).astype(np.int64), found)
    return found


def without_skew(workload: Workload, phase_ps: np.ndarray) -> np.ndarray:
    """``phase_ps`` int64[phases] where all ranks begin at once: a rank that enters later sleeps before its first
    operation."""
    enters = (workload.column("phases", "operation_id") == 0) & (workload.column("phases", "kind") == PhaseKind.sleep)
    return np.where(enters, 0, phase_ps)


@dataclass(frozen=True)
class _Scaled:
    """Launches of the GPU called ``name``, how many of them are ``short``, and copies with the host that keep their
    times."""

    name: str
    launches: int
    short: int
    copies: int


def _scaled(scaled: Sequence[_Scaled], made_for: Sequence[str]) -> list[Note]:
    """``made_for``: GPUs of a step that was made from a model's shape."""
    count, short, copies = (sum(getattr(each, name) for each in scaled) for name in ("launches", "short", "copies"))
    text = (
        f"{count:,} launches were traced on {', '.join(each.name for each in scaled)}: their times are taken by the "
        "ratio of the GPUs' peaks (products of matrices) or DRAM bandwidths (others); hosts compute as they did "
        "(cpu_ratio)"
    )
    found = [changes("kernels-scaled", text, count=count)]
    if made_for:
        text = (
            f"the step was made for {', '.join(made_for)}: what its kernels take beside operations and bytes (their "
            "start, last waves of SMs, L2), and its hosts, do not follow from ratios of peaks; make it for the target"
        )
        found.append(changes("synthesised-elsewhere", text, count=count))
    elif short:
        text = (
            f"{short:,} of these launches took 5 us at most: that is their start and end for the most part, of which "
            "no peak tells what they take on the target"
        )
        found.append(changes("short-kernels-scaled", text, count=short))
    if copies:
        text = (
            f"{copies:,} copies between hosts and GPUs take their traced times: one of the GPUs has no "
            "node.gpu.host_link"
        )
        found.append(changes("copies-as-traced", text, count=copies))
    return found


def _gpu_of_ranks(workload: Workload, names: list[str]) -> np.ndarray:
    """int[ranks]: the GPU of each, by the place of its name in order; those that were not traced have the first's."""
    every = sorted(set(names))
    found = np.zeros(workload.num_ranks, np.int64)
    rank = workload.column("traced_gpus", "rank")
    found[rank] = [every.index(name) for name in names]
    return found
