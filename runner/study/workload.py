"""Which trace a study is about, and how it is read: its key ``workload``."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    Field,
    SerializerFunctionWrapHandler,
    ValidatorFunctionWrapHandler,
    field_validator,
    model_serializer,
    model_validator,
)

from manyscale.models.transformer.memory import fullest
from manyscale.models.transformer.shape import ImpossibleShapeError, Transformer
from manyscale.models.workload.parameters import Count, Quantity, Strict
from manyscale.models.workload.quantities import parse_bytes, parse_flop_rate, parse_time_ps
from manyscale.runner.readers.options import ReadOptions


def _flop_rate(text: object) -> object:
    parse_flop_rate(text)
    return text


def _size(text: object) -> object:
    parse_bytes(text)
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
    """How many iterations the main loop has. The first is the traced first one, then the others follow in turn."""
    jitter: Annotated[float, Field(ge=0, le=1)] = 0.0
    """The standard deviation of a random factor on the time of each task instance in each repetition."""


class Synthesis(Transformer):
    """What is made, and the machine whose GPUs the kernels' times are of. With ``gpus`` alone, ``dp`` is what ``tp``
    and ``pp`` leave of them, and not among the keys that are written."""

    model: Literal["transformer"] = "transformer"
    """The kind of model."""
    target: str = Field(min_length=1)
    """The machine whose GPUs the times of kernels are of: a shipped name or a YAML file. The study's own target may be
    another: its GPUs' times follow from these."""
    rows: Count | None = None
    """The most operations of a rank: where they would be more, those of several layers are one, with their collectives.
    By default 2,000, more of few ranks."""
    gpus: Count | None = None
    """All GPUs: data parallelism is what tensor and pipeline parallelism leave of them, unless `dp` says so itself."""
    gpu_memory: Annotated[str, BeforeValidator(_size), Quantity("size in B")] | None = None
    """What a GPU may hold: a step that needs more is refused, and left out of a sweep. By default none is."""

    @model_validator(mode="wrap")
    @classmethod
    def _spread(cls, value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
        if not isinstance(value, Mapping) or value.get("gpus") is None or "dp" in value:
            return handler(value)
        copies = copies_of(value)
        if copies is None:  # what is wrong with it the fields say
            return handler(value)
        found = handler({**value, "dp": copies})
        found.__pydantic_fields_set__.discard("dp")
        return found

    @model_validator(mode="after")
    def _fits(self) -> Synthesis:
        if self.gpus is not None and self.ranks != self.gpus:
            raise ImpossibleShapeError(f"gpus: {self.gpus} are not tp x pp x dp, {self.ranks}")
        if self.gpu_memory is not None:
            needs, stage = fullest(self)
            if needs.total > parse_bytes(self.gpu_memory):
                raise ImpossibleShapeError(
                    f"gpu_memory: a GPU of stage {stage} needs {needs.total / 1e9:.1f} GB, of {self.gpu_memory}"
                )
        return self

    @model_serializer(mode="wrap")
    def _without_what_follows(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        found: dict[str, Any] = handler(self)
        if self.gpus is not None and "dp" not in self.model_fields_set:
            found.pop("dp", None)
        return found


def copies_of(keys: Mapping[str, Any]) -> int | None:
    """Data parallelism by ``gpus``, ``tp`` and ``pp`` of a synthesis as it is written; None if these are no counts.
    Raises ImpossibleShapeError."""
    gpus, *parts = keys.get("gpus"), keys.get("tp", 1), keys.get("pp", 1)
    if not all(type(each) is int and each > 0 for each in (gpus, *parts)):
        return None
    if gpus % math.prod(parts):
        raise ImpossibleShapeError(f"gpus: {gpus} is no multiple of tp x pp, {math.prod(parts)}")
    return int(gpus // math.prod(parts))


class TraceChoice(Strict):
    """Where the trace is, and how to read it. ``flop_rate`` turns a trace's flop counts into time; ``time_unit`` is
    what a bare number of time means in a format that names no unit (GOAL); ``application`` chooses one of several in a
    trace (Paraver). ``launches``: those kernel launches of a GPU's trace that are read, counted from 1; by default all.
    ``threads``, ``idle``: of profiles of call stacks, regular expressions of the names of threads that are kept
    (without: those that run a known framework's tasks, else all) and of further methods in which a thread waits.
    ``detail``: another trace of the same program, on the same input, that holds the detailed level of some ranks and
    iterations. ``polls``: whether what a program computed only while it polled is left out (``drop``) or replayed as
    the traced machine let it (``keep``; ``models/workload/polls.py``). ``time``: the clock that says how long a
    program computed, of a trace with several (the tracer's: the CPU time of the thread that calls MPI, that of the
    process, or wall time, where ``auto`` is what the longest thread takes; DUMPI). ``unequal_collectives``: of a
    format that names no communicators, whether collectives that only some ranks call are done by groups of these,
    where these can be told (``infer``) or in any case (``group``), or by each alone (``local``;
    ``readers/simgrid_ti/groups.py``). ``ranks``: how many there are, where the trace does not say it (SimAI's text).
    ``gpu_trace``: the trace of the kernel launches that ``mapping.launches`` places, or, of a workload with times of
    kernels, the instructions of those of the same name and shape. ``repeat``: see Repeat.
    ``synthesise``: nothing is read; a step is made from the shape of a model, and ``path`` is the kind of model."""

    path: str
    """The trace: a file or folder, relative to the study's file, or the name of a shipped one."""
    format: str = "auto"
    """The format of the trace. `auto` finds it out."""
    flop_rate: Annotated[str, BeforeValidator(_flop_rate), Quantity("rate in flop/s")] = "1 Gflop/s"
    """The speed of the traced machine, which turns a trace's flop counts into time (SimGrid)."""
    time_unit: Annotated[str, BeforeValidator(_time_unit), Quantity("time in s")] = "1 ns"
    """What a bare number of time means in a format that names no unit (GOAL)."""
    application: Count = 1
    """Which of several applications in a trace is read, counted from 1 (Paraver)."""
    launches: Annotated[list[Count], Field(min_length=1)] | None = None
    """The kernel launches of a GPU's trace that are read, counted from 1. By default all."""
    threads: Annotated[str, BeforeValidator(_pattern)] = ""
    """Of profiles of call stacks: a regular expression of the names of threads that are kept. By default those that run
    tasks of a known framework, else all."""
    idle: Annotated[str, BeforeValidator(_pattern)] = ""
    """Of profiles of call stacks: a regular expression of further methods in which a thread only waits."""
    polls: Literal["drop", "keep"] = "drop"
    """Whether what a program computed only while it polled is left out (`drop`) or replayed (`keep`)."""
    time: Literal["auto", "cpu", "process", "wall"] = "auto"
    """The clock of a trace that has several: `auto`, `cpu` (the thread that calls MPI), `process` (all threads) or
    `wall`."""
    unequal_collectives: Literal["infer", "group", "local"] = "infer"
    """Of a format without communicators, collectives that only some ranks call: groups where these can be told
    (`infer`), in any case (`group`), or each rank alone (`local`)."""
    missing_ranks: Literal["drop", "keep"] = "drop"
    """Whether ranks of a job that were not traced are left out (`drop`) or are there without operations, for others to
    stand in for them (`keep`; `manyscale extrapolate --role`)."""
    ranks: Count | None = None
    """How many ranks there are, of a trace that does not say it, or says another number (SimAI's text)."""
    detail: str | None = None
    """Another trace of the same program, on the same input, that holds the detailed level of some ranks and
    iterations."""
    gpu_trace: str | None = None
    """The trace of the kernel launches that `mapping.launches` places; without that, of a workload with times of
    kernels: a model of GPUs says what kernels of the same name and shape as its launches take."""
    repeat: Repeat | None = None
    """More iterations of the main loop than were traced."""
    synthesise: Synthesis | None = None
    """A step of training that is made from a model's shape, in place of a trace; without `path`."""

    @model_validator(mode="before")
    @classmethod
    def _made_or_read(cls, value: Any) -> Any:
        """What is made goes by its kind of model."""
        if not isinstance(value, Mapping) or value.get("synthesise") is None:
            return value
        choice = value["synthesise"]
        model = (
            choice.get("model", "transformer")
            if isinstance(choice, Mapping)
            else getattr(choice, "model", "transformer")
        )
        if value.get("path", model) != model:
            raise ValueError("has both a path and synthesise: leave one out")
        return {**value, "path": model}

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
            threads=self.threads, idle=self.idle, time=self.time, unequal_collectives=self.unequal_collectives,
            ranks=self.ranks or 0, missing_ranks=self.missing_ranks,
        )  # fmt: skip


class WorkloadChoice(TraceChoice):
    """``beside``: further jobs that run on the machine at the same time; ``job``: which alone runs, counted from 1,
    while ranks of the others idle at their places (models/workload/jobs.py)."""

    beside: list[TraceChoice] = []
    """Further jobs that run on the machine at the same time, each with the keys of `workload`. Their ranks follow those
    of the jobs before."""
    job: Count | None = None
    """Of several jobs the one that alone runs, counted from 1: the others' ranks idle at their places."""

    @model_validator(mode="after")
    def _one_of_the_jobs(self) -> WorkloadChoice:
        if self.job is not None and self.job > 1 + len(self.beside):
            raise ValueError(f"job: {self.job} is none of the {1 + len(self.beside)} jobs (workload.beside)")
        return self
