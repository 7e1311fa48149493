"""Reads keys and values of Kafka Streams' changelogs, repartition topics and joins.

A changelog's value has no timestamp: those eight bytes are only in RocksDB (``ChangeLogging...Store``). K and
V are the bytes of the inner serdes. By the serializers of Kafka 2.8 to 4.4, package
``org.apache.kafka.streams``, named at each reader.
"""

from __future__ import annotations

import base64
from typing import Any

import pyarrow as pa

from kafka_log_lake.udfs.format.schema import HEADER_TYPE
from kafka_log_lake.udfs.values.apps.cursor import Cursor
from kafka_log_lake.udfs.values.apps.serdes import Read, before, session_window, time_window
from kafka_log_lake.udfs.values.schemas.payload import PayloadError, text_of

_NO_HASH = 0x80  # of a version: no hash follows
_INSTRUCTIONS = (
    *("DELETE_KEY_NO_PROPAGATE", "DELETE_KEY_AND_PROPAGATE"),
    *("PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE", "PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE"),
)
_SAME = -2  # the length of an old value that is the prior one
_VARIABLE_SIZE = 1  # ``ListSerde``: each item after its length
SUPPRESS_VERSION = b"\3"  # of the header ``v``


def window_store_key(data: bytes, key: Read, size: int | None) -> dict[str, Any]:
    """Reads K, start of the window, sequence (``WindowKeySchema.toStoreKeyBinary``)."""
    return before(data, 12, key, lambda cursor: {**time_window(cursor, size), "sequence": cursor.number(4)})


def time_key(data: bytes, key: Read, size: int | None) -> dict[str, Any]:
    """Reads K and the start of the window (``WindowKeySchema.toBinary``)."""
    return before(data, 8, key, lambda cursor: time_window(cursor, size))


def session_key(data: bytes, key: Read) -> dict[str, Any]:
    """Reads K, end and start of the session (``SessionKeySchema.toBinary``)."""
    return before(data, 16, key, session_window)


def window_type(key: pa.DataType, has_sequence: bool = False) -> pa.DataType:
    """Returns the Arrow type of ``time_key`` and ``session_key``, with a sequence of ``window_store_key``."""
    sequence = [("sequence", pa.int32())] if has_sequence else []
    return pa.struct([("key", key), ("start", pa.int64()), ("end", pa.int64()), *sequence])


def changed(data: bytes, value: Read) -> dict[str, object]:
    """Reads old and new value of a row of a table (``ChangedSerializer``); a flag at the end says which.

    3 to 5 are 0 to 2 with a byte before them that says whether the new value is the latest one.
    """
    flag = Cursor(data, len(data) - 1 if data else 1).flag(0, 1, 2, 3, 4, 5)
    end, is_latest = len(data) - 1, True
    if flag > 2:
        end -= 1
        is_latest = bool(Cursor(data, end if end >= 0 else len(data) + 1).flag(0, 1))
    body = Cursor(data, 0, end)
    new = old = None
    if flag % 3 == 0:
        old = value(body.rest())
    elif flag % 3 == 1:
        new = value(body.rest())
    else:
        new = value(body.take(body.varint()))
        old = value(body.rest())
    return {"new": new, "old": old, "isLatest": is_latest}


def changed_type(value: pa.DataType) -> pa.DataType:
    """Returns the Arrow type of ``changed``. value: the one of the inner values."""
    return pa.struct([("new", value), ("old", value), ("isLatest", pa.bool_())])


def suppressed(data: bytes, value: Read) -> dict[str, Any]:
    """Reads a value that waits in the buffer of ``suppress`` (``BufferValue``, version 3).

    Then: the time until which it is buffered, which the changelog adds
    (``InMemoryTimeOrderedKeyValueChangeBuffer``).
    """
    cursor = Cursor(data)
    context = _context(cursor)
    prior, old_size = cursor.sized(-1), cursor.number(4)
    old = prior if old_size == _SAME else None if old_size == -1 else cursor.take(old_size)
    new = cursor.sized(-1)
    return {
        "bufferTime": cursor.number(8),
        "bytesLeft": cursor.left,
        "context": context,
        **{
            name: None if held is None else value(held)
            for name, held in (("new", new), ("old", old), ("prior", prior))
        },
    }


def _context(cursor: Cursor) -> dict[str, Any]:
    """Reads ``ProcessorRecordContext``: where the record that was last added came from."""
    timestamp, offset = cursor.number(8), cursor.number(8)
    topic, partition = _text(cursor), cursor.number(4)
    count = cursor.number(4)  # -1 for none (``ProcessorRecordContext.deserialize``)
    if count < -1:
        raise PayloadError("negative_length", f"{count} headers", cursor.at)
    if count > cursor.left // 8:
        raise PayloadError("huge_count", f"{count} headers, and {cursor.left} bytes left", cursor.at)
    headers = [[_text(cursor), _base64(cursor.sized(-1))] for _ in range(count)]
    return {
        "headers": headers,
        "offset": offset,
        "partition": partition,
        "timestamp": timestamp,
        "topic": topic,
    }


def _text(cursor: Cursor) -> str:
    held = cursor.sized() or b""
    return text_of(held, 0, len(held))


