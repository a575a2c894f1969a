"""Times of kernels on another GPU than the one they were traced on, by the roofline of the two.

A kernel that multiplies matrices (or attends) takes its time by the ratio of the GPUs' peaks at its precision, any
other by that of the bandwidths of DRAM; where the trace tells both its operations and its bytes, by the ratio of what
the two rooflines give, max(flops / peak, bytes / bandwidth): Williams, Waterman, Patterson, "Roofline: an insightful
visual performance model for multicore architectures", CACM 52(4), 2009. So a kernel is taken to reach the same share of
either GPU's roofline, whatever its size.

Peaks of tensor cores are those of the GPUs' data sheets (node.gpu.matrix.peaks), or else multiply-adds of an SM in a
cycle (node.gpu.matrix.rates) at its clock; others follow from the lanes of node.gpu.units.
"""

from __future__ import annotations

from functools import cache
from typing import Final, get_args

import numpy as np

from manyscale.models.gpu.matrix.shapes import Element
from manyscale.models.gpu.parameters import WARP_THREADS, Gpu
from manyscale.models.workload import Workload
from manyscale.models.workload.gpu_step_tables import KernelClass
from manyscale.runner.problems import load_yaml
from manyscale.runner.shipped import shipped_targets

_ON_MATRIX_UNITS: Final = (int(KernelClass.matrix), int(KernelClass.attention))
_ELEMENTS: Final = frozenset(get_args(Element)) - {"fp64"}
_NEXT: Final = {"fp8": "fp16", "bf16": "fp16", "tf32": "fp32", "int8": "fp16", "int4": "int8", "binary": "int4"}


@cache
def gpu_named(name: str) -> Gpu | None:
    """The GPU of a shipped target whose driver calls it so; None where no target says it."""
    for path in shipped_targets().values():
        if name in path.read_text():
            content = load_yaml(path)["node"].get("gpu")
            if content is not None and name in content.get("names", ()):
                return Gpu.model_validate(content)
    return None


def peak_flops(gpu: Gpu, precision: str) -> float:
    """Operations a second, two for each multiply-add; of a precision that the GPU has no units for, of the next one
    that holds its values; an unknown one is single precision."""
    element = _multiplied(gpu, precision)
    of_matrix = None if element is None else gpu.matrix_flops(element)
    if of_matrix is not None and precision != "fp64":
        return of_matrix
    unit = gpu.units["fp64" if precision == "fp64" else "fp32"]
    lanes = gpu.schedulers * WARP_THREADS / max(1.0, unit.interval_cycles)
    return max(of_matrix or 0.0, 2.0 * lanes * gpu.sms * gpu.frequency_hz)


def utilised_flops(gpu: Gpu, precision: str) -> float | None:
    """The peak that a model's utilisation of the GPU is a share of; None where the model multiplies in a type of tensor
    cores and the target does not say what these reach."""
    if precision in _ELEMENTS and _multiplied(gpu, precision) is None:
        return None
    return peak_flops(gpu, precision)


def _multiplied(gpu: Gpu, precision: str) -> Element | None:
    """The type in which tensor cores multiply values of a precision: its own, or the next that holds them."""
    rates = gpu.matrix.rates if gpu.matrix is not None else {}
    while precision in _ELEMENTS and precision not in rates:
        precision = _NEXT.get(precision, "fp32")
    return next((element for element in rates if element == precision), None)


def kernel_ratios(workload: Workload, traced: Gpu, target: Gpu) -> np.ndarray:
    """float64[kernels]: what each takes on ``target`` over what it took on ``traced``."""
    classes = workload.column("kernels", "kernel_class")
    flops, moved = (workload.column("kernels", name) for name in ("flops", "bytes"))
    names = np.array(workload.tables["kernels"].column("precision").to_pylist(), object)
    known = sorted(set(names.tolist()))
    peak = {name: (peak_flops(traced, name), peak_flops(target, name)) for name in known}
    of_peak = np.array([peak[name] for name in names.tolist()]).reshape(-1, 2)
    per_byte = np.array([traced.dram.bandwidth_ps_per_byte, target.dram.bandwidth_ps_per_byte])
    ratio = np.where(np.isin(classes, _ON_MATRIX_UNITS), of_peak[:, 0] / of_peak[:, 1], per_byte[1] / per_byte[0])
    with np.errstate(invalid="ignore", divide="ignore"):
        roofline = np.maximum(flops[:, None] / of_peak * 1e12, moved[:, None] * per_byte)
        found = roofline[:, 1] / roofline[:, 0]
    return np.where(np.isfinite(found), found, ratio)


def roofline_ps(workload: Workload, gpu: Gpu) -> np.ndarray:
    """float64[kernels]: what each takes whose operations or bytes are known, at the GPU's peak of its precision and the
    bandwidth of its DRAM; NaN of others."""
    flops, moved = (workload.column("kernels", name) for name in ("flops", "bytes"))
    names = workload.tables["kernels"].column("precision").to_pylist()
    peak = {name: peak_flops(gpu, name) for name in set(names)}
    of_peak = np.array([peak[name] for name in names])
    return np.fmax(flops / of_peak * 1e12, moved * gpu.dram.bandwidth_ps_per_byte)


def clocked(gpu: Gpu, base: Gpu | None) -> Gpu:
    """``gpu`` with its published peaks by its clock, SMs and rates, where the study changed these of ``base``."""
    if base is None or gpu.matrix is None or base.matrix is None or gpu.matrix.peaks_flops != base.matrix.peaks_flops:
        return gpu
    times = gpu.sms * gpu.frequency_hz / (base.sms * base.frequency_hz)
    rates, published = gpu.matrix.rates, base.matrix.rates
    peaks = {
        element: peak * times * (rates[element] / published[element] if {element} <= rates.keys() & published else 1.0)
        for element, peak in gpu.matrix.peaks_flops.items()
    }
    return gpu.model_copy(update={"matrix": gpu.matrix.model_copy(update={"peaks_flops": peaks})})


def is_as_fast(one: Gpu, other: Gpu) -> bool:
    """Whether all ratios of the two are 1."""

    def decides(gpu: Gpu) -> tuple[object, ...]:
        rates = (gpu.matrix.rates, gpu.matrix.peaks_flops) if gpu.matrix is not None else ()
        link = gpu.host_link.bandwidth_ps_per_byte if gpu.host_link is not None else None
        return gpu.sms, gpu.frequency_hz, gpu.schedulers, gpu.units, rates, gpu.dram.bandwidth_ps_per_byte, link

    return decides(one) == decides(other)


def has_no_link(traced: Gpu, target: Gpu) -> bool:
    """Whether it is not known how fast either of them copies from and to the host."""
    return traced.host_link is None or target.host_link is None


def copy_ratio(traced: Gpu, target: Gpu) -> tuple[float, float]:
    """Of copies between host and GPU, and of what stays in the GPU's memory."""
    inside = target.dram.bandwidth_ps_per_byte / traced.dram.bandwidth_ps_per_byte
    if traced.host_link is None or target.host_link is None:
        return 1.0, inside
    return target.host_link.bandwidth_ps_per_byte / traced.host_link.bandwidth_ps_per_byte, inside
