"""What a partition's losing histories hold: their batches, decoded into files in a worker process."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.recovery.compare import Compared
from pipelines.recovery.log_writer import LogToWrite, records_of
from pipelines.recovery.rows import BEFORE_START, losing
from udfs.format.schema import HEADER_TYPE, RECORDS
from udfs.replicas.acknowledged import acknowledged_batches

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
    files = {copy.number: copy.files for copy in copies}
    for i, (copy, why, batches) in enumerate(losing(one)):
        if not len(batches):
            continue
        batches = batches[np.argsort(batches["base"], kind="stable")]
        yield LosingLog(
            one.topic,
            one.partition,
            copy.name,
            why,
            LogToWrite(files, batches, int(batches["base"][0])),
            acknowledged_batches(copy, copies, batches),
            one.history.start if why == BEFORE_START else None,
            f"{folder}/{number}-{i}.parquet",
        )


def decode_losing(lost: LosingLog) -> None:
    """Writes the records of a losing log (LOST) to its file. In a worker process."""
    batches, answers = lost.log.batches, pa.array(lost.answers, pa.int8())
    sources = zip(batches["copy"].tolist(), batches["file"].tolist(), strict=True)
    uris = pa.array([lost.log.files[copy][file].uri for copy, file in sources], pa.string())
    with pq.ParquetWriter(lost.file, LOST) as writer:
        for numbers, found in records_of(lost.log, _COLUMNS):
            at = pa.array(numbers)
            writer.write_table(_rows(lost, found, uris.take(at), answers.take(at)))


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
