"""What a study may say, and what of it goes together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from pydantic import Field, ValidationError, create_model, field_validator, model_validator

from manyscale.models.spelling import unknown
from manyscale.models.workload.parameters import Count, Strict
from manyscale.runner.errors import UserError
from manyscale.runner.problems import wrong_key
from manyscale.runner.registry import lookup, names
from manyscale.runner.study import shapes, what_if
from manyscale.runner.study.mapping import IpcCorrection, Mapping_, PositiveFloat
from manyscale.runner.study.samplers import LEVELS, rules_of, sampler_named
from manyscale.runner.study.workload import WorkloadChoice

Block = TypeVar("Block", bound=Strict)


class ModelChoice(Strict):
    """The model of each level, by its name in the registry. ``gpu`` is ``detailed`` by default, where a workload has
    kernel launches."""

    cpu: str = "burst"
    """What predicts compute phases: `burst` takes traced times, `detailed` and `interval` simulate cores and memory,
    `amm` is the analytical memory model."""
    gpu: str | None = None
    """What predicts kernel launches: `detailed`, cycle by cycle, or `gpumech`, an interval model. By default
    `detailed`, where the workload has launches."""
    network: str = "latency-bandwidth"
    """What predicts messages and collectives: `latency-bandwidth`, `loggops`, `dimemas` or `flow`."""

    @field_validator("cpu", "gpu", "network")
    @classmethod
    def _known(cls, value: str | None, info: Any) -> str | None:
        if value is not None and value not in names(info.field_name):
            raise ValueError(unknown("model", value, names(info.field_name)))
        return value


class SamplingChoice(Strict):
    """What is simulated by the model of the cores, where that is not all (predict/node/cells/plan.py).

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
    """The ranks that are simulated: `full`, `traced`, `one-in-N`, `clusters`, or a list of numbers. `auto` is `full`
    for models that need no detailed level, else `traced`."""
    iterations: str | list[Annotated[int, Field(ge=0)]] = "auto"
    """The iterations of the main loop that are simulated: `full`, `traced`, `one-in-N`, `second`, `joined`, or a list
    of numbers. `auto` as for ranks."""
    tasks: str = "full"
    """The task instances of a phase that are simulated: `full`, or TaskPoint's `periodic` or `lazy`, whose parameters
    stand in `taskpoint`."""
    intervals: str | None = None
    """The method that chooses intervals of a program of one thread, such as `simpoint`, or a file of chosen intervals.
    Its rules stand in `intervals`."""
    launches: str | Annotated[list[Count], Field(min_length=1)] = "full"
    """The kernel launches that are simulated: `full`, `tbpoint` or another method, or a list of numbers, counted from
    1."""
    blocks: str = "full"
    """The thread blocks of a launch that are simulated: `full`, or `tbpoint` for samples of homogeneous regions."""

    @field_validator("ranks", "iterations", "launches")
    @classmethod
    def _known_or_numbers(cls, value: str | list[int], info: Any) -> str | list[int]:
        level, has_auto = LEVELS[info.field_name], info.field_name != "launches"
        if isinstance(value, str) and not (value == "auto" and has_auto) and sampler_named(level, value) is None:
            known = [*(["auto"] if has_auto else []), *names(f"{level}-sampler")]
            raise ValueError(unknown("method", value, known, ", or a list of numbers"))
        if isinstance(value, list) and has_auto and (not value or len(set(value)) != len(value)):
            raise ValueError("a list names at least one, and each once")
        return value

    @field_validator("tasks", "blocks")
    @classmethod
    def _known(cls, value: str, info: Any) -> str:
        known = names(f"{LEVELS[info.field_name]}-sampler")
        if value not in known:
            raise ValueError(unknown("method", value, known))
        return value


class _FirstKeys(Strict):
    """The keys of a study up to the blocks of options, in the order in which ``resolved.yaml`` has them."""

    schema_version: Literal[1] = Field(default=1, alias="schema")
    """The version of this format. It is 1."""
    name: str | None = None
    """The name of the study, after which its run directory is called. By default that of its file."""
    workload: WorkloadChoice
    """Which trace the study is about, and how it is read."""
    target: str | dict[str, Any]
    """The machine whose time is predicted: the name of a shipped one, a file (YAML, or a Dimemas configuration), or a
    mapping with `name` and the keys of the machine that are replaced."""
    model: ModelChoice = ModelChoice()
    """Which model predicts each level of the application."""
    sampling: SamplingChoice = SamplingChoice()
    """What is simulated, where that is not everything; the rest follows from it."""
    mapping: Mapping_ = Mapping_()
    """Which node each rank runs on, and on how many cores."""
    cpu_ratio: PositiveFloat = 1.0
    """How long compute takes on the target, relative to the trace: 0.5 is twice as fast. Only for `model: {cpu:
    burst}`."""
    ipc_correction: IpcCorrection = IpcCorrection()
    """Factors on the speed of single ranks, regions, phases, task types or clusters."""


