"""Keeps a lake small and fast to read: merges small files, deletes files and rows that are not needed.

deltalake does all of it, in this process. The caller holds the lake's lock: no job of this project writes
meanwhile.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import partial

import pyarrow.compute as pc
from deltalake import DeltaTable, WriterProperties
from pyarrow.fs import FileType

from kafka_log_lake.pipelines.engine.delta import data_files, patiently
from kafka_log_lake.pipelines.lake.address import lake_table, table_path, tables_of
from kafka_log_lake.pipelines.lake.commit import LakeWriter
from kafka_log_lake.pipelines.lake.features import may_have_deletion_vectors
from kafka_log_lake.pipelines.lake.intents import Intent
from kafka_log_lake.pipelines.plan.ledger import LedgerRow
from kafka_log_lake.udfs.format import schema
from kafka_log_lake.udfs.format.report_tables import VALUE_ERRORS
from kafka_log_lake.udfs.storage.store import open_store

# Files of raw_segments are as large as its chunks allow from the beginning, and a merge would hold their
# bytes in memory. A file of errors is of one file of records, and is replaced with that, by its name
_NOT_MERGED = (schema.RAW_SEGMENTS.name, VALUE_ERRORS.name)
_IN_FULL = 3  # attempts to list the folders of a table
DAY_US = 24 * 3600 * 1_000_000


@dataclass(frozen=True)
class Upkept:
    """Result of the upkeep of a table. files, bytes: of its newest version. deleted: files that went."""

    table: str
    files_before: int
    files: int
    bytes: int
    deleted: int


def upkeep(address: str, vacuum_hours: int, typed: Collection[str]) -> Iterator[Upkept]:
    """Merges small files, deletes files that no version of the last hours needs, writes checkpoints.

    vacuum_hours: a reader that began longer ago than this may lose the files it reads. typed: the tables of
    topics, as folders below the lake; the next run writes them anew where files of ``records`` were merged.
    """
    tables = {table.name: lake_table(address, table.name) for table in tables_of(address)}
    merged = [delta for name, delta in tables.items() if name not in _NOT_MERGED]
    tables |= {name: lake_table(address, name) for name in typed}
    before = {name: _size(delta)[0] for name, delta in tables.items()}
    for delta in merged:
        patiently(partial(_merge, delta))
    if "://" not in address:
        os.sync()  # a power cut must not take the merged files after those they were made of are deleted
    for name, delta in tables.items():
        patiently(delta.update_incremental)
        deleted = _vacuum(delta, table_path(address, name), vacuum_hours)
        patiently(delta.update_incremental)
        patiently(delta.create_checkpoint)
        yield Upkept(name, before[name], *_size(delta), deleted)


def _merge(delta: DeltaTable) -> None:
    delta.update_incremental()  # an attempt before may have made its commit
    delta.optimize.compact(writer_properties=WriterProperties(compression="ZSTD"))


def _vacuum(delta: DeltaTable, path: str, hours: int) -> int:
    """Deletes files, and returns how many. Without any to delete no commit is made.

    In full the table's folders are listed too, for files that no commit names: killed jobs leave some. Where
    these listings break off again and again, such files stay for the next time. Every other attempt looks
    first whether one before it deleted the files, and broke off after that.
    """
    system, folder = open_store(path)
    # In full it would also delete deletion vectors that are in use
    in_full = not may_have_deletion_vectors(delta)
    attempts, most = itertools.count(), 0

    def delete() -> None:
        nonlocal most
        attempt = next(attempts)
        vacuum = partial(
            delta.vacuum, hours, enforce_retention_duration=False, full=in_full and attempt < _IN_FULL
        )
        if attempt % 2 == 0:
            unneeded = vacuum(dry_run=True)  # it names files that are gone, too
            if all(system.get_file_info(f"{folder}/{name}").type == FileType.NotFound for name in unneeded):
                return
        delta.update_incremental()  # an attempt before may have made commits
        most = max(most, len(vacuum(dry_run=False)))

    patiently(delete)
    return most


def _size(delta: DeltaTable) -> tuple[int, int]:
    sizes = data_files(delta).column("size_bytes")
    return len(sizes), pc.sum(sizes).as_py() or 0


def expired(rows: Collection[LedgerRow], now_us: int, keep_days: int) -> list[LedgerRow]:
    """Returns the ledger rows of segments whose newest record is older than ``keep_days`` days.

    now_us: microseconds since 1970 UTC. A segment without a timestamp counts from when it was decoded.
    """
    limit = now_us - keep_days * DAY_US
    newest = ((row, row.decoded_at if row.max_timestamp is None else row.max_timestamp) for row in rows)
    return [row for row, at in newest if at < limit]


def from_the_start(rows: Collection[LedgerRow], known: Collection[LedgerRow]) -> list[LedgerRow]:
    """Returns the rows of segments that are at the start of their log: no other known one is before them.

    As a broker's retention does: a hole in a log looks like a loss, and a transaction whose marker was there
    would hold back all records after it.
    """
    names = {row.segment for row in rows}
    first_kept: dict[str, int] = {}
    for row in known:
        if row.segment not in names:
            kept = first_kept.setdefault(row.partition_dir, row.file_base_offset)
            first_kept[row.partition_dir] = min(kept, row.file_base_offset)
    return [r for r in rows if r.file_base_offset < first_kept.get(r.partition_dir, r.file_base_offset + 1)]


def drop(lake: LakeWriter, rows: list[LedgerRow], run_id: str) -> None:
    """Deletes the rows of these segments from every table of the lake's app, in one commit each."""
    if rows:
        lake.commit(Intent(lake.app_id, lake.next_version(), run_id, drop=rows))
