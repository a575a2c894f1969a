"""The models of GPUs behind one form: what a work unit calls, and how their results become LaunchResult.

A model is a class with ``NAME``, ``DOMAIN``, ``version()``, ``check(study)`` and ``options(study)``. One without
``HAS_PROFILE`` simulates launches at once (``simulate``; it says by ``takes_pieces`` whether large ones may come in
pieces, see pieces.py); one with it looks at their instructions first (``outline``,
which reads of the GPU only what ``outline_reads`` says), then at what their accesses meet (``profile`` and
``profile_reads``), and predicts from that, configuration by configuration (``predict``). A model may have ``notes`` on
its results, and may simulate launches that overlap together: ``simulate_together``, with ``version_together``, where
``runs_together`` of its options.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from manyscale.models.gpu import domains
from manyscale.models.gpu.parameters import Gpu
from manyscale.models.gpu.roofline.waits import KINDS
from manyscale.models.kernels.team import Team
from manyscale.models.workload.launch_trace import LaunchTrace
from manyscale.models.workload.notes import Note, informs
from manyscale.runner.errors import UserError
from manyscale.runner.predict.gpu.block_sampling import SampledBlocks
from manyscale.runner.predict.gpu.launch_results import LaunchResult
from manyscale.runner.predict.gpu.options import GpuChoice
from manyscale.runner.predict.gpu.pieces import LaunchInPieces
from manyscale.runner.predict.stored_arrays import restored, stored
from manyscale.runner.predict.units import Arrays
from manyscale.runner.progress import teller, telling
from manyscale.runner.registry import lookup
from manyscale.runner.study import Study

if TYPE_CHECKING:
    from manyscale.models.gpu.detailed import LaunchResult as DetailedResult
    from manyscale.models.gpu.gpumech.model import GpuMechEstimate
    from manyscale.models.gpu.together.model import Arriving, Ended


class Detailed:
    """The SMs cycle by cycle (models/gpu/detailed.py)."""

    NAME = "detailed"
    HAS_PROFILE = False
    DOMAIN = domains.DETAILED

    @staticmethod
    def version() -> int:
        from manyscale.models.gpu import detailed, groups

        return 1000 * groups.VERSION + detailed.VERSION

    @staticmethod
    def check(study: Study) -> None:
        """Raises UserError for what cannot be simulated."""
        if study.options(GpuChoice).order != "strict" and study.sampling.blocks != "full":
            raise UserError("sampling.blocks: blocks are chosen in strict order alone; set gpu.order: strict")

    @staticmethod
    def options(study: Study) -> dict[str, Any]:
        """What of a study changes results."""
        of_blocks: dict[str, Any] = lookup("block-sampler", study.sampling.blocks).options(study)
        return {"order": study.options(GpuChoice).order, **of_blocks}

    @staticmethod
    def takes_pieces(options: Mapping[str, Any]) -> bool:
        """Whether ``simulate`` may be given a LaunchInPieces for a launch. SMs in windows share a launch that all of
        them see, and what chooses blocks looks at all of them first."""
        return bool(options["order"] == "strict" and options["sampler"] == "full")

    @staticmethod
    def simulate(
        launches: Iterable[LaunchTrace | LaunchInPieces],
        before: Iterable[LaunchTrace | LaunchInPieces],
        gpu: Gpu,
        options: Mapping[str, Any],
        team: Team,
    ) -> list[LaunchResult]:
        """Launches one after the other, caches at the beginning as ``before`` leave them. In windows ``team`` shares
        the work of each, but of those whose blocks are in clusters: each member simulates these as a whole."""
        from manyscale.models.gpu import detailed
        from manyscale.models.gpu.clusters import cluster_blocks
        from manyscale.models.gpu.l2 import warm as warm_l2

        memory = detailed.l2_of(gpu)
        for trace in before:
            warm_l2.touch_pieces(trace if isinstance(trace, LaunchInPieces) else (trace,), gpu, memory)
        results = []
        for trace in launches:
            if isinstance(trace, LaunchInPieces):
                found, memory = detailed.simulate_pieces(trace, gpu, memory, trace.num_instructions, teller())
                results.append(_of_detailed(found, detailed.CAUSES))
                continue
            in_clusters = cluster_blocks(trace, gpu) > 1  # blocks that start together: in strict order, and all of them
            if options["order"] == "windows" and not in_clusters:
                from manyscale.models.gpu.groups import simulate_in_groups

                found, memory = simulate_in_groups(trace, gpu, memory, team, teller())
                results.append(_of_detailed(found, detailed.CAUSES))
                continue
            sampler = "full" if in_clusters else options["sampler"]
            choice: SampledBlocks | None = lookup("block-sampler", sampler).begin(trace, gpu, options)
            skipped = None if choice is None else choice.skipped
            found, memory = detailed.simulate(trace, gpu, memory, choice, skipped, teller())
            result = _of_detailed(found, detailed.CAUSES)
            if choice is not None:
                result = choice.of_all(result, found.asked_at, found.asked_counts)
            results.append(result)
        return results

    @staticmethod
    def runs_together(options: Mapping[str, Any]) -> bool:
        """Whether launches that overlap can be simulated together: groups of SMs share one launch, and what chooses
        blocks chooses those of one."""
        return bool(options["order"] == "strict" and options["sampler"] == "full")

    @staticmethod
    def version_together() -> int:
        from manyscale.models.gpu.together import model

        return model.VERSION

    @staticmethod
    def simulate_together(
        arriving: Sequence[Arriving],
        before: Iterable[LaunchTrace | LaunchInPieces],
        gpu: Gpu,
        told: Callable[[float], None] | None = None,
    ) -> Sequence[Ended]:
        """Launches on one GPU, L2 at the beginning as ``before`` leave it; none where they cannot be simulated so."""
        from manyscale.models.gpu import detailed
        from manyscale.models.gpu.l2 import warm as warm_l2
        from manyscale.models.gpu.together import model

        if model.why_not([each.trace for each in arriving], gpu):
            return []
        memory = detailed.l2_of(gpu)
        for trace in before:
            warm_l2.touch_pieces(trace if isinstance(trace, LaunchInPieces) else (trace,), gpu, memory)
        found, _, _ = model.simulate_together(arriving, gpu, memory, told)
        return found


def _of_detailed(found: DetailedResult, causes: tuple[str, ...]) -> LaunchResult:
    """``stack`` there counts cycles of schedulers."""
    total = float(found.stack.sum())
    return LaunchResult(
        launch_id=found.launch_id,
        cycles=found.busy_cycles,
        warp_instructions=found.warp_instructions,
        simulated_instructions=found.warp_instructions,
        causes=causes,
        stack=found.stack * (found.busy_cycles / total) if total else found.stack,
        l1_accesses=found.l1_accesses,
        l1_misses=found.l1_misses,
        l2_accesses=found.l2_accesses,
        l2_misses=found.l2_misses,
        dram_reads=found.dram_reads,
        dram_writes=found.dram_writes,
        occupancy=found.occupancy,
        block=np.arange(len(found.block_sm)),
        block_sm=found.block_sm,
        block_start=found.block_begin,
        block_end=found.block_end,
        bin_cycles=found.ipc_cycles,
        ipc_instructions=found.ipc,
    )


class Gpumech:
    """The interval model of warps (models/gpu/gpumech/model.py)."""

    NAME = "gpumech"
    HAS_PROFILE = True
    DOMAIN = domains.GPUMECH

    @staticmethod
    def version() -> int:
        from manyscale.models.gpu.gpumech import model as gpumech

        return gpumech.VERSION

    @staticmethod
    def check(study: Study) -> None:
        """Raises UserError for what cannot be predicted."""
        if study.sampling.blocks != "full":
            raise UserError("sampling.blocks: gpumech reads all blocks of a launch; set sampling.blocks: full")

    @staticmethod
    def options(study: Study) -> dict[str, Any]:
        """What of a study changes results."""
        return {"form": study.options(GpuChoice).form, "representative": study.options(GpuChoice).representative}

    @staticmethod
    def outline_reads(gpu: Gpu, options: Mapping[str, Any], largest: int) -> dict[str, Any]:
        """The part of a GPU that outlines of launches of at most ``largest`` warp instructions depend on, and what they
        hold."""
        from manyscale.models.gpu.gpumech import outline as gpumech_outline
        from manyscale.models.gpu.gpumech import part

        found = {"reads": list(gpumech_outline.outline_reads(gpu)), "instructions": options["form"] == "printed"}
        if largest >= part.LEAST_INSTRUCTIONS:  # some SMs stand for all
            found |= {"sms": gpu.sms, "channels": gpu.dram.channels}
        return found

    @staticmethod
    def outline(launches: Iterable[LaunchTrace], gpu: Gpu, options: Mapping[str, Any]) -> Arrays:
        """What warps do without caches, and what blocks execute; arrays of launch i begin with ``i.``."""
        from manyscale.models.gpu.gpumech import outline as gpumech_outline
        from manyscale.runner.predict.gpu.blocks import profile_of, work_columns

        arrays: dict[str, np.ndarray] = {}
        for number, trace in enumerate(launches):
            found = gpumech_outline.outline_of(trace, gpu, options["form"] == "printed")
            blocks = profile_of(trace)
            arrays |= _of_launch(
                number,
                gpumech_outline.to_arrays(found)
                | {
                    "block_warp_instructions": blocks.warp_instructions,
                    "block_thread_instructions": blocks.thread_instructions,
                    "block_requests": blocks.memory_requests,
                    **work_columns(trace, gpu),
                },
            )
        return stored(arrays)

    @staticmethod
    def profile_reads(gpu: Gpu, options: Mapping[str, Any]) -> dict[str, Any]:
        """The part of a GPU that profiles depend on."""
        from manyscale.models.gpu.gpumech import model as gpumech

        return gpumech.profile_reads(gpu, options["form"] == "printed")

    @staticmethod
    def profile(outlines: Arrays, before: Iterable[LaunchTrace], gpu: Gpu) -> Arrays:
        """What the accesses of launches meet, from their outlines."""
        from manyscale.models.gpu.gpumech import model as gpumech
        from manyscale.models.gpu.gpumech import outline as gpumech_outline

        l2 = gpumech.l2_of(gpu)
        for trace in before:
            gpumech.touch(trace, gpu, l2)
        arrays: dict[str, np.ndarray] = {}
        launches = _by_launch(outlines)
        for number, own in enumerate(telling(launches, [float(each["executed"].sum()) for each in launches])):
            found = gpumech.profile_of(gpumech_outline.from_arrays(own), gpu, l2)
            arrays |= _of_launch(number, gpumech.to_arrays(found))
        return stored(arrays)

    @staticmethod
    def notes(results: Sequence[LaunchResult]) -> list[Note]:
        """What results leave out that not all do."""
        number = sum(bool((each.block_sm < 0).any()) for each in results)
        if not number:
            return []
        text = (
            f"of {number} launches, of a million warp instructions and more, some SMs are followed, with their part of "
            "L2's slices and of DRAM, and waves of like blocks are skipped; what the others take is estimated"
        )
        return [informs("some-sms-stand-for-all", text, count=number)]

    @staticmethod
    def predict(outlines: Arrays, profiles: Arrays, gpu: Gpu, options: Mapping[str, Any]) -> list[LaunchResult]:
        """Launches from their outlines and profiles."""
        from manyscale.models.gpu.gpumech import functional_caches
        from manyscale.models.gpu.gpumech import model as gpumech
        from manyscale.models.gpu.gpumech import outline as gpumech_outline

        results = []
        for outline, profile in zip(_by_launch(outlines), _by_launch(profiles), strict=True):
            own = gpumech.from_arrays(profile, gpumech_outline.from_arrays(outline))
            found = gpumech.predict(own, gpu, options["form"], options["representative"])
            result = _of_estimate(found, outline, options["form"] == "extended", gpumech.CAUSES)
            counts = profile["l2_counts"].tolist()
            reads, writes = counts[functional_caches.READ_MISSES], counts[functional_caches.WRITTEN_BACK]
            results.append(replace(result, dram_reads=reads, dram_writes=writes))
        return results


def _of_launch(number: int, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {f"{number}.{name}": array for name, array in arrays.items()}


def _by_launch(kept: Arrays) -> list[dict[str, np.ndarray]]:
    """What ``_of_launch`` was given for each."""
    found: dict[int, dict[str, np.ndarray]] = {}
    for key, array in restored(kept).items():
        number, dot, name = key.partition(".")
        if dot:
            found.setdefault(int(number), {})[name] = array
    return [found[number] for number in range(len(found))]


def _of_estimate(
    found: GpuMechEstimate, outline: Mapping[str, np.ndarray], has_blocks: bool, causes: tuple[str, ...]
) -> LaunchResult:
    """``stack`` there is in cycles per instruction. Only the extended form knows when blocks begin and end."""
    stack = np.array([found.stack[name] for name in causes])
    cycles = round(found.cycles)
    total = float(stack.sum())
    result = LaunchResult(
        launch_id=found.launch_id,
        cycles=cycles,
        warp_instructions=found.warp_instructions,
        simulated_instructions=0,
        causes=causes,
        stack=stack * (cycles / total) if total else stack,
        l1_accesses=found.l1_accesses,
        l1_misses=found.l1_misses,
        l2_accesses=found.l2_accesses,
        l2_misses=found.l2_misses,
        work=outline["work"],
        work_cycles=outline["work_cycles"],
        row_weights=outline["row_weights"].reshape(-1, len(KINDS)),
    )
    if not has_blocks:
        return result
    return replace(
        result,
        half_width=found.half_width,
        block=np.arange(len(found.block_sm)),
        block_sm=found.block_sm,
        block_start=found.block_begin,
        block_end=found.block_end,
        block_warp_instructions=outline["block_warp_instructions"],
        block_thread_instructions=outline["block_thread_instructions"],
        block_requests=outline["block_requests"],
        block_region=np.full(len(found.block_sm), -1),
    )
