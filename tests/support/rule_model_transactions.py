"""Models Kafka's rules of transactions in plain Python over one log of ``random_logs``.

It walks the batches as a broker does that loads them (ProducerStateManager), producer by producer. Base
offsets that are wrong are those of ``rule_model_offsets``, among the transactional batches alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from tests.support.log_model import Log
from tests.support.rule_model_offsets import OffsetModel, Place, find_misplaced


class Transaction(NamedTuple):
    producer_id: int
    producer_epoch: int
    first_offset: int | None
    last_offset: int | None
    records: int
    marker_offset: int | None
    outcome: str
    is_uncertain: bool
    holds: bool


@dataclass
class _Open:
    epoch: int
    stretch: int
    damages: int  # before its first batch
    data: list[Place]


def transactions_of(log: Log) -> list[Transaction]:
    model = OffsetModel(log)
    own = [one for one in model.batches if one.batch is not None and one.batch.is_transactional]
    find_misplaced(own)
    last_stretch = max(model.stretches.values(), default=0)
    found: list[Transaction] = []
    producers = sorted({one.batch.producer_id for one in own if one.batch})
    for producer in producers:
        open_: dict[int, _Open] = {}
        for place in own:
            batch = place.batch
            assert batch is not None
            if batch.producer_id != producer:
                continue
            stretch = model.stretches[place.segment.file_base_offset]
            over = [epoch for epoch, one in open_.items() if one.stretch < stretch]
            found += [_unseen(producer, open_.pop(epoch), False, model.damages) for epoch in over]
            if batch.control is None:
                one = open_.setdefault(
                    batch.producer_epoch, _Open(batch.producer_epoch, stretch, place.damages, [])
                )
                one.data.append(place)
                continue
            outcome = "committed" if batch.control == "COMMIT" else "aborted"
            if open_:
                ended = open_.pop(max(open_))
                lost = place.damages > ended.damages
                found.append(_made(producer, ended, place.first, outcome, lost, holds=False))
            else:
                empty = (producer, batch.producer_epoch, None, None, 0, place.first)
                found.append(Transaction(*empty, outcome, False, False))
            # the broker has ended what lower epochs left open
            found += [_unseen(producer, open_.pop(epoch), False, model.damages) for epoch in sorted(open_)]
        newest = max(open_, default=None)
        for epoch, one in open_.items():
            holds = epoch == newest and one.stretch == last_stretch
            found.append(_unseen(producer, one, holds, model.damages))
    return found


def after_open_transaction(log: Log) -> list[tuple[int, int, str, int]]:
    """Returns (first offset, last offset, cause, records) of batches that an open transaction holds back."""
    transactions = transactions_of(log)
    held = min((one.first_offset or 0 for one in transactions if one.holds), default=None)
    found = []
    for place in OffsetModel(log).batches:
        batch = place.batch
        assert batch is not None
        if held is None or place.is_misplaced or batch.control or not batch.count or place.first < held:
            continue
        without_commit = [
            one
            for one in transactions
            if one.outcome != "committed" and one.producer_id == batch.producer_id and one.records
        ]
        if batch.is_transactional and any(
            (one.first_offset or 0) <= place.first <= (one.last_offset or 0) for one in without_commit
        ):
            continue
        found.append((place.first, place.last or 0, "after_open_transaction", batch.count))
    return found


def _unseen(producer: int, one: _Open, holds: bool, damages: int) -> Transaction:
    """Returns a transaction without a seen marker: uncertain if it has ended, or damage follows its start."""
    return _made(producer, one, None, "open", not holds or damages > one.damages, holds)


def _made(
    producer: int, one: _Open, marker: int | None, outcome: str, is_uncertain: bool, holds: bool
) -> Transaction:
    placed = [p for p in one.data if not p.is_misplaced] or one.data
    first, last = min(p.first for p in placed), max(p.last or 0 for p in placed)
    records = sum(p.batch.count for p in one.data if p.batch)
    return Transaction(producer, one.epoch, first, last, records, marker, outcome, is_uncertain, holds)
