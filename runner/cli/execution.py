"""Where the work units of memory commands run, and where their results are kept."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from manyscale.runner.cli import commands
from manyscale.runner.registry import lookup
from manyscale.runner.run.execute.execution import Execution
from manyscale.runner.run.store import Store

RAY_PAYS_ABOVE_ACCESSES: Final = 500_000_000


@contextmanager
def execution_of(options: argparse.Namespace, cache: Path, num_accesses: float) -> Iterator[Execution]:
    """As ``--executor``, ``--address`` and ``--workers`` say; ``auto`` takes Ray where ``num_accesses`` repay it."""
    name = options.executor
    if name == "auto":
        name = "ray" if options.address or num_accesses > RAY_PAYS_ABOVE_ACCESSES else "local"
    with commands.progress_bar() as progress:
        executor = lookup("executor", name)(address=options.address, num_workers=options.workers)
        with closing(executor):
            yield Execution(Store(cache / "units"), executor, lambda *_: None, progress)
