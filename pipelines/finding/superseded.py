"""Which records are superseded: a later record of the same key, which counts, is in the same log."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from pipelines.scanning.slice_scan import DamagedRange
from udfs.committed import COMMITTED, Outcomes
from udfs.compute import pc

_NO_END = 1 << 63


class LastOffsets:
    """The last offset of some keys among the records of a log that count: committed, or of no transaction."""

    def __init__(self, keys: Iterable[bytes]) -> None:
        self._last = dict.fromkeys(keys, -1)
        self._unknown_until = -1

    def unknown_until(self, offset: int | None) -> None:
        """Notes that a record up to this offset may be where it can't be read; None: up to any."""
        self._unknown_until = max(self._unknown_until, _NO_END if offset is None else offset)

    def note(self, damage: DamagedRange) -> None:
        """Notes a damaged range, if an offset may be in it."""
        if damage.first_lost is not None:
            self.unknown_until(damage.last_lost)

    def add(self, records: pa.RecordBatch, outcomes: Outcomes) -> None:
        """records: with key and the columns that decide about transactions."""
        outcome = outcomes.of(records)
        counts = pc.and_not(
            pc.or_(outcome.is_null(), pc.equal(outcome, COMMITTED).fill_null(False)),
            records.column("is_control"),
        )
        kept = records.filter(counts)
        pairs = zip(kept.column("key").to_pylist(), kept.column("offset").to_pylist(), strict=True)
        self._last.update((key, offset) for key, offset in pairs if key is not None)

    def of(self, records: pa.RecordBatch) -> pa.Array:
        """bool[n]: whether records are superseded; null where that is not known, and without a key."""
        names = ("key", "offset", "is_control")
        rows = zip(*(records.column(name).to_pylist() for name in names), strict=True)
        known = (None if control else self._one(key, offset) for key, offset, control in rows)
        return pa.array(known, pa.bool_())

    def _one(self, key: Any, offset: int) -> bool | None:
        if key not in self._last:
            return None
        if self._last[key] > offset:
            return True
        return None if self._unknown_until > offset else False


def distinct_keys(batches: Iterable[pa.RecordBatch]) -> pa.Array:
    """The keys of records, each once."""
    found: dict[bytes, None] = {}
    for batch in batches:
        found.update(dict.fromkeys(key for key in batch.column("key").to_pylist() if key is not None))
    return pa.array(found, pa.binary())
