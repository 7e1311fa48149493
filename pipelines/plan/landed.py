"""Reads landed bytes as segments: what ``raw_segments`` offers to decode, how far each file was landed.

Without the column ``content``: the bytes of a lake's worth of segments are never read to plan.
"""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafka_log_lake.pipelines.engine.delta import sql_in
from kafka_log_lake.pipelines.listing.listing import LISTING_SCHEMA, Listing
from kafka_log_lake.pipelines.listing.naming import NULL_TO_SPARK, NULL_TOPIC
from kafka_log_lake.pipelines.plan import ledger
from kafka_log_lake.pipelines.plan.ledger import NAMES, Partition
from kafka_log_lake.pipelines.plan.slices import Segment
from kafka_log_lake.udfs.format.schema import RAW_SEGMENTS, Table
from kafka_log_lake.udfs.storage.fingerprint import FileMatch

_KEY = ("topic", "partition", "partition_dir", "segment", "file_base_offset")
_CHUNK = ("chunk_position", "chunk_bytes")
# Of bytes after the last whole batch it is not known here whether they are torn, zeros or damage
LAST = chr(sys.maxunicode)  # no name is after it
UNKNOWN_TAIL = "unknown"


class Landed:
    """Plans from the table ``raw_segments`` of a lake.

    read: ``LakeWriter.read``.
    """

    def __init__(self, read: Callable[[Table, Iterable[str], str], pa.Table]) -> None:
        self._of_lake = read

    def _read(self, columns: Iterable[str], where: str = "") -> pa.Table:
        return self._of_lake(RAW_SEGMENTS, columns, where)

    def _segments(self, where: str = "") -> tuple[pa.Table, dict[str, str]]:
        """Returns one row a segment, and the segments that have none, each with the reason.

        A row says how long the segment is, and what its last chunk says; timestamps are int64. Segments whose
        chunks do not follow each other have no row.
        """
        names = [*_KEY, *_CHUNK, "modified", "fingerprint", "whole_bytes", "last_offset"]
        chunks = self._read([*names, "log_start_offset", "topic_id", "landed_at"], where)
        for name in ("modified", "landed_at"):
            at = chunks.schema.get_field_index(name)
            chunks = chunks.set_column(at, name, chunks.column(name).cast(pa.int64()))
        chunks = chunks.append_column(
            "length", pc.add(chunks.column("chunk_position"), chunks.column("chunk_bytes"))
        )
        last = ("modified", "fingerprint", "whole_bytes", "last_offset", "topic_id", "length")
        chunks = chunks.sort_by([("segment", "ascending"), ("chunk_position", "ascending")])
        broken = _broken(chunks)
        if broken:
            chunks = chunks.filter(
                pc.invert(pc.is_in(chunks.column("segment"), pa.array(broken, pa.string())))
            )
        segments = chunks.group_by(list(_KEY), use_threads=False).aggregate(
            [
                *((name, "last", pc.ScalarAggregateOptions(skip_nulls=False)) for name in last),
                ("log_start_offset", "min"),
                ("landed_at", "max"),
            ]
        )
        names_now = {f"{name}_last": name for name in last}
        names_now |= {"log_start_offset_min": "log_start_offset", "landed_at_max": "landed_at"}
        return segments.rename_columns([names_now.get(name, name) for name in segments.column_names]), broken

    def listing(self, is_requested: Callable[[str], bool], null_topic: bool = True) -> Listing:
        """Returns the segments whose bytes were landed, as a listing of files has them.

        null_topic: whether a topic with the name that Spark's writer reads as null may be decoded.
        """
        segments, broken = self._segments()
        topics = segments.column("topic").unique().to_pylist()
        requested = {topic for topic in topics if is_requested(topic)}
        listing = Listing(not_requested=set(topics) - requested, unreadable=broken)
        segments = segments.filter(
            pc.is_in(segments.column("topic"), pa.array(sorted(requested), pa.string()))
        )
        if not null_topic:
            named = pc.equal(segments.column("topic"), NULL_TOPIC)
            if count := pc.sum(named).as_py():
                listing.skipped[NULL_TO_SPARK] += count
            segments = segments.filter(pc.invert(named))
        last = segments.group_by("partition_dir").aggregate([("file_base_offset", "max")])
        place = pc.index_in(
            segments.column("partition_dir"), value_set=last.column("partition_dir").combine_chunks()
        )
        successor = pc.greater(
            last.column("file_base_offset_max").take(place), segments.column("file_base_offset")
        )
        columns = {name: segments.column(name) for name in segments.column_names}
        columns |= {"has_successor": successor, "wanted": pa.repeat(True, segments.num_rows)}
        columns["file"] = pa.nulls(segments.num_rows, pa.string())
        table = pa.table({name: columns[name] for name in LISTING_SCHEMA.names}).cast(LISTING_SCHEMA)
        order = [("partition_dir", "ascending"), ("file_base_offset", "ascending")]
        listing.segments = table.sort_by(order)
        return listing

    def known(self, where: str = "") -> pa.Table:
        """Returns how far each file was landed, in the columns of the ledger: a plan goes on from there.

        where: a condition on chunks, "" for all. decoded_bytes: the end of the last whole batch; what follows
        it is landed again once the file changes. A segment whose chunks do not follow each other is landed
        anew.
        """
        segments, _ = self._segments(where)
        tail = pc.subtract(segments.column("length"), segments.column("whole_bytes"))
        columns: dict[str, Any] = {name: segments.column(name) for name in segments.column_names}
        columns |= {
            "decoded_bytes": segments.column("whole_bytes"),
            "end_offset": segments.column("last_offset"),
            "tail_bytes": tail,
            "tail": pc.if_else(pc.greater(tail, 0), UNKNOWN_TAIL, "none"),
            "ends_in_damage": pa.repeat(False, segments.num_rows),
            "decoded_at": segments.column("landed_at"),
        }
        nullable = ("first_offset", "last_offset", "min_timestamp", "max_timestamp", "content_crc32c")
        zero, null = pa.scalar(0, pa.int64()), pa.scalar(None, pa.int64())
        missing = {name: pa.repeat(null if name in nullable else zero, segments.num_rows) for name in NAMES}
        missing |= {
            "run_id": pa.repeat("", segments.num_rows),
            "scope": pa.nulls(segments.num_rows, pa.string()),
        }
        return pa.table({name: (missing | columns)[name] for name in NAMES})

    def check(self, to_check: pa.Table) -> list[FileMatch]:
        """Compares landed bytes with the CRC-32C of what was decoded.

        Returns SAME or CHANGED for each row.
        """
        from kafka_log_lake.udfs.kernels.checksums import (
            crc32c_combine,  # loads LLVM, which most planning does not need
        )

        if not to_check.num_rows:
            return []
        names = ["segment", *_CHUNK, "crc32c"]
        chunks = self._read(names, sql_in("segment", to_check.column("segment").to_pylist()))
        by_segment: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for row in chunks.sort_by([("segment", "ascending"), ("chunk_position", "ascending")]).to_pylist():
            by_segment[row["segment"]].append(row)
        marks = []
        for row in to_check.to_pylist():
            crc, at, end = 0, 0, row["decoded_bytes"]
            for chunk in by_segment[row["segment"]]:
                if at == end or chunk["chunk_position"] != at:
                    break
                size = min(chunk["chunk_bytes"], end - at)
                whole = size == chunk["chunk_bytes"] and chunk["crc32c"] is not None
                chunk_crc = chunk["crc32c"] if whole else self._begin_crc32c(row["segment"], at, size)
                crc, at = int(crc32c_combine(crc, chunk_crc, size)), at + size
            marks.append(FileMatch.SAME if at == end and crc == row["content_crc32c"] else FileMatch.CHANGED)
        return marks

    def _begin_crc32c(self, segment: str, position: int, size: int) -> int:
        """Returns the CRC-32C of the first ``size`` bytes of one chunk."""
        from kafka_log_lake.udfs.kernels.checksums import crc32c

        condition = f"{sql_in('segment', [segment])} AND chunk_position = {int(position)}"
        content = self._read(["content"], condition).column("content")
        return int(crc32c(np.frombuffer(content[0].as_buffer(), dtype=np.uint8), 0, size, 0))


