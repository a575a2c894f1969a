"""What ``manyscale calibrate training`` makes of measured steps of training: what a framework reaches on a machine's
GPUs (``node.framework``), with the residuals to judge it by.

A table (CSV) has one row for each configuration of a decoder of GPT's kind, in columns as vTrain's
``ground_truth_single.csv`` has them. Seven parameters of ``Framework`` are fitted to the logarithms of the times, by
the closed form (models/transformer/closed_form.py), robustly (soft L1 at 5 %: a row that is far off counts little);
collectives are those of the machine's ``network.nccl``. Rows are sorted by configuration, column by column in the order
of ``COLUMNS``; with ``every`` N, rows 0, N, 2N, ... are fitted and the others judge.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from pydantic import ValidationError

from manyscale.models.gpu.parameters import Gpu
from manyscale.models.machine import Machine
from manyscale.models.network.nccl.demand import demand
from manyscale.models.network.nccl.fabric import Fabric
from manyscale.models.transformer.closed_form import Steps
from manyscale.models.transformer.shape import Transformer
from manyscale.models.transformer.step import MOST_PASSES
from manyscale.models.transformer.times import Framework, peak_flops
from manyscale.models.workload import OperationKind
from manyscale.models.workload.notes import Note, changes, informs
from manyscale.runner.errors import UserError
from manyscale.runner.problems import first_problem
from manyscale.runner.study.targets import build_machine, target_named

# names of columns in a table, and the key of Transformer that each is; in the order in which rows are sorted
COLUMNS: Final = {
    "# gpus": "", "global batch": "global_batch", "micro batch": "micro_batch", "hidden size": "hidden",
    "attention heads": "heads", "# layers": "layers", "sequence length": "sequence", "tensor parallelism": "tp",
    "data parallelism": "dp", "pipeline parallelism": "pp",
}  # fmt: skip
TIME: Final = "iteration time (ms)"
# columns that a table may have, their keys of Transformer, and what their words mean
OPTIONAL: Final = {
    "vocabulary size": "vocabulary", "recompute": "recompute", "sequence parallelism": "sequence_parallel",
    "flash attention": "flash_attention",
}  # fmt: skip
_ALWAYS: Final = "elements of fp16, no ZeRO, and stages with their layers in a row"
_FITTED: Final = (  # field of Framework, its range, where the search begins
    ("matrix_efficiency", 0.3, 0.9, 0.8),
    ("matrix_start", 0.0, 2000.0, 500.0),
    ("memory_efficiency", 0.3, 0.95, 0.8),
    ("host_launch_ps", 1e6, 2e8, 4e7),
    ("host_collective_ps", 0.0, 2e8, 1e7),
    ("host_message_ps", 0.0, 2e10, 1e9),
    ("host_tensor_ps", 0.0, 5e8, 2e7),
)
_NEAR: Final = 1e-3  # of a range: where its end is reached
_SOFT: Final = 0.05  # residuals above count by their size, not its square


@dataclass(frozen=True)
class TrainingCalibration:
    """``machine``: the content of a machine file; ``framework``: what was fitted. Of each row, sorted: ``steps``,
    ``measured_s`` and ``predicted_s``, and whether it ``was_fitted``. ``notes`` on what the table does not say, and on
    what the fit does not show."""

    machine: dict[str, Any]
    framework: Framework
    steps: tuple[Transformer, ...]
    measured_s: np.ndarray
    predicted_s: np.ndarray
    was_fitted: np.ndarray
    notes: tuple[Note, ...] = ()

    @property
    def error(self) -> np.ndarray:
        """float64[rows]: relative."""
        return self.predicted_s / self.measured_s - 1


def calibrate_training(
    path: Path, base: str | dict[str, Any] = "dgx-a100", *, recompute: str = "none", every: int = 1
) -> TrainingCalibration:
    """The machine ``base`` with what a table of measured steps shows of the framework. ``recompute``: as Transformer
    has it, where the table has no such column. Raises UserError."""
    if every < 1:
        raise UserError(f"--every {every}: give 1, or more to leave rows out of the fit")
    steps, measured, lacks = read_steps(path, recompute)
    _, content = target_named(base, "command line")
    machine = build_machine(content, str(content.get("name", base)))
    gpu, peak = _gpu(machine)
    of_fit = np.arange(len(steps)) % every == 0
    if of_fit.sum() <= len(_FITTED):
        raise UserError(f"{path}: {of_fit.sum()} rows are fitted; {len(_FITTED)} parameters need more")
    framework = fit([step for step, chosen in zip(steps, of_fit, strict=True) if chosen], measured[of_fit], machine)
    known = Steps(steps)
    predicted = known.step_ps(gpu, peak, framework, *collectives(known, machine)) / 1e12
    notes = (*_assumed(lacks, steps, recompute), *_at_bounds(framework))
    error = predicted[of_fit] / measured[of_fit] - 1
    return TrainingCalibration(
        _machine(content, framework, path, error, notes), framework, steps, measured, predicted, of_fit, notes
    )


def _assumed(lacks: Mapping[str, int], steps: Sequence[Transformer], recompute: str) -> tuple[Note, ...]:
    """What the table does not say of rows, and the command does not either."""
    default = {
        "vocabulary": f"{Transformer.model_fields['vocabulary'].default:,} words",
        "recompute": "nothing computed again",
        "sequence_parallel": "no sequence parallelism",
        "flash_attention": "attention of several kernels",
    }
    told = {key: count for key, count in lacks.items() if count and not (key == "recompute" and recompute != "none")}
    parts = [
        default[key] + (f" ({count:,} of {len(steps):,} rows)" if count < len(steps) else "")
        for key, count in told.items()
    ]
    text = "; ".join([*parts, _ALWAYS])
    columns = ", ".join(name for name, key in OPTIONAL.items() if key in told)
    mend = f"; columns that may say it: {columns}" if columns else ""
    return (changes("shape-assumed", f"the table does not say, and is taken for: {text}{mend}", count=len(steps)),)


def _at_bounds(framework: Framework) -> tuple[Note, ...]:
    """Parameters that end where their search does: the rows would have them beyond, or do not show them."""
    found = [
        name.removesuffix("_ps")
        for name, low, high, _ in _FITTED
        if not low + _NEAR * (high - low) < getattr(framework, name) < high - _NEAR * (high - low)
    ]
    if not found:
        return ()
    text = f"{', '.join(found)}: at the end of the range that is searched; the rows do not tell them from the others"
    return (informs("fit-at-bound", text, count=len(found)),)


def read_steps(path: Path, recompute: str = "none") -> tuple[tuple[Transformer, ...], np.ndarray, dict[str, int]]:
    """Steps of a table, sorted by configuration, and float64[steps]: what each takes, in s; of keys that OPTIONAL has,
    how many rows do not say them. Raises UserError."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"{path}: cannot be read ({error})") from None
    if not rows:
        raise UserError(f"{path}: has no rows; the first line names the columns, {', '.join([*COLUMNS, TIME])}")
    named = {name.strip().lower(): name for name in rows[0] if name is not None}
    missing = [name for name in (*COLUMNS, TIME) if name not in named and name != "# gpus"]
    if missing:
        raise UserError(f"{path}: has no column {missing[0]!r}; name the columns {', '.join([*COLUMNS, TIME])}")
    found = []
    lacks = dict.fromkeys(OPTIONAL.values(), 0)
    for line, row in enumerate(rows, start=2):
        try:
            keys = {key: int(row[named[name]]) for name, key in COLUMNS.items() if key}
            time_s = float(row[named[TIME]]) / 1e3
            more = {key: row[named[name]] for name, key in OPTIONAL.items() if name in named}
            said: dict[str, Any] = {key: text.strip().lower() for key, text in more.items() if text and text.strip()}
            if "vocabulary" in said:
                said["vocabulary"] = int(said["vocabulary"])
            step = Transformer.model_validate({**keys, "recompute": recompute, **said})
            if step.micro_batches > MOST_PASSES:
                raise ValueError(f"{step.micro_batches} micro batches are more than {MOST_PASSES}")
            gpus = int(row[named["# gpus"]]) if "# gpus" in named else step.ranks
        except (ValueError, TypeError) as error:
            text = first_problem(error, Transformer) if isinstance(error, ValidationError) else str(error)
            raise UserError(f"{path}:{line}: {text}") from None
        if not 0 < time_s < float("inf") or gpus != step.ranks:
            raise UserError(f"{path}:{line}: {gpus} GPUs of {step.ranks} ranks, {time_s} s; mend the row")
        for key in lacks.keys() - said.keys():
            lacks[key] += 1
        found.append(((gpus, *keys.values(), time_s), step, time_s))
    found.sort(key=lambda row: row[0])
    return tuple(step for _, step, _ in found), np.array([time_s for *_, time_s in found]), lacks


