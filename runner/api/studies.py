"""Predicting studies: ``run``, ``sweep``, ``what_if``; and what can be asked of a run directory."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields
from os import PathLike
from pathlib import Path
from typing import Any

from manyscale.models.spelling import unknown
from manyscale.runner.api.deprecated import renames
from manyscale.runner.api.folders import Folder, Output, place
from manyscale.runner.api.inputs import Asked, StudyLike, TargetLike, asked_study
from manyscale.runner.api.progress import Progress, watched
from manyscale.runner.api.study_results import RunResult, SweepResult, WhatIfResult
from manyscale.runner.errors import UserError
from manyscale.runner.run.results import Result
from manyscale.runner.run.study_runs import Options, Run, run_study
from manyscale.runner.storage.address import located_or_none
from manyscale.runner.study import parse_study
from manyscale.runner.study import what_if as what_ifs

_PathLike = str | PathLike[str]


@renames(num_workers=("workers", "0.3"))
def run(
    study: StudyLike,
    output: Output = None,
    *,
    target: TargetLike | None = None,
    format: str | None = None,
    time: str | None = None,
    launches: Sequence[int] | None = None,
    model: Mapping[str, str] | None = None,
    sampling: Mapping[str, Any] | None = None,
    set: Mapping[str, Any] | None = None,
    seed: int | None = None,
    executor: str = "auto",
    address: str | None = None,
    workers: int | None = None,
    host: _PathLike | None = None,
    cache: _PathLike | None = None,
    resume: bool = False,
    report: bool = True,
    self_contained: bool = False,
    accept: Collection[str] = (),
    strict: bool = False,
    progress: Progress = False,
) -> RunResult:
    """Predict a study's time.

    ``study``: a study file, the name of a shipped example, a run directory, a mapping as a study file holds it, or
    with ``target`` a trace by path or name. ``target``, ``format``, ``time``, ``launches``, ``model``, ``sampling``,
    ``seed`` and ``set`` (dotted key to value) replace what it says, as the options of ``manyscale run`` do.

    ``output``: the run directory; without, files go to a temporary folder that is removed with the result, and neither
    traces nor a page are written (``result.save(DIR)`` does). None of the further options changes a number:
    ``executor`` "auto", "local" or "ray", with ``address``, ``workers`` and the file ``host``; ``cache``, where results
    of work units are kept; ``resume`` goes on with a run in ``output``; ``report`` writes traces and the page,
    with ``self_contained`` each page of a sweep whole;
    ``accept``, codes of notes that shall not refuse the number, ``strict`` refuses those that change it, too;
    ``progress`` True shows a bar, or is a function of (done, total, what).

    Raises UserError for bad input, RunError if the run fails.
    """
    asked = asked_study(
        study, target=target, format=format, time=time, launches=launches, model=model, sampling=sampling, set=set,
        seed=seed,
    )  # fmt: skip
    if parse_study(asked.content, asked.place).sweep:
        raise UserError(f"{asked.place}: the study is a sweep; call manyscale.sweep, which returns a row per point")
    found = predicted(
        asked, output, executor=executor, address=address, workers=workers, host=host, cache=cache, resume=resume,
        report=report, self_contained=self_contained, accept=accept, strict=strict, progress=progress,
    )  # fmt: skip
    assert isinstance(found, RunResult)
    return found


@renames(num_workers=("workers", "0.3"))
def sweep(
    study: StudyLike,
    output: Output = None,
    *,
    axes: Mapping[str, Sequence[Any]] | None = None,
    target: TargetLike | None = None,
    format: str | None = None,
    time: str | None = None,
    launches: Sequence[int] | None = None,
    model: Mapping[str, str] | None = None,
    sampling: Mapping[str, Any] | None = None,
    set: Mapping[str, Any] | None = None,
    seed: int | None = None,
    executor: str = "auto",
    address: str | None = None,
    workers: int | None = None,
    host: _PathLike | None = None,
    cache: _PathLike | None = None,
    resume: bool = False,
    report: bool = True,
    self_contained: bool = False,
    accept: Collection[str] = (),
    strict: bool = False,
    yes: bool = False,
    progress: Progress = False,
) -> SweepResult:
    """Predict every point of a sweep: a study that has one, or any with ``axes`` (dotted key to values, the last one
    fastest). ``yes``: it may have more than 10,000 points. All else as ``run`` has it. Raises UserError for bad input,
    RunError if the run fails."""
    asked = asked_study(
        study, target=target, format=format, time=time, launches=launches, model=model, sampling=sampling, set=set,
        seed=seed,
    )  # fmt: skip
    if axes is not None:
        swept = {key: list(values) for key, values in axes.items()}
        asked = asked._replace(content={**asked.content, "sweep": swept})
    if not parse_study(asked.content, asked.place).sweep:
        raise UserError(f"{asked.place}: the study has no sweep; give axes, or call manyscale.run")
    found = predicted(
        asked, output, executor=executor, address=address, workers=workers, host=host, cache=cache, resume=resume,
        report=report, self_contained=self_contained, accept=accept, strict=strict, yes=yes, progress=progress,
    )  # fmt: skip
    assert isinstance(found, SweepResult)
    return found


def what_if(
    study: StudyLike,
    what: Sequence[str] = what_ifs.STANDARD,
    output: Output = None,
    *,
    target: TargetLike | None = None,
    format: str | None = None,
    time: str | None = None,
    launches: Sequence[int] | None = None,
    model: Mapping[str, str] | None = None,
    sampling: Mapping[str, Any] | None = None,
    set: Mapping[str, Any] | None = None,
    seed: int | None = None,
    executor: str = "auto",
    address: str | None = None,
    workers: int | None = None,
    cache: _PathLike | None = None,
    report: bool = True,
    accept: Collection[str] = (),
    strict: bool = False,
    yes: bool = False,
    progress: Progress = False,
) -> WhatIfResult:
    """Predict a study or a run again under other assumptions, and compare. ``what``: ideal-network, zero-latency,
    infinite-bandwidth, perfect-balance, faster:LEVEL:NAME=N (region, rank, phase, cluster), of steps on GPUs no-skew,
    free-collectives, no-launch-latency, slower:rank:N=F, or KEY=VALUE, such as target=NAME. All else as ``run`` has it.
    Raises UserError for bad input, RunError if the run fails."""
    asked = asked_study(
        study, target=target, format=format, time=time, launches=launches, model=model, sampling=sampling, set=set,
        seed=seed, what_ifs=[what] if isinstance(what, str) else what,
    )  # fmt: skip
    return predicted_what_ifs(
        asked, output, executor=executor, address=address, workers=workers, cache=cache, report=report, accept=accept,
        strict=strict, yes=yes, progress=progress,
    )  # fmt: skip


def predicted_what_ifs(asked: Asked, output: Output = None, **options: Any) -> WhatIfResult:
    """The same of a study's content, ``options`` as of ``predicted``."""
    if list(parse_study(asked.content, asked.place).sweep) != [what_ifs.AXIS]:
        raise UserError(f"{asked.place}: is a sweep; ask of one of its points, or run the study with --what-if")
    found = predicted(asked, output, point_traces=False, self_contained=True, resume=None, **options)
    assert isinstance(found, WhatIfResult)
    return found


