"""Adds columns to matches that say which broker's copy has them, if the sources are disks of brokers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import pyarrow as pa

# copy: the name of the disk. side: true for a record of the history that was committed, else losing; null
# where that is not known. why: of the losing side, as in lost_records: diverged, before-log-start,
# other-topic-id. certainty: of the side. replaced_by, replaced_by_epoch: the copy and the leader epoch of the
# batch that has its offset in the true history; null for none
COPY_COLUMNS = pa.schema(
    [
        ("copy", pa.string()),
        ("topic_id", pa.string()),
        ("side", pa.string()),
        ("why", pa.string()),
        ("certainty", pa.string()),
        ("replaced_by", pa.string()),
        ("replaced_by_epoch", pa.int32()),
    ]
)


class CopyLocator(Protocol):
    """Tells which copy of a partition holds a record, and whether the record is in the true history."""

    def rows_of(
        self, topic: str, partition: int, places: Sequence[tuple[str, int, int]]
    ) -> list[dict[str, object]]:
        """Returns COPY_COLUMNS of records, given the segment, the batch position and the offset of each."""


def copy_columns(
    copies: CopyLocator, topic: str, partition: int, records: pa.RecordBatch
) -> dict[str, pa.Array]:
    """Returns COPY_COLUMNS of matches, which have segment, batch_position and offset."""
    names = ("segment", "batch_position", "offset")
    places = list(zip(*(records.column(name).to_pylist() for name in names), strict=True))
    rows = copies.rows_of(topic, partition, places)
    return {column.name: pa.array([row[column.name] for row in rows], column.type) for column in COPY_COLUMNS}
