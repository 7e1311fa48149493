"""Finds the newest committed record of each key, by the key's bytes; a tombstone removes the key.

Two keys are one where their bytes are the same, as for Kafka: equal values may have several forms (0.0 and
-0.0, NaN, ``{"id":1}`` with a blank or without).

A run reads the records that were committed since the table was made (``SourceState``), of the older ones
their keys, and the table. It reads the whole topic where that could give other rows: records before that
point came, went or were decoded again, or a key lies in several partitions (their number changed).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

import duckdb
import pyarrow.dataset as ds
from deltalake.exceptions import DeltaError

from kafka_log_lake.pipelines.decode_values.events import create_events, side_structs
from kafka_log_lake.pipelines.engine.delta import open_table, sql_literal
from kafka_log_lake.pipelines.lake.address import table_path
from kafka_log_lake.pipelines.typed.tables import TypedTable

# Of a key in several partitions the newer record by its timestamp
_WHOLE = """
    WITH newest AS (
      SELECT * FROM events WHERE raw_key IS NOT NULL
      QUALIFY lead("offset") OVER (PARTITION BY partition, raw_key ORDER BY "offset") IS NULL
    )
    SELECT * EXCLUDE ({left_out}) FROM (
      SELECT * FROM newest QUALIFY lag(partition) OVER (
        PARTITION BY raw_key ORDER BY timestamp DESC NULLS LAST, partition) IS NULL
    ) WHERE NOT is_tombstone ORDER BY partition, "offset"
"""
_MERGED = """
    SELECT t.* FROM kept t ANTI JOIN earlier USING (partition, "offset", segment)
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
    QUALIFY lead("offset") OVER (PARTITION BY partition, raw_key ORDER BY "offset") IS NULL
"""
# The records of the same keys that were seen before
_EARLIER = """
    CREATE OR REPLACE TEMP TABLE earlier AS
    SELECT r.partition, r."offset", r.segment, n.partition AS now FROM committed_records r
    JOIN newest n ON n.raw_key = r.key JOIN ends e ON e.partition = r.partition
    WHERE r.topic = {topic} AND r."offset" < e.seen_end
"""
# Whether a key lies in several partitions
_SPREAD = """
    SELECT 1 FROM {newest} WHERE raw_key IS NOT NULL GROUP BY raw_key HAVING count(DISTINCT partition) > 1
"""
_MOVED = _SPREAD.format(newest="newest") + " UNION ALL SELECT 1 FROM earlier WHERE partition <> now LIMIT 1"


@dataclass(frozen=True)
class SourceState:
    """A summary of the committed records from which a table was made.

    parts: partition -> (offset after the last, number of records, hash of their offsets and segments).
    is_spread: whether a key lies in several partitions.
    """

    parts: Mapping[int, tuple[int, int, int]]
    is_spread: bool = False

    def text(self) -> str:
        return json.dumps(
            {"parts": {p: list(part) for p, part in self.parts.items()}, "spread": self.is_spread}
        )

    @staticmethod
    def of(text: str) -> SourceState:
        state = json.loads(text)
        return SourceState({int(p): tuple(part) for p, part in state["parts"].items()}, state["spread"])


def select_latest(
    database: duckdb.DuckDBPyConnection, lake: str, path: str, table: TypedTable, made: Mapping[str, str]
) -> tuple[str, dict[str, str]]:
    """Returns the SELECT of the table's rows, and the commit's metadata: ``seen``, and what was ``read``.

    database: with the typed table and ``committed_records``. path: of the table. made: what its last commit
    says; none where it is to be made of the whole topic.
    """
    seen = SourceState.of(made["seen"]) if "seen" in made else SourceState({}, is_spread=True)
    left_out = ", ".join(("raw_key", "is_tombstone", *side_structs(table)))
    now, is_unchanged = _look(database, table, seen)
    may_merge = is_unchanged and not seen.is_spread
    kept = _kept(lake, path, table, int(made["typed_version"])) if may_merge else None
    if kept is not None:
        database.register("kept", kept)
        first = min((seen.parts.get(partition, (0,))[0] for partition in now), default=0)
        create_events(database, table, _NEW.format(first=first))
        database.execute(_NEWEST)
        database.execute(_EARLIER.format(topic=sql_literal(table.topic)))
        if not database.execute(_MOVED).fetchall():
            return _MERGED.format(left_out=left_out), {"seen": SourceState(now).text(), "read": "new records"}
        database.execute("DROP TABLE events")
    create_events(database, table)
    is_spread = database.execute(f"{_SPREAD.format(newest='events')} LIMIT 1").fetchall()
    seen = SourceState(now, bool(is_spread))
    return _WHOLE.format(left_out=left_out), {"seen": seen.text(), "read": "whole topic"}


def _look(
    database: duckdb.DuckDBPyConnection, table: TypedTable, seen: SourceState
) -> tuple[dict[int, tuple[int, int, int]], bool]:
    """Returns ``SourceState.parts`` of now, and whether the records before the seen ends are those seen."""
    database.execute("CREATE TEMP TABLE ends(partition INT, seen_end BIGINT)")
    if seen.parts:
        database.executemany(
            "INSERT INTO ends VALUES (?, ?)", [[p, part[0]] for p, part in seen.parts.items()]
        )
    counted = database.execute(_SEEN.format(topic=sql_literal(table.topic))).fetchall()
    now = {partition: (end, count, digest) for partition, end, count, digest, *_ in counted}
    before = {partition: (count, digest) for partition, *_, count, digest in counted if count}
    return now, before == {partition: part[1:] for partition, part in seen.parts.items()}


def _kept(lake: str, path: str, table: TypedTable, version: int) -> ds.Dataset | None:
    """Opens the rows of the table; None if the typed table lost files of a version, or changed columns."""
    delta = open_table(table_path(lake, table.table))
    files, schema = set(delta.file_uris()), delta.schema().to_json()
    try:
        delta.load_as_version(version)
        only_grew = files.issuperset(delta.file_uris()) and delta.schema().to_json() == schema
        return open_table(table_path(lake, path)).to_pyarrow_dataset() if only_grew else None
    except DeltaError:  # its log was cleaned, or another tool gave the table a feature that is not read here
        return None
