"""The nodes of a Ray cluster: which are there, where a worker can be hired, which are left out and why.

They are looked at again and again. Where CPUs are missing, an autoscaler is told by placement groups of one CPU each
that wait: they start nothing, and Ray forgets them when this process ends, however it ends.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from manyscale.runner.errors import RunError, UserError
from manyscale.runner.run.execute.state import MAX_ATTEMPTS

LOOK_SECONDS: Final = 1.0
FIRST_NODE_SECONDS: Final = 1800.0  # in which an autoscaler, or others who use the cluster, give a first CPU
_TELL_SECONDS: Final = 60.0
_FREED_SECONDS: Final = 10.0
_MOST_ASKED: Final = 16  # CPUs at a time
_NODE_ID: Final = "ray.io/node-id"  # the label that Ray gives each


@dataclass(eq=False)
class Node:
    """``failures``: in a row, of workers there that could not start or find what they need; ``left_out``: why no worker
    is hired there any more; ``is_of_user``: whether that is for the user to mend."""

    node_id: str
    name: str
    num_cpus: int
    free: int = 0
    is_alive: bool = True
    workers: set[int] = field(default_factory=set)
    starting: set[int] = field(default_factory=set)
    num_units: int = 0
    failures: int = 0
    left_out: str = ""
    is_of_user: bool = False


class Nodes:
    """Those of the cluster at ``address``; ``can_grow``: more may come."""

    def __init__(self, address: str, can_grow: bool) -> None:
        self._address, self._can_grow = address, can_grow
        self._nodes: dict[str, Node] = {}
        self._next_look = 0.0
        self._asked: list[Any] = []  # placement groups that wait
        self._waits_since: float | None = None
        self._told = 0.0
        self.waiting = ""  # for what

    def __contains__(self, node_id: str) -> bool:
        return node_id in self._nodes

    def __getitem__(self, node_id: str) -> Node:
        return self._nodes[node_id]

    @property
    def all(self) -> list[Node]:
        """Every node with CPUs that was seen."""
        return list(self._nodes.values())

    @property
    def usable(self) -> list[Node]:
        """Those where workers can be."""
        return [node for node in self.all if node.is_alive and not node.left_out]

    @property
    def num_cpus(self) -> int:
        return sum(node.num_cpus for node in self.usable)

    def look(self, ray: Any, *, at_once: bool = False) -> bool:
        """See who is there, if it is time to; whether it was."""
        now = time.monotonic()
        if now < self._next_look and not at_once:
            return False
        from ray._private.state import available_resources_per_node  # the public one adds all nodes up

        self._next_look = now + LOOK_SECONDS
        free = available_resources_per_node()
        alive = {found["NodeID"]: found for found in ray.nodes() if found["Alive"]}
        for node_id, found in alive.items():
            num_cpus = int(found["Resources"].get("CPU", 0))
            if num_cpus and node_id not in self._nodes:
                name = f"{found['NodeManagerHostname']} ({found['NodeManagerAddress']})"
                self._nodes[node_id] = Node(node_id, name, num_cpus)
        for node in self.all:
            node.is_alive = node.node_id in alive
            node.free = int(free.get(node.node_id, {}).get("CPU", 0)) if node.is_alive else 0
            if not node.is_alive and not node.workers and not node.left_out and not node.num_units:
                del self._nodes[node.node_id]
        return True

    def look_again(self) -> None:
        """The next look is due at once."""
        self._next_look = 0.0

    def places(self, count: int) -> list[Node]:
        """Where to hire that many workers, as far as there is room: evenly. On a node where the last one failed, one
        is tried at a time."""
        found: list[Node] = []
        usable = self.usable
        room = {node.node_id: min(node.free - len(node.starting), node.num_cpus - len(node.workers)) for node in usable}
        while len(found) < count:
            best = max(
                (node for node in usable if room[node.node_id] > 0),
                key=lambda node: (room[node.node_id] / node.num_cpus, node.node_id),
                default=None,
            )
            if best is None:
                break
            room[best.node_id] -= 1
            if best.failures:
                room[best.node_id] = 0
                if best.starting:
                    continue
            found.append(best)
        return found

    # What becomes of them

    def failed(self, node_id: str, reason: str) -> None:
        """A worker could not start on a node, or found no memory or disk there. Raises RunError if no node is left."""
        node = self._nodes[node_id]
        node.failures += 1
        if node.failures >= MAX_ATTEMPTS:
            self.leave_out(node_id, f"{MAX_ATTEMPTS} workers in a row failed ({reason})")

    def leave_out(self, node_id: str, reason: str, *, is_of_user: bool = False) -> None:
        """Hire nobody on a node any more. Raises UserError or RunError if no node is left, with the reason of each."""
        node = self._nodes[node_id]
        if node.left_out:
            return
        node.left_out, node.is_of_user = reason, is_of_user
        if self.usable:
            tell(f"node {node.name} is left out: {reason}")
            return
        left_out = [node for node in self.all if node.left_out and node.is_alive]
        each = "; ".join(f"{node.name}: {node.left_out}" for node in left_out)
        mend = "; install the same versions there as here" if any(node.is_of_user for node in left_out) else ""
        kind = UserError if all(node.is_of_user for node in left_out) else RunError
        raise kind(f"{self._address}: no node can be used; {each}{mend}")

    def worked(self, node_id: str) -> None:
        """A unit was finished there."""
        node = self._nodes[node_id]
        node.num_units += 1
        node.failures = 0

    # What is missing

    def ask_for(self, ray: Any, count: int) -> None:
        """Let an autoscaler see that so many CPUs are missing; 0: none."""
        if not self._can_grow or not ray.is_initialized():
            return
        from ray.util import placement_group_table
        from ray.util.placement_group import placement_group, remove_placement_group

        wanted = min(count, _MOST_ASKED)
        table = placement_group_table() if self._asked else {}
        keep: list[Any] = []
        for group in self._asked:
            is_waiting = table.get(group.id.hex(), {}).get("state") != "CREATED"
            if is_waiting and len(keep) < wanted:
                keep.append(group)
            else:  # its CPU is there: for a worker
                remove_placement_group(group)
        self._asked = keep
        for _ in range(wanted - len(keep)):
            self._asked.append(placement_group([{"CPU": 1}], bundle_label_selector=self.selector(1)))

    def selector(self, count: int) -> list[dict[str, str]] | None:
        """For bundles of a placement group: not on nodes that are left out."""
        left_out = [node.node_id for node in self.all if node.is_alive and node.left_out]
        return [{_NODE_ID: f"!in({','.join(left_out)})"}] * count if left_out else None

    def wait(self, num_wanted: int, what: str = "a free CPU") -> None:
        """Nobody works, and nobody can be hired: say what is waited for. Raises RunError after half an hour."""
        now = time.monotonic()
        if self._waits_since is None:
            self._waits_since, self._told = now, now - _TELL_SECONDS
            if self.usable:  # workers of an earlier run may just be going
                self._told += _FREED_SECONDS
        if self.usable:
            free = sum(node.free for node in self.usable)
            self.waiting = f"{what}: {free} of {self.num_cpus} on {len(self.usable)} nodes are free"
        else:
            self.waiting = "a node with CPUs: the cluster has none yet"
        if now - self._waits_since >= FIRST_NODE_SECONDS:
            raise RunError(
                f"{self._address}: no worker started within {FIRST_NODE_SECONDS:.0f} s, waiting for {self.waiting}; "
                "wait until others have finished or nodes are there, or use --executor local"
            )
        if now - self._told >= _TELL_SECONDS:
            self._told = now
            asked = f" ({num_wanted} CPUs are asked for)" if self._can_grow else ""
            tell(f"{self._address}: waiting for {self.waiting}{asked}", again=True)

    def waited(self) -> None:
        """Somebody works."""
        self._waits_since, self.waiting = None, ""

    def standing(self) -> Sequence[Mapping[str, Any]]:
        """What ``manyscale status`` shows of each node."""
        return [
            {
                "node": node.name,
                "cpus": node.num_cpus,
                "workers": len(node.workers),
                "units": node.num_units,
                "state": "left out" if node.left_out else "there" if node.is_alive else "gone",
                "reason": node.left_out,
            }
            for node in self.all
        ]


_told: Final[set[str]] = set()
_MOST_TOLD: Final = 50  # lines of a process


def tell(line: str, *, again: bool = False) -> None:
    """Say something about the cluster on standard error; once, and of very many things no more."""
    if (line not in _told or again) and len(_told) < _MOST_TOLD:
        _told.add(line)
        print(f"manyscale: {line}", file=sys.stderr, flush=True)
