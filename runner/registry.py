"""The one table of everything that can be plugged in, by seam and name.

Built-ins stand here as "module:attribute" and are imported when asked for; others come from entry points of the group
``manyscale.SEAM`` (with ``_`` for ``-``, as build tools have it), which are read nowhere else.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any, Final

from manyscale.models.spelling import unknown
from manyscale.runner.errors import UserError

_BUILT_IN: Final[dict[str, dict[str, str]]] = {
    # a reader is a module with can_read(path) and read(path, ...), and may have resembles(path)
    "reader": {
        "workload": "manyscale.runner.readers.workload_folder",
        "cuda": "manyscale.runner.readers.cuda",
        "accelsim": "manyscale.runner.readers.accelsim",  # before one whose lists may name any file
        "simgrid-ti": "manyscale.runner.readers.simgrid_ti",
        "chakra": "manyscale.runner.readers.chakra",
        "nsys": "manyscale.runner.readers.nsys",
        "simai": "manyscale.runner.readers.simai",
        "goal": "manyscale.runner.readers.goal",
        "dimemas": "manyscale.runner.readers.dimemas",
        "paraver": "manyscale.runner.readers.paraver",
        "dumpi": "manyscale.runner.readers.dumpi",
        "otf2": "manyscale.runner.readers.otf2",
        "kineto": "manyscale.runner.readers.kineto",
        "raw-trace": "manyscale.runner.readers.raw_trace",
        "qemu-trace": "manyscale.runner.readers.qemu_trace",
        "lackey": "manyscale.runner.readers.lackey",
        "drmemtrace": "manyscale.runner.readers.drmemtrace",
        "sancov-npz": "manyscale.runner.readers.sancov_npz",
        "omt": "manyscale.runner.readers.omt",
        "simpoint-bb": "manyscale.runner.readers.simpoint_bb",
        "stacks": "manyscale.runner.readers.stacks.folder",
        "unit-stacks": "manyscale.runner.readers.stacks.unit_counts",
        "callgrind": "manyscale.runner.readers.stacks.callgrind",
        "jfr": "manyscale.runner.readers.stacks.jfr",
        "speedscope": "manyscale.runner.readers.stacks.speedscope",
        "perf-script": "manyscale.runner.readers.stacks.perf_script",
        "folded": "manyscale.runner.readers.stacks.folded",
        "launch-counters": "manyscale.runner.readers.launch_counters",
    },
    "cpu": {
        "burst": "manyscale.models.cpu.burst",
        "amm": "manyscale.models.cpu.amm_phases",
        "detailed": "manyscale.models.node.detailed",
        "interval": "manyscale.models.node.shared.run",
    },
    "gpu": {
        "detailed": "manyscale.runner.predict.gpu.models:Detailed",
        "gpumech": "manyscale.runner.predict.gpu.models:Gpumech",
        "traced": "manyscale.runner.predict.gpu.traced.source:TracedKernels",
    },
    # what predicts the times of phases under a CPU model: a PhaseSource (runner/predict/phase_source.py says what to
    # write), or a function that returns one; models without take the traced times
    "phase-times": {
        "burst": "manyscale.runner.predict.sources:burst",
        "amm": "manyscale.runner.predict.memory.amm_source:AmmSource",
        "detailed": "manyscale.runner.predict.sources:simulated",
        "interval": "manyscale.runner.predict.sources:simulated",
    },
    "network": {
        "latency-bandwidth": "manyscale.models.network.latency_bandwidth",
        "dimemas": "manyscale.models.network.dimemas.model",
        "loggops": "manyscale.models.network.loggops.model",
        "flow": "manyscale.models.network.flow.model",
    },
    # parameters that a model reads of a machine: a Block (models/machine/blocks.py), by where it stands
    "machine-block": {
        "node.framework": "manyscale.models.transformer.times:Framework",
        "node.gpu": "manyscale.models.gpu.parameters:Gpu",
        "node.runtime_system": "manyscale.models.node.scheduler.runtime_system:NodeRuntime",
        "network.collectives": "manyscale.models.network.collectives.rules:CollectiveRules",
        "network.dimemas": "manyscale.models.network.dimemas.parameters:Dimemas",
        "network.flow": "manyscale.models.network.flow.parameters:Flow",
        "network.loggops": "manyscale.models.network.loggops.parameters:LogGops",
        "network.nccl": "manyscale.models.network.nccl.parameters:Nccl",
    },
    # a sampler is a Sampler, or its function alone (sampling/sampler.py); -N in a name stands for a number
    "rank-sampler": {
        "traced": "manyscale.sampling.ranks.rank_samplers:TRACED",
        "clusters": "manyscale.sampling.ranks.rank_samplers:CLUSTERS",
        "full": "manyscale.sampling.ranks.rank_samplers:FULL",
        "one-in-N": "manyscale.sampling.ranks.rank_samplers:ONE_IN",
    },
    "iteration-sampler": {
        "traced": "manyscale.sampling.ranks.iteration_samplers:TRACED",
        "full": "manyscale.sampling.ranks.iteration_samplers:FULL",
        "second": "manyscale.sampling.ranks.iteration_samplers:SECOND",
        "joined": "manyscale.sampling.ranks.iteration_samplers:JOINED_AS_ONE",
        "one-in-N": "manyscale.sampling.ranks.iteration_samplers:ONE_IN",
    },
    "launch-sampler": {
        "tbpoint": "manyscale.sampling.tbpoint.launch_samplers:TBPOINT",
        "random": "manyscale.sampling.tbpoint.launch_samplers:RANDOM",
        "systematic": "manyscale.sampling.tbpoint.launch_samplers:SYSTEMATIC",
        "second": "manyscale.sampling.tbpoint.launch_samplers:SECOND",
        "pka": "manyscale.sampling.launches.pka:PKA",
        "sieve": "manyscale.sampling.launches.sieve:SIEVE",
        "stem": "manyscale.sampling.launches.stem:STEM",
        "full": "manyscale.sampling.tbpoint.launch_samplers:FULL",
    },
    "interval-sampler": {
        "simpoint": "manyscale.sampling.interval_samplers:SIMPOINT",
        "code": "manyscale.sampling.interval_samplers:CODE",
        "random": "manyscale.sampling.interval_samplers:RANDOM",
        "systematic": "manyscale.sampling.interval_samplers:SYSTEMATIC",
        "second": "manyscale.sampling.interval_samplers:SECOND",
        "full": "manyscale.sampling.interval_samplers:FULL",
    },
    # samplers that the simulation asks while it runs: a TaskSampler (predict/node/cells/task_sampling.py), a
    # BlockSampler (predict/gpu/block_sampling.py)
    "task-sampler": {
        "full": "manyscale.runner.predict.node.cells.task_sampling:EveryInstance",
        "periodic": "manyscale.runner.predict.node.cells.taskpoint_sampling:Periodic",
        "lazy": "manyscale.runner.predict.node.cells.taskpoint_sampling:Lazy",
    },
    "block-sampler": {
        "full": "manyscale.runner.predict.gpu.block_sampling:EveryBlock",
        "tbpoint": "manyscale.runner.predict.gpu.region_sampling:RegionSampler",
    },
    # a block of options is a frozen class of pydantic's, each field with a default, that stands under its name in the
    # study; a method check(study), if it has one, raises ValueError where the rest of the study does not go with it. It
    # is loaded when studies are: its module imports nothing that imports manyscale.runner.study
    "options": {
        "amm": "manyscale.models.memory.amm.options:AmmChoice",
        "runtime": "manyscale.models.node.scheduler.runtime_system:RuntimeSystem",
        "taskpoint": "manyscale.sampling.taskpoint.options:TaskPointChoice",
        "detailed": "manyscale.runner.predict.node.options:DetailedChoice",
        "intervals": "manyscale.runner.predict.intervals.options:IntervalsChoice",
        "gpu": "manyscale.runner.predict.gpu.options:GpuChoice",
        "tbpoint": "manyscale.sampling.tbpoint.options:TbpointChoice",
        "pka": "manyscale.sampling.launches.options:PkaRules",
        "stem": "manyscale.sampling.launches.options:StemRules",
        "timeline": "manyscale.runner.predict.node.options:TimelineChoice",
    },
    "executor": {
        "local": "manyscale.runner.run.execute.local:LocalExecutor",
        "ray": "manyscale.runner.run.execute.ray:RayExecutor",
    },
    # a kind of work unit is a function of (parameters, inputs) that returns named arrays; a CPU model may have one
    # that bears its name, which its phases go through in place of burst's
    "unit": {
        "points": "manyscale.runner.run.sweeps.point_units:predict_points",
        "burst": "manyscale.runner.run.replay_units:burst",
        "burst-group": "manyscale.runner.run.burst_units:of_group",
        "amm": "manyscale.runner.run.replay_units:burst",
        "amm-pieces": "manyscale.runner.predict.memory.amm_source:predict_pieces",
        "detailed": "manyscale.runner.run.replay_units:burst",
        "interval": "manyscale.runner.run.replay_units:burst",
        "node-profile": "manyscale.runner.predict.node.cells.profile_units:profile_cell",
        "node-costs": "manyscale.runner.predict.node.cells.cost_units:make_costs",
        "node-cell": "manyscale.runner.predict.node.cells.cell_units:simulate_cell",
        "node-intervals": "manyscale.runner.predict.intervals.node_intervals:simulate_intervals",
        "last-uses": "manyscale.runner.predict.intervals.interval_units:find_last_uses",
        "region-lines": "manyscale.runner.predict.intervals.region_units:find_lines",
        "sampled-region": "manyscale.runner.predict.intervals.region_units:simulate_regions",
        "sampled-interval": "manyscale.runner.predict.intervals.interval_units:simulate_intervals",
        "node-schedule": "manyscale.runner.predict.node.schedule_units:schedule_rank",
        "gpu-launches": "manyscale.runner.predict.gpu.launch_units:simulate_launches",
        "gpu-together": "manyscale.runner.predict.gpu.streams.units:simulate_together",
        "gpu-outline": "manyscale.runner.predict.gpu.launch_units:outline_launches",
        "gpu-profile": "manyscale.runner.predict.gpu.launch_units:profile_launches",
        "gpu-predict": "manyscale.runner.predict.gpu.launch_units:predict_launches",
        "replay": "manyscale.runner.run.replay_units:replay_point",
        "replay-coupled": "manyscale.runner.run.coupled:replay_point",
        "replay-devices": "manyscale.runner.run.devices:replay_point",
        "stack-distances": "manyscale.runner.predict.memory.profile_units:stack_distances",
        "memory-outgrown": "manyscale.runner.predict.memory.outgrown:predict_outgrown",
        "memory-stream": "manyscale.runner.predict.memory.stream_units:predict_stream",
    },
    # a trace writer is a function of (workload, directory)
    "trace-writer": {
        "workload": "manyscale.runner.readers.workload_folder:write",
        "simgrid-ti": "manyscale.runner.report.traces.simgrid_ti:write_trace",
        "goal": "manyscale.runner.report.traces.goal:write_trace",
        "paraver": "manyscale.runner.report.traces.paraver:write_trace",
        "accelsim": "manyscale.runner.report.traces.accelsim:write_trace",
    },
    # a writer is a function of (result, directory)
    "writer": {
        "timeline": "manyscale.runner.run.parquet:write",
        "statistics": "manyscale.runner.report.statistics:write",
        "paraver": "manyscale.runner.report.paraver.ranks:write",
        "perfetto": "manyscale.runner.report.perfetto.ranks:write",
        "report": "manyscale.runner.report.run_page:write",
        "point-report": "manyscale.runner.report.run_page:write_point",
    },
    # a writer of sweeps is a function of (sweep.parquet's table, axes, directory, title, notes)
    "sweep-writer": {
        "report": "manyscale.runner.report.sweep_page:write_sweep",
        "what-if": "manyscale.runner.report.what_if_page:write_sweep",
    },
}  # fmt: skip
_NOUNS: Final = {"reader": "format", "trace-writer": "format", "cpu": "CPU model", "gpu": "GPU model",
                 "network": "network model"}  # fmt: skip
_FORMER_NAMES: Final = {"rank-sampler": "sampling"}  # groups of entry points that are still read


@cache
def _plug_ins() -> dict[str, dict[str, Any]]:
    """Entry points by seam and name, of everything that is installed: read once, as that costs more than a look-up."""
    from importlib.metadata import entry_points

    found = entry_points()
    return {
        seam: {
            point.name: point
            for group in (_FORMER_NAMES.get(seam, seam), seam, seam.replace("-", "_"))
            for point in found.select(group=f"manyscale.{group}")
        }
        for seam in _BUILT_IN
    }


def names(seam: str) -> list[str]:
    """All known names of a seam, built-ins first."""
    return [*_BUILT_IN[seam], *(name for name in _plug_ins()[seam] if name not in _BUILT_IN[seam])]


@cache
def lookup(seam: str, name: str) -> Any:
    """The implementation. Raises UserError, listing the known names, for one that is unknown."""
    if name in _BUILT_IN[seam]:
        module, _, attribute = _BUILT_IN[seam][name].partition(":")
        found = import_module(module)
        return getattr(found, attribute) if attribute else found
    if name in _plug_ins()[seam]:
        return _plug_ins()[seam][name].load()
    raise UserError(unknown(_NOUNS.get(seam, seam.replace("-", " ")), name, names(seam)))
