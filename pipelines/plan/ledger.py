"""Reads and writes the ledger: the table ``segments``, with one row a segment.

Every run reads it first and writes it last. ``deltalake`` does both in this process, because Spark takes
seconds to find the files of a Delta table. Timestamps are int64 microseconds since 1970 UTC here: a datetime
cannot hold years before 1.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from kafka_log_lake.udfs.compute import pc

if TYPE_CHECKING:
    from deltalake import DeltaTable

from kafka_log_lake.udfs.format.schema import SEGMENTS, Table

Partition = tuple[str, int]  # topic, partition
Log = tuple[str, int, str]  # topic, partition, partition_dir

_ROWS = 1 << 14
NOTHING_DECODED = -1  # value of left_out


@dataclass(frozen=True, kw_only=True)
class LedgerRow:
    """A row of ``segments``; ``udfs.format.schema`` declares the columns and their meaning."""

    topic: str
    partition: int
    partition_dir: str
    segment: str
    file_base_offset: int
    length: int = 0
    modified: int = 0
    decoded_bytes: int = 0
    first_offset: int | None = None
    last_offset: int | None = None
    min_timestamp: int | None = None
    max_timestamp: int | None = None
    batches: int = 0
    records: int = 0
    damaged: int = 0
    offset_regressions: int = 0
    tail: str = "none"
    tail_bytes: int = 0
    fingerprint: str | None = None
    content_crc32c: int | None = None
    end_offset: int | None = None
    ends_in_damage: bool = False
    log_start_offset: int = 0
    topic_id: str | None = None
    scope: str | None = None
    left_out: int = 0
    run_id: str = ""
    decoded_at: int = 0

    @property
    def log(self) -> Log:
        """Returns the log that the segment belongs to: topic, partition, partition_dir."""
        return self.topic, self.partition, self.partition_dir

    @property
    def is_left_out(self) -> bool:
        """Says whether nothing of the segment was decoded, as it holds nothing of ``scope``."""
        return self.left_out == NOTHING_DECODED

    @property
    def reach(self) -> int:
        """Returns the last offset that the segment covers; its base offset - 1 if it holds no batch."""
        return self.file_base_offset - 1 if self.end_offset is None else self.end_offset


NAMES = tuple(f.name for f in fields(LedgerRow))
# Schema of the tables that ``read`` returns
SCHEMA = pa.schema(
    [(c.name, pa.int64() if c.sql_type == "timestamp" else c.arrow_type) for c in SEGMENTS.columns]
)


def read(table: str | DeltaTable, where: str = "") -> pa.Table:
    """Reads the ledger, by its path or open: columns NAMES, timestamps as int64.

    where: condition on rows, "" for all.
    """
    from kafka_log_lake.pipelines.engine.delta import read_rows  # a scan needs no deltalake

    return numbered(read_rows(table, SEGMENTS.arrow_schema(), NAMES, where))


def numbered(stored: pa.Table) -> pa.Table:
    """Returns columns NAMES of the Delta table, with timestamps as int64."""
    return stored.cast(pa.schema([SCHEMA.field(name) for name in NAMES]))


def rows(table: pa.Table) -> Iterator[LedgerRow]:
    """Yields the rows of a table from ``read``."""
    for batch in table.to_batches(_ROWS):
        for row in batch.to_pylist():
            yield LedgerRow(**row)


def kept(table: pa.Table, mask: np.ndarray) -> pa.Table:
    """Returns the rows where ``mask``, bool[n], holds.

    The table itself if all do, as a copy of a long one is large.
    """
    return table if mask.all() else table.filter(pa.array(mask))


def among(table: pa.Table, column: str, texts: Iterable[str], is_in: bool = True) -> pa.Table:
    """Returns the rows in which a column is one of some texts, or is none of them. See ``kept``."""
    found = pc.is_in(table.column(column), pa.array(list(texts), pa.string())).to_numpy(zero_copy_only=False)
    return kept(table, found == is_in)


def with_topic_ids(some: pa.Table, known: pa.Table) -> pa.Table:
    """Returns rows of the ledger in which a missing topic id is that of another row of their folder."""
    folders = known.group_by("partition_dir").aggregate([("topic_id", "max")])
    place = pc.index_in(some.column("partition_dir"), folders.column("partition_dir").combine_chunks())
    topic_ids = pc.coalesce(some.column("topic_id"), folders.column("topic_id_max").take(place))
    return some.set_column(some.schema.get_field_index("topic_id"), "topic_id", topic_ids)


def to_arrow(ledger_rows: Iterable[LedgerRow]) -> pa.Table:
    """Returns ledger rows in the schema of the Delta table."""
    return rows_to_arrow(SEGMENTS, map(vars, ledger_rows))


def rows_to_arrow(table: Table, rows: Iterable[Mapping[str, object]]) -> pa.Table:
    """Returns rows in the schema of a Delta table, by the names of its columns; timestamps come as int64."""
    listed, arrays = list(rows), []
    for column in table.columns:
        kind = pa.int64() if column.sql_type == "timestamp" else column.arrow_type
        arrays.append(pa.array([row[column.name] for row in listed], kind).cast(column.arrow_type))
    return pa.Table.from_arrays(arrays, schema=table.arrow_schema())


def changes(put: Collection[LedgerRow], dropped: Iterable[LedgerRow]) -> pa.Table:
    """Returns the rows of a MERGE into the ledger: its columns, and ``dropped``, True for rows that go.

    Of rows that go the segment alone counts.
    """
    rows = to_arrow(put)
    gone = pa.Table.from_pylist([{"segment": row.segment} for row in dropped], schema=rows.schema)
    flags = pa.array([False] * rows.num_rows + [True] * gone.num_rows, pa.bool_())
    return pa.concat_tables([rows, gone]).append_column("dropped", flags)
