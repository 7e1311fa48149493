"""Registers the project's functions in a session, for SQL and for DataFrames.

Each is an Arrow UDF over whole columns, whose code a worker loads by its name. A table function is a SQL
function around one of them: Spark refuses an ``arrow_udtf`` in LATERAL joins
(LATERAL_JOIN_WITH_ARROW_UDTF_UNSUPPORTED), and calls another Python table function row by row.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable, Iterator

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import DataType

from kafka_log_lake.pipelines.engine.driver import driver_of
from kafka_log_lake.pipelines.lake.address import sql_name, sql_string, sql_table
from kafka_log_lake.pipelines.typed.tables import typed_tables
from kafka_log_lake.udfs.functions.declared import FUNCTIONS, TABLE_FUNCTIONS, Function, TableFunction
from kafka_log_lake.udfs.functions.typed import FUNCTIONS as TYPED_FUNCTIONS
from kafka_log_lake.udfs.values.apps import columns as app_topics
from kafka_log_lake.udfs.values.internal import columns as internal_topics
from kafka_log_lake.udfs.values.schemas.registry import Registry

FUNCTION_NAMES = {
    *(function.name for function in FUNCTIONS),
    *(function.name for function in TABLE_FUNCTIONS),
    *internal_topics.FUNCTIONS,
    *TYPED_FUNCTIONS,
}


def _code_of(function: Function) -> Callable[..., object]:
    """Returns a callable that loads the function where it runs: the decoder would keep the driver waiting.

    Spark reads from its annotations whether it takes arrays or an iterator; of several arguments an iterator
    gives tuples.
    """
    name, module = function.name, f"kafka_log_lake.udfs.{function.module}"

    def of_arrays(*columns: pa.Array) -> pa.Array:
        from importlib import import_module

        return getattr(import_module(module), name)(*columns)

    def of_stream(columns: Iterator[pa.Array]) -> Iterator[pa.Array]:
        from importlib import import_module

        yield from getattr(import_module(module), name)(columns)

    return _named(name, of_stream if function.is_stream else of_arrays)


def _named(name: str, code: Callable[..., object]) -> Callable[..., object]:
    code.__name__ = code.__qualname__ = name
    return code


def _register(spark: SparkSession, name: str, code: Callable[..., object], returns: DataType | str) -> None:
    # Spark's stubs ask for the kind of function too, of which Spark itself warns
    spark.udf.register(name, arrow_udf(code, returns))  # type: ignore[call-overload]


def _table_function(function: TableFunction) -> str:
    """Returns the statement that creates a table function around its array function."""
    columns = ", ".join(
        f"{sql_name(column.name)} {column.sql_type} COMMENT {sql_string(column.comment)}"
        for column in function.rows.columns
    )
    return (
        f"CREATE OR REPLACE TEMPORARY FUNCTION {function.name}(content BINARY) RETURNS TABLE ({columns}) "
        f"COMMENT {sql_string(function.rows.comment)} RETURN SELECT inline({function.array.name}(content))"
    )


def register_functions(spark: SparkSession, statement: str = "") -> None:
    """Creates the functions as temporary functions of the session; those of the same names are replaced.

    statement: the functions that it names are enough; "" for all.
    """
    driver_of(spark).share_code()
    words = set(re.findall(r"\w+", statement.lower()))
    tables = [function for function in TABLE_FUNCTIONS if not statement or function.name in words]
    needed = words | {function.array.name for function in tables}
    for function in FUNCTIONS:
        if statement and function.name not in needed:
            continue
        _register(spark, function.name, _code_of(function), function.returns)
    for table_function in tables:
        spark.sql(_table_function(table_function))


def register_internal_topics(spark: SparkSession, text: str = "") -> None:
    """Registers the functions that read records of Kafka's internal topics: ``udfs.values.internal.columns``.

    - ``kafka_internal_record(topic, key, value)``: any record of an internal topic, key and value as JSON
    - ``kafka_offset_commit(key, value)``: a record of ``__consumer_offsets`` that is an offset commit
    - ``kafka_group_members(records, topics)``: the members of a group, of its current records
    - ``kafka_share_partition(records)``: the state that records of one share partition give, in order
    - ``kafka_transaction_state(key, value)``: a record of ``__transaction_state``

    And those of Kafka Connect and MirrorMaker: ``udfs.values.apps.columns``.

    A null struct means: not a record of that kind. text: SQL; the functions that it names are enough. "" for
    all.
    """
    for name, (_, function, gives) in (internal_topics.FUNCTIONS | app_topics.FUNCTIONS).items():
        if not text or name in text.lower():
            _register(spark, name, function, from_arrow_type(gives))


def register_typed_tables(spark: SparkSession, address: str, text: str = "") -> None:
    """Creates the views of typed tables.

    The table ``typed/orders`` of a lake is the view ```typed.orders```, one name in backticks: a temporary
    view lies in no schema. text: SQL; what it names is enough. "" for all.
    """
    for table in typed_tables(address, text):
        rows = f"SELECT * FROM {sql_table(address, table.table)}"
        name = sql_name(f"{table.folder}.{table.name}")
        spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW {name} AS {rows}")


def register_typed_functions(spark: SparkSession, registry: Callable[[], Registry], text: str = "") -> None:
    """Creates the functions that decode by schemas.

    registry: reads the schemas. text: SQL; the functions that it names are enough. "" for all.
    """
    words = set(re.findall(r"\w+", text.lower()))
    names = [name for name in TYPED_FUNCTIONS if not text or name in words]
    if names:
        schemas = pickle.dumps(registry())
        for name in names:
            _register(spark, name, _typed_code(name, schemas), from_arrow_type(TYPED_FUNCTIONS[name][1]))


def _typed_code(name: str, registry: bytes) -> Callable[..., pa.Array]:
    """Returns a callable of Arrow arrays, as Spark reads from its annotations.

    It names nothing of this module, which executors can't import: they have no deltalake.
    """

    def of_arrays(*columns: pa.Array) -> pa.Array:
        from kafka_log_lake.udfs.values.typed.functions import typed_functions

        made: pa.Array = getattr(typed_functions(registry), name)(*columns)
        return made

    return _named(name, of_arrays)
