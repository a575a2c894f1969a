"""What stands for parts of Numba (models/kernels/quicker.py) against those parts."""

from __future__ import annotations

import copy
import ctypes
import itertools
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from numba import njit
from numba.core import compiler, inline_closurecall, ir
from numba.core.codegen import JITCPUCodegen
from numba.core.compiler import Flags, run_frontend
from numba.core.inline_closurecall import InlineWorker

from manyscale.models.kernels import quicker, styles


def program(values: Any, limit: Any) -> Any:
    total = 0
    for index, value in enumerate(values):
        if value > limit and index % 3:
            total += max(value, limit, key=abs) * values[index - 1 : index + 1].sum()
        else:
            total -= (value, [limit, total], {"a": index})[0]
    return total


def test_variables_of_a_statement() -> None:
    """By ``isinstance`` at every level, as Numba does."""

    def of(held: Any) -> list[Any]:
        if isinstance(held, ir.Var):
            return [held]
        if isinstance(held, ir.Inst):
            return of(held._kws if isinstance(held, ir.Expr) else held.__dict__)
        parts = held.values() if isinstance(held, dict) else held if isinstance(held, (list, tuple)) else ()
        return list(itertools.chain.from_iterable(map(of, parts)))

    assert quicker.variables_of is ir.Inst._rec_list_vars
    statements = [each for block in run_frontend(program).blocks.values() for each in block.body]
    assert len(statements) > 40
    for each in statements:
        assert [id(one) for one in each.list_vars()] == [id(one) for one in of(each)], each


def test_flags_are_equal_where_all_that_they_say_is() -> None:
    assert styles.quicker is quicker  # has taken effect
    one, other = Flags(), Flags()
    steps: list[tuple[Flags, str, bool, bool]] = [
        (one, "nrt", False, True),  # as by default
        (one, "nrt", True, False),
        (other, "forceinline", True, False),
        (other, "nrt", True, False),
        (one, "forceinline", True, True),
    ]
    for flags, name, value, is_equal in steps:
        setattr(flags, name, value)
        assert (one == other) is is_equal is (one.values() == other.values())
        assert not is_equal or hash(one) == hash(other)
    assert one != compiler.DEFAULT_FLAGS
    assert one != "flags"


@njit(inline="always")
def _sum(a: Any, b: Any) -> Any:
    total = a
    for i in range(b):
        if i % 2:
            total += i
        else:
            total -= 1
    return total


@njit
def _sums(a: Any, b: Any) -> Any:
    return _sum(a, b) + _sum(b, a)


@pytest.mark.parametrize(("a", "b"), [(0, 0), (3, 8), (9, 1)])
def test_what_is_put_into_its_callers_computes_the_same(a: int, b: int) -> None:
    assert InlineWorker.inline_function is quicker.inline_function
    assert _sums(a, b) == _sum.py_func(a, b) + _sum.py_func(b, a)
    assert inline_closurecall.copy is copy


@njit("int64(int64)")
def _thrice(value: Any) -> Any:
    return 3 * value


def test_what_other_packages_keep_is_read_and_written_as_by_numba() -> None:
    """Processes with and without manyscale share their files."""
    (result,) = _thrice.overloads.values()
    state = result.library.serialize_using_object_code()
    assert [type(part) for part in state[2]] == [bytes, bytes]  # code, and that for callers: Numba takes no more
    read = JITCPUCodegen("another process").unserialize_library(state)
    assert not read._get_module_for_linking().get_function(result.fndesc.llvm_func_name).is_declaration
    function = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(
        read.get_pointer_to_function(result.fndesc.llvm_cfunc_wrapper_name)
    )
    assert function(14) == 42


KEPT = """
import sys
import numpy as np
from manyscale.models.kernels import njit

@njit(cache=True)
def doubled(values):
    return values * 2

@njit(cache=True)
def total(values):
    return doubled(values).sum()

if sys.argv[1] == "callee":
    assert doubled(np.arange(4)).tolist() == [0, 2, 4, 6]
else:
    assert total(np.arange(4)) == 12
from numba.core.runtime import rtsys
print(type(rtsys._library).__name__)
"""


@pytest.mark.slow
def test_a_kept_kernel_is_loaded_without_what_compiling_needs_and_compiled_into_callers(tmp_path: Path) -> None:
    """Its array comes from the functions that count references, and goes to Python and to a caller."""
    (tmp_path / "kept.py").write_text(KEPT)

    def run(word: str) -> str:
        environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}
        command = [sys.executable, str(tmp_path / "kept.py"), word]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.split()[0]

    made = [run(word) for word in ("callee", "callee", "caller", "caller")]
    assert made == ["JITCodeLibrary", "partial", "JITCodeLibrary", "partial"]
