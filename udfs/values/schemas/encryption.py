"""Finds what rules of a schema encrypt, by Confluent's client-side field level encryption.

A rule ENCRYPT encrypts the texts and bytes of fields that have one of its tags, ENCRYPT_PAYLOAD whole
payloads. The data encryption key (DEK) is the subject's under the rule's key encryption key (KEK). A
rule that lets DEKs expire writes the version of the DEK before what is encrypted: ``00`` and an int32;
without that its version is 1. A text is the Base64 of these bytes. Nothing here decrypts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from kafka_log_lake.udfs.values.protobuf import payload as protobuf
from kafka_log_lake.udfs.values.protobuf import schema as protobuf_schema
from kafka_log_lake.udfs.values.schemas.payload import PayloadError
from kafka_log_lake.udfs.values.schemas.registry import PROTOBUF, Schema

_KEK, _ALGORITHM, _EXPIRY = "encrypt.kek.name", "encrypt.dek.algorithm", "encrypt.dek.expiry.days"
_DEFAULT_ALGORITHM = "AES256_GCM"
_TAGS = "confluent:tags"
_PREFIX = 5
# Parts of a schema that are looked at: few words may say that types lie in each other without end
_MOST_PARTS = 100_000
_INNER = ("type", "items", "values", "oneOf", "anyOf", "allOf")
_META, _META_TAGS = 1088, 3  # the option confluent.field_meta, and the field of its tags


def described(
    schema: Schema, rule: Mapping[str, Any], references: Iterable[tuple[str, str]]
) -> dict[str, object]:
    """Returns an encrypting rule as a dict: type, tags, fields, kek, algorithm, dek_expires."""
    tags = sorted(map(str, rule.get("tags") or ()))
    return {
        "type": rule["type"],
        "tags": tags,
        "fields": sorted(_fields(schema, set(tags), references)),
        "kek": _params(rule).get(_KEK),
        "algorithm": _params(rule).get(_ALGORITHM, _DEFAULT_ALGORITHM),
        "dek_expires": _expires(rule),
    }


def key_of(rule: Mapping[str, object], payload: bytes) -> str:
    """Returns in words the KEK and DEK version that bytes are encrypted with; "" where neither is known."""
    kek = _params(rule).get(_KEK)
    version = dek_version(rule, payload)
    return "".join((f" with KEK {kek}" if kek else "", f", DEK version {version}" if version else ""))


def dek_version(rule: Mapping[str, object], encrypted: bytes) -> int | None:
    """Returns the version of the DEK that bytes are encrypted with; None where they do not say it."""
    if not _expires(rule):
        return 1
    if len(encrypted) < _PREFIX or encrypted[0]:
        return None
    return int.from_bytes(encrypted[1:_PREFIX], "big", signed=True)


def _params(rule: Mapping[str, object]) -> Mapping[str, object]:
    params = rule.get("params")
    return params if isinstance(params, Mapping) else {}


def _expires(rule: Mapping[str, object]) -> bool:
    return str(_params(rule).get(_EXPIRY, "0")).strip() not in ("", "0")


def _fields(schema: Schema, tags: set[str], references: Iterable[tuple[str, str]]) -> set[str]:
    """Returns the paths of the fields with one of the tags, in the schema or in its metadata."""
    paths: set[str] = set()
    patterns = _patterns(schema, tags)
    with suppress(PayloadError, ValueError, RecursionError):
        if schema.type == PROTOBUF:
            walked = _of_protobuf(protobuf_schema.parse(schema.text, references))
        else:
            others = {name: json.loads(text) for name, text in references}
            walked = _Walk(json.loads(schema.text), others).fields()
        for path, name, field_tags in walked:
            if tags & field_tags or any(pattern.fullmatch(name) for pattern in patterns):
                paths.add(path)
    return paths


def _patterns(schema: Schema, tags: set[str]) -> list[re.Pattern[str]]:
    """Returns patterns of the metadata's paths with one of the tags: ``*`` is a name, ``**`` any names."""
    held = (schema.metadata or {}).get("tags")
    paths = (
        [path for path, path_tags in held.items() if tags & _texts(path_tags)]
        if isinstance(held, Mapping)
        else []
    )
    parts = (re.split(r"(\*\*|\*)", path) for path in paths)
    known = {"**": ".*", "*": "[^.]*"}
    return [
        re.compile("".join(known.get(character, re.escape(character)) for character in some))
        for some in parts
    ]


