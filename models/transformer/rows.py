"""The operations of a rank, by pipeline stage: ranks of one stage differ in their groups and peers alone.

A pass of a piece of layers is a few rows: kernels between two collectives make one row for products of matrices, one
for fused attention, one for the rest, of all layers of a *bundle*. With tensor parallelism a bundle is one layer where
a rank's rows allow it (``most``); of several, collectives are joined as well. Collectives of tensor parallelism stand
in the stream of the kernels, which wait for them; ZeRO's gathers and sums of gradients of a micro batch stand in one of
their own, parameters one bundle ahead. A stage receives before a pass and sends behind it, once its GPU is done
(Megatron-LM synchronises there); messages of either direction have a stream of their own.

The host launches the kernels of a row one by one: what the first takes stands before the row, what the others take
before the next one, so that the GPU begins with the first and a host that is slower than its GPU delays what follows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from manyscale.models.gpu.parameters import Gpu
from manyscale.models.transformer import kernels
from manyscale.models.transformer.closed_form import LAYER_TENSORS
from manyscale.models.transformer.schedule import passes
from manyscale.models.transformer.shape import ELEMENT_BYTES, Transformer
from manyscale.models.transformer.times import Framework, kernel_ps
from manyscale.models.workload.gpu_step_tables import KernelClass
from manyscale.models.workload.gpu_tables import GpuOperationKind
from manyscale.models.workload.operation_tables import NO_REQUEST, OperationKind

ROW: Final = np.dtype(
    [
        ("kind", "i1"), ("gpu_kind", "i1"), ("stream", "i2"),
        ("group", "i1"),  # index of GROUPS; -1: none
        ("peer", "i1"),  # stages from here: 1, -1; 0: none
        ("tag", "i1"), ("opens", "i1"), ("completes", "i1"),  # a request; that of the row before
        ("event", "i1"),  # 1: the next number, -1: the last one that was given
        ("kernel", "i4"), ("bytes", "i8"), ("receive_bytes", "i8"),
        ("first_ps", "i8"), ("rest_ps", "i8"),  # of the host: before the row, and before the next
    ]
)  # fmt: skip
GROUPS: Final = ("tp", "dp", "pp", "embedding")
_TP, _DP, _PP, _EMBEDDING = range(4)
COMPUTE, DATA, TO_NEXT, FROM_PREVIOUS, TO_PREVIOUS, FROM_NEXT = range(1, 7)  # streams
_K: Final = OperationKind
_G: Final = GpuOperationKind


@dataclass
class Kernels:
    """Rows of the table of kernels, and what each takes."""

    names: list[str] = field(default_factory=list)
    kinds: list[int] = field(default_factory=list)
    flops: list[float] = field(default_factory=list)
    sizes: list[float] = field(default_factory=list)
    took_ps: list[int] = field(default_factory=list)
    known: dict[tuple[object, ...], int] = field(default_factory=dict)

    def number(self, name: str, kind: KernelClass, flops: float, size: float, took_ps: float) -> int:
        key = (name, int(kind), flops, size, took_ps)
        if key not in self.known:
            self.known[key] = len(self.names)
            self.names.append(name)
            self.kinds.append(int(kind))
            self.flops.append(flops)
            self.sizes.append(size)
            self.took_ps.append(round(took_ps))
        return self.known[key]


class Stages:
    """The rows of each stage. ``most``: rows of a rank, as far as bundles of layers allow; ``bundle``: layers of one.
    Raises KeyError if the GPU does not say what its tensor cores reach."""

    def __init__(self, step: Transformer, gpu: Gpu, peak: float, framework: Framework, most: int):
        self.step, self.kernels = step, Kernels()
        self._gpu, self._peak, self._framework = gpu, peak, framework
        self._layer = kernels.layer(step)
        size = ELEMENT_BYTES * step.micro_batch * step.sequence * step.hidden
        self._activation_bytes = size
        self._sent_bytes = size // step.tp if step.sequence_parallel else size
        bundles = [each for each in range(1, step.chunk_layers + 1) if step.chunk_layers % each == 0]
        if step.tp == 1 and step.zero < 3:
            bundles = bundles[-1:]  # nothing stands between layers
        for self.bundle in bundles:
            self.stages = [self._stage(stage) for stage in range(step.pp)]
            if max(map(len, self.stages)) <= most:
                break

    def _stage(self, stage: int) -> np.ndarray:
        """ROW[]."""
        step, made = self.step, _Rows(self._framework)
        bundles = step.chunk_layers // self.bundle
        forward, back = _rows(self._forward()), _rows(self._backward())
        made.other()
        own = step.parameters_of_stage(stage)
        shard = -(-own // step.dp)
        layer_shard = -(-self.bundle * step.layer_parameters // (step.tp * step.dp))
        gathers = self._gathered(layer_shard)
        others = self._gathered(-(-step.hidden * (step.padded_vocabulary + step.sequence) // step.dp))
        for each in passes(step, stage):
            first, last = self._is_first(stage, each.chunk), self._is_last(stage, each.chunk)
            if not (first if each.is_forward else last):
                made.receive(self._sent_bytes, is_forward=each.is_forward)
            begin, end = ((self._embedding(0) if first else []), (self._head(0) if last else []))
            if not each.is_forward:
                begin, end = ((self._head(1) if last else []), (self._embedding(1) if first else []))
            if step.zero == 3 and step.dp > 1 and each.is_forward:  # vectors of words and places, kept for both ways
                made.extend(others.rows)
                made.await_event(COMPUTE)
            made.extend(begin)
            rows = forward if each.is_forward else back
            if step.zero == 3 and step.dp > 1:
                for number in range(bundles):
                    if number == 0:
                        made.extend(gathers.rows)
                    made.extend(_Rows(self._framework).await_event(COMPUTE).rows)
                    if number + 1 < bundles:
                        made.extend(gathers.rows)
                    made.add(rows)
            else:
                made.add(np.tile(rows, bundles))
            made.extend(end)
            if not each.is_forward and step.zero >= 2 and step.dp > 1:
                made.record(COMPUTE).await_event(DATA)
                made.collective(_K.reduce_scatter, _DP, step.gradient_bytes, DATA, step.gradient_bytes * shard)
            if not (last if each.is_forward else first):
                made.send(self._sent_bytes, is_forward=each.is_forward)
        if step.pp > 1 and stage in (0, step.pp - 1):
            tied = step.gradient_bytes * step.hidden * step.padded_vocabulary
            made.synchronize().collective(_K.allreduce, _EMBEDDING, tied)
        self._update(made, own, shard)
        made.synchronize().other()
        return made.joined()

    def _gathered(self, shard: int) -> _Rows:
        """Parameters of which each member has ``shard``."""
        return _Rows(self._framework).collective(_K.allgather, _DP, ELEMENT_BYTES * shard, DATA).record(DATA)

    def _update(self, made: _Rows, own: int, shard: int) -> None:
        """Sums of gradients, and the optimiser, before which its host looks whether they are finite."""
        step = self.step
        if step.dp > 1 and step.zero == 0:
            made.collective(_K.allreduce, _DP, step.gradient_bytes * own)
        elif step.dp > 1 and step.zero == 1:
            made.collective(_K.reduce_scatter, _DP, step.gradient_bytes, COMPUTE, step.gradient_bytes * shard)
        made.synchronize()
        tensors = LAYER_TENSORS * step.chunk_layers * step.interleaved
        updated = own if step.zero == 0 else shard
        kernel = self._kernel_rows("optimiser", kernels.optimiser(updated, self._framework.optimiser_bytes, 1), 1)
        made.extend(kernel)
        made.rest(tensors * self._framework.host_tensor_ps)
        if step.dp > 1 and step.zero in (1, 2):
            made.collective(_K.allgather, _DP, ELEMENT_BYTES * shard)

    def _is_first(self, stage: int, chunk: int) -> bool:
        return stage == 0 and chunk == 0

    def _is_last(self, stage: int, chunk: int) -> bool:
        return stage == self.step.pp - 1 and chunk == self.step.interleaved - 1

    def _forward(self) -> list[np.ndarray]:
        """Of a bundle of layers."""
        if self.step.tp == 1:
            return self._kernel_rows("layers", np.concatenate(self._layer.forward), self.bundle)
        attention, products = self._layer.forward
        return [*self._block("attention", attention), *self._block("wide products", products)]

    def _backward(self) -> list[np.ndarray]:
        """The same, with what is computed again."""
        again = self._layer.again(self.step.recompute)
        back = self._layer.backward
        if self.step.tp == 1:
            repeated = self._kernel_rows("layers again", np.concatenate(again), self.bundle)
            return [*repeated, *self._kernel_rows("layers backward", np.concatenate(back), self.bundle)]
        if self.step.recompute == "full":
            repeated = [*self._block("attention again", again[0]), *self._block("wide products again", again[1])]
        else:
            repeated = self._kernel_rows("attention again", again[0], self.bundle)
        own = [*self._block("wide products backward", back[1]), *self._block("attention backward", back[0])]
        return [*repeated, *own]

    def _block(self, name: str, found: np.ndarray) -> list[np.ndarray]:
        """Between two collectives, and with the second (with sequence parallelism, with both)."""
        rows = _Rows(self._framework)
        size = self.bundle * self._activation_bytes
        part = -(-size // self.step.tp)
        if self.step.sequence_parallel:
            rows.tensor(_K.allgather, part, 0, self.step.tp)
            rows.extend(self._kernel_rows(name, found, self.bundle))
            rows.tensor(_K.reduce_scatter, ELEMENT_BYTES, part, self.step.tp)
        else:
            rows.extend(self._kernel_rows(name, found, self.bundle))
            rows.tensor(_K.allreduce, size, 0, self.step.tp)
        return rows.rows

    def _embedding(self, back: int) -> list[np.ndarray]:
        rows = _Rows(self._framework)
        rows.extend(self._kernel_rows("words' vectors backward" if back else "words' vectors",
                                      kernels.embedding(self.step)[back], 1))  # fmt: skip
        if not back and self.step.tp > 1:
            rows.tensor(_K.allreduce, self._activation_bytes, 0, self.step.tp)
        return rows.rows

    def _head(self, back: int) -> list[np.ndarray]:
        """Loss and logits; the loss needs largest logit, sum and own logit of each token, of 32 bits."""
        rows = _Rows(self._framework)
        name = "logits and loss backward" if back else "logits and loss"
        rows.extend(self._kernel_rows(name, kernels.head(self.step)[back], 1))
        if self.step.tp > 1 and back:
            rows.tensor(_K.allreduce, self._activation_bytes, 0, self.step.tp)
        elif self.step.tp > 1:
            for _ in range(3):
                rows.tensor(_K.allreduce, 4 * self.step.micro_batch * self.step.sequence, 0, self.step.tp)
        return rows.rows

    def _kernel_rows(self, name: str, found: np.ndarray, layers: int) -> list[np.ndarray]:
        """One for products, one for fused attention, one for the rest."""
        took = kernel_ps(found, self._gpu, self._peak, self._framework)
        kind = found["kind"]
        is_matrix, is_fused = kind == KernelClass.matrix, kind == KernelClass.attention
        rest = KernelClass.optimiser if name == "optimiser" else KernelClass.elementwise
        made = []
        for what, chosen, of_class in (
            ("products of matrices", is_matrix, KernelClass.matrix),
            ("fused attention", is_fused, KernelClass.attention),
            ("other kernels", ~is_matrix & ~is_fused, rest),
        ):
            if not chosen.any():
                continue
            count = layers * found["count"][chosen].sum()
            number = self.kernels.number(
                f"{name}: {what}" + (f" of {layers} layers" if layers > 1 else ""), of_class,
                layers * float(found["flops"][chosen].sum()), layers * float(found["bytes"][chosen].sum()),
                layers * float(took[chosen].sum()),
            )  # fmt: skip
            made.append(_row(kind=_K.other, gpu_kind=_G.launch, stream=COMPUTE, kernel=number,
                             first_ps=self._framework.host_launch_ps,
                             rest_ps=round((count - 1) * self._framework.host_launch_ps)))  # fmt: skip
        return made


class _Rows:
    """Rows in the making."""

    def __init__(self, framework: Framework):
        self.rows: list[np.ndarray] = []
        self._framework = framework

    def joined(self) -> np.ndarray:
        return _rows(self.rows)

    def extend(self, rows: Sequence[np.ndarray]) -> None:
        self.rows.extend(rows)

    def add(self, rows: np.ndarray) -> None:
        self.rows.append(rows)

    def rest(self, took_ps: int) -> None:
        """What the host takes behind the last row."""
        self.rows[-1]["rest_ps"] += took_ps

    def other(self) -> _Rows:
        return self._with(kind=_K.other)

    def collective(
        self, kind: OperationKind, group: int, size: int, stream: int = COMPUTE, receive: int = 0, more_ps: int = 0
    ) -> _Rows:
        return self._with(kind=kind, gpu_kind=_G.communication, stream=stream, group=group, bytes=size,
                          receive_bytes=receive, first_ps=self._framework.host_launch_ps, rest_ps=more_ps)  # fmt: skip

    def tensor(self, kind: OperationKind, size: int, receive: int, tp: int) -> _Rows:
        return self.collective(kind, _TP, size, COMPUTE, receive, (tp - 1) * self._framework.host_collective_ps)

    def record(self, stream: int) -> _Rows:
        return self._with(kind=_K.other, gpu_kind=_G.record_event, stream=stream, event=1)

    def await_event(self, stream: int) -> _Rows:
        return self._with(kind=_K.other, gpu_kind=_G.wait_event, stream=stream, event=-1)

    def synchronize(self) -> _Rows:
        return self._with(kind=_K.other, gpu_kind=_G.synchronize_device)

    def receive(self, size: int, *, is_forward: bool) -> _Rows:
        """The host waits for it."""
        stream, peer = (FROM_PREVIOUS, -1) if is_forward else (FROM_NEXT, 1)
        self._message(_K.irecv, stream, peer, size, is_forward)
        return self._with(kind=_K.other, gpu_kind=_G.synchronize_stream, stream=stream)

    def send(self, size: int, *, is_forward: bool) -> _Rows:
        """The host waits for what is sent."""
        self._with(kind=_K.other, gpu_kind=_G.synchronize_stream, stream=COMPUTE)
        stream, peer = (TO_NEXT, 1) if is_forward else (TO_PREVIOUS, -1)
        return self._message(_K.isend, stream, peer, size, is_forward)

    def _message(self, kind: OperationKind, stream: int, peer: int, size: int, is_forward: bool) -> _Rows:
        took = self._framework.host_message_ps // 2
        of_kind = {"bytes": size} if kind == _K.isend else {"receive_bytes": size}
        self._with(kind=kind, gpu_kind=_G.communication, stream=stream, group=_PP, peer=peer,
                   tag=0 if is_forward else 1, opens=1, first_ps=took, **of_kind)  # fmt: skip
        return self._with(kind=_K.waitall, completes=1)

    def _with(self, **values: int) -> _Rows:
        self.rows.append(_row(**values))
        return self


def _row(**values: int) -> np.ndarray:
    made = np.zeros(1, ROW)
    made["gpu_kind"] = made["group"] = made["kernel"] = -1
    for name, value in values.items():
        made[name] = value
    return made


def _rows(parts: Sequence[np.ndarray]) -> np.ndarray:
    return np.concatenate(parts) if parts else np.zeros(0, ROW)


def host_ps(rows: np.ndarray) -> np.ndarray:
    """int64[rows]: what the host takes before each."""
    found = rows["first_ps"].copy()
    found[1:] += rows["rest_ps"][:-1]
    return found


def requests(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """int32[rows]: the request that each opens (NO_REQUEST: none), and int32[completing rows]: the one it completes."""
    number = np.cumsum(rows["opens"]) - 1
    opened = np.where(rows["opens"] == 1, number, NO_REQUEST).astype(np.int32)
    return opened, number[rows["completes"] == 1].astype(np.int32)


def events(rows: np.ndarray) -> np.ndarray:
    """int32[rows]: the event that each records, from 1, or waits for: the last one; 0: none."""
    number = np.cumsum(rows["event"] == 1)
    return np.where(rows["event"] != 0, number, 0).astype(np.int32)
