"""Parses JSON of RFC 8259 to values of canonical JSON."""

from __future__ import annotations

import json
import math

from kafka_log_lake.udfs.values.schemas.payload import MAX_DEPTH, PayloadError


def parse_json(payload: bytes) -> object:
    """Parses JSON of RFC 8259, with or without a byte order mark. Raises a PayloadError.

    A surrogate without its other half (``"\\ud800"``) is an error too: no column of UTF-8 holds it, and what
    reads such a text (DuckDB, PostgreSQL) refuses it.
    """
    try:
        text = payload.decode().removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise PayloadError("invalid_utf8", f"not UTF-8: {error.reason}", error.start) from None
    try:
        value = _DECODER.decode(text)
        if text.count("[") + text.count("{") > MAX_DEPTH and _depth(value) > MAX_DEPTH:
            raise RecursionError
        if "\\u" in text:
            _check_surrogates(value)
        return value
    except RecursionError:
        raise PayloadError("too_deep", f"JSON of more than {MAX_DEPTH} levels") from None
    except ValueError as error:
        raise PayloadError("invalid_json", str(error)) from None


def _depth(value: object) -> int:
    """Returns how many levels of arrays and objects a value has; 0 for a scalar."""
    depth, inside = 0, [value]
    while inside := [item for item in inside if isinstance(item, list | dict)]:
        depth += 1
        inside = [item for held in inside for item in (held.values() if isinstance(held, dict) else held)]
    return depth


def _refuse(constant: str) -> object:
    raise ValueError(f"{constant} is no JSON")


def _float(digits: str) -> float | str:
    value = float(digits)
    return value if math.isfinite(value) else "Infinity" if value > 0 else "-Infinity"


_DECODER = json.JSONDecoder(parse_constant=_refuse, parse_float=_float)


def _check_surrogates(value: object) -> None:
    """Raises a ValueError for a surrogate without its other half, in a text or in a name."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        half = ord(error.object[error.start])
        raise ValueError(f"\\u{half:04x} is one half of a character, and the other is missing") from None
