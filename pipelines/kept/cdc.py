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

from pipelines.source.delta import sql_literal
from pipelines.sql.types import quoted
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
    _replace_after(database, "CASE WHEN after <> 'null' THEN after END")
    if not isinstance(structure, dict) or not structure:
        _replace_after(database, "struct_pack(after := after::VARCHAR)")
        return
    pointers = (sql_literal("/" + one.replace("~", "~0").replace("/", "~1")) for one in structure)
    _replace_after(database, f"json_extract(after, [{', '.join(pointers)}])")  # parsed once for all members
    columns = zip(safe_names(list(structure)), _members(database, list(structure.values())), strict=True)
    _replace_after(
        database, f"struct_pack({', '.join(f'{quoted(column)} := {member}' for column, member in columns)})"
    )


def _replace_after(database: duckdb.DuckDBPyConnection, value: str) -> None:
    """Puts the value of an expression in the place of ``changes.after`` where that is not null."""
    database.execute(
        "CREATE OR REPLACE TEMP TABLE changes AS SELECT * REPLACE "
        f"(CASE WHEN after IS NOT NULL THEN {value} END AS after) FROM changes"
    )


def _members(database: duckdb.DuckDBPyConnection, structures: list[Any]) -> list[str]:
    """SQL of each member that the list ``after`` has: a text where an integer would lose digits."""

    def read(place: str, structure: Any, integer: str, real: str) -> str:
        return f"from_json({place}, {sql_literal(json.dumps(_storable(structure, integer, real)))})"

    members = [(f"after[{at}]", one) for at, one in enumerate(structures, 1)]
    checks = []
    for member in members:
        has_reals = '"DOUBLE"' in json.dumps(member[1])
        bigint, exact = (read(*member, integer, "DOUBLE") for integer in ("BIGINT", "HUGEINT"))
        checks.append(f"{bigint} IS DISTINCT FROM {exact}" if bigint != exact else "false")
        checks.append(_ROUNDED.format(place=member[0]) if has_reals else "false")
    found = database.execute(f"SELECT {', '.join(f'bool_or({one})' for one in checks)} FROM changes")
    flags = ["VARCHAR" if one else None for one in found.fetchall()[0]]
    kinds = zip(flags[::2], flags[1::2], strict=True)
    return [
        read(*member, integer or "BIGINT", real or "DOUBLE")
        for member, (integer, real) in zip(members, kinds, strict=True)
    ]


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
