"""Rules about the time of a log, and for how long its transactions have been open, over arrays of batches.

The SQL of these rules: ``batch_times``, ``log_clocks``, ``transaction_ages``.

A log has no clock: producers stamp records (create time), brokers stamp markers, and records with
log append time. Producers' clocks may be wrong by years, or in another unit.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass
from typing import NamedTuple

import numpy as np

from kafka_log_lake.udfs.batches.decisions import Case, decide
from kafka_log_lake.udfs.format import layout as f

# Ranges of int64 by their size alone; all other non-negative numbers are milliseconds
WRONG_UNITS = (
    ("seconds", 10**9, 10**11 - 1),
    ("microseconds", 10**14, 10**17 - 1),
    ("nanoseconds", 10**17, 2**63 - 1),
)
MAX_AHEAD_MS = 3_600_000  # message.timestamp.after.max.ms from Kafka 4.0 on (KIP-1030)
FIRST_KAFKA_MS = 1_293_840_000_000  # 2011: no broker's clock, and no file that a broker wrote, is before it
# Kafka's default of transaction.max.timeout.ms: a broker aborts a transaction that is open for longer
TRANSACTION_TIMEOUT_MS = 15 * 60 * 1000
LONGEST_LIKELY_MS = 7 * 24 * 3_600_000  # transactional.id.expiration.ms of Kafka

CERTAIN, LIKELY, UNKNOWN = "certain", "likely", "unknown"
# Which clock tells the time of a log; "" none. A file's: no timestamp is credible
WITNESSES: tuple[Case, ...] = (
    ("is_of_broker", "broker"),
    ("has_newest", "producer"),
    ("has_file", "file"),
    ("", ""),
)
# How certain that time is
CERTAINTIES: tuple[Case, ...] = (
    ("is_of_broker", CERTAIN),
    ("is_confirmed_by_file", LIKELY),
    ("", UNKNOWN),
)


def witness_ms(modified_ms: int) -> int | None:
    """Returns the modification time of a file in ms; None where it is before Kafka and proves nothing."""
    return modified_ms if modified_ms >= FIRST_KAFKA_MS else None


def first_times(batches: np.ndarray) -> np.ndarray:
    """Returns int64[n]: the time of the first record of each BATCH[n], in ms as stored; -1 if not known.

    With log append time it is the max timestamp (KIP-32). A delete horizon may lie in place of the base
    timestamp (KIP-534), and a wrapper of magic 1 has the highest time of its messages.
    """
    horizon = (batches["magic"] == f.MAGIC_V2) & (batches["attributes"] & f.DELETE_HORIZON_MASK != 0)
    wrapper = (batches["magic"] == f.MAGIC_V1) & (batches["codec"] != f.CODEC_NONE)
    first = np.where(horizon | wrapper, f.NO_TIMESTAMP, batches["base_timestamp"])
    return np.where(batches["timestamp_type"] == f.LOG_APPEND_TIME, batches["max_timestamp"], first)


def are_by_broker(batches: np.ndarray) -> np.ndarray:
    """Returns bool[n]: whether a broker's clock stamped each BATCH[n]: log append time or control batch."""
    control = (batches["magic"] == f.MAGIC_V2) & (batches["attributes"] & f.CONTROL_MASK != 0)
    return control | (batches["timestamp_type"] == f.LOG_APPEND_TIME)


def are_credible(times: np.ndarray, by_broker: np.ndarray, modified_ms: int) -> np.ndarray:
    """Returns bool[n]: which times (int64[n], of batches of one file) are in ms and not after the file's."""
    good = times >= np.where(by_broker, FIRST_KAFKA_MS, 0)
    for _, lowest, highest in WRONG_UNITS:
        good &= (times < lowest) | (times > highest)
    witness = witness_ms(modified_ms)
    return good if witness is None else good & (times <= witness + MAX_AHEAD_MS)


@dataclass(frozen=True)
class Clock:
    """The time of a log, in ms since 1970; None for what is not there.

    newest_ms, broker_ms: the newest credible timestamp, and the newest by a broker's clock. modified_ms: the
    latest modification time of its files.
    """

    newest_ms: int | None = None
    broker_ms: int | None = None
    modified_ms: int | None = None

    def later(self, other: Clock) -> Clock:
        """Returns the later time of both logs for each field."""
        latest = (
            max((time for time in pair if time is not None), default=None)
            for pair in zip(astuple(self), astuple(other), strict=True)
        )
        return Clock(*latest)

    @property
    def now_ms(self) -> int | None:
        """Returns the time that counts as now: the newest credible timestamp, else the modification time.

        None where neither is known.
        """
        return self.modified_ms if self.newest_ms is None else self.newest_ms

    @property
    def witness(self) -> str | None:
        """Returns what tells ``now_ms``: broker, producer, file (no timestamp is credible), or None."""
        (answer,) = decide(WITNESSES, self._conditions())
        return answer or None

    @property
    def certainty(self) -> str:
        """Returns how certain ``now_ms`` is: certain, likely or unknown."""
        (answer,) = decide(CERTAINTIES, self._conditions())
        return answer

    def _conditions(self) -> set[str]:
        """Returns the names of the conditions that hold."""
        newest, modified = self.newest_ms, self.modified_ms
        has_both = newest is not None and modified is not None
        holding = {
            "has_newest": newest is not None,
            "is_of_broker": newest is not None and newest == self.broker_ms,
            "has_file": modified is not None,
            "is_confirmed_by_file": has_both and abs((modified or 0) - (newest or 0)) <= MAX_AHEAD_MS,
        }
        return {name for name, holds in holding.items() if holds}


class Age(NamedTuple):
    """For how long a transaction has been open at the last write of its log, in ms.

    open_ms: None if its begin is not known. proven_open_ms: the least time that brokers' clocks alone prove;
    None where they stamped nothing, or disagree.
    """

    open_ms: int | None
    proven_open_ms: int | None = None


def age(
    clock: Clock, first_ms: int | None, by_broker: bool, before_ms: int | None, after_ms: int | None
) -> Age:
    """Returns how long an open transaction has been open at the last write of its log.

    first_ms: credible time of its first batch. by_broker: whether that is a broker's. before_ms, after_ms:
    the latest credible time of the markers before it, the earliest of those after it.
    """
    if by_broker and first_ms is not None:
        after_ms = first_ms
    open_ms = None
    if first_ms is not None and clock.now_ms is not None:
        began = max(first_ms, first_ms if before_ms is None else before_ms)
        open_ms = clock.now_ms - min(began, clock.now_ms if after_ms is None else after_ms)
    proven = None
    if after_ms is not None and clock.broker_ms is not None and (before_ms is None or after_ms >= before_ms):
        proven = clock.broker_ms - after_ms
    return Age(open_ms, proven)
