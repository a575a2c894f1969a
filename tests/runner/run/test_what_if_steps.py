"""What-ifs of a training step: waits are found anew, and what cannot be answered is refused or told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import pytest
from gpu_steps import US, G, Steps

import manyscale
from manyscale.models.workload import OperationKind, Workload
from manyscale.runner.errors import UserError

TARGET: Final = {"name": "dgx1-v100", "node": {"gpu": {"start_latency": "3 us", "stream_gap": "1 us"}}}


@pytest.fixture
def ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., manyscale.WhatIfResult]:
    """``ask(workload, what-ifs)``: on a DGX-1."""

    def of(workload: Workload, what: Sequence[str], network: str = "latency-bandwidth") -> manyscale.WhatIfResult:
        monkeypatch.setattr("manyscale.runner.run.study_runs.read_workload", lambda choice, cache=None: workload)
        content = {"schema": 1, "workload": {"path": "steps"}, "target": TARGET, "model": {"network": network}}
        return manyscale.what_if(content, what, executor="local", cache=tmp_path, report=False)

    return of


class Step:
    """Two ranks that begin ``enter`` (us) apart. In each round a rank computes ``gap``, gives its stream a kernel of
    ``kernel``, computes ``behind`` and gives the stream an all-reduce, which takes ``transfer``; each other round ends
    with a wait for the stream."""

    enter = np.array([0, 37])
    gap = np.array([[5, 11], [9, 2], [30, 4], [3, 3]])  # [rounds, ranks]
    behind = np.array([[1, 2], [4, 25], [2, 1], [6, 8]])
    kernel = np.array([[20, 14], [7, 41], [16, 18], [50, 33]])
    transfer = np.array([9, 21, 5, 13])

    def workload(self) -> Workload:
        steps = Steps(2, {"dp": [0, 1]})
        for rank in range(2):
            steps.sleep(rank, int(self.enter[rank]) * US)
            for number in range(len(self.gap)):
                gap, behind, kernel = (int(each[number, rank]) * US for each in (self.gap, self.behind, self.kernel))
                steps.launch(rank, kernel, gap=gap, name=f"k{kernel}")
                takes = int(self.transfer[number]) * US
                steps.collective(rank, OperationKind.allreduce, 1 << 20, "dp", takes=takes, stream=20, gap=behind)
                if number % 2:
                    steps.synchronize(rank, stream=20)
        return steps.workload()

    def end(
        self, cores: Sequence[float] = (1, 1), kernels: Sequence[float] = (1, 1), *, skew: float = 1,
        transfers: float = 1, latency: float = 3, stream_gap: float = 1,
    ) -> float:  # fmt: skip
        """When the last rank ends, in us: of rounds the host's time and the stream's, where a stream begins ``latency``
        behind the call and ``stream_gap`` behind what it did before, and all ranks' streams a collective together."""
        host, stream = self.enter * skew, np.full(2, -np.inf)
        for number in range(len(self.gap)):
            host = host + self.gap[number] * cores
            stream = np.maximum(host + latency, stream + stream_gap) + self.kernel[number] * kernels
            host = host + self.behind[number] * cores
            arrives = np.maximum(host + latency, stream + stream_gap)
            stream = np.full(2, arrives.max() + self.transfer[number] * transfers)
            if number % 2:
                host = np.maximum(host, stream)
        return float(max(host.max(), stream.max()))


@pytest.mark.theory
def test_what_ifs_of_a_step_find_its_waits_anew(ask):
    step = Step()
    expected = {
        "base": step.end(),
        "slower:rank:0=2": step.end((2, 1), (2, 1)),
        "slower:rank:1=4": step.end((1, 4), (1, 4)),
        "slower:rank:1=0.5": step.end((1, 0.5), (1, 0.5)),
        "faster:rank:0=2": step.end((0.5, 1)),
        "no-skew": step.end(skew=0),
        "free-collectives": step.end(transfers=0),
        "ideal-network": step.end(transfers=0),
        "no-launch-latency": step.end(latency=0, stream_gap=0),
        "cpu_ratio=2": step.end((2, 2)),
    }
    found = ask(step.workload(), list(expected)[1:])
    for name, seconds in found.makespan_seconds.items():
        assert seconds * 1e6 == pytest.approx(expected[name], abs=1e-5), name
    assert len({*expected.values()}) == len(expected) - 1  # but for the two without transfers all differ


@pytest.mark.theory
@pytest.mark.parametrize("what", ["free-collectives", "ideal-network"])
def test_messages_of_nccl_are_free_where_its_collectives_are(ask, what):
    """A kernel of 20 us, a message of 100 MB, at 12.5 GB/s at most, and a kernel of 10 us behind it."""
    steps = Steps(2)
    steps.launch(0, 20 * US)
    steps.send(0, 1, 100_000_000, stream=20)
    steps.group_end(0, [0])
    steps.send(1, 0, 100_000_000, receives=True, stream=20)
    steps.group_end(1, [0])
    steps.launch(1, 10 * US)
    found = ask(steps.workload(), [what])
    assert found.makespan_seconds["base"] > 100e6 / 50e9
    assert found.makespan_seconds[what] == pytest.approx((3 + 20 + 1 + 1 + 10) * 1e-6, abs=3e-6)
    assert [note.count for note in found.points[1].notes if note.code == "messages-free"] == [1]
    if what == "free-collectives":
        notes = ask(steps.workload(), [what], "dimemas").points[1].notes  # cannot give messages a time
        assert [note.count for note in notes if note.code == "messages-not-free"] == [1]


@pytest.mark.parametrize("what", ["no-skew", "free-collectives", "no-launch-latency"])
def test_what_ifs_of_steps_are_refused_of_others(ask, what):
    workload = Steps(2, {"a": [0, 1]}).workload()
    with pytest.raises(UserError, match=f"what-if {what}: steps is no step of GPUs") as found:
        ask(workload, [what])
    assert "\n" not in str(found.value)


def test_what_ifs_that_change_nothing_or_not_all_say_so(ask):
    step = Step().workload()
    found = ask(step, ["zero-latency", "gpu.order=windows"])
    told = {note.code: note for point in found.points for note in point.notes if note.where.startswith("what-if")}
    assert told["what-if-without-nccl"].count == int(np.sum(step.column("gpu_operations", "kind") == G.communication))
    assert "gpu.order plays no part" in told["what-if-without-effect"].text
