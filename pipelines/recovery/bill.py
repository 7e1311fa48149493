"""The loss bill: the records of batches that the true history lacks, and what it has in their place."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from pipelines.recovery.compare import Compared
from pipelines.recovery.log_writer import LogToWrite, log_to_write, segments_of, write_log
from pipelines.recovery.rows import BEFORE_START, losing
from pipelines.source.naming import segment_name
from pipelines.sql.database import open_database
from udfs.format.recovery_tables import LOST_RECORDS
from udfs.format.schema import HEADER_TYPE, RECORDS
from udfs.replicas.acknowledged import ANSWERS, acknowledged_batches

_ROWS = 1 << 14  # of the bill at a time
_COLUMNS = (
    *("offset", "leader_epoch", "timestamp_ms", "key", "value", "headers", "control_type", "producer_id"),
    *("producer_epoch", "sequence", "is_transactional", "batch_position"),
)
_OWN = {c.name: c.arrow_type for c in RECORDS.columns if c.name in _COLUMNS} | {"headers": HEADER_TYPE}
# What a losing log's records are, before the true history is looked at
LOST = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("copy", pa.string()),
        ("why", pa.string()),
        ("segment", pa.string()),
        ("answer", pa.int8()),
        *((name, _OWN[name]) for name in _COLUMNS if name != "batch_position"),
    ]
)


@dataclass(frozen=True)
class LosingLog:
    """Batches of one copy that are not of the true history. answers: int8[n], numbers of ANSWERS.

    before: offsets from here on are of the true history; None for no bound.
    """

    topic: str
    partition: int
    copy: str
    why: str
    log: LogToWrite
    answers: np.ndarray
    before: int | None
    file: str


def losing_logs(one: Compared, folder: str, number: int) -> Iterator[LosingLog]:
    """What a partition loses. folder: for files of a run; number: of the partition in it."""
    copies = [*one.copies, *one.others]
    for i, (copy, why, batches) in enumerate(losing(one)):
        if not len(batches):
            continue
        batches = batches[np.argsort(batches["base"], kind="stable")]
        name = f"{folder}/{number}-{i}"
        log = log_to_write(name, None, copies, batches, [], int(batches["base"][0]))
        yield LosingLog(
            one.topic,
            one.partition,
            copy.name,
            why,
            log,
            acknowledged_batches(copy, copies, batches),
            one.history.start if why == BEFORE_START else None,
            f"{name}.parquet",
        )


def decode_losing(lost: LosingLog) -> int:
    """Writes the records of a losing log (LOST) to its file; their number. In a worker process.

    The batches are put together as a log first, in which what was corrected of them is right.
    """
    from udfs.files import decode_segment  # loads compiled kernels

    write_log(lost.log)
    rows, begin = 0, 0
    with pq.ParquetWriter(lost.file, LOST) as writer:
        for base, batches in segments_of(lost.log):
            places = np.cumsum(batches["size"]) - batches["size"]
            answers = pa.array(lost.answers[begin : begin + len(batches)], pa.int8())
            sources = zip(batches["copy"].tolist(), batches["file"].tolist(), strict=True)
            uris = pa.array([lost.log.files[copy][file] for copy, file in sources], pa.string())
            begin += len(batches)
            path = f"{lost.log.folder}/{segment_name(base)}"
            for found in decode_segment(path, columns=_COLUMNS, on_damage="ignore"):
                positions = found.column("batch_position").to_numpy(zero_copy_only=False)
                at = pa.array(np.searchsorted(places, positions))
                table = _rows(lost, found, uris.take(at), answers.take(at))
                writer.write_table(table)
                rows += table.num_rows
    shutil.rmtree(lost.log.folder)
    return rows


def _rows(lost: LosingLog, found: pa.RecordBatch, uris: pa.Array, answers: pa.Array) -> pa.Table:
    n = found.num_rows
    columns = {
        "topic": pa.repeat(pa.scalar(lost.topic), n),
        "partition": pa.repeat(pa.scalar(lost.partition, pa.int32()), n),
        "copy": pa.repeat(pa.scalar(lost.copy), n),
        "why": pa.repeat(pa.scalar(lost.why), n),
        "segment": uris,
        "answer": answers,
        **{name: found.column(name) for name in _COLUMNS if name != "batch_position"},
    }
    table = pa.table(columns).cast(LOST)
    if lost.before is not None:
        table = table.filter(pa.compute.less(table.column("offset"), lost.before))
    return table


def bill(lake: str, files: Sequence[str]) -> pa.RecordBatchReader:
    """Rows of ``lost_records``, from the files of ``decode_losing``. The lake holds the healed log."""
    schema = LOST_RECORDS.arrow_schema()
    if not files:
        return pa.RecordBatchReader.from_batches(schema, [])
    database = open_database(lake, "SELECT * FROM committed_records, records")
    database.register("lost", ds.dataset([os.fspath(one) for one in files], schema=LOST))
    words = " ".join(f"WHEN {i} THEN '{word}'" for i, (word, _) in enumerate(ANSWERS))
    reasons = " ".join(f"WHEN {i} THEN '{why}'" for i, (_, why) in enumerate(ANSWERS))
    query = _BILL.format(words=words, reasons=reasons)
    reader = database.sql(query).to_arrow_reader(_ROWS)
    return pa.RecordBatchReader.from_batches(schema, (_cast(batch, schema) for batch in reader))


def _cast(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    return pa.Table.from_batches([batch]).select(schema.names).cast(schema).combine_chunks().to_batches()[0]


# Of what lies before the log's start the marker may be in the true log: its first one of the producer
_BILL = """
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
), twins AS (
  SELECT l.copy, l.topic, l.partition, l.why, l."offset", min(r."offset") AS also_in_truth
  FROM lost l JOIN records r ON r.topic = l.topic AND r.partition = l.partition
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
