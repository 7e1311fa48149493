"""Reads the records of one partition of the lake in the order of their offsets, a window at a time.

A window is a range of offsets whose batches take about ``WINDOW_BYTES``, with a limit of the rate at most
what a second may write: the next one is read in a thread while the one before is written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, pairwise
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafka_log_lake.pipelines.engine.delta import sql_literal
from kafka_log_lake.pipelines.restore.plan import NAMES, PartitionPlan, source_of
from kafka_log_lake.pipelines.restore.request import Request
from kafka_log_lake.pipelines.sql.database import open_database
from kafka_log_lake.udfs.functions.scalars import kafka_partition

WINDOW_BYTES, WINDOW_RECORDS = 16 << 20, 200_000
_OVERHEAD = 61 + 40  # at most, of a batch and its record without headers
_ORIGIN = ("origin.topic", "origin.partition", "origin.offset")  # headers of --with-origin

Headers = list[tuple[str, bytes | None]] | None


@dataclass(frozen=True)
class Limits:
    """What the target's topic takes.

    max_bytes: of a batch. before, after: most ms by which a timestamp may differ from now. keeps_time:
    whether records keep their timestamps (CreateTime).
    """

    max_bytes: int
    before: int = 1 << 62
    after: int = 1 << 62
    keeps_time: bool = True

    def refuses(self, timestamp: int, now: int) -> str:
        """Returns the setting that refuses a timestamp, "" where none does."""
        if timestamp == -1 or not self.keeps_time:
            return ""
        if timestamp < now - self.before:
            return "message.timestamp.before.max.ms"
        return "message.timestamp.after.max.ms" if timestamp > now + self.after else ""


@dataclass
class Window:
    """Records of a partition, in their order. place: the first offset and the end of the window.

    targets: the partition of the target of each. held: offset and reason of those that can't be written.
    """

    place: tuple[int, int]
    offsets: list[int]
    keys: list[bytes | None]
    values: list[bytes | None]
    headers: list[Headers]
    timestamps: list[int]
    targets: list[int]
    held: list[tuple[int, str]]

    @property
    def bytes(self) -> int:
        """Returns the bytes of keys and values."""
        return sum(map(len, filter(None, chain(self.keys, self.values))))

    def halves(self) -> tuple[Window, Window]:
        """Returns two windows of half as many records each. There are two records at least."""
        middle = len(self.offsets) // 2
        (begin, end), at = self.place, self.offsets[middle]
        return self._part(begin, at, slice(middle)), self._part(at, end, slice(middle, None))

    def _part(self, begin: int, end: int, some: slice) -> Window:
        return Window(
            (begin, end),
            self.offsets[some],
            self.keys[some],
            self.values[some],
            self.headers[some],
            self.timestamps[some],
            self.targets[some],
            [held for held in self.held if begin <= held[0] < end],
        )


class PartitionReader:
    """Reads a partition of the lake."""

    def __init__(self, request: Request, plan: PartitionPlan, database: duckdb.DuckDBPyConnection) -> None:
        self._request, self._plan, self._database = request, plan, database
        place = f"r.topic = {sql_literal(plan.topic)} AND r.partition = {plan.partition}"
        self._where = " AND ".join([place, *request.conditions])

    def windows(self, begin: int, limits: Limits, now: int) -> Iterator[Window]:
        """Yields windows from an offset on. now: ms since 1970, as of the judgement of timestamps."""
        places = list(pairwise(self._cuts(begin)))
        with ThreadPoolExecutor(1) as thread:
            waiting = [thread.submit(self.window, *place, limits, now) for place in places[:1]]
            for number in range(len(places)):
                window = waiting.pop().result()
                if number + 1 < len(places):
                    waiting.append(thread.submit(self.window, *places[number + 1], limits, now))
                yield window

    def window(self, begin: int, end: int, limits: Limits, now: int) -> Window:
        """Returns the records with offsets from ``begin`` to ``end`` - 1, with no regard to their size."""
        rows = self._rows(begin, end)
        offsets, timestamps, keys, values, headers = (column.to_pylist() for column in rows.columns)
        named = [pairs and [(header["key"], header["value"]) for header in pairs] for pairs in headers]
        if self._request.with_origin:
            named = [[*(pairs or ()), *self._origin(at)] for pairs, at in zip(named, offsets, strict=True)]
        columns: list[list[Any]] = [offsets, keys, values, named, timestamps, self._targets(rows)]
        held: dict[int, str] = {}
        twice, closely = _unusual(rows, limits, now)
        for number in range(len(offsets)) if self._request.with_origin else closely.tolist():
            of_record = (keys[number], values[number], named[number], timestamps[number])
            reason = "its offset is there twice" if twice[number] else _why_held(*of_record, limits, now)
            if reason:
                held[number] = reason
        reasons = [(offsets[number], reason) for number, reason in held.items()]
        if held:
            columns = [[one for number, one in enumerate(column) if number not in held] for column in columns]
        offsets, keys, values, named, timestamps, targets = columns
        return Window((begin, end), offsets, keys, values, named, timestamps, targets, reasons)

    def _cuts(self, begin: int) -> list[int]:
        """Returns offsets between which a window's worth of batches lies, the first and the end too."""
        first, last = self._plan.first_offset, self._plan.last_offset
        if first is None or last is None or begin > last:
            return []
        begin = max(begin, first)
        sizes = self._database.cursor().execute(
            "SELECT base_offset, greatest(uncompressed_bytes, 1), record_count FROM batches "
            f"WHERE topic = {sql_literal(self._plan.topic)} AND partition = {self._plan.partition} "
            f"AND record_count > 0 AND last_offset >= {begin} AND base_offset <= {last} ORDER BY base_offset"
        )
        bases, lengths, counts = (np.asarray(column) for column in sizes.fetchnumpy().values())
        if not len(bases):
            return [begin, last + 1]
        rate = self._request.rate
        size = WINDOW_BYTES if rate is None else max(1, min(WINDOW_BYTES, rate // self._request.processes))
        windows = np.maximum(
            np.cumsum(lengths.astype(np.int64)) // size,
            np.cumsum(counts.astype(np.int64)) // WINDOW_RECORDS,
        )
        cuts = bases[1:][np.diff(windows) > 0].astype(np.int64)
        return [begin, *sorted({int(cut) for cut in cuts if begin < cut <= last}), last + 1]

    def _rows(self, begin: int, end: int) -> pa.Table:
        statement = (
            'SELECT r."offset", r.timestamp_ms, r.key, r.value, r.headers '
            f"FROM {source_of(self._request)} AS r "
            f'WHERE {self._where} AND r."offset" >= {begin} AND r."offset" < {end}'
        )
        rows = self._database.cursor().sql(statement).to_arrow_table()
        # Most files are in the order of offsets; DuckDB's sort would copy all values
        is_sorted = np.all(np.diff(rows.column("offset").to_numpy()) >= 0)
        return rows if is_sorted else rows.sort_by("offset")

    def _targets(self, rows: pa.Table) -> list[int]:
        """Returns the partition of the target of each record; one without a key keeps its own, modulo N."""
        number = self._request.partitions
        if number is None:
            return [self._plan.partition] * rows.num_rows
        keys = rows.column("key").combine_chunks()
        if isinstance(keys, pa.ChunkedArray):
            keys = pa.concat_arrays(keys.chunks) if keys.num_chunks else pa.array([], pa.binary())
        chosen = kafka_partition(keys, pa.array([number] * len(keys), pa.int32())).to_pylist()
        without_key = self._plan.partition % number
        return [without_key if partition is None else partition for partition in chosen]

    def _origin(self, offset: int) -> list[tuple[str, bytes]]:
        values = (self._plan.topic, str(self._plan.partition), str(offset))
        return [(name, value.encode()) for name, value in zip(_ORIGIN, values, strict=True)]


def open_reader(request: Request, plan: PartitionPlan) -> PartitionReader:
    """Returns the reader of one partition; a worker opens the lake once for all of them."""
    return PartitionReader(request, plan, _opened(request.lake, request.at))


@lru_cache(maxsize=1)
def _opened(lake: str, at: str | None) -> duckdb.DuckDBPyConnection:
    """Opens the lake with one thread, as partitions are read side by side."""
    return open_database(lake, NAMES, 1, at)


def _unusual(rows: pa.Table, limits: Limits, now: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns whether each record's offset is that of the one before, and the numbers of unusual records.

    Few records are looked at more closely: most are small, without headers, and of a time that the target
    takes.
    """
    offsets, times = (rows.column(name).to_numpy() for name in ("offset", "timestamp_ms"))
    sizes = [pc.fill_null(pc.binary_length(rows.column(name)), 0).to_numpy() for name in ("key", "value")]
    headers = pc.fill_null(pc.list_value_length(rows.column("headers")), 0).to_numpy()
    twice = np.diff(offsets, prepend=-1) == 0
    of_time = (times == 0) | (times < now - limits.before) | (times > now + limits.after)
    is_large = np.add(*sizes, dtype=np.int64) > limits.max_bytes - _OVERHEAD
    return twice, np.flatnonzero(twice | of_time | is_large | (headers > 0))


def _why_held(
    key: bytes | None, value: bytes | None, headers: Headers, timestamp: int, limits: Limits, now: int
) -> str:
    """Returns why a record can't be written as it was; "" where it can."""
    # rd_kafka_producev takes it for none, and writes the present time
    if timestamp == 0 and limits.keeps_time:
        return "its timestamp is 0, for which the client writes the present time"
    if setting := limits.refuses(timestamp, now):
        return f"{setting} of the target refuses its timestamp"
    if headers and any("\ufffd" in name for name, _ in headers):
        return "the name of a header is not UTF-8"
    if record_batch_bytes(key, value, headers or ()) > limits.max_bytes:
        return "it is larger than max.message.bytes or segment.bytes of the target"
    return ""


def record_batch_bytes(
    key: bytes | None, value: bytes | None, headers: Sequence[tuple[str, bytes | None]]
) -> int:
    """Returns the bytes of a record batch of format 2 with this one record, without compression.

    Source: kafka, DefaultRecord.sizeOf and DefaultRecordBatch.RECORD_BATCH_OVERHEAD (61).
    """
    body = 3 + _sized(key) + _sized(value) + _varint(len(headers))
    for name, content in headers:
        body += _sized(name.encode()) + _sized(content)
    return 61 + _varint(body) + body


def _sized(content: bytes | None) -> int:
    return 1 if content is None else _varint(len(content)) + len(content)


def _varint(number: int) -> int:
    """Returns the bytes of a number of 0 or above as a zigzag varint."""
    return max(1, ((number << 1).bit_length() + 6) // 7)
