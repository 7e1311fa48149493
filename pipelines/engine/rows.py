"""Prints rows as a table, JSON lines or CSV.

A row arrives as a JSON object, the same from either engine: binary as Base64, timestamps as ISO 8601 in UTC,
nulls kept. The formats differ only in how these objects are printed. Rows are printed as they arrive, so that
a large result needs little memory.
"""

from __future__ import annotations

import base64
import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from pipelines.command.terminal import printable

# The first _SAMPLE rows decide how wide a column is; a cell longer than _WIDEST characters is cut
_SAMPLE = 200
_WIDEST = 80


def printed(output: str, names: Sequence[str], binary: Sequence[bool], lines: Iterable[str]) -> Iterable[str]:
    """The lines that print rows. output: table, json or csv. binary: whether a column holds Base64."""
    if output == "table":
        return table_lines(names, binary, lines)
    return csv_lines(names, lines) if output == "csv" else lines


def parse(line: str) -> list[tuple[str, Any]]:
    """(name, value) pairs of one row: a name may occur twice, a number is its text."""
    pairs: list[tuple[str, Any]] = json.loads(
        line, object_pairs_hook=list, parse_int=_Number, parse_float=_Number
    )
    return pairs


class _Number(str):
    """The text of a number, with the digits that Spark wrote."""


def as_text(value: Any) -> str:
    """A value as the text of one cell; a nested value as JSON."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(value).lower()
    return value if isinstance(value, str) else to_json(value)


def to_json(value: Any) -> str:
    """The JSON text of a value from ``parse``, where an object is a list of (name, value) pairs."""
    if isinstance(value, _Number):
        return value
    if isinstance(value, list):
        if value and all(isinstance(item, tuple) for item in value):
            return "{" + ",".join(f"{json.dumps(key)}:{to_json(item)}" for key, item in value) + "}"
        return "[" + ",".join(map(to_json, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def csv_cell(value: Any) -> str:
    """A value as a cell of RFC 4180: null is an empty cell, an empty string a quoted one."""
    if value is None:
        return ""
    text = as_text(value)
    plain = text and not any(character in text for character in ',"\r\n')
    return text if plain else '"' + text.replace('"', '""') + '"'


def readable(encoded: str | None) -> str | None:
    """Base64 decoded for a person: printable UTF-8 as text, other bytes in hexadecimal."""
    if encoded is None:
        return None
    content = base64.b64decode(encoded)
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return "0x" + content.hex()
    return text if text.isprintable() else "0x" + content.hex()


def table_lines(names: Sequence[str], binary: Sequence[bool], lines: Iterable[str]) -> Iterator[str]:
    """Lines of a table. The first rows decide how wide a column is; control characters are escaped.

    binary: whether a column holds Base64. lines: rows as JSON objects.
    """

    def cells(line: str) -> list[str]:
        values = [value for _, value in parse(line)]
        shown = [readable(value) if encoded else value for value, encoded in zip(values, binary, strict=True)]
        texts = [printable(as_text(value)) for value in shown]
        return [text if len(text) <= _WIDEST else text[: _WIDEST - 1] + "…" for text in texts]

    names = list(map(printable, names))
    rows = map(cells, lines)
    sample = list(itertools.islice(rows, _SAMPLE))
    widths = [max(map(len, column)) for column in zip(names, *sample, strict=True)]
    yield from (_table_line(row, widths) for row in (names, ["-" * width for width in widths]))
    count = 0
    for row in itertools.chain(sample, rows):
        count += 1
        yield _table_line(row, widths)
    yield f"({count} row{'' if count == 1 else 's'})"


def _table_line(row: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def csv_lines(names: Sequence[str], lines: Iterable[str]) -> Iterator[str]:
    yield ",".join(map(csv_cell, names))
    for line in lines:
        yield ",".join(csv_cell(value) for _, value in parse(line))
