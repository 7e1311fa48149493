"""Makes the table ``events``: the records of a typed table that READ_COMMITTED consumers get."""

from __future__ import annotations

from collections.abc import Mapping

import duckdb

from kafka_log_lake.pipelines.engine.delta import sql_literal
from kafka_log_lake.pipelines.sql.types import quoted
from kafka_log_lake.pipelines.typed.tables import TypedTable
from kafka_log_lake.udfs.values.typed.files import SIDES

# Once where several copies have a record; raw_key: the key's bytes. Of row_number() = 1 DuckDB makes an
# aggregate, which gives -0.0 in a struct as 0.0: lag and lead find the first and the last row here.
_EVENTS = """
    CREATE TEMP TABLE events AS
    SELECT t.*, {structs} r.key AS raw_key FROM typed.{table} t JOIN committed_records r
    ON r.topic = {topic} AND r.partition = t.partition AND r."offset" = t."offset" AND r.segment = t.segment
    {condition}
    QUALIFY lag(t.segment) OVER (PARTITION BY t.partition, t."offset" ORDER BY t.segment) IS NULL
"""


def create_events(database: duckdb.DuckDBPyConnection, table: TypedTable, condition: str = "") -> None:
    """Creates the table ``events``. condition: WHERE or a join, of the typed table ``t``."""
    structs = "".join(f"{struct} AS {side}, " for side, struct in side_structs(table).items())
    database.execute(
        _EVENTS.format(
            table=quoted(table.name), topic=sql_literal(table.topic), structs=structs, condition=condition
        )
    )


def side_structs(table: TypedTable) -> Mapping[str, str]:
    """Returns side -> its struct in SQL, where its fields are columns (``--value-columns flat``).

    ``t`` is the table there.
    """
    structs = {}
    for side in SIDES:
        names = [n for n in table.schema.names if n.startswith(f"{side}_") and n != f"{side}_schema_id"]
        if side in table.schema.names or not names:
            continue
        is_held = " OR ".join(f"t.{quoted(name)} IS NOT NULL" for name in names)
        fields = ", ".join(f"{quoted(name.removeprefix(f'{side}_'))} := t.{quoted(name)}" for name in names)
        structs[side] = f"CASE WHEN {is_held} THEN struct_pack({fields}) END"
    return structs
