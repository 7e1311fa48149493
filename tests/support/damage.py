"""Decodes one damaged batch between sound ones, and checks what becomes of it by the rules of damage.

The decoder under test is held to the rules here, the reference decoder to it by ``test_corpus`` and
``test_fuzz``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.support import fast
from tests.support.reference_decoder import DEFAULT_LIMIT, Decoded
from tests.support.segment_maker import Batch, Record

FIRST_OFFSET = 100  # of the batch between


def sound(base_offset: int, count: int = 3) -> bytes:
    """Returns the bytes of a small sound batch."""
    records = [Record(key=b"k%d" % place, value=b"sound") for place in range(count)]
    return Batch(records, base_offset=base_offset).encode()


BEFORE = [sound(90), sound(93)]
AFTER = [sound(200), sound(203)]


@dataclass(frozen=True)
class Verdict:
    """The result for the batch in the middle: its row of ``batches`` or None, records, quarantine rows."""

    batch: dict[str, Any] | None
    records: list[dict[str, Any]]
    quarantine: list[dict[str, Any]]

    @property
    def status(self) -> str | None:
        return None if self.batch is None else str(self.batch["status"])

    @property
    def reasons(self) -> list[str]:
        return [row["reason"] for row in self.quarantine]


def check_neighbours(decoded: Decoded, position: int, size: int) -> None:
    """Checks that the sound batches before and after are whole, and that quarantine has nothing of them."""
    positions = [0, len(BEFORE[0]), position + size, position + size + len(AFTER[0])]
    rows = {row["position"]: row for row in decoded.batches}
    assert {rows[p]["status"] for p in positions} == {"ok"}
    offsets = [row["offset"] for row in decoded.records if row["batch_position"] != position]
    assert offsets == [90, 91, 92, 93, 94, 95, 200, 201, 202, 203, 204, 205]
    assert (decoded.tail, decoded.tail_bytes) == ("none", 0)
    for row in decoded.quarantine:
        assert position <= row["position"] < position + size


def judge(batch: bytes, *, limit: int = DEFAULT_LIMIT) -> Verdict:
    """Decodes a batch between sound ones, whose records must be unaffected. Returns what became of it."""
    before = b"".join(BEFORE)
    decoded = fast.decode(before + batch + b"".join(AFTER), limit=limit)
    position = len(before)
    check_neighbours(decoded, position, len(batch))
    rows = [row for row in decoded.batches if row["position"] == position]
    records = [row for row in decoded.records if row["batch_position"] == position]
    return Verdict(rows[0] if rows else None, records, decoded.quarantine)


def check_refused(verdict: Verdict, batch: bytes, status: str, reason: str) -> None:
    """Checks that the whole batch is in quarantine with a reason, and none of its records was kept."""
    assert (verdict.status, verdict.reasons) == (status, [reason])
    assert verdict.batch is not None
    assert verdict.batch["record_count"] == 0
    assert verdict.batch["error"]
    assert not verdict.records
    (row,) = verdict.quarantine
    assert (row["position"], row["size_bytes"]) == (verdict.batch["position"], len(batch))
    assert row["base_offset"] == int.from_bytes(batch[:8], "big", signed=True)
    assert row["content"] == batch
    assert row["next_position"] == row["position"] + len(batch)
    assert row["detail"] == verdict.batch["error"]


def check_kept(verdict: Verdict, status: str, values: Sequence[bytes | None]) -> None:
    """Checks that all records of the batch were kept, and that it has a status."""
    assert not verdict.quarantine
    assert verdict.status == status
    assert [row["value"] for row in verdict.records] == list(values)
    assert verdict.batch is not None
    assert verdict.batch["record_count"] == len(values)
    assert (verdict.batch["error"] is None) == (status == "ok")
