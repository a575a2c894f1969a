"""Where compiled kernels are kept: those that the build of the package compiled lie in it, those compiled since in the
user's cache directory.

A file holds one function for one signature. Its name tells the version of everything that it depends on: sources of the
function's module and of every module of manyscale that this one imports, directly or not; Numba, llvmlite, Python; the
processor. So a kernel is compiled again when any of these changes, a callee in another module included; equal sources
find the same file wherever they lie; and whoever writes a file writes the same. (Numba's own cache, ``cache=True``,
looks at the function's own file alone, and two processes that compile it for different signatures at a time may take
each other's code for theirs.)

The package may hold kernels for x86-64-v3: all x86 servers since 2015. Where it does, this level is asked for on every
processor that has it (within 8 % of the speed of kernels for the very processor, see tests/bench). ``NUMBA_CPU_NAME``
asks for another one, ``NUMBA_CACHE_DIR`` for another directory.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib
import operator
import os
import pickle
import re
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import llvmlite  # type: ignore[import-untyped]
import numba
from llvmlite import binding
from numba import types
from numba.core import caching, config, serialize
from numba.core.compiler import CompileResult
from numba.core.runtime import rtsys

from manyscale.models.kernels import quicker

SHIPPED: Final = Path(__file__).parent / "compiled"
LEVEL: Final = "x86-64-v3"
_STYLES: Final = "manyscale.models.kernels.styles"  # which imports this module
_LEVEL_NEEDS: Final = ("avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "xsave")
_LONGEST_WAIT_SECONDS: Final = 120.0  # for another process that compiles the same kernel
_DIGEST_BYTES: Final = 32  # SHA-256 of what follows, at the begin of each file
_UNUSED_DAYS: Final = 30  # after which a kernel is removed from the user's cache directory
_OWN_IMPORTS: Final = re.compile(
    r"^from (manyscale[\w.]*) import (\([^)]*\)|.*)|^import (manyscale[\w.]*)", re.MULTILINE
)


def _choose_processor() -> None:
    """Ask for the level of the shipped kernels, before anything is compiled."""
    if config.CPU_NAME is None and SHIPPED.is_dir():
        has = binding.get_host_cpu_features()
        if all(has.get(feature) for feature in _LEVEL_NEEDS):
            config.CPU_NAME, config.CPU_FEATURES = LEVEL, ""


_choose_processor()


def njit(function: Callable[..., Any] | None = None, *, cache: bool = False, **options: Any) -> Any:
    """``numba.njit``, whose ``cache`` is the one described above. A kernel that is kept cannot be a closure."""
    if function is None:
        return partial(njit, cache=cache, **options)
    kernel = numba.njit(**options)(function)
    if cache and kernel is not function:  # NUMBA_DISABLE_JIT gives the function back
        if function.__closure__ is not None:
            raise ValueError(f"{function.__qualname__}: a kernel that is kept must not refer to a function's variables")
        kernel._cache = KernelCache(function)
    return kernel


@cache
def environment() -> str:
    """The folder of kernels that fit this process."""
    processor = config.CPU_NAME or binding.get_host_cpu_name()
    python = ".".join(map(str, sys.version_info[:2])) + sys.abiflags
    return f"{processor}-python{python}-numba{numba.__version__}-llvmlite{llvmlite.__version__}"


@cache
def folder() -> Path:
    """Where kernels are kept that this process compiles."""
    chosen = config.CACHE_DIR or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "manyscale", "kernels"
    )
    return Path(chosen, environment())


def sources_digest(module: str) -> str:
    """Of the sources of a module, of all modules of manyscale that it imports, directly or not, and of what decorates
    kernels."""
    reached, rest = set(), [module, _STYLES]
    importlib.import_module(_STYLES)
    while rest:
        name = rest.pop()
        if name not in reached:
            reached.add(name)
            rest += _source(name)[1]
    return hashed("".join(f"{name} {_source(name)[0]}" for name in sorted(reached)))


@cache
def _source(module: str) -> tuple[str, tuple[str, ...]]:
    """The digest of a module's source, and what it imports of manyscale. A name that is imported from a package may be
    a module of it."""
    file = getattr(sys.modules[module], "__file__", None)
    if file is None:
        return "", ()
    text = Path(file).read_text("utf-8")
    imported: list[str] = []
    for package, names, plain in _OWN_IMPORTS.findall(text):
        imported.append(package or plain)
        held = vars(sys.modules[package]) if package else {}
        plain_names = re.sub(r"#.*", "", names)
        modules = [held.get(name) for name in re.findall(r"(\w+)(?:\s+as\s+\w+)?", plain_names)]
        imported += [module.__name__ for module in modules if isinstance(module, ModuleType)]
    return hashed(text), tuple(name for name in imported if name in sys.modules)


def hashed(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def described(kind: Any) -> str:
    """A type's text, the same in every process. A named tuple, by itself or by reference (references.py), stands for
    its class, on which it may depend which functions are called."""
    held = getattr(kind, "held", None)
    if held is not None:
        return f"{kind} of {described(held)}"
    if isinstance(kind, types.BaseTuple):
        parts = ", ".join(described(part) for part in kind)
        own = getattr(kind, "instance_class", None)
        of = "" if own is None else f"{own.__module__}.{own.__qualname__} {sources_digest(own.__module__)}"
        return f"{of}({parts})"
    return str(kind)


_by_name: dict[str, tuple[Any, Any]] = {}  # functions that others refer to by these names: dispatcher, signature


def refer_by_name(name: str, kernel: Any, signature: Any) -> None:
    """What calls the kernel refers to ``name``, which is no name of Numba's."""
    _by_name[name] = kernel, signature


