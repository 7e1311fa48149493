"""Creates the project's functions in DuckDB: the kernels that Spark's workers call, over Arrow arrays.

A table function is a macro around one of them: ``SELECT * FROM kafka_records(content)``, also next to a table
whose column it takes, as in Spark: ``FROM raw_segments r, LATERAL kafka_records(r.content)``.
"""

from __future__ import annotations

import threading
import zlib
from collections.abc import Callable, Iterable
from functools import partial
from importlib import import_module
from typing import Any

import duckdb
import pyarrow as pa
from duckdb.func import FunctionNullHandling, PythonUDFType

from kafka_log_lake.pipelines.sql.types import duckdb_type
from kafka_log_lake.udfs.functions.declared import FUNCTIONS, TABLE_FUNCTIONS, Function
from kafka_log_lake.udfs.functions.typed import FUNCTIONS as TYPED_FUNCTIONS
from kafka_log_lake.udfs.values.apps import columns as app_topics
from kafka_log_lake.udfs.values.internal import columns as internal_topics
from kafka_log_lake.udfs.values.schemas.registry import Registry

# DuckDB makes no text of the number of a codec by itself, as Spark does
_DECOMPRESS, _BY_NUMBER = "kafka_decompress", "kafka_decompress_of_text"
# To pass all values of a table to Python takes longer than to read them: those that can't have an id stay
_SCHEMA_ID, _OF_FRAMED = "confluent_schema_id", "confluent_schema_id_of_framed"
_NAMES = {_DECOMPRESS: _BY_NUMBER, _SCHEMA_ID: _OF_FRAMED}


def create_functions(database: duckdb.DuckDBPyConnection) -> None:
    """Creates all functions. Their code is loaded when one is called."""
    for function in FUNCTIONS:
        name = _NAMES.get(function.name, function.name)
        _create(database, name, _code(function), function.takes, duckdb_type(function.returns))
    database.execute(
        f"CREATE MACRO {_DECOMPRESS}(codec, content) AS {_BY_NUMBER}(CAST(codec AS VARCHAR), content)"
    )
    database.execute(
        f"CREATE MACRO {_SCHEMA_ID}(content) AS CASE WHEN CAST(content AS BLOB) < '\\x01'::BLOB "
        f"THEN {_OF_FRAMED}(CAST(content AS BLOB)) END"
    )
    _create(database, "crc32", _crc32, ("binary",), "BIGINT")
    for name, (takes, code, gives) in (internal_topics.FUNCTIONS | app_topics.FUNCTIONS).items():
        (returns,) = database.from_arrow(pa.table({"x": pa.array([], gives)})).types
        _create(database, name, code, takes, returns)
    for table_function in TABLE_FUNCTIONS:
        database.execute(
            f"CREATE MACRO {table_function.name}(content) AS TABLE "
            f"SELECT unnest({table_function.array.name}(content), max_depth := 2)"
        )


def create_typed_functions(database: duckdb.DuckDBPyConnection, registry: Callable[[], Registry]) -> None:
    """Creates the functions that decode by schemas. registry: gives them when one is called first."""
    made: list[Any] = []
    one_thread = threading.Lock()

    def call(name: str, *columns: object) -> Any:
        with one_thread:
            if not made:
                from kafka_log_lake.udfs.values.typed.functions import TypedFunctions

                made.append(TypedFunctions(registry()))
            return getattr(made[0], name)(*columns)

    for name, (takes, gives) in TYPED_FUNCTIONS.items():
        (returns,) = database.from_arrow(pa.table({"x": pa.array([], gives)})).types
        _create(database, name, _of_arity(partial(call, name), len(takes)), takes, returns)


def _of_arity(call: Callable[..., object], count: int) -> Callable[..., object]:
    """Returns a callable with ``count`` parameters, by which DuckDB knows how many a function has."""
    made: dict[int, Callable[..., Any]] = {
        1: lambda a: call(a),
        2: lambda a, b: call(a, b),
        4: lambda a, b, c, d: call(a, b, c, d),
    }
    return made[count]


def _crc32(column: pa.ChunkedArray) -> pa.Array:
    """Computes Spark's crc32 of each value (int64); null for null."""
    return pa.array(
        [None if value is None else zlib.crc32(value) for value in column.to_pylist()], pa.int64()
    )


def _create(
    database: duckdb.DuckDBPyConnection,
    name: str,
    code: Callable[..., pa.Array],
    takes: Iterable[str],
    returns: Any,
) -> None:
    database.create_function(
        name,
        code,
        [duckdb_type(kind) for kind in takes],
        returns,
        type=PythonUDFType.ARROW,
        null_handling=FunctionNullHandling.SPECIAL,
    )


def _code(function: Function) -> Callable[..., pa.Array]:
    """Returns a callable with the function's number of parameters, which loads its code when called."""

    def call(*columns: object) -> Any:
        code = getattr(import_module(f"kafka_log_lake.udfs.{function.module}"), function.name)
        if not function.is_stream:
            return code(*columns)
        parts = list(code(iter([columns if len(columns) > 1 else columns[0]])))
        return pa.chunked_array(parts).combine_chunks()

    return _of_arity(call, len(function.takes))
