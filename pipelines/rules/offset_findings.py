"""Makes rows of the table ``offset_findings`` from others: ``udfs.batches.offset_findings`` over Arrow."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from kafka_log_lake.pipelines.rules.files import LOG, Files
from kafka_log_lake.udfs.batches import offset_findings as of
from kafka_log_lake.udfs.batches.offset_findings import Order, order, with_undecoded
from kafka_log_lake.udfs.batches.offsets import NO_LIMIT, RUN, are_cleaned, begins_of_runs, joined
from kafka_log_lake.udfs.batches.retention import COMPACTED_TOPICS
from kafka_log_lake.udfs.compute import pc
from kafka_log_lake.udfs.format.schema import OFFSET_FINDINGS

# Columns of the sound batches, and of quarantine, that decide
BATCH_COLUMNS = (
    *("segment", "position", "size_bytes", "base_offset", "last_offset", "record_count"),
    *("delete_horizon_ms", "status"),
)
PLACE_COLUMNS = ("segment", "position")
DAMAGE_COLUMNS = (*PLACE_COLUMNS, "size_bytes")
# Columns of the ledger that tell which segments are one run of batches
LEDGER_COLUMNS = ("batches", "records", "damaged", "offset_regressions", "first_offset")
HOLE, WRONG_BASE, COMPACTED, END, STRETCH, UNREAD = (
    "hole",
    "wrong_base_offset",
    "compacted",
    "end",
    "stretch",
    "unread",
)
_SCHEMA = OFFSET_FINDINGS.arrow_schema()


@dataclass(frozen=True)
class Shape:
    """What the ledger tells of the batches of files, bool[n] each.

    ordered: each batch begins after the one before, within the names of its file and of the next one, and
    nothing is damaged or left out. whole: and no offset between them is missing.
    """

    ordered: np.ndarray
    whole: np.ndarray


def shape_of(files: Files) -> Shape:
    """Returns what the ledger tells. files: with LEDGER_COLUMNS."""
    rows = files.rows
    end, first = (rows.column(name).fill_null(-1).to_numpy() for name in ("end_offset", "first_offset"))
    numbers = {name: rows.column(name).fill_null(0).to_numpy() for name in (*LEDGER_COLUMNS[:4], "left_out")}
    is_sound = (numbers["damaged"] == 0) & (numbers["left_out"] == 0) & (numbers["offset_regressions"] == 0)
    ordered = (
        is_sound & (numbers["batches"] > 0) & (first >= files.base) & (end >= first) & (end < files.limit)
    )
    # first is of the first record: the log cleaner leaves batches without one before it
    return Shape(ordered, ordered & (first == files.base) & (numbers["records"] == end - first + 1))


def runs_of_files(files: Files, which: np.ndarray, is_cleaned: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns RUN[n], one run a file, and the file of each. which, is_cleaned: bool[n] of the files."""
    file = np.flatnonzero(which)
    rows = files.rows.take(pa.array(file))
    runs = np.zeros(len(file), dtype=RUN)
    runs["file_base"], runs["file_limit"] = files.base[file], files.limit[file]
    runs["first"] = rows.column("first_offset").to_numpy()
    for name in ("last", "first_last", "last_base"):  # no batch of another file is among these offsets
        runs[name] = rows.column("end_offset").to_numpy()
    runs["batches"], runs["is_cleaned"] = rows.column("batches").to_numpy(), is_cleaned[file]
    return runs, file


def runs_of_batches(files: Files, batches: pa.Table) -> tuple[np.ndarray, np.ndarray]:
    """Returns RUN[n], and the file of each, in the order of the files.

    A batch that its file's names contradict is a run of its own. batches: BATCH_COLUMNS of sound batches.
    """
    file, position = files.numbers(batches.column("segment")), batches.column("position").to_numpy()
    in_order = np.lexsort((position, file))
    runs = np.zeros(len(file), dtype=RUN)
    last = batches.column("last_offset").to_numpy()
    first = pc.coalesce(batches.column("base_offset"), batches.column("last_offset")).to_numpy()
    runs["file_base"], runs["file_limit"] = files.base[file], files.limit[file]
    runs["position"], runs["first"], runs["last"] = position, first, np.maximum(first, last)
    runs["last_base"], runs["first_last"] = first, runs["last"]
    has_horizon = batches.column("delete_horizon_ms").is_valid().to_numpy()
    is_ok = pc.equal(batches.column("status"), "ok").to_numpy(zero_copy_only=False)
    records = batches.column("record_count").to_numpy()
    runs["is_cleaned"] = is_ok & (has_horizon | are_cleaned(first, last, records))
    runs["batches"] = 1
    runs, file, size = runs[in_order], file[in_order], batches.column("size_bytes").to_numpy()[in_order]
    begins = begins_of_runs(runs["first"], runs["last"], runs["file_base"], runs["file_limit"])
    begins[1:] |= (file[1:] != file[:-1]) | (runs["position"][1:] != runs["position"][:-1] + size[:-1])
    begins |= (runs["first"] < runs["file_base"]) | (runs["last"] >= runs["file_limit"])
    return joined(runs, begins), file[begins]


