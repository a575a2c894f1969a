"""Representatives while tracing: the program runs twice.

Clusters of launches rest on the features of all of them: each is divided by its mean over the launches of the kernel,
and complete linkage looks at all pairs. So a first run counts what each launch executes, which takes no disk, and a
second records the representatives, several of each cluster, from which the interval of the whole follows. A single run
would have to decide on each launch before it has seen the later ones, and would find other clusters; and only a draw
from all launches of a cluster tells how much they differ.

The two runs must execute the same: each launch of the second is held against the counts of the first.
"""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from manyscale.runner.errors import UserError
from manyscale.runner.readers.cuda.reader import Collected

Choose = Callable[[Mapping[int, Mapping[str, Any]]], tuple[frozenset[int], dict[str, Any]]]
"""From what each launch executes, by the columns of the table of launches: the launches to record, and by which rules
they were chosen."""

_COMPARED: Final = ("kernel_name", "grid", "block", "thread_instructions", "warp_instructions", "memory_requests")


@dataclass(frozen=True)
class FirstRun:
    """What a first run counted: ``heads`` of its launches. ``recorded``: numbers of launches that the second run
    records, by ``rules``."""

    heads: Mapping[int, Mapping[str, Any]]
    recorded: frozenset[int]
    rules: Mapping[str, Any]

    def check(self, found: Mapping[int, Collected]) -> None:
        """Give what a second run stored the rules. Raises UserError where it did not do what the first did."""
        own = _alone(found)
        own.rules = self.rules
        heads = {launch_id: launch.head for launch_id, launch in own.launches.items()} | own.heads
        behind = min(own.cut, default=max([*self.heads, *heads]) + 1)  # the limit of the disk
        for launch_id in sorted(set(self.heads) | set(heads)):
            if launch_id >= behind:
                return
            before, now = self.heads.get(launch_id), heads.get(launch_id)
            compared = (*_COMPARED, "digest") if launch_id in own.heads else _COMPARED
            if before is None or now is None or any(before[name] != now[name] for name in compared):
                raise UserError(
                    f"--launches tbpoint: launch {launch_id} is not the same in two runs of the program, which must do "
                    "the same each time (and its standard input be a file); trace it without"
                )


def first_run(counted: Mapping[int, Collected], choose: Choose) -> FirstRun:
    """Raises UserError where the program launched nothing, or in several processes."""
    heads = _alone(counted).heads
    if not heads:
        raise UserError("--launches tbpoint: no launch ran to its end in the first run of the program")
    return FirstRun(heads, *choose(heads))


def _alone(found: Mapping[int, Collected]) -> Collected:
    if len(found) > 1:
        raise UserError(f"--launches tbpoint: {len(found)} processes use the GPU; it can be used for one alone")
    return next(iter(found.values()), Collected())


def hidden_streams() -> dict[str, Any]:
    """How a run is started whose output nobody reads. A file that is its standard input is read again by the next."""
    streams: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "stdin": subprocess.DEVNULL}
    try:
        number = sys.stdin.fileno()
        if stat.S_ISREG(os.fstat(number).st_mode):
            streams["stdin"] = Path(f"/proc/self/fd/{number}").open("rb")  # noqa: SIM115, with a place of its own
    except (AttributeError, OSError, ValueError):
        pass  # there is none
    return streams
