"""Traces of one program at several small inputs, with blocks and sites numbered alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from manyscale.models.memory.access_stream import Sites
from manyscale.models.memory.amm.profile_extrapolation import TrainingRun
from manyscale.models.memory.nests.extrapolation import common_blocks
from manyscale.models.spelling import hint
from manyscale.models.workload import REQUIRED_LEVELS, Workload
from manyscale.models.workload.columns import to_numpy
from manyscale.runner import shipped
from manyscale.runner.errors import UserError
from manyscale.runner.predict.memory import profile_units
from manyscale.runner.predict.memory.streams import Stream, streams_of
from manyscale.runner.predict.units import Executes
from manyscale.runner.progress import Progress, silent
from manyscale.runner.study import WorkloadChoice, traces

MOST_ALONE: Final = 0.5  # of a run's accesses by blocks that no other run executes


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
    """Runs by ascending size. A block is the same in two runs where its module, offset and accesses are. ``program``
    has the blocks, instructions and accesses of all, in that numbering; ``sites`` are its sites."""

    runs: Sequence[InputRun]
    sites: Sites
    program: Workload

    @property
    def content(self) -> list[str]:
        """What identifies the set: sizes and digests."""
        return [f"{run.size} {run.workload.digest}" for run in self.runs]


def parse_inputs(texts: Sequence[str]) -> list[tuple[int, str]]:
    """(size, path) of every SIZE=TRACE, or of a shipped program's traces, by ascending size. Raises UserError."""
    known = shipped.memory_traces()
    if len(texts) == 1 and texts[0] in known:
        return [(size, str(path)) for size, path in known[texts[0]].items()]
    found = []
    for text in texts:
        size, separator, path = text.partition("=")
        if not separator or not size.isdecimal() or int(size) < 1 or not path:
            raise UserError(
                f"{text!r}: write SIZE=TRACE with a whole size, such as 10=runs/mm10, or the name of shipped traces; "
                f"{hint(text, known)}"
            )
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


def read_training(
    inputs: Sequence[tuple[int, str]], format_name: str, cache: Path, progress: Progress = silent
) -> TrainingSet:
    """Read the traces, of one thread each, and number their blocks alike. Raises UserError."""
    read: list[tuple[int, Workload, Stream, Sites]] = []
    for size, path in inputs:
        progress(len(read), len(inputs), "reading")
        workload = traces.read_workload(WorkloadChoice(path=path, format=format_name), cache)
        streams, sites = streams_of(workload, path)
        if len(streams) > 1:
            raise UserError(f"{path}: holds {len(streams)} threads; extrapolation takes traces of one thread")
        read.append((size, workload, streams[0], sites))
    return _numbered(read)


def training_runs(training: TrainingSet, granularity: int, execution: Executes, *, steady: bool) -> list[TrainingRun]:
    """Executions and exact profile of every small input, in the set's numbering. Profiles stay in the cache. Raises
    UserError where the inputs are not of one program."""
    found = []
    executions = [_executions(run, training) for run in training.runs]
    check_one_program(training, executions)
    for run, counts in zip(training.runs, executions, strict=True):
        (profile,) = profile_units.profiles([run.stream], run.sites, granularity, execution, steady=steady)
        found.append(TrainingRun(run.size, counts, profile.relabelled(run.site_number)))
    return found


def _executions(run: InputRun, training: TrainingSet) -> np.ndarray:
    """int64[blocks], in the set's numbering."""
    executions = np.zeros(training.sites.num_blocks, np.int64)
    np.add.at(executions, run.block_number, run.stream.executions(len(run.block_number)))
    return executions


def check_one_program(training: TrainingSet, executions: Sequence[np.ndarray]) -> None:
    """Raises UserError where the code that a run spends its accesses in is hardly that of any other run. ``executions``
    int64[blocks] of each run, in the set's numbering."""
    accesses = np.array(executions) * np.diff(training.sites.offsets)
    num_runs = (accesses > 0).sum(axis=0)
    for run, mine in zip(training.runs, accesses, strict=True):
        alone = mine[num_runs == 1].sum() / max(mine.sum(), 1)
        if len(training.runs) > 1 and alone > MOST_ALONE:
            raise UserError(
                f"size {run.size}: {alone:.0%} of the accesses are by code that no other trace runs; trace one binary "
                "at all sizes, at the same place in memory"
            )


def _numbered(read: Sequence[tuple[int, Workload, Stream, Sites]]) -> TrainingSet:
    block_tables = [workload.tables["blocks"] for _, workload, _, _ in read]
    numbers, sites = common_blocks(
        [blocks.column("module").to_pylist() for blocks in block_tables],
        [to_numpy(blocks.column("offset")) for blocks in block_tables],
        [own for _, _, _, own in read],
    )
    run_of, block_of = np.empty(sites.num_blocks, np.int64), np.empty(sites.num_blocks, np.int64)
    for run in range(len(read) - 1, -1, -1):  # of a block that several runs have, the first one's row is kept
        run_of[numbers[run]], block_of[numbers[run]] = run, np.arange(len(numbers[run]))
    runs = []
    for (size, workload, stream, own), mine in zip(read, numbers, strict=True):
        site_number = sites.offsets[mine[own.block]] + np.arange(len(own)) - own.offsets[own.block]
        runs.append(InputRun(size, workload, stream, own, mine, site_number.astype(np.int32)))
    return TrainingSet(runs, sites, _static_tables([workload for _, workload, _, _ in read], run_of, block_of))


def _static_tables(workloads: Sequence[Workload], run_of: np.ndarray, block_of: np.ndarray) -> Workload:
    """A workload of nothing but blocks, their instructions and accesses: number b is block ``block_of[b]`` of workload
    ``run_of[b]``."""
    tables = {level: table.slice(0, 0) for level, table in workloads[0].tables.items() if level in REQUIRED_LEVELS}
    tables["communicators"] = workloads[0].tables["communicators"]
    first_row = np.cumsum([0] + [workload.tables["blocks"].num_rows for workload in workloads])
    tables["blocks"] = pa.concat_tables([workload.tables["blocks"] for workload in workloads]).take(
        pa.array(first_row[run_of] + block_of)
    )
    for level in ("instructions", "block_accesses"):
        first, end = np.zeros((2, len(run_of)), np.int64)
        before = 0
        for run, workload in enumerate(workloads):
            mine = np.flatnonzero(run_of == run)
            owner = workload.column(level, "block_id")
            first[mine] = before + np.searchsorted(owner, block_of[mine], "left")
            end[mine] = before + np.searchsorted(owner, block_of[mine], "right")
            before += len(owner)
        counts = end - first
        rows = np.repeat(first - np.concatenate(([0], np.cumsum(counts)[:-1])), counts) + np.arange(counts.sum())
        table = pa.concat_tables([workload.tables[level] for workload in workloads]).take(pa.array(rows))
        numbers = pa.array(np.repeat(np.arange(len(run_of), dtype=np.int32), counts))
        tables[level] = table.set_column(0, table.schema.field("block_id"), numbers)
    return Workload(workloads[0].name, workloads[0].num_ranks, tables)