def findings_of(
    files: Files,
    runs: np.ndarray,
    file: np.ndarray,
    quarantine: pa.Table,
    unread: Mapping[str, Collection[int]],
    compacted: Collection[str] = (),
) -> pa.Table:
    """Returns the rows of the table ``offset_findings``.

    Parameters
    ----------
    files: of whole logs.
    runs, file: RUN[n] and the file of each, in any order.
    quarantine: DAMAGE_COLUMNS of all damaged ranges.
    unread: partition_dir -> base offsets of files that are there and were not decoded.
    compacted: partition_dir of logs of which earlier runs, or files, know that the log cleaner ran.
    """
    in_order = np.lexsort((runs["position"], file))
    runs, file = runs[in_order], file[in_order]
    damaged_file = files.numbers(quarantine.column("segment"))
    damaged = np.stack(
        [
            files.base[damaged_file],
            quarantine.column("position").to_numpy(),
            quarantine.column("size_bytes").to_numpy(),
        ],
        axis=1,
    ).astype(np.int64)
    is_left_out = pc.fill_null(pc.less(files.rows.column("left_out"), 0), False).to_numpy(
        zero_copy_only=False
    )
    ends = np.append(np.flatnonzero(np.diff(files.log)) + 1, len(files.log)) if len(files.log) else []
    tables, begin = [_stretches(files)], 0
    folders = files.logs.column("partition_dir").to_pylist()
    topics = files.logs.column("topic").to_pylist()
    by_log = np.searchsorted(file, [0, *ends])
    damages = np.argsort(damaged_file, kind="stable")
    damages_by_log = np.searchsorted(damaged_file[damages], [0, *ends])
    for log, end in enumerate(ends):
        base = files.base[begin:end]
        missed = sorted({*unread.get(folders[log], ())} - {*base.tolist()})
        covered = [*base[is_left_out[begin:end]].tolist(), *missed]
        every = sorted({*base.tolist(), *missed})
        of_log = with_undecoded(runs[by_log[log] : by_log[log + 1]], covered, every)
        counts = files.retentions[begin:end][np.maximum(np.searchsorted(base, every, side="right") - 1, 0)]
        log_order = order(
            of_log,
            damaged[damages[damages_by_log[log] : damages_by_log[log + 1]]],
            every,
            topics[log] in COMPACTED_TOPICS or folders[log] in compacted,
            missed,
            counts if counts[-1] else None,
        )
        tables += _rows_of_log(files, slice(begin, end), of_log, log_order, missed, every)
        begin = end
    return pa.concat_tables(tables)


def is_plain(files: Files, shape: Shape, is_cleaned: np.ndarray) -> np.ndarray:
    """Returns bool[m]: the logs without a finding, by the ledger alone: each segment follows the one before.

    is_cleaned: bool[n], the files of which a batch shows that the log cleaner ran.
    """
    rows = files.rows
    batches = rows.column("batches").fill_null(0).to_numpy()
    is_empty = (batches == 0) & (rows.column("damaged").to_numpy() == 0)
    is_empty &= rows.column("left_out").fill_null(0).to_numpy() == 0
    first = rows.column("first_offset").fill_null(-1).to_numpy()
    reached = np.where(shape.whole, rows.column("end_offset").fill_null(-1).to_numpy() + 1, files.base)
    follows = np.zeros(len(rows), dtype=bool)
    follows[1:] = files.base[1:] == reached[:-1]
    follows[np.flatnonzero(np.diff(files.log, prepend=-1))] = True
    plain = (shape.whole & (first == files.base) | is_empty) & follows & ~is_cleaned
    return np.bincount(files.log[~plain], minlength=len(files.logs)) == 0


def _stretches(files: Files) -> pa.Table:
    """Returns the rows of files with which a stretch begins, but for the first file of a log."""
    differs = np.diff(files.stretch, prepend=0)
    is_first = np.diff(files.log, prepend=-1) != 0
    begins = np.flatnonzero(np.where(is_first, files.stretch > 0, differs > 0))
    deleted = np.where(is_first, files.retentions > 0, np.diff(files.retentions, prepend=0) > 0)[begins]
    rows = files.rows.take(pa.array(begins))
    return _table(
        rows.select(LOG),
        {
            "kind": pa.array([STRETCH] * len(rows), pa.string()),
            "segment": rows.column("segment"),
            "file_base_offset": files.base[begins],
            "first_offset": files.base[begins],
            "follows_retention": deleted,
        },
    )


