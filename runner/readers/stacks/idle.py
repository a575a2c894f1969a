"""Which snapshots of call stacks are of threads that work: those that wait, and threads beside the executors, are not.

Huang (Georgia Tech 2015), section 5.3.1: SimProf profiles executor threads, those that run a framework's tasks. A
profiler that takes snapshots at times, such as Java Flight Recorder, also takes them of threads that are parked, that
wait for a connection or for work. Two rules, by names of methods as Java has them (with dots or slashes):

- A snapshot is idle if a method that does nothing but wait is on its stack, if its innermost method is the loop of a
  thread pool or an event loop (a worker between two tasks), or if a method matches the user's own pattern.
- Where a framework is known by the method that runs its tasks, and nothing was said of threads, only threads count on
  whose stacks this method is seen; of other programs, and with a pattern of the user, all whose names match.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import numpy as np

_WAITS: Final = re.compile(
    r"java\.lang\.(Object\.wait0?|Thread\.(sleep0?|join))"
    r"|(jdk\.internal|sun)\.misc\.Unsafe\.park"
    r"|java\.util\.concurrent\.(locks\.LockSupport\.park\w*|locks\.\w+\$ConditionObject\.await\w*"
    r"|ThreadPoolExecutor\.getTask|ForkJoinPool\.(awaitWork|managedBlock|unmanagedBlock)|\w+(Queue|Deque)\.take\w*"
    r"|\w+Latch\.await|CyclicBarrier\.\w*await|FutureTask\.awaitDone|SynchronousQueue(\$\w+)?\.transfer)"
    r"|sun\.nio\.ch\.(\w*SelectorImpl\.(doSelect|lockAndDoSelect|select\w*)|EPoll\.wait|Net\.(accept|poll))"
    r"|java\.net\.\w*Socket(Impl)?\.(accept\w*|implAccept|platformImplAccept)"
    r"|io\.netty\.channel\.(nio\.NioEventLoop\.select|(\w+\.)?\w+EventLoop\.\w*[wW]ait\w*|epoll\.Native\.epollWait0?)"
)
_LOOPS: Final = re.compile(
    r"java\.lang\.Thread\.run|java\.util\.TimerThread\.(run|mainLoop)"
    r"|java\.util\.concurrent\.(ThreadPoolExecutor(\$Worker)?\.(run|runWorker)"
    r"|ForkJoinPool\.(runWorker|scan)|ForkJoinWorkerThread\.run)"
    r"|io\.netty\.channel\.(\w+\.)?\w+EventLoop\.run|io\.netty\.util\.concurrent\.\w+(\$\d+)?\.run"
)
EXECUTORS: Final = {  # frameworks, by the method that runs one of their tasks
    "Spark": re.compile(r"org\.apache\.spark\.executor\.Executor\$TaskRunner\.run"),
    "Hadoop": re.compile(r"org\.apache\.hadoop\.mapred\.(Map|Reduce)Task\.run"),
    "Flink": re.compile(r"org\.apache\.flink\.runtime\.taskmanager\.Task\.(run|doRun)"),
}


def idle_stacks(
    stacks: Sequence[Sequence[int]], names: Sequence[str], pattern: str = "", *, own_only: bool = False
) -> np.ndarray:
    """bool[stacks]: whether a thread waits on each, from the outermost frame, an index of ``names``. ``pattern`` is a
    regular expression that finds further methods that wait, or, with ``own_only``, all that do.
    O(frames of all stacks)."""
    own = re.compile(pattern) if pattern else None
    waits, loops = [], []
    for name in names:
        dotted = name.replace("/", ".")
        is_own = own is not None and own.search(name) is not None
        waits.append(is_own or (not own_only and bool(_WAITS.fullmatch(dotted))))
        loops.append(not own_only and bool(_LOOPS.fullmatch(dotted)))
    found = [any(waits[frame] for frame in stack) or bool(stack and loops[stack[-1]]) for stack in stacks]
    return np.array(found, np.bool_)


def executor_stacks(stacks: Sequence[Sequence[int]], names: Sequence[str]) -> tuple[str, np.ndarray]:
    """The framework of which a program is, or nothing, and bool[stacks]: whether a task of it runs on each."""
    dotted = [name.replace("/", ".") for name in names]
    for framework, pattern in EXECUTORS.items():
        runs = [pattern.fullmatch(name) is not None for name in dotted]
        found = np.array([any(runs[frame] for frame in stack) for stack in stacks], np.bool_)
        if np.any(found):
            return framework, found
    return "", np.zeros(len(stacks), np.bool_)