def _with_blocks(keys: type[_FirstKeys]) -> type[_FirstKeys]:
    """With one more key for each block of options that the registry knows."""
    blocks: dict[str, Any] = {}
    for name in names("options"):
        if name in keys.model_fields or name in ("schema", "seed", "sweep", what_if.AXIS):
            raise UserError(f"options {name!r}: a study has a key of this name; the plug-in must choose another")
        blocks[name] = (block := lookup("options", name), block())
    return create_model("_Keys", __base__=keys, **blocks)


if TYPE_CHECKING:
    _Keys = _FirstKeys
else:
    _Keys = _with_blocks(_FirstKeys)


class Study(_Keys):
    """A study, validated. ``target`` is a name or file, or a mapping with ``name`` and replaced keys of the machine.

    What a model or a method may be told stands in a block of its own (registry: seam ``options``), which ``options``
    hands out by its class.

    The key ``what_if``, a list of what-ifs (study/what_if.py), is one more axis of the sweep: they and the study
    itself.
    """

    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """The seed of every random choice. The same seed gives the same bytes."""
    sweep: dict[str, Annotated[list[Any], Field(min_length=1)]] = {}
    """Dotted keys of the study, and the values that each takes. Every combination is a point of the sweep."""

    def options(self, block: type[Block]) -> Block:
        """The study's block of options of this class. Raises KeyError for a class that is not registered."""
        for name, field in type(self).model_fields.items():
            if field.annotation is block:
                found: Block = getattr(self, name)
                return found
        raise KeyError(block)

    def choices(self, *keys: str) -> tuple[object, ...]:
        """All that decides what samplers choose, for ``keys`` of ``sampling``, as a key of what they have chosen."""
        found: list[object] = [self.seed]
        for key in keys:
            method = getattr(self.sampling, key)
            sampler = sampler_named(LEVELS[key], method) if isinstance(method, str) else None
            found += [str(method), "" if sampler is None else rules_of(sampler, self).model_dump_json()]
        return tuple(found)

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

    @model_validator(mode="before")
    @classmethod
    def _first_shape(cls, content: Any) -> Any:
        """What is synthesised has the first shape of the sweep: without the sweep's values it may be none."""
        sweep = content.get("sweep") if isinstance(content, dict) else None
        workload = content.get("workload") if isinstance(content, dict) else None
        if isinstance(workload, WorkloadChoice):
            workload = workload.model_dump(exclude_unset=True)
        base = workload.get("synthesise") if isinstance(workload, dict) else None
        if not isinstance(sweep, dict) or not isinstance(workload, dict) or not isinstance(base, dict):
            return content
        lists = {key: each for key, each in sweep.items() if isinstance(key, str) and isinstance(each, list) and each}
        if not any(map(shapes.is_shape, lists)):
            return content
        return {**content, "workload": {**workload, "synthesise": shapes.first_shape(base, lists)}}

    @model_validator(mode="after")
    def _synthesis_has_shapes(self) -> Study:
        wrong = next((key for key in self.sweep if shapes.is_shape(key)), None)
        if wrong is not None and self.workload.synthesise is None:
            raise ValueError(f"sweep: {wrong!r} is a key of a step that is made, and workload.synthesise makes none")
        if wrong is not None and self.workload.beside:
            raise ValueError(
                f"sweep: {wrong!r}: jobs that share a machine have a shape each; run a study for each value"
            )
        return self

    @model_validator(mode="after")
    def _one_ratio(self) -> Study:
        if self.model.cpu != "burst" and self.model.cpu in names("phase-times") and self.cpu_ratio != 1:
            raise ValueError(f"cpu_ratio: model cpu: {self.model.cpu} computes it; leave it out")
        return self

    @model_validator(mode="after")
    def _samples_what_is_simulated(self) -> Study:
        of_detail = self.sampling.ranks == "traced" or self.sampling.iterations not in ("auto", "full")
        if self.model.cpu == "burst" and (of_detail or self.sampling.tasks != "full"):
            raise ValueError("sampling: model cpu: burst takes all from the trace; choose detailed or interval")
        if self.model.cpu != "detailed" and self.sampling.tasks != "full":
            raise ValueError(f"sampling.tasks: {self.sampling.tasks} samples model cpu: detailed; choose that model")
        if self.sampling.blocks != "full" and self.model.gpu not in (None, "detailed"):
            raise ValueError(f"sampling.blocks: {self.sampling.blocks} samples model gpu: detailed; choose that model")
        return self

    @model_validator(mode="after")
    def _blocks_go_with_the_rest(self) -> Study:
        for _, block in self:
            if (check := getattr(block, "check", None)) is not None:
                check(self)
        return self

    @model_validator(mode="after")
    def _launches_have_a_trace(self) -> Study:
        if self.mapping.launches is not None and self.workload.gpu_trace is None:
            raise ValueError(
                "mapping.launches says which phases take the times of which launches of workload.gpu_trace: give both"
            )
        return self

    @field_validator("sweep")
    @classmethod
    def _sweepable(cls, value: dict[str, list[Any]]) -> dict[str, list[Any]]:
        for key in value:
            if key.partition(".")[0] in ("schema", "name", "workload", "sweep") and not shapes.is_shape(key):
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
        raise wrong_key(error, Study, place) from None
