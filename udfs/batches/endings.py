"""Rules for what ends an open transaction: its age, and the coordinator's last record of it.

The SQL of these rules is the view ``hanging_transactions``: the words are the same.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from kafka_log_lake.udfs.batches.clocks import (
    BY_BROKERS,
    CERTAIN,
    IN_DAMAGE,
    LIKELY,
    TRANSACTION_TIMEOUT_MS,
    UNKNOWN,
    Age,
    Clock,
)

# What a coordinator did of a transaction
ONGOING, PREPARED, ENDED = "ongoing", "prepared", "ended"
LIKELY_ENDED, ENDED_LATER = "likely ended", "ended later"
PREPARE = ("PrepareCommit", "PrepareAbort", "PrepareEpochFence")
OPEN_AT_LAST_WRITE = (
    "it was open at the last write of its log, and is too old by the wall clock if that was the last one"
)
MARKERS_WRITTEN = (
    "the logs have its markers and hold back no consumer; its producer gets CONCURRENT_TRANSACTIONS until "
    "brokers with the mend of KAFKA-19999 complete it"
)
# The timeout of a client that commits in two phases (KIP-939): no coordinator aborts its transactions
NEVER_MS = 2**31 - 1
# Of Flink's sink: prefix, subtask, number; of its producer before: prefix, id of the operator, number
_FLINK = re.compile(r".+-[0-9]+-[0-9]+|.+-[0-9a-f]{32}-[0-9]+", re.DOTALL)


@dataclass(frozen=True)
class CoordinatorState:
    """The coordinator's last state of a producer id; times in ms since 1970.

    producer_epoch: None of an id that the transactional id had before. partitions: topic and partition of
    what has no marker yet. start_ms: None before the first partition. noted_until_ms: the newest record of
    its partition of ``__transaction_state``: what came later is not known.
    """

    transactional_id: str
    state: str
    producer_epoch: int | None
    timeout_ms: int
    partitions: frozenset[tuple[str, int]]
    start_ms: int | None
    updated_ms: int | None
    noted_until_ms: int

    def has_pending(self, topic: str, partition: int, epoch: int) -> bool:
        """Returns whether the coordinator still has to end the transaction of this epoch in a partition."""
        is_own = self.state in PREPARE or (self.state == "Ongoing" and self.producer_epoch == epoch)
        return is_own and (topic, partition) in self.partitions


@dataclass(frozen=True)
class Ending:
    """Whether an open transaction hangs, and what ends it; fields are columns of ``hanging_transactions``.

    Without a coordinator's record transactional_id, coordinator_state and coordinator_timeout_ms are None.
    """

    state: str
    hangs_as_of_last_write: bool
    hangs_now: bool
    open_ms: int | None
    open_now_ms: int | None = field(compare=False)  # another one a moment later
    certainty: str
    why: str
    remedy: str
    transactional_id: str | None = None
    coordinator_state: str | None = None
    coordinator_timeout_ms: int | None = None
    commits_in_two_phases: bool = False

    @property
    def is_hanging(self) -> bool:
        """Returns whether it hangs as of the last write of its log, or now."""
        return self.hangs_as_of_last_write or self.hangs_now


def ending_of(
    age: Age,
    clock: Clock,
    place: tuple[str, int, int],
    noted: CoordinatorState | None,
    wall_ms: int,
    unread: int = 0,
) -> Ending:
    """Returns what ends an open transaction.

    place: topic, partition and the epoch of its data. wall_ms: the time that counts as now. unread: records
    of ``__transaction_state`` that can't be read, which may be of it.
    """
    now_ms, start_ms = clock.now_ms, None
    if age.open_ms is not None and now_ms is not None:
        start_ms = now_ms - age.open_ms
    end = None if noted is None else _end_by(noted, place, age, clock, start_ms, unread)
    allowed = TRANSACTION_TIMEOUT_MS
    if noted is not None and end in (ONGOING, PREPARED):
        start_ms = noted.start_ms
        if end == ONGOING and noted.timeout_ms < NEVER_MS:
            allowed = max(allowed, noted.timeout_ms)
    open_ms = None if start_ms is None or now_ms is None else now_ms - start_ms
    open_now_ms = None if start_ms is None else wall_ms - start_ms
    hung, hung_now = (
        open_for is None or end == ENDED or open_for > allowed for open_for in (open_ms, open_now_ms)
    )
    certainty, why = _certainty(age, end, open_ms, hung, noted)
    two_phases = noted is not None and (
        noted.timeout_ms == NEVER_MS or _FLINK.fullmatch(noted.transactional_id) is not None
    )
    state = "ended" if end in (ENDED, LIKELY_ENDED, ENDED_LATER) else end or "open"
    remedy = _remedy(state, why, certainty, None if noted is None else noted.state, two_phases)
    ending = Ending(state, hung, hung_now, open_ms, open_now_ms, certainty, why, remedy)
    if noted is None:
        return ending
    return replace(
        ending,
        transactional_id=noted.transactional_id,
        coordinator_state=noted.state,
        coordinator_timeout_ms=noted.timeout_ms,
        commits_in_two_phases=two_phases,
    )


def _end_by(
    noted: CoordinatorState,
    place: tuple[str, int, int],
    age: Age,
    clock: Clock,
    began_ms: int | None,
    unread: int,
) -> str | None:
    """Returns what the coordinator did of a transaction; None where its records say nothing of it."""
    if noted.has_pending(*place):
        return PREPARED if noted.state in PREPARE else ONGOING
    updated, now_ms, broker_ms = noted.updated_ms, clock.now_ms, clock.broker_ms
    if updated is None or now_ms is None:
        return None
    proven_ms = None if broker_ms is None or age.proven_open_ms is None else broker_ms - age.proven_open_ms
    if broker_ms is not None and proven_ms is not None and not unread:
        # it was ended before the log's end, and what the coordinator noted is newer than its start
        is_ended = updated <= broker_ms and noted.noted_until_ms >= proven_ms
        if is_ended:
            return ENDED
    if updated > now_ms:
        return ENDED_LATER
    return LIKELY_ENDED if began_ms is not None and noted.noted_until_ms >= began_ms else None


def _certainty(
    age: Age, end: str | None, open_ms: int | None, hung: bool, noted: CoordinatorState | None
) -> tuple[str, str]:
    """Returns how certain it is that only an abort ends it, and why. hung: as of the last write."""
    if age.why == IN_DAMAGE:
        return age.certainty, age.why
    if end == PREPARED:
        return UNKNOWN, "the coordinator has decided it, and has to write its marker"
    if end == ONGOING and noted is not None and noted.timeout_ms == NEVER_MS:
        return UNKNOWN, "the coordinator has it open, and waits for its client"
    if end == ONGOING and hung:
        return UNKNOWN, "the coordinator has it open, for longer than its own timeout, and has to end it"
    if end == ONGOING:
        return UNKNOWN, "the coordinator had it open at the last write, and has to end it"
    if end == ENDED and open_ms is not None and open_ms <= TRANSACTION_TIMEOUT_MS:
        return LIKELY, "the coordinator ended it, and its marker has not come yet"
    if end == ENDED:
        return CERTAIN, "the coordinator ended it, and its marker did not come"
    if end == ENDED_LATER:
        return UNKNOWN, "the coordinator ended it after the end of this copy: its marker may have come since"
    if age.why == BY_BROKERS:
        return age.certainty, age.why
    if end == LIKELY_ENDED:
        return LIKELY, "the coordinator ended it, if it began when its producer says"
    if open_ms is not None and not hung:
        return UNKNOWN, OPEN_AT_LAST_WRITE
    return age.certainty, age.why


def _remedy(state: str, why: str, certainty: str, coordinator_state: str | None, two_phases: bool) -> str:
    """Returns what to do about the transaction, in words."""
    if why == IN_DAMAGE:
        return "look for its marker in the damaged bytes first"
    if state == PREPARED and coordinator_state == "PrepareCommit":
        return (
            "start the brokers: its coordinator writes the COMMIT marker. Do not abort it: that loses what "
            "is committed"
        )
    if state == PREPARED:
        return "start the brokers: its coordinator writes the ABORT marker"
    if two_phases:
        return (
            "let its client commit or abort it, as the job restores its checkpoint: an abort from outside "
            "loses what the client has counted as committed"
        )
    if state == ONGOING:
        return "start the brokers: its coordinator aborts it, once it is open for longer than its timeout"
    if certainty != UNKNOWN and coordinator_state == "CompleteCommit":
        return (
            "abort it: nothing else ends it. If it is what the coordinator committed, that loses its "
            "records: copy them first"
        )
    if certainty == CERTAIN:
        return "abort it: nothing else ends it"
    return (
        "start the brokers: if its coordinator has it open, it aborts it. Else run check_command, and abort "
        "what it lists"
    )
