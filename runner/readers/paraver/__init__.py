"""Reader for Paraver traces: a ``.prv`` file, plain or compressed, with or without ``.pcf`` beside it.

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

from manyscale.runner.readers.archive import open_stream
from manyscale.runner.readers.options import DEFAULT_OPTIONS, ReadOptions

if TYPE_CHECKING:
    from manyscale.models.workload import Workload

_MAGIC: Final = b"#Paraver ("
OPTIONS: Final = ("application",)  # of a study's workload, that `read` takes


def can_read(path: Path) -> bool:
    """Whether the file starts as a Paraver trace does."""
    try:
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

    return reader.read(path, options)
