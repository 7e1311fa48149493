"""The flow of ``recover``: copies -> compared -> a healed log a partition -> decoded -> the bill.

The healed log lies in ``<lake>/_healed`` as a log directory, so that it is decoded as any other; the sources
are only read. A run that was killed is completed by the next one: each file is replaced as a whole, and each
table is written in one commit.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake

from pipelines.command.errors import UserError
from pipelines.command.settings import Settings
from pipelines.command.status import phase
from pipelines.execute.job import refuse_lake_in_source
from pipelines.lake.address import lake_address, table_path
from pipelines.lake.create import create_table, create_tables
from pipelines.lake.intents import Intents
from pipelines.recovery import rows
from pipelines.recovery.bill import bill, decode_losing, losing_logs
from pipelines.recovery.compare import Compared, Reading, compare
from pipelines.recovery.log_writer import LogToWrite, log_to_write, places_of, write_log
from pipelines.recovery.sources import Inventory, find_copies
from pipelines.scanning.pool import process_pool
from pipelines.source.delta import open_table
from pipelines.source.listing import TopicFilter
from pipelines.source.uris import parse_source
from pipelines.sql.database import open_database
from udfs.format.recovery_tables import (
    DIVERGENCE,
    HEALED_BATCHES,
    LOST_RANGES,
    LOST_RECORDS,
    REPLICA_REPORT,
)
from udfs.format.schema import Table

HEALED = "_healed"
_LOSING = "_losing"  # files of one run, below HEALED


@dataclass
class Recovered:
    """What a run found.

    logs: the healed logs, by topic and partition; ends: the offset behind each. lost_records: rows of the
    bill; bill: its sums, of different records.
    """

    lake: str
    inventory: Inventory
    replicas: list[rows.Row] = field(default_factory=list)
    divergence: list[rows.Row] = field(default_factory=list)
    lost_ranges: list[rows.Row] = field(default_factory=list)
    logs: dict[tuple[str, int], LogToWrite] = field(default_factory=dict)
    ends: dict[tuple[str, int], int] = field(default_factory=dict)
    sure: Counter[str] = field(default_factory=Counter)
    doubts: list[str] = field(default_factory=list)
    healed_bytes: int = 0
    healed_batches: int = 0
    from_others: int = 0
    mended: int = 0
    lost_records: int = 0
    bill: dict[str, Any] = field(default_factory=dict)


Decode = Callable[[Settings], object]


def recover(settings: Settings, decode: Decode) -> Recovered:
    """Brings a lake to the healed log of the copies in ``settings.source``, and writes ``recovery_tables``.

    decode: the job that decodes a log directory into the lake. Raises a UserError for a source or a lake
    that can't be used.
    """
    address = lake_address(settings.require_lake())
    if "://" in address:
        raise UserError(f"--lake {address}: recover writes a log too, so its lake is a local folder")
    refuse_lake_in_source(address, [parse_source(one).path for one in settings.source])
    with phase("listing"):
        inventory = find_copies(settings.source, TopicFilter(settings.topics, settings.exclude_topics))
    done = Recovered(address, inventory)
    folder = f"{address}/{HEALED}"
    with Intents(address).lock():
        create_tables(address)
        healed, files = _heal(done, settings, folder)
    if done.logs:
        decode(_of_healed(settings, folder))
    with Intents(address).lock(), phase("billing"):
        _write_tables(done, healed, files)
        done.bill = _sums(address)
        shutil.rmtree(f"{folder}/{_LOSING}", ignore_errors=True)
    return done


def _heal(done: Recovered, settings: Settings, folder: str) -> tuple[pa.Table, list[str]]:
    """Compares, and writes the healed log: (rows of healed_batches, files of losing records)."""
    reading = Reading(settings.processes, settings.slice_bytes, settings.max_batch_uncompressed)
    losing = f"{folder}/{_LOSING}"
    shutil.rmtree(losing, ignore_errors=True)
    os.makedirs(losing)
    healed = [HEALED_BATCHES.arrow_schema().empty_table()]
    files: list[str] = []
    futures: list[Future[int]] = []
    with phase("comparing copies"), process_pool(settings.processes) as pool:
        for number, one in enumerate(compare(done.inventory, reading)):
            log = _log_of(one, f"{folder}/{one.topic}-{one.partition}")
            if one.copies:
                futures.append(pool.submit(write_log, log))
                done.logs[one.topic, one.partition] = log
                healed.append(rows.healed_table(one, *places_of(log)))
            for lost in losing_logs(one, losing, number):
                files.append(lost.file)
                futures.append(pool.submit(decode_losing, lost))
            _note(done, one)
        for future in futures:
            future.result()
    _remove_others(folder, done)
    return pa.concat_tables(healed), files


def _log_of(one: Compared, folder: str) -> LogToWrite:
    history = one.history
    batches = one.healed.batches
    return log_to_write(folder, one.topic_id, one.copies, batches, history.epochs, history.start)


def _note(done: Recovered, one: Compared) -> None:
    """Adds what is to be said of a partition."""
    done.replicas += rows.replica_rows(one)
    done.divergence += rows.divergence_rows(one)
    done.lost_ranges += rows.lost_rows(one)
    batches = one.healed.batches
    done.ends[one.topic, one.partition] = one.history.end
    done.sure[str(one.history.sure)] += 1
    done.doubts += [f"{one.topic}-{one.partition}: {doubt}" for doubt in one.history.doubts]
    done.healed_batches += len(batches)
    done.healed_bytes += int(batches["size"].sum())
    done.from_others += int((batches["copy"] != one.history.primary).sum())
    done.mended += int((batches["mended"] != 0).sum())


def _remove_others(folder: str, done: Recovered) -> None:
    """Removes healed logs of partitions that no source has any more."""
    kept = {f"{topic}-{partition}" for topic, partition in done.logs} | {_LOSING}
    for name in os.listdir(folder):
        if name not in kept:
            shutil.rmtree(f"{folder}/{name}")


def _of_healed(settings: Settings, folder: str) -> Settings:
    """The settings with which the healed log is decoded: as any log, what changed of it alone."""
    return dataclasses.replace(
        settings, source=(folder,), topics=None, exclude_topics=None, verify_content=True, json=False
    )


def _write_tables(done: Recovered, healed: pa.Table, files: list[str]) -> None:
    replace_table(done.lake, HEALED_BATCHES, healed)
    for table, found in (
        (REPLICA_REPORT, done.replicas),
        (DIVERGENCE, done.divergence),
        (LOST_RANGES, done.lost_ranges),
    ):
        replace_table(done.lake, table, pa.Table.from_pylist(found, table.arrow_schema()))
    reader = bill(done.lake, files)

    def counted() -> Iterator[pa.RecordBatch]:
        for batch in reader:
            done.lost_records += batch.num_rows
            yield batch

    replace_table(done.lake, LOST_RECORDS, pa.RecordBatchReader.from_batches(reader.schema, counted()))


def _sums(lake: str) -> dict[str, Any]:
    """Of records that only losing histories have: how many, by why and by whether they were acknowledged."""
    rows = (
        open_database(lake, "FROM lost_records")
        .execute(
            "SELECT why, acknowledged, count(*), count(*) FILTER (WHERE also_in_truth IS NOT NULL) FROM ("
            'SELECT DISTINCT topic, partition, "offset", leader_epoch, why, acknowledged, also_in_truth '
            "FROM lost_records WHERE control_type IS NULL) GROUP BY ALL"
        )
        .fetchall()
    )
    why: Counter[str] = Counter()
    acknowledged: Counter[str] = Counter()
    for reason, word, count, _ in rows:
        why[reason] += count
        acknowledged[word] += count
    return {
        "distinct": sum(why.values()),
        "why": dict(why),
        "acknowledged": dict(acknowledged),
        "also": sum(row[3] for row in rows),
    }


def replace_table(address: str, table: Table, data: pa.Table | pa.RecordBatchReader) -> None:
    """Makes a table hold these rows alone, in one commit; it is created if it is missing."""
    create_table(address, table)
    write_deltalake(open_table(table_path(address, table.name)), data, mode="overwrite")


@contextmanager
def folder_to_write(path: str, sources: tuple[str, ...]) -> Iterator[Path]:
    """A new folder that what is written replaces as a whole once it is complete.

    Raises a UserError for one that is not empty, or lies in a source.
    """
    target = Path(path).absolute()
    for source in sources:
        root = os.path.realpath(parse_source(source).path)
        if os.path.commonpath([root, os.path.realpath(target)]) == root:
            raise UserError(f"--write {path} lies in --source {source}: the sources are only read")
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise UserError(f"--write {path} is not an empty folder: name a new one")
    made = target.with_name(f".{target.name}.unfinished")
    shutil.rmtree(made, ignore_errors=True)
    try:
        made.mkdir(parents=True)
        yield made
        if target.exists():
            target.rmdir()
        made.rename(target)
    except OSError as error:
        raise UserError(f"--write: cannot write {path}: {error.strerror or error}") from None
    finally:
        shutil.rmtree(made, ignore_errors=True)
