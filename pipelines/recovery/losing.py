"""What a partition's losing histories hold: their batches, decoded into files in a worker process."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.recovery.compare import Compared
from pipelines.recovery.log_writer import LogToWrite, records_of
from pipelines.recovery.rows import BEFORE_START, losing, source_files
from udfs.compute import pc
from udfs.format.schema import HEADER_TYPE, RECORDS
from udfs.replicas.acknowledged import acknowledged_batches

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


def write_losing(one: Compared, folder: str, number: int) -> list[str]:
    """Writes the records of a partition's losing histories (LOST); the files. In a worker process.

    folder: for files of a run; number: of the partition in it.
    """
    copies = [*one.copies, *one.others]
    files = {copy.number: copy.files for copy in copies}
    written = []
    for i, (copy, why, batches) in enumerate(losing(one)):
        if not len(batches):
            continue
        batches = batches[np.argsort(batches["base"], kind="stable")]
        answers = pa.array(acknowledged_batches(copy, copies, batches), pa.int8())
        uris = source_files(copies, batches)
        shared = {"topic": one.topic, "partition": one.partition, "copy": copy.name, "why": why}
        log = LogToWrite(files, batches, int(batches["base"][0]))
        written.append(f"{folder}/{number}-{i}.parquet")
        with pq.ParquetWriter(written[-1], LOST) as writer:
            for numbers, found in records_of(log, _COLUMNS):
                at = pa.array(numbers)
                table = _rows(shared, {"segment": uris.take(at), "answer": answers.take(at)}, found)
                if why == BEFORE_START:
                    table = table.filter(pc.less(table.column("offset"), one.history.start))
                writer.write_table(table)
    return written


def _rows(shared: dict[str, Any], places: dict[str, pa.Array], found: pa.RecordBatch) -> pa.Table:
    """Rows of LOST. shared: values that are the same in all."""
    repeated = {name: pa.repeat(pa.scalar(value), found.num_rows) for name, value in shared.items()}
    own = {name: found.column(name) for name in _COLUMNS}
    return pa.table({**repeated, **places, **own}).cast(LOST)
