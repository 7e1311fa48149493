"""Takes the sample of a topic by which its keys and values are recognised.

One rule for segments and for lakes, so that all commands name the same kind: the first SAMPLED data records
of a topic, by partition, base offset of the segment and position, in batches that begin in the first
HEAD_BYTES of their segment. After MOST_BYTES of keys and values no record is added. The view
``topic_samples`` is this rule in SQL.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafka_log_lake.udfs.decoder.decoded import Range
from kafka_log_lake.udfs.storage.byte_source import SourceError
from kafka_log_lake.udfs.storage.opening import open_source
from kafka_log_lake.udfs.values.sampling import HEAD_BYTES, MOST_BYTES, SAMPLED
from kafka_log_lake.udfs.values.schemas.payloads import KEY, VALUE
from kafka_log_lake.udfs.values.typed.records import data_records

SAMPLE_COLUMNS = (KEY, VALUE, "headers")
_ORDER = [(name, "ascending") for name in ("partition", "file_base_offset", "segment")]


def segments_by_topic(segments: pa.Table) -> dict[str, list[str]]:
    """Returns the URIs of each topic's segments in the order of the sample. segments: LISTING_SCHEMA."""
    by_topic: dict[str, list[str]] = defaultdict(list)
    ordered = segments.select(["topic", "file", *(name for name, _ in _ORDER)]).sort_by(_ORDER)
    columns = (ordered.column(name).to_pylist() for name in ("topic", "segment", "file"))
    for topic, segment, file in zip(*columns, strict=True):
        by_topic[topic].append(file or segment)
    return by_topic


def sample_of_segments(uris: Iterable[str]) -> pa.Table:
    """Returns the sample of one topic: SAMPLE_COLUMNS. uris: its segments, see ``segments_by_topic``."""
    return sample_of(_heads(uris))


def sample_of(records: Iterable[pa.RecordBatch]) -> pa.Table:
    """Returns the first data records up to SAMPLED and MOST_BYTES: SAMPLE_COLUMNS. records: in order."""
    taken: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in records:
        sizes = size + np.cumsum(_sizes(batch.column(KEY)) + _sizes(batch.column(VALUE)))
        few = batch.select(SAMPLE_COLUMNS)[: min(SAMPLED - rows, np.searchsorted(sizes, MOST_BYTES) + 1)]
        if few.num_rows:
            taken.append(few)
            rows, size = rows + few.num_rows, int(sizes[few.num_rows - 1])
        if rows == SAMPLED or size >= MOST_BYTES:
            break
    return pa.Table.from_batches(taken) if taken else pa.table({name: [] for name in SAMPLE_COLUMNS})


def _heads(uris: Iterable[str]) -> Iterator[pa.RecordBatch]:
    """Yields the data records of the batches that begin in the first HEAD_BYTES of segments."""
    for uri in uris:
        with suppress(SourceError), closing(open_source(uri)) as source:
            length = source.size()
            head = Range(length, stop=min(HEAD_BYTES, length))
            yield from data_records(source, head, (*SAMPLE_COLUMNS, "is_control"))


def _sizes(column: pa.Array) -> np.ndarray:
    return pc.fill_null(pc.binary_length(column), 0).to_numpy(zero_copy_only=False).astype(np.int64)
