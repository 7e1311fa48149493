"""Declares the tables of reports, runs and checkpoints. Each is created when it gets its first rows."""

from __future__ import annotations

from kafka_log_lake.udfs.format.cluster_tables import CLUSTER_TABLES
from kafka_log_lake.udfs.format.index_tables import INDEX_TABLES
from kafka_log_lake.udfs.format.recovery_tables import HEALED_BATCHES, RECOVERY_TABLES
from kafka_log_lake.udfs.format.schema import BOUNDS, Table, columns

FORMAT_SAVINGS = Table(
    "format_savings",
    "What the records of each topic, partition and magic take in each format, and what that costs",
    (),
    columns(
        ("run_id", "string", "Run that wrote the row"),
        ("created_at", "timestamp", "When that run began; the highest is the latest run", BOUNDS),
        (
            "inputs",
            "string",
            "SHA-256 of the ledger's rows and the settings: a run with the same writes nothing",
        ),
        ("topic", "string", "Topic", BOUNDS),
        ("partition", "int", "Partition", BOUNDS),
        ("magic", "tinyint", "Message format on disk: 0, 1 or 2"),
        (
            "layout",
            "string",
            "stored: data batches on disk; control: control batches on disk, which are in no other row; "
            "v0, v1, v2, v3_proposal: the data records in that format",
            BOUNDS,
        ),
        ("batch_records", "int", "Records in a batch, 1, 10, 100 or 1000; null: the batches on disk"),
        ("codec", "string", "none, gzip, snappy, lz4 or zstd; null: as on disk"),
        ("level", "int", "Level of the codec as Kafka counts it; null without one"),
        (
            "basis",
            "string",
            "stored: bytes on disk; exact: by the format's formula; estimated: from a sample",
        ),
        ("records", "bigint", "Records"),
        ("batches", "bigint", "Batches; of v0 and v1 without a codec each message is one"),
        ("bytes", "bigint", "Bytes of the batches with their headers"),
        ("saved_bytes", "bigint", "bytes of the row stored, less bytes; null for control"),
        ("saved_ratio", "double", "saved_bytes / bytes of the row stored; null for control"),
        ("sample_batches", "bigint", "Batches that were compressed; null unless estimated"),
        ("sample_bytes_in", "bigint", "Bytes that went into the codec, without batch headers; null likewise"),
        ("sample_bytes_out", "bigint", "Bytes that came out; null likewise"),
        ("sample_seconds", "double", "Processor time of compressing them; null likewise"),
        ("monthly_cost", "double", "bytes / 10^9 * price_per_gb_month * replication_factor"),
        ("retention_cost", "double", "monthly_cost * retention_days / 30: until retention deletes the bytes"),
        ("note", "string", "What the layout can't hold of these records; null where it holds all"),
    ),
)

QUALITY_METRICS = Table(
    "quality_metrics",
    "What every check of data quality measured, run by run",
    (),
    columns(
        ("run_id", "string", "Run of the report", BOUNDS),
        ("created_at", "timestamp", "When that run began", BOUNDS),
        ("check", "string", "Name of the check", BOUNDS),
        ("topic", "string", "Topic", BOUNDS),
        ("partition", "int", "Partition; null: measured over the whole topic"),
        ("segment", "string", "Canonical URI of one segment above the threshold; null: the whole partition"),
        ("value", "double", "What was measured; null: there was nothing to measure"),
        ("threshold", "double", "Highest value that passes"),
        ("passed", "boolean", "Whether the value is null or not above the threshold"),
        ("severity", "string", "error or warning"),
        ("detail", "string", "Where the highest part of the value was found; null where passed"),
    ),
)

RUNS = Table(
    "runs",
    "What each job that changed the lake did, how much, and how long each of its phases took",
    (),
    columns(
        ("run_id", "string", "Run; segments.run_id names the last one that wrote a segment's rows"),
        ("job", "string", "decode or ingest"),
        ("began_at", "timestamp", "When the run began", BOUNDS),
        (
            "seconds",
            "double",
            "How long it took, without the start of the process; null where a later job finished the run",
        ),
        ("phases", "map<string,double>", "Phase to seconds: where the time went"),
        ("segments", "bigint", "Segments that it decoded or landed"),
        ("unchanged", "bigint", "Known segments with nothing new"),
        ("batches", "bigint", "Record batches that it decoded; 0 for ingest"),
        ("records", "bigint", "Records that it decoded; 0 for ingest"),
        ("damaged", "bigint", "Rows that it wrote to quarantine; 0 for ingest"),
        ("bytes", "bigint", "Bytes that it decoded or landed, as stored on disk"),
        ("warnings", "bigint", "Warnings that it gave"),
        ("unreadable", "array<string>", "Files and folders of its sources that it could not read"),
        (
            "cluster_id",
            "string",
            "Cluster of its sources, by meta.properties; null where that names none, and of runs of an "
            "earlier release",
        ),
    ),
)

