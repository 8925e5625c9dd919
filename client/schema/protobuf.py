"""Payloads in Protobuf; needs protobuf. Schemas are descriptors, which need no compiler."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from ottla.client.errors import SerializationError
from ottla.client.schema.framing import message_index, read_message_index
from ottla.client.schema.registered_schema import MISSING, SchemaKind

_WELL_KNOWN: Final = frozenset(
    f"google/protobuf/{name}.proto"
    for name in (
        "any",
        "api",
        "descriptor",
        "duration",
        "empty",
        "field_mask",
        "source_context",
        "struct",
        "timestamp",
        "type",
        "wrappers",
    )
)


class ProtobufCodec:
    """Decodes the messages of one file."""

    kind: SchemaKind = "protobuf"

    def __init__(self, main: str, files: Mapping[str, str]) -> None:
        """`files` are serialized descriptors in base64 by name, those that one depends on before it."""
        try:
            from google.protobuf import descriptor_pb2, descriptor_pool
        except ImportError:
            raise SerializationError(f"protobuf {MISSING}") from None
        self._pool = descriptor_pool.DescriptorPool()
        for name, serialized in files.items():
            file = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(serialized))
            file.name = name
            for dependency in file.dependency:
                if dependency not in files:
                    _add_well_known(self._pool, dependency)
            self._pool.Add(file)
            if name == main:
                self._file = file

    def encode(self, value: Any) -> bytes:
        """Refuse: the classes of messages come from the program, and so does their serializer."""
        raise SerializationError("use ProtobufSerializer with the class of the message")

    def decode(self, data: bytes) -> Any:
        """Return the message, of a class made from the descriptor."""
        path, position = read_message_index(data)
        message = self.message_class(path)()
        message.ParseFromString(data[position:])
        return message

    def message_class(self, path: Sequence[int] = (0,)) -> Any:
        """Return the class of a message of the file, by default of the first."""
        from google.protobuf import message_factory

        rows, names = self._file.message_type, [self._file.package] if self._file.package else []
        for index in path:
            names.append(rows[index].name)
            rows = rows[index].nested_type
        return message_factory.GetMessageClass(self._pool.FindMessageTypeByName(".".join(names)))

    def encode_fields(self, fields: Mapping[str, Any]) -> bytes:
        """Encode the fields of the first message of the file: dicts for messages inside it, names for enums."""
        return message_index([0]) + bytes(self.message_class()(**fields).SerializeToString())

    def from_json(self, text: bytes) -> bytes:
        """Encode JSON as the first message of the file."""
        from google.protobuf import json_format

        message = self.message_class()()
        json_format.Parse(text, message, descriptor_pool=self._pool)
        return message_index([0]) + bytes(message.SerializeToString())

    def to_json(self, data: bytes) -> str:
        """Return the message as JSON in one line, for people; 64-bit numbers are text."""
        from google.protobuf import json_format

        message = self.decode(data)
        return str(
            json_format.MessageToJson(
                message, descriptor_pool=self._pool, preserving_proto_field_name=True, indent=None
            )
        )


def serialized_file(descriptor: Any) -> str:
    """Return the descriptor of a file in base64."""
    return base64.b64encode(descriptor.serialized_pb).decode()


def index_of(descriptor: Any) -> bytes:
    """Return which message of its file a message is."""
    from google.protobuf import descriptor_pb2

    names: list[str] = []
    rows = descriptor_pb2.FileDescriptorProto.FromString(descriptor.file.serialized_pb).message_type
    while descriptor is not None:
        names.insert(0, descriptor.name)
        descriptor = descriptor.containing_type
    path = []
    for name in names:
        path.append(next(index for index, row in enumerate(rows) if row.name == name))
        rows = rows[path[-1]].nested_type
    return message_index(path)


def dependencies(file: Any) -> Iterable[Any]:
    """Return the files that a file depends on, but for those that every registry has."""
    return [each for each in file.dependencies if each.name not in _WELL_KNOWN]


def _add_well_known(pool: Any, name: str) -> None:
    """Add one of the files that come with protobuf itself, and what it needs."""
    import importlib

    from google.protobuf import descriptor_pb2

    if name not in _WELL_KNOWN:
        raise SerializationError(f"the registry does not have {name}")
    module = importlib.import_module(name.removesuffix(".proto").replace("/", ".") + "_pb2")
    file = descriptor_pb2.FileDescriptorProto()
    module.DESCRIPTOR.CopyToProto(file)
    for dependency in file.dependency:
        _add_well_known(pool, dependency)
    pool.Add(file)
