"""Finds the open transactions of a log, from the transactional batches that a scan noted."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kafka_log_lake.udfs.batches.clocks import Age, Clock, age
from kafka_log_lake.udfs.batches.hanging_transactions import Ending
from kafka_log_lake.udfs.batches.offset_findings import places_before
from kafka_log_lake.udfs.batches.transactions import of_one_log
from kafka_log_lake.udfs.format import layout as f


@dataclass(frozen=True)
class OpenTransaction:
    """A transaction without a marker.

    first_timestamp: of its first record, ms since 1970 UTC, -1 for none. is_uncertain: damage follows its
    start, and its marker may be in the damaged bytes. age: for how long it is open, in the time of its log.
    ending: None until it is known what ends it, by its coordinator and by the wall clock too.
    """

    producer_id: int
    producer_epoch: int
    first_offset: int
    last_offset: int
    first_timestamp: int
    is_uncertain: bool
    age: Age
    ending: Ending | None = None

    @property
    def is_hanging(self) -> bool:
        """Says whether it is open for longer than a broker allows, as of the last write or now."""
        return self.ending is not None and self.ending.is_hanging


def open_transactions(rows: np.ndarray, places: np.ndarray, clock: Clock) -> list[OpenTransaction]:
    """Returns the transactions that hold back the last stable offset.

    rows: TRANSACTIONAL. places: int64[m, 3], file, position and bytes of each damaged range.
    """
    rows["damages"] = places_before(np.stack([rows["file_base"], rows["position"]], axis=1), places)
    transactions = of_one_log(rows, len(places))
    markers = rows[(rows["control_type"] != f.NO_CONTROL) & rows["credible"]]
    held = np.sort(transactions[~transactions["is_over"]], order="first_offset")
    return [
        _open_transaction(transaction, rows[transaction["begins"]], clock, markers) for transaction in held
    ]


def _open_transaction(row: np.void, first: np.void, clock: Clock, markers: np.ndarray) -> OpenTransaction:
    """Describes a transaction that holds back the last stable offset, and how long it is open.

    one: TRANSACTION. first: its first row of TRANSACTIONAL. markers: the log's, with credible times.
    """
    offset = int(row["first_offset"])
    before = markers["timestamp"][markers["first_offset"] <= offset]
    after = markers["timestamp"][markers["first_offset"] > offset]
    opened = age(
        clock,
        int(first["timestamp"]) if first["credible"] else None,
        by_broker=bool(first["by_broker"]),
        before_ms=int(before.max()) if len(before) else None,
        after_ms=int(after.min()) if len(after) else None,
    )
    return OpenTransaction(
        int(row["producer_id"]),
        int(row["producer_epoch"]),
        offset,
        int(row["last_offset"]),
        int(first["timestamp"]),
        bool(row["is_uncertain"]),
        opened,
    )
