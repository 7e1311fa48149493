"""JSON as Kafka's tools write it, with Jackson."""

from __future__ import annotations

import json
import re
from typing import Any

from udfs.values.readers import UNKNOWN_TAGS

_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode
# A backslash that is escaped, or a control character as Python escapes it
_ESCAPED = re.compile(r"\\\\|\\u00[0-9a-f]{2}")


def jackson(fields: Any) -> str:
    """No blanks, escapes with capital digits, and none of the tagged fields that Kafka does not know."""
    text = _encode(_known(fields))
    if "\\u00" in text:
        text = _ESCAPED.sub(lambda m: m[0] if m[0] == "\\\\" else m[0][:4] + m[0][4:].upper(), text)
    return text


def _known(fields: Any) -> Any:
    if isinstance(fields, dict):
        return {name: _known(value) for name, value in fields.items() if name != UNKNOWN_TAGS}
    return [_known(item) for item in fields] if isinstance(fields, list) else fields
