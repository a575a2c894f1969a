"""Traces of one program at several small inputs, with blocks and sites numbered alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from manyscale.models.memory.access_stream import Sites
from manyscale.models.workload import Workload
from manyscale.runner import traces
from manyscale.runner.errors import UserError
from manyscale.runner.memory.streams import Stream, streams_of
from manyscale.runner.study import WorkloadChoice


@dataclass(frozen=True)
class InputRun:
    """One trace: its input ``size``, and the number of each of its blocks and sites in the whole set."""

    size: int
    workload: Workload
    stream: Stream
    sites: Sites
    block_number: np.ndarray
    site_number: np.ndarray


@dataclass(frozen=True)
class TrainingSet:
    """Runs by ascending size. A block is the same in two runs where its module, offset and sites are; ``blocks`` has a
    row per block (module, offset, function, file, line, and ``run`` and ``block_id`` of one run that has it), ``sites``
    are those of all blocks, in their order."""

    runs: Sequence[InputRun]
    blocks: pd.DataFrame
    sites: Sites


def parse_inputs(texts: Sequence[str]) -> list[tuple[int, str]]:
    """(size, path) of every SIZE=TRACE, by ascending size. Raises UserError."""
    found = []
    for text in texts:
        size, separator, path = text.partition("=")
        if not separator or not size.isdecimal() or int(size) < 1 or not path:
            raise UserError(f"{text!r}: write SIZE=TRACE with a whole size, such as 10=runs/mm10")
        found.append((int(size), path))
    sizes = [size for size, _ in found]
    if len(set(sizes)) < len(sizes):
        raise UserError("two traces have the same size; give each input once")
    return sorted(found)


def parse_sizes(text: str) -> list[int]:
    """Ascending sizes of a list such as 100,200. Raises UserError."""
    parts = text.split(",")
    if not all(part.strip().isdecimal() and int(part) > 0 for part in parts):
        raise UserError(f"--sizes {text!r}: write whole numbers above zero, such as 100,200,400")
    return sorted({int(part) for part in parts})


def read_training(inputs: Sequence[tuple[int, str]], format_name: str, cache: Path) -> TrainingSet:
    """Read the traces, of one thread each, and number their blocks alike. Raises UserError."""
    read = []
    for size, path in inputs:
        workload = traces.read_workload(WorkloadChoice(path=path, format=format_name), cache)
        streams, sites = streams_of(workload, path)
        if len(streams) > 1:
            raise UserError(f"{path}: holds {len(streams)} threads; extrapolation takes traces of one thread")
        read.append((size, workload, streams[0], sites))
    return _numbered(read)


def _numbered(read: Sequence[tuple[int, Workload, Stream, Sites]]) -> TrainingSet:
    parts = []
    for index, (_, workload, _, sites) in enumerate(read):
        part = workload.tables["blocks"].select(["module", "offset", "function", "file", "line"]).to_pandas()
        part["sites"] = [
            (sites.bytes[a:b].tobytes(), sites.is_store[a:b].tobytes())
            for a, b in zip(sites.offsets[:-1].tolist(), sites.offsets[1:].tolist(), strict=True)
        ]
        part["run"], part["block_id"] = index, np.arange(len(part))
        parts.append(part)
    everything = pd.concat(parts, ignore_index=True)
    number = everything.groupby(["module", "offset", "sites"], sort=False).ngroup().to_numpy()
    first = np.unique(number, return_index=True)[1]
    blocks = everything.iloc[first].reset_index(drop=True)
    owners = [read[run][3] for run in blocks["run"]]
    rows = [np.arange(s.offsets[b], s.offsets[b + 1]) for s, b in zip(owners, blocks["block_id"], strict=True)]
    counts = np.array([len(row) for row in rows], np.int64)
    offsets = np.concatenate(([0], np.cumsum(counts)))
    sites = Sites(
        np.repeat(np.arange(len(blocks), dtype=np.int32), counts),
        np.concatenate([s.is_store[row] for s, row in zip(owners, rows, strict=True)]).astype(bool),
        np.concatenate([s.bytes[row] for s, row in zip(owners, rows, strict=True)]).astype(np.int32),
        offsets,
    )
    runs, start = [], 0
    for size, workload, stream, own in read:
        block_number = number[start : start + own.num_blocks].astype(np.int32)
        start += own.num_blocks
        within = np.arange(len(own)) - own.offsets[own.block]
        runs.append(
            InputRun(
                size, workload, stream, own, block_number, (offsets[block_number[own.block]] + within).astype(np.int32)
            )
        )
    return TrainingSet(runs, blocks.drop(columns="sites"), sites)
