"""What driver and workers agree on about the stage: its rows, its options, and its callables by name.

The driver plans with this alone. Numba and the decoder are loaded where a callable runs, in the worker: they
would keep the start of every job waiting for a second.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa

from udfs.format.schema import BATCHES, QUARANTINE

Batches = Iterator[pa.RecordBatch]
Stage = Callable[[Batches], Batches]

SLICE_SCHEMA = pa.schema(
    [
        ("group_id", pa.int32()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("log_dir", pa.string()),
        ("segment", pa.string()),
        ("uri", pa.string()),
        ("file_base_offset", pa.int64()),
        ("length", pa.int64()),
        ("modified_us", pa.int64()),
        ("start", pa.int64()),
        ("stop", pa.int64()),
        ("exact_start", pa.bool_()),
        ("has_successor", pa.bool_()),
        ("previous_last_offset", pa.int64()),
        ("fingerprint", pa.string()),
        ("expected_crc32c", pa.int64()),
        ("content", pa.binary()),
        ("chunk_position", pa.int64()),
    ]
)
_SQL_NAMES = {"int32": "int", "int64": "bigint", "bool": "boolean"}
SLICE_DDL = ", ".join(f"{f.name} {_SQL_NAMES.get(str(f.type), str(f.type))}" for f in SLICE_SCHEMA)

REPORT_DDL = "group_id int, kind string, payload string"
REPORT_SCHEMA = pa.schema([("group_id", pa.int32()), ("kind", pa.string()), ("payload", pa.string())])


def _struct_ddl(table: Any) -> str:
    return "struct<" + ",".join(f"`{c.name}`:{c.sql_type}" for c in table.columns) + ">"


FACTS_DDL = f"{REPORT_DDL}, batch {_struct_ddl(BATCHES)}, damage {_struct_ddl(QUARANTINE)}"
FACTS_SCHEMA = pa.schema(
    [
        *REPORT_SCHEMA,
        pa.field("batch", pa.struct(list(BATCHES.arrow_schema()))),
        pa.field("damage", pa.struct(list(QUARANTINE.arrow_schema()))),
    ]
)


@dataclass(frozen=True)
class StageOptions:
    """What a run tells its tasks. ``lake`` is where the arrow sink writes; bytes unless said."""

    run_id: str
    decoded_at_us: int
    window_bytes: int
    max_batch_uncompressed: int
    quarantine_content_bytes: int
    lake: str
    parquet_compression: str


def stage(
    name: Literal["write_tables", "read_facts", "read_records", "land_raw", "read_raw"], options: StageOptions
) -> Stage:
    """A mapInArrow callable of ``udfs.spark.tasks``, by its name there."""

    def run(batches: Batches) -> Batches:
        from udfs.spark import tasks as spark_stage

        makers: dict[str, Callable[[StageOptions], Stage]] = vars(spark_stage)
        yield from makers[name](options)(batches)

    return run
