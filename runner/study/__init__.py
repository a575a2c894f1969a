"""Studies: what is predicted, with which models, on which machines. A YAML file, or options of the command line."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import yaml
from pydantic import BeforeValidator, ConfigDict, Field, ValidationError, field_validator, model_validator

from manyscale.models.node.scheduler.runtime_system import RuntimeSystem
from manyscale.models.workload.parameters import Count, CountOrNone, Strict
from manyscale.models.workload.quantities import parse_flop_rate, parse_time_ps
from manyscale.runner.errors import UserError
from manyscale.runner.problems import first_problem, load_yaml
from manyscale.runner.readers.options import ReadOptions
from manyscale.runner.registry import names
from manyscale.runner.study import what_if
from manyscale.sampling.ranks.choice import one_in
from manyscale.sampling.taskpoint.state import TaskPointParameters
from manyscale.sampling.tbpoint.rules import LaunchSampling, RegionRules, RegionSamplingRules

TARGET_SUFFIXES: Final = (".yaml", ".cfg")
PositiveFloat = Annotated[float, Field(gt=0, allow_inf_nan=False)]


def _flop_rate(text: object) -> object:
    parse_flop_rate(text)
    return text


def _time_unit(text: object) -> object:
    if not parse_time_ps(text):
        raise ValueError("a unit of time is not zero")
    return text


def _pattern(text: object) -> object:
    try:
        re.compile(text) if isinstance(text, str) else None
    except re.error as error:
        raise ValueError(f"{text!r} is no regular expression ({error})") from None
    return text


class Repeat(Strict):
    """The traced iterations of the main loop, all but the first, in turn until there are ``iterations``
    (study/repeat.py). ``jitter``: standard deviation of a factor on the time of each task instance, drawn anew for each
    repetition, so that no two are the same."""

    iterations: Count
    jitter: Annotated[float, Field(ge=0, le=1)] = 0.0


class WorkloadChoice(Strict):
    """Where the trace is, and how to read it. ``flop_rate`` turns a trace's flop counts into time; ``time_unit`` is
    what a bare number of time means in a format that names no unit (GOAL); ``application`` chooses one of several in a
    trace (Paraver). ``launches``: those kernel launches of a GPU's trace that are read, counted from 1; by default all.
    ``threads``, ``idle``: of profiles of call stacks, regular expressions of the names of threads that are kept
    (without: those that run a known framework's tasks, else all) and of further methods in which a thread waits.
    ``detail``: another trace of the same program, on the same input, that holds the detailed level of some ranks and
    iterations. ``gpu_trace``: the trace of the kernel launches that ``mapping.launches`` places. ``repeat``: see
    Repeat."""

    path: str
    format: str = "auto"
    flop_rate: Annotated[str, BeforeValidator(_flop_rate)] = "1 Gflop/s"
    time_unit: Annotated[str, BeforeValidator(_time_unit)] = "1 ns"
    application: Count = 1
    launches: Annotated[list[Count], Field(min_length=1)] | None = None
    threads: Annotated[str, BeforeValidator(_pattern)] = ""
    idle: Annotated[str, BeforeValidator(_pattern)] = ""
    detail: str | None = None
    gpu_trace: str | None = None
    repeat: Repeat | None = None

    @field_validator("launches")
    @classmethod
    def _each_once(cls, value: list[int] | None) -> list[int] | None:
        if value is not None and len(set(value)) != len(value):
            raise ValueError("name each launch once")
        return value if value is None else sorted(value)

    def read_options(self) -> ReadOptions:
        launches = () if self.launches is None else tuple(self.launches)
        return ReadOptions(
            parse_flop_rate(self.flop_rate), parse_time_ps(self.time_unit), self.application, launches=launches,
            threads=self.threads, idle=self.idle,
        )  # fmt: skip


class ModelChoice(Strict):
    """The model of each level, by its name in the registry. ``gpu`` is ``detailed`` by default, where a workload has
    kernel launches."""

    cpu: str = "burst"
    gpu: str | None = None
    network: str = "latency-bandwidth"

    @field_validator("cpu", "gpu", "network")
    @classmethod
    def _known(cls, value: str | None, info: Any) -> str | None:
        if value is not None and value not in names(info.field_name):
            raise ValueError(f"unknown model {value!r}; known are {', '.join(names(info.field_name))}")
        return value


class SamplingChoice(Strict):
    """What is simulated by the model of the cores, where that is not all (predict/node/cells.py).

    ``ranks`` and ``iterations`` of the main loop: ``full``; ``traced``, those of which the detailed level was traced;
    ``one-in-N``; for ranks ``clusters``, one of each cluster of alike ranks; for iterations ``second``, or ``joined``:
    all, simulated one after the other as one, so that task instances share their samples; or a list of numbers.
    ``auto`` is ``full`` for models that need no detailed level, else ``traced``. ``tasks``, inside a phase: ``full``,
    or TaskPoint's ``periodic`` or ``lazy`` (TaskPointChoice).

    ``intervals`` of a program of one thread: a method that chooses some to simulate in detail (IntervalsChoice).

    Of a GPU's kernel ``launches``: ``full``, ``tbpoint`` (one or several of each cluster of alike launches), or a list
    of numbers, which stand for the launches that are like them; of the thread ``blocks`` of a launch: ``full``, or
    ``tbpoint`` (homogeneous regions).
    """

    ranks: str | list[Annotated[int, Field(ge=0)]] = "auto"
    iterations: str | list[Annotated[int, Field(ge=0)]] = "auto"
    tasks: Literal["full", "periodic", "lazy"] = "full"
    intervals: str | None = None
    launches: Literal["full", "tbpoint"] | Annotated[list[Count], Field(min_length=1)] = "full"
    blocks: Literal["full", "tbpoint"] = "full"

    @field_validator("ranks", "iterations")
    @classmethod
    def _known(cls, value: str | list[int], info: Any) -> str | list[int]:
        known = [
            "auto",
            "traced",
            *(("clusters", *names("sampling")) if info.field_name == "ranks" else ("full", "second", "joined")),
        ]
        if isinstance(value, str) and value not in known and not one_in(value):
            raise ValueError(f"unknown method {value!r}; known are {', '.join(known)}, one-in-N, or a list of numbers")
        if isinstance(value, list) and (not value or len(set(value)) != len(value)):
            raise ValueError("a list names at least one, and each once")
        return value


class TaskPointChoice(TaskPointParameters):
    """Parameters of ``sampling: {tasks: periodic|lazy}``; ``lazy`` is ``period: lazy``. Beside TaskPoint's own:

    ``classes``: what shares its samples, task ``types`` or classes of like basic-block vectors (``bbv``).
    ``correction``: of the samples' mean for each instance, by the ``interval`` model (equation 5.1), or ``none``.
    ``fast_forward``: caches keep what was there when fast-forwarding began (``stale``, as in the source), or the
    distinct lines of skipped instances are touched (``warm``).

    Defaults are what has the smallest errors for its time (tests/validation/taskpoint), not the source's, which
    ``source_choices`` gives.
    """

    classes: Literal["types", "bbv"] = "bbv"
    correction: Literal["none", "interval"] = "none"
    fast_forward: Literal["stale", "warm"] = "warm"
    resample_warm_up: CountOrNone = 2
    history: Count = 16
    settle: CountOrNone = 8
    stagger: Annotated[float, Field(ge=0, lt=1)] = 0.5
    rare: Annotated[float, Field(ge=0, lt=1)] = 0.005
    cut_off: Count = 2
    longest: Count | None = 8
    admit: Literal["finish", "start"] = "start"
    complete: Literal["seen", "current"] = "current"
    mean: Literal["ipc", "cycles"] = "cycles"
    busy_change: Annotated[float, Field(ge=0, allow_inf_nan=False)] | Literal["never", "levels"] = "levels"


def source_choices() -> dict[str, Any]:
    """TaskPoint's own parameters, and what the source chooses beside: all keys of ``taskpoint`` that differ. (But for
    ``count`` and the two of busy cores, whose source's values keep cores in detail that have nothing to do.)"""
    own = {name: field.default for name, field in TaskPointParameters.model_fields.items()}
    own |= {"classes": "types", "correction": "none", "fast_forward": "stale"}
    return {name: value for name, value in own.items() if value != TaskPointChoice.model_fields[name].default}


class DetailedChoice(Strict):
    """How ``model: {cpu: detailed}`` simulates (models/node/detailed.py). ``caches``: at the beginning of what is
    simulated ``cold``; ``warm``, as if the same phases had run before, as far as the lines that instances use tell; or
    as a simulation of the same phases before leaves them (``rerun``; for ``cpu: interval`` the same as warm).
    ``request``: when a memory instruction asks the
    caches, see node/core/kernel.py. ``window``: by how many cycles a core may run ahead of others; 0 is strict order,
    more is faster and biased. ``creation``: what creates task instances or enters loops takes its ``traced`` time, or
    none (``free``): then no core waits for it, and what cores and memory do shows."""

    caches: Literal["cold", "warm", "rerun"] = "warm"
    creation: Literal["traced", "free"] = "traced"
    request: Literal["insertion", "tail"] = "insertion"
    window: Annotated[int, Field(ge=0)] = 0


class IntervalsChoice(Strict):
    """How ``sampling: {intervals: METHOD}`` samples the stream of a program of one thread
    (predict/intervals/sampled_phases.py). It is cut every ``instructions`` at the end of a basic block; all other keys
    are rules of the method, such as ``per_cluster``. ``vectors`` of intervals say what they execute (``blocks``) or
    also what it does in memory (``signature``, with ``line_bytes`` and ``distance_power``:
    predict/intervals/traced.py).

    ``caches`` at the begin of an interval: ``cold``, empty; ``warm``, having seen the ``warm_up`` instructions before
    it (``all``: all of them), prefetchers and branch predictor, too, of which the last ``pipeline`` are simulated in
    detail and not counted; ``last-uses``, the same behind the lines that all before these used last, in this order; or
    ``stitched``, as the chosen interval before left them: one unit simulates all, one after the other. ``warm_up`` is
    20,000,000 by default where caches are warm, 3,000,000 behind last uses. Of the study's ``detailed``, ``request``
    alone plays a part.
    """

    model_config = ConfigDict(extra="allow")

    instructions: Count = 1_000_000
    vectors: Literal["blocks", "signature"] = "blocks"
    line_bytes: Count = 64
    distance_power: Annotated[float, Field(ge=0, le=2)] = 0.0
    caches: Literal["last-uses", "warm", "stitched", "cold"] = "last-uses"
    warm_up: CountOrNone | Literal["all"] | None = None
    pipeline: CountOrNone = 10_000

    @property
    def rules(self) -> dict[str, Any]:
        """Of the method."""
        return dict(self.model_extra or {})


class GpuChoice(Strict):
    """How launches of kernels are predicted (models/gpu). ``caches`` at the beginning of a launch: as a simulation of
    the launch before left them (``kept``; where that one is not simulated in the same unit, as warm); as the accesses
    of launches before leave them, one after the other (``warm``): then launches are independent units; or ``cold``.
    Caches that the target does not keep between launches are empty in any case.

    Of model detailed: ``order``, in which the SMs' requests reach L2: ``strict``, or in ``windows`` no longer than the
    shortest way there and back, which ``groups`` of SMs simulate side by side; their number changes no result.
    Of model gpumech: its ``form``, as ``printed`` or ``extended``, and how the ``representative`` warp is chosen.
    """

    caches: Literal["kept", "warm", "cold"] = "kept"
    order: Literal["strict", "windows"] = "strict"
    groups: Literal["auto"] | Count = "auto"
    form: Literal["printed", "extended"] = "extended"
    representative: Literal["clustering", "max", "min"] = "clustering"


class TbpointChoice(Strict):
    """Parameters of TBPoint. Of ``sampling: {launches: tbpoint}``: ``launches`` (clusters and their representatives;
    the seed is the study's). Of ``sampling: {blocks: tbpoint}``: ``regions`` of a launch, and ``warming``, when the IPC
    of a region is known."""

    launches: LaunchSampling = LaunchSampling()
    regions: RegionRules = RegionRules()
    warming: RegionSamplingRules = RegionSamplingRules()


class TimelineChoice(Strict):
    """Ranks and iterations whose cores are written to ``timeline/cores.parquet``; by default all, unless there are more
    than a million task instances, then rank 0's first two iterations."""

    ranks: list[Annotated[int, Field(ge=0)]] | None = None
    iterations: list[Annotated[int, Field(ge=0)]] | None = None

    def shows(self, rank: int, iteration: int) -> bool:
        """Whether what was simulated of an iteration of a rank is shown."""
        of_rank = self.ranks is None or rank in self.ranks
        return of_rank and (self.iterations is None or iteration in self.iterations)


class PlacementFile(Strict):
    """A text file with the number of the node of every rank, in order, separated by blanks or lines; # begins a
    comment."""

    file: str


class Mapping_(Strict):  # noqa: N801 - `Mapping` is the abstract class
    """Which node each rank runs on: ``block`` fills node after node, ``cyclic`` deals ranks out in turn, ``random``
    shuffles who sits where in ``block`` by the study's seed; a list or a file names the node of every rank.
    Each rank's task instances are scheduled on ``cores_per_rank`` cores; ``ranks_per_node`` defaults to as many as a
    node has cores for. ``launches``: a CSV file with the columns rank, phase (index within the rank) and launch: the
    phase takes the predicted time of that launch of ``workload.gpu_trace``, of several one after the other."""

    placement: Literal["block", "cyclic", "random"] | list[int] | PlacementFile = "block"
    ranks_per_node: Annotated[int, Field(ge=1)] | None = None
    cores_per_rank: Count = 1
    oversubscribe: bool = False
    launches: str | None = None


class AmmChoice(Strict):
    """How ``model: {cpu: amm}`` predicts detailed phases: ``overlap``, the dataflow model of a core, or AMM's equations
    (models/memory/amm/amm.py), ``corrected`` or as ``printed``."""

    form: Literal["overlap", "corrected", "printed"] = "overlap"


class IpcCorrection(Strict):
    """Factors by which the target's IPC is higher than ``cpu_ratio`` says; those that apply to a phase multiply.

    ``phases`` is keyed by "RANK/INDEX", the index of the phase within its rank, or "*/INDEX" for all ranks;
    ``task_types``, of task instances before they are scheduled, by the function or FILE:LINE of their construct;
    ``clusters`` by the numbers that ``manyscale clusters`` gives. With ``balance`` all ranks then compute as long, the
    mean of all (but for those that compute nothing, and before ranks share cores).
    """

    default: PositiveFloat = 1.0
    ranks: dict[int, PositiveFloat] = {}
    regions: dict[str, PositiveFloat] = {}
    phases: dict[str, PositiveFloat] = {}
    task_types: dict[str, PositiveFloat] = {}
    clusters: dict[int, PositiveFloat] = {}
    balance: bool = False


class Study(Strict):
    """A study, validated. ``target`` is a name or file, or a mapping with ``name`` and replaced keys of the machine.

    The key ``what_if``, a list of what-ifs (study/what_if.py), is one more axis of the sweep: they and the study
    itself.
    """

    schema_version: Literal[1] = Field(default=1, alias="schema")
    name: str | None = None
    workload: WorkloadChoice
    target: str | dict[str, Any]
    model: ModelChoice = ModelChoice()
    sampling: SamplingChoice = SamplingChoice()
    mapping: Mapping_ = Mapping_()
    cpu_ratio: PositiveFloat = 1.0
    ipc_correction: IpcCorrection = IpcCorrection()
    amm: AmmChoice = AmmChoice()
    runtime: RuntimeSystem = RuntimeSystem()
    taskpoint: TaskPointChoice = TaskPointChoice()
    detailed: DetailedChoice = DetailedChoice()
    intervals: IntervalsChoice = IntervalsChoice()
    gpu: GpuChoice = GpuChoice()
    tbpoint: TbpointChoice = TbpointChoice()
    timeline: TimelineChoice = TimelineChoice()
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    sweep: dict[str, Annotated[list[Any], Field(min_length=1)]] = {}

    @model_validator(mode="before")
    @classmethod
    def _what_ifs_are_points(cls, content: Any) -> Any:
        if not isinstance(content, dict) or what_if.AXIS not in content:
            return content
        asked = content[what_if.AXIS]
        sweep = content.get("sweep") or {}
        if not isinstance(asked, list) or not isinstance(sweep, dict) or what_if.AXIS in sweep:
            raise ValueError(f"{what_if.AXIS}: write a list of what-ifs, here or in 'sweep', not in both")
        rest = {key: value for key, value in content.items() if key != what_if.AXIS}
        others = [text for text in asked if text != what_if.BASE]
        return {**rest, "sweep": {**sweep, what_if.AXIS: [what_if.BASE, *others]}} if others else rest

    @model_validator(mode="after")
    def _one_ratio(self) -> Study:
        if self.model.cpu != "burst" and self.model.cpu in names("phase-times") and self.cpu_ratio != 1:
            raise ValueError(f"cpu_ratio: model cpu: {self.model.cpu} computes it; leave it out")
        return self

    @model_validator(mode="after")
    def _samples_what_is_simulated(self) -> Study:
        chosen = self.sampling.ranks, self.sampling.iterations, self.sampling.tasks
        takes_all = (
            chosen[0] == "auto" or chosen[0] in names("sampling"),
            chosen[1] in ("auto", "full"),
            chosen[2] == "full",
        )
        if self.model.cpu == "burst" and not all(takes_all):
            raise ValueError("sampling: model cpu: burst takes all from the trace; choose detailed or interval")
        if self.model.cpu != "detailed" and self.sampling.tasks != "full":
            raise ValueError(f"sampling.tasks: {self.sampling.tasks} samples model cpu: detailed; choose that model")
        if self.sampling.blocks != "full" and self.model.gpu not in (None, "detailed"):
            raise ValueError(f"sampling.blocks: {self.sampling.blocks} samples model gpu: detailed; choose that model")
        return self

    @model_validator(mode="after")
    def _intervals_have_a_method(self) -> Study:
        method = self.sampling.intervals
        if method is None:
            if self.intervals != IntervalsChoice():
                raise ValueError("intervals: says how sampling.intervals samples; choose a method there, as simpoint")
            return self
        from manyscale.runner.run.plans.intervals import METHODS, of_one_thread  # loads what few studies need

        if (known := of_one_thread(method)) is None:
            names = f"{', '.join(METHODS)}, and NAME.simpoints, a file"
            raise ValueError(f"sampling.intervals: unknown method {method!r}; known are {names}")
        try:
            known.rules.model_validate(self.intervals.rules)
        except ValidationError as error:
            raise ValueError(f"intervals.{first_problem(error)}") from None
        if self.model.cpu != "detailed":
            raise ValueError(f"sampling.intervals: {method} samples model cpu: detailed; choose that model")
        chosen = self.sampling
        if (chosen.ranks, chosen.iterations, chosen.tasks) != ("auto", "auto", "full"):
            raise ValueError("sampling.intervals: samples one thread's whole run; leave ranks, iterations, tasks out")
        if self.mapping.cores_per_rank > 1:
            raise ValueError("sampling.intervals: samples one thread, on one core; leave mapping.cores_per_rank out")
        return self

    @model_validator(mode="after")
    def _launches_have_a_trace(self) -> Study:
        if (self.mapping.launches is None) != (self.workload.gpu_trace is None):
            raise ValueError(
                "mapping.launches says which phases take the times of which launches of workload.gpu_trace: give both"
            )
        return self

    @field_validator("sweep")
    @classmethod
    def _sweepable(cls, value: dict[str, list[Any]]) -> dict[str, list[Any]]:
        for key in value:
            if key.partition(".")[0] in ("schema", "name", "workload", "sweep"):
                raise ValueError(f"{key!r} is the same for all points of a sweep; run a study for each value")
        for text in value.get(what_if.AXIS, ()):
            try:
                heads = {change.keys[0] for change in what_if.changes(text)}
            except UserError as error:
                raise ValueError(str(error)) from None
            if heads & {"schema", "name", "workload", "sweep"}:
                raise ValueError(f"what-if {text!r}: this key is the same for all points; run a study for each value")
        return value

    @field_validator("target")
    @classmethod
    def _named(cls, value: str | dict[str, Any]) -> str | dict[str, Any]:
        if isinstance(value, dict) and not isinstance(value.get("name"), str):
            raise ValueError("a target given as a mapping needs the key 'name': a shipped machine or a file")
        return value

    @property
    def target_name(self) -> str:
        return self.target if isinstance(self.target, str) else str(self.target["name"])

    @property
    def target_overrides(self) -> Mapping[str, Any]:
        return {} if isinstance(self.target, str) else {k: v for k, v in self.target.items() if k != "name"}


def parse_study(content: Any, place: str) -> Study:
    """Validate a mapping as a study; errors name ``place`` and the key."""
    if not isinstance(content, dict):
        raise UserError(f"{place}: a study is a mapping of keys (schema, workload, target, ...)")
    try:
        return Study.model_validate(content)
    except ValidationError as error:
        raise UserError(f"{place}: {first_problem(error)}") from None


def load_study_content(path: Path) -> Any:
    """A study file's content, paths of its workload and target made absolute if they are relative to the file."""
    content = load_yaml(path)
    if not isinstance(content, dict):
        return content
    inner_paths = (
        ("workload", "path", ""),
        ("workload", "detail", ""),
        ("workload", "gpu_trace", ""),
        ("mapping", "launches", ""),
        ("target", "name", TARGET_SUFFIXES),
    )
    for key, inner, suffix in inner_paths:
        value = content.get(key)
        if isinstance(value, dict) and inner in value:
            content[key] = {**value, inner: _beside(path, value[inner], suffix)}
    mapping = content.get("mapping")
    if isinstance(mapping, dict) and isinstance(mapping.get("placement"), dict) and "file" in mapping["placement"]:
        placement = {**mapping["placement"], "file": _beside(path, mapping["placement"]["file"])}
        content["mapping"] = {**mapping, "placement": placement}
    if isinstance(content.get("target"), str):
        content["target"] = _beside(path, content["target"], TARGET_SUFFIXES)
    if isinstance(content.get("sweep"), dict) and isinstance(content["sweep"].get("target"), list):
        targets = [_beside(path, target, TARGET_SUFFIXES) for target in content["sweep"]["target"]]
        content["sweep"] = {**content["sweep"], "target": targets}
    return content


def _beside(study: Path, given: Any, suffix: str | tuple[str, ...] = "") -> Any:
    """The path ``given`` in a study file, absolute if it stands beside the file; anything else as it is."""
    is_path = isinstance(given, str) and given.endswith(suffix) and not Path(given).is_absolute()
    return str((study.parent / given).resolve()) if is_path and os.path.exists(study.parent / given) else given


def assign(content: dict[str, Any], dotted: str, value: Any) -> dict[str, Any]:
    """``content`` with one dotted key set; a target that is a name becomes a mapping to take keys of the machine."""
    return _assign(content, dotted.split("."), value, dotted)


def _assign(content: dict[str, Any], keys: Sequence[Any], value: Any, place: str) -> dict[str, Any]:
    head, *rest = keys
    if head == "":
        raise UserError(f"{place!r} is not a dotted key such as target.network.latency")
    if not rest:
        return {**content, head: value}
    inner = content.get(head, {})
    if head == "target" and isinstance(inner, str):
        inner = {"name": inner}
    if inner is None:
        inner = {}
    if not isinstance(inner, dict):
        raise UserError(f"{place!r}: {head!r} holds no keys")
    return {**content, head: _assign(inner, rest, value, place)}


def apply_what_if(content: dict[str, Any], text: str) -> dict[str, Any]:
    """``content`` with what a what-if changes. Raises UserError."""
    for change in what_if.changes(text):
        value = change.value
        if change.multiplies:
            inner: Any = content
            for key in change.keys:
                inner = inner.get(key) if isinstance(inner, dict) else None
            value = value * inner if isinstance(inner, int | float) else value
        content = _assign(content, change.keys, value, ".".join(map(str, change.keys)))
    return content


def parse_assignment(text: str, option: str = "--set") -> tuple[str, Any]:
    """KEY=VALUE of the command line; the value is YAML. ``option`` is the one that took it, for errors."""
    key, separator, value = text.partition("=")
    if not separator:
        form = "KEY=VALUE, for example target.network.latency='2 us'" if option == "--set" else "LEVEL=NAME"
        raise UserError(f"{option} {text!r}: write {form}")
    try:
        return key.strip(), yaml.safe_load(value)
    except (yaml.YAMLError, ValueError, RecursionError):
        raise UserError(f"{option} {text!r}: the value is not valid YAML") from None


def sweep_points(content: dict[str, Any], place: str) -> Iterator[tuple[dict[str, Any], Study]]:
    """(values of the axes, study) of every point, the last axis fastest; one point with no values without a sweep."""
    study = parse_study(content, place)
    axes = study.sweep
    for values in itertools.product(*axes.values()):
        point = {key: value for key, value in content.items() if key not in ("sweep", what_if.AXIS)}
        for key, value in zip(axes, values, strict=True):
            try:
                point = apply_what_if(point, value) if key == what_if.AXIS else assign(point, key, value)
            except UserError as error:
                raise UserError(f"{place}: sweep: {error}") from None
        chosen = dict(zip(axes, values, strict=True))
        yield chosen, parse_study(point, point_place(place, chosen))


def point_place(place: str, axes: Mapping[str, Any]) -> str:
    """Where a point of a sweep stands, for errors."""
    return f"{place}: sweep {', '.join(f'{key}={value}' for key, value in axes.items())}" if axes else place
