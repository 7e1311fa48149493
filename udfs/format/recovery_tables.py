"""Declares the tables of ``recover``: what copies of partitions hold, what the healed log has, what is lost.

Each is replaced as a whole by every run.
"""

from __future__ import annotations

from kafka_log_lake.udfs.format.schema import BOUNDS, RECORDS, Table, columns

_PLACE = (
    ("topic", "string", "Topic", BOUNDS),
    ("partition", "int", "Partition"),
)
_COPY = (
    "copy",
    "string",
    "Name of the copy: its source's, with the folder's name where it is not a live log",
)
_RANGE = (
    ("first_offset", "bigint", "First offset"),
    ("last_offset", "bigint", "Last offset"),
)
_SURE = ("certainty", "string", "certain, likely or uncertain; detail says why it is not certain")

REPLICA_REPORT = Table(
    "replica_report",
    "One row for each copy of a partition that recover found: what it holds, and what is wrong with it",
    (),
    columns(
        *_PLACE,
        ("topic_id", "string", "Topic id of its partition.metadata; null without one"),
        _COPY,
        ("broker_id", "int", "node.id of the log directory's meta.properties; null without one"),
        ("partition_dir", "string", "Canonical URI of the partition folder"),
        (
            "state",
            "string",
            "live; or future, delete, stray: the ending of a folder that a broker left; deleted: a "
            ".log.deleted file by itself (--include-deleted); tier: what lies in tiered storage (--tier)",
        ),
        (
            "role",
            "string",
            "primary: batches are taken from it first; holder: it knows the highest epoch too; "
            "other; other-topic-id: it is of another topic of this name, or of a deleted one",
        ),
        (
            "log_start_offset",
            "bigint",
            "First offset, by segments, epochs and log-start-offset-checkpoint",
        ),
        ("log_end_offset", "bigint", "Offset after its last sound batch"),
        ("high_watermark", "bigint", "By replication-offset-checkpoint; null without an entry"),
        ("recovery_point", "bigint", "By recovery-point-offset-checkpoint; null without an entry"),
        (
            "epochs",
            "array<string>",
            "Its leader epochs as epoch@offset, by leader-epoch-checkpoint and batches",
        ),
        ("batches", "bigint", "Sound batches"),
        ("bytes", "bigint", "Bytes of its segments"),
        (
            "missing",
            "array<string>",
            "Offsets of the true history that it lacks between log start and its end, as first-last",
        ),
        ("damaged_ranges", "int", "Damaged byte ranges, torn and zero tails among them"),
        ("damage", "array<string>", "Each of them: segment, position, bytes, reason"),
        (
            "mended",
            "int",
            "Batches whose base offset, leader epoch or length was corrected; no checksum covers these",
        ),
        ("diverged_from", "bigint", "First offset of a batch that is not of the true history; null: none"),
        ("behind", "bigint", "Offsets between its last true batch and the end of the healed log"),
        ("last_written", "timestamp", "Latest modification of a segment; null without one"),
        ("contradicted", "array<string>", "What files beside the segments say and batches contradict"),
    ),
)

DIVERGENCE = Table(
    "divergence",
    "One row for each range of offsets of a copy that is not of the true history, and the rule by which "
    "another history is the true one",
    (),
    columns(
        *_PLACE,
        *_RANGE,
        _COPY,
        ("leader_epoch", "int", "Leader epoch of its batches"),
        ("batches", "bigint", "Batches"),
        ("why", "string", "diverged, before-log-start or other-topic-id"),
        ("true_copies", "array<string>", "Copies that hold the true history there"),
        ("true_epochs", "array<string>", "The epochs of the true history as epoch@offset"),
        ("rule", "string", "By which rule the other history is the true one"),
        _SURE,
        ("detail", "string", "Why it is not certain; null where it is"),
    ),
)

HEALED_LOG = "healed"  # the name of the log that recover makes of several copies

HEALED_BATCHES = Table(
    "healed_batches",
    "One row for each batch of the healed log: the copy that it was taken from, and where it is there",
    (),
    columns(
        *_PLACE,
        ("base_offset", "bigint", "First offset", BOUNDS),
        ("last_offset", "bigint", "Last offset", BOUNDS),
        ("leader_epoch", "int", "Leader epoch; -1: of magic 0 and 1"),
        ("declared_count", "int", "Records by the header; -1: of magic 0 and 1"),
        _COPY,
        ("copies", "int", "Copies that hold the same batch whole"),
        ("mended", "string", "What was corrected of it: base offset, leader epoch, length; null: nothing"),
        ("source_segment", "string", "Canonical URI of the copy's segment"),
        ("source_position", "bigint", "Byte in it where the batch begins"),
        ("size_bytes", "bigint", "Bytes of the batch"),
        ("crc", "bigint", "Its checksum, unsigned"),
        (
            "segment",
            "string",
            "Canonical URI of the healed segment, as in records; its bytes are those of source_segment",
            BOUNDS,
        ),
        ("position", "bigint", "Byte in it where the batch begins: batch_position of its records"),
    ),
)

