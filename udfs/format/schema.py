"""Declares every table and column of a lake, once: name, type, comment.

The tables (``pipelines.lake.create``), the Arrow schemas of the stage and ``docs/tables.md``
(``tools.tables_doc``) are made of these declarations. The first eight columns of ``records`` have the names
and types of Spark's Kafka source.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

HEADER_TYPE = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))

_SQL_TYPES = {
    "string": pa.string(),
    "binary": pa.binary(),
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "timestamp": pa.timestamp("us", "UTC"),
    "array<struct<key:string,value:binary>>": HEADER_TYPE,
    "array<string>": pa.list_(pa.string()),
    "array<int>": pa.list_(pa.int32()),
    "map<string,double>": pa.map_(pa.string(), pa.float64()),
}


@dataclass(frozen=True)
class Column:
    """A column of a table. ``sql_type`` determines the Arrow type too.

    bounds: whether each data file's lowest and highest value go into Delta's log, so that a query reads only
    the files it must. Binary columns can have none.
    """

    name: str
    sql_type: str
    comment: str
    bounds: bool = False

    @property
    def arrow_type(self) -> pa.DataType:
        return _SQL_TYPES[self.sql_type]


@dataclass(frozen=True, eq=False)  # hashed by identity: the columns take 15 microseconds
class Table:
    """A Delta table: columns in order, partition columns, and what it is for."""

    name: str
    comment: str
    partitioned_by: tuple[str, ...]
    columns: tuple[Column, ...]

    def arrow_schema(self) -> pa.Schema:
        """Returns the Arrow schema of all columns, partition columns too, in declared order."""
        return pa.schema([pa.field(c.name, c.arrow_type) for c in self.columns])

    def ddl(self) -> str:
        """Returns the columns as Spark writes a schema: ```name` type, ...``."""
        return ", ".join(f"`{c.name}` {c.sql_type}" for c in self.columns)

    def struct_ddl(self) -> str:
        """Returns the columns as one SQL struct type."""
        return "struct<" + ",".join(f"`{c.name}`:{c.sql_type}" for c in self.columns) + ">"

    @property
    def bounded(self) -> tuple[str, ...]:
        """Returns the names of the columns whose bounds go into Delta's log."""
        return tuple(c.name for c in self.columns if c.bounds)

    def file_schema(self) -> pa.Schema:
        """Returns the schema of the data files: the columns that the table is not partitioned by."""
        return pa.schema(
            [pa.field(c.name, c.arrow_type) for c in self.columns if c.name not in self.partitioned_by]
        )


BOUNDS = True


def columns(*rows: tuple[Any, ...]) -> tuple[Column, ...]:
    return tuple(Column(*row) for row in rows)


RECORDS = Table(
    "records",
    "Every record of every sound batch, control records too",
    ("topic", "partition", "magic"),
    columns(
        ("key", "binary", "Record key; null and empty differ"),
        ("value", "binary", "Record value; null (a tombstone) and empty differ"),
        ("topic", "string", "Topic, from the partition folder's name"),
        ("partition", "int", "Partition, from the partition folder's name"),
        ("offset", "bigint", "Offset of the record in its partition", BOUNDS),
        ("timestamp", "timestamp", "Record timestamp; null: none, or outside years 1 to 9999", BOUNDS),
        ("timestampType", "int", "0 create time, 1 log append time, -1 none"),
        (
            "headers",
            "array<struct<key:string,value:binary>>",
            "Headers in order, with repeats; null where there are none",
        ),
        ("magic", "tinyint", "Message format of the batch on disk: 0, 1 or 2"),
        ("timestamp_ms", "bigint", "Timestamp as stored, milliseconds; -1 none", BOUNDS),
        ("segment", "string", "Canonical URI of the segment file", BOUNDS),
        (
            "batch_position",
            "bigint",
            "Byte where the batch starts in the segment; joins to batches.position",
            BOUNDS,
        ),
        ("sequence", "int", "Producer sequence number; -1 none"),
        ("producer_id", "bigint", "Producer id; -1 none", BOUNDS),
        ("producer_epoch", "smallint", "Producer epoch; -1 none"),
        ("leader_epoch", "int", "Partition leader epoch; -1 none, and for magic 0 and 1"),
        ("is_transactional", "boolean", "Written in a transaction"),
        ("is_control", "boolean", "A control record, not data"),
        ("control_type", "string", "Type of a control record; null for data"),
        ("size_bytes", "int", "Size of the record as Kafka's Record.sizeInBytes() gives it"),
    ),
)