def _gpu(machine: Machine) -> tuple[Gpu, float]:
    gpu = Gpu.of(machine.node)
    if gpu is None or gpu.matrix is None:
        raise UserError(
            f"{machine.name}: has no node.gpu.matrix, whose peak efficiencies are of; name a machine with it"
        )
    try:
        return gpu, peak_flops(gpu, "fp16")
    except KeyError:
        raise UserError(f"{machine.name}: has no node.gpu.matrix.rates.fp16, the tensor cores' peak; give it") from None


def collectives(known: Steps, machine: Machine) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """float64[steps], ps: an all-reduce of activations, sums of gradients, and a message between stages."""
    fabric = Fabric.of(machine)
    if fabric is None:
        raise UserError(f"{machine.name}: has no network.nccl, which says how long collectives take")
    kind = OperationKind
    activations, gradients = known.sizes
    found = np.zeros((3, len(known.steps)))
    for at, step in enumerate(known.steps):
        try:
            stride = step.tp * step.dp
            if step.tp > 1:
                found[0, at] = demand(kind.allreduce, int(activations[at]), np.arange(step.tp), fabric).time_ps
            if step.dp > 1:
                members = np.arange(step.dp) * step.tp
                found[1, at] = demand(kind.allreduce, int(gradients[at]), members, fabric).time_ps
            if step.pp > 1:
                found[2, at] = demand(kind.isend, int(activations[at]), np.array([0, stride]), fabric).time_ps
                tied = step.gradient_bytes * step.hidden * step.padded_vocabulary
                ends = np.array([0, stride * (step.pp - 1)])
                found[1, at] += demand(kind.allreduce, tied, ends, fabric).time_ps
        except ValueError as error:
            raise UserError(f"{machine.name}: {error}") from None
    return found[0], found[1], found[2]


