"""Matches as a table for a person: two lines each, cut to the width of the terminal."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from pipelines.command.terminal import aligned, counted_noun, printable, shortened_to

_WIDTH = 140  # where there is no terminal
_KEY, _LEAST_KEY, _LEAST_VALUE = 24, 9, 12
_SCHEMA_ID = 5  # bytes of Confluent's wire format before the content: 0, and the schema id as int32
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Table:
    """Gives the lines of matches. width: columns of the terminal; None without one, 0 to cut nothing."""

    def __init__(self, width: int | None, is_coloured: bool = False) -> None:
        self._width, self._is_coloured = _WIDTH if width is None else width, is_coloured
        self._names = 0

    def lines(self, matches: pa.RecordBatch) -> Iterator[str]:
        rows = matches.to_pylist()
        for row in rows:
            row["name"] = printable(f"{row['topic']}-{row['partition']}")
        before, self._names = self._names, max(self._names, *(len(row["name"]) for row in rows), 9)
        if not before:
            yield self._bold(self._line("partition", "offset", "timestamp", "key", "value"))
        for row in rows:
            key, value = (" ".join(_text(row[name])) for name in ("key", "value"))
            line = self._line(row["name"], str(row["offset"]), _time(row["timestamp_ms"]), key, value)
            yield self._bold(line) if row.get("is_match") else line
            yield self._dim(self._cut("    " + ", ".join(_details(row)), self._width))

    def _line(self, name: str, offset: str, time: str, key: str, value: str) -> str:
        """The key is cut so that a value has room; both are whole where nothing is cut."""
        begin = f"{aligned(name, self._names)}  {offset:>12}  {time:<23}  "
        if not self._width:
            return f"{begin}{key}  {value}"
        room = max(self._width - len(begin) - 2, _LEAST_KEY + _LEAST_VALUE)
        of_key = max(_LEAST_KEY, min(_KEY, room * 2 // 5))
        key, value = aligned(shortened_to(key, of_key), of_key), shortened_to(value, room - of_key)
        return f"{begin}{key}  {value}".rstrip()

    def _cut(self, text: str, width: int) -> str:
        return shortened_to(text, width) if width else text

    def _bold(self, text: str) -> str:
        return f"\x1b[1m{text}\x1b[0m" if self._is_coloured else text

    def _dim(self, text: str) -> str:
        return f"\x1b[2m{text}\x1b[0m" if self._is_coloured else text


def _text(content: bytes | None) -> tuple[str, ...]:
    """What bytes are, and they themselves: JSON, text, a schema's content, or other bytes in hexadecimal."""
    if content is None:
        return ("null",)
    kind, shown = "", content
    if len(content) >= _SCHEMA_ID and content[0] == 0:
        kind, shown = f"schema {int.from_bytes(content[1:_SCHEMA_ID], 'big')}", content[_SCHEMA_ID:]
    try:
        text = shown.decode()
    except UnicodeDecodeError:
        return (kind or "bytes", "0x" + shown.hex())
    if not kind and any(c < " " and c not in "\t\r\n" for c in text):
        return ("bytes", "0x" + shown.hex())
    kind = " ".join(filter(None, (kind, "JSON" if _is_json(text) else "" if kind else "text")))
    return (kind, printable(text))


def _is_json(text: str) -> bool:
    if text[:1] not in ("{", "["):
        return False
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _time(milliseconds: int) -> str:
    if milliseconds == -1:
        return "-"
    try:
        at = _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return f"{milliseconds} ms"
    return at.strftime("%Y-%m-%d %H:%M:%S.") + f"{at.microsecond // 1000:03}"


def _details(row: dict[str, Any]) -> Iterator[str]:
    yield f"{printable(row['segment'].rpartition('/')[2])}, batch at byte {row['batch_position']}"
    if row["headers"]:
        yield (
            counted_noun(len(row["headers"]), "header")
            + ": "
            + "; ".join(
                printable(one["key"]) + "=" + " ".join(_text(one["value"])[-1:]) for one in row["headers"]
            )
        )
    if row["producer_id"] >= 0:
        yield f"producer {row['producer_id']} epoch {row['producer_epoch']}"
    if row["control_type"]:
        yield f"control record {row['control_type']}"
    if row["outcome"]:
        yield f"transaction {row['outcome']}"
    if row.get("superseded") is not None:
        yield "superseded" if row["superseded"] else "the last of its key"
