"""What a choice of blocks is told of a launch while it is simulated."""

from __future__ import annotations

from gpu_launches import Launch, gpu_workload

from manyscale.models.gpu import detailed
from manyscale.runner.problems import load_yaml
from manyscale.runner.targets import build_machine, shipped_targets

SIZE = 300


class All:
    """Chooses every block, and keeps how many were dispatched, ended, and what had been issued then."""

    def __init__(self):
        self.block = -1
        self.num_dispatched = self.num_ended = 0
        self.told = []

    def next(self):
        self.block += 1
        return self.block, self.block

    def dispatched(self, block, time, issued):
        self.num_dispatched += 1
        self.told.append((self.num_ended, self.num_dispatched - 1, issued))

    def ended(self, block, time, issued):
        self.num_ended += 1
        self.told.append((self.num_ended, self.num_dispatched, issued))


def test_issued_lies_between_blocks_that_ended_and_those_that_began():
    content = load_yaml(shipped_targets()["rtx3070"])
    content["node"]["gpu"] |= {"sms": 1, "blocks": 2}
    gpu = build_machine(content, "rtx3070").node.gpu
    choice = All()
    detailed.simulate(gpu_workload(Launch("a", (SIZE,) * 40)).gpu.trace(1), gpu, None, choice)
    assert len(choice.told) > 70
    slack = SIZE / 50  # blocks that end in one cycle are told of one by one
    for ended, began, issued in choice.told[2:]:
        assert SIZE * ended - slack <= issued <= SIZE * began + slack
