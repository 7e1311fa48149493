"""Encodes messages of a definition, in a flexible version: what a controller writes into its log."""

from __future__ import annotations

import struct
import uuid
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any

from kafka_log_lake.udfs.format import layout as f
from kafka_log_lake.udfs.format.encode import PlainRecord, batch_records
from kafka_log_lake.udfs.values.internal.definitions import MessageDefinition, MessageField, messages

_NUMBERS = {"int8": ">b", "int16": ">h", "int32": ">i", "int64": ">q", "uint16": ">H", "float64": ">d"}
FRAME_VERSION = 1  # of the frame of a record in __cluster_metadata: version, API key, version of the record


def new_uuid() -> str:
    """Returns a random id in Kafka's notation: 22 characters of URL-safe Base64, the first no dash."""
    while True:
        text = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text


@cache
def _message(file: str, name: str) -> MessageDefinition:
    return next(message for message in messages(file) if message.name == name)


def metadata_record(
    name: str, version: int, fields: Mapping[str, object], definitions: str = "cluster_metadata"
) -> bytes:
    """Encodes the value of a record of ``__cluster_metadata``; fields that are left out get their defaults.

    definitions: the file of the topic's messages; those of ``__remote_log_metadata`` have the same frame.
    """
    message = _message(definitions, name)
    head = b"".join(map(_unsigned, (FRAME_VERSION, message.api_key, version)))
    return head + _struct(message.fields, version, fields)


def _unsigned(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _struct(declared: Iterable[MessageField], version: int, fields: Mapping[str, object]) -> bytes:
    out, tagged = bytearray(), {}
    for field in declared:
        if version not in field.versions:
            continue
        value = fields.get(field.name)
        if version in field.tagged:
            if value is not None:
                tagged[field.tag] = _value(field, version, value)
            continue
        out += _value(field, version, value)
    out += _unsigned(len(tagged))
    for tag in sorted(tagged):
        out += _unsigned(tag) + _unsigned(len(tagged[tag])) + tagged[tag]
    return bytes(out)


def _value(field: MessageField, version: int, value: Any) -> bytes:
    if field.is_array:
        if value is None and version in field.nullable:
            return _unsigned(0)
        items = value or ()
        return _unsigned(len(items) + 1) + b"".join(_item(field, version, item) for item in items)
    return _item(field, version, value)


def _item(field: MessageField, version: int, value: Any) -> bytes:
    if field.type in _NUMBERS:
        return struct.pack(_NUMBERS[field.type], int(field.default or 0) if value is None else value)
    if field.type == "bool":
        return bytes([bool(value)])
    if field.type == "uuid":
        return urlsafe_b64decode(f"{value}==") if value else bytes(16)
    if field.type in ("string", "bytes"):
        if value is None and version in field.nullable:
            return _unsigned(0)
        data = (value or "").encode() if field.type == "string" else value or b""
        return _unsigned(len(data) + 1) + data
    return _struct(field.fields, version, value or {})


def record_batch(
    records: Sequence[PlainRecord], leader_epoch: int, attributes: int, checksum: Callable[[bytes], int]
) -> bytes:
    """Encodes records as one uncompressed V2 batch without a producer.

    attributes: the bits of the batch. checksum: CRC-32C of bytes, as an argument because it loads compiled
    kernels.
    """
    first, last = records[0], records[-1]
    newest = max(record.timestamp for record in records)
    fields = (attributes, last.offset - first.offset, first.timestamp, newest, -1, -1, -1, len(records))
    body = struct.pack(">hiqqqhii", *fields) + batch_records(records)
    length = f.V2_ATTRIBUTES_POS - f.LOG_OVERHEAD + len(body)
    head = struct.pack(">qiibI", first.offset, length, leader_epoch, f.MAGIC_V2, checksum(body))
    return head + body