def _broken(chunks: pa.Table) -> dict[str, str]:
    """Returns the segments whose chunks do not follow each other from byte 0 on, each with the reason.

    chunks: by segment and position.
    """
    names = chunks.column("segment").to_numpy()
    position, size = (chunks.column(name).to_numpy() for name in _CHUNK)
    expected = np.zeros(len(names), dtype=np.int64)
    follows = names[1:] == names[:-1]
    expected[1:][follows] = (position + size)[:-1][follows]
    broken: dict[str, str] = {}
    for at in np.flatnonzero(position != expected).tolist():
        what = "no chunk" if position[at] > expected[at] else "more than one chunk"
        broken.setdefault(
            names[at],
            f"raw_segments has {what} with byte {min(position[at], expected[at])} of it: run ingest "
            "again, which lands the whole file, or restore an earlier version of the table",
        )
    return broken


def located(segments: Iterable[Segment], files: pa.Table, folder: str) -> list[Segment]:
    """Returns landed segments with the files that hold their bytes, as far as the table's log knows.

    files: ``pipelines.engine.delta.data_files`` of raw_segments. folder: the table's path or URI.
    """
    of_one: dict[str, list[dict[str, Any]]] = defaultdict(list)
    of_several: dict[Partition, list[dict[str, Any]]] = defaultdict(list)
    for file in files.to_pylist():
        low, high = file.get("min.segment"), file.get("max.segment")
        if low is not None and low == high:
            of_one[low].append(file)
        else:
            of_several[file["partition.topic"], file["partition.partition"]].append(file)

    def first(file: dict[str, Any]) -> int:
        return file.get("min.chunk_position") or 0

    def of(segment: Segment) -> tuple[str, ...]:
        chunks = sorted(of_one[segment.segment], key=first, reverse=True)
        chunks += [
            file
            for file in of_several[segment.topic, segment.partition]
            if (file.get("min.segment") or "") <= segment.segment <= (file.get("max.segment") or LAST)
        ]
        return tuple(f"{folder}/{file['path']}" for file in chunks)

    return [replace(segment, landed=of(segment)) for segment in segments]


