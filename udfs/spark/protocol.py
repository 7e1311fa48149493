"""Defines what driver and workers exchange: rows of slices, options, reports.

The driver plans with this alone. The decoder is loaded where a callable runs, in the worker: loading it would
delay the start of every job waiting.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum

import pyarrow as pa

from kafka_log_lake.udfs.decoder.decoded import ALL, Scope, Totals
from kafka_log_lake.udfs.format.schema import BATCHES, QUARANTINE, RECORDS, Column

ArrowBatches = Iterator[pa.RecordBatch]
Stage = Callable[[ArrowBatches], ArrowBatches]


def schema_of(ddl: str) -> pa.Schema:
    """Returns the Arrow schema of columns in Spark's DDL, of types without a comma or a blank."""
    columns = (column.split(" ") for column in ddl.split(", "))
    return pa.schema([(name, Column(name, kind, "").arrow_type) for name, kind in columns])


SLICE_DDL = (
    "group_id int, topic string, partition int, partition_dir string, segment string, file string, "
    "file_base_offset bigint, length bigint, modified bigint, log_start_offset bigint, topic_id string, "
    "start bigint, stop bigint, exact_start boolean, has_successor boolean, previous_last_offset bigint, "
    "fingerprint string, expected_crc32c bigint, scope string, landed array<string>, content binary, "
    "chunk_position bigint"
)
SLICE_SCHEMA = schema_of(SLICE_DDL)

# Rows that a stage returns: a report of a slice, or a data file, as JSON
REPORT_DDL = "group_id int, kind string, payload string"
REPORT_SCHEMA = schema_of(REPORT_DDL)
SLICE, FILE = "slice", "file"

# The same with rows of batches and quarantine, for the way in which Spark writes the tables
BATCH_ROW, DAMAGE_ROW = "batch", "damage"
STAGED_DDL = f"{REPORT_DDL}, {BATCH_ROW} {BATCHES.struct_ddl()}, {DAMAGE_ROW} {QUARANTINE.struct_ddl()}"
STAGED_SCHEMA = pa.schema(
    [
        *REPORT_SCHEMA,
        pa.field(BATCH_ROW, pa.struct(list(BATCHES.arrow_schema()))),
        pa.field(DAMAGE_ROW, pa.struct(list(QUARANTINE.arrow_schema()))),
    ]
)


# Files to be written again: ``udfs.arrow.rewriting.Rewrite`` as JSON
REWRITE_SCHEMA = schema_of("number int, payload string")


class Problem(StrEnum):
    """The reason why nothing of a slice may be committed."""

    CHANGED = "changed"  # the file is not what was planned
    UNREADABLE = "unreadable"  # the file can't be opened or read at all


@dataclass(frozen=True)
class SliceReport:
    """A worker's report of one slice. start: its first byte; fingerprint: of the segment up to its end."""

    group_id: int
    segment: str
    start: int
    totals: Totals = field(default_factory=Totals)
    fingerprint: str | None = None
    problem: Problem | None = None
    detail: str = ""

    def to_json(self) -> str:
        return json.dumps(self, default=vars)

    @classmethod
    def from_json(cls, text: str) -> SliceReport:
        values = json.loads(text)
        totals, problem = Totals(**values.pop("totals")), values.pop("problem")
        return cls(**values, totals=totals, problem=problem and Problem(problem))


@dataclass(frozen=True)
class StageOptions:
    """The options of a run for its tasks. Sizes are in bytes; ``lake`` is where data files are written.

    began_us: when the run began, microseconds since 1970 UTC.
    parquet_compression_level: None for the default of the codec. tier_key: ``ID=FILE.pem`` of each private
    key of encrypted objects.
    """

    run_id: str
    began_us: int
    window_bytes: int
    max_batch_uncompressed: int
    quarantine_content_bytes: int
    lake: str
    parquet_compression: str
    parquet_compression_level: int | None = None
    tier_key: tuple[str, ...] = ()


@dataclass(frozen=True)
class TableRead:
    """The columns and records to read of slices.

    table: ``records``, ``batches`` or ``quarantine``. names: its columns in the order of the rows; schema:
    the rows, under the user's names. failfast: whether damage fails the read. scope: of records.
    """

    table: str
    names: tuple[str, ...]
    schema: pa.Schema
    failfast: bool
    options: StageOptions
    scope: Scope = ALL

    @property
    def decoded(self) -> set[str]:
        """Returns the columns of ``records`` to decode, at least one; none for the rows of another table."""
        if self.table != RECORDS.name:
            return set()
        return {"offset", *self.names, *self.scope.bounds}


# The rows that ``decode_frame`` takes; position is null where each row is a value of its own. Content is
# null of a file that the task opens, whose length is its position. A chunk that is read where it was landed
# has in place of content its ``file``: the URI of a file of raw_segments, percent-encoded
FRAME_SCHEMA = schema_of("topic string, partition int, segment string, position bigint, content binary")


@dataclass(frozen=True)
class FrameRead(TableRead):
    """The columns to read of the rows of a DataFrame: see ``TableRead``; ``records`` may have ``error`` too.

    content, position, segment: what the user calls these columns. warns: whether the log tells of damage.
    is_chunked: whether a row is a chunk, at its position, of the segment that it names. is_landed: whether
    the chunks are read from the files of raw_segments that hold them. are_files: whether the task opens the
    segments, up to their positions.
    """

    content: str = "content"
    position: str = "position"
    segment: str = "segment"
    warns: bool = True
    is_chunked: bool = False
    is_landed: bool = False
    are_files: bool = False

    @property
    def places(self) -> pa.Schema:
        """Returns the schema of the columns that say which log the bytes are of."""
        return pa.schema([FRAME_SCHEMA.field(name) for name in ("topic", "partition", "segment")])
