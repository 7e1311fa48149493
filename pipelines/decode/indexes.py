"""Writes what the files next to the segments say to tables, for ``decode --with-indexes``.

The files of a partition's folder are read as a whole, and replace the folder's rows where they differ: a
second run over the same files writes nothing.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
from pyarrow import fs

from kafka_log_lake.pipelines.engine.delta import sql_in
from kafka_log_lake.pipelines.lake.commit import LakeWriter
from kafka_log_lake.pipelines.plan.ledger import Log, rows_to_arrow
from kafka_log_lake.udfs.format.index_tables import (
    ABORTED_TRANSACTIONS,
    INDEX_TABLES,
    LEADER_EPOCHS,
    OFFSET_INDEX,
    PRODUCER_SNAPSHOTS,
    TIME_INDEX,
)
from kafka_log_lake.udfs.format.schema import Table
from kafka_log_lake.udfs.indexes import files
from kafka_log_lake.udfs.indexes.files import LEADER_EPOCH_FILE, broker_file, decode_content
from kafka_log_lake.udfs.storage.byte_source import path_of_uri, reason_of
from kafka_log_lake.udfs.storage.regular_file import MOST_INDEX_BYTES, read_regular
from kafka_log_lake.udfs.storage.store import open_store

_BY_KIND = {
    files.OFFSET_INDEX: OFFSET_INDEX,
    files.TIME_INDEX: TIME_INDEX,
    files.TRANSACTION_INDEX: ABORTED_TRANSACTIONS,
    files.PRODUCER_SNAPSHOT: PRODUCER_SNAPSHOTS,
    LEADER_EPOCH_FILE: LEADER_EPOCHS,
}
_OF_SEGMENTS = (files.OFFSET_INDEX, files.TIME_INDEX)  # a broker keeps them for every segment
_FOLDERS = 256  # whose rows are compared and replaced together
_MISSING = "the file is missing"
_LOG = ("topic", "partition", "partition_dir")
Row = dict[str, Any]


def write_indexes(lake: LakeWriter, segments: pa.Table, run_id: str) -> None:
    """Writes what is next to segments (columns of a listing) to the tables of INDEX_TABLES."""
    folders = _folders(segments)
    for begin in range(0, len(folders), _FOLDERS):
        some = folders[begin : begin + _FOLDERS]
        rows: dict[str, list[Row]] = {table.name: [] for table in INDEX_TABLES}
        for log, stems in some:
            for table, row in _rows(log, stems):
                rows[table.name].append(row)
        for table in INDEX_TABLES:
            _replace(lake, table, rows[table.name], {log[2] for log, _ in some}, run_id)


def _folders(segments: pa.Table) -> list[tuple[Log, set[str]]]:
    """Returns the logs of segments, each with the names of its segments without the suffix."""
    names: dict[Log, set[str]] = defaultdict(set)
    columns = (segments.column(name).to_pylist() for name in (*_LOG, "segment"))
    for topic, partition, partition_dir, segment in zip(*columns, strict=True):
        names[topic, partition, partition_dir].add(os.path.basename(segment).removesuffix(".log"))
    return sorted(names.items())


def _rows(log: Log, stems: set[str]) -> Iterator[tuple[Table, Row]]:
    place, partition_dir = dict(zip(_LOG, log, strict=True)), log[2]
    seen = set()
    for name, content, problem in _contents(partition_dir, stems):
        file = broker_file(name)
        table = _BY_KIND[file.kind] if file else None
        if file is None or table is None:
            continue
        seen.add(name)
        of_file = {**place, "file": f"{partition_dir}/{name}", "snapshot_offset": file.base}
        of_file["segment"] = f"{partition_dir}/{name.removesuffix(file.kind)}.log"
        if problem is not None:
            yield table, {**of_file, "error": f"the file can't be read: {problem}"}
            continue
        for row in decode_content(file, content).to_pylist():
            yield table, {**of_file, **row}
    for stem in sorted(stems):
        for kind in _OF_SEGMENTS:
            name = stem + kind
            if name not in seen:
                of_file = {**place, "file": f"{partition_dir}/{name}"}
                segment = f"{partition_dir}/{stem}.log"
                yield _BY_KIND[kind], {**of_file, "segment": segment, "error": _MISSING}
    for stem in sorted(stems)[1:]:  # a broker takes one where each segment begins, but the first of a log
        name = stem + files.PRODUCER_SNAPSHOT
        if name not in seen and broker_file(name) is not None:
            yield (
                PRODUCER_SNAPSHOTS,
                {**place, "file": f"{partition_dir}/{name}", "snapshot_offset": int(stem), "error": _MISSING},
            )


def _contents(partition_dir: str, stems: set[str]) -> Iterator[tuple[str, bytes, str | None]]:
    """Yields (name, content, None), or (name, b"", why it can't be read), of a folder's files; sorted."""
    folder = path_of_uri(partition_dir)
    if folder is not None:
        yield from _local_contents(folder, stems)
        return
    try:
        system, path = open_store(partition_dir)
        listed = system.get_file_info(fs.FileSelector(path))
    except (OSError, ValueError):
        return  # the folder went away: its segments are reported elsewhere
    for info in sorted(listed, key=lambda info: info.base_name):
        known = broker_file(info.base_name)
        if info.type != fs.FileType.File or known is None or known.kind not in _BY_KIND:
            continue
        try:
            if info.size > MOST_INDEX_BYTES:
                raise OSError(f"it is larger than {MOST_INDEX_BYTES >> 20} MiB")
            with system.open_input_file(info.path) as file:
                content = bytes(file.read())
        except (OSError, ValueError) as error:
            yield info.base_name, b"", reason_of(error)
            continue
        yield info.base_name, content, None


def _local_contents(folder: str, stems: set[str]) -> Iterator[tuple[str, bytes, str | None]]:
    """Yields ``_contents`` of a local folder. Links are followed where one of its segments is one."""
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return
    follow = any(os.path.islink(os.path.join(folder, f"{stem}.log")) for stem in stems)
    for name in names:
        known = broker_file(name)
        if known is None or known.kind not in _BY_KIND:
            continue
        try:
            yield name, read_regular(os.path.join(folder, name), MOST_INDEX_BYTES, follow), None
        except OSError as error:
            yield name, b"", error.strerror or str(error)


def _replace(lake: LakeWriter, table: Table, rows: list[Row], folders: Iterable[str], run_id: str) -> None:
    """Replaces the rows of these folders, if they differ."""
    names = [column.name for column in table.columns]
    made = rows_to_arrow(
        table, [{name: row.get(name) for name in names} | {"run_id": run_id} for row in rows]
    )
    compared = [name for name in names if name != "run_id"]
    where = sql_in("partition_dir", folders)
    stored = lake.read(table, compared, where) if lake.has(table) else made.slice(0, 0).select(compared)
    if _sorted(stored) != _sorted(made.select(compared)):
        lake.replace_report_rows(table, made, where)


def _sorted(rows: pa.Table) -> list[str]:
    return sorted(map(repr, rows.to_pylist()))