def _texts(value: object) -> set[str]:
    return {text for text in value if isinstance(text, str)} if isinstance(value, list) else set()


class _Walk:
    """Finds the fields of a schema of Avro or JSON: path, name as metadata has it, tags.

    A type is met where it is declared and where it is named. others: the schemas that it refers to, by name.
    """

    def __init__(self, root: object, others: Mapping[str, object]) -> None:
        self._root, self._others, self._left = root, others, _MOST_PARTS
        self._records: dict[str, tuple[Any, str]] = {}  # of Avro by full name, and the record around each
        for node in (*others.values(), root):
            self._declare(node, "")

    def fields(self) -> Iterator[tuple[str, str, set[str]]]:
        return self._of(self._root, (), "", self._root, ())

    def _declare(self, node: object, name: str) -> None:
        if isinstance(node, Mapping) and isinstance(node.get("fields"), list):
            full = _full_name(node, name)
            self._records[full] = node, name
            for field in node["fields"]:
                self._declare(field.get("type") if isinstance(field, Mapping) else None, full)
        for part in _parts(node):
            self._declare(part, name)

    def _of(
        self, node: object, path: tuple[str, ...], name: str, root: object, above: tuple[int, ...]
    ) -> Iterator[tuple[str, str, set[str]]]:
        """Yields what is encrypted at a node of a schema and below it.

        name: of the record around the node (Avro), or the path from $ (JSON Schema). root: of the node's
        document. above: the ids of the nodes around it, against circles.
        """
        if isinstance(node, str):
            space = name.rpartition(".")[0]
            held = self._records.get(f"{space}.{node}" if space and "." not in node else node)
            node, name = held or self._records.get(node, (None, name))
        elif isinstance(node, Mapping) and isinstance(node.get("$ref"), str):
            document, _, pointer = node["$ref"].partition("#")
            root = self._others.get(document) if document else root
            node = _at(root, pointer)
        self._left -= 1
        if id(node) in above or self._left < 0:
            return
        inside = (*above, id(node))
        if isinstance(node, Mapping) and isinstance(node.get("fields"), list):
            full = _full_name(node, name)
            for field in node["fields"]:
                if isinstance(field, Mapping) and "name" in field:
                    field_path = (*path, str(field["name"]))
                    yield ".".join(field_path), f"{full}.{field['name']}", _texts(field.get(_TAGS))
                    yield from self._of(field.get("type"), field_path, full, root, inside)
            return
        properties = node.get("properties") if isinstance(node, Mapping) else None
        for key, property_ in properties.items() if isinstance(properties, Mapping) else ():
            field_path, full = (*path, str(key)), f"{name or '$'}.{key}"
            yield (
                ".".join(field_path),
                full,
                _texts(property_.get(_TAGS)) if isinstance(property_, Mapping) else set(),
            )
            yield from self._of(property_, field_path, full, root, inside)
        for part in _parts(node):
            yield from self._of(part, path, name, root, inside)


def _full_name(record: Mapping[str, object], around: str) -> str:
    """Returns the full name of an Avro record. around: the full name of the record that declares it."""
    space, name = record.get("namespace", around.rpartition(".")[0]), str(record.get("name"))
    return f"{space}.{name}" if space and "." not in name else name


def _parts(node: object) -> list[object]:
    """Returns the inner types of a type without fields: of a union, list or map, or JSON Schema's oneOf."""
    if isinstance(node, list):
        return node
    if not isinstance(node, Mapping) or isinstance(node.get("fields"), list):
        return []
    return [node[name] for name in _INNER if name in node]


def _at(root: object, pointer: str) -> object:
    """Returns the node that a JSON pointer names; None where there is none."""
    for part in pointer.split("/")[1:]:
        root = root.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(root, Mapping) else None
    return root


def _of_protobuf(file: Any) -> Iterator[tuple[str, str, set[str]]]:
    """Yields (message.field, full name, tags) of the fields of a file's messages."""
    messages = list(file.message_types_by_name.values())
    while messages:
        message = messages.pop()
        messages += message.nested_types
        for field in message.fields:
            yield (
                f"{message.name}.{field.name}",
                field.full_name,
                _tags_of(field.GetOptions().SerializeToString()),
            )


def _tags_of(options: bytes) -> set[str]:
    """Returns the tags in the serialized options of a field."""
    metas = (held for number, held in protobuf.texts(options) if number == _META)
    return {
        tag.decode("utf-8", "replace")
        for meta in metas
        for number, tag in protobuf.texts(meta)
        if number == _META_TAGS
    }
