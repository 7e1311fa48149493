"""Computes the table ``offset_findings``, in every run, for the logs that it changes.

The rule is ``udfs.batches.offset_findings``. A segment without damage whose batches follow each other is one
run of batches by its row of the ledger, so of most logs no batch is read. A run that appends to a log reads
the batches of its last segments alone, and of damaged ones; the rows of those before stay as they are.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from kafka_log_lake.pipelines.engine.delta import sql_in
from kafka_log_lake.pipelines.lake.transactions import OF_ROWS, Read, known_rows, rows_of
from kafka_log_lake.pipelines.plan.ledger import Partition
from kafka_log_lake.pipelines.rules import COUNTED
from kafka_log_lake.pipelines.rules.files import Files, files_of
from kafka_log_lake.pipelines.rules.offset_findings import (
    BATCH_COLUMNS,
    COMPACTED,
    DAMAGE_COLUMNS,
    UNREAD,
    findings_of,
    is_plain,
    runs_of_batches,
    runs_of_files,
    shape_of,
)
from kafka_log_lake.udfs.batches.retention import COMPACTED_TOPICS
from kafka_log_lake.udfs.compute import pc
from kafka_log_lake.udfs.format.schema import BATCHES, OFFSET_FINDINGS, QUARANTINE, Table

_COLUMNS = OFFSET_FINDINGS.arrow_schema().names
_NAMED = 500  # segments that a condition names; of more all rows are read
_HAS_HORIZON = "status = 'ok' AND delete_horizon_ms IS NOT NULL"
_PLACE = ("topic", "partition", "segment")
Unread = Mapping[str, Collection[int]]  # partition_dir -> base offsets of files that were not read


@dataclass(frozen=True)
class Change:
    """What a run changes in logs.

    before, after: their rows of the ledger. put: segments whose rows it writes -> the byte from which on
    their batches are new. anew: folders of logs that are computed from their start; None for all. unread: of
    the logs whose files were looked for. cleaned: folders of logs of which a file says that the log cleaner
    ran.
    """

    before: pa.Table
    after: pa.Table
    put: Mapping[str, int]
    anew: Collection[str] | None
    unread: Unread
    cleaned: Collection[str] = ()

    def is_anew(self, folder: str) -> bool:
        """Returns whether a log is computed from its start, by its folder."""
        return self.anew is None or folder in self.anew


def compute(
    read: Read, partitions: Collection[Partition], change: Change
) -> tuple[pa.Table, set[tuple[str, int, str]]]:
    """Computes the findings of the logs that a run changes.

    Returns the rows of the segments that differ from the table, and these (topic, partition, segment).
    read: reads rows of the lake. partitions: those of the logs.
    """
    files = files_of(change.after)
    owns = _owning(files, change)
    names = files.rows.column("segment")
    gone = change.before.column("segment")
    gone = gone.filter(pc.invert(pc.is_in(gone, names.combine_chunks())))
    owners = pa.array([*names.filter(pa.array(owns)).to_pylist(), *gone.to_pylist()], pa.string())
    stored = _stored(read, partitions, owners)
    known = _folders(stored, COMPACTED)
    goes_on = {folder for folder in known if not change.is_anew(folder)} | {*change.cleaned}
    cleaned = _cleaned(read, partitions, files, owns, change)
    unread = {**_unread(stored), **change.unread}
    computed = _compute(read, partitions, files, owns, unread, goes_on, cleaned)
    is_partial = np.bincount(files.log[~owns], minlength=len(files.logs)) > 0
    partial = {*files.logs.column("partition_dir").filter(pa.array(is_partial)).to_pylist()}
    shown = (_folders(computed, COMPACTED) - known) & partial
    if shown:  # rows that would stay say that the cleaner did not run
        return compute(read, partitions, replace(change, anew={*(change.anew or ()), *shown}))
    computed, stored = (rows.filter(pc.is_in(rows.column("segment"), owners)) for rows in (computed, stored))
    return _differing(computed, stored)


def _owning(files: Files, change: Change) -> np.ndarray:
    """Returns bool[n]: the files whose rows may change.

    In a log that got more at its end these are the last two with batches that were known before, and what
    follows: a batch is judged by the two after it.
    """
    before = files_of(change.before)
    folders = files.logs.column("partition_dir").to_pylist()
    has_batches = before.rows.column("batches").fill_null(0).to_numpy() > 0
    known = dict.fromkeys(folders, (-1, -1))  # base offsets of the last file, and where to begin
    for number, folder in enumerate(before.logs.column("partition_dir").to_pylist()):
        begin, end = np.searchsorted(before.log, [number, number + 1]).tolist()
        held = before.base[begin:end][has_batches[begin:end]]
        known[folder] = int(before.base[end - 1]), int(held[-2]) if len(held) > 1 else -1
    last, cut = np.array([known[folder] for folder in folders], dtype=np.int64).reshape(-1, 2)[files.log].T
    is_put = _are_in(files.rows.column("segment"), change.put)
    is_there = _are_in(before.rows.column("segment"), files.rows.column("segment").to_pylist())
    shrunk = {*before.rows.column("partition_dir").filter(pa.array(~is_there)).to_pylist()}
    anew = np.array([folder in shrunk or change.is_anew(folder) for folder in folders], dtype=bool)
    anew |= np.bincount(files.log[is_put & (files.base < last)], minlength=len(folders)) > 0
    result: np.ndarray = anew[files.log] | (files.base >= cut)
    return result


def _are_in(column: pa.ChunkedArray, texts: Collection[str]) -> np.ndarray:
    is_in: np.ndarray = pc.is_in(column, pa.array(list(texts), pa.string())).to_numpy(zero_copy_only=False)
    return is_in


def _folders(rows: pa.Table, kind: str) -> set[str]:
    return {*rows.column("partition_dir").filter(pc.equal(rows.column("kind"), kind)).to_pylist()}


def _stored(read: Read, partitions: Collection[Partition], owners: pa.Array) -> pa.Table:
    """Reads stored rows of segments, and those that say something of a whole log."""
    of_log = f"kind IN ('{COMPACTED}', '{UNREAD}')"
    where = f"({sql_in('segment', owners.to_pylist())} OR {of_log})" if 0 < len(owners) <= _NAMED else ""
    return rows_of(read, OFFSET_FINDINGS, _COLUMNS, partitions, where)


def _unread(stored: pa.Table) -> dict[str, list[int]]:
    by_folder: dict[str, list[int]] = {}
    rows = stored.filter(pc.equal(stored.column("kind"), UNREAD))
    for folder, base in zip(
        *(rows.column(n).to_pylist() for n in ("partition_dir", "file_base_offset")), strict=True
    ):
        by_folder.setdefault(folder, []).append(base)
    return by_folder


def _cleaned(
    read: Read, partitions: Collection[Partition], files: Files, owns: np.ndarray, change: Change
) -> np.ndarray:
    """Returns bool[n]: the files without a gap of which a batch shows that the log cleaner ran.

    What was stored of a log tells of its known batches: of a log that goes on only new ones are read.
    owns: bool[n], the files whose rows are wanted.
    """
    names = files.rows.column("segment")
    folders = files.logs.column("partition_dir").to_pylist()
    is_anew = np.array([change.is_anew(folder) for folder in folders], dtype=bool)[files.log]
    whole = shape_of(files).whole & owns & (is_anew | _are_in(names, change.put))
    chosen = names.filter(pa.array(whole))
    begin = 0 if is_anew.any() else min(map(change.put.__getitem__, chosen.to_pylist()), default=0)
    where = f"{_HAS_HORIZON} AND position >= {begin}" if begin else _HAS_HORIZON
    horizons = _of_segments(read, partitions, BATCHES, ("segment",), chosen, where)
    return _are_in(names, pc.unique(horizons.column("segment")).to_pylist())


def _compute(
    read: Read,
    partitions: Collection[Partition],
    files: Files,
    owns: np.ndarray,
    unread: Unread,
    compacted: Collection[str],
    is_cleaned: np.ndarray,
) -> pa.Table:
    """Computes rows of logs. owns: bool[n], the files whose rows are wanted. is_cleaned: by ``_cleaned``."""
    shape = shape_of(files)
    plain = is_plain(files, shape, is_cleaned)
    plain &= ~_are_in(
        files.logs.column("partition_dir"), [*compacted, *(f for f, some in unread.items() if some)]
    )
    plain &= ~_are_in(files.logs.column("topic"), COMPACTED_TOPICS)
    chosen = ~plain[files.log]
    some = files_of(files.rows.filter(pa.array(chosen)))
    is_run = (shape.whole | (shape.ordered & ~owns))[chosen]
    runs, file = runs_of_files(some, is_run, is_cleaned[chosen])
    rest = ~is_run & (some.rows.column("batches").fill_null(0).to_numpy() > 0)
    batches = _of_segments(
        read, partitions, BATCHES, BATCH_COLUMNS, some.rows.column("segment").filter(pa.array(rest)), COUNTED
    )
    more, of_file = runs_of_batches(some, known_rows(some, batches))
    hurt = some.rows.column("segment").filter(pc.greater(some.rows.column("damaged"), 0))
    damage = known_rows(some, _of_segments(read, partitions, QUARANTINE, DAMAGE_COLUMNS, hurt))
    all_runs, all_files = np.concatenate([runs, more]), np.concatenate([file, of_file])
    return findings_of(some, all_runs, all_files, damage, unread, compacted)


def _of_segments(
    read: Read,
    partitions: Collection[Partition],
    table: Table,
    columns: Collection[str],
    segments: pa.ChunkedArray,
    where: str = "",
) -> pa.Table:
    """Reads columns of a table's rows in some segments. where: a further condition, "" for none."""
    if not len(segments):
        return table.arrow_schema().empty_table().select([*columns])
    named = sql_in("segment", segments.to_pylist()) if len(segments) <= _NAMED else ""
    conditions = " AND ".join(condition for condition in (named, where) if condition)
    rows = rows_of(read, table, (*OF_ROWS, *columns), partitions, conditions).select([*columns])
    return rows.filter(pc.is_in(rows.column("segment"), segments.combine_chunks()))


def _differing(computed: pa.Table, stored: pa.Table) -> tuple[pa.Table, set[tuple[str, int, str]]]:
    """Returns the rows found of segments with other rows than stored ones, and these segments."""
    changed = computed  # in a first run, which may find a million of them
    if len(stored):
        sides = [
            rows.append_column("count", pa.array(np.full(len(rows), count)))
            for rows, count in ((computed, 1), (stored, -1))
        ]
        counts = pa.concat_tables(sides).group_by(_COLUMNS).aggregate([("count", "sum")])
        changed = counts.filter(pc.not_equal(counts.column("count_sum"), 0))
    changed = changed.group_by(_PLACE).aggregate([])
    rows = computed.filter(pc.is_in(computed.column("segment"), changed.column("segment")))
    return rows, {*zip(*(changed.column(name).to_pylist() for name in _PLACE), strict=True)}
