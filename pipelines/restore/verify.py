"""Reads back every record that was restored, and compares it with the lake's."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from kafka_log_lake.pipelines.restore.clients import REQUEST_SECONDS, ClientLog, asking, consumer, offset_of
from kafka_log_lake.pipelines.restore.journal import Entry
from kafka_log_lake.pipelines.restore.producing import Task, journal_of
from kafka_log_lake.pipelines.restore.reading import Headers, Limits, PartitionReader, open_reader

_SILENCE_SECONDS = 120.0
_WORDS = 5  # of the differences of a partition that are said
_TAKES_ALL = Limits(1 << 62, keeps_time=False)

Record = tuple[bytes | None, bytes | None, Headers, int]


@dataclass
class Verified:
    """What was found of a partition. restored: records by the journal; verified: read back equal.

    wrong: the first differences in words. held: reason -> records.
    """

    topic: str
    partition: int
    restored: int = 0
    verified: int = 0
    wrong: list[str] = field(default_factory=list)
    held: Counter[str] = field(default_factory=Counter)


def verify_partition(task: Task) -> Verified:
    """Reads back what was restored of a partition of the lake."""
    plan = task.plan
    verified = Verified(plan.topic, plan.partition)
    journal = journal_of(task)
    if not journal.is_there:
        return verified
    log = ClientLog()
    lake = open_reader(task.request, plan)
    with asking(f"{plan.target} can't be read back", log):
        target = consumer(task.request, log, fetch_wait_max_ms=100)
        try:
            readers = _Positions(target, plan.target)
            for entry in journal.entries():
                verified.held.update(reason for _, reason in entry.held)
                if entry.runs:
                    _compare(task, entry, lake, readers, verified)
        finally:
            target.close()
    return verified


def _compare(task: Task, entry: Entry, lake: PartitionReader, target: _Positions, verified: Verified) -> None:
    """Compares the records of one transaction."""
    window = lake.window(entry.begin, entry.end, _TAKES_ALL, entry.now)
    columns = (window.keys, window.values, window.headers, window.timestamps)
    records = dict(zip(window.offsets, zip(*columns, strict=True), strict=True))
    keeps_time = task.limits.keeps_time
    of_target: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
    for first, count, to, new in entry.runs:
        of_target[to].append((new, count, first))
    for to, runs in of_target.items():
        begin, (last, count, _) = runs[0][0], runs[-1]
        there = target.read(to, begin, last + count)
        for new, count, first in runs:
            verified.restored += count
            for number in range(count):
                expected, message = records.get(first + number), there.get(new + number)
                if problem := _difference(expected, message, keeps_time):
                    if len(verified.wrong) < _WORDS:
                        old = f"{verified.topic}-{verified.partition} offset {first + number}"
                        verified.wrong.append(
                            f"{old} at {task.plan.target}-{to} offset {new + number}: {problem}"
                        )
                else:
                    verified.verified += 1


def _difference(expected: Record | None, message: Message | None, keeps_time: bool) -> str:
    """Returns what differs in a record that was read back; "" where nothing does."""
    if expected is None:
        return "the lake has it no more"
    if message is None:
        return "it is not there"
    key, value, headers, timestamp = expected
    pairs = (
        ("key", key, message.key()),
        ("value", value, message.value()),
        ("headers", headers or None, message.headers() or None),
    )
    for name, expected_part, there in pairs:
        if expected_part != there:
            return f"its {name} differs"
    # A consumer gives no type and 0 for a record without a timestamp
    kind, time_there = message.timestamp()
    if keeps_time and timestamp != (time_there if kind else -1):
        return f"its timestamp is {time_there}, not {timestamp}"
    return ""


class _Positions:
    """Reads ranges of offsets of a topic; ranges that follow each other need no new request."""

    def __init__(self, reader: Consumer, topic: str) -> None:
        self._reader, self._topic = reader, topic
        self._at: tuple[int, int] | None = None
        self._early: list[Message] = []  # of what was read past the range

    def read(self, partition: int, begin: int, end: int) -> dict[int, Message]:
        """Returns the committed records from ``begin`` to ``end`` - 1, by offset.

        Fewer where they are not there, or retention took them. Raises a KafkaException for any other refusal.
        """
        if self._at is None or self._at[0] != partition or self._at[1] > begin:
            self._reader.assign([TopicPartition(self._topic, partition, begin)])
            self._early = []
        messages = {
            offset_of(message): message for message in self._early if begin <= offset_of(message) < end
        }
        self._early = [message for message in self._early if offset_of(message) >= end]
        is_past, until = bool(self._early), time.monotonic() + _SILENCE_SECONDS
        while not is_past and end - 1 not in messages:
            for message in self._reader.consume(10_000, 0.5):
                until = time.monotonic() + _SILENCE_SECONDS
                error = message.error()
                if error is None:
                    if offset_of(message) >= end:
                        self._early.append(message)
                        is_past = True
                    elif offset_of(message) >= begin:
                        messages[offset_of(message)] = message
                elif error.code() == KafkaError._PARTITION_EOF:
                    is_past = is_past or offset_of(message) >= end
                elif error.code() in (KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET):
                    self._at = None
                    return messages  # retention took them
                elif not error.retriable() and error.code() != KafkaError.GROUP_AUTHORIZATION_FAILED:
                    raise KafkaException(error)
            if time.monotonic() > until:  # none is there, or the target does not answer at all
                self._reader.get_watermark_offsets(TopicPartition(self._topic, partition), REQUEST_SECONDS)
                break
        self._at = (partition, end)
        return messages
