"""manyscale predicts how long a parallel application takes on a machine that may not exist yet."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from manyscale.runner.errors import RunError, UserError
from manyscale.runner.version import __version__

if TYPE_CHECKING:
    from manyscale.runner.api.finished import report
    from manyscale.runner.api.inputs import load_study, read_workload
    from manyscale.runner.api.studies import run, sweep, what_if
    from manyscale.runner.api.study_results import RunResult, SweepResult, WhatIfResult
    from manyscale.runner.run.results import Result
    from manyscale.runner.study import Study

# Where each name is. It is loaded on first use, so that `import manyscale` and `manyscale --help` stay instant: Arrow
# and Numba alone take half a second.
_PLACES = {
    "Result": "run.results",
    "RunResult": "api.study_results",
    "Study": "study",
    "SweepResult": "api.study_results",
    "WhatIfResult": "api.study_results",
    "load_study": "api.inputs",
    "read_workload": "api.inputs",
    "report": "api.finished",
    "run": "api.studies",
    "sweep": "api.studies",
    "what_if": "api.studies",
}

__all__ = [
    "Result",
    "RunError",
    "RunResult",
    "Study",
    "SweepResult",
    "UserError",
    "WhatIfResult",
    "__version__",
    "load_study",
    "read_workload",
    "report",
    "run",
    "sweep",
    "what_if",
]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(f"manyscale.runner.{_PLACES[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
