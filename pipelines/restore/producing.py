"""Writes the records of one partition of the lake to the target, each once, whatever ends the process.

A window of records is a transaction of a producer whose id is that of the restore and the partition. What was
written, with its offsets in the target, is noted before the transaction is committed (``journal``). A process
that goes on opens the producer: the target then ends what was open, and no earlier process can write any
more. After that it reads the journal. Whether the last transaction was committed is seen by whether a
READ_COMMITTED consumer gets its last record. A process that was taken for dead, as a task of Spark may be,
finds another journal than it knew when it opens its producer again, and ends.
Source: KIP-98, "Transactional guarantees"; TransactionCoordinator.handleInitProducerId.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise, repeat

import numpy as np
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

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
from kafka_log_lake.pipelines.restore.journal import Entry, Journal, Run, open_journal
from kafka_log_lake.pipelines.restore.plan import PartitionPlan
from kafka_log_lake.pipelines.restore.reading import Limits, Window, open_reader
from kafka_log_lake.pipelines.restore.request import Request
from kafka_log_lake.udfs.errors import JobError

WAIT_SECONDS = 600.0  # that a target may be away, or refuse what it may take later
_PAUSE = 2.0
# confluent-kafka raises a SystemError where callbacks follow a fatal error, such as that of being fenced
_FAILURES, _FATAL = (KafkaException, SystemError), KafkaError(KafkaError._FATAL)
_PURGED = ("_PURGE_QUEUE", "_PURGE_INFLIGHT")
_SILENT_POLLS = 10  # of a second each, until the target is asked what it has against a topic
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

    def callback(self, number: int) -> Callable[[KafkaError | None, Message], None]:
        def noted(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                # What is purged after a failure only follows from it
                if self.error is None or self.error.name() in _PURGED:
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


class TakenOver(RunFailed):
    """Another process or task writes the partition with the same state. Spark may try its task again."""


def told(function: Callable[[object], object], task: Task) -> tuple[object, JobError | None]:
    """Returns the result of a function, or its error: Spark would call it again, and wait as long again."""
    try:
        return function(task), None
    except TakenOver:  # another attempt has the task
        raise
    except JobError as error:
        return None, error


def journal_of(task: Task) -> Journal:
    """Opens the journal of a task's partition, in the folder of ``--state``."""
    return open_journal(task.request.state, task.plan.topic, task.plan.partition)


def settle(task: Task) -> int:
    """Ends what an earlier process left open, and finds out what it committed. Returns how many records."""
    if not journal_of(task).is_there:
        return 0
    journal = _Writer(task).journal
    journal.close()
    return journal.in_all[0]


def restore_partition(task: Task) -> int:
    """Writes what of a partition is not confirmed yet. Returns the records that are confirmed in all."""
    first, last = task.plan.first_offset, task.plan.last_offset
    journal = journal_of(task)
    if first is None or last is None or (journal.next_offset or 0) > last:
        return journal.in_all[0]
    writer, now = _Writer(task), time.time_ns() // 1_000_000
    begin = writer.journal.next_offset
    windows = open_reader(task.request, task.plan).windows(
        first if begin is None else begin, task.limits, now
    )
    for window in windows:
        writer.write(window, now)
    writer.journal.close()
    return writer.journal.in_all[0]


