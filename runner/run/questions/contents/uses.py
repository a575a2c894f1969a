"""Which commands a workload can be given to, and which command records what it lacks for the others."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from manyscale.models.workload import OperationKind, Workload
from manyscale.runner.run.questions.contents.tasks import has_tasks

_PROGRAM: Final = "-- PROGRAM"


@dataclass(frozen=True)
class Use:
    """``command``, and what it ``gives``; ``lacks``: "" where the workload can be given to it, else what is missing,
    and how that is recorded."""

    command: str
    gives: str
    lacks: str


@dataclass(frozen=True)
class _Kind:
    """``lacks`` is told of the workloads that ``expects`` chooses: that kernel launches come without call stacks is no
    news to anybody."""

    command: str
    gives: str
    has: Callable[[Workload], bool]
    lacks: str
    expects: Callable[[Workload], bool]


def _rows(level: str) -> Callable[[Workload], bool]:
    return lambda workload: bool(workload.tables[level].num_rows)


def _has_times(workload: Workload) -> bool:
    return bool(np.any(workload.column("phases", "duration_ps") > 0))


def _has_clock(workload: Workload) -> bool:
    return workload.is_measured and bool(np.any(workload.column("measured", "end_ps") > 0))


def _has_detail(workload: Workload) -> bool:
    return workload.detail is not None and bool(workload.tables["instructions"].num_rows)


def _has_accesses(workload: Workload) -> bool:
    return workload.detail is not None and bool(np.any(workload.column("segments", "num_accesses") > 0))


def _has_calls(workload: Workload) -> bool:
    own = (OperationKind.other, OperationKind.init, OperationKind.finalize)
    return bool(np.any(~np.isin(workload.column("operations", "kind"), own)))


def _has_instructions(workload: Workload) -> bool:
    return workload.gpu is not None and bool(workload.gpu.launch_ids)


def _has_gpu(workload: Workload) -> bool:
    return bool(workload.tables["launches"].num_rows or workload.tables["gpu_operations"].num_rows)


def _is_of_processors(workload: Workload) -> bool:
    """Whether it tells what ranks, threads or cores did."""
    return any(found(workload) for found in (_has_times, _has_calls, has_tasks, _has_accesses))


def _always(workload: Workload) -> bool:
    return True


_TASKS: Final = f"task instances (manyscale trace --level tasks -o DIR {_PROGRAM}; of a program with OpenMP)"
_DETAIL: Final = f"instructions and accesses (manyscale trace --level detailed -o DIR {_PROGRAM})"
_CODE: Final = f"classes and registers of its instructions (manyscale trace --level detailed -o DIR {_PROGRAM})"
_LAUNCHES: Final = "kernel launches (manyscale trace --level gpu -o DIR -- PROGRAM; of a CUDA program)"
_RUN: Final = "manyscale run --workload {} --target NAME"
_KINDS: Final = (
    _Kind(
        _RUN, "time, timeline and efficiencies on a target",
        lambda w: _has_times(w) or _has_calls(w) or _has_instructions(w) or _has_detail(w),
        f"times (manyscale trace -o DIR {_PROGRAM})", _always,
    ),
    _Kind(
        f"{_RUN} --model network=flow", "the same, messages sharing the links of a topology", _has_calls,
        f"MPI calls (manyscale trace -o DIR {_PROGRAM}; of an MPI program)", _is_of_processors,
    ),
    _Kind(
        "manyscale scaling {} --target NAME --cores 1,2,4,8", "time over the number of cores", has_tasks, _TASKS,
        _is_of_processors,
    ),
    _Kind(
        f"{_RUN} --model cpu=detailed", "cores, caches and memory in detail", _has_detail, _DETAIL, _is_of_processors,
    ),
    _Kind(
        "manyscale evaluate {} --target NAME", "what samples of the task instances (TaskPoint) would err",
        lambda w: has_tasks(w) and _has_detail(w),
        f"task instances with their instructions (manyscale trace --level detailed -o DIR {_PROGRAM}; of a program "
        "with OpenMP, without --function)", _is_of_processors,
    ),
    _Kind(
        "manyscale profile {} --target NAME", "stack distances and hit rates of caches", _has_accesses, _DETAIL,
        _is_of_processors,
    ),
    _Kind(
        f"{_RUN} --model gpu=gpumech", "cycles of the launches, by GPUMech or in detail", _has_instructions, _LAUNCHES,
        _has_gpu,
    ),
    _Kind(
        "manyscale plan {} --method tbpoint", "which launches stand for all", _rows("launches"), _LAUNCHES, _has_gpu,
    ),
    _Kind(
        "manyscale plan {} --method simpoint", "which intervals stand for all", _rows("intervals"),
        "basic-block vectors of intervals (NAME.bb of SimPoint or Valgrind's exp-bbv, or manyscale profile --interval "
        "N of a trace with tasks and instructions)", _has_accesses,
    ),
    _Kind(
        "manyscale plan {} --method simprof", "which sampling units stand for all", _rows("stack_units"),
        f"call stacks (manyscale trace --level stacks -o DIR {_PROGRAM})", _rows("intervals"),
    ),
    _Kind(
        "manyscale compare RUN {}", "where a predicted run and the measured one differ", _has_clock,
        f"when its operations began and ended (manyscale trace -o DIR {_PROGRAM})", _has_calls,
    ),
    _Kind(
        "manyscale clusters {}", "phase clusters of its bursts", _has_times,
        f"times (manyscale trace -o DIR {_PROGRAM})", _is_of_processors,
    ),
)  # fmt: skip


def uses(workload: Workload, name: str) -> tuple[Use, ...]:
    """Commands by what they give, those that can be given the workload first, then those for which a workload of this
    kind might have what it lacks. ``name``: as commands name it."""
    shown = shlex.quote(name)
    found = []
    for kind in _KINDS:
        has = kind.has(workload)
        lacks = _CODE if kind.lacks == _DETAIL and _has_accesses(workload) else kind.lacks
        if has or kind.expects(workload):
            found.append(Use(kind.command.format(shown), kind.gives, "" if has else lacks))
    return tuple(sorted(found, key=lambda use: bool(use.lacks)))
