"""Matches as lines of JSON or CSV, as an Arrow stream, as the bare values, or as a table for a person."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import IO, Any

import pyarrow as pa

from pipelines.command.generated import csv_cell
from pipelines.command.terminal import aligned, counted_noun, printable, shortened_to, time_text

# The fields of a match in JSON, in this order
FIELDS = (
    *("topic", "partition", "offset", "timestamp_ms", "key", "value", "headers", "segment", "batch_position"),
    *("producer_id", "producer_epoch", "outcome", "control_type"),
)
OPTIONAL = ("superseded", "is_match")
_BASE64 = ("key", "value")


Lines = Callable[[pa.RecordBatch], Iterator[str]]
# Writes matches to a file, each batch as it is found
Write = Callable[[IO[bytes], Iterable[pa.RecordBatch]], None]


def write_lines(file: IO[bytes], batches: Iterable[pa.RecordBatch], lines: Lines, head: str = "") -> None:
    """Lines of text."""
    file.write(head.encode())
    for matches in batches:
        file.writelines(f"{line}\n".encode("utf-8", "surrogateescape") for line in lines(matches))
        file.flush()
    file.flush()


def write_arrow(file: IO[bytes], batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> None:
    """An Arrow IPC stream."""
    stream = pa.ipc.new_stream(file, schema)
    for matches in batches:
        stream.write_batch(matches)
        file.flush()
    stream.close()
    file.flush()


def write_raw(file: IO[bytes], batches: Iterable[pa.RecordBatch]) -> None:
    """The bytes of each value with a newline behind them; of a null value the newline alone."""
    for matches in batches:
        file.writelines((value or b"") + b"\n" for value in matches.column("value").to_pylist())
        file.flush()


def fields(matches: pa.RecordBatch | pa.Schema) -> list[str]:
    """The fields of a match in JSON, in their order."""
    names = matches.names if isinstance(matches, pa.Schema) else matches.schema.names
    return [*FIELDS, *(name for name in OPTIONAL if name in names)]


# Further fields of a match, of its values before they are turned into JSON's
MoreFields = Callable[[dict[str, Any]], dict[str, Any]]


def rows(matches: pa.RecordBatch, more: MoreFields | None = None) -> Iterator[dict[str, Any]]:
    """Matches as values of JSON: bytes as Base64, headers as pairs."""
    for row in matches.select(fields(matches)).to_pylist():
        others = more(row) if more is not None else {}
        row["key"], row["value"] = _base64(row["key"]), _base64(row["value"])
        row["headers"] = [[one["key"], _base64(one["value"])] for one in row["headers"] or ()]
        yield row | others


def _base64(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()


def json_lines(matches: pa.RecordBatch, more: MoreFields | None = None) -> Iterator[str]:
    """A JSON object a match."""
    return (json.dumps(row) for row in rows(matches, more))


def csv_lines(matches: pa.RecordBatch) -> Iterator[str]:
    """A line of CSV a match: bytes as Base64, headers as JSON."""
    for row in rows(matches):
        row["headers"] = json.dumps(row["headers"])
        yield ",".join(_csv_cell(name, value) for name, value in row.items())


def _csv_cell(name: str, value: Any) -> str:
    if value is None or isinstance(value, str):
        return csv_cell(value, is_data=name in _BASE64)
    return csv_cell(str(value).lower(), is_data=True)


def writer_of(kind: str, schema: pa.Schema, more: MoreFields | None) -> Write:
    """What writes a format: json, csv, arrow or raw. more: gives further fields of a line of JSON."""
    if kind == "arrow":
        return partial(write_arrow, schema=schema)
    if kind == "raw":
        return write_raw
    if kind == "csv":
        return partial(write_lines, lines=csv_lines, head=",".join(fields(schema)) + "\n")
    return partial(write_lines, lines=partial(json_lines, more=more))


_WIDTH = 140  # where there is no terminal
_BOLD, _DIM = 1, 2  # of a terminal
_KEY, _LEAST_KEY, _LEAST_VALUE = 24, 9, 12
_SCHEMA_ID = 5  # bytes of Confluent's wire format before the content: 0, and the schema id as int32


class Table:
    """Gives two lines a match. width: columns of the terminal; None without one, 0 to cut nothing."""

    def __init__(self, width: int | None, is_coloured: bool = False) -> None:
        self._width, self._is_coloured = _WIDTH if width is None else width, is_coloured
        self._names = 0

    def lines(self, matches: pa.RecordBatch) -> Iterator[str]:
        rows = matches.to_pylist()
        for row in rows:
            row["name"] = printable(f"{row['topic']}-{row['partition']}")
        before, self._names = self._names, max(self._names, *(len(row["name"]) for row in rows), 9)
        if not before:
            yield self._styled(_BOLD, self._line("partition", "offset", "timestamp", "key", "value"))
        for row in rows:
            key, value = (" ".join(_text(row[name])) for name in ("key", "value"))
            line = self._line(row["name"], str(row["offset"]), _time(row["timestamp_ms"]), key, value)
            yield self._styled(_BOLD, line) if row.get("is_match") else line
            yield self._styled(_DIM, self._cut("    " + ", ".join(_details(row)), self._width))

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

    def _styled(self, style: int, text: str) -> str:
        return f"\x1b[{style}m{text}\x1b[0m" if self._is_coloured else text


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
    return "-" if milliseconds == -1 else time_text(milliseconds, "milliseconds")


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
