"""What ``manyscale calibrate nccl-tests`` makes of measured collectives: a target's ``network.nccl``, and its errors.

- Tables: each file's times out of place, made to rise with size, without rows that those beside them tell to 1.5 %.
- The harness's floor: on one node, what the smallest sizes take beyond the least that NCCL's tuner has for them (its
  launches and synchronisation, which no training step has as often). Where sizes begin above 4 KiB it cannot be told
  and is 0. Between nodes that excess is put down to the hops of a tree, as ``nics.latency``.
- Constants: from the slope of the larger half of an all-reduce by rings on one node. Slower than NCCL's rate of the
  links, the rest is put down to the last step of a ring, which copies and sends nothing: 2 (n - 1) + r steps of time
  where 2 (n - 1) send (``tuner.last_copy_ratio``); faster, or on a mesh, the rate of a link is corrected.
- Errors: of the base before, of each table from all others (held out), and of the table itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from manyscale.models.network.nccl.demand import demand, group_of
from manyscale.models.network.nccl.fabric import Fabric
from manyscale.models.network.nccl.parameters import Nccl, NvMesh, NvSwitch
from manyscale.models.spelling import unknown
from manyscale.models.workload.operation_tables import OperationKind
from manyscale.runner.errors import UserError
from manyscale.runner.readers import nccl_tests
from manyscale.runner.readers.nccl_tests import CollectiveTimes
from manyscale.runner.study.targets import build_machine, target_named

LARGE_BYTES: Final = 16 << 20  # errors are told apart here
_SMALL_BYTES: Final = 4 << 10  # the floor shows in sizes up to this
_TOLERANCE: Final = 0.015  # of a row that is left out
_SPIKE: Final = 1.3  # times what both rows beside it take
_KIND: Final = {
    "allreduce": OperationKind.allreduce, "allgather": OperationKind.allgather, "bcast": OperationKind.bcast,
    "reduce_scatter": OperationKind.reduce_scatter, "reduce": OperationKind.reduce, "alltoall": OperationKind.alltoall,
    "sendrecv": OperationKind.isend,
}  # fmt: skip
_BLOCKS: Final = ("allgather", "reduce_scatter", "alltoall")  # whose operations have the size of one block


@dataclass(frozen=True)
class Fitted:
    """A table as measured (``sizes``, ``times_ps``), as kept (``kept``: numbers of its rows, of times that rise), and
    relative errors of each row: ``before`` by the base without tables, ``held_out`` by all other tables (None where
    there is no other), ``after`` by all."""

    path: Path
    collective: str
    gpus: int
    nodes: int
    sizes: np.ndarray
    times_ps: np.ndarray
    rising_ps: np.ndarray
    kept: np.ndarray
    floor_ps: int
    before: np.ndarray
    held_out: np.ndarray | None
    after: np.ndarray

    @property
    def name(self) -> str:
        where = "one node" if self.nodes == 1 else f"{self.nodes} nodes"
        return f"{self.collective} of {self.gpus} GPUs on {where}"


@dataclass(frozen=True)
class NcclCalibration:
    """``machine``: the content of a machine file; ``tables`` that it was made from; ``said``: what was assumed."""

    machine: dict[str, Any]
    tables: tuple[Fitted, ...]
    said: tuple[str, ...]


def calibrate_nccl(
    paths: Sequence[Path], base: str, collective: str | None = None, gpus: int | None = None, nodes: int | None = None
) -> NcclCalibration:
    """The machine ``base`` with what files of nccl-tests show. ``collective``, ``gpus``, ``nodes``: where files do not
    tell. Raises UserError."""
    built, content = target_named(base, "--base")
    fabric = Fabric.of(built)
    if fabric is None:
        raise UserError(
            f"--base {base}: the machine has no network.nccl; take dgx-a100, dgx-h100, dgx1-v100, p4de or p5"
        )
    if collective is not None and collective not in nccl_tests.COLLECTIVES:
        raise UserError(f"--collective: {unknown('collective', collective, nccl_tests.COLLECTIVES)}")
    said: list[str] = []
    block = {key: value for key, value in content["network"]["nccl"].items() if key != "tables"}
    plain = _fabric(block, fabric)
    tables = [_table(path, plain, collective, gpus, nodes, said) for path in paths]
    _refuse_twice(tables)
    whole = _calibrated(block, tables, plain)
    fitted = []
    for number, table in enumerate(tables):
        others = [each for place, each in enumerate(tables) if place != number]
        held_out = None
        if any((other.nodes > 1) == (table.nodes > 1) for other in others):
            held_out = _errors(table, _fabric(_calibrated(block, others, plain), fabric))
        fitted.append(
            Fitted(**{**vars(table), "held_out": held_out, "after": _errors(table, _fabric(whole, fabric))})
        )  # fmt: skip
    machine = _machine(content, whole, fitted)
    build_machine(machine, "machine.yaml")
    return NcclCalibration(machine, tuple(fitted), tuple(said))


def _calibrated(block: Mapping[str, Any], tables: Sequence[Fitted], plain: Fabric) -> dict[str, Any]:
    """The block with what some tables show."""
    tuner = {**block.get("tuner", {}), **_constants(tables, plain)}
    made = {**block, **({"tuner": tuner} if tuner else {})}
    hops = [
        _beyond_ps(table, plain) / (2 * int(np.log2(table.nodes)))
        for table in tables
        if table.nodes > 1 and table.collective == "allreduce" and table.sizes[0] <= _SMALL_BYTES
    ]
    if hops and plain.nccl.nics:
        hop = max(plain.nccl.nics.latency_ps + float(np.mean(hops)), 0.0)
        made["nics"] = {**block["nics"], "latency": f"{hop / 1e6:.3g} us"}
    return made | {"tables": [_spelled(table) | _links(made, table.nodes) for table in tables]}


def _links(block: Mapping[str, Any], num_nodes: int) -> dict[str, Any]:
    """What the links of the measured machine carry, so that others may be asked for."""
    found = {"link_bandwidth": (block.get("nvlink") or {}).get("link_bandwidth")}
    found["nic_bandwidth"] = (block.get("nics") or {}).get("bandwidth") if num_nodes > 1 else None
    return {key: value for key, value in found.items() if value is not None}


def _fabric(block: Mapping[str, Any], like: Fabric) -> Fabric:
    return Fabric(Nccl.model_validate(block), like.gpus_per_node, like.num_nodes)


def _table(
    path: Path, plain: Fabric, collective: str | None, gpus: int | None, nodes: int | None, said: list[str]
) -> Fitted:
    """What a file shows; its errors before. ``held_out`` and ``after`` are filled in later."""
    read = nccl_tests.read(path, collective)
    name = read.collective
    if name is None:
        name = "allreduce"
        said.append(f"{path.name}: does not tell its collective, taken for an all-reduce; --collective names another")
    count = gpus or read.gpus
    if count is None:
        raise UserError(f"{path}: does not tell how many GPUs took part; give --gpus N")
    over = nodes or read.nodes or -(-count // plain.gpus_per_node)
    if count < 2 or over < 1 or count % over or count // over > plain.gpus_per_node or over > plain.num_nodes:
        room = f"{plain.num_nodes} nodes of {plain.gpus_per_node} GPUs"
        raise UserError(f"{path}: {count} GPUs on {over} nodes do not fit {room}; give --nodes N or another --base")
    rising = _rising(read)
    kept = _thinned(read.sizes, rising)
    nothing = np.zeros(0)
    table = Fitted(path, name, count, over, read.sizes, read.times_ps, rising, kept, 0, nothing, None, nothing)
    floor = _floor(table, plain, said)
    table = Fitted(**{**vars(table), "floor_ps": floor})
    return Fitted(**{**vars(table), "before": _errors(table, plain)})


def _rising(read: CollectiveTimes) -> np.ndarray:
    """float64[rows]: times without single spikes, and none less than that of a smaller size."""
    times = read.times_ps.copy()
    if len(times) > 2:
        beside = np.maximum(times[:-2], times[2:])
        middle = times[1:-1]
        times[1:-1] = np.where(middle > _SPIKE * beside, beside, middle)
    return np.maximum.accumulate(times)


def _thinned(sizes: np.ndarray, times: np.ndarray) -> np.ndarray:
    """int64: rows between which straight lines tell the others to the tolerance. O(rows^2) at worst."""
    kept, first, count = [0], 0, len(sizes)
    while first < count - 1:
        last = first + 1
        step = 1
        while last + step < count and _is_told(sizes, times, first, last + step):
            last += step
            step *= 2
        while step > 1:
            step //= 2
            if last + step < count and _is_told(sizes, times, first, last + step):
                last += step
        kept.append(last)
        first = last
    return np.array(kept)


def _is_told(sizes: np.ndarray, times: np.ndarray, first: int, last: int) -> bool:
    inner = slice(first + 1, last)
    line = np.interp(sizes[inner], sizes[[first, last]], times[[first, last]])
    return bool(np.all(np.abs(line / times[inner] - 1) <= _TOLERANCE))


def _members(table: Fitted, fabric: Fabric) -> np.ndarray:
    each = np.arange(table.gpus // table.nodes)
    return np.add.outer(np.arange(table.nodes) * fabric.gpus_per_node, each).ravel()


def _predicted_ps(table: Fitted, sizes: np.ndarray, fabric: Fabric) -> np.ndarray:
    members, kind = _members(table, fabric), _KIND[table.collective]
    parts = table.gpus if table.collective in _BLOCKS else 1
    if table.collective == "sendrecv":
        members = members[:2] if table.nodes == 1 else members[:: table.gpus // table.nodes][:2]
    return np.array([demand(kind, max(size // parts, 1), members, fabric).time_ps for size in sizes.tolist()])


def _errors(table: Fitted, fabric: Fabric) -> np.ndarray:
    """Predicted, with the harness's floor, less measured time as a share of the measured one."""
    return (_predicted_ps(table, table.sizes, fabric) + table.floor_ps) / table.times_ps - 1


