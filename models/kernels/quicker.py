"""What Numba does slowly, done quickly, with the same outcome: Python's part of compiling, which is the larger one.

Each of these was most of what a profile of `run bfs-16` without kept kernels showed of its part; tests/models/kernels
hold them against Numba's own. What Numba may change of itself, the bound on its version in pyproject.toml keeps.
"""

from __future__ import annotations

import copy
import sys
from functools import partial
from types import SimpleNamespace
from typing import Any, Final

from llvmlite.binding import parse_bitcode  # type: ignore[import-untyped]
from numba.core import inline_closurecall, ir
from numba.core.codegen import CPUCodeLibrary
from numba.core.cpu import CPUContext
from numba.core.runtime import nrtdynmod, rtsys
from numba.core.targetconfig import TargetConfig

_WITHOUT_COPIES: Final = SimpleNamespace(deepcopy=lambda held: held, copy=copy.copy)


def flags_are_equal(one: Any, other: Any) -> Any:
    """Whether two sets of flags, with which functions are compiled, say the same.

    Numba looks for a function's typing by its flags, at every operator of a kernel, and for each hash and comparison of
    them asks for some thirty by name. These are those that are set; others have their class's defaults.
    """
    if one is other:
        return True
    if type(one) is not type(other):
        return _equal_by_name(one, other)
    return one._values == other._values or _set_flags(one) == _set_flags(other)


def _set_flags(flags: Any) -> dict[str, Any]:
    options = flags.options
    return {name: value for name, value in flags._values.items() if value != options[name].default}


def variables_of(instruction: Any, held: Any) -> list[Any]:
    """Variables in what an instruction holds, in order: what Numba asks of every statement some ten times."""
    found: list[Any] = []
    _add_variables(instruction, held, found)
    return found


def _add_variables(instruction: Any, held: Any, found: list[Any]) -> None:
    kind = type(held)
    if kind is ir.Var:
        found.append(held)
    elif kind is dict:
        for value in held.values():
            if type(value) not in _PLAIN:
                _add_variables(instruction, value, found)
    elif kind is list or kind is tuple:
        for value in held:
            if type(value) not in _PLAIN:
                _add_variables(instruction, value, found)
    elif kind is ir.Expr:
        _add_variables(instruction, held._kws, found)
    elif kind not in _PLAIN:
        found += _variables_by_kind(instruction, held)


def inline_function(worker: Any, caller: Any, block: Any, place: int, function: Any, arg_typs: Any = None) -> Any:
    """Put a function into a block of its caller. Numba copies the function twice more, though it was made for this, and
    with each of its blocks copies all variables of the function."""
    callee = worker.run_untyped_passes(function)
    names: Any = inline_closurecall
    names.copy = _WITHOUT_COPIES
    try:
        return worker.inline_ir(caller, block, place, callee, function.__code__.co_freevars, arg_typs=arg_typs)
    finally:
        names.copy = copy


def load_registries(context: Any) -> None:
    """Load all that Numba can compile, without scipy's BLAS behind its array functions: these look for it when they are
    loaded, which takes a quarter of a second and serves only covariances in compiled code; matrix products look for it
    again themselves."""
    if not {"numba.np.arraymath", "scipy.linalg.cython_blas"} & sys.modules.keys():
        from numba.np import linalg

        names: Any = linalg
        own, names.ensure_blas = linalg.ensure_blas, _refuse_blas
        try:
            import numba.np.arraymath  # noqa: F401
        finally:
            names.ensure_blas = own
    _load_registries(context)


def _refuse_blas() -> None:
    raise ImportError("not looked for yet")


def counting(context: Any) -> Any:
    """What makes the functions that count references, which Numba compiles anew in every process. Kernels that were
    kept have them in their code, so they are made when something is compiled."""
    return partial(_compiled_counting, context)


def counting_of(runtime: Any) -> Any:
    runtime._init_guard()
    if isinstance(runtime._library, partial):
        runtime._library = runtime._library()
    return runtime._library


def kept_code(library: Any, state: Any) -> Any:
    """What is kept of a kernel: to Numba's ``state`` of it, its code and that for its callers, comes what it defines.
    What other packages keep stays as Numba reads it in processes without this one."""
    name, kind, (code, of_callers) = state
    module = library._get_module_for_linking()
    defined = (each for group in (module.functions, module.global_variables) for each in group)
    return name, kind, (code, of_callers, sorted(each.name for each in defined if not each.is_declaration))


def rebuilt(cls: Any, codegen: Any, state: Any) -> Any:
    """A function that was kept. What callers take of a kernel when they are compiled is parsed then: it is as large as
    the code, and a process that compiles nothing never needs it."""
    name, _, data = state
    if not isinstance(data, tuple) or len(data) != 3:  # Numba's own
        return _rebuilt(cls, codegen, state)
    library = codegen.create_library(name)
    library.enable_object_caching()
    library._set_compiled_object(data[0])
    library._shared_module = data[1]
    library._finalize_final_module()
    codegen._engine._defined_symbols.update(data[2])
    return library


def for_callers(library: Any) -> Any:
    if isinstance(library._shared_module, bytes):
        library._shared_module = parse_bitcode(library._shared_module)
    return _for_callers(library)


_PLAIN: Final = frozenset({ir.Loc, str, int, bool, type(None), float, type(ir.UNDEFINED)})
_equal_by_name: Final = TargetConfig.__eq__
_variables_by_kind: Final = ir.Inst._rec_list_vars
_load_registries: Final = CPUContext.load_additional_registries
_compiled_counting: Final = nrtdynmod.compile_nrt_functions
_rebuilt: Final = CPUCodeLibrary._unserialize.__func__
_for_callers: Final = CPUCodeLibrary._get_module_for_linking


def take_effect() -> None:
    """Have Numba use them."""
    flags: Any = TargetConfig
    flags.__eq__, flags.__hash__ = flags_are_equal, lambda self: hash(type(self))
    instruction: Any = ir.Inst
    instruction._rec_list_vars = variables_of
    worker: Any = inline_closurecall.InlineWorker
    worker.inline_function = inline_function
    context: Any = CPUContext
    context.load_additional_registries = load_registries
    library: Any = CPUCodeLibrary
    library._unserialize, library._get_module_for_linking = classmethod(rebuilt), for_callers
    runtime: Any = type(rtsys)
    nrtdynmod.compile_nrt_functions, runtime.library = counting, property(counting_of)
