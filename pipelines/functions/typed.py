"""Typed tables, and the functions that decode by schemas, in a session of Spark.

The table ``typed/orders`` of a lake is the view ```typed.orders```, one name in backticks: a temporary view
lies in no schema.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.functions import arrow_udf  # type: ignore[attr-defined]  # not in its type hints
from pyspark.sql.pandas.types import from_arrow_type

from pipelines.lake.address import sql_name, sql_table
from pipelines.typed.schemas import registry_of_state
from pipelines.typed.tables import typed_tables
from udfs.functions.typed import FUNCTIONS

if TYPE_CHECKING:
    from udfs.values.typed_functions import TypedFunctions


def register_typed(spark: SparkSession, address: str, text: str = "") -> None:
    """Creates the views of typed tables, and the functions.

    text: SQL; what it names is enough. "" for all.
    """
    words = set(re.findall(r"\w+", text.lower()))
    for table in typed_tables(address, text):
        rows = f"SELECT * FROM {sql_table(address, table.table)}"
        name = sql_name(f"{table.folder}.{table.name}")
        spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW {name} AS {rows}")
    names = [name for name in FUNCTIONS if not text or name in words]
    if names:
        registry = pickle.dumps(registry_of_state(address))
        for name in names:
            spark.udf.register(name, arrow_udf(_code(name, registry), from_arrow_type(FUNCTIONS[name][1])))


def _code(name: str, registry: bytes) -> Callable[..., pa.Array]:
    """A callable of Arrow arrays, as Spark reads from its annotations."""

    def of_arrays(*columns: pa.Array) -> pa.Array:
        found: pa.Array = getattr(_functions(registry), name)(*columns)
        return found

    of_arrays.__name__ = of_arrays.__qualname__ = name
    return of_arrays


@cache
def _functions(registry: bytes) -> TypedFunctions:
    from udfs.values.typed_functions import TypedFunctions

    known: Any = pickle.loads(registry)
    return TypedFunctions(known)
