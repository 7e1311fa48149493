"""Defines what the searches over segments and over a lake share: matches and notes of the unsearched."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from kafka_log_lake.pipelines.find.copies import COPY_COLUMNS, CopyLocator, copy_columns
from kafka_log_lake.pipelines.find.logs import LakeLog, SegmentLog
from kafka_log_lake.pipelines.find.request import Request
from kafka_log_lake.pipelines.find.segment_search import COLUMNS
from kafka_log_lake.pipelines.find.slice_search import DECIDING, LastOffsets
from kafka_log_lake.pipelines.find.unsearched import Unsearched, offsets_of
from kafka_log_lake.pipelines.tasks.slice_scan import DamagedRange
from kafka_log_lake.udfs.batches.account import WRONG_BASE, Unseen
from kafka_log_lake.udfs.batches.committed import Outcomes
from kafka_log_lake.udfs.files import SCHEMA as SEGMENT_SCHEMA

if TYPE_CHECKING:
    from kafka_log_lake.udfs.values.schemas.registry import Registry

SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        *((name, SEGMENT_SCHEMA.field(name).type) for name in COLUMNS),
        ("segment", pa.string()),
        ("outcome", pa.string()),
    ]
)


@dataclass(kw_only=True)
class Searching:
    """Base of a search. Iterate once; then ``unsearched`` and the counts tell what was read.

    registry: the schemas of values, where conditions look into them. copies: of disks with names.
    passed_over: logs that were left out because the partitioner is trusted. displaced: a line for each range
    of offsets whose records lie under other offsets, and are matched under those: all offsets are searched.
    """

    request: Request
    registry: Registry | None = None
    copies: CopyLocator | None = None
    found: int = 0
    passed_over: int = 0
    segments: int = 0
    unsearched: list[Unsearched] = field(default_factory=list)
    displaced: list[str] = field(default_factory=list)

    @property
    def schema(self) -> pa.Schema:
        """Returns SCHEMA, with COPY_COLUMNS for named disks, superseded and is_match if requested."""
        of_copies = COPY_COLUMNS if self.copies is not None else ()
        more = {"superseded": self.request.superseded, "is_match": bool(self.request.context)}
        flags = (pa.field(name, pa.bool_()) for name, wanted in more.items() if wanted)
        return pa.schema([*SCHEMA, *of_copies, *flags])

    @property
    def _is_enough(self) -> bool:
        request = self.request
        return request.only is None and request.limit is not None and self.found >= request.limit

    def _request_of(self, topic: str) -> Request:
        """Returns the request for a topic, with conditions that look into its schema-encoded values."""
        if self.registry is None:
            return self.request
        from kafka_log_lake.udfs.values.schemas.topic_payloads import (
            TopicPayloads,  # decoders, which other searches do not need
        )

        return self.request.with_payloads(TopicPayloads(self.registry, topic))

    def _whole(
        self, log: SegmentLog | LakeLog, records: pa.RecordBatch, outcomes: Outcomes, last: LastOffsets | None
    ) -> pa.RecordBatch:
        """Completes records of COLUMNS, segment and (with context) is_match to the columns of ``schema``."""
        rows = records.num_rows
        columns = {
            **dict(zip(records.schema.names, records.columns, strict=True)),
            "topic": pa.repeat(pa.scalar(log.topic), rows),
            "partition": pa.repeat(pa.scalar(log.partition, pa.int32()), rows),
            "outcome": outcomes.of(records.select(DECIDING)),
        }
        if self.copies is not None:
            columns |= copy_columns(self.copies, log.topic, log.partition, records)
        if last is not None:
            columns["superseded"] = last.of(records)
        return pa.RecordBatch.from_pydict(columns, self.schema)

    def _note_damages(self, log: SegmentLog | LakeLog, damages: Iterable[DamagedRange]) -> None:
        for damage in damages:
            if self.request.may_hide(damage.first_lost, damage.last_lost):
                self.unsearched.append(Unsearched(log.name, damage.detail, damage))

    def _note_unseen(self, log: SegmentLog | LakeLog, missing: Iterable[Unseen]) -> None:
        for range_ in missing:
            may_hide = self.request.may_hide(range_.first, range_.last)
            if range_.cause == WRONG_BASE and not (self.request.offsets and may_hide):
                offsets = f"offsets {range_.first} to {'the end' if range_.last is None else range_.last}"
                why = "a batch has a wrong base offset"
                self.displaced.append(f"{log.name}: the records of {offsets} lie under other offsets: {why}")
            elif may_hide:
                self.unsearched.append(offsets_of(log.name, range_))
