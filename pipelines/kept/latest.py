"""The newest committed record of each key; a tombstone takes the key away.

A run reads the records that were committed since the table was made (``Seen``), and the table. It reads
the whole topic where that could give other rows: records before that point came, went or were decoded again,
or a key lies in several partitions (their number changed) or could not be decoded.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

import duckdb
import pyarrow.dataset as ds
from deltalake.exceptions import DeltaError

from pipelines.kept.events import create_events, side_structs
from pipelines.lake.address import table_path
from pipelines.source.delta import open_table, sql_literal
from pipelines.sql.types import quoted
from pipelines.typed.tables import TypedTable

# Of a key in several partitions the newer record by its timestamp
_WHOLE = """
    WITH newest AS (
      SELECT * FROM events WHERE raw_key IS NOT NULL
      QUALIFY lead("offset") OVER (
        PARTITION BY partition, key, CASE WHEN key IS NULL THEN raw_key END ORDER BY "offset") IS NULL
    )
    SELECT * EXCLUDE ({left_out}) FROM (
      SELECT * FROM newest QUALIFY lag(partition) OVER (
        PARTITION BY key, CASE WHEN key IS NULL THEN raw_key END
        ORDER BY timestamp DESC NULLS LAST, partition) IS NULL
    ) WHERE NOT is_tombstone ORDER BY partition, "offset"
"""
_MERGED = """
    SELECT t.* FROM kept t WHERE {key} NOT IN (SELECT key FROM newest)
    UNION ALL BY NAME SELECT * EXCLUDE ({left_out}) FROM newest WHERE NOT is_tombstone
    ORDER BY partition, "offset"
"""
_SEEN = """
    SELECT r.partition, max(r."offset") + 1, count(*), bit_xor(hash(r."offset", r.segment)),
      count(*) FILTER (r."offset" < e.seen_end),
      bit_xor(hash(r."offset", r.segment)) FILTER (r."offset" < e.seen_end)
    FROM committed_records r LEFT JOIN ends e ON e.partition = r.partition
    WHERE r.topic = {topic} GROUP BY r.partition
"""
_NEW = """
    LEFT JOIN ends e ON e.partition = t.partition
    WHERE t."offset" >= {first} AND t."offset" >= coalesce(e.seen_end, 0)
"""
_NEWEST = """
    CREATE OR REPLACE TEMP TABLE newest AS SELECT * FROM events WHERE raw_key IS NOT NULL
    QUALIFY lead("offset") OVER (PARTITION BY key ORDER BY "offset") IS NULL
"""
# A row of a key without a place in the table, or in another partition than the one it was in
_ODD = """
    SELECT 1 FROM events WHERE raw_key IS NOT NULL AND key IS NULL
    UNION ALL SELECT 1 FROM kept t WHERE {key} IS NULL
    UNION ALL SELECT 1 FROM events WHERE raw_key IS NOT NULL
      GROUP BY key HAVING count(DISTINCT partition) > 1
    UNION ALL SELECT 1 FROM kept t JOIN newest n ON n.key = {key} WHERE n.partition <> t.partition
    UNION ALL SELECT 1 FROM typed.{table} t JOIN newest n ON n.key = {key}
      WHERE t.is_tombstone AND n.partition <> t.partition
    LIMIT 1
"""
_SPREAD = """
    SELECT 1 FROM events WHERE raw_key IS NOT NULL
    GROUP BY key, CASE WHEN key IS NULL THEN raw_key END HAVING count(DISTINCT partition) > 1 LIMIT 1
"""


@dataclass(frozen=True)
class Seen:
    """The committed records that a table was made of.

    parts: partition -> offset after the last, their number, and a hash of their offsets and segments.
    is_spread: whether a key lies in several partitions.
    """

    parts: Mapping[int, tuple[int, int, int]]
    is_spread: bool = False

    def text(self) -> str:
        return json.dumps(
            {"parts": {p: list(one) for p, one in self.parts.items()}, "spread": self.is_spread}
        )

    @staticmethod
    def of(text: str) -> Seen:
        found = json.loads(text)
        return Seen({int(p): tuple(one) for p, one in found["parts"].items()}, found["spread"])


def select_latest(
    database: duckdb.DuckDBPyConnection, lake: str, path: str, table: TypedTable, made: Mapping[str, str]
) -> tuple[str, dict[str, str]]:
    """The SELECT of the table's rows, and what the commit is to say: ``seen``, and what was ``read``.

    database: with the typed table and ``committed_records``. path: of the table. made: what its last commit
    says; none where it is to be made of the whole topic.
    """
    seen = Seen.of(made["seen"]) if "seen" in made else Seen({}, is_spread=True)
    structs = side_structs(table)
    names = {
        "table": quoted(table.name),
        "key": structs.get("key", "t.key"),
        "left_out": ", ".join(("raw_key", "is_tombstone", *structs)),
    }
    now, is_unchanged = _look(database, table, seen)
    may_merge = is_unchanged and not seen.is_spread
    kept = _kept(lake, path, table, int(made["typed_version"])) if may_merge else None
    if kept is not None:
        database.register("kept", kept)
        first = min((seen.parts.get(partition, (0,))[0] for partition in now), default=0)
        create_events(database, table, _NEW.format(first=first))
        database.execute(_NEWEST)
        if not database.execute(_ODD.format(**names)).fetchall():
            return _MERGED.format(**names), {"seen": Seen(now).text(), "read": "new records"}
        database.execute("DROP TABLE events")
    create_events(database, table)
    seen = Seen(now, bool(database.execute(_SPREAD).fetchall()))
    return _WHOLE.format(**names), {"seen": seen.text(), "read": "whole topic"}


def _look(
    database: duckdb.DuckDBPyConnection, table: TypedTable, seen: Seen
) -> tuple[dict[int, tuple[int, int, int]], bool]:
    """``Seen.parts`` of now, and whether the records before the seen ends are those that were seen."""
    database.execute("CREATE TEMP TABLE ends(partition INT, seen_end BIGINT)")
    if seen.parts:
        database.executemany("INSERT INTO ends VALUES (?, ?)", [[p, one[0]] for p, one in seen.parts.items()])
    found = database.execute(_SEEN.format(topic=sql_literal(table.topic))).fetchall()
    now = {partition: (end, count, digest) for partition, end, count, digest, *_ in found}
    before = {partition: (count, digest) for partition, *_, count, digest in found if count}
    return now, before == {partition: one[1:] for partition, one in seen.parts.items()}


def _kept(lake: str, path: str, table: TypedTable, version: int) -> ds.Dataset | None:
    """The rows of the table; None where the typed table has not all files of a version, or other columns."""
    delta = open_table(table_path(lake, table.table))
    files, schema = set(delta.file_uris()), delta.schema().to_json()
    try:
        delta.load_as_version(version)
        only_grew = files.issuperset(delta.file_uris()) and delta.schema().to_json() == schema
        return open_table(table_path(lake, path)).to_pyarrow_dataset() if only_grew else None
    except DeltaError:  # its log was cleaned, or another tool gave the table a feature that is not read here
        return None
