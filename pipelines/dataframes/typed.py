"""Plans a read with option ``typed``: learns one topic's types, so that all tasks give the same columns."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from kafka_log_lake.pipelines.cli.errors import UserError
from kafka_log_lake.pipelines.dataframes.slices import list_requested
from kafka_log_lake.pipelines.listing.listing import LISTING_SCHEMA
from kafka_log_lake.udfs.decoder.decoded import Range
from kafka_log_lake.udfs.format.schema import RECORDS
from kafka_log_lake.udfs.storage.opening import open_source
from kafka_log_lake.udfs.values.schemas.registry import Registry
from kafka_log_lake.udfs.values.typed.files import types_of, types_text
from kafka_log_lake.udfs.values.typed.records import (
    NEEDED,
    TypedRecords,
    data_records,
    plain_of_sample,
    registry_of,
    schemas_next_to,
)
from kafka_log_lake.udfs.values.typed.sample import sample_of_segments, segments_by_topic

if TYPE_CHECKING:
    from kafka_log_lake.pipelines.dataframes.options import Options
    from kafka_log_lake.udfs.spark.protocol import TableRead

_OF_RECORDS = (
    *("topic", "partition", "offset", "timestamp", "headers", "segment", "key", "value"),
    "is_control",
)


@dataclass(frozen=True)
class TypedPlan:
    """The plan of a typed read for its tasks. types, plain: of ``TypedRecords``, as text. schema: of rows."""

    registry: Registry
    topic: str
    types: str
    plain: str
    schema: pa.Schema


def plan_typed(options: Options) -> TypedPlan:
    """Decodes the topic once, to know its columns. Raises a UserError for several topics."""
    segments = list_requested(options)
    topics = sorted({segment.topic for segment in segments})
    if len(topics) > 1:
        raise UserError(f"typed is for one topic, not several: {len(topics)}: add option topics")
    registry = registry_of(schemas_next_to({segment.segment.rpartition("/")[0] for segment in segments}))
    listed = pa.Table.from_pylist([vars(segment) for segment in segments], LISTING_SCHEMA)
    sample = sample_of_segments(segments_by_topic(listed)[topics[0]])
    typed_records = TypedRecords(registry, topics[0], plain_of_sample(registry, topics[0], sample))
    for segment in segments:
        with closing(open_source(segment.uri)) as source:
            for records in data_records(source, Range(source.size()), NEEDED):
                typed_records.learn(records)
    plan = TypedPlan(registry, topics[0], types_text(typed_records.types), typed_records.plain, pa.schema([]))
    return replace(
        plan, schema=next(typed_rows(plan, iter([pa.RecordBatch.from_pylist([], _records_schema())]))).schema
    )


def _records_schema() -> pa.Schema:
    return pa.schema([RECORDS.arrow_schema().field(name) for name in _OF_RECORDS])


def records_read(read: TableRead) -> TableRead:
    """Returns the read of the columns of ``records`` that typed rows are made of."""
    return replace(read, names=_OF_RECORDS, schema=_records_schema())


def typed_rows(plan: TypedPlan, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Converts rows of ``records_read`` to typed rows, without ``is_control``; runs in a task."""
    typed_records = TypedRecords(plan.registry, plan.topic, plan.plain, types_of(plan.types))
    for batch in rows:
        yield typed_records.convert(batch).drop_columns(["is_control"])
