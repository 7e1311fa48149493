"""``python -m pipelines.query --lake L "SELECT ..."``: one statement over the tables and views of a lake.

Spark makes a JSON object of every row (binary as Base64, timestamps ISO 8601 in UTC, null kept); the formats
differ only in how these are printed. Rows are printed as they come, never all held.
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

if not __package__:  # run by its path (spark-submit): its root, not pipelines/, belongs on sys.path
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType

from pipelines.command.errors import UserError, one_line
from pipelines.command.options import Parser, add_setting, exit_code_of, set_up_logging
from pipelines.command.session import session
from pipelines.command.settings import make_settings
from pipelines.views.register import register

_JSON = {"ignoreNullFields": "false", "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"}

# A table is laid out by its first rows; a longer cell is cut, as a terminal is no place for a megabyte.
_SAMPLE = 200
_WIDEST = 80

# Spark's name for an error stands first, in brackets; these are no fault of the statement.
_NOT_THE_STATEMENT = ("[FAILED_READ_FILE", "[INTERNAL_ERROR")


def json_lines(frame: DataFrame) -> Iterator[str]:
    """One JSON object a row, keys in the order of the columns."""
    objects = frame.select(F.to_json(F.struct("*"), _JSON))
    return (row[0] for row in objects.toLocalIterator(prefetchPartitions=True))


def parse(line: str) -> list[tuple[str, Any]]:
    """Names and values of a row; names may repeat, numbers stay the text they are."""
    pairs: list[tuple[str, Any]] = json.loads(
        line, object_pairs_hook=list, parse_int=_Number, parse_float=_Number
    )
    return pairs


class _Number(str):
    """A number as it was written."""


def as_text(value: Any) -> str:
    """A value as one cell; nested ones as JSON."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(value).lower()
    return value if isinstance(value, str) else to_json(value)


def to_json(value: Any) -> str:
    """JSON again, of what ``parse`` made: an object is a list of pairs."""
    if isinstance(value, _Number):
        return value
    if isinstance(value, list):
        if value and all(isinstance(item, tuple) for item in value):
            return "{" + ",".join(f"{json.dumps(key)}:{to_json(item)}" for key, item in value) + "}"
        return "[" + ",".join(map(to_json, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def csv_cell(value: Any) -> str:
    """RFC 4180; null is an empty cell, an empty text a quoted one."""
    if value is None:
        return ""
    text = as_text(value)
    plain = text and not any(character in text for character in ',"\r\n')
    return text if plain else '"' + text.replace('"', '""') + '"'


def readable(encoded: str | None) -> str | None:
    """Bytes for a person: the text they hold, else hexadecimal."""
    if encoded is None:
        return None
    content = base64.b64decode(encoded)
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return "0x" + content.hex()
    return text if text.isprintable() else "0x" + content.hex()


def table_lines(names: Sequence[str], binary: Sequence[bool], lines: Iterable[str]) -> Iterator[str]:
    """A table whose columns are as wide as the first rows ask for."""

    def cells(line: str) -> list[str]:
        values = [value for _, value in parse(line)]
        shown = [readable(value) if hidden else value for value, hidden in zip(values, binary, strict=True)]
        texts = [as_text(value).replace("\n", " ") for value in shown]
        return [text if len(text) <= _WIDEST else text[: _WIDEST - 1] + "…" for text in texts]

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
    """Lines of the answer to one statement; a UserError where the statement is at fault."""
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
        if not re.match(r"\[[A-Z]", line) or line.startswith(_NOT_THE_STATEMENT):
            raise
        raise UserError(f"SQL: {line}") from None


def main(argv: Sequence[str] | None = None) -> int:
    set_up_logging()

    def job() -> None:
        parser = Parser("Answers one SQL statement over the tables and views of a lake.")
        for name in ("lake", "cores", "driver_memory"):
            add_setting(parser, name)
        parser.add_argument("--format", choices=("table", "json", "csv"), default="table")
        parser.add_argument("statement", help="one SQL statement, in quotes")
        values = parser.values(argv)
        statement, output = values.pop("statement"), values.pop("format")
        settings = make_settings(values)
        lake = settings.require_lake()
        with session(settings) as spark:
            for line in answer(spark, lake, statement, output):
                print(line)

    return exit_code_of(job)


if __name__ == "__main__":
    sys.exit(main())
