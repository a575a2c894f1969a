"""Programs of the suites that are small enough to be run each time, where their sources are at hand; and how the
results of two runs are compared."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import numpy as np
import pytest
import suite_hecbench
import suite_polybench
import suite_samples
import suites
from self_checking import Program, Suite
from tracing import nvcc, object_file

_SMALL = ((suite_samples.SUITE, "vectorAdd"), (suite_hecbench.SUITE, "flip"), (suite_polybench.SUITE, "gemm"))


@pytest.fixture(scope="session")
def checkouts() -> Path:
    """``MANYSCALE_CUDA_SUITES``: the folder of the checkouts."""
    folder = os.environ.get("MANYSCALE_CUDA_SUITES")
    if folder is None:
        pytest.skip("MANYSCALE_CUDA_SUITES names no folder with cuda-samples, HeCBench and PolyBench-ACC")
    if not Path(nvcc()[0]).is_file():
        pytest.skip("nvcc is not installed")
    return Path(folder)


@pytest.mark.slow
@pytest.mark.parametrize(("suite", "name"), _SMALL)
def test_programs_find_their_results_right(checkouts, tmp_path, suite: Suite, name: str):
    if not (checkouts / suite.checkout).is_dir():
        pytest.skip(f"{suite.checkout} is not in MANYSCALE_CUDA_SUITES")
    program = next(each for each in suite.programs if each.name == name)
    root = suites.checked_out(suite, program, checkouts, tmp_path)
    made = tmp_path / name / name
    made.parent.mkdir()
    kept = object_file("results.c", tmp_path)
    assert suites.compiled(suite, program, root, 3, [86], kept, made) == ""
    ran, results = suites.run(program, made, root, 86, 3, tmp_path)
    assert ran.problem is None
    assert ran.launches > 0
    assert results


def _kept(*values: np.ndarray) -> bytes:
    return b"".join(struct.pack("<q", each.nbytes) + each.tobytes() for each in values)


def test_results_are_compared_number_by_number():
    first = np.array([1.0, -8.0, 2.0, np.nan], np.float32)
    second = np.array([1.0, -8.0, 2.5, np.nan], np.float32)
    assert suites.difference(_kept(first), _kept(first.copy()), "f4") == 0
    assert suites.difference(_kept(first), _kept(second), "f4") == 0.5 / 8
    assert suites.difference(_kept(first), _kept(first, second), "f4") == np.inf
    second[0] = np.inf
    assert suites.difference(_kept(first), _kept(second), "f4") == np.inf


@pytest.mark.parametrize(("printed", "told", "status", "problem"), [
    ("Test passed\n", "", 0, None),
    ("Test passed\n", "", 3, "exit status 3"),
    ("done\n", "", 0, "its check did not pass"),
    ("Test passed, 2 mismatches\n", "", 0, "printed"),
    ("Test passed\n", "manyscale: one call failed [cuda-not-supported]\n", 0, "one call failed"),
])  # fmt: skip
def test_a_program_is_judged_by_its_own_check(printed, told, status, problem):
    found = suites.failure(Program("one", "folder"), printed, told, status)
    assert (found is None) if problem is None else (problem in str(found))
