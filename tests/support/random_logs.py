"""Makes random logs as brokers write them, and as disks, people and retention change them; all is known.

``random_log`` plays a broker: producers with and without ids, transactions that commit, abort, are fenced by
a higher epoch or stay open, rolled segments. Then what happens to logs happens to it: the cleaner, retention
between two runs of a job, a lost segment, damage, base offsets with a wrong bit (no checksum covers them),
clocks that are wrong, segments that are left out, a second copy.

The same log can be had as rows of the tables of a lake (``made_tables``: nothing is decoded) and as segment
files (``write_files``). ``Log`` and its parts are plain descriptions: a model reads them, and changes none.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.support import segment_maker as make
from tests.support.log_model import HOUR, INT32, NOW, Log, LogBatch, Segment, wrapped


@dataclass
class _Producer:
    id: int
    epoch: int = 0
    sequence: int = 0
    is_transactional: bool = False
    is_open: bool = False
    clock_ms: int = 0


@dataclass
class Odds:
    """The probability (0 to 1) of each mishap, for a log or for a batch."""

    compacted: float = 0.3
    retention: float = 0.2
    lost_segment: float = 0.2
    left_out: float = 0.1
    damaged_batch: float = 0.05
    wrong_base: float = 0.25  # a log
    skipped_sequence: float = 0.04
    lost_marker: float = 0.1  # a marker
    append_time: float = 0.3  # a log
    wrong_clock: float = 0.2  # a producer
    mad_timestamp: float = 0.02  # a batch
    checkpoint: float = 0.3
    copy: float = 0.3
    clocks: tuple[int, ...] = (-5 * 24 * HOUR, 3 * HOUR, NOW * 999, NOW // 1000 - NOW)
    timestamps: tuple[int, ...] = (-1, 0, 2**63 - 1, 2**63 - 2, -(2**63), 2**61, NOW * 1000)


@dataclass
class _Broker:
    """Writes one log."""

    pick: random.Random
    odds: Odds
    next_offset: int = 0
    now_ms: int = NOW
    leader_epoch: int = 0
    written: list[LogBatch] = field(default_factory=list)

    def write(self, producer: _Producer | None, count: int, flags: int, control: str | None = None) -> None:
        clock = 0 if producer is None else producer.clock_ms
        stamp = self.now_ms + (0 if control else clock)
        if not control and self.pick.random() < self.odds.mad_timestamp:
            stamp = self.pick.choice(self.odds.timestamps)
        highest = self.now_ms if flags & make.LOG_APPEND else stamp
        sequence = -1 if producer is None or control else producer.sequence
        self.written.append(
            LogBatch(
                true_base=self.next_offset,
                base_offset=self.next_offset,
                count=count,
                span=count,
                producer_id=-1 if producer is None else producer.id,
                producer_epoch=-1 if producer is None else producer.epoch,
                base_sequence=sequence,
                flags=flags,
                control=control,
                leader_epoch=self.leader_epoch,
                base_timestamp_ms=stamp,
                max_timestamp_ms=highest,
            )
        )
        self.next_offset += count
        self.now_ms += self.pick.choice((1, 1000, 60_000, HOUR))
        if sequence >= 0 and producer is not None:
            producer.sequence = (producer.sequence + count) % INT32

    def step(self, producers: list[_Producer], time_flag: int) -> None:
        """Writes what one produce request or one marker brings."""
        pick = self.pick
        if pick.random() < 0.05:
            self.leader_epoch += 1
        producer = pick.choice([None, *producers])
        if producer is None:
            self.write(None, pick.randint(1, 4), time_flag)
            return
        if pick.random() < self.odds.skipped_sequence:
            jump = pick.choice((0, 1, 5, INT32 - 3, -2))  # 0: to the start
            producer.sequence = (producer.sequence + jump) % INT32 if jump else 0
        if not producer.is_transactional:
            self.write(producer, pick.randint(1, 4), time_flag)
            return
        transactional = time_flag | make.TRANSACTIONAL
        what = pick.random()
        if producer.is_open and what < 0.4:
            control = pick.choice(("COMMIT", "ABORT"))
            if pick.random() < 0.3:
                producer.epoch, producer.sequence = producer.epoch + 1, 0  # as transactions of KIP-890 do
            if pick.random() >= self.odds.lost_marker:
                self.write(producer, 1, transactional, control)
            producer.is_open = False
        elif what < 0.5:
            # fenced: the coordinator ends what is open with the next epoch, or its marker is lost
            producer.epoch, producer.sequence = producer.epoch + 1, 0
            if producer.is_open and pick.random() >= self.odds.lost_marker:
                self.write(producer, 1, transactional, "ABORT")
                producer.is_open = False
        else:
            self.write(producer, pick.randint(1, 4), transactional)
            producer.is_open = True


def random_log(pick: random.Random, topic: str, partition: int = 0, odds: Odds | None = None) -> Log:
    """Returns a random log of one folder."""
    odds = odds or Odds()
    broker = _Broker(pick, odds, next_offset=pick.choice((0, 0, 0, 7, 1000, 2**40)))
    begin = broker.next_offset
    producers = [
        _Producer(
            id=100 + at,
            epoch=pick.choice((0, 0, 5)),
            sequence=pick.choice((0, 0, 9, INT32 - 3)),
            is_transactional=pick.random() < 0.6,
            clock_ms=pick.choice(odds.clocks) if pick.random() < odds.wrong_clock else 0,
        )
        for at in range(pick.randint(0, 3))
    ]
    time_flag = make.LOG_APPEND if pick.random() < odds.append_time else 0
    broker.write(None, 1, time_flag)
    for _ in range(pick.randint(0, 24)):
        broker.step(producers, time_flag)
    segments = _rolled(pick, broker.written, begin)
    is_compacted = len(segments) > 1 and pick.random() < odds.compacted
    if is_compacted:
        segments = [*(_cleaned(pick, one) for one in segments[:-1]), segments[-1]]
    segments = _missing(pick, odds, segments)
    segments = [_mishaps(pick, odds, one) for one in segments]
    if pick.random() < odds.wrong_base:
        segments = _wrong_base(pick, segments)
    if pick.random() < odds.left_out:
        at = pick.randrange(len(segments))
        segments[at] = replace(segments[at], left_out=-1)
    checkpoint = None
    if pick.random() < odds.checkpoint:
        end = broker.next_offset
        checkpoint = (
            pick.choice((None, begin, begin, max(0, begin - 3))),
            pick.choice((None, end, end + 2, 0)),
            pick.choice((None, end, end, end + 1, 0)),
        )
    return Log(topic, partition, "/logs", tuple(segments), is_compacted, checkpoint)


def _rolled(pick: random.Random, written: list[LogBatch], begin: int) -> list[Segment]:
    """Cuts batches into segments, each named by its first offset. begin: the log start offset."""
    cuts = sorted(pick.sample(range(1, len(written)), min(pick.randint(0, 4), max(0, len(written) - 1))))
    found = []
    for at, to in zip([0, *cuts], [*cuts, len(written)], strict=True):
        found.append(Segment(written[at].true_base, tuple(written[at:to]), begin))
    return found


def _cleaned(pick: random.Random, segment: Segment) -> Segment:
    """Returns a segment as the cleaner leaves it: without some records and batches, with all markers."""
    kept = []
    for one in segment.batches:
        what = pick.random()
        if one.control or what < 0.4:
            kept.append(one)
        elif what < 0.7:
            horizon = make.DELETE_HORIZON if pick.random() < 0.3 else 0
            kept.append(
                replace(
                    one,
                    count=pick.randint(0 if one.producer_id >= 0 else 1, one.count),
                    flags=one.flags | horizon,
                    base_timestamp_ms=NOW + 48 * HOUR if horizon else one.base_timestamp_ms,
                )
            )
    return replace(segment, batches=tuple(kept))


def _missing(pick: random.Random, odds: Odds, segments: list[Segment]) -> list[Segment]:
    """Returns the segments without those that retention deleted between two runs, or without a lost one."""
    if len(segments) < 3:
        return segments
    at = pick.randrange(1, len(segments) - 1)
    if pick.random() < odds.retention:
        start = segments[at + 1].file_base_offset
        after = [replace(one, log_start_offset=start) for one in segments[at + 1 :]]
        return [*segments[:at], *after]
    if pick.random() < odds.lost_segment:
        return [*segments[:at], *segments[at + 1 :]]
    return segments


def _mishaps(pick: random.Random, odds: Odds, segment: Segment) -> Segment:
    made = []
    for one in segment.batches:
        what = pick.random()
        if what < odds.damaged_batch:
            made.append(replace(one, status="corrupt", count=0))
        elif what < odds.damaged_batch * 1.5:
            made.append(replace(one, is_garbage=True))
        else:
            made.append(one)
    return replace(segment, batches=tuple(made))


def _wrong_base(pick: random.Random, segments: list[Segment]) -> list[Segment]:
    """Flips one bit of one base offset, seldom of two. Returns the segments."""
    for _ in range(pick.choice((1, 1, 1, 2))):
        places = [(s, b) for s, one in enumerate(segments) for b in range(len(one.batches))]
        if not places:
            return segments
        at, number = pick.choice(places)
        batches = list(segments[at].batches)
        bit = pick.choice((0, 1, 2, 3, 5, 16, 31, 40, 61, 62, 63))
        batches[number] = replace(
            batches[number], base_offset=wrapped(batches[number].true_base ^ (1 << bit))
        )
        segments[at] = replace(segments[at], batches=tuple(batches))
    return segments


def copy_of(pick: random.Random, log: Log, odds: Odds | None = None) -> Log:
    """Returns another replica of a log: it may be shorter, and has other damage."""
    kept = log.segments[: pick.randint(1, len(log.segments))]
    segments = tuple(_mishaps(pick, odds or Odds(), one) for one in kept)
    return replace(log, folder="/copy", segments=segments, checkpoint=None)


def random_logs(seed: int, count: int, odds: Odds | None = None, prefix: str = "t") -> list[Log]:
    """Returns random logs, one for each topic, some with a second copy."""
    pick = random.Random(seed)
    odds = odds or Odds()
    found = []
    for number in range(count):
        topic = pick.choice((f"{prefix}{number}", f"{prefix}.{number}'s", f"{prefix}-{number}"))
        log = random_log(pick, topic, pick.choice((0, 0, 3, INT32 - 1)), odds)
        found.append(log)
        if pick.random() < odds.copy:
            found.append(copy_of(pick, log, odds))
    return found


def write_files(root: Path, logs: Iterable[Log]) -> None:
    """Writes logs as log directories: ``<root><folder>/<topic>-<partition>/<offset>.log``."""
    for log in logs:
        folder = root / log.folder.lstrip("/") / f"{log.topic}-{log.partition}"
        folder.mkdir(parents=True, exist_ok=True)
        for segment in log.segments:
            path = folder / make.segment_name(segment.file_base_offset)
            path.write_bytes(b"".join(one.encode() for one in segment.batches))
