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


@pytest.fixture(params=[1, 2])
def executor(request: pytest.FixtureRequest, cluster: RayExecutor) -> Iterator[RayExecutor]:
    with closing(RayExecutor(num_workers=request.param)) as executor:
        yield executor


@pytest.fixture
def pair(cluster: RayExecutor) -> Iterator[RayExecutor]:
    with closing(RayExecutor(num_workers=2)) as executor:
        yield executor
