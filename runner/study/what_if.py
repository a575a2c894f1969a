"""What-ifs: questions about a prediction, each a small change of the study, so that it is one more point of a sweep and
shares every unit that it does not change.

* ``ideal-network``: no latency, infinite bandwidth, no contention and no CPU overheads of messages; what is left is
  compute and waiting for one another (POP's ideal network, Dimemas' "ideal machine").
* ``infinite-bandwidth``, ``zero-latency``: one of the two alone, on every route, under the study's network model.
* ``perfect-balance``: every rank's compute scaled so that all ranks compute as long, the mean of all; the shape of a
  rank's own phases stays. (Not phase by phase: imbalances that cancel out over a run are a matter of serialisation, as
  POP's load balance has it.)
* ``faster:LEVEL:NAME=N``: compute N times as fast, where LEVEL is ``region``, ``rank``, ``cluster`` (phase clusters, as
  ``manyscale clusters`` numbers them) or ``phase`` (RANK/INDEX, or ``*/INDEX`` for the INDEX-th phase of every rank).
  Kernels of GPUs stay as they are.
* ``slower:rank:NAME=N``: a rank whose compute and whose GPU's kernels take N times as long, or for N below 1 less.
* ``no-skew``: ranks of a training step enter it together. ``free-collectives``: what NCCL does takes no time once all
  members are there. ``no-launch-latency``: streams begin what they are given at once.
* ``KEY=VALUE``: any other key of the study, as --set has it.
* ``base``: the study itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import yaml

from manyscale.models.spelling import hint
from manyscale.runner.errors import UserError

if TYPE_CHECKING:
    import pyarrow as pa

AXIS: Final = "what_if"
BASE: Final = "base"
STANDARD: Final = ("ideal-network", "zero-latency", "infinite-bandwidth", "perfect-balance")

_LEVELS: Final = {"region": "regions", "rank": "ranks", "cluster": "clusters", "phase": "phases"}
_ROUTES: Final = ((), ("intra_node",), ("self",))
_NO_LATENCY: Final = {("target", "network", *route, "latency"): "0 s" for route in _ROUTES}
_NO_TRANSFER: Final = {("target", "network", *route, "bandwidth"): "inf B/s" for route in _ROUTES}
_NAMED: Final[dict[str, dict[tuple[str, ...], Any]]] = {
    BASE: {},
    "ideal-network": {
        ("model", "network"): "latency-bandwidth",
        ("gpu", "collectives"): "free",
        **_NO_LATENCY,
        **_NO_TRANSFER,
    },
    "zero-latency": _NO_LATENCY,
    "infinite-bandwidth": _NO_TRANSFER,
    "perfect-balance": {("ipc_correction", "balance"): True},
    "no-skew": {("gpu", "skew"): False},
    "free-collectives": {("gpu", "collectives"): "free"},
    "no-launch-latency": {
        ("target", "node", "gpu", "start_latency"): "0 s",
        ("target", "node", "gpu", "stream_gap"): "0 s",
    },
}
_FURTHER: Final = ", faster:LEVEL:NAME=N, slower:rank:NAME=N and KEY=VALUE"


@dataclass(frozen=True)
class Change:
    """One key of the study (``keys`` from the outside in) that gets ``value``, or with ``multiplies`` that many times
    the factor that stands there."""

    keys: tuple[Any, ...]
    value: Any
    multiplies: bool = False


def changes(text: object) -> tuple[Change, ...]:
    """What a what-if changes in a study. Raises UserError, naming the known ones, for text that is none."""
    if not isinstance(text, str):
        raise UserError(f"what-if {text!r}: {hint(text, _NAMED, _FURTHER)}")
    if text in _NAMED:
        return tuple(Change(keys, value) for keys, value in _NAMED[text].items())
    if text.startswith("faster:"):
        return (_faster(text),)
    if text.startswith("slower:"):
        return _slower(text)
    key, separator, value = text.partition("=")
    if not separator or not key.strip():
        raise UserError(f"what-if {text!r}: {hint(text, _NAMED, _FURTHER)}")
    try:
        return (Change(tuple(key.strip().split(".")), yaml.safe_load(value)),)
    except (yaml.YAMLError, ValueError, RecursionError):
        raise UserError(f"what-if {text!r}: the value is not valid YAML") from None


def _faster(text: str) -> Change:
    level, separator, rest = text.removeprefix("faster:").partition(":")
    name, equals, number = rest.rpartition("=")
    if not separator or not equals or not name or level not in _LEVELS:
        raise UserError(
            f"what-if {text!r}: write faster:LEVEL:NAME=N, for example faster:region:solve=2; of levels, "
            f"{hint(level, _LEVELS)}"
        )
    try:
        times = float(number)
    except ValueError:
        raise UserError(f"what-if {text!r}: {number!r} is not a number") from None
    if level in ("rank", "cluster") and not name.isdigit():
        raise UserError(f"what-if {text!r}: {name!r} is not the number of a {level}")
    key: str | int = int(name) if level in ("rank", "cluster") else name
    return Change(("ipc_correction", _LEVELS[level], key), times, multiplies=True)


def _slower(text: str) -> tuple[Change, ...]:
    rank, equals, number = text.removeprefix("slower:rank:").rpartition("=")
    try:
        times = float(number)
    except ValueError:
        times = 0.0
    if not text.startswith("slower:rank:") or not equals or not rank.isdigit() or not 0 < times < float("inf"):
        raise UserError(f"what-if {text!r}: write slower:rank:NUMBER=N, for example slower:rank:3=1.2")
    of_cores = Change(("ipc_correction", "ranks", int(rank)), 1 / times, multiplies=True)
    return of_cores, Change(("gpu", "slower", int(rank)), times, multiplies=True)


def table(sweep: pa.Table, axes: Sequence[str]) -> pa.Table:
    """``what_if.parquet`` of a sweep with the axis AXIS: per point the other axes, the what-if, its makespan and that
    of the base at the same values of the other axes (s), change (s), and speed-up (base over this)."""
    import pyarrow as pa  # takes longer to load than most commands that read a study take otherwise

    from manyscale.models.workload.columns import text_array

    others = [axis for axis in axes if axis != AXIS]
    rows = sweep.to_pylist()
    base = {tuple(row[axis] for axis in others): row["application.makespan"] for row in rows if row[AXIS] == BASE}
    makespan = [row["application.makespan"] for row in rows]
    before = [base.get(tuple(row[axis] for axis in others)) for row in rows]
    change = [None if old is None else new - old for new, old in zip(makespan, before, strict=True)]
    speedup = [old / new if old is not None and new else None for new, old in zip(makespan, before, strict=True)]
    columns = {"point_id": sweep.column("point_id")}
    columns |= {axis: sweep.column(axis) for axis in others}
    columns |= {
        AXIS: text_array([row[AXIS] for row in rows]),
        "makespan_seconds": pa.array(makespan, pa.float64()),
        "base_seconds": pa.array(before, pa.float64()),
        "change_seconds": pa.array(change, pa.float64()),
        "speedup": pa.array(speedup, pa.float64()),
    }
    return pa.Table.from_arrays(list(columns.values()), names=list(columns))
