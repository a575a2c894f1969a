"""Kernels that few calls need, which are compiled once one of these does.

What calls such a kernel refers by name to a function that goes where a word says. ``want`` compiles the kernel, for all
kinds of arguments that its callers have, and sets the word. Who never wants it never pays for its compilation, and
nobody compiles the callers again.
"""

from __future__ import annotations

import ctypes
import inspect
from collections.abc import Callable
from typing import Any, Final

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.core.compiler_lock import global_compiler_lock
from numba.extending import intrinsic

from manyscale.models.kernels.compiled import described, hashed, refer_by_name

_NOT_WANTED: Final = ctypes.cast(ctypes.CDLL(None).abort, ctypes.c_void_p)
_KINDS: Final = {"nothing": types.none, "int": types.int64, "bool": types.boolean}


class Seldom:
    """A ``kernel`` that ``gives`` nothing, an int or a bool; ``widest``: the kind of argument that stands
    for others."""

    def __init__(self, kernel: Any, gives: str, widest: Callable[[Any], Any]) -> None:
        self._kernel, self._gives, self._widest = kernel, _KINDS[gives], widest
        self._forms: dict[tuple[Any, ...], tuple[str, Any, Any]] = {}  # name, word, library
        self._is_wanted = False

    def call(self) -> Any:
        """What kernels call."""

        def typed(_: Any, *arguments: Any) -> Any:
            return self._gives(*map(self._widest, arguments)), self._lowered

        function = self._kernel.py_func
        parameters = [
            inspect.Parameter(name, inspect.Parameter.POSITIONAL_ONLY)
            for name in ("_", *inspect.signature(function).parameters)
        ]
        typed.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        typed.__module__, typed.__qualname__, typed.__name__ = (
            function.__module__,
            function.__qualname__,
            function.__name__,
        )
        made = intrinsic(typed)
        made.stand_in, made.want, made.py_func = self.stand_in, self.want, function
        return made

    def _lowered(self, context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        name = self.stand_in(context, signature.args)
        kind = context.call_conv.get_function_type(signature.return_type, signature.args)
        function = cgutils.get_or_insert_function(builder.module, kind, name)
        status, result = context.call_conv.call_function(
            builder, function, signature.return_type, signature.args, arguments
        )
        with cgutils.if_unlikely(builder, status.is_error):
            context.call_conv.return_status_propagate(builder, status)
        return context.get_dummy_value() if signature.return_type == types.none else result

    def stand_in(self, context: Any, arguments: tuple[Any, ...]) -> str:
        """The name of what stands for the kernel in callers that hand on ``arguments`` of these kinds."""
        if arguments not in self._forms:
            function = self._kernel.py_func
            place = f"{function.__module__}.{function.__qualname__}"
            name = f"seldom.{place}.{hashed(', '.join(map(described, arguments)))}"
            word = ctypes.c_void_p(_NOT_WANTED.value)
            library = _jump(context, name, context.call_conv.get_function_type(self._gives, arguments), word)
            self._forms[arguments] = name, word, library
            refer_by_name(name, self._kernel, arguments)
            if self._is_wanted:
                self._compile(arguments)
        return self._forms[arguments][0]

    def want(self) -> None:
        """To be called before a kernel that is going to call this one. A thread waits for another that compiles."""
        with global_compiler_lock:
            if not self._is_wanted:
                self._is_wanted = True
                for arguments in self._forms:
                    self._compile(arguments)

    def _compile(self, arguments: tuple[Any, ...]) -> None:
        self._kernel.compile(arguments)
        result = self._kernel.overloads[arguments]
        if result.signature.return_type != self._gives:
            raise TypeError(
                f"{self._kernel.py_func.__qualname__} gives {result.signature.return_type}, not {self._gives}"
            )
        self._forms[arguments][1].value = result.library.get_pointer_to_function(result.fndesc.llvm_func_name)


def _jump(context: Any, name: str, kind: Any, word: Any) -> Any:
    """A library with the function ``name``, which calls what ``word`` points to."""
    module = ir.Module(name)
    function = ir.Function(module, kind, name)
    builder = ir.IRBuilder(function.append_basic_block())
    address = ir.Constant(ir.IntType(64), ctypes.addressof(word)).inttoptr(kind.as_pointer().as_pointer())
    builder.ret(builder.call(builder.load(address), function.args, tail=True))
    codegen = context.codegen()
    library = codegen.create_library(name)
    of_numba = library.create_ir_module(name)
    module.triple, module.data_layout = of_numba.triple, of_numba.data_layout
    library.add_ir_module(module)
    library.finalize()
    return library
