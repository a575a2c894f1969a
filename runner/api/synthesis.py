"""``synthesise``: a workload from the shape of a model that is trained, for as many GPUs as wanted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike, fspath
from typing import Any, Literal

from pydantic import ValidationError

from manyscale.models.transformer.memory import fullest
from manyscale.runner.api.folders import Folder, Output, Scratch, place
from manyscale.runner.api.traces import TraceResult
from manyscale.runner.problems import wrong_key
from manyscale.runner.run import directory as rundir
from manyscale.runner.study.synthesis import memory_note, synthesised
from manyscale.runner.study.workload import Synthesis


@dataclass(frozen=True, repr=False, eq=False)
class SynthesiseResult(TraceResult):
    """A step of training that was made (``choice``), and what it asks of a GPU at most."""

    choice: Synthesis | None = None

    @property
    def figures(self) -> Mapping[str, Any]:
        """Of the step: parameters, tokens, floating-point operations; ``memory_bytes`` of the fullest GPU."""
        if self.choice is None:
            return {}
        return {
            "ranks": self.choice.ranks, "parameters": self.choice.parameters, "tokens": self.choice.tokens,
            "model_flops": self.choice.model_flops, "micro_batches": self.choice.micro_batches,
            "memory_bytes": fullest(self.choice)[0].total, "operations": self.workload.num_operations,
        }  # fmt: skip

    def summary(self) -> str:
        """The lines to read, as the command prints them."""
        if self.choice is None:
            return ""
        needed, stage = fullest(self.choice)
        parts = (needed.weights, needed.gradients, needed.optimiser, needed.activations)
        weights, gradients, optimiser, activations = (f"{each / 1e9:.1f}" for each in parts)
        found = self.figures
        return "\n".join(
            (
                f"{found['parameters'] / 1e9:.3f} billion parameters, {found['tokens']} tokens and "
                f"{found['model_flops'] / 1e12:.4g} Tflop a step, {found['micro_batches']} micro batches",
                f"{found['ranks']} GPUs; the fullest (stage {stage}) needs about {needed.total / 1e9:.1f} GB: weights "
                f"{weights}, gradients {gradients}, optimiser {optimiser}, activations {activations}",
            )
        )


def synthesise(
    model: Literal["transformer"] = "transformer",
    output: Output = None,
    *,
    target: str | PathLike[str],
    layers: int,
    hidden: int,
    heads: int,
    sequence: int,
    global_batch: int,
    micro_batch: int = 1,
    vocabulary: int = 50257,
    tp: int = 1,
    pp: int = 1,
    dp: int | None = None,
    gpus: int | None = None,
    gpu_memory: str | None = None,
    interleaved: int = 1,
    recompute: Literal["none", "selective", "full"] = "none",
    zero: Literal[0, 1, 2, 3] = 0,
    sequence_parallel: bool = False,
    flash_attention: bool = False,
    precision: Literal["fp16", "bf16"] = "fp16",
    rows: int | None = None,
) -> SynthesiseResult:
    """Make a workload: a step of training a transformer on the GPUs of ``target``, with tensor (``tp``), pipeline
    (``pp``) and data parallelism (``dp``, by default 1, or what the others leave of ``gpus``). ``gpu_memory``: what a
    GPU may hold, such as "80 GB". ``rows``: the most operations of a rank. Raises UserError."""
    from manyscale.runner.readers import workload_folder

    given = {name: value for name, value in locals().items() if name in Synthesis.model_fields and value is not None}
    try:
        choice = Synthesis.model_validate({**given, "target": fspath(target)})
    except ValidationError as error:
        raise wrong_key(error, Synthesis, "synthesise") from None
    workload = synthesised(choice)
    scratch = Scratch() if output is None else None
    wanted = scratch.path / "synthesis" if scratch else place(output)[0]
    with rundir.new_results(wanted, "synthesis") as directory:
        workload_folder.write(workload, directory)
    notes = (*workload.notes, *memory_note(choice))
    return SynthesiseResult(workload, Folder(directory, scratch), notes, choice=choice)
