"""Orders the files of logs, from rows of the ledger: ``log_stretches.sql`` over arrays."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from kafka_log_lake.udfs.batches.offsets import NO_LIMIT
from kafka_log_lake.udfs.compute import pc

LOG = ("topic", "partition", "partition_dir")
# Columns of the ledger that decide
COLUMNS = (*LOG, "segment", "file_base_offset", "end_offset", "left_out", "log_start_offset")


class Files(NamedTuple):
    """The files of logs, by log and base offset.

    rows: of the ledger. log: int64[n], number of the log; logs: LOG of each. base: int64[n], base offset in
    the name; limit: the same of the next file of the log, NO_LIMIT for the last. stretch, retentions:
    int64[n], as the view ``log_stretches`` has them.
    """

    rows: pa.Table
    logs: pa.Table
    log: np.ndarray
    base: np.ndarray
    limit: np.ndarray
    stretch: np.ndarray
    retentions: np.ndarray

    def numbers(self, segments: pa.ChunkedArray) -> np.ndarray:
        """Returns int64[m]: the number of the file of each segment; -1 where the ledger has none."""
        places = pc.index_in(segments, value_set=self.rows.column("segment").combine_chunks())
        result: np.ndarray = pc.fill_null(places, -1).to_numpy().astype(np.int64)
        return result


def group_begins(ordered: pa.Table) -> np.ndarray:
    """Returns int64[m]: the first row of each group of equal rows. ordered: sorted, without nulls.

    ``group_by`` is of no use for that: it gives its groups in any order once there are some thirty.
    """
    differs = np.zeros(len(ordered), dtype=bool)
    differs[:1] = True
    for column in ordered.columns:
        whole = column.combine_chunks()
        changes = pc.not_equal(whole.slice(1), whole.slice(0, max(0, len(whole) - 1)))
        differs[1:] |= changes.to_numpy(zero_copy_only=False)
    return np.flatnonzero(differs)


def files_of(ledger: pa.Table) -> Files:
    """Returns the files of the ledger's rows, which have COLUMNS and may have more."""
    rows = ledger.sort_by([(name, "ascending") for name in (*LOG, "file_base_offset")])
    logs = rows.select(LOG)
    begins = group_begins(logs)
    differs = np.zeros(len(rows), dtype=bool)
    differs[begins] = True
    log = np.cumsum(differs) - 1
    base = rows.column("file_base_offset").to_numpy()
    end = pc.coalesce(rows.column("end_offset"), pc.subtract(rows.column("file_base_offset"), 1)).to_numpy()
    is_left_out = pc.fill_null(pc.less(rows.column("left_out"), 0), False).to_numpy()
    before = np.roll(np.arange(len(rows)), 1)
    was_gone = base[before] < rows.column("log_start_offset").to_numpy()
    is_deleted = ~differs & was_gone & (end[before] < base - 1)
    is_apart = is_left_out | (~differs & is_left_out[before])
    limit = np.full(len(rows), NO_LIMIT)
    limit[:-1] = np.where(differs[1:], NO_LIMIT, base[1:])
    counts = []
    for marks in (is_deleted | is_apart, is_deleted):
        total = np.cumsum(marks)
        counts.append(total - (total - marks)[begins][log] if len(rows) else total)
    return Files(rows, logs.take(pa.array(begins)), log, base, limit, *counts)