def _causes(codes: np.ndarray) -> pa.Array:
    """Returns the names of causes; null for none."""
    return pa.array(of.CAUSES).take(pa.array(codes, mask=codes == of.NONE))


def _rows_of_log(
    files: Files, where: slice, runs: np.ndarray, log_order: Order, unread: list[int], every: list[int]
) -> Iterator[pa.Table]:
    """Yields the rows of one log. where: its files. runs: RUN, what ``found`` is of. every: all its files."""
    rows = files.rows.slice(where.start, where.stop - where.start)
    base, segments = files.base[where], rows.column("segment").combine_chunks()
    last_segment = segments[-1].as_py()
    log = {name: rows.column(name)[0].as_py() for name in LOG}

    def names(bases: np.ndarray) -> pa.Array:
        """Returns the segments with these base offsets; null without one and of a file that was not read."""
        at = np.minimum(np.searchsorted(base, bases), len(base) - 1)
        return segments.take(pa.array(at, mask=base[at] != bases))

    holes = log_order.holes
    if len(holes):
        after, before = names(holes["file_base"]), np.full(len(holes), -1, dtype=np.int64)
        has_before = holes["run_before"] >= 0
        before[has_before] = runs["file_base"][holes["run_before"][has_before]]
        lost = holes["lost"]
        yield _table(
            log,
            {
                "kind": pa.array([HOLE] * len(holes), pa.string()),
                "segment": pc.fill_null(after, last_segment),
                "segment_after": after,
                "segment_before": names(before),
                "file_base_offset": holes["file_base"],
                "first_offset": pa.array(holes["first"], mask=holes["first"] < 0),
                "next_offset": pa.array(holes["next"], mask=holes["next"] < 0),
                "damaged_ranges": holes["damages"],
                "damaged_bytes": holes["damaged_bytes"],
                "misplaced_batches": holes["misplaced"],
                **{name: holes[name] for name in ("goes_back", "follows_retention", "is_confirmed")},
                "is_compacted": np.full(len(holes), log_order.is_compacted),
                "cause": _causes(holes["cause"]),
                "cause_in_file": _causes(holes["cause_in_file"]),
                "lost_cause": _causes(lost),
                "is_certain": pa.array(of.are_certain(lost, log_order.is_compacted), mask=lost == of.NONE),
            },
        )
    wrong = runs[log_order.is_wrong]
    if len(wrong):
        yield _table(
            log,
            {
                "kind": pa.array([WRONG_BASE] * len(wrong), pa.string()),
                "segment": names(wrong["file_base"]),
                "file_base_offset": wrong["file_base"],
                "position": wrong["position"],
                "first_offset": wrong["first"],
            },
        )
    yield from _of_whole_log(log, rows, base, log_order, unread, every)


def _of_whole_log(
    log: Mapping[str, object],
    rows: pa.Table,
    base: np.ndarray,
    log_order: Order,
    unread: list[int],
    every: list[int],
) -> Iterator[pa.Table]:
    """Yields the rows about a log as a whole, as of its last segment, which every run computes again."""
    last = {"segment": rows.column("segment")[-1].as_py()}
    if log_order.is_compacted:
        yield _one_row(log, {**last, "kind": COMPACTED, "is_compacted": True})
    last_file = int(base[-1])
    end = max(last_file, last_file if log_order.end is None else log_order.end)
    said = pc.max(rows.column("end_offset")).as_py()
    if end != max(last_file, last_file if said is None else min(said + 1, NO_LIMIT)):
        yield _one_row(log, {**last, "kind": END, "first_offset": end})
    limits = dict(pairwise(every)) if unread else {}
    for at in unread:
        row = {"kind": UNREAD, "file_base_offset": at, "first_offset": at, "next_offset": limits.get(at)}
        yield _one_row(log, {**last, **row})


def _one_row(log: Mapping[str, object], row: Mapping[str, object]) -> pa.Table:
    return pa.Table.from_pylist([{**log, **row}], schema=_SCHEMA)


def _table(log: pa.Table | Mapping[str, Any], columns: Mapping[str, Any]) -> pa.Table:
    """Returns rows of the table; a column that is not given is null. log: LOG of each row, or of all."""
    count = len(columns["kind"])
    made = {
        name: log.column(name) if isinstance(log, pa.Table) else pa.array([log[name]] * count) for name in LOG
    }
    made |= columns
    arrays = [made.get(field.name, pa.nulls(count, field.type)) for field in _SCHEMA]
    arrays = [array if isinstance(array, pa.ChunkedArray) else pa.array(array) for array in arrays]
    return pa.table([a.cast(f.type) for a, f in zip(arrays, _SCHEMA, strict=True)], schema=_SCHEMA)
