"""Arrow rows as JSON objects: binary as Base64, timestamps as ISO 8601, nulls kept."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

_quoted = json.JSONEncoder(ensure_ascii=False).encode
_INFINITE = {2**63 - 1: "infinity", 1 - 2**63: "-infinity"}  # timestamps of DuckDB


def json_lines(batch: pa.RecordBatch) -> Iterator[str]:
    """Yields one JSON object a row."""
    keys = [_quoted(name) + ":" for name in batch.schema.names]
    for row in zip(*map(encoded, batch.columns), strict=True):
        yield "{" + ",".join([key + value for key, value in zip(keys, row, strict=True)]) + "}"


def encoded(array: pa.Array) -> list[str]:
    """Returns the JSON text of every value of an array."""
    kind = array.type
    if isinstance(array, pa.ExtensionArray):
        return encoded(array.storage)
    if pa.types.is_dictionary(kind):
        return encoded(array.dictionary_decode())
    if pa.types.is_map(kind):
        keys, items = encoded(array.keys), encoded(array.items)
        pairs = [(k if k.startswith('"') else _quoted(k)) + ":" + v for k, v in zip(keys, items, strict=True)]
        return _grouped(array, pairs, "{", "}")
    if pa.types.is_fixed_size_list(kind):
        array = array.cast(pa.list_(kind.value_type))
        kind = array.type
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _grouped(array, encoded(array.values), "[", "]")
    if pa.types.is_struct(kind):
        names = [_quoted(field.name) for field in kind]
        rows = zip(*(encoded(array.field(i)) for i in range(kind.num_fields)), strict=True)
        texts = ["{" + ",".join(map(":".join, zip(names, row, strict=True))) + "}" for row in rows]
        return [
            text if there else "null" for text, there in zip(texts, array.is_valid().to_pylist(), strict=True)
        ]
    if pa.types.is_timestamp(kind) or pa.types.is_date32(kind):
        return _moments(array)
    return _each(array, _encoder(kind))


def _grouped(array: pa.Array, items: list[str], begin: str, end: str) -> list[str]:
    """Encodes lists or maps: the items of each between brackets."""
    ends, there = array.offsets.to_pylist(), array.is_valid().to_pylist()
    return [
        begin + ",".join(items[ends[i] : ends[i + 1]]) + end if is_there else "null"
        for i, is_there in enumerate(there)
    ]


def _each(array: pa.Array, encode: Callable[[Any], str]) -> list[str]:
    return ["null" if value is None else encode(value) for value in array.to_pylist()]


def _interval(value: Any) -> str:
    """Formats an interval as ``1 month 3 days 1.5 seconds``, without the parts that are 0."""
    parts = {"month": value.months, "day": value.days, "second": value.nanoseconds / 1e9}
    shown = [f"{n:g} {name}{'' if abs(n) == 1 else 's'}" for name, n in parts.items() if n]
    return " ".join(shown) or "0 seconds"


def _encoder(kind: pa.DataType) -> Callable[[Any], str]:
    if pa.types.is_boolean(kind):
        return lambda value: "true" if value else "false"
    if pa.types.is_integer(kind) or pa.types.is_decimal(kind):
        return lambda value: f"{value:f}" if pa.types.is_decimal(kind) else str(value)
    if pa.types.is_float32(kind):
        return lambda value: str(np.float32(value)) if math.isfinite(value) else _not_finite(value)
    if pa.types.is_floating(kind):
        return lambda value: repr(value) if math.isfinite(value) else _not_finite(value)
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return lambda value: f'"{base64.b64encode(value).decode()}"'
    return lambda value: _quoted(_interval(value) if pa.types.is_interval(kind) else str(value))


def _not_finite(value: float) -> str:
    return {"nan": '"NaN"', "inf": '"Infinity"', "-inf": '"-Infinity"'}[str(value)]


def _moments(array: pa.Array) -> list[str]:
    """Encodes dates and timestamps (six or nine digits of a second) as ISO 8601; years past 9999 signed."""
    kind = array.type
    is_date = pa.types.is_date32(kind)
    unit = "D" if is_date else kind.unit
    shown = unit if unit in ("D", "ns") else "us"
    zone = "" if is_date or kind.tz is None else "Z"
    numbers = array.cast(pa.int32() if is_date else pa.int64())
    times = numbers.cast(pa.int64()).fill_null(0).to_numpy().astype(f"datetime64[{unit}]")
    texts = []
    for number, text in zip(numbers.to_pylist(), np.datetime_as_string(times, shown).tolist(), strict=True):
        sign = "+" if text[0] != "-" != text[4] else ""
        value = _INFINITE.get(number, f"{sign}{text}{zone}")
        texts.append("null" if number is None else f'"{value}"')
    return texts
