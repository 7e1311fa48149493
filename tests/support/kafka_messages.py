"""Messages of Kafka's internal topics for tests: filled at random from their definitions, and as records."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from random import Random
from typing import Any

from kafka_log_lake.udfs.values.internal.definitions import MessageDefinition, MessageField, messages

FILES = (
    *("consumer_offsets", "transaction_state", "share_group_state", "cluster_metadata"),
    *("remote_log_metadata", "consumer_protocol", "control_records"),
)
_TEXTS = ("", "a", "group-1", "é ✓ 𝄞", "x" * 200, '\t"\\\n\x00')
_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}


def versioned(file: str) -> Iterator[tuple[MessageDefinition, int]]:
    """Every message of a file of definitions, in every version."""
    for message in messages(file):
        for version in range(message.versions.low, message.versions.high + 1):
            yield message, version


def _scalar(field: MessageField, random: Random) -> Any:
    if field.type in _BITS:
        half = 1 << (_BITS[field.type] - 1)
        return random.choice([0, 1, -1, half - 1, -half, random.randrange(-half, half)])
    if field.type == "uint16":
        return random.choice([0, 1, 0xFFFF, random.randrange(1 << 16)])
    if field.type == "float64":
        return random.choice([0.0, -1.5, 1e300, -1e7, 0.0001, 123.456, random.random()])
    if field.type == "bool":
        return random.random() < 0.5
    if field.type == "uuid":
        return base64.urlsafe_b64encode(random.randbytes(16)).decode()[:22]
    if field.type == "bytes":
        return base64.b64encode(random.randbytes(random.choice([0, 1, 7, 300]))).decode()
    assert field.type == "string", field
    return random.choice(_TEXTS)


def _value(field: MessageField, version: int, random: Random) -> Any:
    if version in field.nullable and random.random() < 0.25:
        return None
    if field.is_array:
        return [_item(field, version, random) for _ in range(random.choice([0, 1, 3]))]
    return _item(field, version, random)


def _item(field: MessageField, version: int, random: Random) -> Any:
    return filled(field.fields, version, random) if field.fields else _scalar(field, random)


def filled(fields: tuple[MessageField, ...], version: int, random: Random) -> dict[str, Any]:
    """Fields of a message as Kafka's JSON has them; tagged fields are there or left out."""
    there = [f for f in fields if version in f.versions]
    chosen = [f for f in there if version not in f.tagged or random.random() < 0.7]
    return {f.name: _value(f, version, random) for f in chosen}


def changed(data: bytes, random: Random) -> bytes:
    """Bytes with one change: cut, a bit flipped, a byte set to an extreme, bytes added or taken out."""
    at = random.randrange(len(data) + 1)
    kind = random.randrange(5)
    if kind == 0:
        return data[:at]
    if kind == 1:
        return data[:at] + random.randbytes(random.choice([1, 2, 5])) + data[at:]
    if kind == 2:
        return data[:at] + data[at + random.choice([1, 2]) :]
    if at == len(data):
        return data + b"\0"
    byte = data[at] ^ (1 << random.randrange(8)) if kind == 3 else random.choice([0, 1, 0x7F, 0x80, 0xFF])
    return data[:at] + bytes([byte]) + data[at + 1 :]