def _base64(held: bytes | None) -> str | None:
    return None if held is None else base64.b64encode(held).decode()


def suppressed_type(value: pa.DataType) -> pa.DataType:
    """Returns the Arrow type of ``suppressed``. value: the one of the inner values."""
    context = pa.struct(
        [
            ("headers", HEADER_TYPE),
            *(("offset", pa.int64()), ("partition", pa.int32()), ("timestamp", pa.int64())),
            ("topic", pa.string()),
        ]
    )
    values = [(name, value) for name in ("new", "old", "prior")]
    return pa.struct([("bufferTime", pa.int64()), ("bytesLeft", pa.int32()), ("context", context), *values])


def registration(data: bytes, primary: Read) -> dict[str, Any]:
    """Reads a subscription of a foreign-key join (``SubscriptionWrapperSerde``), versions 0 and 1."""
    cursor = Cursor(data)
    version, has_hash = _version(cursor, 1)
    instruction = _INSTRUCTIONS[cursor.flag(*range(len(_INSTRUCTIONS)))]
    hash_ = cursor.take(16).hex() if has_hash else None
    key = primary(cursor.take(cursor.left - (4 if version else 0)))
    return {
        "hash": hash_,
        "instruction": instruction,
        "primaryKey": key,
        "primaryPartition": cursor.number(4) if version else None,
        "version": version,
    }


def registration_type(primary: pa.DataType) -> pa.DataType:
    """Returns the Arrow type of ``registration``. primary: the one of the primary key."""
    return pa.struct(
        [
            *(("hash", pa.string()), ("instruction", pa.string()), ("primaryKey", primary)),
            *(("primaryPartition", pa.int32()), ("version", pa.int32())),
        ]
    )


def response(data: bytes, foreign: Read) -> dict[str, object]:
    """Reads the answer to a subscription (``SubscriptionResponseWrapperSerde``)."""
    cursor = Cursor(data)
    version, has_hash = _version(cursor, 0)
    hash_ = cursor.take(16).hex() if has_hash else None
    return {
        "foreignValue": foreign(cursor.rest()) if cursor.left else None,
        "originalValueHash": hash_,
        "primaryPartition": None,
        "version": version,
    }


def response_type(foreign: pa.DataType) -> pa.DataType:
    """Returns the Arrow type of ``response``. foreign: the one of the foreign value."""
    return pa.struct(
        [
            *(("foreignValue", foreign), ("originalValueHash", pa.string())),
            *(("primaryPartition", pa.int32()), ("version", pa.int32())),
        ]
    )


def _version(cursor: Cursor, most: int) -> tuple[int, bool]:
    """Reads a version and whether a hash follows."""
    at, byte = cursor.at, cursor.take(1)[0]
    if byte & ~_NO_HASH > most:
        raise PayloadError("unexpected_value", f"version {byte & ~_NO_HASH}", at)
    return byte & ~_NO_HASH, not byte & _NO_HASH


def subscription_key(data: bytes, foreign: Read, primary: Read) -> dict[str, object]:
    """Reads the foreign and the primary key of a subscription's store (``CombinedKeySchema``)."""
    cursor = Cursor(data)
    return {"foreignKey": foreign(cursor.sized() or b""), "primaryKey": primary(cursor.rest())}


def subscription_key_type(foreign: pa.DataType, primary: pa.DataType) -> pa.DataType:
    """Returns the Arrow type of ``subscription_key``, of those of its two keys."""
    return pa.struct([("foreignKey", foreign), ("primaryKey", primary)])


def outer_join_key(data: bytes, key: Read) -> dict[str, Any]:
    """Reads time, side and key of a record that waits for its partner (``TimestampedKeyAndJoinSide``)."""
    cursor = Cursor(data)
    timestamp, is_left = cursor.number(8), cursor.flag(0, 1)
    return {
        "key": key(cursor.rest()),
        "side": "left" if is_left else "right",
        "timestamp": timestamp,
    }


def outer_join_key_type(key: pa.DataType) -> pa.DataType:
    """Returns the Arrow type of ``outer_join_key``. key: the one of the inner key."""
    return pa.struct([("key", key), ("side", pa.string()), ("timestamp", pa.int64())])


def outer_join_values(data: bytes, value: Read) -> list[dict[str, object]]:
    """Reads the values that wait for their partner (``ListSerde`` of ``LeftOrRightValue``)."""
    cursor = Cursor(data)
    cursor.flag(_VARIABLE_SIZE)
    count = cursor.number(4)
    if not 0 <= count <= cursor.left // 4:
        raise PayloadError("huge_count", f"{count} values, and {cursor.left} bytes left", cursor.at)
    sides = []
    for _ in range(count):
        side = Cursor(cursor.sized() or b"")
        is_left = side.flag(0, 1)
        held = value(side.rest())
        sides.append({"left": held if is_left else None, "right": None if is_left else held})
    cursor.ends()
    return sides


def outer_join_values_type(value: pa.DataType) -> pa.DataType:
    """Returns the Arrow type of ``outer_join_values``. value: the one of both sides."""
    return pa.list_(pa.struct([("left", value), ("right", value)]))
