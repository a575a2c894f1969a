"""The study's block ``intervals``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import ConfigDict, Field, ValidationError

from manyscale.models.spelling import unknown
from manyscale.models.workload.parameters import Count, CountOrNone, Strict
from manyscale.runner.problems import first_problem
from manyscale.runner.registry import names

if TYPE_CHECKING:
    from manyscale.runner.study.schema import Study

MOST_INSTRUCTIONS: Final = 1 << 62


class IntervalsChoice(Strict):
    """How ``sampling: {intervals: METHOD}`` samples the stream of a program of one thread
    (predict/intervals/interval_source.py), or the regions of a parallel one (predict/intervals/region_source.py). It is
    cut every ``instructions`` at the end of a basic block, or where the initial task next waits for all others; other
    keys are rules of the method, such as ``per_cluster``. ``vectors`` of intervals say what they execute (``blocks``)
    or also what it does in memory (``signature``, with ``line_bytes`` and ``distance_power``:
    predict/intervals/traced.py).

    ``caches`` at the begin of an interval: ``cold``, empty; ``warm``, having seen the ``warm_up`` instructions before
    it (``all``: all of them), prefetchers and branch predictor, too, of which the last ``pipeline`` are simulated in
    detail and not counted; ``last-uses``, the same behind the lines that all before these used last, in this order; or
    ``stitched``, as the chosen interval before left them: one unit simulates all, one after the other. ``warm_up`` is
    20,000,000 by default where caches are warm, 3,000,000 behind last uses. Of the study's ``detailed``, ``request``
    alone plays a part, of regions also ``window`` and ``creation``. They are never ``warm``, and what ``warm_up``
    there is behind last uses, none by default, is whole regions before them, in detail.
    """

    model_config = ConfigDict(extra="allow")

    instructions: Count = 1_000_000
    """The length of an interval in instructions. It ends at the end of a basic block, a region of a parallel program
    where the initial task next waits for all others."""
    vectors: Literal["blocks", "signature"] = "blocks"
    """What describes an interval: the basic `blocks` it executes, or a `signature` with its stack distances, too."""
    line_bytes: Count = 64
    """The size of a line of stack distances, in bytes."""
    distance_power: Annotated[float, Field(ge=0, le=2)] = 0.0
    """The power by which long stack distances weigh more in a signature."""
    caches: Literal["last-uses", "warm", "stitched", "cold"] = "last-uses"
    """The caches where an interval begins: filled by the `last-uses` of lines, `warm`, `stitched` (as the chosen
    interval before left them), or `cold`."""
    warm_up: CountOrNone | Literal["all"] | None = None
    """Instructions that warm the caches before an interval, or `all`. By default 20,000,000 where caches are warm,
    3,000,000 behind last uses, none before regions of a parallel program."""
    counters: Annotated[str, Field(min_length=1)] = "traced"
    """Of each core in regions of a parallel program, for methods such as `sbbv+ccv`: `traced`, from the lines that its
    task instances use, or the file of a native run's (`manyscale profile --interval` of `perf script`'s text)."""
    pipeline: CountOrNone = 10_000
    """The last instructions of the warm-up, which are simulated in detail and not counted."""

    @property
    def warm_up_of_regions(self) -> int:
        """Instructions that regions before one execute in detail, uncounted."""
        if self.warm_up == "all":
            return MOST_INSTRUCTIONS
        return 0 if self.warm_up is None else int(self.warm_up)

    @property
    def rules(self) -> dict[str, Any]:
        """Of the method."""
        return dict(self.model_extra or {})

    def check(self, study: Study) -> None:
        """Raises ValueError for a block without a method or rules that are not the method's, and for a study that
        chooses anything beside."""
        method = study.sampling.intervals
        if method is None:
            if self != IntervalsChoice():
                raise ValueError("intervals: says how sampling.intervals samples; choose a method there, as simpoint")
            return
        from manyscale.runner.predict.intervals.methods import of_regions  # loads what few studies need
        from manyscale.sampling.phases.parallel_phases import PARTS

        if (known := of_regions(method)) is None:
            what = unknown(
                "method", method, [*names("interval-sampler"), *PARTS], " (joined by +), and a file of chosen intervals"
            )
            raise ValueError(f"sampling.intervals: {what}")
        try:
            known.rules.model_validate(self.rules)
        except ValidationError as error:
            raise ValueError(f"intervals.{first_problem(error, known.rules)}") from None
        if study.model.cpu != "detailed":
            raise ValueError(f"sampling.intervals: {method} samples model cpu: detailed; choose that model")
        chosen = study.sampling
        if (chosen.ranks, chosen.iterations, chosen.tasks) != ("auto", "auto", "full"):
            raise ValueError("sampling.intervals: samples a program's whole run; leave ranks, iterations, tasks out")