BATCHES = Table(
    "batches",
    "Every batch on disk with a legal length that fits the file, sound or not, with its checksum verdict",
    ("topic", "partition", "magic"),
    columns(
        ("topic", "string", "Topic, from the partition folder's name"),
        ("partition", "int", "Partition, from the partition folder's name"),
        ("magic", "tinyint", "Message format: 0, 1 or 2"),
        ("segment", "string", "Canonical URI of the segment file", BOUNDS),
        ("position", "bigint", "Byte where the batch starts in the segment", BOUNDS),
        ("size_bytes", "int", "Size on disk: 12 + length"),
        (
            "base_offset",
            "bigint",
            "First offset; of a wrapper its first inner message's, null where unreadable",
            BOUNDS,
        ),
        ("last_offset", "bigint", "Last offset; survives compaction", BOUNDS),
        ("record_count", "int", "Records decoded from the batch"),
        ("declared_count", "int", "recordsCount of the header; null for magic 0 and 1"),
        ("compression", "string", "none, gzip, snappy, lz4, zstd; unknown for codes 5 to 7"),
        ("attributes", "int", "Attributes as stored"),
        ("timestampType", "int", "0 create time, 1 log append time, -1 none"),
        ("base_timestamp_ms", "bigint", "Base timestamp as stored; magic 0 and 1: the batch's own"),
        ("max_timestamp_ms", "bigint", "Max timestamp as stored; magic 0 and 1: the batch's own", BOUNDS),
        ("max_timestamp", "timestamp", "max_timestamp_ms; null: none, or outside years 1 to 9999", BOUNDS),
        ("delete_horizon_ms", "bigint", "Delete horizon; null where attribute bit 6 is not set"),
        ("leader_epoch", "int", "Partition leader epoch; -1 none, and for magic 0 and 1"),
        ("producer_id", "bigint", "Producer id; -1 none", BOUNDS),
        ("producer_epoch", "smallint", "Producer epoch; -1 none"),
        ("base_sequence", "int", "Sequence of the first record; -1 none"),
        ("last_sequence", "int", "Sequence of the last record; -1 none"),
        ("is_transactional", "boolean", "Written in a transaction"),
        ("is_control", "boolean", "A control batch"),
        ("control_type", "string", "Control type of the first record; null for data"),
        ("coordinator_epoch", "int", "Coordinator epoch of an ABORT or COMMIT marker; else null"),
        ("crc_stored", "bigint", "Checksum as stored, unsigned"),
        ("crc_computed", "bigint", "Checksum as computed, unsigned"),
        ("crc_ok", "boolean", "Whether both agree"),
        (
            "payload_bytes",
            "bigint",
            "Magic 2: records as stored; a wrapper: its value; a plain message: the batch",
        ),
        ("uncompressed_bytes", "bigint", "payload_bytes, expanded; 0 where it could not be expanded"),
        ("key_bytes", "bigint", "Sum of key lengths"),
        ("value_bytes", "bigint", "Sum of value lengths"),
        ("header_bytes", "bigint", "Sum of lengths of header keys and values"),
        ("status", "string", "ok, suspect, corrupt, invalid or unsupported"),
        ("error", "string", "Null for ok; else expected and found, with the position"),
    ),
)

QUARANTINE = Table(
    "quarantine",
    "Every damaged byte range, with its bytes and the reason",
    ("topic", "partition"),
    columns(
        ("topic", "string", "Topic, from the partition folder's name"),
        ("partition", "int", "Partition, from the partition folder's name"),
        ("segment", "string", "Canonical URI of the segment file", BOUNDS),
        ("position", "bigint", "First damaged byte", BOUNDS),
        ("size_bytes", "bigint", "Damaged bytes"),
        ("base_offset", "bigint", "Base offset as stored; null where there is no header", BOUNDS),
        (
            "reason",
            "string",
            "crc_mismatch, invalid_record, invalid_header, truncated, unknown_magic, unknown_codec, "
            "decompression_failed, decompressed_too_large, unreadable or garbage",
        ),
        ("detail", "string", "Expected and found"),
        ("content", "binary", "The bytes, up to quarantine_content_bytes"),
        ("next_position", "bigint", "Where decoding went on"),
        ("run_id", "string", "Run that found it"),
    ),
)

