"""The messages of Chakra's schemas, for protobuf, as tables: no compiled module of another project is needed.

Fields, numbers and enumerations after mlcommons/chakra (et_def.proto at 21585d8, 9d917e3, 2719463 and between;
eg_def.proto at df405e8), all Apache-2.0. A file does not name its schema reliably: the first one is taken whose fields,
with their types, are those of its first nodes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, unknown_fields

from manyscale.models.workload import OperationKind

_F: Final = descriptor_pb2.FieldDescriptorProto
_TYPES: Final = {
    "double": _F.TYPE_DOUBLE, "float": _F.TYPE_FLOAT, "int32": _F.TYPE_INT32, "int64": _F.TYPE_INT64,
    "uint32": _F.TYPE_UINT32, "uint64": _F.TYPE_UINT64, "sint32": _F.TYPE_SINT32, "sint64": _F.TYPE_SINT64,
    "fixed32": _F.TYPE_FIXED32, "fixed64": _F.TYPE_FIXED64, "sfixed32": _F.TYPE_SFIXED32,
    "sfixed64": _F.TYPE_SFIXED64, "bool": _F.TYPE_BOOL, "bytes": _F.TYPE_BYTES, "string": _F.TYPE_BYTES,
}  # fmt: skip
_SCALARS: Final = tuple(_TYPES)
_K: Final = OperationKind
METADATA, LOAD, STORE, COMPUTE, SEND, RECEIVE, COLLECTIVE = range(1, 8)  # types of nodes, as 0.0.4 numbers them


@dataclass(frozen=True)
class Schema:
    """``node`` and ``attribute``: (name, number, type) of fields, a type ending in ``*`` for a list; ``of_type``: which
    field of an attribute each number of its type means (none where the field that is set tells itself). ``types``: what
    numbers of node types mean; ``collectives``: what numbers of collectives mean. ``run_time_ps``: the unit of run
    times."""

    name: str
    node: Sequence[tuple[str, int, str]]
    attribute: Sequence[tuple[str, int, str]] = ()
    of_type: Sequence[str] = ()
    types: Mapping[int, int] = field(default_factory=dict)
    collectives: Mapping[int, OperationKind] = field(default_factory=dict)
    has_metadata: bool = False
    run_time_ps: int = 1_000_000

    def fits(self, node: Any) -> bool:
        """Whether a node, parsed, has no field that the schema lacks."""
        if len(unknown_fields.UnknownFieldSet(node)):
            return False
        if not self.attribute:
            return True
        for each in node.attribute:
            if len(unknown_fields.UnknownFieldSet(each)):
                return False
            if self.of_type and not self._is_of_its_type(each):
                return False
        return True

    def _is_of_its_type(self, attribute: Any) -> bool:
        if not 0 <= attribute.type < len(self.of_type):
            return False
        mine = self.of_type[attribute.type]
        found = {each.name for each, _ in attribute.ListFields()} - {"name", "type", "doc_string"}
        return found <= {mine}

    def value(self, attribute: Any) -> object:
        """An attribute's value: a number, bytes, a list of these, or None where it has none."""
        if self.of_type:
            return getattr(attribute, self.of_type[attribute.type]) if attribute.type < len(self.of_type) else None
        name = attribute.WhichOneof("value")
        if name is None:
            return None
        value = getattr(attribute, name)
        return value.values if name.endswith("_list") else value


