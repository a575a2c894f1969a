"""A Ray that tests of one file share, and executors on it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import closing

import pytest

from manyscale.runner.run.execute.ray import RayExecutor


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayExecutor]:
    """One Ray with three CPUs for this module, started as users start it; others join it in this process."""
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp") as folder:
        patch.setenv("RAY_TMPDIR", folder)  # a short path: Ray's sockets stand there
        patch.delenv("RAY_ADDRESS", raising=False)
        with closing(RayExecutor(num_workers=3)) as executor:
            executor.start()
            yield executor


class Serving:
    """Executors that serve test after test, by their number of workers, which thus start but once."""

    def __init__(self) -> None:
        self._executors: dict[int, RayExecutor] = {}

    def __call__(self, num_workers: int) -> RayExecutor:
        if num_workers not in self._executors:
            self._executors[num_workers] = RayExecutor(num_workers=num_workers)
        return self._executors[num_workers]

    def close(self) -> None:
        """Their CPUs become free."""
        while self._executors:
            self._executors.popitem()[1].close()


@pytest.fixture(scope="module")
def serving(cluster: RayExecutor) -> Iterator[Serving]:
    with closing(Serving()) as executors:
        yield executors


@pytest.fixture(params=[1, 2])
def executor(request: pytest.FixtureRequest, serving: Serving) -> RayExecutor:
    return serving(request.param)


@pytest.fixture
def pair(serving: Serving) -> RayExecutor:
    return serving(2)


@pytest.fixture
def alone(serving: Serving) -> None:
    """No executor of other tests has workers."""
    serving.close()


@pytest.fixture
def new_pair(cluster: RayExecutor, alone: None) -> Iterator[RayExecutor]:
    with closing(RayExecutor(num_workers=2)) as executor:
        yield executor
