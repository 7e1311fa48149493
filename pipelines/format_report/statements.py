"""Runs the statements and stages of the report on formats by DuckDB, in this process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
from deltalake import DeltaTable

from kafka_log_lake.pipelines.sql.database import open_database
from kafka_log_lake.udfs.format.schema import BATCHES, RECORDS
from kafka_log_lake.udfs.spark.protocol import Stage

_TABLES = (RECORDS.name, BATCHES.name)
_ROWS = 8_192  # of an Arrow batch of DuckDB, which bounds no bytes


class Statements:
    """Runs statements with names in braces: ``records``, ``batches``, ``ledger``, and those of ``parts``.

    tables: of the state of the lake to read. parts: name -> a statement or a number; each may use the names
    of those before it.
    """

    def __init__(
        self, address: str, tables: Mapping[str, DeltaTable], ledger: pa.Table, parts: Mapping[str, str | int]
    ) -> None:
        self._database = open_database(address, f"FROM {', '.join(_TABLES)}", tables=tables)
        self._database.register("ledger", ledger)
        self._named: dict[str, str | int] = {name: name for name in (*_TABLES, "ledger")}
        for name, part in parts.items():
            self._named[name] = f"({part.format(**self._named)})" if isinstance(part, str) else part

    def rows(self, statement: str) -> pa.Table:
        """Returns the rows of a statement."""
        return self._database.sql(statement.format(**self._named)).to_arrow_table()

    def staged(self, statement: str, order: Sequence[str], stage: Stage) -> pa.Table:
        """Returns the rows that a stage makes of a statement's rows, which it gets sorted by ``order``."""
        keys = ", ".join(f'"{name}"' for name in order)
        ordered = self._database.sql(f"{statement.format(**self._named)} ORDER BY {keys}")
        return pa.Table.from_batches(stage(iter(ordered.to_arrow_reader(_ROWS))))