SEGMENTS = Table(
    "segments",
    "The ledger: one row a segment, written last by every run",
    (),
    columns(
        ("topic", "string", "Topic", BOUNDS),
        ("partition", "int", "Partition", BOUNDS),
        ("partition_dir", "string", "Canonical URI of the partition folder", BOUNDS),
        ("segment", "string", "Canonical URI of the segment file", BOUNDS),
        ("file_base_offset", "bigint", "Base offset in the file's name", BOUNDS),
        ("length", "bigint", "Length of the file when it was decoded"),
        ("modified", "timestamp", "Modification time of the file then"),
        ("decoded_bytes", "bigint", "length less tail_bytes: where the next run goes on"),
        ("first_offset", "bigint", "Lowest record offset; null without records"),
        ("last_offset", "bigint", "Highest record offset; null without records"),
        ("min_timestamp", "timestamp", "Lowest record timestamp; null without one"),
        ("max_timestamp", "timestamp", "Highest record timestamp; null without one"),
        ("batches", "bigint", "Rows in batches"),
        ("records", "bigint", "Rows in records"),
        ("damaged", "bigint", "Rows in quarantine"),
        ("offset_regressions", "bigint", "Batches whose base offset is not above the last offset before"),
        ("tail", "string", "none, torn or zeros"),
        ("tail_bytes", "bigint", "Bytes of the tail"),
        ("fingerprint", "string", "Marks over the first and the last batch's header before decoded_bytes"),
        ("content_crc32c", "bigint", "CRC-32C of the first decoded_bytes bytes, unsigned (--verify-content)"),
        ("end_offset", "bigint", "Last offset of the last batch before decoded_bytes; null without batches"),
        (
            "ends_in_damage",
            "boolean",
            "Whether damage reaches decoded_bytes: once the file changes, the segment is decoded anew",
        ),
        (
            "log_start_offset",
            "bigint",
            "Base offset of the folder's first segment when this one was first decoded",
        ),
        ("topic_id", "string", "Topic id in the folder's partition.metadata; null where there is none"),
        (
            "scope",
            "string",
            "The records that --since, --until and --offsets select, as a condition on records; null: all",
        ),
        (
            "left_out",
            "bigint",
            "Its records outside of scope, which are not in records; -1: nothing of it was decoded",
        ),
        ("run_id", "string", "Run that wrote the row"),
        ("decoded_at", "timestamp", "When that run began"),
    ),
)

RAW_SEGMENTS = Table(
    "raw_segments",
    "Landed bytes of segments, in chunks that end at batch boundaries where they can",
    ("topic", "partition"),
    columns(
        ("topic", "string", "Topic"),
        ("partition", "int", "Partition"),
        ("segment", "string", "Canonical URI of the segment file", BOUNDS),
        ("partition_dir", "string", "Canonical URI of the partition folder"),
        ("file_base_offset", "bigint", "Base offset in the file's name"),
        ("chunk_position", "bigint", "First byte of the chunk in the segment", BOUNDS),
        ("chunk_bytes", "bigint", "Bytes in the chunk, 16 MiB at most"),
        ("content", "binary", "The bytes"),
        ("length", "bigint", "Length of the file when it was landed"),
        ("modified", "timestamp", "Modification time of the file then"),
        (
            "crc32c",
            "bigint",
            "CRC-32C of the chunk, unsigned; null where the storage could not read all: zeros stand there",
        ),
        ("fingerprint", "string", "Marks over the first and the last batch's header landed so far"),
        ("whole_bytes", "bigint", "Where the last whole batch ends that was landed so far, by length fields"),
        ("last_offset", "bigint", "Last offset of that batch; null without one"),
        ("log_start_offset", "bigint", "Base offset of the folder's first segment when it was landed"),
        ("topic_id", "string", "Topic id in the folder's partition.metadata; null where there is none"),
        ("landed_at", "timestamp", "When the run began that landed it"),
        ("run_id", "string", "Run that landed it"),
    ),
)

