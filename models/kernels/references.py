"""Named tuples of arrays that compiled functions hand on, and take, by their addresses."""

from __future__ import annotations

import hashlib
import operator
import struct
from typing import Any, Final

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import typeof, types
from numba.core import cgutils
from numba.core.registry import cpu_target
from numba.core.typing.templates import AttributeTemplate
from numba.extending import (
    NativeValue,
    infer_getattr,
    intrinsic,
    lower_builtin,
    lower_getattr_generic,
    models,
    register_model,
    unbox,
)
from numba.np import arrayobj, numpy_support


class _Counted(types.Array):
    """An array that was reached through a reference: its indices are never negative, so that no access asks whether one
    counts from the end (measured: a tenth of what a kernel takes). (The name is short: see below.)"""

    def __init__(self, dtype: Any, ndim: int, layout: str, readonly: bool, aligned: bool) -> None:
        same = types.Array(dtype, ndim, layout, readonly, aligned=aligned)
        super().__init__(dtype, ndim, layout, readonly, f"counted({_digest(same)})", aligned)

    def copy(self, dtype: Any = None, ndim: Any = None, layout: Any = None, readonly: Any = None) -> _Counted:
        return _Counted(
            self.dtype if dtype is None else dtype,
            self.ndim if ndim is None else ndim,
            self.layout if layout is None else layout,
            not self.mutable if readonly is None else readonly,
            self.aligned,
        )

    @property
    def mangling_args(self) -> tuple[str, tuple[()]]:
        return self.name, ()


register_model(_Counted)(models.ArrayModel)


def _digest(kind: Any) -> str:
    return hashlib.sha256(str(kind).encode()).hexdigest()[:16]


def _without_sign(context: Any, builder: Any, kind: Any, index: Any) -> tuple[Any, Any]:
    """An index, or a tuple of them, and its type."""
    if isinstance(kind, types.BaseTuple):
        parts = cgutils.unpack_tuple(builder, index, len(kind))
        pairs = [_without_sign(context, builder, *pair) for pair in zip(kind.types, parts, strict=True)]
        kind = types.Tuple([part for part, _ in pairs])
        return kind, context.make_tuple(builder, kind, [part for _, part in pairs])
    if isinstance(kind, types.Integer):
        return types.uintp, context.cast(builder, index, kind, types.intp)
    return kind, index