def _floor(table: Fitted, plain: Fabric, said: list[str]) -> int:
    small = table.sizes <= _SMALL_BYTES
    if not np.any(small):
        said.append(f"{table.path.name}: sizes begin at {table.sizes[0]:,} B, so the harness's floor cannot be told: 0")
        return 0
    least = _beyond_ps(table, plain)
    if table.nodes > 1:
        said.append(
            f"{table.path.name}: small messages take {least / 1e6:+.1f} us beside what the base has; over nodes "
            "that is put down to the hops of a tree (nics.latency)"
        )
        return 0
    if least <= 0:
        return 0
    return min(round(least), round(0.9 * table.rising_ps[0]))


def _beyond_ps(table: Fitted, plain: Fabric) -> float:
    """What small messages take beyond the least that the tuner has; negative where they take less."""
    small = table.sizes <= _SMALL_BYTES
    return float(np.median(table.rising_ps[small] - _predicted_ps(table, table.sizes[small], plain)))


def _constants(tables: Sequence[Fitted], plain: Fabric) -> dict[str, Any]:
    """``tuner``: the last copy of a ring, or the rate of a link."""
    copies, rates = [], []
    link = plain.nccl.nvlink
    for table in tables:
        if table.nodes > 1 or table.collective != "allreduce" or link is None or not link.link_ps_per_byte:
            continue
        placed = plain.placement(_members(table, plain))
        found = demand(_KIND["allreduce"], int(table.sizes[-1]), placed.gpu, plain)
        if found.algorithm != "ring" or table.sizes[-1] < 4 * LARGE_BYTES:
            continue
        half = int(np.argmin(np.abs(table.sizes - table.sizes[-1] / 2)))
        slope = (table.rising_ps[-1] - table.rising_ps[half]) / (table.sizes[-1] - table.sizes[half])
        if slope <= 0:
            continue
        hops = 2 * (table.gpus - 1)
        ring = group_of(placed, plain).ring
        ratio = slope * ring.channels * ring.within * 1e-3 / (hops / table.gpus)
        if isinstance(link, NvSwitch):
            copies.append(min(max(hops * (ratio - 1), 0.0), 1.0))
        if isinstance(link, NvMesh) or ratio < 1:
            rates.append(plain.lane_gb_s / ratio)
    found_constants: dict[str, Any] = {}
    if copies and max(copies) > 0:
        found_constants["last_copy_ratio"] = round(float(np.mean(copies)), 3)
    if rates:
        found_constants["link_bandwidth"] = f"{min(float(np.mean(rates)), 1e3 / link.link_ps_per_byte):.4g} GB/s"  # type: ignore[union-attr]
    return found_constants


