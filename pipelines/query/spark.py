"""Spark answers a statement: whatever Spark SQL knows, over the lake's tables and views.

Spark turns every row into a JSON object, as ``rows`` takes it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, NumericType

from kafka_log_lake.pipelines.cli.errors import UserError, one_line
from kafka_log_lake.pipelines.cli.terminal import printable
from kafka_log_lake.pipelines.cli.values import nearest
from kafka_log_lake.pipelines.dataframes.register import register_views
from kafka_log_lake.pipelines.engine.driver import driver_of, spark_errors
from kafka_log_lake.pipelines.engine.session import configured
from kafka_log_lake.pipelines.query.gate import changes
from kafka_log_lake.pipelines.sql.rows import NumberText, ResultColumn, as_text, parse, printed, to_json
from kafka_log_lake.pipelines.views.declared import SESSION_VIEWS
from kafka_log_lake.udfs.format.schema import TABLES
from kafka_log_lake.udfs.functions.declared import FUNCTIONS, TABLE_FUNCTIONS

_JSON = {"ignoreNullFields": "false", "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"}

# A message of Spark begins with its error class in brackets; these classes do not mean a wrong statement
_NOT_STATEMENT_ERRORS = ("[FAILED_READ_FILE", "[INTERNAL_ERROR")
# The project's own functions raise a TypeError for wrong arguments
_STATEMENT_ERRORS = r"\[[A-Z]|TypeError: "

# Spark's advice to change a setting, which a statement that only reads cannot
_SETTING = r' If necessary set "[^"]+" to "[^"]+" to bypass this error[^.]*\.'

_BATCH_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"

# Statements whose result is one text of several lines
_TEXT_STATEMENTS = r"\s*(EXPLAIN|SHOW\s+CREATE)\b"


# Statements about names of which none need be in the statement
_CATALOG_STATEMENTS = r"\s*(SHOW|DESC|DESCRIBE)\b"


class _UnknownNames(NamedTuple):
    """Where an error holds an unknown name, and which statement lists the known ones, in which column.

    ours: the names that a session can have, though it may have got only those that a statement names.
    """

    parameter: str
    statement: str
    column: str
    ours: tuple[str, ...]


_RELATIONS = (*(table.name for table in TABLES), *(view.name for view in SESSION_VIEWS))
_ROUTINES = (*(function.name for function in FUNCTIONS), *(function.name for function in TABLE_FUNCTIONS))
_UNKNOWN_NAMES = {
    "TABLE_OR_VIEW_NOT_FOUND": _UnknownNames("relationName", "SHOW TABLES", "tableName", _RELATIONS),
    "UNRESOLVED_ROUTINE": _UnknownNames("routineName", "SHOW FUNCTIONS", "function", _ROUTINES),
    "UNRESOLVABLE_TABLE_VALUED_FUNCTION": _UnknownNames(
        "name", "SHOW FUNCTIONS", "function", (*_ROUTINES, *(v.name for v in SESSION_VIEWS if v.parameters))
    ),
}


def _json_lines(frame: DataFrame) -> Iterator[str]:
    """Yields one JSON object per row, keys in the order of the columns."""
    objects = frame.select(F.to_json(F.struct("*"), _JSON))
    return (_decimal(row[0]) for row in objects.toLocalIterator(prefetchPartitions=True))


def _decimal(line: str) -> str:
    """Returns a row with doubles as DuckDB's rows have them: Java writes 5.0E-4 for 0.0005."""
    if re.search(r"\dE-?\d", line) is None:
        return line
    return to_json([(name, _python_s(value)) for name, value in parse(line)])


def _python_s(value: object) -> object:
    if isinstance(value, NumberText):
        return NumberText(repr(float(value))) if "E" in value else value
    if isinstance(value, list):
        return [_python_s(item) for item in value]
    return (value[0], _python_s(value[1])) if isinstance(value, tuple) else value


def prepare(spark: SparkSession, lake: str, statement: str = "", writes: bool = False) -> None:
    """Makes a lake's tables and views, and the functions, known by their names in a session; sets UTC.

    statement: what it names is enough; "" for all. writes: whether it may change tables.
    """
    with driver_of(spark).conf_errors():
        spark.conf.set("spark.sql.session.timeZone", "UTC")
        spark.conf.set("spark.sql.variable.substitute", "false")  # of ${env:HOME}
    names_all = re.match(_CATALOG_STATEMENTS, statement, re.IGNORECASE) is not None
    register_views(spark, lake, "" if names_all else statement, live=writes and changes(spark, statement))


def answer(
    spark: SparkSession, lake: str, statement: str, output: str, room: int | None = None, writes: bool = False
) -> Iterator[str]:
    """Yields lines that print the result of a statement over a lake. Raises a UserError for a wrong one.

    output: table, json or csv. room: see ``rows.printed``. writes: whether it may change tables.
    """
    prepare(spark, lake, statement, writes)
    yield from results(spark, statement, output, room)


