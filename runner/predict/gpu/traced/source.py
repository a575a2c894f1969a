"""Times of a run whose kernels have traced times: streams take these, hosts what the model of CPUs says of the gaps
between their calls, and the replay finds all waits anew (models/network/devices)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Final

import numpy as np
import pyarrow as pa

from manyscale.models.gpu.device.hosts import Given
from manyscale.models.gpu.device.program import ASSUMED_START_PS
from manyscale.models.gpu.parameters import Gpu
from manyscale.models.network.devices.model import VERSION
from manyscale.models.workload import Workload
from manyscale.models.workload.domain import APART, FEATURES, Domain
from manyscale.models.workload.gpu_tables import GpuOperationKind
from manyscale.models.workload.notes import Errs, Note, changes
from manyscale.runner.errors import UserError
from manyscale.runner.predict.gpu import checks
from manyscale.runner.predict.gpu.options import GpuChoice
from manyscale.runner.predict.gpu.streams.given import device_rows, given_of, traced_columns
from manyscale.runner.predict.gpu.streams.joins import NETWORKS
from manyscale.runner.predict.gpu.streams.overlaps import NOTHING
from manyscale.runner.predict.gpu.streams.table import stream_table
from manyscale.runner.predict.gpu.traced.breakdown import breakdown, step_statistics
from manyscale.runner.predict.gpu.traced.communication import Communication
from manyscale.runner.predict.gpu.traced.meetings import StreamCollectives
from manyscale.runner.predict.gpu.traced.memory import memory_notes, memory_statistics
from manyscale.runner.predict.gpu.traced.path import path_statistics, path_table
from manyscale.runner.predict.gpu.traced.scaling import clocked, gpu_named, is_as_fast, utilised_flops
from manyscale.runner.predict.gpu.traced.tables import collectives_table, steps_table
from manyscale.runner.predict.gpu.traced.times import Traced, TracedGiven, on_target, slowed, without_skew
from manyscale.runner.predict.phase_source import Case, Coupling, Done, PhaseSource, Replayed, Stage
from manyscale.runner.predict.statistic import Statistic
from manyscale.runner.predict.units import array_digest
from manyscale.runner.study.targets import shipped_content
from manyscale.sampling.plan import Plan

_G: Final = GpuOperationKind
# Efficiencies of hosts, whose waits for GPUs count as computing: they say nothing of a step
_OF_HOSTS: Final = tuple(
    f"application.{name}"
    for name in ("parallel_efficiency", "load_balance", "communication_efficiency", "serialisation_efficiency",
                 "transfer_efficiency")
)  # fmt: skip
_SPEEDS: Final = {"sms", "frequency", "schedulers", "units", "matrix", "dram", "host_link"}  # keys of node.gpu


class TracedKernels:
    """Model ``traced`` of GPUs: kernels take the times of the trace, on another GPU by the ratio of the rooflines."""

    NAME = "traced"
    HAS_PROFILE = False
    DOMAIN = Domain(
        dict.fromkeys(FEATURES["gpu"], APART),
        {
            "nodes": (),
            "node.sockets": (),
            "node.cores_per_socket": (),
            "node.gpu": (),
            "node.gpus": (),
            "network.nccl": (),
        },
    )

    @staticmethod
    def version() -> int:
        return VERSION


class TracedSource(PhaseSource):
    """``cores``: what predicts the phases of hosts. Raises UserError for a machine without a GPU, and for a network
    model that cannot wait for GPUs."""

    def __init__(self, case: Case, cores: PhaseSource) -> None:
        self._case, self._cores = case, cores
        self._gpu = checks.gpu_of(case.machine)
        self.cpu_ratio = cores.cpu_ratio
        self._walked: tuple[Replayed, pa.Table] | None = None
        self._simulated = None
        if (place := case.study.workload.gpu_trace) is not None:
            from manyscale.runner.predict.gpu.traced.simulated import SimulatedKernels  # what no other run needs

            self._simulated = SimulatedKernels(case, place)
            self.launches = self._simulated.launches.source
        study = case.study
        if study.model.network not in NETWORKS:
            raise UserError(
                f"model.network: {study.model.network} cannot wait for GPUs, which {study.workload.path} has times of; "
                f"choose one of {', '.join(NETWORKS)}"
            )
        if case.traced is not case.workload:
            raise UserError(f"{study.workload.path}: a workload with times of kernels cannot be repeated")
        self._has_nccl = case.machine.network.has_block("nccl")
        self._choice = study.options(GpuChoice)
        wrong = [rank for rank in self._choice.slower if rank >= case.workload.num_ranks]
        if wrong:
            raise UserError(f"gpu.slower: rank {wrong[0]} is not one of the trace's {case.workload.num_ranks}")
        if self._choice.collectives == "model" and not self._has_nccl:
            raise UserError(
                f"gpu.collectives: model: {case.machine.name} does not say how NCCL communicates (network.nccl); "
                "choose a target that does, or traced"
            )

    def plans(self) -> list[Plan]:
        own = [] if self._simulated is None else [self._simulated.launches.table()]
        return [*self._cores.plans(), *own]

    def unit_keys(self, plan: Plan, done: Done) -> list[str]:
        if self._simulated is not None and plan.element_kind == "launch":
            return self._simulated.launches.unit_keys(done)
        return self._cores.unit_keys(plan, done)

    def stages(self, done: Done) -> list[Stage]:
        """Raises UserError for launches that the machine cannot run."""
        own = [] if self._simulated is None else self._simulated.launches.stages(done)
        return [*self._cores.stages(done), *own]

    def phase_times(self, done: Done) -> np.ndarray:
        found = self._cores.phase_times(done)
        return found if self._choice.skew else without_skew(self._workload, found)

    def content(self) -> list[str]:
        return [*self._cores.content(), *(["without skew"] if not self._choice.skew else [])]

    def fixed_phases(self) -> np.ndarray | None:
        return self._cores.fixed_phases()

    def coupling(self, done: Done) -> Coupling:
        """Raises UserError for ranks that communicate inside their phases."""
        if self._cores.coupling(done) is not None:
            raise UserError(f"{self._case.study.workload.path}: calls MPI inside phases with tasks, beside its GPUs")
        takes_ps = self._takes_ps(done)
        content = array_digest(
            *([] if self._simulated is None else [takes_ps]),
            np.array(
                [
                    self._workload.digest,
                    str(self._gpu),
                    str(self._base),
                    *(str(gpu_named(name)) for name in self._scaled_names),
                    array_digest(self._communication.takes_traced),
                    array_digest(self._communication.messages_ps),
                    str(self._has_nccl),
                    str(self._communication.lacks_ranks),
                    self._choice.model_dump_json(),
                ]
            ),
        )

        def make() -> tuple[Any, ...]:
            given, told = self._given, self._communication
            collectives, takes_traced = told.collectives, told.takes_traced | ~told.is_priced
            if self._choice.collectives == "free":
                nothing = np.zeros_like(collectives.traced_ps)
                collectives, takes_traced = replace(collectives, traced_ps=nothing), np.ones(len(nothing), np.bool_)
            takes = slowed(takes_ps, given, self._choice.slower)
            of = TracedGiven(takes, collectives, takes_traced, told.is_priced, told.messages_ps)
            return given, [], device_rows(self._workload, given), NOTHING, of

        name = f"streams {content}"
        return Coupling(name, self._parameters, content, make, "replay-devices", on_streams=lambda: self._on_streams)

    @property
    def _parameters(self) -> Mapping[str, Any]:
        machine = self._case.machine
        return {
            "gpu": self._case.machine_content["node"]["gpu"],
            "num_gpus": machine.node.num_gpus,
            "ranks_share": self._choice.mps,
        }

    @property
    def _workload(self) -> Workload:
        return self._case.workload

    @property
    def _scaled_names(self) -> list[str]:
        """Of GPUs of the trace that are not the target's: what shipped targets say of these scales times."""
        names = self._workload.tables["traced_gpus"].column("gpu_name").to_pylist()
        return sorted(set(names) - set(self._gpu.names))

    @cached_property
    def _shipped(self) -> Gpu | None:
        """The GPU of the shipped target of the machine's name, which the study may have changed."""
        name, shared = self._case.machine.name, self._case.shared
        content = shared.once(("shipped machine", name), lambda: shipped_content(name))
        gpu = (content or {}).get("node", {}).get("gpu")
        return None if gpu is None else Gpu.model_validate(gpu)

    @property
    def _base(self) -> Gpu | None:
        """The same, if the study makes it a faster or a slower one: then times on it are not those of the trace."""
        return self._shipped if self._shipped is not None and not is_as_fast(self._shipped, self._gpu) else None

    @property
    def _place(self) -> tuple[str, ...]:
        return (self._case.study.workload.path, str(self._has_nccl))

    @cached_property
    def _given(self) -> Given:
        def make() -> Given:
            found = given_of(self._workload)
            return replace(found, launch=np.full_like(found.launch, -1))  # none goes by its instructions

        return self._case.shared.once(("given by times", *self._place), make)

    @cached_property
    def _traced(self) -> Traced:
        kept: dict[str, Traced] = self._case.shared.once(("traced times", *self._place), dict)
        base = self._base
        key = f"{self._gpu} {base}"
        if key not in kept:
            kept.clear()  # as large as the trace: the latest GPU's alone
            kernel, duration = traced_columns(self._workload)
            gpu, given = clocked(self._gpu, base), self._given
            kept[key] = on_target(self._workload, given, kernel, duration, gpu, self._is_simulated, base)
        return kept[key]

    @cached_property
    def _is_simulated(self) -> np.ndarray:
        """bool[given]: launches of kernels whose instructions workload.gpu_trace has."""
        if self._simulated is None:
            return np.zeros(len(self._given.kind), np.bool_)
        kernel, _ = traced_columns(self._workload)
        return (self._given.kind == _G.launch) & np.append(self._simulated.is_simulated, False)[kernel]

    def _takes_ps(self, done: Done) -> np.ndarray:
        """int64[given]: what each takes on the target, as TracedGiven has it."""
        takes_ps = self._traced.takes_ps
        if self._simulated is None:
            return takes_ps
        kernel, _ = traced_columns(self._workload)
        return np.where(self._is_simulated, np.append(self._simulated.kernel_ps(done), -1)[kernel], takes_ps)

    @cached_property
    def _communication(self) -> Communication:
        return Communication(self._case, self._given, self._place, is_same_gpu=self._traced.is_same_gpu)

    @property
    def _collectives(self) -> StreamCollectives:
        return self._communication.collectives

    @property
    def _on_streams(self) -> np.ndarray:
        """Rows of the workload's operations that are collectives of streams."""
        return np.asarray(self._given.row[self._collectives.of_given >= 0])

    def figures(self, of_run: dict[str, Statistic], done: Done) -> dict[str, Statistic]:
        simulated = int(np.count_nonzero(self._is_simulated))
        traced = int(np.count_nonzero(self._given.kind == _G.launch)) - simulated
        own = {
            "gpu.traced_launches": Statistic(traced, "1", "count", "kernel launches, which take traced times"),
            "gpu.collectives": Statistic(len(self._collectives), "1", "count", "collectives that streams took part in"),
        }
        if simulated:
            text = "kernel launches that take what a model says of their instructions"
            own["gpu.launches_by_model"] = Statistic(simulated, "1", "count", text)
        found = self._cores.figures(of_run, done) | own
        return {name: each for name, each in found.items() if name not in _OF_HOSTS}

    def figures_of_replay(self, done: Done, replayed: Replayed) -> dict[str, Statistic]:
        found = breakdown(self._workload, self._given.row, self._collectives, replayed.arrays)
        precision = self._workload.tables["trained_models"].column("precision").to_pylist()
        peak = utilised_flops(clocked(self._gpu, self._base), precision[0]) if precision else None
        path = path_statistics(self._path(replayed))
        steps = step_statistics(self._workload, found, replayed.arrays["end_ps"], peak)
        return steps | memory_statistics(self._workload, self._gpu) | path

    def _path(self, replayed: Replayed) -> pa.Table:
        """Of the latest replay it is kept, for figures and tables."""
        if self._walked is None or self._walked[0] is not replayed:
            found = path_table(self._workload, self._given, self._collectives, replayed.arrays)
            self._walked = replayed, found
        return self._walked[1]

    def notes(self, done: Done) -> Sequence[Note]:
        of_kernels = [*self._traced.notes, *self._change_notes(), *self._notes_of_simulated(done)]
        return [*self._cores.notes(done), *of_kernels, *self._start_notes(), *self._communication.notes(),
                *memory_notes(self._workload, self._gpu)]  # fmt: skip

    def _change_notes(self) -> list[Note]:
        """Where the study changes a GPU of which it is not known what it was."""
        changed = self._case.study.target_overrides
        keys = [] if "schema" in changed else sorted(_SPEEDS & set(dict(changed.get("node") or {}).get("gpu") or {}))
        if not keys or not self._traced.is_same_gpu or self._shipped is not None:
            return []
        text = (
            f"kernels and copies take their traced times whatever {', '.join(f'node.gpu.{key}' for key in keys)} say: "
            f"{self._case.machine.name} says that its GPU is the trace's (node.gpu.names)"
        )
        return [changes("gpu-change-unread", text)]

    def _notes_of_simulated(self, done: Done) -> Sequence[Note]:
        if self._simulated is None:
            return []
        _, duration = traced_columns(self._workload)
        return self._simulated.notes(done, self._is_simulated, self._takes_ps(done), duration)

    def _start_notes(self) -> list[Note]:
        if self._gpu.start_latency_ps is not None:
            if "stream_gap_ps" in self._gpu.model_fields_set:
                return []
            text = "what a stream is given begins at once behind what it did before (no node.gpu.stream_gap)"
            return [changes("stream-gap-assumed", text, errs=Errs.short)]
        text = (
            f"what a stream is given begins {ASSUMED_START_PS // 1_000_000} us later at the soonest, an assumption "
            "(the target has no node.gpu.start_latency)"
        )
        return [changes("start-latency-assumed", text)]

    def tables(self, done: Done, replayed: Replayed) -> dict[str, Any]:
        """Those of the cores, and of streams, steps and collectives."""
        kernel, _ = traced_columns(self._workload)
        own = {"gpu_streams": stream_table(self._workload, kernel, replayed.arrays, kernel)}
        own["step_path"] = self._path(replayed)
        self._walked = None
        if self._workload.tables["steps"].num_rows:
            own["steps"] = steps_table(self._workload, replayed.arrays["end_ps"])
        if len(self._collectives):
            own["collectives"] = collectives_table(self._collectives, replayed.arrays)
        return self._cores.tables(done, replayed) | own
