"""Writes the records of one partition of the lake to the target, each once, whatever ends the process.

A window of records is a transaction of a producer whose id is that of the restore and the partition. What was
written, with its offsets in the target, is noted before the transaction is committed (``journal``). A process
that goes on opens the producer: the target then ends what was open, and no earlier process can write any
more. Whether a pending transaction was committed is seen by whether a READ_COMMITTED consumer gets its last
record. Source: KIP-98, "Transactional guarantees"; TransactionCoordinator.handleInitProducerId.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

from kafka_log_lake.pipelines.cli.errors import RunFailed, UserError
from kafka_log_lake.pipelines.restore.clients import (
    REQUEST_SECONDS,
    ClientLog,
    as_user_error,
    asking,
    consumer,
    offset_of,
    producer,
)
from kafka_log_lake.pipelines.restore.journal import Entry, Journal, Run
from kafka_log_lake.pipelines.restore.plan import PartitionPlan
from kafka_log_lake.pipelines.restore.reading import Limits, Window, open_reader
from kafka_log_lake.pipelines.restore.request import Request

WAIT_SECONDS = 600.0  # that a target may be away, or refuse what it may take later
_PAUSE = 2.0
# An attempt with the same bytes has the same end
_HOPELESS = {
    *("TOPIC_AUTHORIZATION_FAILED", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "CLUSTER_AUTHORIZATION_FAILED"),
    *("_AUTHENTICATION", "SASL_AUTHENTICATION_FAILED", "POLICY_VIOLATION", "INVALID_RECORD", "_SSL"),
    *("INVALID_TIMESTAMP", "MSG_SIZE_TOO_LARGE", "RECORD_LIST_TOO_LARGE", "UNKNOWN_TOPIC_OR_PART"),
    *("UNSUPPORTED_FOR_MESSAGE_FORMAT", "INVALID_TRANSACTION_TIMEOUT", "_UNKNOWN_TOPIC"),
    *("_UNKNOWN_PARTITION", "UNSUPPORTED_VERSION", "_UNSUPPORTED_FEATURE"),
}


@dataclass(frozen=True)
class Task:
    """What a worker does: a partition of the lake. restore_id: of the state; limits: of the topic there."""

    request: Request
    plan: PartitionPlan
    restore_id: str
    limits: Limits

    @property
    def transactional_id(self) -> str:
        return f"kafka-log-lake-restore-{self.restore_id}-{self.plan.topic}-{self.plan.partition}"

    @property
    def doing(self) -> str:
        return f"{self.plan.topic}-{self.plan.partition} can't be written to {self.plan.target}"


@dataclass
class _Delivered:
    """The offsets that the target gave to the records of a transaction, by their number."""

    offsets: dict[int, int] = field(default_factory=dict)
    error: KafkaError | None = None

    def callback(self, number: int) -> Callable[[KafkaError | None, Any], None]:
        def noted(error: KafkaError | None, message: Any) -> None:
            if error is not None:
                # What is purged after a failure only follows from it
                if self.error is None or self.error.name() in ("_PURGE_QUEUE", "_PURGE_INFLIGHT"):
                    self.error = error
            else:
                self.offsets[number] = message.offset()

        return noted


class Throttle:
    """Says how long to wait before bytes are written, so that no time span has more than its rate and one
    window. What was not written in a pause is not made up for. rate: bytes a second.
    """

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._free: float | None = None  # when the rate allows the next bytes

    def wait(self, size: int, now: float) -> float:
        """Returns the seconds to wait at a moment before so many bytes."""
        begin = now if self._free is None else max(now, self._free)
        self._free = begin + size / self._rate
        return self._free - now


class _Interleaved(Exception):
    """Others write to the partition meanwhile: each record has to be asked for its offset."""


def open_journal(task: Task) -> Journal:
    return Journal(task.request.state, task.plan.topic, task.plan.partition)


def settle(task: Task) -> bool:
    """Ends what an earlier process left open, and finds out what it committed. Returns whether it did."""
    if not (journal := open_journal(task)).is_there:
        return False
    log = ClientLog()
    with asking(task.doing, log):
        _opened(task, log)
    if journal.pending is not None:
        journal.settle(_is_committed(task, journal.pending))
    return True


def restore_partition(task: Task) -> int:
    """Writes what of a partition is not confirmed yet. Returns the records that are confirmed in all."""
    journal = open_journal(task)
    begin = journal.next_offset if journal.next_offset is not None else task.plan.first_offset
    if begin is None or task.plan.last_offset is None or begin > task.plan.last_offset:
        return journal.records
    if journal.pending is not None:  # its worker was killed: ``settle`` was before
        settle(task)
        journal = open_journal(task)
        begin = journal.next_offset if journal.next_offset is not None else begin
    writer = _Writer(task, journal)
    now = time.time_ns() // 1_000_000
    for window in open_reader(task.request, task.plan).windows(begin, task.limits, now):
        writer.write(window, now)
    return journal.records


class _Writer:
    """A producer of one partition, and the journal that it keeps."""

    def __init__(self, task: Task, journal: Journal) -> None:
        self._task, self._journal, self._log = task, journal, ClientLog()
        self._each = task.request.partitions is not None
        with asking(task.doing, self._log):
            self._producer = _opened(task, self._log)
        rate = task.request.rate
        self._throttle = None if rate is None else Throttle(rate / task.request.processes)

    def write(self, window: Window, now: int) -> None:
        """Writes a window, with further attempts as long as the target may take it."""
        until = time.monotonic() + WAIT_SECONDS
        while True:
            try:
                self._transaction(window, now)
                return
            except _Interleaved:
                self._each = True
                self._recover()
            except KafkaException as failure:
                error: KafkaError = failure.args[0]
                if error.name() in _HOPELESS or time.monotonic() > until:
                    raise as_user_error(self._log.say(error), self._task.doing) from None
                time.sleep(_PAUSE)
                if not self._recover():
                    return

    def _transaction(self, window: Window, now: int) -> None:
        if not window.offsets:
            self._journal.intend(Entry(*window.place, 0, 0, now, (), tuple(window.held)))
            self._journal.settle(True)
            return
        if self._throttle is not None:
            time.sleep(self._throttle.wait(window.bytes, time.monotonic()))
        self._producer.begin_transaction()
        delivered = self._send(window)
        if self._producer.flush(WAIT_SECONDS):
            raise KafkaException(KafkaError(KafkaError._MSG_TIMED_OUT))
        if delivered.error is not None:
            raise KafkaException(delivered.error)
        runs = _runs(window, delivered.offsets, self._each)
        entry = Entry(*window.place, len(window.offsets), window.bytes, now, runs, tuple(window.held))
        self._journal.intend(entry)
        self._producer.commit_transaction(REQUEST_SECONDS)
        self._journal.settle(True)

    def _send(self, window: Window) -> _Delivered:
        """Gives all records of a window to the producer; its queue takes them, as they fit in memory."""
        delivered, produce, poll = _Delivered(), self._producer.produce, self._producer.poll
        topic, last, each = self._task.plan.target, len(window.offsets) - 1, self._each
        columns = (window.keys, window.values, window.headers, window.timestamps, window.targets)
        for number, (key, value, headers, timestamp, partition) in enumerate(zip(*columns, strict=True)):
            while True:
                try:
                    if headers is None and not each and 0 < number < last:  # a dict takes half as long
                        produce(topic, value, key, partition, timestamp=timestamp)
                        break
                    more: dict[str, Any] = {} if headers is None else {"headers": headers}
                    if each or number in (0, last):
                        more["on_delivery"] = delivered.callback(number)
                    produce(topic, value, key, partition, timestamp=timestamp, **more)
                    break
                except BufferError:
                    poll(0.1)
            if each and number % 1000 == 0:
                poll(0)
        return delivered

    def _abort(self) -> None:
        """Ends a transaction without its records."""
        self._producer.purge()
        self._producer.flush(REQUEST_SECONDS)
        self._producer.abort_transaction(REQUEST_SECONDS)

    def _recover(self) -> bool:
        """Brings the producer to where a transaction can begin. Returns whether the last one is to be redone.

        Where it can't be aborted, a new producer takes its place: the target ends the transaction.
        """
        if self._journal.pending is None:
            try:
                self._abort()
                return True
            except KafkaException:
                pass
        self._producer.purge()
        self._log = ClientLog()
        until = time.monotonic() + WAIT_SECONDS
        while True:
            try:
                self._producer = _opened(self._task, self._log)
                break
            except KafkaException as failure:
                if failure.args[0].name() in _HOPELESS or time.monotonic() > until:
                    raise as_user_error(self._log.say(failure.args[0]), self._task.doing) from None
                time.sleep(_PAUSE)
        if (pending := self._journal.pending) is None:
            return True
        is_committed = _is_committed(self._task, pending)
        self._journal.settle(is_committed)
        return not is_committed


def _opened(task: Task, log: ClientLog) -> Producer:
    """Opens the producer of a partition: what an earlier one left open is ended."""
    opened = producer(task.request, log, task.transactional_id, task.limits.max_bytes)
    until = time.monotonic() + WAIT_SECONDS
    while True:
        try:
            opened.init_transactions(REQUEST_SECONDS)
            return opened
        except KafkaException as failure:
            error = failure.args[0]
            known = log.last if log.last is not None and log.last.name() in _HOPELESS else None
            if known is not None:
                raise KafkaException(known) from None
            if not error.retriable() or error.name() in _HOPELESS or time.monotonic() > until:
                raise


def _runs(window: Window, delivered: dict[int, int], each: bool) -> tuple[Run, ...]:
    """Returns the runs of consecutive offsets on both sides.

    Raises an _Interleaved where only the first and the last offset are known, and others lie between them.
    """
    old = np.asarray(window.offsets, dtype=np.int64)
    count = len(old)
    to = np.asarray(window.targets, dtype=np.int64)
    if each:
        if len(delivered) != count:
            raise RunFailed("the target did not say the offset of each record")
        new = np.fromiter((delivered[number] for number in range(count)), dtype=np.int64, count=count)
    else:
        first = delivered[0]
        if delivered[count - 1] - first != count - 1:
            raise _Interleaved
        new = np.arange(first, first + count, dtype=np.int64)
    breaks = np.flatnonzero((np.diff(old) != 1) | (np.diff(new) != 1) | (np.diff(to) != 0)) + 1
    edges = [0, *breaks.tolist(), count]
    return tuple(
        (int(old[begin]), end - begin, int(to[begin]), int(new[begin])) for begin, end in pairwise(edges)
    )


def _is_committed(task: Task, pending: Entry) -> bool:
    """Says whether a transaction was committed: whether a READ_COMMITTED consumer gets its last record.

    Nothing of this producer follows that record, so no log cleaner has removed it. The transaction is ended:
    the consumer gets the record, or something later, or the log's end is after it. Other open transactions
    before it are waited for.
    """
    if not pending.runs:
        return True
    _, count, partition, first = pending.runs[-1]
    offset, log = first + count - 1, ClientLog()
    with asking(task.doing, log):
        reader = consumer(task.request, log)
        try:
            reader.assign([TopicPartition(task.plan.target, partition, offset)])
            until = time.monotonic() + WAIT_SECONDS
            while time.monotonic() < until:
                message = reader.poll(1.0)
                if message is None:
                    continue
                error = message.error()
                if error is None:
                    return offset_of(message) == offset
                if error.code() == KafkaError._PARTITION_EOF:
                    if offset_of(message) > offset:
                        return False
                elif error.code() in (KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET):
                    low, _ = reader.get_watermark_offsets(
                        TopicPartition(task.plan.target, partition), REQUEST_SECONDS
                    )
                    if low > offset:
                        raise UserError(
                            f"{task.plan.target}-{partition} lost records that were restored: its retention "
                            "deletes them; set retention.ms=-1, then start anew with another --state"
                        )
                    return False  # the log ends before it
        finally:
            reader.close()
    raise UserError(
        f"{task.plan.target}-{partition} has a transaction of another program that stays open: end it by "
        "kafka-transactions.sh, then start the same command again to continue"
    )
