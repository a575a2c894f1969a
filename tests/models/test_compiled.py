"""Where compiled kernels are kept, and when they are compiled again."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import forked
import numba
import numpy as np
import pytest
from numba.core import caching, codegen, compiler, config, dispatcher, event

from manyscale.models.cpu import branch_predictor
from manyscale.models.kernels import compiled
from manyscale.models.kernels.references import Placed

ROOT = Path(__file__).parents[2]
CALLEE = """
from manyscale.models.kernels import njit
STEP = 1

@njit(cache=True)
def add(value):
    return value + STEP
"""
CALLER = """
import sys
from numba.core import event
from manyscale.models.kernels import njit
from manyscale.callee import add

class Counting(event.Listener):
    started = 0
    def on_start(self, event):
        Counting.started += 1
    def on_end(self, event):
        pass

event.register("numba:compile", Counting())

@njit(cache=True)
def twice(value):
    return 2 * add(value)

print(twice(10), Counting.started)
"""


def run(folder: Path, step: int) -> list[int]:
    """What a program of two modules prints: a result, and the number of compilations. The modules are manyscale's, in a
    folder that comes before its others."""
    (folder / "callee.py").write_text(CALLEE.replace("STEP = 1", f"STEP = {step}"))
    (folder / "caller.py").write_text(CALLER)
    program = f"import manyscale; manyscale.__path__.insert(0, {str(folder)!r}); import manyscale.caller"
    done = forked.run(program, folder=folder, kernels=folder / "kept", check=True)
    return [int(word) for word in done.stdout.split()]


def test_a_changed_constant_of_another_module_compiles_its_callers_again(tmp_path: Path) -> None:
    assert run(tmp_path, step=1) == [22, 2]
    assert run(tmp_path, step=1) == [22, 0]
    assert run(tmp_path, step=5) == [30, 2]
    assert run(tmp_path, step=1) == [22, 0], "what was compiled before is still there"


def test_a_tuple_stands_for_the_sources_of_its_class_by_reference_too() -> None:
    """A kernel that finds its functions by the class of what it is handed (node/loop_watch.py) is compiled again once
    these change."""
    held = branch_predictor.Predictor(*(np.zeros(3) for _ in branch_predictor.Predictor._fields))
    own = f"{branch_predictor.__name__}.Predictor {compiled.sources_digest(branch_predictor.__name__)}"
    assert own in compiled.described(numba.typeof(held))
    assert own in compiled.described(numba.typeof(Placed(held)))
    assert own in compiled.described(numba.typeof((1, Placed(held))))


def test_a_damaged_file_is_compiled_again(tmp_path: Path) -> None:
    run(tmp_path, step=1)
    for file in (tmp_path / "kept").rglob("*.nbc"):
        held = bytearray(file.read_bytes())
        held[len(held) // 2] ^= 1  # in the code: it could run, and give another number
        file.write_bytes(held if "twice" in file.name else b"")
    assert run(tmp_path, step=1) == [22, 2]


def test_only_kernels_of_former_times_are_removed(tmp_path: Path) -> None:
    """The folder may be one where others keep what they compile, too."""
    run(tmp_path, step=1)
    (kernel,) = (tmp_path / "kept").glob("*/*twice*.nbc")
    of_others = [tmp_path / "kept" / name for name in ("other_0123/index.nbi", "notes/manyscale.txt")]
    former = [kernel.with_name(f"manyscale.former-{number}.nbc") for number in range(2)]
    for file in (*of_others, *former):
        file.parent.mkdir(exist_ok=True)
        file.write_text("")
        os.utime(file, (0, 0))
    run(tmp_path, step=2)
    assert all(file.exists() for file in of_others)
    assert not any(file.exists() for file in former)


def test_where_nothing_can_be_kept_kernels_are_compiled(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("no folder can be made here")
    assert run(tmp_path, step=1) == [22, 2]
    assert run(tmp_path, step=1) == [22, 2]


def test_two_processes_compile_a_kernel_once(tmp_path: Path) -> None:
    (tmp_path / "callee.py").write_text(CALLEE)
    (tmp_path / "caller.py").write_text(CALLER)
    program = f"import manyscale; manyscale.__path__.insert(0, {str(tmp_path)!r}); import manyscale.caller"
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "kept")}
    command = [sys.executable, "-c", program]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) for _ in range(2)]
    counts = [int(process.communicate()[0].split()[1]) for process in both]
    assert sum(counts) == 2
    assert not list((tmp_path / "kept").rglob("*.lock"))


def test_what_else_is_loaded_does_not_change_a_digest() -> None:
    """Else a wheel's kernels, which a process with all modules copies, are not those that a command looks for. The
    module imports one under the name of another."""
    program = """
from manyscale.models.cpu import branch_predictor
from manyscale.models.kernels import compiled
from manyscale.models.kernels.references import Placed
import manyscale.models.node.detailed_kernel as module
alone = compiled.sources_digest(module.__name__)
import manyscale.models.cpu.dataflow
compiled._source.cache_clear()
print(alone == compiled.sources_digest(module.__name__))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"


def test_a_kernel_cannot_be_a_closure() -> None:
    step = 1
    with pytest.raises(ValueError, match="function's variables"):
        compiled.njit(cache=True)(lambda value: value + step)


def test_numba_is_in_the_range_that_was_tested() -> None:
    """And has the parts that are not its documented ones: a newer version is first tried with these tests."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (wanted,) = [line for line in project["dependencies"] if line.startswith("numba")]
    least, below = re.fullmatch(r"numba>=([\d.]+),<([\d.]+)", wanted).groups()  # type: ignore[union-attr]
    assert _numbers(least) <= _numbers(numba.__version__) < _numbers(below)
    missing = {"load_overload", "save_overload", "enable", "disable", "flush"} - set(dir(caching._Cache))
    assert not missing
    assert {"_reduce", "_rebuild"} <= set(dir(compiler.CompileResult))
    assert hasattr(codegen.JITCPUCodegen, "magic_tuple")
    assert {"CPU_NAME", "CPU_FEATURES", "CACHE_DIR", "OPT", "BOUNDSCHECK", "DEBUGINFO_DEFAULT"} <= set(dir(config))
    assert "self._cache.load_overload" in inspect.getsource(dispatcher.Dispatcher.compile)
    assert hasattr(event, "register")


def _numbers(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", version)[:2]]