def predicted(
    asked: Asked,
    output: Output = None,
    *,
    executor: str = "auto",
    address: str | None = None,
    workers: int | None = None,
    host: _PathLike | None = None,
    cache: _PathLike | None = None,
    resume: bool | None = False,
    report: bool = True,
    point_traces: bool = True,
    self_contained: bool = False,
    accept: Collection[str] = (),
    strict: bool = False,
    yes: bool = False,
    progress: Progress = False,
) -> RunResult | SweepResult:
    """A study's content, sweep or not, predicted and written; arguments as those of ``run``; ``resume`` is None
    where nobody can ask for it."""
    check_executor(executor, workers)
    directory, scratch = place(output)
    with watched(progress) as show:
        options = Options(
            output=directory, executor=executor, address=address, num_workers=workers,
            host=None if host is None else Path(host), cache=located_or_none(cache), resume=resume,
            report=report and scratch is None, point_traces=point_traces, self_contained=self_contained,
            accept=accept, strict=strict, yes=yes, progress=show,
        )  # fmt: skip
        finished = run_study(asked.content, asked.place, asked.beside, options)
    folder = Folder(finished.directory, scratch)
    axes = tuple(parse_study(asked.content, asked.place).sweep)
    if not axes:
        return _run_result(finished, folder)
    kind = WhatIfResult if axes == (what_ifs.AXIS,) else SweepResult
    return kind(finished.name, axes, finished.points, folder, finished.counts, finished.host)


def check_executor(executor: str, workers: int | None = None, seed: int | None = None) -> None:
    """Raises UserError for an unknown executor and for numbers that are too small."""
    from manyscale.runner.registry import names

    if executor not in ("auto", *names("executor")):
        raise UserError(unknown("executor", executor, ["auto", *names("executor")]))
    if workers is not None and workers < 1:
        raise UserError(f"--workers {workers}: at least one is needed")
    if seed is not None and seed < 0:
        raise UserError(f"--seed {seed}: a seed is not negative")


def _run_result(finished: Run, folder: Folder) -> RunResult:
    result = finished.result
    assert result is not None
    own = {each.name: getattr(result, each.name) for each in fields(Result)}
    return RunResult(**own, folder=folder, counts=finished.counts, host=finished.host)