def results(spark: SparkSession, statement: str, output: str, room: int | None = None) -> Iterator[str]:
    """Yields the lines of ``answer``: the result of a statement, in a session that ``prepare`` has set up."""
    with one_line_errors(spark):
        frame = spark.sql(statement)
        if not frame.columns:
            return
        lines: Iterable[str] = _json_lines(frame)
        if output == "table" and re.match(_TEXT_STATEMENTS, statement, re.IGNORECASE):
            lines = (printable(text) for line in lines for text in as_text(parse(line)[0][1]).splitlines())
        else:
            columns = [
                ResultColumn(f.name, isinstance(f.dataType, BinaryType), isinstance(f.dataType, NumericType))
                for f in frame.schema.fields
            ]
            lines = printed(output, columns, lines, room)
        yield from lines


def arrow(spark: SparkSession, lake: str, statement: str) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Returns schema and rows of ``answer`` as Arrow, partition by partition. Raises as it does."""
    prepare(spark, lake, statement)
    with one_line_errors(spark):
        frame = spark.sql(statement)
        empty = frame.limit(0).toArrow().schema
    schema = pa.schema([pa.field(column.name, arrow_type(column.type)) for column in empty])
    return schema, _arrow_batches(spark, frame, schema)


def _arrow_batches(spark: SparkSession, frame: DataFrame, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    # An Arrow stream in a binary column: ``toArrow`` would hold the whole result in memory
    packed = frame.mapInArrow(_pack, "content binary")
    with one_line_errors(spark), configured(spark, {_BATCH_BYTES: str(16 << 20)}):
        for row in packed.toLocalIterator(prefetchPartitions=True):
            for batch in pa.ipc.open_stream(row.content):
                yield typed(batch, schema)


def _pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Packs each batch into the bytes of an Arrow stream; runs in a worker."""
    for batch in batches:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as stream:
            stream.write_batch(batch)
        yield pa.RecordBatch.from_arrays([pa.array([sink.getvalue().to_pybytes()], pa.binary())], ["content"])


@contextmanager
def one_line_errors(spark: SparkSession) -> Iterator[None]:
    """Turns what Spark says of a wrong statement into a UserError of one line."""
    try:
        yield
    except spark_errors() as error:
        line = one_line(error)
        if not re.match(_STATEMENT_ERRORS, line) or line.startswith(_NOT_STATEMENT_ERRORS):
            raise
        raise UserError(f"SQL: {re.sub(_SETTING, '', line)}{similar_name(spark, error)}") from None


def similar_name(spark: SparkSession, error: Exception) -> str:
    """Returns ``; did you mean x?`` for an unknown table, view or function; of columns Spark tells itself."""
    condition = error.getCondition() if isinstance(error, PySparkException) else None
    kind = _UNKNOWN_NAMES.get(condition or "")
    if kind is None or not isinstance(error, PySparkException):
        return ""
    word = (error.getMessageParameters() or {}).get(kind.parameter, "").split(".")[-1].strip("`").lower()
    known = [str(row[kind.column]) for row in spark.sql(kind.statement).collect()]
    return nearest(word, sorted({*known, *kind.ours}))


# A surrogate in three bytes is one error to Java, three to Python
_SURROGATE, _REPLACEMENT = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?"), "\ufffd".encode()


def arrow_type(of: pa.DataType, text: pa.DataType | None = None) -> pa.DataType:
    """Returns a type of Spark with the names and nulls that Parquet's nested types have by default.

    text: a type that takes the place of strings.
    """
    if pa.types.is_list(of):
        return pa.list_(pa.field("element", arrow_type(of.value_type, text)))
    if pa.types.is_map(of):
        return pa.map_(arrow_type(of.key_type, text), arrow_type(of.item_type, text))
    if pa.types.is_struct(of):
        return pa.struct([pa.field(field.name, arrow_type(field.type, text)) for field in of])
    return text if text is not None and pa.types.is_string(of) else of


def typed(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Converts a batch to the names and types of a schema from ``arrow_type``."""
    columns = [_converted(column, of) for column, of in zip(batch.columns, schema.types, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _converted(column: pa.Array, of: pa.DataType) -> pa.Array:
    if pa.types.is_null(of):
        return pa.nulls(len(column))
    try:
        converted = column.cast(of)
        converted.validate(full=True)
        return converted
    except pa.ArrowInvalid:
        # Spark keeps bytes that are cast to a string as they are
        values = column.cast(arrow_type(of, pa.binary())).to_pylist()
        return pa.array([_with_text(value, of) for value in values], of)


def _with_text(value: Any, of: pa.DataType) -> object:
    """Decodes a value whose strings are bytes."""
    if value is None:
        return None
    if pa.types.is_string(of):
        return _SURROGATE.sub(_REPLACEMENT, value).decode(errors="replace")
    if pa.types.is_list(of):
        return [_with_text(item, of.value_type) for item in value]
    if pa.types.is_map(of):
        return [(_with_text(key, of.key_type), _with_text(item, of.item_type)) for key, item in value]
    if pa.types.is_struct(of):
        return {field.name: _with_text(value[field.name], field.type) for field in of}
    return value
