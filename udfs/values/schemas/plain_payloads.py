"""Decodes payloads without a schema, JSON, texts and bytes, and finds which of them a topic has."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from kafka_log_lake.udfs.values.apps.connect import ENVELOPE, payload_of
from kafka_log_lake.udfs.values.json.parse import parse_json
from kafka_log_lake.udfs.values.schemas.payload import DecodedPayload, PayloadError, failed

# Of a side without a sign of a registry: a look at each payload, and heads that name no schema are bytes
LOOK = "look"
_OPENS = re.compile(r"[\ufeff \t\r\n]*[{\[]")
# Control characters but blanks
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f]")


def plain_payload(payload: bytes, plain: str) -> DecodedPayload:
    """Decodes an unframed payload.

    plain: json, text or bytes; "" for a look: an object or array of JSON, text, bytes.
    """
    if plain == "bytes":
        return DecodedPayload("bytes", payload)
    try:
        text = payload.decode()
    except UnicodeDecodeError as error:
        problem = PayloadError("invalid_utf8", f"not UTF-8: {error.reason}", error.start)
        return failed("bytes", payload, problem) if plain else DecodedPayload("bytes", payload)
    if plain == "json" or (not plain and _OPENS.match(text)):
        try:
            value = parse_json(payload)
        except PayloadError as error:
            return (
                DecodedPayload("text", text, None, error.reason, str(error))
                if plain
                else DecodedPayload("text", text)
            )
        if isinstance(value, dict) and value.keys() == ENVELOPE:
            return DecodedPayload("json-connect", payload_of(value))
        return DecodedPayload("json", value)
    return (
        DecodedPayload("text", text)
        if plain or not _CONTROL.search(text)
        else DecodedPayload("bytes", payload)
    )


_LIKE_JSON = frozenset("{[\"'+-./0123456789")
_JSON_WORDS = ("true", "false", "null")


def plain_of(sample: Iterable[DecodedPayload]) -> str:
    """Returns what a topic side's payloads without a schema are: json, text, bytes, or "" where mixed.

    sample: of the side's payloads, read with ``plain`` "". Broken JSON is text there, so that objects and
    arrays need not be most; one text or another may look like JSON, and bytes like text.
    """
    count = Counter(_look(payload) for payload in sample)
    objects, alike, texts, others = (count[kind] for kind in ("object", "like", "text", "bytes"))
    unframed = objects + alike + texts + others
    if not unframed or count["framed"] > unframed:
        return ""
    if objects * 5 >= unframed and texts * 10 <= unframed:
        return "json"
    if (alike + texts) > 9 * (others + objects):
        return "text"
    return "bytes" if others > 9 * (objects + alike + texts) else ""


def _look(decoded: DecodedPayload) -> str:
    if decoded.reason is not None:
        return "framed"  # by a schema that is not known
    if decoded.format in ("json", "json-connect"):
        return "object"
    if decoded.format == "text":
        text = decoded.content.strip()
        return "like" if text[:1] in _LIKE_JSON or any(w.startswith(text) for w in _JSON_WORDS) else "text"
    return (
        ""
        if decoded.content is None or decoded.format == "empty"
        else "bytes"
        if decoded.format == "bytes"
        else "framed"
    )
