"""Columns of Arrow made without pandas hold what pyarrow's own constructors make of the same values."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

from manyscale.models.workload.columns import flags_array, nullable_array, to_numpy


@pytest.mark.parametrize("count", [0, 1, 8, 13])
def test_flags(count):
    flags = np.arange(count) % 3 == 0
    assert flags_array(flags).equals(pa.array(flags))
    assert to_numpy(flags_array(flags)).tolist() == flags.tolist()


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.float64])
@pytest.mark.parametrize("nulls", [[], [0], [3, 9, 10], range(11)])
def test_numbers_with_nulls(dtype, nulls):
    values = np.arange(11).astype(dtype)
    is_null = np.isin(np.arange(11), list(nulls))
    found = nullable_array(values, is_null)
    found.validate(full=True)
    assert found.null_count == len(nulls)
    assert found.equals(pa.array(values, mask=is_null))


def test_a_run_of_streams_imports_no_pandas(tmp_path):
    program = (
        "import sys; from manyscale.runner.cli import main; status = main(sys.argv[1:]); "
        "print(status, 'pandas' in sys.modules)"
    )
    command = [sys.executable, "-c", program, "run", "dlrm-8", "-o", str(tmp_path / "run")]
    command += ["--cache", str(tmp_path / "cache")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "0 False"
