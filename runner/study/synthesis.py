"""Workloads that are made, not traced: a step of training a model, from its shape, on the GPUs of a machine."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

from manyscale.models.gpu.capacity import exceeded
from manyscale.models.gpu.parameters import Gpu
from manyscale.models.machine import Machine
from manyscale.models.transformer.memory import fullest, memory
from manyscale.models.transformer.shape import Transformer
from manyscale.models.transformer.step import workload
from manyscale.models.transformer.times import Framework
from manyscale.models.workload import Workload
from manyscale.models.workload.notes import Note
from manyscale.runner.errors import UserError
from manyscale.runner.limits import memory_bytes
from manyscale.runner.study.targets import MachineFile, build_machine, machine_file
from manyscale.runner.study.workload import Synthesis

_last: Final[dict[tuple[Synthesis, str], Workload]] = {}  # by what the machine's file holds


def synthesised(choice: Synthesis, machine: Callable[[str], MachineFile] | None = None) -> Workload:
    """The workload; the last one is kept. ``machine``: in place of ``machine_file``, for whoever knows what the files
    hold. Raises UserError, one line, if its GPUs are not known, or it does not fit into memory."""
    place, content = machine(choice.target) if machine is not None else machine_file(choice.target, None)
    key = choice, json.dumps(content, sort_keys=True, default=str)
    made = _last.get(key)
    if made is None:
        made = _made(choice, place, content)
        _last.clear()
        _last[key] = made
    return made


def _made(choice: Synthesis, place: str, content: dict[str, Any]) -> Workload:
    machine = build_machine(content, place)
    gpu = _gpu(machine, place)
    names = gpu.names or (machine.name,)
    step = Transformer.model_validate({name: getattr(choice, name) for name in Transformer.model_fields})
    try:
        return workload(step, gpu, names[0], Framework.of(machine.node), choice.rows, memory_bytes())
    except ValueError as error:
        raise UserError(f"{place}: {error}") from None
    except OverflowError:
        raise UserError("synthesise: bytes of an operation exceed 64 bits; choose a smaller model") from None
    except MemoryError:
        raise UserError(f"{step.ranks} ranks: the workload does not fit into memory; set fewer rows") from None


def memory_note(choice: Synthesis) -> tuple[Note, ...]:
    """Where that is more than the GPUs of the step's target have."""
    place, content = machine_file(choice.target, None)
    gpu = _gpu(build_machine(content, place), place)
    needed, stage = fullest(choice)
    most = float("inf") if gpu.dram.size_bytes is None else gpu.dram.size_bytes
    stages = sum(memory(choice, each).total > most for each in range(choice.pp))
    return exceeded(needed.total, f"stage {stage}", stages * choice.tp * choice.dp, gpu)


def _gpu(machine: Machine, place: str) -> Gpu:
    found = Gpu.of(machine.node)
    if found is None:
        raise UserError(f"{place}: has no node.gpu, whose kernels would be timed; name a machine with GPUs")
    return found
