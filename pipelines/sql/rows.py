"""Prints rows as a table, JSON lines or CSV.

A row arrives as a JSON object, the same of either engine: binary as Base64, timestamps as ISO 8601 in UTC,
nulls kept. The formats differ only in how these objects are printed. Rows are printed as they arrive, so that
a large result needs little memory. The lines of a table fit the terminal, on which rows of very many columns
are a line for each value; a pipe gets long values cut alike.
"""

from __future__ import annotations

import base64
import itertools
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from kafka_log_lake.pipelines.cli.generated import csv_cell, json_line
from kafka_log_lake.pipelines.cli.terminal import aligned, printable, shortened_to, width_of

# The first _SAMPLE rows decide how wide a column is
_SAMPLE = 200
_WIDEST = 80  # of a cell, where the lines go to no terminal
_NARROWEST = 12  # of a cell, however narrow the terminal is
_GAP = "  "

UNCUT = 0  # a room in which nothing is cut


@dataclass(frozen=True)
class ResultColumn:
    """A column of a result. is_binary: its values arrive as Base64. is_number: it is aligned to the right."""

    name: str
    is_binary: bool = False
    is_number: bool = False


def printed(
    output: str, columns: Sequence[ResultColumn], lines: Iterable[str], room: int | None = None
) -> Iterable[str]:
    """Returns the lines that print rows. output: table, json or csv.

    lines: rows as JSON objects. room: columns of the terminal that a table's line should fit in; None if
    there is no terminal, UNCUT to cut nothing.
    """
    if output == "table":
        return table_lines(columns, lines, room)
    return csv_lines(columns, lines) if output == "csv" else map(json_line, lines)


def parse(line: str) -> list[tuple[str, Any]]:
    """Parses a row to (name, value) pairs: a name may occur twice, a number is its text."""
    pairs: list[tuple[str, Any]] = json.loads(
        line, object_pairs_hook=list, parse_int=NumberText, parse_float=NumberText
    )
    return pairs


class NumberText(str):
    """The text of a number, with the digits of the engine."""


def as_text(value: object) -> str:
    """Returns a value as the text of one cell; a nested value as JSON."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(value).lower()
    return value if isinstance(value, str) else to_json(value)


def to_json(value: object) -> str:
    """Returns the JSON text of a value from ``parse``, where an object is a list of (name, value) pairs."""
    if isinstance(value, NumberText):
        return value
    if isinstance(value, list):
        if value and all(isinstance(item, tuple) for item in value):
            return "{" + ",".join(f"{json.dumps(key)}:{to_json(item)}" for key, item in value) + "}"
        return "[" + ",".join(map(to_json, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def readable(encoded: str | None) -> str | None:
    """Decodes Base64 for a person: printable UTF-8 as text, other bytes in hexadecimal; null stays."""
    if encoded is None:
        return None
    content = base64.b64decode(encoded)
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return "0x" + content.hex()
    return text if text.isprintable() else "0x" + content.hex()


def is_command(text: str) -> bool:
    """Returns whether a value is a command of Kafka or of this project."""
    return re.match(r"kafka-[a-z-]+(\.sh)? ", text) is not None


def plain_number(text: str) -> str:
    """Returns a number as a person writes it: 0.00052301736 for 5.230173599999999E-4. Others stay."""
    if not re.fullmatch(r"-?\d+(\.\d+)?[eE][-+]?\d+", text):
        return text
    value = float(text)
    if value and not 1e-9 <= abs(value) < 1e16:
        return text
    shown = format(Decimal(f"{value:.15g}"), "f")
    return shown if "." in shown or "." not in text else f"{shown}.0"


def table_lines(
    columns: Sequence[ResultColumn], lines: Iterable[str], room: int | None = None
) -> Iterator[str]:
    """Yields lines of a table. The first rows decide how wide a column is; control characters are escaped.

    lines, room: see ``printed``. Numbers are never cut, nor commands, which are to be pasted. Where the
    columns do not fit the room, each value has its own line.
    """

    def cut(texts: Sequence[str], widths: Sequence[int]) -> list[str]:
        return [
            text if column.is_number or room == UNCUT or is_command(text) else shortened_to(text, width)
            for text, width, column in zip(texts, widths, columns, strict=True)
        ]

    def cells(line: str) -> list[str]:
        values = [value for _, value in parse(line)]
        shown = [readable(v) if c.is_binary else v for v, c in zip(values, columns, strict=True)]
        texts = [
            plain_number(as_text(value)) if column.is_number else printable(as_text(value))
            for value, column in zip(shown, columns, strict=True)
        ]
        return cut(texts, most)

    names = [printable(column.name) for column in columns]
    # A column never gets more; the sample, which is held, may be of very long values
    most = [max(_NARROWEST, _WIDEST if room is None else room, width_of(name)) for name in names]
    rows = map(cells, lines)
    sample = list(itertools.islice(rows, _SAMPLE))
    widest = [max(map(width_of, column)) for column in zip(names, *sample, strict=True)]
    least = [
        width if c.is_number or any(is_command(row[at]) for row in sample) else width_of(n)
        for at, (n, c, width) in enumerate(zip(names, columns, widest, strict=True))
    ]
    widths = _fitted(widest, least, room)

    def row_lines(number: int, row: Sequence[str]) -> Iterator[str]:
        head = max(map(width_of, names))
        yield f"row {number:,}"
        for name, text in zip(
            names, cut(row, [max(_NARROWEST, (room or 0) - head - 4)] * len(row)), strict=True
        ):
            yield f"  {aligned(name, head)}  {text}".rstrip()

    def table_line(row: Sequence[str]) -> str:
        shown = [
            aligned(cell, width, column.is_number)
            for cell, width, column in zip(cut(row, widths), widths, columns, strict=True)
        ]
        return _GAP.join(shown).rstrip()

    is_too_wide = bool(room and sum(widths) + len(_GAP) * (len(widths) - 1) > room)
    if not is_too_wide:
        yield from (table_line(row) for row in (names, ["-" * width for width in widths]))
    count = 0
    for row in itertools.chain(sample, rows):
        count += 1
        if is_too_wide:
            yield from row_lines(count, row)
        else:
            yield table_line(row)
    yield f"({count} row{'' if count == 1 else 's'})"


def _fitted(widest: Sequence[int], least: Sequence[int], room: int | None) -> list[int]:
    """Returns widths of columns. least: what each needs in any case; the widest shrink first."""
    if room == UNCUT:
        return list(widest)

    def widths(limit: int) -> list[int]:
        return [min(width, max(limit, floor)) for width, floor in zip(widest, least, strict=True)]

    if room is None:
        return widths(_WIDEST)
    room -= len(_GAP) * (len(widest) - 1)
    limits = range(min(room, max(widest, default=0)), _NARROWEST, -1)
    return widths(next((limit for limit in limits if sum(widths(limit)) <= room), _NARROWEST))


def csv_lines(columns: Sequence[ResultColumn], lines: Iterable[str]) -> Iterator[str]:
    """Yields the lines of a CSV file, the header first. lines: the rows as JSON objects, of JSON lines."""
    yield ",".join(csv_cell(column.name) for column in columns)
    # Base64 is no formula, though it may begin with a plus
    are_data = [column.is_number or column.is_binary for column in columns]
    for line in lines:
        yield ",".join(
            csv_cell(None if value is None else as_text(value), is_data or isinstance(value, NumberText))
            for (_, value), is_data in zip(parse(line), are_data, strict=True)
        )
