"""manyscale predicts how long a parallel application takes on a machine that may not exist yet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from manyscale.runner.version import __version__

__all__ = ["Result", "Study", "__version__", "load_study", "read_workload", "run", "sweep"]

if TYPE_CHECKING:
    from manyscale.runner.run.api import Result, Study, load_study, read_workload, run, sweep


def __getattr__(name: str) -> Any:
    # The API pulls in Arrow and Numba (about half a second): load it on first use, so that `import manyscale` and
    # `manyscale --help` stay instant.
    if name in __all__:
        from manyscale.runner.run import api

        return getattr(api, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