@lower_builtin(operator.getitem, _Counted, types.Integer)
@lower_builtin(operator.getitem, _Counted, types.BaseTuple)
def _item(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    array, kind = signature.args
    kind, index = _without_sign(context, builder, kind, arguments[1])
    several = isinstance(kind, types.BaseTuple)
    get = arrayobj.getitem_array_tuple if several else arrayobj.getitem_arraynd_intp
    return get(context, builder, signature.replace(args=(array, kind)), (arguments[0], index))


@lower_builtin(operator.setitem, _Counted, types.Integer, types.Any)
@lower_builtin(operator.setitem, _Counted, types.BaseTuple, types.Any)
def _set_item(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    array, kind, value = signature.args
    kind, index = _without_sign(context, builder, kind, arguments[1])
    signature = signature.replace(args=(array, kind, value))
    return arrayobj.setitem_array(context, builder, signature, (arguments[0], index, arguments[2]))


class _ByReference(types.Type):
    """A named tuple of arrays that is handed on by its address. (The name is short: it is part of those of all
    functions that take it.)"""

    def __init__(self, held: Any) -> None:
        self.held = held
        super().__init__(f"by_reference({held.instance_class.__name__} {_digest(held)})")


@register_model(_ByReference)
class _ByReferenceModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, manager[kind.held].get_value_type().as_pointer())


@infer_getattr
class _ByReferenceAttributes(AttributeTemplate):
    key = _ByReference

    def generic_resolve(self, reference: Any, attribute: str) -> Any:
        held = reference.held
        if attribute not in held.fields:
            return None
        member = held.types[held.fields.index(attribute)]
        if type(member) is types.Array:
            return _Counted(member.dtype, member.ndim, member.layout, not member.mutable, member.aligned)
        return _ByReference(member) if isinstance(member, types.BaseNamedTuple) else member


@lower_getattr_generic(_ByReference)
def _member(context: Any, builder: Any, kind: Any, value: Any, attribute: str) -> Any:
    place = kind.held.fields.index(attribute)
    member = cgutils.gep_inbounds(builder, value, 0, place)
    return member if isinstance(kind.held.types[place], types.BaseNamedTuple) else builder.load(member)


class Placed:
    """A named tuple's image in memory, as compiled functions read it there. O(members), a microsecond an array."""

    def __init__(self, held: Any) -> None:
        kinds: list[Any] = []
        values: list[Any] = []
        _take_apart(held, kinds, values)
        form = tuple(kinds)
        if form not in _forms:
            reference = _ByReference(typeof(held))
            _forms[form] = reference, _layout(reference.held)
        self._numba_type_, layout = _forms[form]
        self._image = np.frombuffer(layout.pack(*values), np.uint8)
        self.address = self._image.ctypes.data


_forms: dict[tuple[Any, ...], tuple[_ByReference, struct.Struct]] = {}


def _take_apart(held: Any, kinds: list[Any], values: list[Any]) -> None:
    """Append what decides the type of a named tuple, and what stands in its image. Array: as Numba's ArrayModel has it,
    without the counter of references."""
    kinds.append(type(held))
    for member in held:
        if isinstance(member, np.ndarray):
            kinds += (member.dtype, member.ndim, member.flags.num)
            values += (0, 0, member.size, member.itemsize, member.ctypes.data, *member.shape, *member.strides)
        elif isinstance(member, tuple):
            _take_apart(member, kinds, values)
        else:
            kinds.append(type(member))
            if member is not None:
                values.append(member)


def _layout(held: Any) -> struct.Struct:
    """Of the values that ``_take_apart`` finds, where LLVM has them."""
    context = cpu_target.target_context
    data = context.target_data
    parts = ["="]
    filled = 0

    def add(held: Any, kind: Any, begin: int) -> None:
        nonlocal filled
        if isinstance(held, types.BaseNamedTuple):
            for place, part in enumerate(held.types):
                if isinstance(kind, ir.ArrayType):  # members of one kind
                    add(part, kind.element, begin + kind.element.get_abi_size(data) * place)
                else:
                    add(part, kind.elements[place], begin + kind.get_element_offset(data, place))
        elif held != types.none:
            size = 8 * (5 + 2 * held.ndim) if isinstance(held, types.Array) else numpy_support.as_dtype(held).itemsize
            code = f"{size // 8}q" if isinstance(held, types.Array) else _CODES[numpy_support.as_dtype(held).str[1:]]
            parts.append(f"{begin - filled}x{code}")
            filled = begin + size

    kind = context.get_value_type(held)
    add(held, kind, 0)
    return struct.Struct(f"{''.join(parts)}{kind.get_abi_size(data) - filled}x")


_CODES: Final = {
    "b1": "?", "i1": "b", "u1": "B", "i2": "h", "u2": "H", "i4": "i", "u4": "I", "i8": "q", "u8": "Q", "f4": "f",
    "f8": "d",
}  # fmt: skip


@unbox(_ByReference)
def _address_of(kind: Any, placed: Any, python: Any) -> NativeValue:
    """Where the image lies."""
    number = python.pyapi.object_getattr_string(placed, "address")
    address = python.pyapi.long_as_longlong(number)
    python.pyapi.decref(number)
    return NativeValue(python.builder.inttoptr(address, python.context.get_value_type(kind)))


@intrinsic
def by_reference(context, held):  # type: ignore[no-untyped-def]
    """A named tuple of arrays, whose members can be read as before, for what is called from here on: handed on as one
    word instead of seven and more of each array (measured: 115 words, a fifth of what an access to memory costs), which
    the compiler need not take apart and put together in each function, either. It is gone when the caller returns. Only
    for functions that do not count references (``allocation_free`` and those below), and whose indices of its arrays
    are never negative."""

    def refer(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        return cgutils.alloca_once_value(builder, arguments[0])

    if isinstance(held, (_ByReference, types.NoneType)):
        return held(held), lambda context, builder, signature, arguments: arguments[0]
    return _ByReference(held)(held), refer


@intrinsic
def row_of(context, group, place, rows):  # type: ignore[no-untyped-def]
    """The same members of one of a ``group`` that is handed on by reference, as a named tuple ``rows``, by reference:
    row ``place`` of each array. Arrays of one dimension that ``rows.SHARED`` names are its own as they are; others are
    arrays of that element. Slices of each would take a kernel half its time to compile, and longer to make."""
    held, shared = group.held, rows.instance_class.SHARED

    def of(name: str, kind: Any) -> Any:
        ndim = max(1, kind.ndim - 1) if name not in shared else kind.ndim
        return types.Array(kind.dtype, ndim, kind.layout, not kind.mutable, aligned=kind.aligned)

    result = _ByReference(types.NamedTuple(list(map(of, held.fields, held.types)), rows.instance_class))

    def make(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        to = cgutils.alloca_once(builder, context.get_value_type(result.held))
        for at, (name, kind) in enumerate(zip(held.fields, held.types, strict=True)):
            array = builder.load(cgutils.gep_inbounds(builder, arguments[0], 0, at))
            if name not in shared:
                array = _row(context, builder, kind, result.held.types[at], array, arguments[1])
            builder.store(array, cgutils.gep_inbounds(builder, to, 0, at))
        return to

    return result(group, types.int64, rows), make


def _row(context: Any, builder: Any, kind: Any, of: Any, array: Any, place: Any) -> Any:
    """Row or element ``place`` of an array of a ``kind``, as an array."""
    whole = context.make_array(kind)(context, builder, array)
    shape, strides = cgutils.unpack_tuple(builder, whole.shape), cgutils.unpack_tuple(builder, whole.strides)
    start = cgutils.pointer_add(builder, whole.data, builder.mul(place, strides[0]), whole.data.type)
    if kind.ndim > 1:
        shape, strides = shape[1:], strides[1:]
    else:
        shape = [shape[0].type(1)]
    one = context.make_array(of)(context, builder)
    arrayobj.populate_array(one, start, shape, strides, whole.itemsize, None, None)
    return one._getvalue()