def fit(steps: Sequence[Transformer], measured_s: np.ndarray, machine: Machine) -> Framework:
    """What the steps show of the framework on a machine. Raises UserError."""
    from scipy.optimize import least_squares

    gpu, peak = _gpu(machine)
    known = Steps(steps)
    of_network = collectives(known, machine)
    low, high, start = (np.array([row[column] for row in _FITTED]) for column in (1, 2, 3))

    def framework(place: np.ndarray) -> Framework:
        values = {name: float(value) for (name, *_), value in zip(_FITTED, low + place * (high - low), strict=True)}
        return Framework.model_construct(**{**dict(Framework()), **values})

    def residuals(place: np.ndarray) -> np.ndarray:
        return np.log(known.step_ps(gpu, peak, framework(place), *of_network) / 1e12 / measured_s)

    found = least_squares(
        residuals, (start - low) / (high - low), loss="soft_l1", f_scale=_SOFT, bounds=(0, 1), diff_step=2e-3
    )
    return Framework.model_validate(content(framework(found.x)))


def content(framework: Framework) -> dict[str, Any]:
    """As a machine file has it, to four digits."""
    found: dict[str, Any] = {}
    for name, *_ in _FITTED:
        value = getattr(framework, name)
        if name.endswith("_ps"):  # whole picoseconds
            found[name.removesuffix("_ps")] = f"{value / 1e6:.4g} us" if value >= 1e3 else f"{round(value)} ps"
        else:
            found[name] = float(f"{value:.4g}")
    return found


def _machine(
    base: dict[str, Any], framework: Framework, path: Path, error: np.ndarray, notes: Sequence[Note]
) -> dict[str, Any]:
    node = {**base["node"], "framework": {**(base["node"].get("framework") or {}), **content(framework)}}
    text = (
        f"fitted to {len(error)} rows of {path.name}: mean of absolute errors {100 * np.abs(error).mean():.1f} %, "
        f"largest {100 * np.abs(error).max():.1f} %" + "".join(f"; {note.text}" for note in notes)
    )
    return dict(base) | {
        "name": f"{base['name']}-calibrated",
        "description": f"{base['description']}, framework calibrated",
        "node": node,
        "sources": dict(base["sources"]) | {"node.framework": text},
    }


def shares(found: TrainingCalibration) -> dict[str, str]:
    """Errors of the rows that were fitted, and of the others, in words."""
    parts = {"fitted": found.was_fitted, "left out of the fit": ~found.was_fitted}
    return {
        name: f"mean {100 * np.abs(found.error[chosen]).mean():.1f} %, largest "
        f"{100 * np.abs(found.error[chosen]).max():.1f} % of {int(chosen.sum())} rows"
        for name, chosen in parts.items()
        if chosen.any()
    }


def figures(found: TrainingCalibration) -> dict[str, Any]:
    """The content of ``calibration.json``."""
    errors = {}
    for name, chosen in (("fitted", found.was_fitted), ("held_out", ~found.was_fitted)):
        if chosen.any():
            error = np.abs(found.error[chosen])
            errors[name] = {
                "rows": int(chosen.sum()), "mean_absolute_error": float(error.mean()), "largest": float(error.max()),
            }  # fmt: skip
    rows = zip(
        found.steps, found.measured_s.tolist(), found.predicted_s.tolist(), found.was_fitted.tolist(), strict=True
    )
    return {
        "framework": content(found.framework),
        **errors,
        "steps": [
            {**step.model_dump(), "measured_s": measured, "predicted_s": predicted, "fitted": fitted}
            for step, measured, predicted, fitted in rows
        ],
    }