def _spelled(table: Fitted) -> dict[str, Any]:
    """The table as a machine file has it."""
    times = np.rint(table.rising_ps[table.kept]).astype(np.int64)
    return {
        "collective": table.collective, "gpus": table.gpus, "nodes": table.nodes,
        "floor": f"{table.floor_ps / 1e6:.6g} us",
        "sizes": [_size(size) for size in table.sizes[table.kept].tolist()],
        "times": [f"{time / 1e6:.6g} us" for time in np.maximum.accumulate(times).tolist()],
    }  # fmt: skip


def _size(size: int) -> str:
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size % factor == 0:
            return f"{size // factor} {unit}"
    return f"{size} B"


def _machine(content: Mapping[str, Any], block: Mapping[str, Any], tables: Sequence[Fitted]) -> dict[str, Any]:
    names = ", ".join(table.path.name for table in tables)
    source = f"measured with nccl-tests: {names} (manyscale calibrate nccl-tests); else as in {content['name']}"
    return {
        **content,
        "name": f"{content['name']}-calibrated",
        "description": f"{content['description']}, collectives calibrated",
        "network": {**content["network"], "nccl": dict(block)},
        "sources": {**content["sources"], "network.nccl": source},
    }


def _refuse_twice(tables: Sequence[Fitted]) -> None:
    seen: dict[tuple[str, int, int], Path] = {}
    for table in tables:
        key = (table.collective, table.gpus, table.nodes)
        if key in seen:
            raise UserError(f"{table.path}: {table.name}, as {seen[key].name}; give one file of each")
        seen[key] = table.path


