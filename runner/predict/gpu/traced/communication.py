"""What collectives and messages of streams take: where they were traced their times, or what a model says of them."""

from __future__ import annotations

from functools import cached_property
from typing import Final

import numpy as np

from manyscale.models.gpu.device.hosts import Given
from manyscale.models.network.nccl.parameters import Nccl
from manyscale.models.workload import OperationKind, Workload
from manyscale.models.workload.notes import Note
from manyscale.runner.predict.gpu.options import GpuChoice
from manyscale.runner.predict.gpu.streams.given import Devices, traced_columns
from manyscale.runner.predict.gpu.streams.joins import FIXED
from manyscale.runner.predict.gpu.traced.agreement import Agreement, agreement
from manyscale.runner.predict.gpu.traced.collective_notes import Taking, message_notes, traced_message_notes
from manyscale.runner.predict.gpu.traced.meetings import StreamCollectives, stream_collectives
from manyscale.runner.predict.gpu.traced.times import traced_messages
from manyscale.runner.predict.phase_source import Case
from manyscale.runner.predict.placement import placed

EXTRAPOLATED: Final = "extrapolated"  # format of workloads whose groups were filled up (runner/run/extrapolation/roles)


class Communication:
    """``given`` to streams of a case's workload; ``place``: what it follows from, as part of keys of what the case
    shares; ``is_same_gpu``: the target has the GPU that all ranks were traced on."""

    def __init__(self, case: Case, given: Given, place: tuple[str, ...], *, is_same_gpu: bool) -> None:
        self._case, self._given, self._place, self._is_same_gpu = case, given, place, is_same_gpu
        self._workload: Workload = case.workload
        self._has_nccl = case.machine.network.has_block("nccl")
        self._network = case.study.model.network
        self._choice = case.study.options(GpuChoice)

    @cached_property
    def collectives(self) -> StreamCollectives:
        """Those that NCCL does."""

        def make() -> StreamCollectives:
            _, duration = traced_columns(self._workload)
            return stream_collectives(self._workload, self._given, duration, by_model=by_model)

        by_model = self._has_nccl or self._choice.collectives == "free"
        return self._case.shared.once(("collectives on streams", str(by_model), *self._place), make)

    @cached_property
    def _agreement(self) -> Agreement:
        """Of groups: whether the machine of the trace and the target agree in what their collectives depend on."""
        if self._network == "flow" and self._workload.tables["jobs"].num_rows:
            count = self._workload.tables["communicators"].num_rows
            return Agreement(np.zeros(count, np.int8), ("jobs share their links, which they had to themselves",), ())
        node, _ = placed(self._case)
        num_gpus = self._case.machine.node.num_gpus
        gpu = self._case.shared.once(("devices", *self._place), lambda: Devices.of(self._given)).first(node, num_gpus)
        nccl = Nccl.of(self._case.machine.network)
        return agreement(self._workload, nccl, num_gpus, node, gpu, is_same_gpu=self._is_same_gpu)

    @cached_property
    def takes_traced(self) -> np.ndarray:
        """bool[collectives]: those that take traced times where these are known: as the study says, and else (auto)
        where the machine of the trace and the target agree, and where no model could say others."""
        chosen, of = self._choice.collectives, self.collectives
        if chosen != "auto" or not self._has_nccl or not np.any(of.traced_ps >= 0):
            return np.full(len(of), chosen != "model")
        return np.asarray(self._agreement.why[of.communicator] < 0)

    @cached_property
    def _traced_messages(self) -> tuple[np.ndarray, np.ndarray]:
        def make() -> tuple[np.ndarray, np.ndarray]:
            return traced_messages(self._workload, self._given, traced_columns(self._workload)[1])

        return self._case.shared.once(("messages on streams", *self._place), make)

    @property
    def _messages_agree(self) -> np.ndarray:
        """bool[messages]: those that take traced times where these are known, as collectives of their groups do."""
        rows = self._workload.send_rows
        if self._choice.collectives != "auto" or not self._has_nccl:
            return np.full(len(rows), self._choice.collectives != "model")
        return np.asarray(self._agreement.why[self._workload.column("operations", "communicator_id")[rows]] < 0)

    @cached_property
    def messages_ps(self) -> np.ndarray:
        """int64[messages], as TracedGiven has it. What the trace does not tell the size of takes its time anyway."""
        on_streams, took = self._traced_messages
        if self._network not in FIXED or not on_streams.any():
            return np.full(len(took), -1, np.int64)
        if self._choice.collectives == "free":
            return np.where(on_streams, 0, -1)
        unsized = self._workload.column("operations", "bytes")[self._workload.send_rows] == 0
        return np.where(self._messages_agree | unsized, took, -1)

    @property
    def lacks_ranks(self) -> bool:
        """Whether groups may have members that were not traced."""
        told = any(note.code == "ranks-missing" for note in self._workload.notes)
        return told and self._workload.source_format != EXTRAPOLATED

    @cached_property
    def _is_known(self) -> np.ndarray:
        """bool[collectives]: those whose size and members are known. A rank alone may have others that were not
        traced, where it took time."""
        of = self.collectives
        alone = np.array([len(each) < 2 for each in of.members], np.bool_)[of.communicator]
        unsized = (of.bytes == 0) & ~np.isin(of.kind, (int(OperationKind.barrier), int(OperationKind.ibarrier)))
        unsized[list(of.counts)] = False  # an uneven all-to-all that says that nobody sends
        doubted = np.where(of.traced_ps >= 0, alone | unsized, unsized & ~alone)
        return np.asarray(~(doubted | self.lacks_ranks))

    @property
    def is_priced(self) -> np.ndarray:
        """bool[collectives]: those that take what a model says of them, if not their traced times; others have traced
        times alone."""
        return np.asarray((self.collectives.traced_ps < 0) | self._is_known)

    def notes(self) -> list[Note]:
        of = self.collectives
        found = message_notes(self._workload, self._given, of, self.messages_ps)
        found += traced_message_notes(self._choice.collectives, *self._traced_messages, self.messages_ps, self._network)
        if not len(of):
            return found
        agreed = self._agreement if np.any(of.traced_ps >= 0) else None
        taking = Taking(of, self._choice.collectives, self.takes_traced, self._is_known, agreed)
        return [*taking.notes(), *found]
