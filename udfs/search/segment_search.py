"""Searches a range of one segment.

Of its batches those that may hold a match are expanded; of these the columns that conditions read are built,
and whole records of matches alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from udfs.decoded import Group, Range
from udfs.kernels.record_builder import RecordBuilder
from udfs.search.batch_filter import BatchFilter
from udfs.search.conditions import Condition, columns_of, matching, taken
from udfs.segment_decoder import SegmentDecoder
from udfs.source.byte_source import ByteSource

# The columns of a match: of ``records`` those that a file alone knows
COLUMNS = (
    *("offset", "timestamp_ms", "timestamp", "key", "value", "headers", "batch_position"),
    *("producer_id", "producer_epoch", "is_transactional", "is_control", "control_type"),
)
_LARGE = ("value", "headers")  # columns that are not built to look at keys


@dataclass(frozen=True)
class Search:
    """What is looked for: conditions that all must hold.

    only_transactional: whether nothing outside transactions matches.
    """

    conditions: tuple[Condition, ...] = ()
    only_transactional: bool = False

    def split(self) -> tuple[list[Condition], list[Condition]]:
        """The conditions to evaluate first, and those that need the large columns of what these leave."""
        late = [one for one in self.conditions if set(one.columns) & set(_LARGE)]
        early = [one for one in self.conditions if one not in late]
        return (early, late) if any("key" in one.columns for one in early) else ([*early, *late], [])


class SegmentSearch:
    """Searches a range of one segment; iterate once. ``decoder.totals`` has what was read."""

    def __init__(
        self, source: ByteSource, range_: Range, search: Search, columns: Sequence[str], **limits: int
    ) -> None:
        """columns: of the matches, without any they are counted. limits: see SegmentDecoder."""
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
        """Each group of batches, and its matches in the order of the log; None without any."""
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
