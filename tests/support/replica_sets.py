"""Makes random sets of copies of one partition by a model of leaders, followers and unclean elections.

The model keeps what each broker's log was, so it knows the true history without reading a file: that of the
leader of the highest epoch that a disk still knows. Damage is put into the files alone.
"""

from __future__ import annotations

import random
import struct
from dataclasses import dataclass, field

from tests.support.segment_maker import CONTROL, TRANSACTIONAL, Batch, Record


@dataclass(frozen=True)
class Made:
    """A batch of a log. records: (offset, key, value)."""

    base: int
    last: int
    epoch: int
    data: bytes
    records: tuple[tuple[int, bytes | None, bytes | None], ...]


@dataclass
class Broker:
    """A broker's copy of the partition.

    cleaned: the offset up to which its log cleaner ran, None where it did not. cut_off: what it cut off last,
    as it followed another leader. whole: batches that lie undamaged in its files; future: those that lie in a
    folder of a second disk too.
    """

    number: int
    log: list[Made] = field(default_factory=list)
    epochs: list[tuple[int, int]] = field(default_factory=list)
    start: int = 0
    high_watermark: int = 0
    cleaned: int | None = None
    cut_off: list[Made] = field(default_factory=list)
    whole: list[Made] = field(default_factory=list)
    future: list[Made] | None = None

    @property
    def end(self) -> int:
        return self.log[-1].last + 1 if self.log else self.start

    def assign(self, epoch: int, start: int) -> None:
        """As ``LeaderEpochFileCache.assign``: entries that the new one makes empty go."""
        self.epochs = [(e, s) for e, s in self.epochs if e < epoch and s < start] + [(epoch, start)]


@dataclass
class ReplicaSet:
    """brokers: those whose disks are left. truth: the true log, start: its first offset."""

    brokers: list[Broker]
    truth: list[Made]
    start: int
    epoch: int

    @property
    def end(self) -> int:
        return self.truth[-1].last + 1 if self.truth else self.start


class _Cluster:
    def __init__(self, seed: int, is_compacted: bool) -> None:
        self.pick, self.is_compacted = random.Random(seed), is_compacted
        self.brokers = [Broker(number) for number in range(1, self.pick.randint(2, 4) + 1)]
        self.leader, self.epoch, self.count = self.brokers[0], self.pick.randint(0, 2), 0
        self.sequences: dict[int, int] = {}
        self.leader.assign(self.epoch, 0)
        self.in_sync = list(self.brokers)

    def produce(self) -> None:
        pick, base = self.pick, self.leader.end
        producer = pick.choice((-1, -1, 7, 8)) if not self.is_compacted else -1
        count = pick.choice((1, 1, 2, 3, 9))
        flags, records = 0, []
        if producer == 8:
            flags = TRANSACTIONAL
            if pick.random() < 0.3:
                flags, count = TRANSACTIONAL | CONTROL, 1
        for at in range(count):
            self.count += 1
            key, value = b"k%d" % pick.randrange(9), b"v%d" % self.count + b"." * pick.choice((0, 5, 200))
            if flags & CONTROL:
                key, value = struct.pack(">hh", 0, pick.randrange(2)), struct.pack(">hi", 0, 1)
            is_tombstone = self.is_compacted and pick.random() < 0.2
            records.append((base + at, key, None if is_tombstone else value))
        sequence = self.sequences.get(producer, 0) if producer >= 0 and not flags & CONTROL else -1
        self.sequences[producer] = sequence + count if sequence >= 0 else self.sequences.get(producer, 0)
        made = Batch(
            tuple(Record(key=key, value=value) for _, key, value in records),
            base_offset=base,
            leader_epoch=self.epoch,
            flags=flags,
            codec=pick.choice((0, 0, 1, 4)) if not flags & CONTROL else 0,
            base_timestamp=1_700_000_000_000 + self.count,
            producer_id=producer,
            producer_epoch=0 if producer >= 0 else -1,
            base_sequence=sequence,
        )
        self.leader.log.append(Made(base, base + count - 1, self.epoch, made.encode(), tuple(records)))

    def follow(self, one: Broker) -> None:
        """Fetches from the leader: cuts off what diverged, then adds some of the leader's batches."""
        leader = self.leader
        if one is leader:
            return
        same = 0
        while same < min(len(one.log), len(leader.log)) and one.log[same] == leader.log[same]:
            same += 1
        if one.log and leader.log and one.log[0] != leader.log[0]:
            first = max(one.log[0].base, leader.log[0].base)
            mine, own = ([batch for batch in of.log if batch.base >= first] for of in (one, leader))
            agree = 0
            while agree < min(len(own), len(mine)) and own[agree] == mine[agree]:
                agree += 1
            same = len(one.log) - len(mine) + agree
            if not agree:
                same = 0
        if not same and leader.log:  # it begins anew with the batch that the leader's start lies in
            one.log, one.epochs, one.start = leader.log[:1], [], leader.start
            one.assign(leader.log[0].epoch, max(leader.start, leader.log[0].base))
        else:
            one.cut_off = one.log[same:] or one.cut_off
            one.log = one.log[:same]
            one.epochs = [entry for entry in one.epochs if entry[1] < one.end or entry in leader.epochs]
        after = [batch for batch in leader.log if batch.base >= one.end]
        for batch in after[: self.pick.randint(0, len(after)) if self.pick.random() < 0.4 else len(after)]:
            if not one.epochs or one.epochs[-1][0] < batch.epoch:
                one.assign(batch.epoch, batch.base)
            one.log.append(batch)
        one.high_watermark = min(one.end, max(one.high_watermark, leader.high_watermark))

    def advance(self) -> None:
        """Raises the high watermark to what every replica in sync has."""
        leader = self.leader
        leader.high_watermark = max(leader.high_watermark, min(one.end for one in self.in_sync))

    def elect(self) -> None:
        old = self.leader
        self.leader = self.pick.choice([one for one in self.brokers if one is not old] or [old])
        self.epoch += self.pick.choice((1, 1, 2))
        self.leader.assign(self.epoch, self.leader.end)
        self.in_sync = [self.leader]
        if self.pick.random() < 0.4:
            self.in_sync += [self.pick.choice(self.brokers)]
        self.leader.high_watermark = min(self.leader.high_watermark, self.leader.end)

    def move_start(self) -> None:
        """deleteRecords: whole segments go, the start may lie inside a batch."""
        for one in self.in_sync:
            target = self.leader.high_watermark // 2
            if one.start < target <= one.end:
                one.start = target
                while one.log and one.log[0].last < target and self.pick.random() < 0.9:
                    one.log.pop(0)
                epoch = max((e for e, s in one.epochs if s <= target), default=None)
                one.epochs = [(e, s) for e, s in one.epochs if s > target]
                if epoch is not None:
                    one.epochs.insert(0, (epoch, target))


