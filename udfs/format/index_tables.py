"""Declares the tables of ``decode --with-indexes``: what the files next to segments say.

Each is created with its first rows, and rows of a partition's folder are replaced as a whole.
"""

from __future__ import annotations

from kafka_log_lake.udfs.format.schema import BOUNDS, Table, columns

_PLACE = (
    ("topic", "string", "Topic, from the partition folder's name", BOUNDS),
    ("partition", "int", "Partition, from the partition folder's name"),
    ("partition_dir", "string", "Canonical URI of the partition folder", BOUNDS),
    ("file", "string", "Canonical URI of the file"),
)
_SEGMENT = ("segment", "string", "Canonical URI of the segment that the file is an index of")
_ENTRY = ("entry", "int", "Number of the entry in the file, from 0; null where error is of the file")
_ERROR = (
    "error",
    "string",
    "What is wrong with the entry; or in a row without one with the file: it is missing, or can't be read on",
)
_RUN_ID = ("run_id", "string", "Run that read the file")

OFFSET_INDEX = Table(
    "offset_index",
    "Entries of the offset indexes (.index) beside segments: which offset is at which byte",
    (),
    columns(
        *_PLACE,
        _SEGMENT,
        _ENTRY,
        ("offset", "bigint", "Last offset of what a broker appended at position"),
        ("position", "bigint", "Byte in the segment where a batch begins"),
        _ERROR,
        _RUN_ID,
    ),
)

TIME_INDEX = Table(
    "time_index",
    "Entries of the time indexes (.timeindex) beside segments: the highest timestamp up to an offset",
    (),
    columns(
        *_PLACE,
        _SEGMENT,
        _ENTRY,
        ("timestamp_ms", "bigint", "Highest timestamp of the records up to offset"),
        ("offset", "bigint", "Last offset of the batch that has the timestamp"),
        _ERROR,
        _RUN_ID,
    ),
)

ABORTED_TRANSACTIONS = Table(
    "aborted_transactions",
    "Entries of the transaction indexes (.txnindex) beside segments: the aborted transactions",
    (),
    columns(
        *_PLACE,
        _SEGMENT,
        _ENTRY,
        ("version", "smallint", "Version of the entry"),
        ("producer_id", "bigint", "Producer id"),
        ("first_offset", "bigint", "First offset of the transaction"),
        ("last_offset", "bigint", "Offset of its marker"),
        ("last_stable_offset", "bigint", "Last stable offset when it was aborted"),
        _ERROR,
        _RUN_ID,
    ),
)

PRODUCER_SNAPSHOTS = Table(
    "producer_snapshots",
    "Producers in the producer snapshots (.snapshot) of a partition",
    (),
    columns(
        *_PLACE,
        ("snapshot_offset", "bigint", "Offset up to which, not with it, the log was read for the snapshot"),
        ("producer_id", "bigint", "Producer id"),
        ("producer_epoch", "smallint", "Its latest epoch"),
        ("last_sequence", "int", "Last sequence of its latest batch; -1 none"),
        ("last_offset", "bigint", "Last offset of that batch; -1 none"),
        ("offset_delta", "int", "Last offset less first offset of that batch"),
        ("timestamp_ms", "bigint", "Timestamp of the latest batch or marker; -1 none"),
        ("coordinator_epoch", "int", "Epoch of the coordinator that wrote the last marker; -1 none"),
        ("current_txn_first_offset", "bigint", "First offset of its open transaction; -1 none"),
        _ERROR,
        _RUN_ID,
    ),
)

LEADER_EPOCHS = Table(
    "leader_epochs",
    "Entries of leader-epoch-checkpoint: the offset with which each leader of a partition began",
    (),
    columns(
        *_PLACE,
        _ENTRY,
        ("leader_epoch", "int", "Leader epoch"),
        ("start_offset", "bigint", "First offset of the epoch"),
        _ERROR,
        _RUN_ID,
    ),
)

INDEX_TABLES = (OFFSET_INDEX, TIME_INDEX, ABORTED_TRANSACTIONS, PRODUCER_SNAPSHOTS, LEADER_EPOCHS)
