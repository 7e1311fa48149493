"""Log directories that tests make, and what a lake holds, in a form that compares."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from kafka_log_lake.pipelines.engine.delta import open_table
from tests.support.segment_maker import CONTROL, TRANSACTIONAL, Batch, Record

TABLES = ("records", "batches", "quarantine", "segments", "transactions", "raw_segments")
# What names a run, or counts the runs before: not what a fresh decode would give
_OF_A_RUN = {
    "run_id",
    "decoded_at",
    "landed_at",
    "log_start_offset",
}


def batch(base: int, records: int = 3, text: str = "v", **values: Any) -> bytes:
    """One batch of magic 2: offsets base, base + 1, ..."""
    made = tuple(Record(key=b"k%d" % i, value=f"{text}{base + i}".encode()) for i in range(records))
    return Batch(records=made, base_offset=base, **values).encode()


def batches(base: int, count: int, records: int = 3, **values: Any) -> list[bytes]:
    return [batch(base + i * records, records, **values) for i in range(count)]


def data(base: int, producer: int, records: int = 1, epoch: int = 0, **values: Any) -> bytes:
    """A batch of a transaction: offsets base, base + 1, ..."""
    return batch(base, records, flags=TRANSACTIONAL, producer_id=producer, producer_epoch=epoch, **values)


def marker(base: int, producer: int, commit: bool = True, epoch: int = 0) -> bytes:
    """The control batch that ends a transaction: COMMIT, or ABORT."""
    record = Record(key=struct.pack(">hh", 0, int(commit)), value=struct.pack(">hi", 0, 1))
    flags = TRANSACTIONAL | CONTROL
    made = Batch((record,), base_offset=base, flags=flags, producer_id=producer, producer_epoch=epoch)
    return made.encode()


def put(folder: Path, base: int, *batches: bytes) -> Path:
    """A segment of these batches; its folder is made where it is missing."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{base:020d}.log"
    path.write_bytes(b"".join(batches))
    return path


def two_topics(root: Path) -> Path:
    """a-0: three segments of 30, 30 and 60 offsets, 3 a batch, one millisecond an offset; b-3: one of 6."""
    for base, count in ((0, 10), (30, 10), (60, 20)):
        made = [batch(base + 3 * i, 3, base_timestamp=1000 + base + 3 * i) for i in range(count)]
        put(root / "a-0", base, *made)
    put(root / "b-3", 0, *batches(0, 2))
    return root


def versions(lake: str) -> dict[str, int]:
    """The last version of every table: a run that commits nothing leaves them alone."""
    return {name: DeltaTable(f"{lake}/{name}").version() for name in TABLES}


def rows(lake: str, table: str) -> list[dict[str, Any]]:
    """The rows of a table in an order of their own, without what names the run that wrote them."""
    found: pa.Table = open_table(f"{lake}/{table}").to_pyarrow_table()
    kept = found.select([name for name in found.column_names if name not in _OF_A_RUN])
    return sorted(kept.to_pylist(), key=repr)


def contents(lake: str, *tables: str) -> dict[str, list[dict[str, Any]]]:
    return {name: rows(lake, name) for name in tables or TABLES[:5]}
