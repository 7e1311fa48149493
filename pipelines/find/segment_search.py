"""Searches a range of one segment.

Of its batches those that may hold a match are expanded; of these the columns that conditions read are built,
and whole records of matches alone. Which may hold one is known before, by the header: offsets, timestamps,
the producer, whether the batch is of a transaction; and by the bytes of a batch that is not compressed:
whether they hold a text that every match holds. The checksum was right, so headers are taken at their word,
as a broker and its consumers do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from kafka_log_lake.pipelines.find.conditions import Condition, InBounds, OneOf, columns_of, matching, taken
from kafka_log_lake.udfs.decoder.decoded import Bounds, Group, Range
from kafka_log_lake.udfs.decoder.segment_decoder import SegmentDecoder
from kafka_log_lake.udfs.format import layout as f
from kafka_log_lake.udfs.kernels.record_builder import RecordBuilder
from kafka_log_lake.udfs.kernels.substring import plain_batches_with
from kafka_log_lake.udfs.storage.byte_source import ByteSource

# The columns of a match: of ``records`` those that a file alone knows
COLUMNS = (
    *("offset", "timestamp_ms", "timestamp", "key", "value", "headers", "batch_position"),
    *("producer_id", "producer_epoch", "is_transactional", "is_control", "control_type", "leader_epoch"),
)
_LARGE = ("value", "headers")  # columns that are not built to look at keys


@dataclass(frozen=True)
class Criteria:
    """The conditions that all must hold for a match.

    only_transactional: whether nothing outside transactions matches.
    """

    conditions: tuple[Condition, ...] = ()
    only_transactional: bool = False

    def split(self) -> tuple[list[Condition], list[Condition]]:
        """Returns the conditions to evaluate first, and those on the large columns of what these leave."""
        late = [condition for condition in self.conditions if set(condition.columns) & set(_LARGE)]
        early = [condition for condition in self.conditions if condition not in late]
        return (
            (early, late) if any("key" in condition.columns for condition in early) else ([*early, *late], [])
        )


class SegmentSearch:
    """Searches a range of one segment; iterate once. ``decoder.totals`` has what was read."""

    def __init__(
        self, source: ByteSource, range_: Range, search: Criteria, columns: Sequence[str], **limits: int
    ) -> None:
        """Takes a range of a segment and the criteria.

        columns: those of the matches to build. limits: see SegmentDecoder.
        """
        self._first, self._then = search.split()
        self._builder = RecordBuilder({*columns, *columns_of(self._then)})
        self._columns = columns
        read = columns_of(self._first) or {"magic"}
        self._is_whole = not self._then and read >= set(columns)
        self.decoder = SegmentDecoder(
            source,
            range_,
            columns=read,
            content_crc=False,
            select=BatchFilter(search.conditions, search.only_transactional),
            **limits,  # type: ignore[arg-type]
        )

    def __iter__(self) -> Iterator[tuple[Group, pa.RecordBatch | None]]:
        """Yields each group of batches with its matches in the order of the log; None if it has none."""
        before = 0  # records of the same large batch in the groups before
        for group in self.decoder:
            records = group.records
            if records is None or group.holders is None:
                before = 0
                yield group, None
                continue
            in_chunks = group.holders is not group.batches
            numbers = matching(self._first, records)
            if not len(numbers):
                matches = None
            elif self._is_whole:
                matches = taken(records, numbers)
            else:
                first = before if in_chunks else 0
                matches = self._builder.take(self.decoder.data, group.holders, numbers + first, in_chunks)
                matches = taken(matches, matching(self._then, matches))
            before = before + records.num_rows if in_chunks else 0
            yield group, matches.select(self._columns) if matches else None


_MOST_TEXTS = 4  # more than these cost more than the keys of the records


class BatchFilter:
    """Tells which batches are worth expanding: the ``select`` of SegmentDecoder."""

    def __init__(self, conditions: Sequence[Condition], only_transactional: bool = False) -> None:
        self._bounds = [condition for condition in conditions if isinstance(condition, InBounds)]
        producers = [
            condition
            for condition in conditions
            if isinstance(condition, OneOf) and condition.column == "producer_id"
        ]
        self._producers = [producer.values.to_numpy() for producer in producers]
        self._only_transactional = only_transactional
        self._texts = [np.frombuffer(text, dtype=np.uint8) for text in _texts(conditions)]
        self._places: list[np.ndarray] = []

    def __call__(self, window: np.ndarray, batches: np.ndarray) -> np.ndarray:
        """Returns bool[n]: which of ``batches`` (BATCH[n]) in ``window`` (uint8) may hold a match."""
        wanted = np.ones(len(batches), dtype=bool)
        for bound in self._bounds:
            overlaps = _overlaps_offsets if bound.column == "offset" else _overlaps_times
            wanted &= np.any([overlaps(batches, bounds) for bounds in bound.bounds], axis=0)
        for producers in self._producers:
            wanted &= np.isin(batches["producer_id"], producers)
        if self._only_transactional:
            wanted &= batches["attributes"] & f.TRANSACTIONAL_MASK != 0
        if self._texts and wanted.any():
            wanted &= self._hold_texts(window, batches)
        return wanted

    def _hold_texts(self, window: np.ndarray, batches: np.ndarray) -> np.ndarray:
        if not self._places:
            counts = np.bincount(window[: 1 << 13], minlength=256)
            self._places = [_rarest(text, counts) for text in self._texts]
        may_hold = batches["fault"] != 0
        for text, places in zip(self._texts, self._places, strict=True):
            plain_batches_with(window, batches, text, places, may_hold)
        return may_hold


def _texts(conditions: Iterable[Condition]) -> tuple[bytes, ...]:
    """Returns the texts of the condition whose shortest text is longest; () if none has few enough."""
    some = [condition.literals for condition in conditions if condition.literals]
    some = [texts for texts in some if len(texts) <= _MOST_TEXTS and all(texts)]
    return max(some, key=lambda texts: min(map(len, texts)), default=())


def _rarest(text: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Returns int64[3]: the indexes of the bytes of a text that are rarest by ``counts`` (int64[256])."""
    order: np.ndarray = np.resize(np.argsort(counts[text], kind="stable"), 3)
    return order.astype(np.int64)


