"""The launches of a workload: those that are stored, and those of which there are counts alone."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from manyscale.models.workload.columns import text_array, to_arrow
from manyscale.models.workload.instruction_details import InstructionCounts
from manyscale.models.workload.launch_trace import LaunchTrace, StaticInstructions
from manyscale.runner.readers.stores.launch_counts import COUNTED, CountedLaunches
from manyscale.runner.readers.stores.launch_store import StoredLaunch
from manyscale.runner.readers.stores.static_columns import code_key


class LaunchStore:
    """Stored launches by their ids (``models.gpu_tables.LaunchStreams``), and ``counted`` ones."""

    def __init__(self, launches: dict[int, StoredLaunch], counted: CountedLaunches | None = None) -> None:
        self._launches = launches
        self.counted = counted

    def copy(self, folder: Path, *, links: bool = False) -> None:
        """All of it into a folder; ``links``: by hard links, where the file system has them, so that the disk never
        holds it twice."""
        for launch_id, launch in self._launches.items():
            launch.copy(folder / str(launch_id), links=links)
        if self.counted is not None:
            self.counted.copy(folder / COUNTED, links=links)

    @property
    def launch_ids(self) -> tuple[int, ...]:
        return tuple(self._launches)

    @property
    def counted_ids(self) -> tuple[int, ...]:
        return self.counted.launch_ids if self.counted is not None else ()

    @property
    def rules(self) -> Mapping[str, Any] | None:
        """By which TBPoint chose the launches that are stored (keys of LaunchSampling), where it did."""
        return self.counted.rules if self.counted is not None else None

    @cached_property
    def digest(self) -> str:
        state = hashlib.blake2b(digest_size=20)
        for launch_id, launch in self._launches.items():
            state.update(f"{launch_id} {launch.head['digest']}".encode())
        for launch_id in self.counted_ids:
            state.update(f"{launch_id} counted {self.launch_digest(launch_id)}".encode())
        return state.hexdigest()

    def launch_digest(self, launch_id: int) -> str:
        launch = self._launches.get(launch_id)
        if launch is None and self.counted is not None:
            return self.counted.digest(launch_id)
        return str(self._launches[launch_id].head["digest"])

    def executed(self, launch_id: int) -> dict[str, int]:
        launch = self._launches.get(launch_id)
        if launch is None and self.counted is not None:
            return self.counted.executed(launch_id)
        return self._launches[launch_id].executed()

    def has_words(self, launch_id: int) -> bool:
        launch = self._launches.get(launch_id)
        if launch is None:
            return any(each.has_words for each in self._launches.values())
        return launch.has_words

    def cluster_blocks(self, launch_id: int) -> int:
        launch = self._launches.get(launch_id)
        of = self._launches.values() if launch is None else (launch,)
        return max((math.prod(each.cluster) for each in of), default=1)

    def detailed_counts(self, launch_id: int) -> tuple[bytes, InstructionCounts] | None:
        launch = self._launches.get(launch_id)
        if launch is None and self.counted is not None:
            static = self.counted.static(launch_id)
            return None if static.details is None else (code_key(static), self.counted.of_rows(launch_id))
        return self._launches[launch_id].detailed_counts

    def instruction_counts(self, launch_id: int) -> tuple[StaticInstructions, InstructionCounts]:
        """Static instructions of a launch, and how often each was executed."""
        launch = self._launches.get(launch_id)
        if launch is None and self.counted is not None:
            return self.counted.static(launch_id), self.counted.of_rows(launch_id)
        return self._launches[launch_id].static, self._launches[launch_id].counts

    def stored(self, launch_id: int) -> StoredLaunch:
        return self._launches[launch_id]

    def recorded_blocks(self, launch_id: int) -> np.ndarray | None:
        """bool[blocks]: which are stored, where not all of them are."""
        blocks = self._launches[launch_id].blocks
        return None if blocks is None else blocks.is_recorded

    def trace(self, launch_id: int) -> LaunchTrace:
        return self._launches[launch_id].trace(launch_id)

    def block_batches(self, launch_id: int, max_instructions: int) -> Iterator[LaunchTrace]:
        return self._launches[launch_id].block_batches(launch_id, max_instructions)


def launches_table(
    schema: pa.Schema, launches: dict[int, StoredLaunch], counted: Mapping[int, Mapping[str, Any]] | None = None
) -> pa.Table:
    """The table ``launches`` of stored launches, and of ``counted`` ones by their heads."""
    columns: dict[str, list[Any]] = {field.name: [] for field in schema}
    heads = {launch_id: launch.head for launch_id, launch in launches.items()} | dict(counted or {})
    for launch_id in sorted(heads):
        head = heads[launch_id]
        row = {"launch_id": launch_id, **head}
        for axis, place in (("x", 0), ("y", 1), ("z", 2)):
            row[f"grid_{axis}"], row[f"block_{axis}"] = head["grid"][place], head["block"][place]
        for name, values in columns.items():
            values.append(row[name])
    arrays = [
        text_array(columns[field.name])
        if pa.types.is_string(field.type)
        else to_arrow(np.array(columns[field.name], field.type.to_pandas_dtype()))
        for field in schema
    ]
    return pa.Table.from_arrays(arrays, schema=schema)
