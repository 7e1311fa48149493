"""Tells what the first keys and values of each segment are, by the schema registry among the logs."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from functools import lru_cache

import pyarrow as pa

from kafka_log_lake.pipelines.plan.slices import Slice
from kafka_log_lake.udfs.decoder.decoded import Range
from kafka_log_lake.udfs.storage.byte_source import ByteSource
from kafka_log_lake.udfs.values.apps.topic_format import TopicFormats
from kafka_log_lake.udfs.values.schemas.payloads import VALUE
from kafka_log_lake.udfs.values.schemas.profile import COLUMNS, PayloadKind, count_looks
from kafka_log_lake.udfs.values.schemas.registry import Registry
from kafka_log_lake.udfs.values.typed.functions import TypedFunctions
from kafka_log_lake.udfs.values.typed.records import data_records, registry_of

_RECORDS, _OF_TOPIC = 50, 500  # of a segment that are looked at; of a topic, after which none is
_BYTES = 1 << 20  # of a segment in which their batches begin


@dataclass(frozen=True)
class SchemaSegments:
    """The segments of ``_schemas``, from which each worker reads the registry once in a scan.

    uris: of the segments of ``_schemas``. formats: what a person says of topics. scan: no other scan of a
    process has it, as segments grow.
    """

    uris: tuple[str, ...] = ()
    formats: TopicFormats = field(default_factory=TopicFormats)
    scan: int = field(default_factory=time.monotonic_ns)


def first_looks(source: ByteSource, slice_: Slice, schemas: SchemaSegments) -> Counter[PayloadKind]:
    """Counts what the payloads of the first data records of a segment are.

    None for a later slice, and once this process has seen enough of a topic.
    """
    sample, topic = _sample(schemas), slice_.segment.topic
    if slice_.start or sample.seen[topic] >= _OF_TOPIC:
        return Counter()
    rows = _first_rows(source, Range(slice_.segment.length, stop=min(_BYTES, slice_.stop)))
    sample.seen[topic] += rows.num_rows
    if not rows.num_rows:
        return Counter()
    try:
        return count_looks(sample.functions, topic, rows)
    except ModuleNotFoundError as error:  # the extra typed is not installed
        return Counter(
            {PayloadKind(VALUE, "protobuf", None, f"needs the package {error.name}"): rows.num_rows}
        )


def _first_rows(source: ByteSource, range_: Range) -> pa.Table:
    batches, left = [], _RECORDS
    for rows in data_records(source, range_, (*COLUMNS, "is_control")):
        batches.append(rows.select(COLUMNS)[:left])
        left -= batches[-1].num_rows
        if not left:
            break
    return pa.Table.from_batches(batches) if batches else pa.table({name: [] for name in COLUMNS})


class _Sample:
    """Counts what one process has looked at in one scan. seen: records by topic."""

    def __init__(self, schemas: SchemaSegments) -> None:
        said = Registry(formats=schemas.formats)
        self.functions = TypedFunctions(Registry.joined([registry_of(schemas.uris), said]))
        self.seen: Counter[str] = Counter()


@lru_cache(maxsize=1)
def _sample(schemas: SchemaSegments) -> _Sample:
    return _Sample(schemas)
