"""Arrow rows as the JSON objects that Spark's ``to_json`` writes of them, with nulls and in UTC."""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa

_text = json.JSONEncoder(ensure_ascii=False).encode
# A surrogate in three bytes is one error to Java, three to Python
_SURROGATE, _REPLACEMENT = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?"), "\ufffd".encode()
_EPOCH_DAYS = 719_162  # days from year 1 to 1970


def json_lines(names: Sequence[str], types: Sequence[pa.DataType], batch: pa.RecordBatch) -> Iterator[str]:
    """One JSON object a row.

    types: the columns' types in Spark. A column of strings may hold bytes: they are printed as UTF-8, with
    U+FFFD for what is not.
    """
    columns = [encoded(batch.column(i), of) for i, of in enumerate(types)]
    keys = [_quoted(name) + ":" for name in names]
    for row in zip(*columns, strict=True):
        yield "{" + ",".join([key + value for key, value in zip(keys, row, strict=True)]) + "}"


def encoded(array: pa.Array, of: pa.DataType) -> list[str]:
    """The JSON text of every value of an array."""
    if pa.types.is_null(of):
        return ["null"] * len(array)
    if pa.types.is_timestamp(of):
        array = array.cast(pa.int64())
    encode = _moment if pa.types.is_timestamp(of) else _encoder(of)
    return ["null" if value is None else encode(value) for value in array.to_pylist()]


def as_utf_8(content: bytes) -> str:
    """Bytes as text, with U+FFFD for what is not UTF-8, as Java does it."""
    return _SURROGATE.sub(_REPLACEMENT, content).decode(errors="replace")


def _quoted(text: str | bytes) -> str:
    """A JSON string: control characters as \\u001F, in capitals as Jackson writes them."""
    if isinstance(text, bytes):
        text = as_utf_8(text)
    quoted = _text(text)
    return quoted if "\\u" not in quoted else _capitals(text)


def _capitals(text: str) -> str:
    return (
        '"'
        + "".join(f"\\u{ord(c):04X}" if c < " " and c not in "\b\t\n\f\r" else _text(c)[1:-1] for c in text)
        + '"'
    )


def _base64(value: bytes) -> str:
    return f'"{base64.b64encode(value).decode()}"'


def _moment(micros: int) -> str:
    """A timestamp as ISO 8601. Years past 9999 have a sign, as java.time writes them."""
    days, rest = divmod(micros, 86_400_000_000)
    seconds, fraction = divmod(rest, 1_000_000)
    hours, minutes = divmod(seconds // 60, 60)
    return f'"{_date(days)}T{hours:02}:{minutes:02}:{seconds % 60:02}.{fraction:06}Z"'


def _date(days: int) -> str:
    """Days since 1970 in the proleptic Gregorian calendar, for any year (civil_from_days)."""
    era, day_of_era = divmod(days + 719_468, 146_097)
    year_of_era = (day_of_era - day_of_era // 1460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    month = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * month + 2) // 5 + 1
    month += 3 if month < 10 else -9
    year = year_of_era + era * 400 + (month <= 2)
    return f"{'+' if year > 9999 else ''}{year:04}-{month:02}-{day:02}"


def _double(value: float) -> str:
    """As Java's ``Double.toString``: 1.0E10, 0.001, 1.0E-4; NaN and infinities in quotes."""
    if value != value or value in (math.inf, -math.inf):
        return {"nan": '"NaN"', "inf": '"Infinity"', "-inf": '"-Infinity"'}[str(value)]
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    two = f"{value:.1e}"  # Java writes two digits at least, and of those the nearest
    digits, exponent = (two if float(two) == value else f"{Decimal(repr(value)).normalize():e}").split("e")
    return f"{digits if '.' in digits else digits + '.0'}E{int(exponent)}"


def _encoder(of: pa.DataType) -> Callable[[Any], str]:
    if pa.types.is_boolean(of):
        return lambda value: "true" if value else "false"
    if pa.types.is_integer(of):
        return str
    if pa.types.is_floating(of):
        return _double
    if pa.types.is_string(of):
        return _quoted
    if pa.types.is_binary(of):
        return _base64
    if pa.types.is_date(of):
        return lambda value: f'"{value.isoformat()}"'
    return _nested_encoder(of)


def _nested_encoder(of: pa.DataType) -> Callable[[Any], str]:
    if pa.types.is_list(of):
        inner = _nullable(of.value_type)
        return lambda values: "[" + ",".join(map(inner, values)) + "]"
    if pa.types.is_map(of):
        key, inner = _encoder(of.key_type), _nullable(of.item_type)
        return lambda pairs: "{" + ",".join(f"{_as_key(key(k))}:{inner(v)}" for k, v in pairs) + "}"
    parts = [(field.name, _quoted(field.name), _nullable(field.type)) for field in of]
    return lambda row: "{" + ",".join(f"{quoted}:{inner(row[name])}" for name, quoted, inner in parts) + "}"


def _as_key(text: str) -> str:
    return text if text.startswith('"') else f'"{text}"'


def _nullable(of: pa.DataType) -> Callable[[Any], str]:
    if pa.types.is_timestamp(of):
        return lambda value: "null" if value is None else _moment(_micros(value))
    encode = _encoder(of)
    return lambda value: "null" if value is None else encode(value)


def _micros(value: Any) -> int:
    days = value.toordinal() - 1 - _EPOCH_DAYS
    return (
        days * 86_400_000_000
        + ((value.hour * 60 + value.minute) * 60 + value.second) * 1_000_000
        + value.microsecond
    )
