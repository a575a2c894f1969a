"""The workload of a step: the rows of each stage, for all its ranks.

Ranks are numbered as Megatron-LM does: tensor parallelism first, then data, then pipeline. Made by column: O(rows), no
loop over ranks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from manyscale.models.gpu.parameters import Gpu
from manyscale.models.transformer.memory import memory
from manyscale.models.transformer.rows import GROUPS, Stages, events, host_ps, requests
from manyscale.models.transformer.shape import Transformer
from manyscale.models.transformer.times import FITTED, Framework, peak_flops
from manyscale.models.workload import KIND_NAMES, MAX_RANKS, NO_RANK, SCHEMAS, PhaseKind, Workload
from manyscale.models.workload.columns import text_array, to_arrow
from manyscale.models.workload.gpu_step_tables import SYNTHESISED
from manyscale.models.workload.gpu_tables import GpuFlag
from manyscale.models.workload.notes import Errs, Note, changes, informs

SOURCE: Final = SYNTHESISED
MOST_ROWS: Final = 1 << 22  # of all ranks, as far as bundles of layers allow, but no fewer than 2,000 of a rank
LEAST_ROWS: Final = 2000
ROW_BYTES: Final = 134  # of all tables for each operation, measured
MOST_PASSES: Final = 1 << 16  # of a stage, each way: their rows are made one by one
_OfRows: TypeAlias = Callable[[np.ndarray], Any]


def workload(
    step: Transformer,
    gpu: Gpu,
    gpu_name: str,
    framework: Framework | None = None,
    most_rows: int | None = None,
    most_bytes: int | None = None,
) -> Workload:
    """The step on GPUs of a kind; ``framework``: None for the defaults; ``most_rows``: of a rank, as far as bundles of
    layers allow; ``most_bytes``: of all tables. Raises ValueError if the GPU does not say what its tensor cores reach,
    or there are too many ranks, passes or bytes."""
    if step.ranks > MAX_RANKS:
        raise ValueError(f"tp x pp x dp: {step.ranks} ranks are more than {MAX_RANKS}")
    for what, count in (("layers", step.layers), ("micro batches", step.micro_batches * step.interleaved)):
        if count > MOST_PASSES:
            raise ValueError(f"{count} {what} are more than {MOST_PASSES}")
    try:
        peak = peak_flops(gpu, step.precision)
    except KeyError:
        raise ValueError(f"the GPU has no node.gpu.matrix.rates.{step.precision}: its tensor cores' peak") from None
    most = most_rows or max(LEAST_ROWS, MOST_ROWS // step.ranks)
    stages = Stages(step, gpu, peak, framework or Framework(), most)
    size = ROW_BYTES * sum(map(len, stages.stages)) * step.tp * step.dp
    if most_bytes is not None and size > most_bytes:
        raise ValueError(
            f"{step.ranks} ranks of {max(map(len, stages.stages))} operations need {size / 1e9:.0f} GB of memory, of "
            f"{most_bytes / 1e9:.0f} GB; choose fewer rows or ranks, or larger micro batches"
        )
    tables = _Tables(step, stages)
    name = f"transformer {step.layers}x{step.hidden}, tp {step.tp}, pp {step.pp}, dp {step.dp}"
    notes = _notes(step, stages, gpu_name, framework is None or not framework.model_fields_set >= FITTED)
    return Workload(name, step.ranks, tables.all(gpu_name), notes, SOURCE)


def _notes(step: Transformer, stages: Stages, gpu_name: str, assumed: bool) -> tuple[Note, ...]:
    found = [
        changes(
            "step-synthesised",
            f"nothing was traced: kernels take what a roofline of {gpu_name} says"
            + (" with efficiencies that were calibrated on A100" if assumed else ""),
            count=len(stages.kernels.names),
        )
    ]
    if stages.bundle > 1 and (step.tp > 1 or step.zero == 3):
        found.append(
            changes(
                "layers-bundled",
                f"collectives of {stages.bundle} layers are one, which saves the latency of the others",
                count=stages.bundle, errs=Errs.short,
            )
        )  # fmt: skip
    if step.sequence_parallel and step.tp > 1:
        found.append(
            informs(
                "gathers-overlapped",
                "gathers of saved inputs in the backward pass run beside products, and are left out",
            )
        )
    return tuple(found)


class _Tables:
    def __init__(self, step: Transformer, stages: Stages):
        self._step, self._stages = step, stages
        self._of_stage = step.tp * step.dp
        self._length = np.array([len(rows) for rows in stages.stages])
        self._end = np.cumsum(self._length * self._of_stage)
        self._communicators = _communicators(step)

    def all(self, gpu_name: str) -> dict[str, pa.Table]:
        members, of_rank, names = self._communicators
        step, stages = self._step, self._stages
        ranks = np.arange(step.ranks, dtype=np.int32)
        last = np.repeat(self._length - 1, self._of_stage).astype(np.int32)
        numbers = np.array([number for number, _ in names], np.int32)
        texts = text_array([name for _, name in names])
        kernels = stages.kernels
        count = len(kernels.names)
        return {
            "operations": self._operations(of_rank),
            "gpu_operations": self._gpu_operations(),
            "phases": self._phases(),
            "regions": _table("regions", name=text_array([])),
            "communicators": _table("communicators", members=_lists(members)),
            "kernels": _table(
                "kernels", kernel_name=text_array(kernels.names), kernel_class=np.array(kernels.kinds, np.int8),
                precision=text_array([step.precision] * count), flops=np.array(kernels.flops, np.float64),
                bytes=np.array(kernels.sizes, np.float64), blocks=np.zeros(count, np.int64),
                block_threads=np.zeros(count, np.int32),
            ),
            "traced_gpus": _table(
                "traced_gpus", rank=ranks, device=np.zeros(step.ranks, np.int32),
                gpu_name=text_array([gpu_name] * step.ranks),
            ),
            "gpu_memory": self._memory(ranks),
            "groups": _table("groups", communicator_id=numbers, group_name=texts),
            "steps": _table(
                "steps", rank=ranks, step=np.zeros(step.ranks, np.int32),
                first_operation_id=np.zeros(step.ranks, np.int32), last_operation_id=last,
            ),
            "trained_models": _table(
                "trained_models", model_name=text_array([SOURCE]), parameters=np.array([float(step.parameters)]),
                tokens=np.array([float(step.tokens)]), flops=np.array([step.model_flops]),
                precision=text_array([step.precision]),
            ),
        }  # fmt: skip

    def _memory(self, ranks: np.ndarray) -> pa.Table:
        found = [memory(self._step, stage) for stage in range(self._step.pp)]
        columns = {
            f"{name}_bytes": np.repeat([getattr(each, name) for each in found], self._of_stage)
            for name in ("weights", "gradients", "optimiser", "activations")
        }
        return _table("gpu_memory", rank=ranks, device=np.zeros(len(ranks), np.int32), **columns)

    def _column(self, dtype: str, of_rows: _OfRows, chosen: _OfRows | None = None) -> np.ndarray:
        """A column of all ranks: what ``of_rows`` says of the rows of a stage, of those that are ``chosen``."""
        parts = []
        for rows in self._stages.stages:
            values = np.broadcast_to(np.asarray(of_rows(rows), dtype), len(rows))
            parts.append(values if chosen is None else values[chosen(rows)])
        found = np.empty(self._of_stage * sum(map(len, parts)), dtype)
        at = 0
        for part in parts:
            found[at : at + self._of_stage * len(part)].reshape(self._of_stage, len(part))[:] = part
            at += self._of_stage * len(part)
        return found

    def _ranks(self, chosen: _OfRows | None = None) -> np.ndarray:
        lengths = [len(rows) if chosen is None else int(chosen(rows).sum()) for rows in self._stages.stages]
        return np.repeat(np.arange(self._step.ranks, dtype=np.int32), np.repeat(lengths, self._of_stage))

    def _operations(self, of_rank: np.ndarray) -> pa.Table:
        rank = self._ranks()
        communicator = self._column("i4", lambda rows: rows["group"])
        grouped = communicator >= 0
        communicator[grouped] = of_rank[communicator[grouped], rank[grouped]]
        communicator[~grouped] = 0
        peer = self._column("i4", lambda rows: rows["peer"])
        messages = np.flatnonzero(peer)
        to = (rank[messages] + peer[messages] * self._of_stage) % self._step.ranks
        peer[:] = NO_RANK
        peer[messages] = to
        nothing = pa.array([], pa.int64())
        no_lists = pa.ListArray.from_arrays(to_arrow(np.zeros(len(rank) + 1, np.int32)), nothing)
        completes = self._column("i4", lambda rows: rows["completes"])
        ends = np.concatenate((np.zeros(1, np.int32), np.cumsum(completes, dtype=np.int32)))
        completed = self._column("i4", _completed, _completing)
        kinds = pa.DictionaryArray.from_arrays(to_arrow(self._column("i1", lambda rows: rows["kind"])), KIND_NAMES)
        return _table(
            "operations", rank=rank, kind=kinds, peer=peer,
            source=np.full(len(rank), NO_RANK, np.int32), tag=self._column("i4", lambda rows: rows["tag"]),
            bytes=self._column("i8", lambda rows: rows["bytes"]),
            receive_bytes=self._column("i8", lambda rows: rows["receive_bytes"]), communicator_id=communicator,
            request=self._column("i4", lambda rows: requests(rows)[0]),
            completes=pa.ListArray.from_arrays(to_arrow(ends), to_arrow(completed)), send_counts=no_lists,
            receive_counts=no_lists,
        )  # fmt: skip

    def _gpu_operations(self) -> pa.Table:
        def given(rows: np.ndarray) -> np.ndarray:
            return rows["gpu_kind"] >= 0

        rank = self._ranks(given)
        zeros = np.zeros(len(rank), np.int32)
        took = np.array([*self._stages.kernels.took_ps, -1], np.int64)
        return _table(
            "gpu_operations", rank=rank,
            operation_id=self._column("i4", lambda rows: np.arange(len(rows)), given),
            kind=self._column("i1", lambda rows: rows["gpu_kind"], given),
            stream=self._column("i8", lambda rows: rows["stream"], given), launch_id=zeros,
            bytes=np.zeros(len(rank), np.int64), event=self._column("i4", events, given), device=zeros,
            peer=np.full(len(rank), -1, np.int32), priority=zeros,
            flags=np.full(len(rank), int(GpuFlag.non_blocking), np.int32), thread=zeros,
            kernel_id=self._column("i4", lambda rows: rows["kernel"], given),
            duration_ps=self._column("i8", lambda rows: took[rows["kernel"]], given),
        )  # fmt: skip

    def _phases(self) -> pa.Table:
        def computes(rows: np.ndarray) -> np.ndarray:
            return host_ps(rows) > 0

        rank = self._ranks(computes)
        return _table(
            "phases", rank=rank, operation_id=self._column("i4", lambda rows: np.arange(len(rows)), computes),
            kind=np.full(len(rank), PhaseKind.compute, np.int8), region_id=np.full(len(rank), -1, np.int32),
            duration_ps=self._column("i8", host_ps, computes),
        )  # fmt: skip


def _completing(rows: np.ndarray) -> np.ndarray:
    return rows["completes"] == 1


def _completed(rows: np.ndarray) -> np.ndarray:
    """Of each row; 0 of those that complete none."""
    found = np.zeros(len(rows), np.int32)
    found[_completing(rows)] = requests(rows)[1]
    return found


def _communicators(step: Transformer) -> tuple[list[np.ndarray], np.ndarray, list[tuple[int, str]]]:
    """Members of each communicator, the world first; int32[GROUPS, ranks]: that of each rank; the names of those that
    have one."""
    rank = np.arange(step.ranks, dtype=np.int32).reshape(step.pp, step.dp, step.tp)
    shapes = {
        "tp": rank.reshape(-1, step.tp),
        "dp": rank.transpose(0, 2, 1).reshape(-1, step.dp),
        "pp": rank.transpose(1, 2, 0).reshape(-1, step.pp),
    }
    shapes["embedding"] = shapes["pp"][:, [0, -1]]
    members = [np.arange(step.ranks, dtype=np.int32)]
    of_rank = np.zeros((len(GROUPS), step.ranks), np.int32)
    names = []
    for group, name in enumerate(GROUPS):
        found = shapes[name]
        if found.shape[1] == 1 or (name == "embedding" and step.pp == 1):
            continue
        number = len(members) + np.arange(len(found), dtype=np.int32)
        of_rank[group, found.ravel()] = np.repeat(number, found.shape[1])
        names += [(int(each), name) for each in number]
        members += list(found)
    return members, of_rank, names


def _lists(values: list[np.ndarray]) -> pa.ListArray:
    ends = np.concatenate(([0], np.cumsum([len(each) for each in values]))).astype(np.int32)
    return pa.ListArray.from_arrays(to_arrow(ends), to_arrow(np.concatenate(values)))


def _table(level: str, **columns: Any) -> pa.Table:
    schema = SCHEMAS[level]
    arrays = [
        to_arrow(columns[name]) if isinstance(columns[name], np.ndarray) else columns[name] for name in schema.names
    ]
    return pa.Table.from_arrays(arrays, schema=schema)
