"""Compares one partition's copies in a worker process, and writes its healed log and what is lost.

Its batches stay in this process: rows go into files, and the driver gets the few that describe the partition.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from kafka_log_lake.pipelines.recover import rows
from kafka_log_lake.pipelines.recover.acknowledged import acknowledged_batches
from kafka_log_lake.pipelines.recover.compare import Compared, Task, compare_task
from kafka_log_lake.pipelines.recover.entries import TAILS, SegmentFile
from kafka_log_lake.pipelines.recover.log_writer import (
    LogToWrite,
    healed_log,
    places_of,
    records_of,
    write_log,
)
from kafka_log_lake.udfs import now_reading
from kafka_log_lake.udfs.compute import pc
from kafka_log_lake.udfs.format.schema import HEADER_TYPE, RECORDS

_COLUMNS = (
    *("offset", "leader_epoch", "timestamp_ms", "key", "value", "headers", "control_type", "producer_id"),
    *("producer_epoch", "sequence", "is_transactional"),
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
        *((name, _OWN[name]) for name in _COLUMNS),
    ]
)


@dataclass(frozen=True)
class HealedLog:
    """A healed log, in a folder.

    end: the offset after its last batch. segments: at least one, by base offset.
    """

    folder: str
    topic_id: str | None
    epochs: list[tuple[int, int]]
    start: int
    end: int
    segments: list[SegmentFile]


@dataclass
class Partition:
    """What comparing and healing one partition gave.

    rows: by table of ``rows.REPORTED``. damaged: ranges in all copies without torn and zero tails;
    unreadable: segments of copies. batches, bytes: of the healed log; from_others, mended: of these batches.
    is_compacted: whether the log cleaner ran over a copy.
    log: None where all that is left is of a deleted topic. healed: the file with rows of ``healed_batches``;
    losing: those with records of losing histories (LOST).
    """

    topic: str
    partition: int
    sure: str
    doubts: list[str]
    rows: dict[str, list[rows.Row]]
    damaged: int
    unreadable: int
    batches: int
    bytes: int
    from_others: int
    mended: int
    is_compacted: bool
    log: HealedLog | None = None
    healed: str | None = None
    losing: list[str] = field(default_factory=list)


def heal_partition(task: Task, folder: str, losing: str) -> Partition:
    """Heals one partition into ``folder``. losing: a folder for files of lost records and healed batches."""
    now_reading.note(f"the copies of {task.place.topic}-{task.place.partition}")
    compared = compare_task(task)
    copies, batches = [*compared.copies, *compared.others], compared.healed.batches
    partition = Partition(
        compared.topic,
        compared.partition,
        str(compared.history.sure),
        compared.history.doubts,
        {table.name: list(rows_of(compared)) for table, rows_of in rows.REPORTED.items()},
        damaged=sum(hurt.reason not in TAILS for copy in copies for hurt in copy.hurts),
        unreadable=sum(len(copy.unreadable) for copy in copies),
        batches=len(batches),
        bytes=int(batches["size"].sum()),
        from_others=int((batches["copy"] != compared.history.primary).sum()),
        mended=int((batches["mended"] != 0).sum()),
        is_compacted=compared.is_compacted,
    )
    if compared.copies:
        history = compared.history
        place = f"{folder}/{compared.topic}-{compared.partition}"
        log = healed_log(compared)
        written = write_log(log, place)
        partition.log = HealedLog(
            place, compared.topic_id, history.epochs, history.start, history.end, written
        )
        partition.healed = f"{losing}/healed-{task.number}.parquet"
        pq.write_table(rows.healed_table(compared, *places_of(log, place)), partition.healed)
    partition.losing = _write_losing(compared, losing, task.number)
    return partition


def _write_losing(compared: Compared, folder: str, number: int) -> list[str]:
    """Writes the records of a partition's losing histories (LOST); returns the paths of the files.

    folder: for files of a run; number: of the partition in it.
    """
    copies = [*compared.copies, *compared.others]
    files = {copy.number: copy.files for copy in copies}
    written = []
    for i, (copy, why, batches) in enumerate(rows.losing(compared)):
        if not len(batches):
            continue
        batches = batches[np.argsort(batches["base"], kind="stable")]
        answers = pa.array(acknowledged_batches(copy, copies, batches), pa.int8())
        uris = rows.source_files(copies, batches)
        shared = {"topic": compared.topic, "partition": compared.partition, "copy": copy.name, "why": why}
        log = LogToWrite(files, batches, int(batches["base"][0]))
        written.append(f"{folder}/{number}-{i}.parquet")
        with pq.ParquetWriter(written[-1], LOST) as writer:
            for numbers, records in records_of(log, _COLUMNS):
                at = pa.array(numbers)
                table = _rows(shared, {"segment": uris.take(at), "answer": answers.take(at)}, records)
                if why == rows.BEFORE_START:
                    table = table.filter(pc.less(table.column("offset"), compared.history.start))
                writer.write_table(table)
    return written


def _rows(shared: dict[str, object], places: dict[str, pa.Array], batch: pa.RecordBatch) -> pa.Table:
    """Returns rows of LOST. shared: values that are the same in all rows."""
    repeated = {name: pa.repeat(pa.scalar(value), batch.num_rows) for name, value in shared.items()}
    columns = {name: batch.column(name) for name in _COLUMNS}
    return pa.table({**repeated, **places, **columns}).cast(LOST)
