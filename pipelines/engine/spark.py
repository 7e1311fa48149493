"""Spark answers a statement: whatever Spark SQL knows, over the lake's tables and views.

Spark turns every row into a JSON object, as ``rows`` takes it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType

from pipelines.command.driver import spark_errors
from pipelines.command.errors import UserError, one_line
from pipelines.command.settings import nearest
from pipelines.command.terminal import printable
from pipelines.engine.rows import as_text, parse, printed
from pipelines.views.declared import SESSION_VIEWS
from pipelines.views.register import register
from udfs.format.schema import TABLES
from udfs.functions.declared import FUNCTIONS, TABLE_FUNCTIONS

_JSON = {"ignoreNullFields": "false", "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"}

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


def _json_lines(frame: DataFrame) -> Iterator[str]:
    """One JSON object per row, keys in the order of the columns."""
    objects = frame.select(F.to_json(F.struct("*"), _JSON))
    return (row[0] for row in objects.toLocalIterator(prefetchPartitions=True))


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
        lines: Iterable[str] = _json_lines(frame)
        if output == "table" and re.match(_TEXT_STATEMENTS, statement, re.IGNORECASE):
            lines = (printable(text) for line in lines for text in as_text(parse(line)[0][1]).splitlines())
        else:
            binary = [isinstance(field.dataType, BinaryType) for field in frame.schema.fields]
            lines = printed(output, frame.columns, binary, lines)
        yield from lines
    except spark_errors() as error:
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
