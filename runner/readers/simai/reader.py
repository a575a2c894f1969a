"""A text workload as operations of all GPUs, which do the same.

- Passes compute one after the other, on one stream. Of the policies of transformers (and the orders of their training
  loops in ASTRA-sim 1.0 and SimAI): forward passes of all layers, then from the last layer on the gradients of inputs
  and of weights. Collectives of forward passes and of input gradients are waited for, those of weight gradients are
  not, but by the end. Layers between a checkpoint and the one that initiates it do their forward pass anew.
- ``DATA`` has collectives of weight gradients alone, over all GPUs; ``MICRO`` has these without computing.
- Groups are Megatron's: ``tp`` are neighbours, ``dp`` have the same place in their ``tp`` within a pipeline stage,
  ``ep`` are neighbours within ``dp``, ``dp_ep`` have the same place in their ``ep``. A collective that names no group
  is of ``tp``, for weight gradients of ``dp``.
- Bytes are those of the whole buffer: of an all-gather what it makes, of the others what each GPU hands in.
- Stages of a pipeline do not wait for each other, and send nothing: the text does not say when.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np

from manyscale.models.workload import MAX_RANKS, OperationKind, Workload
from manyscale.models.workload.gpu_step_tables import KernelClass
from manyscale.models.workload.gpu_tables import GpuFlag, GpuOperationKind
from manyscale.models.workload.notes import Errs, Note, changes, informs
from manyscale.runner.errors import UserError
from manyscale.runner.readers.options import ReadOptions
from manyscale.runner.readers.simai.lines import Layer, Pass, Text, read_text
from manyscale.runner.readers.stream_tables import (
    NO_GPU,
    RankRows,
    blank,
    groups_table,
    kernels_table,
    steps_table,
    stream_tables,
)

NAME: Final = "simai"
_G: Final = GpuOperationKind
_K: Final = OperationKind
_TRANSFORMERS: Final = ("HYBRID_TRANSFORMER_FWD_IN_BCKWD", "HYBRID_TRANSFORMER")
_POLICIES: Final = (*_TRANSFORMERS, "DATA", "MICRO")
_GROUPS: Final = ("tp", "dp", "ep", "dp_ep", "all")
_KERNELS: Final = 1  # the stream of passes; those of groups are behind it
_MOST_ROWS: Final = 1 << 25  # of all ranks: some 6 GB


@dataclass
class _Rank:
    """What each rank does: values of rows by name, in their order. ``kernels``: rows of passes, by
    name."""

    values: list[dict[str, int]] = field(default_factory=list)
    kernels: dict[str, int] = field(default_factory=dict)
    events: int = 0
    alone: int = 0  # collectives of groups of one

    def add(self, **values: int) -> None:
        self.values.append(values)

    def record(self, stream: int) -> int:
        self.events += 1
        self.add(gpu_kind=int(_G.record_event), stream=stream, event=self.events)
        return self.events


def read(path: Path, options: ReadOptions) -> Workload:
    """The workload. Raises UserError."""
    text = read_text(path)
    if text.policy not in _POLICIES:
        raise UserError(f"{path}:1: of policy {text.policy} the text does not say what waits for what; known are "
                        f"{', '.join(_POLICIES)}")  # fmt: skip
    sizes = _sizes(path, text, options)
    members = _members(sizes)
    rank = _rank(text, {name: len(members[name][0]) for name in _GROUPS}, path)
    count = sizes["gpus"] * (len(rank.values) + 3)
    if count > _MOST_ROWS:
        raise UserError(f"{path}: {sizes['gpus']} GPUs do {count} operations in all, of which {_MOST_ROWS} can be "
                        "held; choose fewer by --set workload.ranks=N")  # fmt: skip
    return _workload(path, text, sizes, members, rank)


def _sizes(path: Path, text: Text, options: ReadOptions) -> dict[str, int]:
    """How many GPUs there are, and members of groups. Raises UserError where they do not fit together."""
    sizes = {name: max(1, text.sizes.get(name, 1)) for name in ("tp", "ep", "pp")}
    gpus = options.ranks or text.sizes.get("gpus", 0)
    if text.policy not in _TRANSFORMERS:
        sizes = dict.fromkeys(sizes, 1)
    if not gpus:
        raise UserError(f"{path}:1: the text does not say how many GPUs there are (all_gpus:); say it by "
                        "--set workload.ranks=N")  # fmt: skip
    of_stage = sizes["tp"] * sizes["pp"]
    if gpus > MAX_RANKS or gpus % of_stage or (gpus // of_stage) % sizes["ep"]:
        shape = f"tp {sizes['tp']} x pp {sizes['pp']} x ep {sizes['ep']}"
        raise UserError(f"{path}:1: {gpus} GPUs are no whole number of groups of {shape}; mend the head, or say "
                        "another number by --set workload.ranks=N")  # fmt: skip
    return {**sizes, "gpus": gpus, "dp": gpus // of_stage}


def _members(sizes: Mapping[str, int]) -> dict[str, np.ndarray]:
    """int64[groups, members] by name: rank = ((stage x dp_ep + outer) x ep + inner) x tp + place."""
    grid = np.arange(sizes["gpus"]).reshape(sizes["pp"], sizes["dp"] // sizes["ep"], sizes["ep"], sizes["tp"])
    return {
        "tp": grid.reshape(-1, sizes["tp"]),
        "dp": np.moveaxis(grid, 3, 1).reshape(-1, sizes["dp"]),
        "ep": np.moveaxis(grid, 3, 2).reshape(-1, sizes["ep"]),
        "dp_ep": np.moveaxis(grid, 1, 3).reshape(-1, sizes["dp"] // sizes["ep"]),
        "all": grid.reshape(1, -1),
    }


def _rank(text: Text, count: Mapping[str, int], path: Path) -> _Rank:
    found = _Rank()
    usual = {"": "tp"} if text.policy in _TRANSFORMERS else {"": "all"}
    of_weights = {"": "dp"} if text.policy in _TRANSFORMERS else {"": "all"}
    for layer, what, one, waits in _passes(text, path):
        name = (of_weights if what == "weight gradient" else usual).get(one.group, one.group)
        _add(found, f"{layer.name} {what}", one, name, count[name], layer.update_ns, waits=waits)
    return found


def _passes(text: Text, path: Path) -> Iterator[tuple[Layer, str, Pass, bool]]:
    """(layer, what, pass, whether the next one waits for its collective) in the order of the training loop."""
    layers = text.layers
    nothing = Pass(0, None, "", 0)
    if text.policy == "MICRO":
        for layer in layers:
            yield layer, "weight gradient", Pass(0, *_collective(layer.weight_gradient)), False
        return
    is_data = text.policy == "DATA"
    for layer in layers:
        yield layer, "forward", _computing(layer.forward) if is_data else layer.forward, True
    for at in range(len(layers) - 1, -1, -1):
        layer = layers[at]
        if is_data:
            yield layer, "weight gradient", layer.weight_gradient, False
            yield layer, "input gradient", _computing(layer.input_gradient) if at else nothing, True
            continue
        if at in text.initiates:
            first = max((each for each in text.checkpoints if each <= at), default=-1)
            if first < 0:
                raise UserError(f"{path}:1: layer {at} initiates forward passes anew, but no checkpoint is before it")
            for again in layers[first:at]:
                yield again, "forward again", again.forward, True
        yield layer, "input gradient", layer.input_gradient, True
        yield layer, "weight gradient", layer.weight_gradient, False


def _collective(one: Pass) -> tuple[OperationKind | None, str, int]:
    return one.kind, one.group, one.bytes


def _computing(one: Pass) -> Pass:
    return Pass(one.ns, None, "", 0)


def _add(found: _Rank, name: str, one: Pass, group: str, members: int, update_ns: int, *, waits: bool) -> None:
    if one.ns:
        kernel = found.kernels.setdefault(name, len(found.kernels))
        found.add(gpu_kind=int(_G.launch), stream=_KERNELS, kernel=kernel, duration_ps=1000 * one.ns)
    if one.kind is None:
        return
    if members == 1:
        found.alone += 1
        return
    stream = _KERNELS + 1 + _GROUPS.index(group)
    event = found.record(_KERNELS)
    found.add(gpu_kind=int(_G.wait_event), stream=stream, event=event)
    part = -(-one.bytes // members)
    sent, received = {
        _K.allgather: (part, part), _K.alltoall: (part, part), _K.reduce_scatter: (1, part),
    }.get(one.kind, (one.bytes, one.bytes))  # fmt: skip
    found.add(
        kind=int(one.kind), gpu_kind=int(_G.communication), stream=stream, bytes=sent, receive_bytes=received,
        communicator=1 + _GROUPS.index(group), **({"peer": 0} if one.kind == _K.bcast else {}),
    )  # fmt: skip
    if update_ns:
        kernel = found.kernels.setdefault("update", len(found.kernels))
        found.add(gpu_kind=int(_G.launch), stream=stream, kernel=kernel, duration_ps=1000 * update_ns)
    if waits:
        event = found.record(stream)
        found.add(gpu_kind=int(_G.wait_event), stream=_KERNELS, event=event)


def _workload(
    path: Path, text: Text, sizes: Mapping[str, int], members: Mapping[str, np.ndarray], rank: _Rank
) -> Workload:
    rows = blank(len(rank.values) + 3)
    for at, values in enumerate(rank.values, 1):
        for name, value in values.items():
            rows[at][name] = value
    rows["flags"] = np.where(rows["gpu_kind"] == NO_GPU, 0, int(GpuFlag.non_blocking))
    rows["gpu_kind"][-2], rows["flags"][-2] = int(_G.synchronize_device), 0
    used = sorted({int(each) - 1 for each in np.unique(rows["communicator"]) if each})
    every = [row for at in used for row in members[_GROUPS[at]]]
    names = [_GROUPS[at] for at in used for _ in members[_GROUPS[at]]]
    number = np.zeros((sizes["gpus"], len(_GROUPS) + 1), np.int32)  # communicator of each rank, by group
    first = 1
    for at in used:
        of = members[_GROUPS[at]]
        number[of, at + 1] = first + np.arange(len(of))[:, None]
        first += len(of)
    nothing = np.zeros(0, np.int64)
    ranks = []
    for each in range(sizes["gpus"]):
        own = rows.copy()
        own["communicator"] = number[each, rows["communicator"]]
        ranks.append(RankRows(own, nothing, nothing, nothing, nothing))
    tables = stream_tables(ranks, every, [])
    count = len(rank.kernels)
    unknown = np.full(count, np.nan)
    tables["kernels"] = kernels_table(list(rank.kernels), [int(KernelClass.other)] * count, [""] * count, unknown,
                                      unknown.copy())  # fmt: skip
    tables["groups"] = groups_table(list(enumerate(names, 1)))
    numbers = np.arange(sizes["gpus"])
    tables["steps"] = steps_table(numbers, 0 * numbers, 0 * numbers, 0 * numbers + len(rows) - 1)
    return Workload(path.name, sizes["gpus"], tables, tuple(_notes(text, sizes, rank)), NAME)


def _notes(text: Text, sizes: Mapping[str, int], rank: _Rank) -> Iterator[Note]:
    yield informs("times-of-layers", f"the passes of {len(text.layers)} layers take the times of the text, on all GPUs "
                  "alike", count=len(text.layers))  # fmt: skip
    if text.unknown:
        told = f"words of the head are not known and left out: {', '.join(map(repr, text.unknown[:5]))}"
        yield changes("head-words-unknown", f"{len(text.unknown)} {told}", count=len(text.unknown))
    if sizes["pp"] > 1:
        yield changes(
            "pipeline-left-out", f"{sizes['pp']} stages of a pipeline do not wait for each other, and their messages "
            f"({text.sizes.get('pp_bytes', 0)} bytes each) take no time: the text does not say when they are sent",
            count=sizes["pp"], errs=Errs.short,
        )  # fmt: skip
    if rank.alone:
        yield informs("collectives-of-one", f"{rank.alone} collectives are of groups of one GPU, and do nothing",
                      count=rank.alone)  # fmt: skip
