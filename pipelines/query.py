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
from typing import Any, NamedTuple

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
from pipelines.command.settings import Settings, nearest
from pipelines.command.terminal import printable
from pipelines.views.register import SESSION_VIEWS, register
from pipelines.views.statements import only_reads
from udfs.format.schema import TABLES
from udfs.functions.declared import FUNCTIONS, TABLE_FUNCTIONS

_JSON = {"ignoreNullFields": "false", "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"}

# The first _SAMPLE rows decide how wide a column is; a cell longer than _WIDEST characters is cut
_SAMPLE = 200
_WIDEST = 80

# A message of Spark begins with its error class in brackets; these classes do not mean a wrong statement
_NOT_STATEMENT_ERRORS = ("[FAILED_READ_FILE", "[INTERNAL_ERROR")
# The project's own functions raise a TypeError for wrong arguments
_STATEMENT_ERRORS = r"\[[A-Z]|TypeError: "

# Statements whose result is one text of several lines
_TEXT_STATEMENTS = r"\s*(EXPLAIN|SHOW\s+CREATE)\b"


# Statements about names of which none need be in the statement
_CATALOG_STATEMENTS = r"\s*(SHOW|DESC|DESCRIBE)\b"


class _Names(NamedTuple):
    """Where an error holds an unknown name, and which statement lists the known ones, in which column.

    ours: the names that a session can have, though it may have got only those that a statement names.
    """

    parameter: str
    statement: str
    column: str
    ours: tuple[str, ...]


_RELATIONS = (*(table.name for table in TABLES), *(view.name for view in SESSION_VIEWS))
_ROUTINES = (*(one.name for one in FUNCTIONS), *(one.name for one in TABLE_FUNCTIONS))
_UNKNOWN_NAMES = {
    "TABLE_OR_VIEW_NOT_FOUND": _Names("relationName", "SHOW TABLES", "tableName", _RELATIONS),
    "UNRESOLVED_ROUTINE": _Names("routineName", "SHOW FUNCTIONS", "function", _ROUTINES),
    "UNRESOLVABLE_TABLE_VALUED_FUNCTION": _Names(
        "name", "SHOW FUNCTIONS", "function", (*_ROUTINES, *(v.name for v in SESSION_VIEWS if v.parameters))
    ),
}


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


def prepare(spark: SparkSession, lake: str, statement: str = "") -> None:
    """Makes a lake's tables and views, and the functions, known by their names in a session; sets UTC.

    statement: what it names is enough; "" for all.
    """
    register(spark, lake, "" if re.match(_CATALOG_STATEMENTS, statement, re.IGNORECASE) else statement)
    spark.conf.set("spark.sql.session.timeZone", "UTC")


def answer(spark: SparkSession, lake: str, statement: str, output: str) -> Iterator[str]:
    """Lines that print the result of one statement over a lake. Raises a UserError if the statement is wrong.

    output: table, json or csv.
    """
    prepare(spark, lake, statement)
    yield from results(spark, statement, output)


def results(spark: SparkSession, statement: str, output: str) -> Iterator[str]:
    """``answer`` in a session that ``prepare`` has seen."""
    try:
        frame = spark.sql(statement)
        if not frame.columns:
            return
        lines = json_lines(frame)
        if output == "table" and re.match(_TEXT_STATEMENTS, statement, re.IGNORECASE):
            lines = (printable(text) for line in lines for text in as_text(parse(line)[0][1]).splitlines())
        elif output == "table":
            binary = [isinstance(field.dataType, BinaryType) for field in frame.schema.fields]
            lines = table_lines(frame.columns, binary, lines)
        elif output == "csv":
            lines = csv_lines(frame.columns, lines)
        yield from lines
    except (PySparkException, Py4JJavaError) as error:
        line = one_line(error)
        if not re.match(_STATEMENT_ERRORS, line) or line.startswith(_NOT_STATEMENT_ERRORS):
            raise
        raise UserError(f"SQL: {line}{similar_name(spark, error)}") from None


def similar_name(spark: SparkSession, error: Exception) -> str:
    """``; did you mean x?`` for an unknown table, view or function; of columns Spark tells itself."""
    condition = error.getCondition() if isinstance(error, PySparkException) else None
    kind = _UNKNOWN_NAMES.get(condition or "")
    if kind is None or not isinstance(error, PySparkException):
        return ""
    word = (error.getMessageParameters() or {}).get(kind.parameter, "").split(".")[-1].strip("`").lower()
    known = [str(row[kind.column]) for row in spark.sql(kind.statement).collect()]
    return nearest(word, sorted({*known, *kind.ours}))


def run(
    settings: Settings,
    statement: str,
    format: str,  # noqa: A002  # the option's name
    writes: str = "refuse",
) -> None:
    """Prints the result of one statement. Raises a UserError for one that writes; writes: "allow" runs it."""
    lake = settings.require_lake()
    if writes == "refuse" and not only_reads(statement):
        raise UserError("query only reads; for upkeep of the tables add --writes allow")
    with session(settings) as spark:
        for line in answer(spark, lake, statement, format):
            print(line)


def main(argv: Sequence[str] | None = None) -> int:
    return run_command(QUERY, run, argv, with_spark=False)


if __name__ == "__main__":
    sys.exit(main())
