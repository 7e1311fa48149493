"""Debezium's change events as the source table, and its history.

An event's ``op`` is r (snapshot), c, u: the row is ``after``; d: the row of the key is gone, as with a
tombstone; t: all rows are gone; others (m) are of no table. A change of the primary key is a deletion and an
insertion. Events of a key lie in one partition, in its order. A truncation holds for other partitions from
its timestamp on.

Values are structs (Avro, JSON Schema decoded by ``--json-values infer``), or JSON texts: with Kafka Connect's
schema part or without it; then the columns get the types that all rows have.
"""

from __future__ import annotations

import json
from typing import Any

import duckdb

from pipelines.sql.types import literal, quoted
from udfs.values.merged_types import safe_names

HISTORY = """
    SELECT key, after, op, partition, from_offset, to_offset, valid_from, valid_to FROM states
    ORDER BY partition, from_offset
"""
CURRENT = "SELECT UNNEST(after) FROM states WHERE to_offset IS NULL ORDER BY partition, from_offset"
# changes: partition, "offset", moment, key, op, after
_STATES = """
    CREATE TEMP TABLE states AS
    WITH timed AS (
      SELECT * REPLACE (max(moment) OVER (PARTITION BY partition ORDER BY "offset") AS moment) FROM changes
    ),
    keys AS (SELECT DISTINCT partition, key FROM timed WHERE op <> 't'),
    truncations AS (
      SELECT k.partition, coalesce(CASE WHEN k.partition = t.partition THEN t."offset" END,
        (SELECT max(e."offset") FROM timed e WHERE e.partition = k.partition AND e.moment <= t.moment), -1
      ) AS "offset",
        t.moment, k.key, 't' AS op, NULL AS after
      FROM (SELECT * FROM timed WHERE op = 't') t, keys k
    ),
    events AS (
      SELECT partition, "offset", moment, key, op, after, 0 AS step FROM timed WHERE op <> 't'
      UNION ALL SELECT partition, "offset", moment, key, op, after, 1 FROM truncations
    )
    SELECT key, after, op, partition, "offset" AS from_offset, lead("offset") OVER w AS to_offset,
      moment AS valid_from, lead(moment) OVER w AS valid_to
    FROM events WINDOW w AS (PARTITION BY partition, key ORDER BY "offset", step, moment)
    QUALIFY op IN ('r', 'c', 'u') AND after IS NOT NULL
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
_OPS = "('r', 'c', 'u', 'd', 't')"


def prepare(database: duckdb.DuckDBPyConnection) -> bool:
    """Makes the table ``states`` of the table ``events``. False where a topic has no change events."""
    types = {name: type_ for name, type_, *_ in database.execute("DESCRIBE events").fetchall()}
    value = _envelope(database, str(types["value"]))
    if value is None:
        return False
    after, op = value
    key = "key" if str(types["key"]) != "VARCHAR" else _payload("key")
    database.execute(f"""
        CREATE TEMP TABLE changes AS
        SELECT partition, "offset", timestamp AS moment, key,
          CASE WHEN is_tombstone THEN 'd' ELSE op END AS op, after
        FROM (SELECT partition, "offset", timestamp, is_tombstone, {key} AS key, {op} AS op, {after} AS after
          FROM events)
        WHERE (op IN {_OPS} OR is_tombstone) AND (key IS NOT NULL OR op = 't')
    """)
    if not database.execute("SELECT count(*) FROM changes WHERE op <> 'd'").fetchall()[0][0]:
        return False
    if str(types["value"]) == "VARCHAR":
        _type_json(database)
    database.execute(_STATES)
    return True


def _envelope(database: duckdb.DuckDBPyConnection, type_: str) -> tuple[str, str] | None:
    """SQL of ``after`` and ``op`` of an event; None for values that are no change events."""
    if type_ == "VARCHAR":
        value = _payload("value")
        return f"({value} -> '$.after')", f"({value} ->> '$.op')"
    if _has(database, "value"):
        return "value.after", "value.op"
    # several types in one topic: the first that is an envelope
    if type_.startswith("STRUCT"):
        names = [row[0] for row in database.execute("DESCRIBE SELECT UNNEST(value) FROM events").fetchall()]
        for name in names:
            place = f"value.{quoted(name)}"
            if _has(database, place):
                return f"{place}.after", f"{place}.op"
    return None


def _has(database: duckdb.DuckDBPyConnection, place: str) -> bool:
    """Whether values there are envelopes: structs with a text ``op``; a map has any name."""
    try:
        found = database.execute(f"DESCRIBE SELECT {place}, {place}.after, {place}.op FROM events").fetchall()
    except duckdb.Error:
        return False
    types = [str(one[1]) for one in found]
    return types[0].startswith("STRUCT") and types[2] == "VARCHAR"


def _payload(column: str) -> str:
    """A JSON text; null for another text. Kafka Connect's schema part is gone in typed tables."""
    return f"CASE WHEN json_valid({column}) THEN {column}::JSON END"


def _type_json(database: duckdb.DuckDBPyConnection) -> None:
    """``changes.after`` as a struct with the types that all rows have; as JSON text where there is none."""
    ((found,),) = database.execute("SELECT json_group_structure(after) FROM changes").fetchall()
    structure: Any = json.loads(found) if found else None
    if isinstance(structure, dict) and structure:
        columns = zip(safe_names(list(structure)), structure.items(), strict=True)
        parts = (f"{quoted(column)} := {_member(database, *one)}" for column, one in columns)
        target = f"struct_pack({', '.join(parts)})"
    else:
        target = "struct_pack(after := after::VARCHAR)"
    database.execute(f"""
        CREATE OR REPLACE TEMP TABLE changes AS SELECT * REPLACE (
          CASE WHEN after IS NULL OR after = 'null' THEN NULL ELSE {target} END AS after
        ) FROM changes
    """)


def _member(database: duckdb.DuckDBPyConnection, name: str, structure: Any) -> str:
    """SQL of a member of the JSON object ``after``: numbers are texts where an integer would lose digits."""
    place = f"(after -> {literal('/' + name.replace('~', '~0').replace('/', '~1'))})"
    has_reals = '"DOUBLE"' in json.dumps(structure)
    is_rounded = has_reals and _has_any(database, _ROUNDED.format(place=place))
    real = "VARCHAR" if is_rounded else "DOUBLE"
    bigint, exact, text = (
        f"from_json({place}, {literal(json.dumps(_storable(structure, integer, real)))})"
        for integer in ("BIGINT", "HUGEINT", "VARCHAR")
    )
    is_held = bigint == exact or not _has_any(database, f"{bigint} IS DISTINCT FROM {exact}")
    return bigint if is_held else text


def _has_any(database: duckdb.DuckDBPyConnection, condition: str) -> bool:
    """Whether a condition is true of a row of ``changes``."""
    return database.execute(f"SELECT bool_or({condition}) FROM changes").fetchall() == [(True,)]


def _storable(structure: Any, integer: str, real: str) -> Any:
    """A structure of DuckDB's with types that Delta has; text where names differ in case alone.

    integer, real: the types of numbers.
    """
    if isinstance(structure, dict):
        if len({name.casefold() for name in structure}) < len(structure):
            return "VARCHAR"
        return {name: _storable(one, integer, real) for name, one in structure.items()}
    if isinstance(structure, list):
        return [_storable(one, integer, real) for one in structure]
    if structure in _INTEGERS:
        return integer
    if structure == "DOUBLE":
        return real
    return "VARCHAR" if structure in ("NULL", "JSON") else structure
