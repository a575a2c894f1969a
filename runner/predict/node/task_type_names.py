"""Task types as studies name them: by the function that holds the construct, or by FILE:LINE."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from manyscale.models.node.scheduler.runtime_system import RuntimeSystem
from manyscale.models.spelling import unknown
from manyscale.models.workload import Workload
from manyscale.runner.errors import UserError
from manyscale.runner.study import Study

_KEY = ("construct", "function", "file", "line")


def named_types(workload: Workload, name: str) -> np.ndarray:
    """int64[]: the types of that name."""
    functions, files, lines = (workload.tables["task_types"].column(key).to_pylist() for key in _KEY[1:])
    return np.array(
        [
            index
            for index, (function, file, line) in enumerate(zip(functions, files, lines, strict=True))
            if name in (function, f"{file}:{line}", f"{file.rpartition('/')[2]}:{line}")
        ],
        np.int64,
    )


def factors_of_types(workload: Workload, study: Study) -> np.ndarray:
    """float64[types + 1]: by how much instances of each type, and instance 0, last, are faster than traced: the
    study's ``ipc_correction.task_types``. Raises UserError for a type that the trace has not."""
    factors = np.ones(workload.tables["task_types"].num_rows + 1)
    for name, value in study.ipc_correction.task_types.items():
        found = named_types(workload, name)
        if not len(found):
            raise UserError(f"ipc_correction.task_types: {_unknown(workload, name)}")
        factors[found] *= value
    return factors


def check_priorities(workload: Workload, study: Study) -> None:
    """Raises UserError for priorities of a type that the trace has not."""
    for name in study.options(RuntimeSystem).priorities:
        if not len(named_types(workload, name)):
            raise UserError(f"runtime.priorities: {_unknown(workload, name)}")


def same_types(own: Workload, other: Workload) -> np.ndarray:
    """int64[types of own]: the type of ``other`` that is the same place of the source, -1 where there is none.

    Of a construct whose function has another name there (compilers name outlined functions by their options), the one
    that stands alone on the same line. Of a construct without a place (instrumented builds lose lines), or of a file
    in another folder, the one that comes as late among those of its function, if there are as many in both.
    """
    exact = _matches(own, other, _KEY)
    by_line = _matches(own, other, ("construct", "file", "line"), alone=True)
    lines = np.array(own.tables["task_types"].column("line").to_pylist(), np.int64)
    found = np.where((exact < 0) & (lines > 0), by_line, exact)
    return np.where(found < 0, _in_turn(own, other), found)


def _in_turn(own: Workload, other: Workload) -> np.ndarray:
    """int64[types of own]: the n-th type of a function and kind is the n-th of ``other``; -1 where these have others,
    where the function has no name, and where a file has another name there."""
    groups: list[dict[tuple[str, str], list[int]]] = []
    files = [
        [file.rpartition("/")[2] for file in each.tables["task_types"].column("file").to_pylist()]
        for each in (own, other)
    ]
    for workload in (own, other):
        columns = (workload.tables["task_types"].column(key).to_pylist() for key in _KEY[:2])
        groups.append({})
        for index, (construct, function) in enumerate(zip(*columns, strict=True)):
            groups[-1].setdefault((construct, function), []).append(index)
    result = np.full(own.tables["task_types"].num_rows, -1, np.int64)
    for (construct, function), mine in groups[0].items():
        others = groups[1].get((construct, function), [])
        if not function or len(mine) != len(others):
            continue
        names = [{files[0][one], files[1][another]} - {""} for one, another in zip(mine, others, strict=True)]
        if all(len(each) < 2 for each in names):
            result[mine] = others
    return result


def _matches(own: Workload, other: Workload, keys: Sequence[str], *, alone: bool = False) -> np.ndarray:
    """int64[types of own]: the first, or only, type of ``other`` with the same ``keys``, -1 where there is none."""
    mine, others = (
        list(zip(*(each.tables["task_types"].column(key).to_pylist() for key in keys), strict=True))
        for each in (own, other)
    )
    known: Mapping[tuple[object, ...], int] = {place: index for index, place in reversed(list(enumerate(others)))}
    count = Counter(others)
    return np.array([-1 if alone and count[place] > 1 else known.get(place, -1) for place in mine], np.int64)


def _unknown(workload: Workload, name: str) -> str:
    known = sorted(set(workload.tables["task_types"].column("function").to_pylist()) - {""})
    return unknown("task type", name, known) if known else f"unknown task type {name!r}; the trace has none"
