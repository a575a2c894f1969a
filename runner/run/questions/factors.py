"""The efficiencies of a run as factors of each other: their names, their words, and one line of them.

Which are there: ranks of one core have factors of processes alone; where ranks have several cores, parallel efficiency
is that of all cores, the product of processes' and threads' (predict/core_efficiencies.py).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple


class Factor(NamedTuple):
    """``depth``: how deep it stands below parallel efficiency, whose factors have 1. ``short``: a word for it where the
    level (processes, threads) is named before."""

    name: str
    label: str
    short: str
    depth: int

    @property
    def alone(self) -> str:
        """A word for it among all others."""
        return "thread balance" if self.name == "thread_load_balance" else self.short


PARALLEL: Final = "parallel_efficiency"
PROCESS: Final = "process_efficiency"
THREAD: Final = "thread_efficiency"
_OF_PROCESSES: Final = (
    Factor("load_balance", "Load balance", "load balance", 1),
    Factor("communication_efficiency", "Communication efficiency", "communication", 1),
    Factor("serialisation_efficiency", "Serialisation", "serialisation", 2),
    Factor("transfer_efficiency", "Transfer", "transfer", 2),
)
_OF_THREADS: Final = (
    Factor(THREAD, "Thread efficiency", "threads", 1),
    Factor("serial_efficiency", "Serial parts", "serial parts", 2),
    Factor("thread_load_balance", "Load balance of threads", "load balance", 2),
    Factor("scheduling_efficiency", "Scheduling", "scheduling", 2),
)
_TOP: Final = Factor(PARALLEL, "Parallel efficiency", "parallel", 0)
ALL: Final = (
    _TOP,
    Factor(PROCESS, "Process efficiency", "processes", 1),
    *(each._replace(depth=each.depth + 1) for each in _OF_PROCESSES),
    *_OF_THREADS,
)
NAMES: Final = tuple(each.name for each in ALL)


def factors(known: Collection[str]) -> tuple[Factor, ...]:
    """Those of a run that tells ``known`` (names without ``application.``), each below the one that it is a factor
    of."""
    tree = ALL if THREAD in known else (_TOP, *_OF_PROCESSES)
    return tuple(each for each in tree if each.name in known)


def of_statistics(figures: Mapping[str, float]) -> dict[str, float]:
    """The efficiencies among statistics (name to value), without ``application.``."""
    return {name: figures[f"application.{name}"] for name in NAMES if f"application.{name}" in figures}


def with_threads(values: Mapping[str, float]) -> dict[str, float]:
    """``values`` of a predicted run with all factors: of ranks of one core, those of threads are 1."""
    if THREAD in values or PARALLEL not in values:
        return dict(values)
    return {**values, PROCESS: values[PARALLEL], **{each.name: 1.0 for each in _OF_THREADS}}


def shown_factors(figures: Mapping[str, float]) -> tuple[Factor, ...]:
    """Those among statistics (name to value) that say something: of one rank those of processes are 1."""
    found = factors(of_statistics(figures))
    if figures.get("application.ranks", 2) > 1:
        return found
    of_cores = (_TOP, *_OF_THREADS) if figures.get("node.cores_per_rank", 1) > 1 else ()
    return tuple(each for each in of_cores if each in found)


def pop_factors(rows: Sequence[Mapping[str, Any]]) -> tuple[Factor, ...]:
    """Those that rows of several runs tell: of threads where a run has several cores a rank, or a runtime system."""
    known = {name for name in NAMES if any(row.get(name) is not None for row in rows)}
    threaded = any(
        row.get(THREAD) not in (None, 1.0) or row.get("num_cores") not in (None, row["num_ranks"]) for row in rows
    )
    return factors(known if threaded else known - {THREAD})


def sentence(values: Mapping[str, float], num_ranks: int, cores_per_rank: int) -> str:
    """One line of the factors, or nothing where there is no more than one core."""
    of_processes = _listed(values, ("load_balance", "serialisation_efficiency", "transfer_efficiency"))
    if THREAD not in values or num_ranks * cores_per_rank == 1:
        return f"parallel efficiency {_per_cent(values[PARALLEL])} ({of_processes})" if num_ranks > 1 else ""
    head = f"parallel efficiency {_per_cent(values[PARALLEL])} of {num_ranks * cores_per_rank:,} cores"
    of_threads = _listed(values, tuple(each.name for each in _OF_THREADS[1:]))
    if num_ranks == 1:
        return f"{head} ({of_threads})"
    processes, threads = (_per_cent(values[name]) for name in (PROCESS, THREAD))
    return f"{head} = processes {processes} ({of_processes}) x threads {threads} ({of_threads})"


def _listed(values: Mapping[str, float], names: tuple[str, ...]) -> str:
    return ", ".join(f"{each.short} {_per_cent(values[each.name])}" for each in ALL if each.name in names)


def _per_cent(ratio: float) -> str:
    return f"{100 * ratio:.1f} %"
