"""Matches as lines of JSON or CSV, as an Arrow stream, or as the bare values."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import IO, Any, Protocol

import pyarrow as pa

# The fields of a match in JSON, in this order
FIELDS = (
    *("topic", "partition", "offset", "timestamp_ms", "key", "value", "headers", "segment", "batch_position"),
    *("producer_id", "producer_epoch", "outcome", "control_type"),
)
OPTIONAL = ("superseded", "is_match")


class Writer(Protocol):
    """Writes matches as they are found."""

    def write(self, matches: pa.RecordBatch) -> None:
        """Writes matches, and passes them on at once."""

    def close(self) -> None:
        """Writes what is at the end, if anything is."""


class Lines:
    """A line of text a match."""

    def __init__(
        self, file: IO[bytes], lines: Callable[[pa.RecordBatch], Iterator[str]], head: str = ""
    ) -> None:
        self._file, self._lines = file, lines
        self._file.write(head.encode())

    def write(self, matches: pa.RecordBatch) -> None:
        self._file.writelines(f"{line}\n".encode("utf-8", "surrogateescape") for line in self._lines(matches))
        self._file.flush()

    def close(self) -> None:
        self._file.flush()


class Arrow:
    """An Arrow IPC stream."""

    def __init__(self, file: IO[bytes], schema: pa.Schema) -> None:
        self._file, self._stream = file, pa.ipc.new_stream(file, schema)

    def write(self, matches: pa.RecordBatch) -> None:
        self._stream.write_batch(matches)
        self._file.flush()

    def close(self) -> None:
        self._stream.close()
        self._file.flush()


class Raw:
    """The bytes of each value with a newline behind them; of a null value the newline alone."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def write(self, matches: pa.RecordBatch) -> None:
        for value in matches.column("value").to_pylist():
            self._file.write((value or b"") + b"\n")
        self._file.flush()

    def close(self) -> None:
        self._file.flush()


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


def open_writer(kind: str, file: IO[bytes], schema: pa.Schema, more: MoreFields | None = None) -> Writer:
    """A writer of a format: json, csv, arrow or raw. more: gives further fields of a line of JSON."""
    if kind == "arrow":
        return Arrow(file, schema)
    if kind == "raw":
        return Raw(file)
    if kind == "csv":
        return Lines(file, csv_lines, ",".join(fields(schema)) + "\n")
    return Lines(file, partial(json_lines, more=more))
