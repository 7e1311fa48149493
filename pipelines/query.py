"""``python -m pipelines.query --lake L "SELECT ..."``: runs one SQL statement over a lake.

Spark turns every row into a JSON object (binary as Base64, timestamps as ISO 8601 in UTC, nulls kept); the
output formats differ only in how these objects are printed. Rows are printed as they arrive, so that a large
result needs little memory.
"""

from __future__ import annotations

import base64
import itertools
import json
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

if not __package__:  # spark-submit puts pipelines/ on sys.path; the imports need its parent
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType

from pipelines.command.commands import QUERY
from pipelines.command.errors import UserError, one_line
from pipelines.command.options import run_command
from pipelines.command.session import session
from pipelines.command.settings import Settings
from pipelines.command.terminal import printable
from pipelines.views.register import register

_JSON = {"ignoreNullFields": "false", "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"}

# The first _SAMPLE rows decide how wide a column is; a cell longer than _WIDEST characters is cut
_SAMPLE = 200
_WIDEST = 80

# A message of Spark begins with its error class in brackets; these classes do not mean a wrong statement
_NOT_STATEMENT_ERRORS = ("[FAILED_READ_FILE", "[INTERNAL_ERROR")


def json_lines(frame: DataFrame) -> Iterator[str]:
    """One JSON object per row, keys in the order of the columns."""
    objects = frame.select(F.to_json(F.struct("*"), _JSON))
    return (row[0] for row in objects.toLocalIterator(prefetchPartitions=True))


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

    binary: whether a column holds Base64. lines: rows from ``json_lines``.
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


def answer(spark: SparkSession, lake: str, statement: str, output: str) -> Iterator[str]:
    """Lines that print the result of one statement. Raises a UserError if the statement is wrong.

    output: table, json or csv.
    """
    register(spark, lake)
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    try:
        frame = spark.sql(statement)
        if not frame.columns:
            return
        lines = json_lines(frame)
        if output == "table":
            binary = [isinstance(field.dataType, BinaryType) for field in frame.schema.fields]
            lines = table_lines(frame.columns, binary, lines)
        elif output == "csv":
            lines = csv_lines(frame.columns, lines)
        yield from lines
    except (PySparkException, Py4JJavaError) as error:
        line = one_line(error)
        if not re.match(r"\[[A-Z]", line) or line.startswith(_NOT_STATEMENT_ERRORS):
            raise
        raise UserError(f"SQL: {line}") from None


def run(settings: Settings, statement: str, format: str) -> None:  # noqa: A002  # the option's name
    """Prints the result of one statement."""
    lake = settings.require_lake()
    with session(settings) as spark:
        for line in answer(spark, lake, statement, format):
            print(line)


def main(argv: Sequence[str] | None = None) -> int:
    return run_command(QUERY, run, argv, with_spark=False)


if __name__ == "__main__":
    sys.exit(main())
