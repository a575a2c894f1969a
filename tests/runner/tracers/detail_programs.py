"""Builds, runs and reads programs of the detailed level."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
from tracer_programs import PROGRAMS, need

from manyscale.models.workload.notes import Note
from manyscale.runner.readers.raw_trace import detail as native_detail
from manyscale.runner.readers.raw_trace.files import Process, read_processes
from manyscale.runner.readers.stores.detail_store import DetailStore
from manyscale.runner.tracers import build

DETAIL = PROGRAMS / "detail"
WHOLE = "o 0 0 4294967295"  # a window of the tracer: rank 0, all operations


@dataclass(frozen=True)
class Recorded:
    """What a traced run left."""

    tables: dict[str, pa.Table]
    store: DetailStore
    notes: list[Note]
    process: Process

    @cached_property
    def blocks(self) -> pd.DataFrame:
        """The table of blocks with executions, loads and stores of the whole stream, and what they executed."""
        blocks = self.tables["blocks"].to_pandas()
        accesses = self.tables["block_accesses"].to_pandas()
        blocks["executions"] = np.bincount(self.block_ids, minlength=len(blocks))
        for name, is_store in (("loads", False), ("stores", True)):
            number = np.bincount(accesses.block_id[accesses.is_store == is_store], minlength=len(blocks))
            blocks[name] = number * blocks.executions
        blocks["instructions"] = blocks.num_instructions * blocks.executions
        return blocks

    @cached_property
    def block_ids(self) -> np.ndarray:
        return self.store.read(0, self.store.num_segments).block_ids

    @cached_property
    def addresses(self) -> np.ndarray:
        return self.store.read(0, self.store.num_segments).addresses

    @cached_property
    def access_blocks(self) -> np.ndarray:
        """int32[accesses]: the block that made each access."""
        counts = np.bincount(self.tables["block_accesses"]["block_id"], minlength=len(self.blocks))
        return np.repeat(self.block_ids, counts[self.block_ids])

    def of(self, function: str) -> pd.Series:
        """Sums over a function's blocks."""
        mine = self.blocks[self.blocks.function.str.split("(").str[0] == function]
        return mine[["loads", "stores", "instructions"]].sum()

    def sequence(self, *functions: str) -> list[int]:
        """The blocks of these functions in the order of their execution, as indices of the table."""
        inside = self.blocks.function.isin(functions).to_numpy()
        return [int(block) for block in self.block_ids if inside[block]]


@dataclass(frozen=True)
class Programs:
    """Builds with the flags of the detailed level, in a folder of their own."""

    folder: Path
    cache: Path

    def build(self, source: str, kind: str = "detailed", *more: str) -> Path:
        """``kind``: detailed, counting or plain."""
        need("clang", "cc")
        compiler = "clang++" if source.endswith("cpp") else "clang"
        label = "-".join([source.replace(".", "_"), kind, *(word.strip("-").replace("/", "_") for word in more)])
        program = self.folder / label[:150]
        if not program.exists():
            stub = build.coverage_stub(self.cache)
            added = [] if kind == "plain" else build.coverage_flags(stub, counting=kind == "counting")
            words = [
                compiler,
                "-O2",
                "-g",
                f"-I{build.NATIVE}",
                *added,
                str(DETAIL / source),
                "-o",
                str(program),
                "-lm",
            ]
            subprocess.run([*words, "-pthread", *more], check=True)
        return program

    def run(
        self, program: Path, *arguments: str, windows: str = WHOLE, **variables: str
    ) -> tuple[Path, subprocess.CompletedProcess[str]]:
        """Run a program under the tracer; the raw trace's folder."""
        raw = self.folder / f"raw-{len(list(self.folder.glob('raw-*')))}"
        raw.mkdir()
        (raw / "windows").write_text(windows + "\n")
        environment = {
            **os.environ,
            "LD_PRELOAD": str(build.tracer(None, self.cache)),
            "MANYSCALE_TRACE_ALWAYS": "1",
            "MANYSCALE_TRACE_DIR": str(raw),
            "MANYSCALE_TRACE_LEVEL": "3",
            "MANYSCALE_TRACE_WINDOWS": str(raw / "windows"),
            **variables,
        }
        done = subprocess.run([str(program), *arguments], env=environment, capture_output=True, text=True, check=False)
        return raw, done

    def read(self, raw: Path, counting: Path | None = None) -> Recorded:
        processes = read_processes(raw)
        tables, store, notes = native_detail.build(processes, raw / "detail", counting)
        return Recorded(tables, store, notes, processes[0])
