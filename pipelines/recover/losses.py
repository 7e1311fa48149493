"""The losses: records of losing histories, and what the true history has in their place."""

from __future__ import annotations

import os
from collections.abc import Sequence

import pyarrow as pa

from kafka_log_lake.pipelines.recover.acknowledged import ANSWERS
from kafka_log_lake.pipelines.recover.partition import LOST
from kafka_log_lake.pipelines.sql.database import open_database
from kafka_log_lake.udfs.format.recovery_tables import LOST_RECORDS

_ROWS = 1 << 14  # read at a time


def lost_records(lake: str, files: Sequence[str]) -> pa.RecordBatchReader:
    """Yields the rows of ``lost_records``, from files of ``partition``; the lake holds the healed log."""
    schema = LOST_RECORDS.arrow_schema()
    if not files:
        return pa.RecordBatchReader.from_batches(schema, [])
    database = open_database(lake, "SELECT * FROM committed_records, records")
    import pyarrow.dataset as ds  # needed only with lost records

    database.register("lost", ds.dataset([os.fspath(file) for file in files], schema=LOST))
    words = " ".join(f"WHEN {i} THEN '{word}'" for i, (word, _) in enumerate(ANSWERS))
    reasons = " ".join(f"WHEN {i} THEN '{why}'" for i, (_, why) in enumerate(ANSWERS))
    query = _LOST_RECORDS.format(words=words, reasons=reasons, parted_at=PARTED_AT)
    reader = database.sql(query).to_arrow_reader(_ROWS)
    return pa.RecordBatchReader.from_batches(schema, (_cast(batch, schema) for batch in reader))


def _cast(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    return pa.Table.from_batches([batch]).select(schema.names).cast(schema).combine_chunks().to_batches()[0]


# Where the history of a lost record's copy parts from the true one: what the true log has before, the losing
# log has too, and no record there was sent in place of a lost one
PARTED_AT = 'min("offset") OVER (PARTITION BY topic, partition, copy, why)'
# Of what lies before the log's start the marker may be in the true log: its first one of the producer
_LOST_RECORDS = """
WITH first_markers AS (
  SELECT topic, partition, producer_id, arg_min(control_type, "offset") AS control_type
  FROM records WHERE control_type IN ('COMMIT', 'ABORT') GROUP BY ALL
), ended AS (
  SELECT l.*, CASE WHEN l.is_transactional AND l.control_type IS NULL THEN coalesce(
    CASE coalesce(first_value(l.control_type IGNORE NULLS) OVER (
      PARTITION BY l.topic, l.partition, l.copy, l.why, l.producer_id ORDER BY l."offset"
      ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING), m.control_type)
    WHEN 'COMMIT' THEN 'committed' WHEN 'ABORT' THEN 'aborted' END, 'open') END AS transaction
  FROM lost l LEFT JOIN first_markers m ON l.why = 'before-log-start' AND m.topic = l.topic
    AND m.partition = l.partition AND m.producer_id = l.producer_id
), keys AS (
  SELECT DISTINCT topic, partition, key FROM lost WHERE key IS NOT NULL AND control_type IS NULL
), latest AS (
  SELECT c.topic, c.partition, c.key, max(c."offset") AS true_offset,
    arg_max(c.value, c."offset") AS true_value,
    arg_max(c.value IS NULL, c."offset") AS is_tombstone
  FROM committed_records c SEMI JOIN keys k
    ON k.topic = c.topic AND k.partition = c.partition AND k.key = c.key
  GROUP BY ALL
), parted AS (
  SELECT *, {parted_at} AS parted_at FROM lost
), twins AS (
  SELECT l.copy, l.topic, l.partition, l.why, l."offset", min(r."offset") AS also_in_truth
  FROM parted l JOIN records r ON r.topic = l.topic AND r.partition = l.partition
    AND r."offset" >= l.parted_at
    AND r.key IS NOT DISTINCT FROM l.key AND r.value IS NOT DISTINCT FROM l.value
    AND r.headers IS NOT DISTINCT FROM l.headers
  WHERE l.control_type IS NULL AND r.control_type IS NULL
  GROUP BY ALL
)
SELECT e.topic, e.partition, e."offset", e.leader_epoch, e.copy, e.why, e.timestamp_ms, e.key, e.value,
  e.headers, e.control_type, e.producer_id, e.producer_epoch, e.sequence, e.is_transactional, e.transaction,
  CASE WHEN e.control_type IS NOT NULL THEN NULL WHEN e.transaction = 'committed' AND e.answer < 2 THEN 'yes'
    ELSE CASE e.answer {words} END END AS acknowledged,
  CASE WHEN e.control_type IS NOT NULL THEN NULL WHEN e.transaction = 'committed' AND e.answer < 2
    THEN 'its transaction was committed, which a producer does once all of it is answered'
    ELSE CASE e.answer {reasons} END END AS acknowledged_why,
  t.also_in_truth, n.true_offset,
  CASE WHEN n.is_tombstone THEN NULL ELSE n.true_value END AS true_value, e.segment
FROM ended e
LEFT JOIN twins t ON t.topic = e.topic AND t.partition = e.partition AND t.copy = e.copy AND t.why = e.why
  AND t."offset" = e."offset"
LEFT JOIN latest n ON n.topic = e.topic AND n.partition = e.partition AND n.key = e.key
  AND e.control_type IS NULL
ORDER BY e.topic, e.partition, e."offset", e.copy
"""
