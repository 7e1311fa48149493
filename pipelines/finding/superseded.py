"""Which records are superseded: a later record of the same key, which counts, is in the same log."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from udfs.committed import COMMITTED, Outcomes
from udfs.compute import pc

_NO_END = 1 << 63


class LastOffsets:
    """The last offset of some keys among the records of a log that count: committed, or of no transaction.

    last_damage: the last offset that may be in damaged bytes; -1 without any.
    """

    def __init__(self, keys: Iterable[bytes]) -> None:
        self._last = dict.fromkeys(keys, -1)
        self.last_damage = -1

    def damaged_until(self, offset: int | None) -> None:
        """Notes a damaged range that may hold offsets up to this one; None: up to any."""
        self.last_damage = max(self.last_damage, _NO_END if offset is None else offset)

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
        return None if self.last_damage > offset else False


def distinct_keys(batches: Iterable[pa.RecordBatch]) -> pa.Array:
    """The keys of records, each once."""
    found: dict[bytes, None] = {}
    for batch in batches:
        found.update(dict.fromkeys(key for key in batch.column("key").to_pylist() if key is not None))
    return pa.array(found, pa.binary())
