"""The page of methods: what the docstrings of the models' modules say of their law, source and assumptions."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
CHAPTERS: Final = {
    "Networks": (
        "models/network/latency_bandwidth.py", "models/network/loggops/model.py", "models/network/dimemas/model.py",
        "models/network/flow/model.py", "models/machine/topology.py", "models/network/collectives/rules.py",
        "models/network/collectives/formulas.py", "models/machine/storage.py", "models/network/calibration.py",
        "models/network/nccl/tuner.py", "models/network/nccl/graphs.py", "models/network/nccl/rings.py",
        "models/network/nccl/uses.py", "models/network/nccl/tables.py", "runner/run/calibration/nccl.py",
    ),
    "Inside nodes": (
        "models/node/scheduler/scheduler.py", "models/node/detailed.py", "models/node/core/kernel.py",
        "models/node/core/interval_core.py", "models/node/memory/system.py", "models/cpu/branch_predictor.py",
    ),
    "Memory": (
        "models/memory/distances/stack_distance.py", "models/memory/distances/statstack.py",
        "models/memory/distances/shards.py", "models/memory/distances/block_sampling.py",
        "models/memory/caches/hierarchy.py", "models/memory/amm/sdcm.py", "models/memory/amm/amm.py",
        "models/memory/amm/growth_laws.py",
    ),
    "GPUs": (
        "models/gpu/detailed.py", "models/gpu/sm/kernel.py", "models/gpu/sm/control/parameters.py",
        "models/gpu/sm/control/issue_kernel.py", "models/gpu/sm/control/rows.py", "models/gpu/matrix/timing.py",
        "models/gpu/gpumech/model.py", "models/gpu/gpumech/multiwarp.py", "models/gpu/gpumech/part.py",
        "models/gpu/gpumech/waves.py", "models/gpu/roofline/ceilings.py",
        "models/gpu/roofline/operations.py", "models/gpu/roofline/waits.py",
    ),
    "Sampling": (
        "sampling/simpoint/__init__.py", "sampling/simpoint/kmeans.py", "sampling/simprof/__init__.py",
        "sampling/simprof/two_stage.py", "sampling/phases/parallel_phases.py", "sampling/taskpoint/decisions.py",
        "sampling/tbpoint/launches.py", "sampling/tbpoint/estimate.py", "sampling/tbpoint/regions.py",
        "sampling/tbpoint/state.py", "sampling/tbpoint/spread.py", "sampling/tbpoint/block_estimate.py",
        "sampling/launches/pka.py", "sampling/launches/sieve.py", "sampling/launches/stem.py",
    ),
}  # fmt: skip
_HEAD: Final = """# Methods and sources

Every model and every method of sampling follows a published source, or says where it does not. This page collects,
module by module, what the code says of its law, its source and its assumptions. It is for readers who want to know
exactly what is computed; the pages of the models say it in short. Where the code differs from a source on purpose, the
difference has a number in [Deviations](validation/deviations.md).

"""


def page() -> str:
    """Markdown of all chapters."""
    parts = [_HEAD]
    for chapter, places in CHAPTERS.items():
        parts.append(f"## {chapter}\n")
        for place in places:
            text = ast.get_docstring(ast.parse((ROOT / place).read_text()))
            if text is None:
                raise LookupError(f"{place} has no docstring")
            title, _, rest = text.partition("\n\n")
            parts.append(f"### `{place.removesuffix('/__init__.py').removesuffix('.py')}`\n")
            parts.append(f"{_markdown(title)}\n\n{_markdown(rest)}\n")
    return "\n".join(parts)


def _markdown(text: str) -> str:
    """reStructuredText of docstrings, as far as they use it: code, and tables between lines of ``=``."""
    lines: list[str] = []
    is_table = False
    for line in text.splitlines():
        if re.match(r"^=+( +=+)+$", line):
            if not is_table:
                lines += ["", "```text"]
            lines.append(line)
            is_table = True
            continue
        if is_table and not line.strip():
            lines += ["```", ""]
            is_table = False
        lines.append(line if is_table or line.startswith("    ") else line.replace("``", "`").replace("<", "&lt;"))
    return "\n".join([*lines, "```"] if is_table else lines)