TRANSACTIONS = Table(
    "transactions",
    "Who wrote in which transaction, and how it ended",
    ("topic", "partition"),
    columns(
        ("topic", "string", "Topic"),
        ("partition", "int", "Partition"),
        ("partition_dir", "string", "Canonical URI of the partition folder", BOUNDS),
        ("producer_id", "bigint", "Producer id: data and marker match by it alone", BOUNDS),
        ("producer_epoch", "smallint", "Producer epoch of the data; of the marker where there is none"),
        ("first_offset", "bigint", "First offset of the data; null for a marker without data", BOUNDS),
        ("last_offset", "bigint", "Last offset of the data; null for a marker without data"),
        ("records", "bigint", "Data records; 0 for a marker without data"),
        ("marker_offset", "bigint", "Offset of the marker; null while open", BOUNDS),
        ("coordinator_epoch", "int", "Coordinator epoch of the marker; null while open"),
        ("outcome", "string", "committed, aborted or open"),
        (
            "outcome_uncertain",
            "boolean",
            "The marker may lie where it can't be seen: in damaged bytes, or in segments that were "
            "deleted before they were decoded, or are left out",
        ),
        (
            "holds_last_stable_offset",
            "boolean",
            "Open, and not known to have ended: READ_COMMITTED consumers get nothing from its start on",
        ),
    ),
)

OFFSET_FINDINGS = Table(
    "offset_findings",
    "What runs found of the offsets of logs: which ones no batch has, why, and which base offsets are wrong. "
    "A log without a finding has no row",
    ("topic", "partition"),
    columns(
        ("topic", "string", "Topic"),
        ("partition", "int", "Partition"),
        ("partition_dir", "string", "Canonical URI of the partition folder"),
        (
            "segment",
            "string",
            "Segment that the row belongs to: that of the batch after a hole; the last one of the log for "
            "its end, and for what is said of all of it",
            BOUNDS,
        ),
        (
            "kind",
            "string",
            "hole: offsets that no batch has, or damage after the last batch; wrong_base_offset: a batch "
            "whose base offset is wrong; compacted: the log shows that the log cleaner ran; end: the log "
            "ends elsewhere than the ledger says; stretch: files may be missing for a known reason before "
            "the segment; unread: a file that is there and was not read",
        ),
        ("segment_after", "string", "Segment of the batch after a hole; null at the end of the log"),
        ("segment_before", "string", "Segment of the batch before a hole; null at the start of the log"),
        (
            "file_base_offset",
            "bigint",
            "Base offset in the name of the file; of a hole that of the batch after it, 9223372036854775807 "
            "at the end of the log",
        ),
        ("position", "bigint", "Position of a batch whose base offset is wrong; else null"),
        (
            "first_offset",
            "bigint",
            "First offset; of a batch its base offset as stored; of kind end the log end offset",
        ),
        ("next_offset", "bigint", "The offset after the last one; null at the end of the log"),
        ("damaged_ranges", "bigint", "Damaged ranges between the batch before and the one after a hole"),
        ("damaged_bytes", "bigint", "Their bytes"),
        ("misplaced_batches", "bigint", "Batches between them whose base offset is wrong"),
        ("goes_back", "boolean", "The batch after a hole lies before the other one in the files"),
        ("follows_retention", "boolean", "Retention may have deleted segments there that no run saw"),
        ("is_confirmed", "boolean", "A batch or a file after it confirms the base offset of the batch after"),
        ("is_compacted", "boolean", "The log shows that the log cleaner ran, or its topic is compacted"),
        (
            "cause",
            "string",
            "Why no batch has the offsets of a hole; without damage those below file_base_offset; null: none",
        ),
        (
            "cause_in_file",
            "string",
            "Why no batch has those from file_base_offset on; null where there are none",
        ),
        ("lost_cause", "string", "The cause of the loss; null where the offsets are not lost"),
        ("is_certain", "boolean", "Records were there; null where nothing is lost"),
    ),
)

# The tables of every lake; the reports create others (report_tables)
TABLES = (RECORDS, BATCHES, QUARANTINE, SEGMENTS, RAW_SEGMENTS, TRANSACTIONS, OFFSET_FINDINGS)
# What a run computes from the tables that it decodes into, as they are after it
COMPUTED = (TRANSACTIONS, OFFSET_FINDINGS)