CHECKPOINTS = Table(
    "checkpoints",
    "What the broker's files said of logs: where they begin for consumers, and where they begin later or end "
    "before; the last row of a folder counts",
    (),
    columns(
        ("topic", "string", "Topic", BOUNDS),
        ("partition", "int", "Partition"),
        ("partition_dir", "string", "Canonical URI of the partition folder", BOUNDS),
        (
            "log_start_offset",
            "bigint",
            "Where the log begins for consumers; null where the broker notes no other offset than the base "
            "offset of its first segment",
        ),
        ("recovery_point", "bigint", "recovery-point-offset-checkpoint; null without an entry"),
        ("high_watermark", "bigint", "replication-offset-checkpoint; null without an entry"),
        (
            "named_end",
            "bigint",
            "The offset that other files next to the segments say the log had reached: the last entry of "
            "leader-epoch-checkpoint, producer snapshots, indexes; null without one past its end",
        ),
        ("read_at", "timestamp", "When the row was written"),
        ("run_id", "string", "Run that wrote it"),
        (
            "log_start_witness",
            "string",
            "checkpoint: log-start-offset-checkpoint; epochs: first entry of leader-epoch-checkpoint; "
            "copies: of a healed log the highest start of those with the last epoch; "
            "null without a log_start_offset, and in rows of earlier releases, which knew the first alone",
        ),
        ("log_start_certainty", "string", "certain or likely; null where log_start_witness is"),
    ),
)

SCHEMAS = Table(
    "schemas",
    "The schemas of the registry that typed values are decoded with, those that were deleted or replaced too",
    (),
    columns(
        ("subject", "string", "Subject, with its context where it is not the default one: :.context:subject"),
        ("version", "int", "Version of the subject"),
        ("id", "int", "Schema id; ids are counted per context"),
        ("guid", "string", "GUID: UUID of an MD5 over text, references, metadata and rules; or as stored"),
        ("type", "string", "AVRO, PROTOBUF or JSON"),
        (
            "deleted",
            "string",
            "null: it holds; soft: readers still find it; hard: for good; cleared: its subject was cleared; "
            "replaced: by another record of the same subject and version",
        ),
        ("references", "string", "JSON list of name, subject and version; null without any"),
        ("metadata", "string", "JSON; null without any"),
        ("rule_set", "string", "JSON; null without any"),
        (
            "encrypted",
            "string",
            "JSON list of the rules that encrypt: type (ENCRYPT: fields with one of the tags; "
            "ENCRYPT_PAYLOAD: whole payloads), tags, fields (paths in a value; of Protobuf the message and "
            "the field), kek, algorithm, dek_expires; null without any",
        ),
        ("schema", "string", "The schema's text as stored"),
        ("first_offset", "bigint", "Offset in _schemas from which on it held; null of an export"),
        ("last_offset", "bigint", "Offset in _schemas that ended it; null where it holds"),
    ),
)

VALUE_ERRORS = Table(
    "value_errors",
    "Every key or value that could not be decoded by its schema, with its bytes and the reason",
    ("topic",),
    columns(
        ("topic", "string", "Topic"),
        ("partition", "int", "Partition"),
        ("offset", "bigint", "Offset of the record in its partition"),
        ("segment", "string", "Canonical URI of the segment file"),
        ("side", "string", "key or value"),
        ("format", "string", "avro, protobuf, jsonschema, text, bytes, or a registry that is not at hand"),
        ("schema_id", "int", "Id of its schema; null without one"),
        ("reason", "string", "Class of the error, such as unknown_id, truncated or trailing_bytes"),
        ("detail", "string", "Expected and found, with the byte"),
        ("content", "binary", "The bytes of the key or value"),
    ),
)

REPORT_TABLES = (
    *(FORMAT_SAVINGS, QUALITY_METRICS, RUNS, CHECKPOINTS, SCHEMAS, VALUE_ERRORS),
    *(*INDEX_TABLES, *RECOVERY_TABLES, *CLUSTER_TABLES),
)
# Tables that views read: one that does not exist yet counts as empty
READ_BY_VIEWS = (CHECKPOINTS, *INDEX_TABLES, HEALED_BATCHES)
