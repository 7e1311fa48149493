"""Lists the data files of ``records`` by topic, and detects the formats of keys and values in a sample."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable

from kafka_log_lake.pipelines.engine.delta import data_files
from kafka_log_lake.pipelines.lake.address import table_path
from kafka_log_lake.udfs.format.schema import RECORDS
from kafka_log_lake.udfs.storage.store import open_store
from kafka_log_lake.udfs.values.schemas.profile import (
    COLUMNS,
    PayloadFormat,
    PayloadKind,
    count_looks,
    payload_formats,
)
from kafka_log_lake.udfs.values.schemas.registry import Registry
from kafka_log_lake.udfs.values.typed import files as typed_files

_FILES, _ROWS = 4, 100  # files of a topic, and rows of each, that a sample has


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


def sampled_formats(lake: str, records: DeltaTable, registry: Registry) -> list[PayloadFormat]:
    """Detects the formats of keys and values from some rows of each topic. records: the open table."""
    from kafka_log_lake.udfs.values.typed.functions import TypedFunctions  # loads the decoders

    functions = TypedFunctions(registry)
    looks: dict[str, Counter[PayloadKind]] = defaultdict(Counter)
    for topic, files in files_by_topic(records).items():
        ordered = sorted(files, key=lambda file: file.path)
        for file in ordered[:: max(1, len(files) // _FILES)][:_FILES]:
            with suppress(OSError, pa.ArrowException):  # a file that is gone has no sample
                rows = first_rows(lake, file, _ROWS, (*COLUMNS, "is_control"))
                data = rows.filter(pc.invert(rows.column("is_control")))
                looks[topic] += count_looks(functions, topic, data)
    return payload_formats(looks)
