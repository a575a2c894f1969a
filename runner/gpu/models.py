"""The models of GPUs behind one form: what a work unit calls, and how their results become LaunchResult.

A model is a class with ``NAME``, ``version()``, ``check(study)`` and ``options(study)``. One without ``HAS_PROFILE``
simulates launches at once (``simulate``); one with it looks at their accesses first (``profile``, which reads of the
GPU only what ``profile_reads`` says), and predicts from that, configuration by configuration (``predict``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from manyscale.models.gpu.launch_trace import LaunchTrace
from manyscale.models.gpu.parameters import Gpu
from manyscale.models.team import Team
from manyscale.runner.errors import UserError
from manyscale.runner.execute.units import Arrays
from manyscale.runner.gpu.launch_results import LaunchResult
from manyscale.runner.node.stored_arrays import restored, stored
from manyscale.runner.study import Study

if TYPE_CHECKING:
    from manyscale.models.gpu.detailed import LaunchResult as DetailedResult
    from manyscale.models.gpu.gpumech import GpuMechEstimate


class Detailed:
    """The SMs cycle by cycle (models/gpu/detailed.py)."""

    NAME = "detailed"
    HAS_PROFILE = False

    @staticmethod
    def version() -> int:
        from manyscale.models.gpu import detailed, groups

        return 1000 * groups.VERSION + detailed.VERSION

    @staticmethod
    def check(study: Study) -> None:
        """Raises UserError for what cannot be simulated."""
        if study.gpu.order != "strict" and study.sampling.blocks != "full":
            raise UserError("sampling.blocks: blocks are chosen in strict order alone; set gpu.order: strict")

    @staticmethod
    def options(study: Study) -> dict[str, Any]:
        """What of a study changes results."""
        sampled = study.sampling.blocks == "tbpoint"
        return {"order": study.gpu.order, "warming": study.tbpoint.warming.model_dump(mode="json") if sampled else None}

    @staticmethod
    def simulate(
        launches: Iterable[LaunchTrace],
        before: Iterable[LaunchTrace],
        gpu: Gpu,
        options: Mapping[str, Any],
        team: Team,
    ) -> list[LaunchResult]:
        """Launches one after the other, caches at the beginning as ``before`` leave them. In windows ``team`` shares
        the work of each."""
        from manyscale.models.gpu import detailed, warm_l2

        memory = detailed.l2_of(gpu)
        for trace in before:
            warm_l2.touch(trace, gpu, memory)
        results = []
        for trace in launches:
            if options["order"] == "windows":
                from manyscale.models.gpu.groups import simulate_in_groups

                found, memory = simulate_in_groups(trace, gpu, memory, team)
                results.append(_of_detailed(found, detailed.CAUSES))
                continue
            if options["warming"] is None:
                found, memory = detailed.simulate(trace, gpu, memory)
                results.append(_of_detailed(found, detailed.CAUSES))
                continue
            from manyscale.runner.gpu.block_sampling import RegionChoice, show_last_blocks

            choice = RegionChoice(trace, gpu, options)
            found, memory = detailed.simulate(trace, gpu, memory, choice, partial(show_last_blocks, trace, gpu))
            results.append(choice.of_all(_of_detailed(found, detailed.CAUSES)))
        return results


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
        occupancy=found.occupancy,
        block=np.arange(len(found.block_sm)),
        block_sm=found.block_sm,
        block_start=found.block_begin,
        block_end=found.block_end,
        bin_cycles=found.ipc_cycles,
        ipc_instructions=found.ipc,
    )


class Gpumech:
    """The interval model of warps (models/gpu/gpumech.py)."""

    NAME = "gpumech"
    HAS_PROFILE = True

    @staticmethod
    def version() -> int:
        from manyscale.models.gpu import gpumech

        return gpumech.VERSION

    @staticmethod
    def check(study: Study) -> None:
        """Raises UserError for what cannot be predicted."""
        if study.sampling.blocks != "full":
            raise UserError("sampling.blocks: gpumech reads all blocks of a launch; set sampling.blocks: full")

    @staticmethod
    def options(study: Study) -> dict[str, Any]:
        """What of a study changes results."""
        return {"form": study.gpu.form, "representative": study.gpu.representative}

    @staticmethod
    def profile_reads(gpu: Gpu) -> dict[str, Any]:
        """The part of a GPU that profiles depend on."""
        from manyscale.models.gpu import gpumech

        return gpumech.profile_reads(gpu)

    @staticmethod
    def profile(launches: Iterable[LaunchTrace], before: Iterable[LaunchTrace], gpu: Gpu) -> Arrays:
        """What the accesses of launches meet, and what their blocks execute; arrays of launch i begin with ``i.``."""
        from manyscale.models.gpu import gpumech
        from manyscale.runner.gpu.blocks import profile_of

        l2 = gpumech.l2_of(gpu)
        for trace in before:
            gpumech.touch(trace, gpu, l2)
        arrays: dict[str, np.ndarray] = {}
        for number, trace in enumerate(launches):
            found = gpumech.to_arrays(gpumech.collect(trace, gpu, l2))
            blocks = profile_of(trace)
            found |= {
                "block_warp_instructions": blocks.warp_instructions,
                "block_thread_instructions": blocks.thread_instructions,
                "block_requests": blocks.memory_requests,
            }
            arrays |= {f"{number}.{name}": array for name, array in found.items()}
        return stored(arrays)

    @staticmethod
    def predict(profiles: Arrays, gpu: Gpu, options: Mapping[str, Any]) -> list[LaunchResult]:
        """Launches from their profiles."""
        from manyscale.models.gpu import gpumech

        arrays, results = restored(profiles), []
        for number in range(sum(name.endswith(".shape") for name in arrays)):
            prefix = f"{number}."
            own = {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
            profile = gpumech.from_arrays(own)
            found = gpumech.predict(profile, gpu, options["form"], options["representative"])
            results.append(_of_estimate(found, own, options["form"] == "extended", gpumech.CAUSES))
        return results


def _of_estimate(
    found: GpuMechEstimate, blocks: Mapping[str, np.ndarray], has_blocks: bool, causes: tuple[str, ...]
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
    )
    if not has_blocks:
        return result
    return replace(
        result,
        block=np.arange(len(found.block_sm)),
        block_sm=found.block_sm,
        block_start=found.block_begin,
        block_end=found.block_end,
        block_warp_instructions=blocks["block_warp_instructions"],
        block_thread_instructions=blocks["block_thread_instructions"],
        block_requests=blocks["block_requests"],
        block_region=np.full(len(found.block_sm), -1),
    )
