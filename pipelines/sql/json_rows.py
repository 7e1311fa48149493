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
_DAY = 86_400
_INFINITE = 2**63 - 1  # a timestamp of DuckDB
_PARTS = {"s": 1, "ms": 1000, "us": 1_000_000, "ns": 1_000_000_000}


def json_lines(batch: pa.RecordBatch) -> Iterator[str]:
    """One JSON object a row."""
    keys = [_quoted(name) + ":" for name in batch.schema.names]
    for row in zip(*map(encoded, batch.columns), strict=True):
        yield "{" + ",".join([key + value for key, value in zip(keys, row, strict=True)]) + "}"


def encoded(array: pa.Array) -> list[str]:
    """The JSON text of every value of an array."""
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
    if pa.types.is_timestamp(kind):
        unit, zone = _PARTS[kind.unit], "Z" if kind.tz else ""
        return _each(array.cast(pa.int64()), lambda value: f'"{_moment(value, unit, zone)}"')
    if pa.types.is_date32(kind):
        return _each(array.cast(pa.int32()), lambda days: f'"{_date(days)}"')
    return _each(array, _encoder(kind))


def _grouped(array: pa.Array, items: list[str], begin: str, end: str) -> list[str]:
    """Lists or maps: the items of each between brackets."""
    ends, there = array.offsets.to_pylist(), array.is_valid().to_pylist()
    return [
        begin + ",".join(items[ends[i] : ends[i + 1]]) + end if is_there else "null"
        for i, is_there in enumerate(there)
    ]


def _each(array: pa.Array, encode: Callable[[Any], str]) -> list[str]:
    return ["null" if value is None else encode(value) for value in array.to_pylist()]


def _interval(value: Any) -> str:
    """``1 month 3 days 1.5 seconds``, without the parts that are 0."""
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


def _moment(value: int, unit: int, zone: str) -> str:
    """A timestamp as ISO 8601, with six digits of a second, or nine. unit: parts of a second."""
    if abs(value) == _INFINITE:
        return "infinity" if value > 0 else "-infinity"
    days, rest = divmod(value, _DAY * unit)
    seconds, fraction = divmod(rest, unit)
    digits = f"{fraction:09}" if unit > 1_000_000 else f"{fraction * (1_000_000 // unit):06}"
    return f"{_date(days)}T{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{digits}{zone}"


def _date(days: int) -> str:
    """Days since 1970 in the proleptic Gregorian calendar, for any year (civil_from_days).

    Years past 9999 have a sign.
    """
    era, day_of_era = divmod(days + 719_468, 146_097)
    year_of_era = (day_of_era - day_of_era // 1460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    month = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * month + 2) // 5 + 1
    month += 3 if month < 10 else -9
    year = year_of_era + era * 400 + (month <= 2)
    return f"{'+' if year > 9999 else ''}{year:04}-{month:02}-{day:02}"
