"""Reader for Paraver traces: a ``.prv`` file, plain or compressed, with or without ``.pcf`` beside it, or a folder that
holds one.

What Extrae writes (checked against its traces from 2004 to 2022, and those of the cutter). One application is read, a
rank per task, from the first thread of each. Formats and rules stand in the modules that hold them: prv_header,
prv_records, prv_labels, prv_calls, prv_messages, prv_collectives, prv_operations.

* Operations are the MPI calls (events 50000001 to 50000005), with their measured times from the trace's zero. A call
  that is none of our operations becomes ``other``.
* Compute before a call is the time in state Running since the call before; without states all the time. What else the
  program did (synchronisation and scheduling of threads, input and output) is a phase of kind sleep: it does not scale
  with the speed of the cores. The tracer's own time, and that before a rank is created, is left out.
* Counters are those of the intervals in state Running.
* The communicator of a message is not recorded: all are on the world.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from manyscale.runner.errors import UserError
from manyscale.runner.readers.archive import open_stream
from manyscale.runner.readers.options import DEFAULT_OPTIONS, ReadOptions

if TYPE_CHECKING:
    from manyscale.models.workload import Workload

_MAGIC: Final = b"#Paraver ("
OPTIONS: Final = ("application",)  # of a study's workload, that `read` takes


def _traces(folder: Path) -> list[Path]:
    """The traces in a folder, but for that of a run's directory, which is a prediction."""
    if (folder / "resolved.yaml").exists():
        return []
    return sorted(each for each in folder.glob("*.prv*") if each.suffix == ".prv" or each.suffixes[-2:-1] == [".prv"])


def can_read(path: Path) -> bool:
    """Whether the file, or one in the folder, starts as a Paraver trace does."""
    try:
        if path.is_dir():
            return any(can_read(each) for each in _traces(path) if each.is_file())
        with open_stream(path) as stream:
            return stream.read(len(_MAGIC)) == _MAGIC
    except Exception:  # whatever is wrong with it, it is not for this reader to say
        return False


def reads_one_file(path: Path) -> bool:
    return path.is_file()


def read(path: Path, options: ReadOptions = DEFAULT_OPTIONS) -> Workload:
    """The workload of ``options.application``. Memory: that of the tables and the trace's messages and states, not of
    the text. Raises UserError, one line with the file and the line in it, for anything that cannot be read."""
    from manyscale.runner.readers.paraver import reader

    if path.is_dir():
        found = _traces(path)
        if len(found) != 1:
            listed = ", ".join(each.name for each in found[:5])
            raise UserError(f"{path}: holds {len(found)} Paraver traces ({listed}); name the one to read")
        path = found[0]
    return reader.read(path, options)
