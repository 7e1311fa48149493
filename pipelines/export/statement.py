"""The statement that selects what is exported of a topic: its committed records, typed where they can be."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from kafka_log_lake.pipelines.engine.delta import sql_literal
from kafka_log_lake.pipelines.sql.types import quoted, table_name
from kafka_log_lake.pipelines.typed.tables import TypedTable
from kafka_log_lake.udfs.values.schemas.merged_types import safe_names

# Of a typed table: what every record has, and what says how its key and value were found
_OF_RECORD = ("partition", "offset", "timestamp", "headers", "segment", "is_tombstone")
_OF_SCHEMA = ("key_schema_id", "value_schema_id")
_PLACE = ("partition", "offset", "segment")
_IN_ORDER = 'ORDER BY r.partition, r."offset"'


def of_texts(topic: str) -> str:
    """Returns the statement for a topic without a typed table: keys and values as text.

    Bytes that are not UTF-8 are in ``key_bytes`` and ``value_bytes``, where texts have null.
    """
    texts = [f"try_validate_utf8(r.{side}) AS {side}" for side in ("key", "value")]
    rest = [
        f"CASE WHEN try_validate_utf8(r.{side}) IS NULL THEN r.{side} END AS {side}_bytes"
        for side in ("key", "value")
    ]
    columns = ['r.partition, r."offset", r.timestamp', *texts, "r.headers", "r.value IS NULL AS is_tombstone"]
    return (
        f"SELECT {', '.join([*columns, *rest])} FROM committed_records AS r "
        f"WHERE r.topic = {sql_literal(topic)} {_IN_ORDER}"
    )


def of_typed(topic: str, table: TypedTable, is_flat: bool, has_errors: bool) -> str:
    """Returns the statement for a topic with a typed table.

    What could not be decoded is null there, with the reason in ``key_error`` or ``value_error`` and its bytes
    in ``key_bytes`` or ``value_bytes``. is_flat: each field of a record type is a column, ``value.city``.
    has_errors: whether the lake has the table ``value_errors``, which comes with its first row.
    """
    values = [field for field in table.schema if field.name not in (*_OF_RECORD, *_OF_SCHEMA)]
    fields = list(_flat(values)) if is_flat else [((field.name,), field.type) for field in values]
    first, last = ("partition", "offset", "timestamp"), ("headers", "is_tombstone")
    errors = [
        (f"of_{side}.{column}", f"{side}_{name}")
        for name, column in (("error", "reason"), ("bytes", "content"))
        for side in ("key", "value")
    ]
    columns = [
        *((f"r.{quoted(name)}", name) for name in first),
        *((f"r.{'.'.join(map(quoted, path))}", ".".join(path)) for path, _ in fields),
        *((f"r.{quoted(name)}", name) for name in last),
        *errors,
    ]
    names = safe_names([name for _, name in columns])
    listed = ", ".join(f"{held} AS {quoted(name)}" for (held, _), name in zip(columns, names, strict=True))
    return (
        f"SELECT {listed} FROM {table_name(table.folder, table.name)} AS r "
        f"SEMI JOIN ({_committed(topic)}) AS c ON {_same_place('c')} "
        f"{_errors(topic, 'key', has_errors)} {_errors(topic, 'value', has_errors)} {_IN_ORDER}"
    )


def not_in_typed(topic: str, table: TypedTable) -> str:
    """Returns the statement that counts the committed records of a topic that its typed table lacks."""
    typed = f"SELECT * FROM {table_name(table.folder, table.name)}"
    return f"SELECT count(*) FROM ({_committed(topic)}) AS r ANTI JOIN ({typed}) AS c ON {_same_place('c')}"


def _committed(topic: str) -> str:
    names = ", ".join(map(quoted, _PLACE))
    return f"SELECT {names} FROM committed_records WHERE topic = {sql_literal(topic)}"


def _errors(topic: str, side: str, has_errors: bool) -> str:
    """Returns the join with the errors of one side; a place that a log has twice has one of its errors."""
    if not has_errors:
        return (
            f"CROSS JOIN (SELECT CAST(NULL AS VARCHAR) AS reason, CAST(NULL AS BLOB) AS content) AS of_{side}"
        )
    names = ", ".join(map(quoted, _PLACE))
    return (
        f"LEFT JOIN (SELECT {names}, min(reason) AS reason, min(content) AS content FROM value_errors "
        f"WHERE topic = {sql_literal(topic)} AND side = '{side}' GROUP BY ALL) AS of_{side} "
        f"ON {_same_place(f'of_{side}')}"
    )


def _same_place(other: str) -> str:
    return " AND ".join(f"r.{quoted(name)} = {other}.{quoted(name)}" for name in _PLACE)


def _flat(
    fields: list[pa.Field], path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], pa.DataType]]:
    """Yields (path, type) of the fields that are no structs, within structs too."""
    for field in fields:
        if pa.types.is_struct(field.type) and field.type.num_fields:
            yield from _flat(list(field.type), (*path, field.name))
        else:
            yield (*path, field.name), field.type
