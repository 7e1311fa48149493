"""Runs the statements and stages of the report on formats: by DuckDB in this process, or by Spark.

Both run the same statements and the same stages. Statements have names in braces: ``records``, ``batches``,
``ledger``, and those of ``parts``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from kafka_log_lake.pipelines.engine.session import configured
from kafka_log_lake.pipelines.lake.address import table_path
from kafka_log_lake.pipelines.listing.hadoop import open_to_spark
from kafka_log_lake.pipelines.sql.database import open_database
from kafka_log_lake.pipelines.sql.statements import view_text
from kafka_log_lake.udfs.format.schema import BATCHES, RECORDS
from kafka_log_lake.udfs.spark.protocol import Stage

_TABLES = (RECORDS.name, BATCHES.name)
_ROWS = 8_192  # of an Arrow batch of DuckDB, which bounds no bytes
# Of one of Spark
_ARROW = {
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(64 << 20),
}


class OnSpark:
    """Runs statements and stages in a session of Spark. tables: of the lake, at the versions to read.

    parts: name in braces -> a statement or a number; each may use the names of those before it.
    """

    def __init__(
        self,
        spark: SparkSession,
        address: str,
        tables: Mapping[str, DeltaTable],
        ledger: pa.Table,
        parts: Mapping[str, str | int],
    ) -> None:
        open_to_spark(spark, address)
        self._spark = spark
        self._named: dict[str, Any] = {"ledger": spark.createDataFrame(ledger)}
        for name in _TABLES:
            rows = spark.read.format("delta").option("versionAsOf", tables[name].version())
            self._named[name] = rows.load(table_path(address, name))
        for name, part in parts.items():
            self._named[name] = self._frame(part) if isinstance(part, str) else part

    def _frame(self, statement: str) -> DataFrame:
        return self._spark.sql(statement, **self._named)

    def rows(self, statement: str) -> pa.Table:
        return self._frame(statement).toArrow()

    def staged(self, statement: str, order: Sequence[str], together: int, stage: Stage, ddl: str) -> pa.Table:
        """Returns the rows that a stage makes of the rows of a statement, which it gets sorted by ``order``.

        One call gets all rows with the same values of the first ``together`` columns of the order. ddl: the
        columns of what the stage gives.
        """
        with configured(self._spark, _ARROW):
            rows = self._frame(statement).repartition(*order[:together]).sortWithinPartitions(*order)
            return rows.mapInArrow(stage, ddl).toArrow()


class OnDuckDB:
    """Runs statements and stages in this process with DuckDB. tables: of the state of the lake to read."""

    def __init__(
        self, address: str, tables: Mapping[str, DeltaTable], ledger: pa.Table, parts: Mapping[str, str | int]
    ) -> None:
        self._database = open_database(address, f"FROM {', '.join(_TABLES)}", tables=tables)
        self._database.register("ledger", ledger)
        self._named: dict[str, str | int] = {name: name for name in (*_TABLES, "ledger")}
        for name, part in parts.items():
            self._named[name] = f"({part.format(**self._named)})" if isinstance(part, str) else part

    def _text(self, statement: str) -> str:
        return view_text(statement.format(**self._named), {})

    def rows(self, statement: str) -> pa.Table:
        return self._database.sql(self._text(statement)).to_arrow_table()

    def staged(self, statement: str, order: Sequence[str], together: int, stage: Stage, ddl: str) -> pa.Table:
        keys = ", ".join(f'"{name}"' for name in order)
        ordered = self._database.sql(f"{self._text(statement)} ORDER BY {keys}")
        return pa.Table.from_batches(stage(iter(ordered.to_arrow_reader(_ROWS))))


Engine = OnDuckDB | OnSpark
