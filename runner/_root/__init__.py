"""manyscale predicts how long a parallel application takes on a machine that may not exist yet."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from manyscale.runner.errors import RunError, UserError
from manyscale.runner.version import __version__

if TYPE_CHECKING:
    from manyscale.runner.api.answer import Answer
    from manyscale.runner.api.catalogue import AccuracyResult, ExamplesResult, accuracy, examples
    from manyscale.runner.api.comparisons import CompareResult, PopResult, compare, pop
    from manyscale.runner.api.evaluations import EvaluationResult, HardwareResult, evaluate
    from manyscale.runner.api.finished import StatusResult, report, status
    from manyscale.runner.api.inputs import load_study, read_workload
    from manyscale.runner.api.machines import CalibrateResult, calibrate
    from manyscale.runner.api.memory import IntervalsResult, PredictResult, ProfileResult, predict, profile
    from manyscale.runner.api.plans import PlanResult, plan
    from manyscale.runner.api.predictability import PredictabilityResult, predictability
    from manyscale.runner.api.repeats import ClustersResult, IterationsResult, clusters, iterations
    from manyscale.runner.api.scaling import ScalingResult, scaling
    from manyscale.runner.api.sharing import ShareResult, share
    from manyscale.runner.api.shown_workload import ShowResult, show
    from manyscale.runner.api.studies import run, sweep, what_if
    from manyscale.runner.api.study_results import RunResult, SweepResult, WhatIfResult
    from manyscale.runner.api.synthesis import SynthesiseResult, synthesise
    from manyscale.runner.api.traces import ExtrapolateResult, TraceResult, convert, extrapolate, trace
    from manyscale.runner.run.results import Result
    from manyscale.runner.study import Study

__all__ = [
    "AccuracyResult",
    "Answer",
    "CalibrateResult",
    "ClustersResult",
    "CompareResult",
    "EvaluationResult",
    "ExamplesResult",
    "ExtrapolateResult",
    "HardwareResult",
    "IntervalsResult",
    "IterationsResult",
    "PlanResult",
    "PopResult",
    "PredictResult",
    "PredictabilityResult",
    "ProfileResult",
    "Result",
    "RunError",
    "RunResult",
    "ScalingResult",
    "ShareResult",
    "ShowResult",
    "StatusResult",
    "Study",
    "SweepResult",
    "SynthesiseResult",
    "TraceResult",
    "UserError",
    "WhatIfResult",
    "__version__",
    "accuracy",
    "calibrate",
    "clusters",
    "compare",
    "convert",
    "evaluate",
    "examples",
    "extrapolate",
    "iterations",
    "load_study",
    "plan",
    "pop",
    "predict",
    "predictability",
    "profile",
    "read_workload",
    "report",
    "run",
    "scaling",
    "share",
    "show",
    "status",
    "sweep",
    "synthesise",
    "trace",
    "what_if",
]

# Where each name is. It is loaded on first use, so that `import manyscale` and `manyscale --help` stay instant: Arrow
# and Numba alone take half a second.
_PLACES: Final = {
    "AccuracyResult": "api.catalogue",
    "Answer": "api.answer",
    "CalibrateResult": "api.machines",
    "ClustersResult": "api.repeats",
    "CompareResult": "api.comparisons",
    "EvaluationResult": "api.evaluations",
    "HardwareResult": "api.evaluations",
    "ExamplesResult": "api.catalogue",
    "ExtrapolateResult": "api.traces",
    "IntervalsResult": "api.memory",
    "IterationsResult": "api.repeats",
    "PlanResult": "api.plans",
    "PopResult": "api.comparisons",
    "PredictResult": "api.memory",
    "PredictabilityResult": "api.predictability",
    "ProfileResult": "api.memory",
    "Result": "run.results",
    "RunResult": "api.study_results",
    "ScalingResult": "api.scaling",
    "ShareResult": "api.sharing",
    "ShowResult": "api.shown_workload",
    "StatusResult": "api.finished",
    "Study": "study",
    "SweepResult": "api.study_results",
    "SynthesiseResult": "api.synthesis",
    "TraceResult": "api.traces",
    "WhatIfResult": "api.study_results",
    "accuracy": "api.catalogue",
    "calibrate": "api.machines",
    "clusters": "api.repeats",
    "compare": "api.comparisons",
    "convert": "api.traces",
    "evaluate": "api.evaluations",
    "examples": "api.catalogue",
    "extrapolate": "api.traces",
    "iterations": "api.repeats",
    "load_study": "api.inputs",
    "plan": "api.plans",
    "pop": "api.comparisons",
    "predict": "api.memory",
    "predictability": "api.predictability",
    "profile": "api.memory",
    "read_workload": "api.inputs",
    "report": "api.finished",
    "run": "api.studies",
    "scaling": "api.scaling",
    "share": "api.sharing",
    "show": "api.shown_workload",
    "status": "api.finished",
    "sweep": "api.studies",
    "synthesise": "api.synthesis",
    "trace": "api.traces",
    "what_if": "api.studies",
}
_FORMER: Final[dict[str, tuple[str, str]]] = {}  # former name to present name, and the release in which it goes


def __getattr__(name: str) -> Any:
    if name in _FORMER:
        from manyscale.runner.api.deprecated import warn

        present, release = _FORMER[name]
        warn(f"manyscale.{name}", f"manyscale.{present}", release)
        return globals().get(present) or __getattr__(present)
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(f"manyscale.runner.{_PLACES[name]}"), name)
    if name.islower():  # a function
        from manyscale.runner.api.python_words import in_python_words

        found = in_python_words(found)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
