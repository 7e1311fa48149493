"""Builds the source table, and its history, from Debezium's change events.

An event's ``op`` is r (snapshot), c, u: the row is ``after``; d: the row of the key is gone, as with a
tombstone; t: all rows are gone; others (m) are of no table. A change of the primary key is a deletion and an
insertion. Events of a key lie in one partition, in its order; those in others, as where the number of
partitions changed, and truncations, come in the order of their timestamps.

Two keys are one where their values and their bytes are the same; the id of their schema may differ.

Values are structs (Avro, Protobuf), or JSON texts: with Kafka Connect's schema part or without it; then the
columns get the types that all rows have. What ``--json-values infer`` made of JSON is such a text again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import duckdb

from kafka_log_lake.pipelines.engine.delta import sql_literal
from kafka_log_lake.pipelines.sql.types import quoted
from kafka_log_lake.udfs.values.json.structs import REST
from kafka_log_lake.udfs.values.schemas.merged_types import safe_names

HISTORY = """
    SELECT key, after, op, partition, from_offset, to_offset, valid_from, valid_to FROM states
    ORDER BY partition, from_offset
"""
CURRENT = "SELECT UNNEST(after) FROM states WHERE to_offset IS NULL ORDER BY partition, from_offset"
# changes: partition, "offset", moment, key, row_key, op, after. A truncation is an event of each key. Events
# are of one row where key and row_key are the same: bytes alone are not (several source tables in a topic).
# is_later: at one moment the partition with a truncation is after others, and before them without a moment
_STATES = """
    CREATE TEMP TABLE states AS
    WITH timed AS (
      SELECT * REPLACE (max(moment) OVER (PARTITION BY partition ORDER BY "offset") AS moment) FROM changes
    ),
    placed AS (
      SELECT *, bool_or(op = 't') OVER (PARTITION BY partition, moment) = (moment IS NOT NULL) AS is_later
      FROM timed
    ),
    ends AS (SELECT partition, moment, max("offset") AS last FROM timed GROUP BY ALL),
    events AS (
      FROM placed WHERE op <> 't' UNION ALL BY NAME
      SELECT t.* EXCLUDE (key, row_key), k.* FROM placed t,
        (SELECT DISTINCT key, row_key FROM changes WHERE op <> 't') k WHERE op = 't'
    ),
    followed AS (
      SELECT *, lead(partition) OVER w AS next_partition, lead("offset") OVER w AS next_offset,
        lead(moment) OVER w AS next_moment
      FROM events
      WINDOW w AS (PARTITION BY key, row_key ORDER BY moment NULLS FIRST, is_later, partition, "offset")
      QUALIFY op IN ('r', 'c', 'u') AND after IS NOT NULL
    ),
    -- of events that one in another partition follows; ASOF gives -0.0 in a struct as 0.0
    moved AS (
      SELECT f.partition, "offset", greatest("offset", last) AS to_offset
      FROM (SELECT partition, "offset", next_moment FROM followed WHERE next_partition <> partition) f
      ASOF LEFT JOIN ends e ON e.partition = f.partition AND e.moment <= f.next_moment
    )
    SELECT key, after, op, partition, "offset" AS from_offset,
      CASE WHEN next_partition = partition THEN next_offset ELSE to_offset END AS to_offset,
      moment AS valid_from, next_moment AS valid_to
    FROM followed LEFT JOIN moved USING (partition, "offset")
"""
_INTEGERS = ("BIGINT", "UBIGINT", "HUGEINT")
# Whether JSON has an integer, outside of texts, that a double may round
_ROUNDED = r"""
    len(list_filter(
      regexp_extract_all(regexp_replace({place}::VARCHAR, '"(\\.|[^"\\])*"', '', 'g'), '-?[0-9][0-9.eE+-]*'),
      lambda one: NOT regexp_matches(one, '[.eE]')
        AND coalesce(abs(TRY_CAST(one AS HUGEINT)) > 9007199254740992, true)
    )) > 0
"""
# The bytes of the key, without the id of its schema: one that is registered again is of the same row
_ROW_KEY = """
    CASE WHEN starts_with(hex(raw_key), printf('00%08X', key_schema_id)) THEN substring(hex(raw_key), 11)
    ELSE hex(raw_key) END
"""
_OPS = "('r', 'c', 'u', 'd', 't')"


def prepare(database: duckdb.DuckDBPyConnection) -> bool:
    """Makes the table ``states`` of the table ``events``. Returns False without change events."""
    envelopes = _envelopes(database)
    if not envelopes:
        return False
    op = f"coalesce({', '.join(envelope.op for envelope in envelopes.values())})"
    database.execute(f"""
        CREATE TEMP TABLE changes AS
        SELECT partition, "offset", timestamp AS moment, key, {_ROW_KEY} AS row_key,
          CASE WHEN is_tombstone THEN 'd' ELSE op END AS op, after
        FROM (SELECT *, {op} AS op, {_after(envelopes)} AS after FROM events)
        WHERE (op IN {_OPS} OR is_tombstone) AND (raw_key IS NOT NULL OR op = 't')
    """)
    if not database.execute("SELECT count(*) FROM changes WHERE op <> 'd'").fetchall()[0][0]:
        return False
    type_ = _type(database, "after", "changes")
    if type_ == "JSON":
        _type_json(database)
    elif not type_.startswith("STRUCT"):  # a row without columns
        _replace_after(database, "struct_pack(after := after)")
    database.execute(_STATES)
    return True


class _Envelope(NamedTuple):
    """SQL expressions for an event's row (``after``, JSON or a struct) and its operation (``op``)."""

    after: str
    op: str

    @staticmethod
    def of_json(value: str) -> _Envelope:
        return _Envelope(f"nullif({value} -> '$.after', 'null')", f"({value} ->> '$.op')")


