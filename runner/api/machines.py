"""``calibrate``: a target machine from measured ping-pongs, or of the node that this runs on."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from manyscale.runner.api.answer import Answer, kept
from manyscale.runner.api.folders import Folder, Output
from manyscale.runner.api.progress import Progress, watched
from manyscale.runner.errors import UserError

if TYPE_CHECKING:
    import pyarrow as pa

    from manyscale.models.workload.notes import Note
    from manyscale.runner.run.calibration.nccl import NcclCalibration
    from manyscale.runner.run.calibration.network import NetworkCalibration
    from manyscale.runner.run.calibration.node import NodeCalibration
    from manyscale.runner.run.calibration.training import TrainingCalibration

MACHINE, FIT, PLOT = "machine.yaml", "calibration.json", "calibration.html"
_LEAST_CACHE: Final = 1024  # bytes
_BASE, _GPU_BASE = "laptop", "dgx-a100"


@dataclass(frozen=True, repr=False, eq=False)
class CalibrateResult(Answer):
    """A calibrated machine. ``machine``: the content of its file, which every function takes as a ``target``;
    ``found``: what was fitted or measured."""

    machine: Mapping[str, Any]
    found: NetworkCalibration | NcclCalibration | NodeCalibration | TrainingCalibration
    notes: Sequence[Note] = ()
    folder: Folder | None = None

    @property
    def title(self) -> str:
        return f"machine {self.machine['name']}"

    def facts(self) -> Mapping[str, str]:
        from manyscale.runner.run.calibration.nccl import NcclCalibration, mean_errors
        from manyscale.runner.run.calibration.network import NetworkCalibration
        from manyscale.runner.run.calibration.training import TrainingCalibration, shares

        if isinstance(self.found, TrainingCalibration):
            return shares(self.found)
        if isinstance(self.found, NcclCalibration):
            return {table.name: _errors(mean_errors(table, table.after)) for table in self.found.tables}
        if isinstance(self.found, NetworkCalibration):
            network = self.machine["network"]
            worst = 100 * abs(self.found.fit.residual)
            return {
                "latency": str(network["latency"]),
                "bandwidth": str(network["bandwidth"]),
                "eager threshold": str(network.get("eager_threshold", "none")),
                "residuals": f"mean {worst.mean():.2f} %, largest {worst.max():.2f} %",
            }
        measured = self.found.measured
        latencies = (f"{name} {cycles:.1f}" for name, cycles in measured.latency_cycles.items())
        return {"clock": f"{measured.frequency_ghz:.3f} GHz", "latency in cycles": ", ".join(latencies)}

    @property
    def figures(self) -> Mapping[str, Any]:
        """The content of ``calibration.json``."""
        from manyscale.runner.run.calibration import nccl, network, node, training

        if isinstance(self.found, training.TrainingCalibration):
            return training.figures(self.found)
        if isinstance(self.found, nccl.NcclCalibration):
            return nccl.figures(self.found)
        if isinstance(self.found, network.NetworkCalibration):
            return network.figures(self.found)
        return node.figures(self.found)

    def _makers(self) -> Mapping[str, Callable[[], pa.Table]]:
        rows = self.figures.get("measurements", self.figures.get("steps"))
        return {} if not isinstance(rows, list) else {"measurements": lambda: _table(rows)}

    def _chart(self) -> Mapping[str, Any]:
        from manyscale.runner.report.figures import calibration
        from manyscale.runner.run.calibration.nccl import NcclCalibration
        from manyscale.runner.run.calibration.network import NetworkCalibration
        from manyscale.runner.run.calibration.training import TrainingCalibration

        if isinstance(self.found, TrainingCalibration):
            return calibration.step_times(self.found)
        if isinstance(self.found, NcclCalibration):
            return calibration.collective_times(self.found)
        if isinstance(self.found, NetworkCalibration):
            return calibration.network_times(self.found)
        return calibration.node_latency(self.found)

    def _write(self, directory: Path) -> None:
        from manyscale.runner.report import calibration_page
        from manyscale.runner.run import directory as rundir
        from manyscale.runner.run.calibration.nccl import NcclCalibration
        from manyscale.runner.run.calibration.network import NetworkCalibration
        from manyscale.runner.run.calibration.training import TrainingCalibration

        if isinstance(self.found, TrainingCalibration):
            page = calibration_page.training_page(self.found)
        elif isinstance(self.found, NcclCalibration):
            page = calibration_page.nccl_page(self.found)
        elif isinstance(self.found, NetworkCalibration):
            page = calibration_page.network_page(self.found)
        else:
            page = calibration_page.node_page(self.found)
        rundir.write_yaml(directory / MACHINE, self.machine)
        rundir.write_atomically(directory / FIT, json.dumps(self.figures, indent=1) + "\n")
        rundir.write_atomically(directory / PLOT, page)


def calibrate(
    measurements: str | PathLike[str] | Sequence[str | PathLike[str]] = (),
    output: Output = None,
    *,
    node: bool = False,
    quick: bool = False,
    core: int | None = None,
    caches: Mapping[str, str] | None = None,
    base: str | PathLike[str] | None = None,
    nccl: bool = False,
    collective: str | None = None,
    gpus: int | None = None,
    nodes: int | None = None,
    training: bool = False,
    recompute: Literal["none", "selective", "full"] = "none",
    every: int = 1,
    progress: Progress = False,
) -> CalibrateResult:
    """Make a target machine: its network from ``measurements`` (files of osu_latency and osu_bw, IMB PingPong, NetPIPE,
    or CSV), with ``nccl`` its collectives of GPUs (the output of nccl-tests, or CSV of it), with ``training`` what a
    framework reaches on its GPUs (one CSV of measured steps), or with ``node`` caches, memory and instructions of this
    node.

    ``base``: the machine whose network or node is replaced (default: laptop, of GPUs dgx-a100). Of steps:
    ``recompute``, what their backward passes computed again; only each ``every``-th row is fitted, the others judge. Of
    collectives: ``collective``, ``gpus`` and ``nodes`` that took part, where the files do not tell. Of a node:
    ``quick``, in 10 s and less exactly; ``core``, the CPU that is measured (default: the last); ``caches``, sizes that
    the system does not say, such as {"L3": "32 MiB"}. Raises UserError.
    """
    paths = [measurements] if isinstance(measurements, str | PathLike) else list(measurements)
    if node and paths:
        raise UserError(
            f"--node measures this node, {paths[0]} is of a network: calibrate one, then the other with --base "
            "DIR/machine.yaml"
        )
    if node:
        from manyscale.runner.run.calibration.node import calibrate_node

        sizes = {name: _cache_size(name, size) for name, size in (caches or {}).items()}
        with watched(progress) as show:
            measured = calibrate_node(fspath(base or _BASE), quick=quick, core=core, sizes=sizes, progress=show)
        return kept(CalibrateResult(measured.machine, measured), output, "calibration")
    if not paths:
        what = (
            "files of nccl-tests"
            if nccl
            else "a table of measured steps"
            if training
            else "measured ping-pongs, or --node to measure this node"
        )
        raise UserError(f"calibrate needs {what}")
    given = {"quick": quick or None, "core": core, "set": caches or None}
    for name, value in given.items():
        if value is not None:
            raise UserError(f"--{name} goes with --node")
    if training:
        from manyscale.runner.run.calibration.training import calibrate_training

        if len(paths) > 1:
            raise UserError(f"{paths[1]}: one table of measured steps is fitted at a time; give all rows in one")
        of_steps = calibrate_training(Path(paths[0]), fspath(base or _GPU_BASE), recompute=recompute, every=every)
        return kept(CalibrateResult(of_steps.machine, of_steps, of_steps.notes), output, "calibration")
    if (recompute, every) != ("none", 1):
        raise UserError("--recompute and --every go with measured steps: manyscale calibrate training FILE")
    if nccl:
        from manyscale.runner.run.calibration.nccl import calibrate_nccl

        measured_on = calibrate_nccl(
            [Path(path) for path in paths], fspath(base or _GPU_BASE), collective, gpus, nodes
        )  # fmt: skip
        return kept(CalibrateResult(measured_on.machine, measured_on), output, "calibration")
    for name, told in {"collective": collective, "gpus": gpus, "nodes": nodes}.items():
        if told is not None:
            raise UserError(f"--{name} goes with files of nccl-tests: manyscale calibrate nccl-tests FILE ...")
    from manyscale.runner.run.calibration.network import calibrate_network

    fitted = calibrate_network([Path(path) for path in paths], fspath(base or _BASE))
    return kept(CalibrateResult(fitted.machine, fitted), output, "calibration")


def _cache_size(name: str, size: str) -> int:
    """Bytes. Raises UserError."""
    import re

    from manyscale.models.workload.quantities import parse_bytes

    if not re.fullmatch(r"L[1-9][DI]?", name):
        raise UserError(
            f"--cache-size {name}={size}: of a node this sets sizes of caches, such as L1D='32 KiB' or L3='32 MiB'"
        )
    try:
        found = parse_bytes(size)
    except ValueError as error:
        raise UserError(f"--cache-size {name}: {error}") from None
    if found < _LEAST_CACHE:
        raise UserError(f"--cache-size {name}={size}: a cache has at least 1 KiB")
    return found


def _errors(errors: tuple[float, float, float, float]) -> str:
    """Of what `mean_errors` gives, in words."""
    large, _, small, _ = errors
    parts = [(large, "from 16 MiB on"), (small, "below")]
    return ", ".join(f"{100 * value:.1f} % {where}" for value, where in parts if value == value)


def _table(rows: list[dict[str, Any]]) -> pa.Table:
    import pyarrow as pa

    return pa.Table.from_pylist(rows)