def _overlaps_offsets(batches: np.ndarray, bounds: Bounds) -> np.ndarray:
    """Returns bool[n]: which batches may hold offsets within bounds.

    The first offset of a wrapper is not known before it is expanded; in magic 0 its own may be wrong. A last
    offset past int64 wraps around.
    """
    is_wrapper = (batches["magic"] < f.MAGIC_V2) & (batches["codec"] != f.CODEC_NONE)
    may_overlap = np.ones(len(batches), dtype=bool)
    if bounds.low is not None:
        may_overlap &= (
            (is_wrapper & (batches["magic"] == f.MAGIC_V0))
            | (batches["last_offset"] >= bounds.low)
            | (batches["last_offset"] < batches["base_offset"])
        )
    if bounds.high is not None:
        may_overlap &= is_wrapper | (batches["base_offset"] < bounds.high)
    return may_overlap


def _overlaps_times(batches: np.ndarray, bounds: Bounds) -> np.ndarray:
    """Returns bool[n]: which batches may hold timestamps within bounds, by their headers.

    The highest timestamp applies to all records where the broker set it, or where there is one record. Where
    producers set it, records that need not be decompressed are looked at: a header may lie.
    """
    newest = batches["max_timestamp"]
    is_known = newest >= 0
    is_of_all = (batches["timestamp_type"] == f.LOG_APPEND_TIME) | (
        (batches["magic"] == f.MAGIC_V1) & (batches["codec"] == f.CODEC_NONE)
    )
    may_overlap = np.ones(len(batches), dtype=bool)
    if bounds.low is not None:
        is_plain = (batches["magic"] >= f.MAGIC_V2) & (batches["codec"] == f.CODEC_NONE)
        may_overlap &= ~is_known | (is_plain & ~is_of_all) | (newest >= bounds.low)
    if bounds.high is not None:
        may_overlap &= ~is_known | ~is_of_all | (newest < bounds.high)
    return may_overlap
