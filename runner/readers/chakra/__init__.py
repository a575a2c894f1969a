"""Reader for Chakra execution traces: one file a rank, ``NAME.RANK.et`` (protobuf; schemas 0.0.1 to 0.0.4) or
``NAME.RANK.json`` (its JSON form), as MLCommons' converters, ASTRA-sim's generators and STG write them; in a folder,
with the groups' members as ASTRA-sim reads them in a JSON file beside, or one file alone.

A trace is a graph of nodes per rank. What of it becomes what, and what is assumed, says ``reader.py``.

Memory: some 800 B a node of all ranks, with its operations.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from manyscale.runner.readers.chakra.files import files_of, looks_like
from manyscale.runner.readers.options import DEFAULT_OPTIONS, ReadOptions

if TYPE_CHECKING:
    from manyscale.models.workload import Workload


def can_read(path: Path) -> bool:
    """Whether the path is a trace, or a folder of traces, named as Chakra's files are, with a file that begins as they
    do."""
    try:
        files = files_of(path)
        return bool(files) and looks_like(files[0].path)
    except OSError:
        return False


def read(path: Path, options: ReadOptions = DEFAULT_OPTIONS) -> Workload:
    """The workload. Raises UserError, one line with file and place, for what is no Chakra trace or contradicts
    itself."""
    from manyscale.runner.readers.chakra import reader

    return reader.read(path)
