"""Requests of all SMs through the crossbar: one of each SM in its order, one to each slice and cycle."""

from __future__ import annotations

import numpy as np
import pytest

from manyscale.models.gpu import memory_state
from manyscale.models.gpu.l2 import crossbar_kernel
from manyscale.models.gpu.parameters import Gpu
from manyscale.models.kernels import allocation_free, by_reference
from manyscale.runner.problems import load_yaml
from manyscale.runner.study.targets import shipped_targets

SMS = 46
EACH = 64  # requests of an SM
CROSSBAR = 2  # cycles from an SM to the first in which a slice can take a request


@allocation_free
def send(mem, limits, time, sm, request):  # type: ignore[no-untyped-def]
    held, known = by_reference(mem), by_reference(limits)
    for i in range(len(time)):
        crossbar_kernel.enter(held, known, time[i], request[i], np.uint32(0), np.int32(i), sm[i])


@allocation_free
def passed(mem, limits, until):  # type: ignore[no-untyped-def]
    crossbar_kernel.pass_crossbar(by_reference(mem), by_reference(limits), until)


@pytest.fixture(scope="module")
def gpu() -> Gpu:
    return Gpu.model_validate(load_yaml(shipped_targets()["rtx3070"])["node"]["gpu"])


def sent(gpu: Gpu, of_sm: np.ndarray, windows: list[int]) -> list[list[tuple[int, int]]]:
    """(cycle, request's number) of what each slice took. ``of_sm`` int64[SMs, requests]: what each SM sends, one a
    cycle from cycle 0 on."""
    limits = memory_state.memory_limits(gpu)
    mem = memory_state.memory_state(gpu, gpu.dram.channels, of_sm.size)
    mem = memory_state.enlarged(mem, of_sm.size, of_sm.size)
    sm, time = np.divmod(np.arange(of_sm.size), of_sm.shape[1])
    order = np.lexsort((sm, time))
    for begin, until in zip([0, *windows], windows, strict=False):  # as windows hand them over
        now = order[(time[order] >= begin) & (time[order] < until)]
        send(mem, limits, time[now], sm[now].astype(np.int32), of_sm.ravel()[now])
        passed(mem, limits, until)
    found = []
    for own, arrived in zip(mem.slice, mem.arrived, strict=True):
        queue = arrived[own["head"] : own["tail"]]
        found.append([(int(one["time"]) - limits.latency - 1, int(one["request"])) for one in queue])
    return found


def test_windows_change_nothing(gpu: Gpu) -> None:
    """All SMs stream over the same lines, so that each waits for the others in every cycle."""
    same = np.tile(np.arange(EACH) * 4, (SMS, 1))
    once = sent(gpu, same, [100_000])
    assert sum(map(len, once)) == same.size
    assert sent(gpu, same, [7, 50, 51, 100, 900, 100_000]) == once
    assert sent(gpu, same, list(range(20, 4_000, 20))) == once


def test_a_slice_takes_one_a_cycle(gpu: Gpu) -> None:
    """All SMs send one request to the same slice at once: it takes the last ``SMS`` - 1 cycles after the first."""
    (queue,) = [queue for queue in sent(gpu, np.zeros((SMS, 1), np.int64), [10, 20, 1_000]) if queue]
    assert [time for time, _ in queue] == list(range(CROSSBAR, CROSSBAR + SMS))


def test_an_sm_s_requests_pass_in_their_order(gpu: Gpu) -> None:
    """What waits for a busy slice holds up what comes behind it, although its slice is free."""
    requests = np.zeros((SMS, 2), np.int64)
    requests[:, 1] = 4 * np.arange(1, SMS + 1)  # other lines
    queues = sent(gpu, requests, [5, 1_000])
    first = {request: time for queue in queues for time, request in queue if request}
    assert len(first) == SMS
    busy = sorted(time for queue in queues for time, request in queue if not request)
    assert busy == list(range(CROSSBAR, CROSSBAR + SMS))
    assert min(first.values()) >= CROSSBAR + 1
    assert max(first.values()) >= busy[-1]  # that of the SM whose first request came last