def link_by_name(kernel: Any) -> None:
    """What calls the kernel, as far as it is compiled, refers to its code by name and holds no copy of it."""
    for signature, result in kernel.overloads.items():
        name = result.fndesc.llvm_func_name
        if name not in _by_name:
            _by_name[name] = kernel, signature
            for _, function in kernel.targetctx._defns[result.entry_point].versions:
                function.libs = ()


class KernelCache(caching._Cache):
    """The compiled forms of one function, as Numba asks for them."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._folder = folder()
        self._locks: dict[Path, int] = {}

    @property
    def cache_path(self) -> str:
        return str(self._folder)

    def enable(self) -> None:
        """There is nothing to prepare."""

    disable = flush = enable

    def load_overload(self, signature: Any, context: Any) -> Any:
        """What was compiled, or None: this process is then to compile and save it, while others wait for that."""
        rtsys.initialize(context)  # what code refers to; all that it takes to compile is loaded where this is done
        name = self._name(signature, context.codegen())
        path = self._folder / name
        found = _load(SHIPPED / environment() / name, context)
        if found is None:
            found = _load(path, context)
            _note_use(path)
        if found is None and self._lock(path):
            found = _load(path, context)  # another process may just have saved it
            if found is not None:
                self._release(path)
        return found

    def save_overload(self, signature: Any, result: Any) -> None:
        """Keep what was compiled."""
        path = self._folder / self._name(signature, result.codegen)
        if result.library.has_dynamic_globals or any(not lifted.can_cache for lifted in result.lifted):
            place = f"{self._function.__module__}.{self._function.__qualname__}"
            warnings.warn(f"{place} holds addresses, so it is compiled in each process", stacklevel=2)
        elif path in self._locks:
            try:
                with tempfile.NamedTemporaryFile(dir=self._folder, delete=False) as file:
                    code, *others = result._reduce()
                    kept = quicker.kept_code(result.library, code), *others
                    content = serialize.dumps((_needs(result.library), serialize.dumps(kept)))
                    file.write(hashlib.sha256(content).digest() + content)
                os.replace(file.name, path)
            except OSError as error:
                _warn_of_folder(error)
        self._release(path)

    def _name(self, signature: Any, codegen: Any) -> str:
        function = self._function
        flags = config.OPT, config.BOUNDSCHECK, config.DEBUGINFO_DEFAULT
        compiled_as = f"{codegen.magic_tuple()} {flags} {', '.join(map(described, signature))}"
        place = f"{function.__module__}.{function.__qualname__}-{function.__code__.co_firstlineno}"
        return f"{place}-{sources_digest(function.__module__)}-{hashed(compiled_as)}.nbc"

    def _lock(self, path: Path) -> bool:
        """Be the one process that compiles this kernel, or wait for the one that does. Without a folder to write to
        there is none to wait for."""
        if path in self._locks:
            return True
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            _remove_unused()
            lock = os.open(path.with_suffix(".lock"), os.O_CREAT | os.O_RDWR)
        except OSError as error:
            _warn_of_folder(error)
            return False
        self._locks[path] = lock
        end = time.monotonic() + _LONGEST_WAIT_SECONDS
        while time.monotonic() < end:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(0.02)
            except OSError:  # a file system without locks: both compile
                break
        return True

    def _release(self, path: Path) -> None:
        lock = self._locks.pop(path, None)
        if lock is not None:
            path.with_suffix(".lock").unlink(missing_ok=True)
            os.close(lock)


def _load(path: Path, context: Any) -> Any:
    """What the file holds; None where it or what its code refers to is not there, or where it is damaged."""
    try:
        held = path.read_bytes()
    except OSError:
        return None
    digest, content = held[:_DIGEST_BYTES], held[_DIGEST_BYTES:]
    if hashlib.sha256(content).digest() != digest:
        return None
    needs, content = pickle.loads(content)
    for name, module, place, signature in needs:
        kernel = operator.attrgetter(place)(importlib.import_module(module))
        if hasattr(kernel, "stand_in"):
            if kernel.stand_in(context, signature) != name:
                return None
            continue
        kernel.compile(signature)
        link_by_name(kernel)
        if name not in _by_name:  # compiled again since, so it has another name
            return None
    return CompileResult._rebuild(context, *pickle.loads(content))


def _needs(library: Any) -> list[tuple[str, str, str, Any]]:
    """The functions that the code refers to by name: name, where they are, and their signature."""
    needs = []
    for function in library._final_module.functions:
        if function.is_declaration and function.name in _by_name:
            kernel, signature = _by_name[function.name]
            needs.append((function.name, kernel.py_func.__module__, kernel.py_func.__qualname__, signature))
    return needs


def _note_use(path: Path) -> None:
    """Daily, for ``_remove_unused``."""
    with suppress(OSError):
        if path.stat().st_mtime < time.time() - 86400:
            os.utime(path)


@cache
def _remove_unused() -> None:
    """Once in a process that compiles: remove what none has used for long, of former versions mostly."""
    oldest = time.time() - 86400 * _UNUSED_DAYS
    for file in folder().parent.glob("*-python*-numba*-llvmlite*/manyscale.*"):  # others may keep theirs beside
        with suppress(OSError):
            if file.stat().st_mtime < oldest:
                file.unlink()


def _warn_of_folder(error: OSError) -> None:
    reason = f"{folder()}: {error.strerror}; kernels are compiled anew at each start, since none can be kept there"
    warnings.warn(reason, stacklevel=2)
