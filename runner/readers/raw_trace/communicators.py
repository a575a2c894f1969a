"""Communicators of a native trace: which numbers of the processes are the same communicator.

Each process numbers its communicators by itself, and says their members. Two are the same if they have the same
members and as many communicators of these members were made before, which holds since their making is collective. An
intercommunicator has the members of both groups, those of the group with the lower ranks first.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from manyscale.runner.errors import UserError
from manyscale.runner.readers.raw_trace.files import Process


@dataclass(frozen=True)
class Communicators:
    """``members``: world ranks of each communicator, the world first. ``of_process``: per process, which of these each
    of its own numbers is (-1 for a number that it did not define)."""

    members: list[np.ndarray]
    of_process: list[np.ndarray]


def resolve(processes: list[Process]) -> Communicators:
    """All communicators. O(members of all definitions). Raises UserError for a damaged definition."""
    size = len(processes)
    world = np.arange(size, dtype=np.int32)
    members = [world]
    known: dict[tuple[bytes, bytes, int], int] = {(world.tobytes(), b"", 0): 0}
    of_process = []
    for process in processes:
        made: dict[tuple[bytes, bytes], int] = {(world.tobytes(), b""): 1}
        numbers = {0: 0}
        for number, (own, remote) in _defined(process).items():
            first, second = sorted((own, remote), key=lambda each: each.tolist()) if len(remote) else (own, remote)
            key = (first.tobytes(), second.tobytes())
            ordinal = made.get(key, 0)
            made[key] = ordinal + 1
            row = known.setdefault((*key, ordinal), len(members))
            if row == len(members):
                members.append(np.concatenate((first, second)))
            numbers[number] = row
        table = np.full(max(numbers) + 1, -1, np.int64)
        table[list(numbers)] = list(numbers.values())
        of_process.append(table)
    return Communicators(members, of_process)


def _defined(process: Process) -> dict[int, tuple[np.ndarray, np.ndarray]]:
    """Members, and remote members, of each communicator that a process defined, in order."""
    lists: dict[int, dict[str, list[int]]] = {}
    try:
        for each in process.definitions:
            if "communicator" not in each:
                continue
            of = lists.setdefault(int(each["communicator"]), {"members": [], "remote": []})
            for key in ("members", "remote"):
                of[key] += each.get(key, ())
            if "more" in each:
                of[each["of"]] += each["more"]
        return {
            number: (np.array(of["members"], np.int32), np.array(of["remote"], np.int32))
            for number, of in lists.items()
        }
    except (KeyError, ValueError, TypeError, OverflowError) as error:
        raise UserError(
            f"{process.path}: rank {process.rank}: a definition of a communicator is damaged ({error}); trace the "
            "program again"
        ) from None