LOST_RANGES = Table(
    "lost_ranges",
    "One row for each range of offsets of the true history that no copy has",
    (),
    columns(
        *_PLACE,
        _RANGE[0],
        ("last_offset", "bigint", "Last offset; null where it is not known"),
        ("certain_records", "bigint", "Records that were there for sure"),
        (
            "possible_records",
            "bigint",
            "Records that may have been there, in a compacted log fewer were left; null: not known",
        ),
        (
            "reason",
            "string",
            "damaged: the batches are there and not whole; missing: no copy has bytes of it; "
            "cut off: after the healed log, by what files and headers say",
        ),
        ("detail", "string", "What each copy has there"),
    ),
)

LOST_RECORDS = Table(
    "lost_records",
    "The loss bill: one row for each record that a copy holds and the true history does not",
    (),
    columns(
        *_PLACE,
        ("offset", "bigint", "Offset of the record in its copy"),
        ("leader_epoch", "int", "Leader epoch of its batch"),
        _COPY,
        (
            "why",
            "string",
            "diverged: written by a leader whose history lost; before-log-start: the true log "
            "begins after it; other-topic-id: of a topic of this name that was deleted",
        ),
        *(
            (c.name, c.sql_type, c.comment)
            for c in RECORDS.columns
            if c.name
            in (
                "timestamp_ms",
                "key",
                "value",
                "headers",
                "control_type",
                "producer_id",
                "producer_epoch",
                "sequence",
                "is_transactional",
            )
        ),
        (
            "transaction",
            "string",
            "Of a transactional record: committed, aborted or open on its copy; else null",
        ),
        (
            "acknowledged",
            "string",
            "Whether the producer was answered that it is written: yes, likely or "
            "unknown; null of control records. A producer with acks=0 never is",
        ),
        ("acknowledged_why", "string", "What that is known from"),
        (
            "also_in_truth",
            "bigint",
            "Offset at which the true history, from where the copy's parts from it, has a record of the same "
            "key, value and headers; null: nowhere",
        ),
        ("true_offset", "bigint", "Offset of the key's latest record in the true history; null: none"),
        ("true_value", "binary", "Value of that record; null: none, or a tombstone"),
        ("segment", "string", "Canonical URI of the copy's segment"),
    ),
)

TIER_REPORT = Table(
    "tier_report",
    "Tiered storage by three books, its objects, __remote_log_metadata and the disk: one row for each thing "
    "that they do not agree on, or that is paid for and not read. Written by decode --tier",
    (),
    columns(
        (
            "kind",
            "string",
            "lost, incomplete, size_differs, unreadable: of segments that count; orphan, unfinished_copy, "
            "unfinished_delete, undeleted, deleted_topic: objects that do not count by the metadata; "
            "foreign: other files; on_disk_too, never_uploads: of segments on the disk",
        ),
        ("topic", "string", "Topic; null of a file that is of none"),
        ("partition", "int", "Partition"),
        ("topic_id", "string", "Topic id"),
        ("segment_id", "string", "Id of the remote segment"),
        ("first_offset", "bigint", "First offset, by the metadata or the name"),
        ("last_offset", "bigint", "Last offset; null where no metadata tell it"),
        ("object", "string", "URI of its .log object, of the first of its objects, or of the local segment"),
        ("objects", "bigint", "Number of its objects"),
        ("bytes", "bigint", "Bytes of its objects"),
        ("state", "string", "Last state by the metadata, such as COPY_SEGMENT_STARTED"),
        ("since", "timestamp", "When that state was set"),
        ("detail", "string", "What is wrong, in words"),
        (
            "delete_command",
            "string",
            "The command that would delete the objects; null unless nothing that was not read can make them "
            "count",
        ),
    ),
)

SEGMENT_PLACES = Table(
    "segment_places",
    "Where each piece of a log lies that tiered storage has a part of: one row for each file on the disk and "
    "each remote segment. Written by decode --tier; logs that are on the disk alone have no row",
    (),
    columns(
        ("topic", "string", "Topic"),
        ("partition", "int", "Partition"),
        ("topic_id", "string", "Topic id; null where nothing tells it"),
        ("first_offset", "bigint", "First offset of the log in it"),
        ("last_offset", "bigint", "Last offset of the log in it; null of the last file on the disk"),
        ("place", "string", "disk; tier; or missing: the metadata name it, and the tier does not have it"),
        ("file", "string", "URI of the file, or of the .log object"),
        ("segment_id", "string", "Id of the remote segment"),
        ("bytes", "bigint", "Bytes of the file, or of all objects of the remote segment"),
        ("is_read", "boolean", "Whether the tables have records of it; else another copy has its offsets"),
        (
            "segment",
            "string",
            "Its name in segments, the first where it is read in several parts; null: not read",
        ),
        ("detail", "string", "Why it can't be read, or why none of its offsets counts"),
    ),
)

RECOVERY_TABLES = (
    *(REPLICA_REPORT, DIVERGENCE, HEALED_BATCHES, LOST_RANGES, LOST_RECORDS),
    *(TIER_REPORT, SEGMENT_PLACES),
)
