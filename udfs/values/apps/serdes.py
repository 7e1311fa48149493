"""Reads what the serializers of Kafka's clients write, and windowed keys around them.

Big-endian numbers of their full size (``LongSerializer``, ``DoubleSerializer``, ...); a text is UTF-8. A
windowed key has its window after the key: the start (``TimeWindowedSerializer``, of which the log does not
tell the size), or end and start (``SessionWindowedSerializer``: the end comes first).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from kafka_log_lake.udfs.values.apps.cursor import Cursor
from kafka_log_lake.udfs.values.apps.topic_format import REGISTERED
from kafka_log_lake.udfs.values.json.parse import parse_json
from kafka_log_lake.udfs.values.schemas.payload import (
    PayloadError,
    canonical_bytes,
    canonical_float,
    text_of,
)

Read = Callable[[bytes], Any]
_WHOLE = {"long": (8, pa.int64()), "integer": (4, pa.int32()), "short": (2, pa.int16())}
_REAL = {"double": (">d", pa.float64()), "float": (">f", pa.float32())}
_ARROW = {"string": pa.string(), "uuid": pa.string(), "bytes": pa.binary(), "": pa.binary()}


def serde(name: str, window_size_ms: int | None, registered: Read) -> Read:
    """Returns the function that reads bytes of a serde as canonical JSON. It raises a PayloadError.

    name: of SERDES, maybe with a window in front; "" reads bytes. registered: reads by the schema registry.
    """
    window, _, inner = name.rpartition(":")
    if window:
        return _windowed(window, serde(inner, window_size_ms, registered), window_size_ms)
    if inner in _WHOLE:
        return _whole(_WHOLE[inner][0])
    if inner in _REAL:
        return _real(struct.Struct(_REAL[inner][0]))
    if inner in REGISTERED:
        return registered
    return {"string": _text, "uuid": _text, "json": parse_json}.get(inner, canonical_bytes)


def arrow_type(name: str) -> pa.DataType:
    """Returns the type of a serde's column. JSON, and what the registry reads, is text there."""
    window, _, inner = name.rpartition(":")
    if window:
        return pa.struct([("key", arrow_type(inner)), ("start", pa.int64()), ("end", pa.int64())])
    numbers: dict[str, Any] = _WHOLE | _REAL
    return numbers[name][1] if name in numbers else _ARROW.get(name, pa.string())


def time_window(cursor: Cursor, size: int | None) -> dict[str, int | None]:
    """Reads the start of a window; its end is None where the size is not known."""
    start = cursor.number(8)
    return {"start": start, "end": None if size is None else min(start + size, (1 << 63) - 1)}


def session_window(cursor: Cursor) -> dict[str, int | None]:
    """Reads end and start of a session, in this order (ms since 1970)."""
    end = cursor.number(8)
    return {"start": cursor.number(8), "end": end}


def _windowed(kind: str, inner: Read, size: int | None) -> Read:
    if kind == "session-windowed":
        return lambda data: before(data, 16, inner, session_window)
    return lambda data: before(data, 8, inner, lambda cursor: time_window(cursor, size))


def before(
    data: bytes, size: int, inner: Read, read: Callable[[Cursor], dict[str, int | None]]
) -> dict[str, Any]:
    """Returns ``key``, all but the last ``size`` bytes, with what ``read`` makes of these."""
    if len(data) < size:
        raise PayloadError("truncated", f"{len(data)} bytes, of which the window has {size}", 0)
    return {"key": inner(data[:-size]), **read(Cursor(data, len(data) - size))}


def _whole(size: int) -> Read:
    def read(data: bytes) -> int:
        cursor = Cursor(data)
        number = cursor.number(size)
        cursor.ends()
        return number

    return read


def _real(layout: struct.Struct) -> Read:
    def read(data: bytes) -> float | str:
        cursor = Cursor(data)
        number: float = layout.unpack(cursor.take(layout.size))[0]
        cursor.ends()
        return canonical_float(number)

    return read


def _text(data: bytes) -> str:
    return text_of(data, 0, len(data))
