"""The models of GPUs behind one form: what a work unit calls, and how their results become LaunchResult.

A model is a class with ``NAME``, ``version()``, ``check(study)`` and ``options(study)``. One without ``HAS_PROFILE``
simulates launches at once (``simulate``); one with it looks at their accesses first (``profile``, which reads of the
GPU only what ``profile_reads`` says), and predicts from that, configuration by configuration (``predict``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from manyscale.models.gpu.launch_trace import LaunchTrace
from manyscale.models.gpu.parameters import Gpu
from manyscale.runner.errors import UserError
from manyscale.runner.execute.units import Arrays
from manyscale.runner.gpu.launch_results import LaunchResult
from manyscale.runner.study import Study

if TYPE_CHECKING:
    from manyscale.models.gpu.detailed import LaunchResult as DetailedResult


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
        groups: int,
    ) -> list[LaunchResult]:
        """Launches one after the other, caches at the beginning as ``before`` leave them."""
        from manyscale.models.gpu import detailed, warm_l2

        memory = detailed.l2_of(gpu)
        for trace in before:
            warm_l2.touch(trace, gpu, memory)
        results = []
        for trace in launches:
            if options["order"] == "windows":
                from manyscale.models.gpu.groups import simulate_in_groups

                found, memory = simulate_in_groups(trace, gpu, memory, groups)
                results.append(_of_detailed(found, detailed.CAUSES))
                continue
            if options["warming"] is None:
                found, memory = detailed.simulate(trace, gpu, memory)
                results.append(_of_detailed(found, detailed.CAUSES))
                continue
            from manyscale.runner.gpu.block_sampling import RegionChoice

            choice = RegionChoice(trace, gpu, options)
            touch = partial(warm_l2.touch_blocks, trace, gpu)
            found, memory = detailed.simulate(trace, gpu, memory, choice, touch)
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
        raise NotImplementedError

    @staticmethod
    def check(study: Study) -> None:
        """Raises UserError for what cannot be predicted."""
        raise UserError("model.gpu: gpumech cannot predict yet; choose detailed")

    @staticmethod
    def options(study: Study) -> dict[str, Any]:
        """What of a study changes results."""
        return {"form": study.gpu.form, "representative": study.gpu.representative}

    @staticmethod
    def profile_reads(gpu: Gpu) -> dict[str, Any]:
        """The part of a GPU that profiles depend on."""
        raise NotImplementedError

    @staticmethod
    def profile(launches: Iterable[LaunchTrace], before: Iterable[LaunchTrace], gpu: Gpu) -> Arrays:
        """What the accesses of launches meet."""
        raise NotImplementedError

    @staticmethod
    def predict(profiles: Arrays, gpu: Gpu, options: Mapping[str, Any]) -> list[LaunchResult]:
        """Launches from their profiles."""
        raise NotImplementedError
