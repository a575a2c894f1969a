"""What there is to tell of the times that collectives of streams take, and of messages between GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from manyscale.models.gpu.device.hosts import Given
from manyscale.models.workload import COLLECTIVES, SENDS, Workload
from manyscale.models.workload.gpu_tables import GpuOperationKind
from manyscale.models.workload.notes import Errs, Note, changes, informs
from manyscale.runner.predict.gpu.streams.joins import FIXED
from manyscale.runner.predict.gpu.traced.agreement import Agreement
from manyscale.runner.predict.gpu.traced.meetings import SCATTERV, UNEVEN, StreamCollectives

_MOST_GROUPS: Final = 4  # that a note names


@dataclass(frozen=True)
class Taking:
    """What collectives take. ``chosen``: gpu.collectives of the study; bool[collectives]: ``takes_traced``, those that
    take traced times as far as they are known, and ``is_known``, whose sizes and members are; ``agreed``: whether the
    machine of the trace and the target agree (None: no time was traced)."""

    of: StreamCollectives
    chosen: str
    takes_traced: np.ndarray
    is_known: np.ndarray
    agreed: Agreement | None

    def notes(self) -> list[Note]:
        count = len(self.of)
        if self.chosen == "free":
            return [changes("collectives-free", f"{count:,} collectives take no time (gpu.collectives)", count=count)]
        traced = self.of.traced_ps >= 0
        as_traced = traced & self.takes_traced
        unpriced = traced & ~as_traced & ~self.is_known
        modelled = ~(as_traced | unpriced)
        found = []
        if self.agreed is not None:
            agrees = self.agreed.why[self.of.communicator] < 0
            found += [*self._of_traced(as_traced, agrees), *self._of_others(traced & modelled & ~agrees)]
        if number := int(np.count_nonzero(unpriced)):
            text = (
                f"{number:,} of {count:,} collectives take the times of the trace: their sizes, or some of their "
                "members, are not known, so that no model can say"
            )
            found.append(changes("collectives-unpriced", text, count=number))
        guessed = modelled & ~self.is_known
        if number := int(np.count_nonzero(guessed)):
            text = (
                f"{number:,} of {count:,} collectives{self._groups(guessed)} take what the model of NCCL says of an "
                "empty one, or of some of their members: the trace tells neither their times nor all sizes and members"
            )
            found.append(changes("collectives-unsized", text, count=number, errs=Errs.short))
        split = modelled & np.isin(self.of.kind, (*UNEVEN, *SCATTERV)) & self.is_known
        split[list(self.of.counts)] = False
        if number := int(np.count_nonzero(split)):
            text = (
                f"{number:,} of {count:,} collectives{self._groups(split)} are uneven, and the trace does not say what "
                "goes from whom to whom: their parts are taken to be equal"
            )
            found.append(changes("collectives-evened", text, count=number, errs=Errs.short))
        if number := int(np.count_nonzero(modelled)):
            text = f"{number:,} collectives take what the model of NCCL says, behind the arrival of their last member"
            found.append(informs("collectives-modelled", text, count=number))
        return found

    def _of_traced(self, as_traced: np.ndarray, agrees: np.ndarray) -> list[Note]:
        """Of collectives that take the times of the trace, whether or not the target agrees."""
        found, count = [], len(as_traced)
        for reason, number in self._reasons(as_traced & ~agrees):
            text = f"{number:,} of {count:,} collectives take the times that they took where they were traced: {reason}"
            found.append(changes("collectives-as-traced", text, count=number))
        if self.agreed is not None and (number := int(np.count_nonzero(as_traced & agrees))):
            text = (
                f"{number:,} of {count:,} collectives take the times of the trace, behind the arrival of their last "
                f"member: it is taken to be of {' or '.join(self.agreed.machines)}, and their GPUs have the same "
                "links on the target"
            )
            found.append(informs("collectives-traced", text, count=number))
        return found

    def _of_others(self, modelled: np.ndarray) -> list[Note]:
        """Of collectives that auto leaves to the model."""
        if self.chosen != "auto":
            return []
        return [
            informs("collectives-not-as-traced", (
                f"{number:,} of {len(modelled):,} collectives do not take the times of the trace: {reason}; "
                "gpu.collectives: traced keeps them"
            ), count=number)
            for reason, number in self._reasons(modelled)
        ]  # fmt: skip

    def _reasons(self, collectives: np.ndarray) -> Iterator[tuple[str, int]]:
        """Why some do not agree with the target, with their groups; and how many."""
        if self.agreed is None:
            return
        for number, reason in enumerate(self.agreed.reasons):
            mine = collectives & (self.agreed.why[self.of.communicator] == number)
            if mine.any():
                yield reason + self._groups(mine), int(np.count_nonzero(mine))

    def _groups(self, collectives: np.ndarray) -> str:
        """Names of the groups of some."""
        used = np.unique(self.of.communicator[collectives]).tolist()
        names = sorted({self.of.names.get(each, "") for each in used} - {""})
        more = ", ..." if len(names) > _MOST_GROUPS else ""
        return f" (groups {', '.join(names[:_MOST_GROUPS])}{more})" if names else ""


def message_notes(workload: Workload, given: Given, of: StreamCollectives, messages_ps: np.ndarray) -> list[Note]:
    """Of communications of streams that are no collectives of NCCL's: messages, and collectives that become some.
    ``messages_ps`` int64[messages]: what those take of which the network does not say it, -1 of others."""
    rows = given.row[(given.kind == GpuOperationKind.communication) & (of.of_given < 0)]
    rows = rows[rows >= 0]
    kind, size = (workload.column("operations", name)[rows] for name in ("kind", "bytes"))
    found = []
    if count := int(np.count_nonzero(kind >= COLLECTIVES.start)):
        text = (
            f"{count:,} calls of collectives on streams send the messages of MPI's algorithms, and not NCCL's: neither "
            "the trace tells what they take nor the target how NCCL communicates (network.nccl), or hosts call others "
            "of their groups"
        )
        found.append(changes("collectives-as-messages", text, count=count))
    takes = np.zeros(workload.num_operations, np.bool_)
    takes[workload.send_rows[messages_ps >= 0]] = True
    if count := int(np.count_nonzero(np.isin(kind, SENDS) & (size == 0) & ~takes[rows])):
        text = f"{count:,} messages between GPUs have no size in the trace: they take the latency alone"
        found.append(changes("messages-unsized", text, count=count, errs=Errs.short))
    return found


def traced_message_notes(
    chosen: str, on_streams: np.ndarray, traced_ps: np.ndarray, messages_ps: np.ndarray, network: str
) -> list[Note]:
    """Of messages between GPUs whose times were traced. ``chosen``: gpu.collectives of the study; bool[messages]
    ``on_streams``: between GPUs; int64[messages]: ``traced_ps``, -1 unknown, and ``messages_ps``, what they take, -1
    where the network says it; ``network``: its model."""
    if chosen == "free":
        count, kept = int(np.count_nonzero(messages_ps == 0)), int(np.count_nonzero(on_streams & (messages_ps < 0)))
        text = f"{count:,} messages between GPUs take no time (gpu.collectives)"
        found = [changes("messages-free", text, count=count)] if count else []
        text = f"{kept:,} messages between GPUs take what the network says: its model frees none (gpu.collectives)"
        return [*found, *([changes("messages-not-free", text, count=kept, errs=Errs.long)] if kept else [])]
    known = traced_ps >= 0
    found = []
    if count := int(np.count_nonzero(known & (messages_ps >= 0))):
        text = (
            f"{count:,} messages between GPUs take the times of the trace, from when both ends have come to them "
            "(those below network.eager_threshold from when the sender has)"
        )
        found.append(informs("messages-traced", text, count=count))
    count = int(np.count_nonzero(known & (messages_ps < 0)))
    if count and chosen != "model" and network not in FIXED:
        text = (
            f"{count:,} messages between GPUs do not take the times of the trace, but what model.network: {network} "
            "says, which gives messages no times of their own"
        )
        found.append(changes("messages-by-network", text, count=count))
    elif count and chosen == "auto":
        text = (
            f"{count:,} messages between GPUs do not take the times of the trace: the links of their ranks are not "
            "known to be the trace's; gpu.collectives: traced keeps them"
        )
        found.append(informs("messages-not-as-traced", text, count=count))
    return found
