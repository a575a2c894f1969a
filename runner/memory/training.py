"""Traces of one program at several small inputs, with blocks and sites numbered alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa

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
    """Runs by ascending size. A block is the same in two runs where its module, offset and sites are; ``blocks`` is the
    workload's table of all of them, ``owners`` tells of each a run that has it and its block_id there, ``sites`` are
    those of all blocks, in their order."""

    runs: Sequence[InputRun]
    blocks: pa.Table
    owners: Sequence[tuple[int, int]]
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
    numbers: dict[tuple[object, ...], int] = {}
    owners: list[tuple[int, int]] = []  # of each block: a run that has it, and its id there
    block_numbers = []
    for index, (_, workload, _, sites) in enumerate(read):
        blocks = workload.tables["blocks"]
        identities = zip(
            blocks.column("module").to_pylist(),
            blocks.column("offset").to_pylist(),
            pairwise(sites.offsets.tolist()),
            strict=True,
        )
        mine = np.empty(blocks.num_rows, np.int32)
        for block, (module, offset, (first, end)) in enumerate(identities):
            identity = (module, offset, sites.bytes[first:end].tobytes(), sites.is_store[first:end].tobytes())
            mine[block] = numbers.setdefault(identity, len(numbers))
            if mine[block] == len(owners):
                owners.append((index, block))
        block_numbers.append(mine)
    own_sites = [sites for _, _, _, sites in read]
    rows = [np.arange(own_sites[run].offsets[block], own_sites[run].offsets[block + 1]) for run, block in owners]
    counts = np.array([len(row) for row in rows], np.int64)
    offsets = np.concatenate(([0], np.cumsum(counts)))
    picked = [(own_sites[run], row) for (run, _), row in zip(owners, rows, strict=True)]
    sites = Sites(
        np.repeat(np.arange(len(owners), dtype=np.int32), counts),
        np.concatenate([np.empty(0, bool), *(its.is_store[row] for its, row in picked)]),
        np.concatenate([np.empty(0, np.int32), *(its.bytes[row] for its, row in picked)]),
        offsets,
    )
    runs = []
    for (size, workload, stream, own), mine in zip(read, block_numbers, strict=True):
        within = np.arange(len(own)) - own.offsets[own.block]
        runs.append(InputRun(size, workload, stream, own, mine, (offsets[mine[own.block]] + within).astype(np.int32)))
    tables = [read[run][1].tables["blocks"].slice(block, 1) for run, block in owners]
    return TrainingSet(runs, pa.concat_tables(tables), owners, sites)