def _clean(one: Broker, upto: int, drops_tombstones: bool) -> None:
    """What a log cleaner leaves before an offset: the last record of each key, in the old batches."""
    latest = {key: offset for batch in one.log if batch.last < upto for offset, key, _ in batch.records}
    kept = []
    for batch in one.log:
        records = tuple(
            (offset, key, value)
            for offset, key, value in batch.records
            if batch.last >= upto or (latest[key] == offset and not (value is None and drops_tombstones))
        )
        if len(records) == len(batch.records):
            kept.append(batch)
        elif records:
            made = Batch(
                tuple(
                    Record(key=key, value=value, offset_delta=at - batch.base) for at, key, value in records
                ),
                base_offset=batch.base,
                leader_epoch=batch.epoch,
                last_offset_delta=batch.last - batch.base,
                base_timestamp=1_700_000_000_000 + records[0][0],
            )
            kept.append(Made(batch.base, batch.last, batch.epoch, made.encode(), records))
    one.log, one.cleaned = kept, upto


def replica_set(seed: int, moves_start: bool = False, is_compacted: bool = False) -> ReplicaSet:
    """Returns some brokers' copies of a partition after a random history.

    moves_start: whether records are deleted. is_compacted: whether records have keys, and each broker's log
    cleaner ran by itself; ``truth`` is the log before that.
    """
    made = _Cluster(seed, is_compacted)
    pick = made.pick
    for _ in range(pick.randint(8, 60)):
        event = pick.random()
        if event < 0.55:
            made.produce()
        elif event < 0.85:
            made.follow(pick.choice(made.in_sync))
            made.advance()
        elif event < 0.93:
            made.elect()
        elif moves_start:
            made.move_start()
    brokers = made.brokers
    if len(brokers) > 2 and pick.random() < 0.2:  # a disk is gone
        brokers = [one for one in brokers if one is not pick.choice(brokers)] or brokers
    highest = max((one.epochs[-1][0] for one in brokers if one.epochs), default=-1)
    holders = [one for one in brokers if one.epochs and one.epochs[-1][0] == highest] or brokers
    best = max(holders, key=lambda one: one.end)
    start = max(one.start for one in holders)
    found = ReplicaSet(brokers, [batch for batch in best.log if batch.last >= start], start, highest)
    for one in brokers if is_compacted else ():
        if one.high_watermark and pick.random() < 0.8:
            _clean(one, pick.randint(0, one.high_watermark), pick.random() < 0.5)
    return found
