"""Writes matches as JSON or CSV lines, as an Arrow stream, as bare values, or as a table for a person."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import IO, Any

import pyarrow as pa

from kafka_log_lake.pipelines.cli.generated import base64_text, csv_cell, header_pairs, utf8_text
from kafka_log_lake.pipelines.cli.terminal import (
    aligned,
    counted_noun,
    printable,
    shortened_to,
    time_text,
    width_of,
)

# The fields of a match in JSON, in this order
FIELDS = (
    *("topic", "partition", "offset", "timestamp_ms", "key", "value", "headers", "segment", "batch_position"),
    *("producer_id", "producer_epoch", "outcome", "control_type", "leader_epoch"),
)
OF_COPIES = ("copy", "topic_id", "side", "why", "certainty", "replaced_by", "replaced_by_epoch")
OPTIONAL = (*OF_COPIES, "superseded", "is_match")
_BASE64 = ("key", "value")


Lines = Callable[[pa.RecordBatch], Iterator[str]]
# Writes matches to a file, each batch as it is found
Write = Callable[[IO[bytes], Iterable[pa.RecordBatch]], None]


def write_lines(file: IO[bytes], batches: Iterable[pa.RecordBatch], lines: Lines, head: str = "") -> None:
    """Writes matches as lines of text, after ``head``."""
    file.write(head.encode())
    for matches in batches:
        file.writelines(f"{line}\n".encode("utf-8", "surrogateescape") for line in lines(matches))
        file.flush()
    file.flush()


def write_arrow(file: IO[bytes], batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> None:
    """Writes matches as an Arrow IPC stream."""
    stream = pa.ipc.new_stream(file, schema)
    for matches in batches:
        stream.write_batch(matches)
        file.flush()
    stream.close()
    file.flush()


def write_raw(file: IO[bytes], batches: Iterable[pa.RecordBatch]) -> None:
    """Writes the bytes of each value and a newline; for a null value the newline alone."""
    for matches in batches:
        file.writelines((value or b"") + b"\n" for value in matches.column("value").to_pylist())
        file.flush()


def fields(matches: pa.RecordBatch | pa.Schema) -> list[str]:
    """Returns the names of the fields of a match in JSON, in their order."""
    names = matches.names if isinstance(matches, pa.Schema) else matches.schema.names
    return [*FIELDS, *(name for name in OPTIONAL if name in names)]


# Further fields of a match, of its values before they are turned into JSON's
MoreFields = Callable[[dict[str, object]], dict[str, object]]


def rows(matches: pa.RecordBatch, more: MoreFields | None = None) -> Iterator[dict[str, Any]]:
    """Yields matches as dicts for JSON: bytes as Base64, headers as pairs."""
    for row in matches.select(fields(matches)).to_pylist():
        others = more(row) if more is not None else {}
        others = {"key_text": utf8_text(row["key"]), "value_text": utf8_text(row["value"])} | others
        row["key"], row["value"] = base64_text(row["key"]), base64_text(row["value"])
        row["headers"] = header_pairs(row["headers"])
        yield row | others


def json_lines(matches: pa.RecordBatch, more: MoreFields | None = None) -> Iterator[str]:
    """Yields one JSON object per match."""
    return (json.dumps(row) for row in rows(matches, more))


def csv_lines(matches: pa.RecordBatch) -> Iterator[str]:
    """Yields one line of CSV per match: bytes as Base64, headers as JSON."""
    for row in rows(matches):
        row["headers"] = json.dumps(row["headers"])
        del row["key_text"], row["value_text"]
        yield ",".join(csv_cell(value, is_data=name in _BASE64) for name, value in row.items())


def writer_of(kind: str, schema: pa.Schema, more: MoreFields | None) -> Write:
    """Returns the writer of a format: json, csv, arrow or raw. more: gives further fields for JSON."""
    if kind == "arrow":
        return partial(write_arrow, schema=schema)
    if kind == "raw":
        return write_raw
    if kind == "csv":
        return partial(write_lines, lines=csv_lines, head=",".join(fields(schema)) + "\n")
    return partial(write_lines, lines=partial(json_lines, more=more))


_WIDTH = 140  # where there is no terminal
_BOLD, _DIM = 1, 2  # of a terminal
_KEY, _LEAST_KEY, _LEAST_NAME, _LEAST_VALUE = 24, 9, 9, 12
_SCHEMA_ID = 5  # bytes of Confluent's wire format before the content: 0, and the schema id as int32


class MatchTable:
    """Formats matches as a table: two lines per match, three if it is of a broker's copy.

    width: columns of the terminal; None without one, 0 to cut nothing.
    keys_first: whether keys get the room that they need before names and values do. more: gives the fields
    of ``--typed``, which then stand in place of keys and values.
    """

    def __init__(
        self,
        width: int | None,
        is_coloured: bool = False,
        keys_first: bool = False,
        more: MoreFields | None = None,
    ) -> None:
        self._more = more
        self._width, self._is_coloured = _WIDTH if width is None else width, is_coloured
        self._keys_first = keys_first
        self._names = self._offsets = self._keys = 0

    def lines(self, matches: pa.RecordBatch) -> Iterator[str]:
        rows = matches.to_pylist()
        for row in rows:
            row["name"] = printable(f"{row['topic']}-{row['partition']}")
            typed = self._more(row) if self._more is not None else {}
            row["key"], row["value"] = (_typed_text(typed, side, row[side]) for side in ("key", "value"))
        before, self._names = self._names, max(self._names, *(width_of(row["name"]) for row in rows), 9)
        self._offsets = max(self._offsets, *(len(str(row["offset"])) for row in rows), 6)
        self._keys = max(self._keys, *(width_of(" ".join(row["key"])) for row in rows))
        if not before:
            yield self._styled(_BOLD, self._line("partition", "offset", "timestamp", ("key",), ("value",)))
        for row in rows:
            time = _time(row["timestamp_ms"])
            line = self._line(row["name"], str(row["offset"]), time, row["key"], row["value"])
            yield self._styled(_BOLD, line) if row.get("is_match") else line
            if row.get("copy") is not None:
                yield self._styled(_DIM, self._cut(f"    {_of_copy(row)}", self._width))
            yield self._styled(_DIM, self._cut("    " + ", ".join(_details(row)), self._width))

    def _line(self, name: str, offset: str, time: str, key: tuple[str, ...], value: tuple[str, ...]) -> str:
        """Formats one line; cuts what does not fit: value and name with ``keys_first``, else the key too."""
        middle = f"  {offset:>{self._offsets}}  {time:<23}  "
        if not self._width:
            return f"{aligned(name, self._names)}{middle}{' '.join(key)}  {' '.join(value)}"
        room, of_name = self._width - len(middle) - 2, self._names
        if self._keys_first:
            of_key = max(_LEAST_KEY, min(self._keys, room - _LEAST_NAME - _LEAST_VALUE))
            of_name = max(_LEAST_NAME, min(of_name, room - of_key - _LEAST_VALUE))
        else:
            of_key = max(_LEAST_KEY, min(_KEY, (room - of_name) * 2 // 5))
        of_value = max(_LEAST_VALUE, room - of_name - of_key)
        shown = " ".join(key)
        if width_of(shown) > of_key and key[0] == "text":  # the kind goes before a letter of the key does
            shown = key[1]
        begin = aligned(_without_middle(name, of_name), of_name) + middle
        shown = aligned(shortened_to(shown, of_key), of_key)
        return f"{begin}{shown}  {shortened_to(' '.join(value), of_value)}".rstrip()

    def _cut(self, text: str, width: int) -> str:
        return shortened_to(text, width) if width else text

    def _styled(self, style: int, text: str) -> str:
        return f"\x1b[{style}m{text}\x1b[0m" if self._is_coloured else text


def _without_middle(name: str, width: int) -> str:
    """Shortens a name in its middle, so that the number of the partition at its end stays."""
    end = name[-5:]
    return name if width_of(name) <= width else shortened_to(name[:-5], width - width_of(end)) + end


def _text(content: bytes | None) -> tuple[str, ...]:
    """Returns the kind of bytes (JSON, text, schema N, bytes) and their text, hexadecimal if not UTF-8."""
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


def _typed_text(typed: dict[str, Any], side: str, content: bytes | None) -> tuple[str, ...]:
    """Returns what a side is and its value as JSON; ``_text`` where it is not decoded, with the reason.

    typed: the fields of ``--typed``.
    """
    kind, error = typed.get(f"{side}_format"), typed.get(f"{side}_error")
    if content is None or kind is None:
        return _text(content)
    if error is not None:
        return (f"{kind} ({error})", *_text(content)[-1:])
    return (kind, printable(json.dumps(typed[f"{side}_typed"], ensure_ascii=False)))


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
                printable(header["key"]) + "=" + " ".join(_text(header["value"])[-1:])
                for header in row["headers"]
            )
        )
    if row["producer_id"] >= 0:
        yield f"producer {row['producer_id']} epoch {row['producer_epoch']}"
    if row["control_type"]:
        yield f"control record {row['control_type']}"
    if row.get("copy") is not None:
        yield f"leader epoch {row['leader_epoch']}, topic id {row['topic_id']}"
    if row["outcome"]:
        yield f"transaction {row['outcome']}"
    if row.get("superseded") is not None:
        yield "superseded" if row["superseded"] else "the last of its key"


def _of_copy(row: dict[str, Any]) -> str:
    """Says which copy holds the record, on which side of a divergence, and what replaced it."""
    text = printable(row["copy"])
    if row["side"] is None:
        return f"{text}: whether the true history has it is not known"
    if row["side"] == "true":
        return f"{text}: true side ({row['certainty']})"
    took = "nothing has its offset"
    if row["replaced_by"] is not None:
        took = f"offset taken by {printable(row['replaced_by'])}, epoch {row['replaced_by_epoch']}"
    return f"{text}: losing side ({row['why']}, {row['certainty']}); {took}"
