"""Names and numbers of Paraver traces: Extrae's states, colours, event types and MPI calls.

Source: Extrae 4 (src/merger/paraver: MPI_EventEncoding.h, mpi_prv_events.c for the types of the calls, states.h and
labels.c), and the .pcf files that it wrote.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from manyscale.models.workload import OperationKind

POINT_TO_POINT: Final = 50000001
COLLECTIVE: Final = 50000002
OTHER: Final = 50000003
SEND_SIZE: Final = 50100001
RECEIVE_SIZE: Final = 50100002
ROOT: Final = 50100003
COMMUNICATOR: Final = 50100004

TASK_TYPE: Final = 60000023  # "Executed OpenMP task function" of Extrae 4 (TASKFUNC_EV), known to its configurations
TASK_INSTANCE: Final = 60000028  # "OMP task ID" of Extrae 4 (TASKID_EV)
CREATOR: Final = 63910001  # types of our own
MODEL: Final = 63910002
IPC: Final = 63910003
SINCE_CREATED: Final = 63910004
SINCE_READY: Final = 63910005
# PAPI's presets: 42000000 + their number (papiStdEventDefs.h)
INSTRUCTIONS: Final = 42000050
CYCLES: Final = 42000059
MISSES: Final = (42000000, 42000002, 42000004)  # data cache misses of levels 1 to 3
COUNTERS: Final = {
    INSTRUCTIONS: "PAPI_TOT_INS [Instructions completed]",
    CYCLES: "PAPI_TOT_CYC [Total cycles]",
    **{number: f"PAPI_L{level}_DCM [L{level} data cache misses]" for level, number in enumerate(MISSES, start=1)},
}

# state of a result -> state of Paraver
STATE_NUMBERS: Final = {"compute": 1, "send": 4, "receive": 3, "wait": 8, "collective": 13, "overhead": 15}

STATES: Final = (
    (0, "Idle", (117, 195, 255)),
    (1, "Running", (0, 0, 255)),
    (2, "Not created", (255, 255, 255)),
    (3, "Waiting a message", (255, 0, 0)),
    (4, "Blocking Send", (255, 0, 174)),
    (5, "Synchronization", (179, 0, 0)),
    (6, "Test/Probe", (0, 255, 0)),
    (7, "Scheduling and Fork/Join", (255, 255, 0)),
    (8, "Wait/WaitAll", (235, 0, 0)),
    (9, "Blocked", (0, 162, 0)),
    (10, "Immediate Send", (255, 0, 255)),
    (11, "Immediate Receive", (100, 100, 177)),
    (12, "I/O", (172, 174, 41)),
    (13, "Group Communication", (255, 144, 26)),
    (14, "Tracing Disabled", (2, 255, 177)),
    (15, "Others", (192, 224, 0)),
    (16, "Send Receive", (66, 66, 66)),
)

# event type -> (its label, MPI calls with their values)
_CALLS: Final[dict[int, tuple[str, dict[str, int]]]] = {
    POINT_TO_POINT: (
        "MPI Point-to-point",
        {
            "send": 1, "recv": 2, "isend": 3, "irecv": 4, "wait": 5, "waitall": 6, "bsend": 33, "ssend": 34,
            "ibsend": 36, "issend": 37, "sendrecv": 41, "waitany": 59,
        },
    ),
    COLLECTIVE: (
        "MPI Collective Comm",
        {
            "bcast": 7, "barrier": 8, "reduce": 9, "allreduce": 10, "alltoall": 11, "alltoallv": 12, "gather": 13,
            "gatherv": 14, "scatter": 15, "scatterv": 16, "allgather": 17, "allgatherv": 18, "scan": 30,
            "reduce_scatter": 80, "ireduce": 154, "iallreduce": 155, "ibarrier": 156, "ibcast": 157, "ialltoall": 158,
            "ialltoallv": 159, "iallgather": 160, "iallgatherv": 161, "igather": 162, "igatherv": 163,
            "iscatter": 164, "iscatterv": 165, "ireduce_scatter": 166, "iscan": 167, "exscan": 214, "iexscan": 215,
        },
    ),
    OTHER: ("MPI Other", {"init": 31, "finalize": 32, "test": 39, "other": 1000}),
}  # fmt: skip

# per OperationKind: (event type, value)
CALLS: Final = {
    OperationKind[name]: (event_type, value)
    for event_type, (_, calls) in _CALLS.items()
    for name, value in calls.items()
}

_OPTIONS: Final = """\
DEFAULT_OPTIONS

LEVEL               THREAD
UNITS               NANOSEC
LOOK_BACK           100
SPEED               1
FLAG_ICONS          ENABLED
NUM_OF_STATE_COLORS 1000
YMAX_SCALE          37


DEFAULT_SEMANTIC

THREAD_FUNC          State As Is


"""


def call_name(kind: OperationKind) -> str:
    """``MPI_Allreduce`` for ``allreduce``."""
    return f"MPI_{kind.name.capitalize()}"


def configuration() -> str:
    """The .pcf file: labels and colours of everything that the writer uses."""
    states = "".join(f"{number}    {name}\n" for number, name, _ in STATES)
    colours = "".join(f"{number}    {{{red},{green},{blue}}}\n" for number, _, (red, green, blue) in STATES)
    blocks = [f"STATES\n{states}", f"STATES_COLOR\n{colours}"]
    for event_type, (label, calls) in _CALLS.items():
        values = "".join(f"{value}   {call_name(OperationKind[name])}\n" for name, value in calls.items())
        blocks.append(f"EVENT_TYPE\n9    {event_type}    {label}\nVALUES\n{values}0   Outside MPI\n")
    blocks.append(
        "EVENT_TYPE\n"
        f"1    {SEND_SIZE}    Send Size in MPI Global OP\n"
        f"1    {RECEIVE_SIZE}    Recv Size in MPI Global OP\n"
        f"1    {ROOT}    Root in MPI Global OP\n"
        f"1    {COMMUNICATOR}    Communicator in MPI Global OP\n"
    )
    return _OPTIONS + "\n\n".join(blocks)


def of_instances(types: Sequence[str], models: Sequence[str]) -> str:
    """What stands behind it where cores are shown: names of task types and of models, and what is told of instances."""
    blocks = [
        _values(TASK_TYPE, "Task type", types),
        f"EVENT_TYPE\n0    {TASK_INSTANCE}    Task instance: instance_id + 1\n"
        f"0    {CREATOR}    Created by task instance: instance_id + 1\n"
        f"7    {SINCE_CREATED}    Task instance created before it began (ns)\n"
        f"7    {SINCE_READY}    Task instance ready before it began (ns)\n",
        _values(MODEL, "Model that its time is from", models),
        f"EVENT_TYPE\n7    {IPC}    IPC of the task instance x 1000\n",
        "EVENT_TYPE\n" + "".join(f"7    {number}    {name}\n" for number, name in COUNTERS.items()),
    ]
    return "\n\n" + "\n\n".join(blocks)


def _values(event_type: int, label: str, names: Sequence[str]) -> str:
    values = "".join(f"{number}   {' '.join(name.split())}\n" for number, name in enumerate(names, start=1))
    return f"EVENT_TYPE\n9    {event_type}    {label}\nVALUES\n0   End\n{values}"
