"""Lists the data files of ``records`` by topic, takes samples of topics, and detects the formats in them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable

from kafka_log_lake.pipelines.engine.delta import data_files, read_rows, sql_literal
from kafka_log_lake.pipelines.lake.address import table_path
from kafka_log_lake.udfs.format.schema import RECORDS
from kafka_log_lake.udfs.storage.store import open_store
from kafka_log_lake.udfs.values.sampling import HEAD_BYTES, MOST_BYTES, SAMPLED
from kafka_log_lake.udfs.values.schemas.profile import (
    PayloadFormat,
    PayloadKind,
    count_looks,
    payload_formats,
)
from kafka_log_lake.udfs.values.schemas.registry import Registry
from kafka_log_lake.udfs.values.typed import files as typed_files
from kafka_log_lake.udfs.values.typed.sample import SAMPLE_COLUMNS, sample_of

# Of the sample (udfs.values.typed.sample); a segment's name has its base offset
_ORDER = 'partition, right(segment, 24), segment, batch_position, "offset"'


@dataclass(frozen=True)
class RecordsFile:
    """A data file of ``records``: its path below the table, and its partition."""

    path: str
    partition: str

    @property
    def name(self) -> str:
        """Returns the signature after which the typed file and the file of errors are named."""
        return typed_files.signature(self.path)


def files_by_topic(records: DeltaTable) -> dict[str, list[RecordsFile]]:
    """Returns the data files of a version of the table records, by topic."""
    by_topic: dict[str, list[RecordsFile]] = defaultdict(list)
    names = ("path", "partition.topic", "partition.partition")
    columns = (column.to_pylist() for column in data_files(records).select(names).columns)
    for path, topic, partition in zip(*columns, strict=True):
        by_topic[topic].append(RecordsFile(path, str(partition)))
    return by_topic


def first_rows(lake: str, file: RecordsFile, rows: int, columns: Sequence[str]) -> pa.Table:
    """Reads the first rows of a data file."""
    system, folder = open_store(table_path(lake, RECORDS.name))
    with system.open_input_file(f"{folder}/{file.path}") as source:
        batch = next(pq.ParquetFile(source).iter_batches(rows, columns=list(columns)), None)
    schema = RECORDS.arrow_schema()
    empty = pa.schema([schema.field(name) for name in columns]).empty_table()
    return empty if batch is None else pa.Table.from_batches([batch])


def lake_sample(records: DeltaTable, topic: str) -> pa.Table:
    """Returns the sample of a topic of a lake. records: the open table."""
    return sample_of(_first_records(records, topic))


def _first_records(records: DeltaTable, topic: str) -> Iterator[pa.RecordBatch]:
    """Yields the first SAMPLED data records of a topic, in parts of MOST_BYTES: all may be gigabytes."""
    where = f"topic = {sql_literal(topic)} AND NOT is_control AND batch_position < {HEAD_BYTES}"
    schema, ordered = RECORDS.arrow_schema(), f"ORDER BY {_ORDER} LIMIT"
    places = read_rows(records, schema, ("segment", "size_bytes"), where, f"{ordered} {SAMPLED}")
    segments = places.column("segment").to_pylist()
    sizes = pc.fill_null(places.column("size_bytes"), 0).to_numpy().astype(np.int64)
    begins = np.unique(np.cumsum(sizes) // MOST_BYTES, return_index=True)[1].tolist()
    for begin, end in pairwise([*begins, len(segments)]):
        named = ", ".join(map(sql_literal, dict.fromkeys(segments[begin:end])))
        rows = f"{ordered} {end - begin} OFFSET {segments[:begin].count(segments[begin])}"
        of_part = f"{where} AND segment IN ({named})"
        yield from read_rows(records, schema, SAMPLE_COLUMNS, of_part, rows).to_batches()


def sampled_formats(records: DeltaTable, registry: Registry) -> list[PayloadFormat]:
    """Detects the formats of keys and values from the sample of each topic. records: the open table."""
    from kafka_log_lake.udfs.values.typed.functions import TypedFunctions  # loads the decoders

    functions = TypedFunctions(registry)
    looks: dict[str, Counter[PayloadKind]] = defaultdict(Counter)
    for topic in files_by_topic(records):
        with suppress(OSError, pa.ArrowException):  # a topic with a file that is gone has no sample
            looks[topic] += count_looks(functions, topic, lake_sample(records, topic))
    return payload_formats(looks)