def mean_errors(table: Fitted, errors: np.ndarray) -> tuple[float, float, float, float]:
    """Mean and largest absolute error of sizes from 16 MiB on, and below; NaN where there is none."""
    found: list[float] = []
    for part in (table.sizes >= LARGE_BYTES, table.sizes < LARGE_BYTES):
        own = np.abs(errors[part])
        found += [float(own.mean()), float(own.max())] if len(own) else [float("nan")] * 2
    return found[0], found[1], found[2], found[3]


def figures(found: NcclCalibration) -> dict[str, Any]:
    """The content of ``calibration.json``."""
    rows = []
    for table in found.tables:
        columns = {"before": table.before, "held_out": table.held_out, "after": table.after}
        for row, (size, time) in enumerate(zip(table.sizes.tolist(), table.times_ps.tolist(), strict=True)):
            each = {name: None if error is None else float(error[row]) for name, error in columns.items()}
            rows.append({"table": table.name, "bytes": size, "time_ps": time, **each})
    summary = [
        {
            "table": table.name, "file": table.path.name, "rows": len(table.sizes), "rows_kept": len(table.kept),
            "floor_ps": table.floor_ps,
            **{
                f"{name}_{part}": value
                for name, errors in (("before", table.before), ("held_out", table.held_out), ("after", table.after))
                if errors is not None
                for part, value in zip(
                    ("mean_large", "max_large", "mean_small", "max_small"), mean_errors(table, errors), strict=True
                )
                if value == value
            },
        }
        for table in found.tables
    ]  # fmt: skip
    tuner = found.machine["network"]["nccl"].get("tuner", {})
    return {"tables": summary, "tuner": tuner, "said": list(found.said), "measurements": rows}
