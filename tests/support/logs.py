"""Makes log directories for tests, and reads what a lake holds in a form that compares."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from kafka_log_lake.pipelines.engine.delta import open_table
from tests.support.segment_maker import CONTROL, TRANSACTIONAL, Batch, Record

TABLES = ("records", "batches", "quarantine", "segments", "transactions", "raw_segments", "offset_findings")
# What names a run, or counts the runs before: not what a fresh decode would give
_OF_A_RUN = {
    "run_id",
    "decoded_at",
    "landed_at",
    "log_start_offset",
}


def batch(base: int, records: int = 3, text: str = "v", **values: Any) -> bytes:
    """Returns the bytes of a batch of magic 2 with the offsets base, base + 1, ..."""
    made = tuple(Record(key=b"k%d" % i, value=f"{text}{base + i}".encode()) for i in range(records))
    return Batch(records=made, base_offset=base, **values).encode()


def batches(base: int, count: int, records: int = 3, **values: Any) -> list[bytes]:
    return [batch(base + i * records, records, **values) for i in range(count)]


def data(base: int, producer: int, records: int = 1, epoch: int = 0, **values: Any) -> bytes:
    """Returns the bytes of a transactional batch with the offsets base, base + 1, ..."""
    return batch(base, records, flags=TRANSACTIONAL, producer_id=producer, producer_epoch=epoch, **values)


def marker(base: int, producer: int, commit: bool = True, epoch: int = 0) -> bytes:
    """Returns the bytes of the control batch that ends a transaction: COMMIT or ABORT."""
    record = Record(key=struct.pack(">hh", 0, int(commit)), value=struct.pack(">hi", 0, 1))
    flags = TRANSACTIONAL | CONTROL
    made = Batch((record,), base_offset=base, flags=flags, producer_id=producer, producer_epoch=epoch)
    return made.encode()


def put(folder: Path, base: int, *batches: bytes) -> Path:
    """Writes a segment of these batches, and its folder if that is missing. Returns its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{base:020d}.log"
    path.write_bytes(b"".join(batches))
    return path


def two_topics(root: Path) -> Path:
    """Writes a-0 with segments of 30, 30 and 60 offsets (3 a batch, 1 ms an offset), and b-3 with 6."""
    for base, count in ((0, 10), (30, 10), (60, 20)):
        made = [batch(base + 3 * i, 3, base_timestamp=1000 + base + 3 * i) for i in range(count)]
        put(root / "a-0", base, *made)
    put(root / "b-3", 0, *batches(0, 2))
    return root


def versions(lake: str) -> dict[str, int]:
    """Returns the last version of every table, by name; a run that commits nothing changes none."""
    return {name: DeltaTable(f"{lake}/{name}").version() for name in TABLES}


def rows(lake: str, table: str) -> list[dict[str, Any]]:
    """Returns the rows of a table, sorted by their repr, without the columns that name the run."""
    found: pa.Table = open_table(f"{lake}/{table}").to_pyarrow_table()
    kept = found.select([name for name in found.column_names if name not in _OF_A_RUN])
    return sorted(kept.to_pylist(), key=repr)


def contents(lake: str, *tables: str) -> dict[str, list[dict[str, Any]]]:
    return {name: rows(lake, name) for name in tables or TABLES[:5]}
