"""JSON as Kafka's tools write it, with Jackson."""

from __future__ import annotations

import json
import math
import re
from decimal import Decimal
from typing import Any

from udfs.values.readers import UNKNOWN_TAGS

_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode
# A backslash that is escaped, or a control character as Python escapes it
_ESCAPED = re.compile(r"\\\\|\\u00[0-9a-f]{2}")


def jackson(fields: Any) -> str:
    """No blanks, escapes with capital digits, and none of the tagged fields that Kafka does not know."""
    if isinstance(fields, dict):
        parts = (f"{_encode(k)}:{jackson(v)}" for k, v in fields.items() if k != UNKNOWN_TAGS)
        return "{" + ",".join(parts) + "}"
    if isinstance(fields, list):
        return "[" + ",".join(map(jackson, fields)) + "]"
    if isinstance(fields, float):
        return java_double(fields)
    text = _encode(fields)
    if "\\u00" in text:
        text = _ESCAPED.sub(lambda m: m[0] if m[0] == "\\\\" else m[0][:4] + m[0][4:].upper(), text)
    return text


def java_double(number: float) -> str:
    """As ``Double.toString`` of Java 19 and later writes it; NaN and the like in quotes, as Jackson does."""
    if not math.isfinite(number):
        return '"NaN"' if math.isnan(number) else f'"{"-" if number < 0 else ""}Infinity"'
    if number == 0 or 1e-3 <= abs(number) < 1e7:
        return format(Decimal(repr(number)), "f")
    sign, digits, exponent = Decimal(repr(number)).normalize().as_tuple()
    assert isinstance(exponent, int)  # of a finite number
    rest = "".join(map(str, digits[1:])) or "0"
    return f"{'-' if sign else ''}{digits[0]}.{rest}E{exponent + len(digits) - 1}"
