"""Labels from .pcf files, and what calls are named by them."""

from __future__ import annotations

import numpy as np
import pytest

from manyscale.models.workload import OperationKind
from manyscale.runner.readers.paraver.calls import name_calls
from manyscale.runner.readers.paraver.label_files import Labels, labels_beside, parse_labels
from manyscale.runner.readers.paraver.records import COLLECTIVE, END, INPUT_OUTPUT, OTHER, POINT_TO_POINT

TEXT = """\
DEFAULT_OPTIONS

LEVEL               THREAD

STATES
0    Idle

EVENT_TYPE
0    70000001    Caller at level 1
0\t70000002\tCaller at level 2
VALUES
0   End
5 main

EVENT_TYPE
7  42000050 PAPI_TOT_INS [Instr completed]
7  42001047 RESOURCE_STALLS

EVENT_TYPE
9   50000001    MPI Point-to-point
VALUES
7   MPI_Isend
0   Outside MPI
GRADIENT_COLOR
0    {0,255,2}
"""


def test_types_that_share_values():
    labels = parse_labels(TEXT)
    assert labels.value(70000001, 5) == labels.value(70000002, 5) == "main"
    assert labels.value(50000001, 7) == "MPI_Isend"
    assert labels.value(50000001, 8) is None
    assert [labels.counter(event) for event in (42000050, 42001047, 42000059, 42009999)] == [
        "PAPI_TOT_INS", "RESOURCE_STALLS", "PAPI_TOT_CYC", "counter 42009999"
    ]  # fmt: skip


def test_no_file_no_labels(tmp_path):
    assert labels_beside(tmp_path / "trace.prv.gz") == Labels()
    (tmp_path / "trace.pcf").write_text(TEXT)
    assert labels_beside(tmp_path / "trace.prv.gz").types[42001047] == "RESOURCE_STALLS"


@pytest.mark.golden
@pytest.mark.parametrize(
    ("group", "value", "kind"),
    [
        (POINT_TO_POINT, 1, "send"), (POINT_TO_POINT, 35, "send"), (POINT_TO_POINT, 38, "isend"),
        (POINT_TO_POINT, 42, "sendrecv"), (POINT_TO_POINT, 60, "waitall"), (OTHER, 125, "test"), (OTHER, 31, "init"),
        (COLLECTIVE, 168, "reduce_scatter"), (COLLECTIVE, 170, "alltoallv"), (COLLECTIVE, 157, "ibcast"),
        (OTHER, 43, "other"), (INPUT_OUTPUT, 143, "other"), (END, 0, "other"),
    ],
)  # fmt: skip
def test_numbers_of_extrae(group, value, kind):
    calls = name_calls(np.array([group], np.int8), np.array([value], np.int32), Labels())
    assert OperationKind(int(calls.kind[0])).name == kind


def test_the_traces_own_names_go_first():
    calls = name_calls(np.array([POINT_TO_POINT] * 2, np.int8), np.array([7, 61], np.int32), parse_labels(TEXT))
    assert calls.kind.tolist() == [OperationKind.isend, OperationKind.other]
    assert calls.others == {"probe": 1}
