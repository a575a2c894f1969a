"""The halo program of many ranks, as the workload folder that ``manyscale run`` reads: the measure of scaling in ranks.

Each iteration of each rank of a periodic grid computes, exchanges a message with each of four neighbours by isend,
irecv and waitall, and takes part in an allreduce of all ranks. All ranks are alike, so every column is a pattern that
is repeated: seconds for 65,536 ranks x 100 iterations, whose 65 million operations take 4 GB, uncompressed, so that a
run maps what it needs of them.

    python tests/halo_program.py 4096 FOLDER      # 64 x 64 ranks, 100 iterations
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from manyscale.models.workload import (
    COMMUNICATORS_SCHEMA,
    KIND_NAMES,
    NO_RANK,
    NO_REQUEST,
    OPERATIONS_SCHEMA,
    PHASES_SCHEMA,
    REGIONS_SCHEMA,
    OperationKind,
    PhaseKind,
    Workload,
)
from manyscale.models.workload.columns import text_array, to_arrow
from manyscale.runner.readers import workload_folder

SIDE_BYTES: Final = 8192
REDUCED_BYTES: Final = 8
COMPUTE_PS: Final = 100_000_000
_KINDS: Final = (*[OperationKind.irecv] * 4, *[OperationKind.isend] * 4, OperationKind.waitall, OperationKind.allreduce)


def grid(num_ranks: int) -> tuple[int, int]:
    """The most square grid of so many ranks, its shorter side first."""
    side = int(num_ranks**0.5)
    while num_ranks % side:
        side -= 1
    return side, num_ranks // side


def neighbours(num_ranks: int) -> np.ndarray:
    """int32[ranks, 4]: up, down, left and right of each on a torus."""
    rows, columns = grid(num_ranks)
    at = np.arange(num_ranks, dtype=np.int32).reshape(rows, columns)
    sides = [np.roll(at, shift, axis) for axis in (0, 1) for shift in (1, -1)]
    return np.stack([side.ravel() for side in sides], axis=1)


def halo(num_ranks: int, iterations: int = 100, spread_ps: int = 0) -> Workload:
    """The program. A message to the upper neighbour has tag 0, to the lower 1, to the left 2, to the right 3. Each
    phase takes COMPUTE_PS and up to ``spread_ps`` more, another time on each rank and in each iteration."""
    per_iteration = len(_KINDS)
    beside = neighbours(num_ranks)
    peer = np.full((num_ranks, per_iteration), NO_RANK, np.int32)
    peer[:, :4] = peer[:, 4:8] = beside
    tag = np.array([1, 0, 3, 2, 0, 1, 2, 3, 0, 0], np.int32)  # what comes from above was sent downwards
    sent = np.array([0] * 4 + [SIDE_BYTES] * 4 + [0, REDUCED_BYTES], np.int64)
    received = np.array([SIDE_BYTES] * 4 + [0] * 5 + [REDUCED_BYTES], np.int64)
    opened = np.full((iterations, per_iteration), NO_REQUEST, np.int32)
    opened[:, :8] = np.arange(8 * iterations, dtype=np.int32).reshape(iterations, 8)
    total = num_ranks * iterations * per_iteration
    lengths = np.zeros(per_iteration, np.int32)
    lengths[8] = 8
    bounds = np.zeros(total + 1, np.int32)
    np.cumsum(np.tile(lengths, num_ranks * iterations), out=bounds[1:], dtype=np.int32)
    kinds = np.tile(np.array(_KINDS, np.int8), num_ranks * iterations)

    def each_rank(pattern: np.ndarray) -> pa.Array:
        return to_arrow(np.tile(pattern.ravel(), total // pattern.size))

    operations = [
        to_arrow(np.repeat(np.arange(num_ranks, dtype=np.int32), iterations * per_iteration)),
        pa.DictionaryArray.from_arrays(to_arrow(kinds), KIND_NAMES),
        to_arrow(np.broadcast_to(peer[:, None], (num_ranks, iterations, per_iteration)).ravel()),
        to_arrow(np.full(total, NO_RANK, np.int32)),
        each_rank(tag),
        each_rank(sent),
        each_rank(received),
        to_arrow(np.zeros(total, np.int32)),
        each_rank(opened),
        pa.ListArray.from_arrays(to_arrow(bounds), each_rank_of(opened[:, :8], num_ranks)),
        pa.nulls(total, pa.list_(pa.int64())),
        pa.nulls(total, pa.list_(pa.int64())),
    ]
    phases = [
        to_arrow(np.repeat(np.arange(num_ranks, dtype=np.int32), iterations)),
        to_arrow(np.tile(per_iteration * np.arange(iterations, dtype=np.int32), num_ranks)),
        to_arrow(np.full(num_ranks * iterations, PhaseKind.compute, np.int8)),
        to_arrow(np.zeros(num_ranks * iterations, np.int32)),
        to_arrow(COMPUTE_PS + 7919 * np.arange(num_ranks * iterations) % (spread_ps + 1)),
    ]
    world = pa.ListArray.from_arrays(
        to_arrow(np.array([0, num_ranks], np.int32)), to_arrow(np.arange(num_ranks, dtype=np.int32))
    )
    tables = {
        "operations": pa.Table.from_arrays(operations, schema=OPERATIONS_SCHEMA),
        "phases": pa.Table.from_arrays(phases, schema=PHASES_SCHEMA),
        "regions": pa.Table.from_arrays([text_array(["update"])], schema=REGIONS_SCHEMA),
        "communicators": pa.Table.from_arrays([world], schema=COMMUNICATORS_SCHEMA),
    }
    return Workload(f"halo-{num_ranks}", num_ranks, tables)


def each_rank_of(pattern: np.ndarray, num_ranks: int) -> pa.Array:
    return to_arrow(np.tile(pattern.ravel(), num_ranks))


def target(num_ranks: int, network: str = "") -> str:
    """YAML of a machine with a core for each rank: an ideal crossbar of 10 us and 1.25 GB/s."""
    return f"""schema: 1
name: wide
description: as many one-core nodes as ranks, on an ideal crossbar
nodes: {num_ranks}
node: {{sockets: 1, cores_per_socket: 1, frequency: 1 GHz}}
network:
  latency: 10 us
  bandwidth: 1.25 GB/s
  envelope: 16 B
  eager_threshold: 65536 B
  transfer_start: match
  collectives: mpich
  intra_node: {{latency: 10 us, bandwidth: 1.25 GB/s}}
  self: {{latency: 5 us, bandwidth: 1.25 GB/s}}
  topology: {{kind: crossbar, loopback: through-links}}
{network}sources:
  nodes: synthetic
  node: synthetic
  network: synthetic
"""


def write(num_ranks: int, folder: Path, iterations: int = 100, spread_ps: int = COMPUTE_PS // 10) -> None:
    """The program in ``folder``/halo and the target in ``folder``/wide.yaml."""
    folder.mkdir(parents=True, exist_ok=True)
    workload_folder.write(halo(num_ranks, iterations, spread_ps), folder / "halo", compression=None)
    (folder / "wide.yaml").write_text(target(num_ranks))


if __name__ == "__main__":
    write(int(sys.argv[1]), Path(sys.argv[2]), *map(int, sys.argv[3:]))