_OLD_TYPES: Final = {1: LOAD, 2: STORE, 3: COMPUTE, 4: SEND, 5: RECEIVE, 6: COLLECTIVE}
_TYPES_NOW: Final = {each: each for each in range(1, 8)}
_OF_1: Final = {1: _K.allreduce, 2: _K.alltoall, 3: _K.allgather, 4: _K.reduce_scatter}
_OF_3: Final = {0: _K.allreduce, 1: _K.alltoall, 2: _K.allgather, 3: _K.reduce_scatter, 4: _K.bcast}
COLLECTIVES_NOW: Final = {
    0: _K.allreduce, 1: _K.reduce, 2: _K.allgather, 3: _K.gather, 4: _K.scatter, 5: _K.bcast, 6: _K.alltoall,
    7: _K.reduce_scatter, 8: _K.reduce_scatter, 9: _K.barrier,
}  # fmt: skip
_HEAD: Final = (("id", 1, "uint64"), ("name", 2, "bytes"), ("type", 3, "int32"))
_NODE_3: Final = (
    *_HEAD, ("data_deps", 4, "uint64*"),
    *((name, number, "bytes") for number, name in enumerate(
        ("inputs", "input_shapes", "input_types", "outputs", "output_shapes", "output_types"), 5)),
    ("attribute", 11, "attribute*"),
)  # fmt: skip
_TAGS: Final = (("name", 1, "bytes"), ("type", 2, "int32"), ("doc_string", 3, "bytes"))
_SCHEMA_4: Final = Schema(
    "0.0.4",
    (*_HEAD, ("ctrl_deps", 4, "uint64*"), ("data_deps", 5, "uint64*"), ("start_time_micros", 6, "uint64"),
     ("duration_micros", 7, "uint64"), ("inputs", 8, "io"), ("outputs", 9, "io"), ("attribute", 10, "attribute*")),
    (("name", 1, "bytes"), ("doc_string", 2, "bytes"),
     *((f"{kind}_{form}", 3 + 2 * at + (form == "list"), kind + "*" * (form == "list"))
       for at, kind in enumerate(("double", "float", "int32", "int64", "uint32", "uint64", "sint32", "sint64",
                                  "fixed32", "fixed64", "sfixed32", "sfixed64", "bool", "string", "bytes"))
       for form in ("val", "list"))),
    types=_TYPES_NOW, collectives=COLLECTIVES_NOW, has_metadata=True,
)  # fmt: skip
_SCHEMA_3U: Final = Schema(
    "0.0.3", _NODE_3,
    (*_TAGS, ("b", 4, "bool"), ("f", 5, "float"), ("u", 6, "uint64"), ("i", 7, "int64"), ("s", 8, "bytes"),
     ("bools", 9, "bool+"), ("floats", 10, "float+"), ("uints", 11, "uint64+"), ("ints", 12, "int64+"),
     ("strings", 13, "bytes+")),
    ("b", "f", "u", "i", "s", "bools", "floats", "uints", "ints", "strings"), _TYPES_NOW, _OF_3, has_metadata=True,
)  # fmt: skip
_SCHEMA_3: Final = Schema(
    "0.0.3", _NODE_3,
    (*_TAGS, ("b", 4, "bool"), ("f", 5, "float"), ("i", 6, "int64"), ("s", 7, "bytes"), ("bools", 8, "bool+"),
     ("floats", 9, "float+"), ("ints", 10, "int64+"), ("strings", 11, "bytes+")),
    ("b", "f", "i", "s", "bools", "floats", "ints", "strings"), _TYPES_NOW, _OF_3,
)  # fmt: skip
_SCHEMA_2: Final = Schema(
    "0.0.2", _NODE_3,
    (*_TAGS, ("f", 4, "float"), ("i", 5, "int64"), ("s", 6, "bytes"), ("floats", 7, "float+"), ("ints", 8, "int64+"),
     ("strings", 9, "bytes+")),
    ("f", "i", "s", "floats", "ints", "strings"), _OLD_TYPES,
    {0: _K.allreduce, 1: _K.alltoall, 2: _K.allgather, 3: _K.reduce_scatter},
)  # fmt: skip
# the fields of a node that later schemas have as attributes, under their names there
_SCHEMA_1: Final = Schema(
    "0.0.1",
    (*_HEAD, ("data_deps", 4, "uint64*"), ("tensor_loc", 5, "int32"), ("tensor_size", 6, "uint64"),
     ("runtime", 7, "uint64"), ("input_tensor_loc", 8, "int32"), ("input_tensor_size", 9, "uint64"),
     ("output_tensor_loc", 10, "int32"), ("output_tensor_size", 11, "uint64"), ("num_ops", 12, "uint64"),
     ("comm_type", 13, "int32"), ("involved_dim", 14, "bool*"), ("communicator_id", 15, "uint32"),
     ("comm_src", 16, "uint32"), ("comm_dst", 17, "uint32"), ("comm_size", 18, "uint64"), ("comm_tag", 19, "uint32"),
     ("comm_priority", 20, "uint32")),
    types=_OLD_TYPES, collectives=_OF_1, run_time_ps=1000,
)  # fmt: skip
PLAIN_1: Final = ("tensor_size", "runtime", "num_ops", "comm_type", "communicator_id", "comm_src", "comm_dst",
                  "comm_size", "comm_tag")  # fmt: skip
WITH_METADATA: Final = (_SCHEMA_4, _SCHEMA_3U, _SCHEMA_3)
WITHOUT: Final = (_SCHEMA_1, _SCHEMA_2, _SCHEMA_3, _SCHEMA_3U, _SCHEMA_4)


@cache
def node_class(schema_name: str, attributes: int) -> Any:
    """The class of a schema's nodes (``key(schema)`` tells schemas apart)."""
    schema = next(each for each in WITHOUT if key(each) == (schema_name, attributes))
    file = descriptor_pb2.FileDescriptorProto(name="chakra.proto", package="chakra", syntax="proto2")
    io = file.message_type.add(name="Io")
    for number, name in enumerate(("values", "shapes", "types"), 1):
        io.field.add(name=name, number=number, type=_F.TYPE_BYTES, label=_F.LABEL_OPTIONAL)
    if schema.attribute:
        for kind in _SCALARS:
            listed = file.message_type.add(name=f"{kind}List")
            listed.field.add(name="values", number=1, type=_TYPES[kind], label=_F.LABEL_REPEATED)
        _add_message(file, "Attribute", schema.attribute, one_of=not schema.of_type)
    _add_message(file, "Node", schema.node)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("chakra.Node"))


def key(schema: Schema) -> tuple[str, int]:
    """What tells a schema from the others."""
    return schema.name, len(schema.attribute)


def _add_message(
    file: descriptor_pb2.FileDescriptorProto, name: str, fields: Sequence[tuple[str, int, str]], *, one_of: bool = False
) -> None:
    message = file.message_type.add(name=name)
    if one_of:
        message.oneof_decl.add(name="value")
    for field_name, number, kind in fields:
        stem = kind.rstrip("*+")
        is_list = kind != stem
        made = message.field.add(name=field_name, number=number, label=_F.LABEL_OPTIONAL)
        if stem in ("attribute", "io"):
            made.type, made.type_name = _F.TYPE_MESSAGE, f".chakra.{stem.capitalize()}"
        elif kind.endswith("*") and name == "Attribute":
            made.type, made.type_name = _F.TYPE_MESSAGE, f".chakra.{stem}List"
        else:
            made.type = _TYPES[stem]
        if is_list and not (kind.endswith("*") and name == "Attribute"):
            made.label = _F.LABEL_REPEATED
        if one_of and number > 2:
            made.oneof_index = 0
