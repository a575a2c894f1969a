"""The one table of everything that can be plugged in, by seam and name.

Built-ins stand here as "module:attribute" and are imported when asked for; others come from entry points of the group
``manyscale.SEAM``, which are read nowhere else.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any, Final

from manyscale.runner.errors import UserError

_BUILT_IN: Final[dict[str, dict[str, str]]] = {
    # a reader is a module with can_read(path) and read(path, ...)
    "reader": {
        "workload": "manyscale.runner.readers.workload_folder",
        "accelsim": "manyscale.runner.readers.accelsim",  # before one whose lists may name any file
        "simgrid-ti": "manyscale.runner.readers.simgrid_ti",
        "goal": "manyscale.runner.readers.goal",
        "dimemas": "manyscale.runner.readers.dimemas_dim",
        "paraver": "manyscale.runner.readers.paraver",
        "dumpi": "manyscale.runner.readers.dumpi",
        "otf2": "manyscale.runner.readers.otf2",
        "raw-trace": "manyscale.runner.readers.native",
        "qemu-trace": "manyscale.runner.readers.qemu_trace",
        "lackey": "manyscale.runner.readers.lackey",
        "sancov-npz": "manyscale.runner.readers.sancov_npz",
        "omt": "manyscale.runner.readers.omt",
        "simpoint-bb": "manyscale.runner.readers.simpoint_bb",
        "stacks": "manyscale.runner.readers.stack_folder",
        "unit-stacks": "manyscale.runner.readers.unit_stacks",
        "callgrind": "manyscale.runner.readers.callgrind",
        "jfr": "manyscale.runner.readers.jfr",
        "speedscope": "manyscale.runner.readers.speedscope",
        "perf-script": "manyscale.runner.readers.perf_script",
        "folded": "manyscale.runner.readers.folded",
        "launch-counters": "manyscale.runner.readers.launch_counters",
    },
    "cpu": {
        "burst": "manyscale.models.cpu.burst",
        "amm": "manyscale.models.cpu.amm_phases",
        "detailed": "manyscale.models.node.detailed",
        "interval": "manyscale.models.cpu.interval",
    },
    "gpu": {
        "detailed": "manyscale.runner.gpu.models:Detailed",
        "gpumech": "manyscale.runner.gpu.models:Gpumech",
    },
    # what predicts the times of phases under a CPU model, or None where they take the traced ones: a function of
    # (workload, study)
    "phase-times": {
        "burst": "manyscale.runner.node.seam:scheduled",
        "amm": "manyscale.runner.memory.phase_times:of_workload",
        "detailed": "manyscale.runner.node.seam:simulated",
        "interval": "manyscale.runner.node.seam:simulated",
    },
    "network": {
        "latency-bandwidth": "manyscale.models.network.latency_bandwidth",
        "dimemas": "manyscale.models.network.dimemas",
        "loggops": "manyscale.models.network.loggops",
        "flow": "manyscale.models.network.flow",
    },
    # a sampler is a function of a workload that returns a Plan
    "sampling": {"full": "manyscale.sampling.full:plan"},
    "executor": {
        "local": "manyscale.runner.execute.local:LocalExecutor",
        "ray": "manyscale.runner.execute.ray:RayExecutor",
    },
    # a kind of work unit is a function of (parameters, inputs) that returns named arrays; a CPU model has one that
    # bears its name
    "unit": {
        "burst": "manyscale.runner.execute.kinds:burst",
        "amm": "manyscale.runner.execute.kinds:burst",
        "amm-pieces": "manyscale.runner.memory.phase_times:predict_pieces",
        "detailed": "manyscale.runner.execute.kinds:burst",
        "interval": "manyscale.runner.execute.kinds:burst",
        "node-profile": "manyscale.runner.node.profile_units:profile_cell",
        "node-cell": "manyscale.runner.node.cell_units:simulate_cell",
        "node-intervals": "manyscale.runner.intervals.node_intervals:simulate_intervals",
        "last-uses": "manyscale.runner.intervals.interval_units:find_last_uses",
        "sampled-interval": "manyscale.runner.intervals.interval_units:simulate_intervals",
        "node-schedule": "manyscale.runner.node.schedule_units:schedule_rank",
        "gpu-launches": "manyscale.runner.gpu.launch_units:simulate_launches",
        "gpu-outline": "manyscale.runner.gpu.launch_units:outline_launches",
        "gpu-profile": "manyscale.runner.gpu.launch_units:profile_launches",
        "gpu-predict": "manyscale.runner.gpu.launch_units:predict_launches",
        "replay": "manyscale.runner.execute.kinds:replay_point",
        "replay-coupled": "manyscale.runner.coupled:replay_point",
        "stack-distances": "manyscale.runner.memory.profile_units:stack_distances",
        "memory-stream": "manyscale.runner.memory.stream_units:predict_stream",
    },
    # a trace writer is a function of (workload, directory)
    "trace-writer": {
        "workload": "manyscale.runner.readers.workload_folder:write",
        "simgrid-ti": "manyscale.runner.writers.simgrid_ti:write_trace",
        "goal": "manyscale.runner.writers.goal:write_trace",
        "paraver": "manyscale.runner.writers.paraver_trace:write_trace",
    },
    # a writer is a function of (result, directory)
    "writer": {
        "timeline": "manyscale.runner.writers.parquet:write",
        "statistics": "manyscale.runner.writers.statistics:write",
        "paraver": "manyscale.runner.writers.paraver:write",
        "paraver-cores": "manyscale.runner.writers.paraver_cores:write",
        "paraver-gpu": "manyscale.runner.writers.paraver_gpu:write",
        "perfetto": "manyscale.runner.writers.perfetto:write",
        "report": "manyscale.runner.writers.report:write",
    },
}  # fmt: skip


@cache
def _plug_ins(seam: str) -> dict[str, Any]:
    from importlib.metadata import entry_points

    return {point.name: point for point in entry_points(group=f"manyscale.{seam}")}


def names(seam: str) -> list[str]:
    """All known names of a seam, built-ins first."""
    return [*_BUILT_IN[seam], *(name for name in _plug_ins(seam) if name not in _BUILT_IN[seam])]


@cache
def lookup(seam: str, name: str) -> Any:
    """The implementation. Raises UserError, listing the known names, for one that is unknown."""
    if name in _BUILT_IN[seam]:
        module, _, attribute = _BUILT_IN[seam][name].partition(":")
        found = import_module(module)
        return getattr(found, attribute) if attribute else found
    if name in _plug_ins(seam):
        return _plug_ins(seam)[name].load()
    raise UserError(f"unknown {seam} {name!r}; known are {', '.join(names(seam))}")