def _envelopes(database: duckdb.DuckDBPyConnection) -> dict[str, _Envelope]:
    """Returns the types of a topic that are envelopes, by name: "" of a topic with one type."""
    if _type(database, "value") == "VARCHAR":  # Kafka Connect's schema part is gone in typed tables
        return {"": _Envelope.of_json("CASE WHEN json_valid(value) THEN value::JSON END")}
    envelope = _envelope(database, "value")
    if envelope is not None:
        return {"": envelope}
    envelopes = {name: _envelope(database, f"value.{quoted(name)}") for name in _fields(database, "value")}
    return {name: envelope for name, envelope in envelopes.items() if envelope is not None}


def _envelope(database: duckdb.DuckDBPyConnection, place: str) -> _Envelope | None:
    """Returns the envelope of a struct with a text ``op``; None for anything else."""
    fields = _fields(database, place)
    rest = next(reversed(fields), "")
    if rest.rstrip("_") == REST:
        rest = f"coalesce({place}.{quoted(rest)}, '{{}}')"
        return _Envelope.of_json(f"json_merge_patch(to_json({place}), {rest}::JSON)")
    is_envelope = fields.get("op") == "VARCHAR" and "after" in fields
    return _Envelope(f"{place}.after", f"{place}.op") if is_envelope else None


def _type(database: duckdb.DuckDBPyConnection, expression: str, table: str = "events") -> str:
    return str(database.execute(f"DESCRIBE SELECT {expression} FROM {table}").fetchall()[0][1])


def _fields(database: duckdb.DuckDBPyConnection, place: str) -> dict[str, str]:
    """Returns the types of a struct's fields by name; {} for anything else."""
    type_ = _type(database, place)
    if not type_.startswith("STRUCT") or type_.endswith("]"):
        return {}
    rows = database.execute(f"DESCRIBE SELECT UNNEST({place}) FROM events").fetchall()
    return {name: str(type_) for name, type_, *_ in rows}


def _after(envelopes: Mapping[str, _Envelope]) -> str:
    """Returns SQL of the row: of several types a struct with a field a type, as typed tables have."""
    rows = {name: envelope.after for name, envelope in envelopes.items()}
    if len(rows) == 1:
        return next(iter(rows.values()))
    packed = ", ".join(f"{quoted(name)} := {row}" for name, row in rows.items())
    is_held = " OR ".join(f"{row} IS NOT NULL" for row in rows.values())
    return f"CASE WHEN {is_held} THEN struct_pack({packed}) END"


def _type_json(database: duckdb.DuckDBPyConnection) -> None:
    """Turns ``changes.after`` into a struct with types that fit all rows; JSON text if there are none."""
    ((grouped,),) = database.execute("SELECT json_group_structure(after) FROM changes").fetchall()
    structure: object = json.loads(grouped) if grouped else None
    if not isinstance(structure, dict) or not structure:
        _replace_after(database, "struct_pack(after := after::VARCHAR)")
        return
    pointers = (sql_literal("/" + member.replace("~", "~0").replace("/", "~1")) for member in structure)
    _replace_after(database, f"json_extract(after, [{', '.join(pointers)}])")  # parsed once for all members
    columns = zip(safe_names(list(structure)), _members(database, list(structure.values())), strict=True)
    _replace_after(
        database, f"struct_pack({', '.join(f'{quoted(column)} := {member}' for column, member in columns)})"
    )


def _replace_after(database: duckdb.DuckDBPyConnection, value: str) -> None:
    """Replaces ``changes.after``, where it is not null, by the value of an expression."""
    database.execute(
        "CREATE OR REPLACE TEMP TABLE changes AS SELECT * REPLACE "
        f"(CASE WHEN after IS NOT NULL THEN {value} END AS after) FROM changes"
    )


def _members(database: duckdb.DuckDBPyConnection, structures: list[object]) -> list[str]:
    """Returns SQL of each member that the list ``after`` has: a text where an integer would lose digits."""

    def read(place: str, structure: Any, integer: str, real: str) -> str:
        return f"from_json({place}, {sql_literal(json.dumps(_storable(structure, integer, real)))})"

    members = [(f"after[{at}]", structure) for at, structure in enumerate(structures, 1)]
    checks = []
    for member in members:
        has_reals = '"DOUBLE"' in json.dumps(member[1])
        bigint, exact = (read(*member, integer, "DOUBLE") for integer in ("BIGINT", "HUGEINT"))
        checks.append(f"{bigint} IS DISTINCT FROM {exact}" if bigint != exact else "false")
        checks.append(_ROUNDED.format(place=member[0]) if has_reals else "false")
    result = database.execute(f"SELECT {', '.join(f'bool_or({check})' for check in checks)} FROM changes")
    flags = ["VARCHAR" if is_set else None for is_set in result.fetchall()[0]]
    kinds = zip(flags[::2], flags[1::2], strict=True)
    return [
        read(*member, integer or "BIGINT", real or "DOUBLE")
        for member, (integer, real) in zip(members, kinds, strict=True)
    ]


def _storable(structure: object, integer: str, real: str) -> object:
    """Returns a structure of DuckDB's with types that Delta has; text where names differ in case alone.

    integer, real: the types of numbers.
    """
    if isinstance(structure, dict):
        if len({name.casefold() for name in structure}) < len(structure):
            return "VARCHAR"
        return {name: _storable(part, integer, real) for name, part in structure.items()}
    if isinstance(structure, list):
        return [_storable(part, integer, real) for part in structure]
    if structure in _INTEGERS:
        return integer
    if structure == "DOUBLE":
        return real
    return "VARCHAR" if structure in ("NULL", "JSON") else structure