class _Writer:
    """A producer of one partition, and the journal that it keeps: as it is once the producer is open."""

    def __init__(self, task: Task) -> None:
        self._task, self._log = task, ClientLog()
        self._each = task.request.partitions is not None
        with asking(task.doing, self._log):
            self._producer = _opened(task, self._log)
        self.journal = self._read_journal()
        rate = task.request.rate
        self._throttle = None if rate is None else Throttle(rate / task.request.processes)

    def _read_journal(self) -> Journal:
        journal = journal_of(self._task)
        journal.find_last(partial(is_committed, self._task))
        return journal

    def write(self, window: Window, now: int, until: float | None = None) -> None:
        """Writes a window, with further attempts as long as the target may take it (``until``).

        What failed is tried by halves: a quota may let less through than a window before its transaction
        times out.
        """
        until = until or time.monotonic() + WAIT_SECONDS
        while True:
            try:
                self._transaction(window, now)
                return
            except _Interleaved:
                self._each = True
                self._recover()
            except _FAILURES as failure:
                error = failure.args[0] if isinstance(failure, KafkaException) else _FATAL
                if error.name() in _HOPELESS or time.monotonic() > until:
                    raise as_user_error(self._log.say(error), self._task.doing) from None
                time.sleep(_PAUSE)
                if not self._recover():
                    return
                if len(window.offsets) > 1:
                    first, second = window.halves()
                    self.write(first, now, until)
                    window, until = second, time.monotonic() + WAIT_SECONDS

    def _transaction(self, window: Window, now: int) -> None:
        if not window.offsets:
            self.journal.intend(Entry(*window.place, 0, 0, now, (), tuple(window.held)))
            self.journal.settle(True)
            return
        if self._throttle is not None:
            time.sleep(self._throttle.wait(window.bytes, time.monotonic()))
        self._producer.begin_transaction()
        delivered = self._send(window)
        self._flush()
        if delivered.error is not None:
            if delivered.error.name() in _PURGED:  # a transaction with such records is never committed
                self._producer.commit_transaction(REQUEST_SECONDS)  # it raises what the target refused
            raise KafkaException(delivered.error)
        runs = _runs(window, delivered.offsets, self._each)
        self._refuse_loss(runs)
        entry = Entry(*window.place, len(window.offsets), window.bytes, now, runs, tuple(window.held))
        self.journal.intend(entry)
        self._producer.commit_transaction(REQUEST_SECONDS)
        self.journal.settle(True)

    def _send(self, window: Window) -> _Delivered:
        """Gives all records of a window to the producer; its queue takes them, as they fit in memory."""
        delivered, produce, count = _Delivered(), self._producer.produce, len(window.offsets)
        callbacks: list[Callable[..., None] | None] = [None] * count
        for number in range(count) if self._each else (0, count - 1):
            callbacks[number] = delivered.callback(number)
        columns = (window.values, window.keys, window.targets, callbacks, repeat(None), window.timestamps)
        # produce has two names for the callback; named arguments take half as long again
        for record in zip(repeat(self._task.plan.target), *columns, window.headers):
            while True:
                try:
                    produce(*record)
                    break
                except BufferError:
                    self._producer.poll(0.1)
        return delivered

    def _flush(self) -> None:
        """Waits until the target has all records."""
        until = time.monotonic() + WAIT_SECONDS
        while self._producer.flush(REQUEST_SECONDS):
            _refuse_unusable(self._producer, self._task.plan.target)
            if time.monotonic() > until:
                raise KafkaException(KafkaError(KafkaError._MSG_TIMED_OUT))

    def _refuse_loss(self, runs: Sequence[Run]) -> None:
        """Raises a UserError where records get offsets that confirmed ones have."""
        ends = self.journal.ends
        for _, _, to, new in runs:
            if new <= ends.get(to, -1):
                raise UserError(
                    f"{self._task.plan.target}-{to} lost records that were restored: it was made anew; "
                    "delete it, then start anew with another --state"
                )

    def _abort(self) -> None:
        """Ends a transaction without its records."""
        self._producer.purge()
        self._producer.flush(REQUEST_SECONDS)
        self._producer.abort_transaction(REQUEST_SECONDS)

    def _recover(self) -> bool:
        """Brings the producer to where a transaction can begin. Returns whether the last one is to be redone.

        Where it can't be aborted, a new producer takes its place: the target ends the transaction.
        """
        if not self.journal.pending:
            try:
                self._abort()
                return True
            except _FAILURES:
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
        known, self.journal = self.journal, self._read_journal()
        if self.journal.last not in (known.last, known.pending):
            raise TakenOver(
                f"{self._task.doing}: another restore with the same --state runs: end one of them"
            )
        return self.journal.last == known.last


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


def is_committed(task: Task, pending: Entry) -> bool:
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
            place = TopicPartition(task.plan.target, partition, offset)
            reader.assign([place])
            until, silent = time.monotonic() + WAIT_SECONDS, 0
            while time.monotonic() < until:
                message = reader.poll(1.0)
                if message is None:
                    silent += 1
                    if silent % _SILENT_POLLS == 0:
                        _refuse_unusable(reader, task.plan.target)
                    continue
                error = message.error()
                if error is None:
                    return offset_of(message) == offset
                if error.code() == KafkaError._PARTITION_EOF:
                    if offset_of(message) > offset:
                        return False
                elif error.code() in (KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET):
                    low, _ = reader.get_watermark_offsets(place, REQUEST_SECONDS)
                    if low > offset:
                        raise UserError(
                            f"{task.plan.target}-{partition} lost records that were restored: its retention "
                            "deletes them; set retention.ms=-1, then start anew with another --state"
                        )
                    return False  # the log ends before it
                elif error.name() in _HOPELESS:
                    raise KafkaException(error)
            reader.get_watermark_offsets(place, REQUEST_SECONDS)  # or the target does not answer at all
        finally:
            reader.close()
    raise UserError(
        f"{task.plan.target}-{partition} has a transaction of another program that stays open: end it by "
        "kafka-transactions.sh, then start the same command again to continue"
    )


def _refuse_unusable(client: Consumer | Producer, topic: str) -> None:
    """Raises a KafkaException where the target says what it has against a topic: clients only wait then."""
    try:
        error = client.list_topics(topic, REQUEST_SECONDS).topics[topic].error
    except KafkaException:  # it does not answer
        return
    if error is not None and error.name() in _HOPELESS:
        raise KafkaException(error)
