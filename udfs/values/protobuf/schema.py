"""Parses Protobuf schemas, ``.proto`` text or serialized descriptors in Base64, to message descriptors.

``protoc`` (of grpcio-tools) compiles the text, with the schemas that it imports and Google's well-known
types.
"""

from __future__ import annotations

import base64
import binascii
import os
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from kafka_log_lake.udfs.errors import install
from kafka_log_lake.udfs.values.schemas.payload import PayloadError

_OWN = "schema.proto"
# What Confluent's registry knows without a reference
_BUILT_IN = {
    "confluent/meta.proto": """syntax = "proto3";
package confluent;
import "google/protobuf/descriptor.proto";
message Meta { string doc = 1; map<string, string> params = 2; repeated string tags = 3; }
extend google.protobuf.FileOptions { Meta file_meta = 1088; }
extend google.protobuf.MessageOptions { Meta message_meta = 1088; }
extend google.protobuf.FieldOptions { Meta field_meta = 1088; }
extend google.protobuf.EnumOptions { Meta enum_meta = 1088; }
extend google.protobuf.EnumValueOptions { Meta enum_value_meta = 1088; }
""",
    "confluent/type/decimal.proto": """syntax = "proto3";
package confluent.type;
message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }
""",
}


def parse(text: str, references: Iterable[tuple[str, str]] = ()) -> Any:
    """Parses a schema, and returns its ``FileDescriptor``.

    references: (name under which it is imported, text) of the schemas that it needs, directly or not. Raises
    a PayloadError (unreadable_schema) for a text that is no Protobuf schema.
    """
    from google.protobuf import descriptor_pb2, descriptor_pool

    files = [*references, (_OWN, text)]
    described = descriptor_pb2.FileDescriptorSet()
    try:
        serialized = [_from_base64(content) for _, content in files]
        if serialized[-1] is not None and all(serialized):
            for (name, _), content in zip(files, serialized, strict=True):
                described.file.add(name=name).MergeFrom(content)
                described.file[-1].name = name
            described.file.extend(_well_known(described))
        else:
            described.ParseFromString(_compiled(files))
        pool = descriptor_pool.DescriptorPool()
        left = {file.name: file for file in described.file}
        while left:  # each file after those that it imports
            ready = [n for n, file in left.items() if not any(d in left for d in file.dependency)]
            if not ready:
                raise ValueError("imports in a circle")
            for name in ready:
                pool.Add(left.pop(name))
        return pool.FindFileByName(_OWN)
    except PayloadError:
        raise
    except ModuleNotFoundError as error:
        raise PayloadError("unreadable_schema", f"{error.name} is missing: {install('typed')}") from None
    except Exception as error:  # protobuf's own errors have no common class
        reason = " ".join(f"{error}".split())
        raise PayloadError("unreadable_schema", f"not a Protobuf schema: {reason}"[:300]) from None


def _from_base64(text: str) -> object:
    """Parses the descriptor in Base64 that some clients register in place of text; returns None for text."""
    from google.protobuf import descriptor_pb2
    from google.protobuf.message import DecodeError

    try:
        return descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except (binascii.Error, DecodeError, ValueError):
        return None


def _well_known(described: Any) -> list[object]:
    """Returns the descriptors of Google's files that serialized descriptors import and do not bring."""
    from google.protobuf import descriptor_pb2

    names = {name for file in described.file for name in file.dependency} - {
        file.name for file in described.file
    }
    if not names:
        return []
    text = 'syntax = "proto3";\n' + "".join(f'import "{name}";\n' for name in sorted(names))
    described_files = descriptor_pb2.FileDescriptorSet.FromString(_compiled([(_OWN, text)]))
    return [file for file in described_files.file if file.name != _OWN]


def _compiled(files: list[tuple[str, str]]) -> bytes:
    """Compiles files by ``protoc``.

    Returns a serialized FileDescriptorSet of the last one and all it imports.
    files: (name under which it is imported, text). Raises a ValueError with protoc's words.
    """
    import grpc_tools
    from grpc_tools import protoc

    with tempfile.TemporaryDirectory(prefix="kafka-log-lake-") as folder:
        for name, text in [*_BUILT_IN.items(), *files]:
            path = Path(folder, "in", name)
            if not path.resolve().is_relative_to(Path(folder, "in").resolve()):
                raise PayloadError("unreadable_schema", f"an import of {name!r}, which leaves its folder")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        google = str(Path(grpc_tools.__file__).parent / "_proto")
        output, errors = f"{folder}/out", f"{folder}/errors"
        arguments = ["protoc", f"-I{folder}/in", f"-I{google}", *_common_protos(), "--include_imports"]
        code = _quietly(
            errors, lambda: protoc.main([*arguments, f"--descriptor_set_out={output}", files[-1][0]])
        )
        if code:
            said = Path(errors).read_text(errors="replace").replace(f"{folder}/in/", "")
            raise ValueError(said.strip() or f"protoc ended with {code}")
        return Path(output).read_bytes()


def _common_protos() -> list[str]:
    """Returns protoc's options for the folders of Google's common types.

    None if their package is not installed.

    None if their package is not installed.
    """
    from importlib.util import find_spec

    package = find_spec("google.rpc")
    folders = list(package.submodule_search_locations or ()) if package else []
    return [f"-I{Path(folder).parent.parent}" for folder in folders]


def _quietly(errors: str, run: Any) -> int:
    """Runs what writes to the process's standard error, into a file."""
    kept = os.dup(2)
    try:
        with open(errors, "wb") as file:
            os.dup2(file.fileno(), 2)
            return int(run())
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def messages(among: Iterable[Any]) -> Iterator[Any]:
    """Yields messages and all that are nested in them, without the entries of maps."""
    for message in among:
        if not message.GetOptions().map_entry:
            yield message
            yield from messages(message.nested_types)


def message_at(file: Any, index: Iterable[int]) -> Any:
    """Returns the message that a list of indexes names: of the file's messages, then of those nested in it.

    Clients in Python and Go count the entry of a map, a nested message for ``protoc``, those in Java do not:
    an index that names an entry, of which no payload is, is Java's. Raises a PayloadError (invalid_index)
    where there is no message.
    """
    path = tuple(index)
    nested, message = list(file.message_types_by_name.values()), None
    for at in path:
        if 0 <= at < len(nested) and nested[at].GetOptions().map_entry:
            nested = [message for message in nested if not message.GetOptions().map_entry]
        if not 0 <= at < len(nested):
            raise PayloadError("invalid_index", f"the message indexes {list(path)} name no message")
        message = nested[at]
        nested = list(message.nested_types)
    if message is None:
        raise PayloadError("invalid_index", "an empty list of message indexes")
    return message
