"""Matches as lines of JSON or CSV, as an Arrow stream, or as the bare values."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import IO, Any

import pyarrow as pa

# The fields of a match in JSON, in this order
FIELDS = (
    *("topic", "partition", "offset", "timestamp_ms", "key", "value", "headers", "segment", "batch_position"),
    *("producer_id", "producer_epoch", "outcome", "control_type"),
)
OPTIONAL = ("superseded", "is_match")


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
    """RFC 4180, a line a match: bytes as Base64, headers as JSON; null is empty, an empty text ``""``."""
    for row in rows(matches):
        row["headers"] = json.dumps(row["headers"])
        yield ",".join(map(_cell, row.values()))


def _cell(value: Any) -> str:
    text = "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    is_plain = text.isprintable() and not {*text} & {",", '"'} and (text or value is None)
    return text if is_plain else '"' + text.replace('"', '""') + '"'


def writer_of(kind: str, schema: pa.Schema, more: MoreFields | None) -> Write:
    """What writes a format: json, csv, arrow or raw. more: gives further fields of a line of JSON."""
    if kind == "arrow":
        return partial(write_arrow, schema=schema)
    if kind == "raw":
        return write_raw
    if kind == "csv":
        return partial(write_lines, lines=csv_lines, head=",".join(fields(schema)) + "\n")
    return partial(write_lines, lines=partial(json_lines, more=more))