def outlived(landed: pa.Table, known: pa.Table) -> pa.Array:
    """Returns bool[n]: which landed segments, that no run decoded, are no more in the log.

    The ledger, ``known``, has a later state of their folder, in which an earlier segment covers them, so that
    the log cleaner merged them into it; or one of another topic of the name. What retention deleted, and what
    was lost, is not among them.
    """
    folders = pc.is_in(known.column("partition_dir"), landed.column("partition_dir").combine_chunks())
    by_folder: dict[str, list[ledger.LedgerRow]] = defaultdict(list)
    for row in ledger.rows(known.filter(folders)):
        by_folder[row.partition_dir].append(row)
    for rows in by_folder.values():
        rows.sort(key=lambda row: row.file_base_offset)
    # The furthest that a row and those before it reach: where it does not reach a segment, none of them does
    reaches = {folder: list(accumulate((r.reach for r in rows), max)) for folder, rows in by_folder.items()}
    newest = {folder: max(rows, key=lambda row: row.decoded_at) for folder, rows in by_folder.items()}
    is_outlived = []
    for landed_file in landed.select(
        ["partition_dir", "file_base_offset", "topic_id", "landed_at"]
    ).to_pylist():
        rows, base, landed_at = (
            by_folder[landed_file["partition_dir"]],
            landed_file["file_base_offset"],
            landed_file["landed_at"],
        )
        place = bisect_left(rows, base, key=lambda row: row.file_base_offset) - 1
        is_covered = (
            place >= 0
            and reaches[landed_file["partition_dir"]][place] >= base
            and any(row.reach >= base and row.decoded_at >= landed_at for row in rows[: place + 1])
        )
        last = newest.get(landed_file["partition_dir"])
        is_recreated = (
            last is not None
            and last.decoded_at >= landed_at
            and None not in (last.topic_id, landed_file["topic_id"])
            and last.topic_id != landed_file["topic_id"]
        )
        is_outlived.append(is_covered or is_recreated)
    return pa.array(is_outlived, pa.bool_())
