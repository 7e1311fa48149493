"""Rules for what ends an open transaction: its age, and the coordinator's last record of it.

The tables of decisions are those of the view ``hanging_transactions`` too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from kafka_log_lake.udfs.batches.clocks import (
    CERTAIN,
    LIKELY,
    LONGEST_LIKELY_MS,
    TRANSACTION_TIMEOUT_MS,
    UNKNOWN,
    Age,
    Clock,
)
from kafka_log_lake.udfs.batches.decisions import Case, decide

# States of a transactional id at which its coordinator has decided, and has to write markers
PREPARE = ("PrepareCommit", "PrepareAbort", "PrepareEpochFence")
# The timeout of a client that commits in two phases (KIP-939): no coordinator aborts its transactions
NEVER_MS = 2**31 - 1
# Of Flink's sink: prefix, subtask, number; of its producer before: prefix, id of the operator, number
FLINK_IDS = (".+-[0-9]+-[0-9]+", ".+-[0-9a-f]{32}-[0-9]+")
_FLINK = re.compile("|".join(FLINK_IDS), re.DOTALL)

ONGOING, PREPARED, ENDED = "ongoing", "prepared", "ended"
STATES: tuple[Case, ...] = (
    ("is_prepared", PREPARED),
    ("is_pending", ONGOING),
    ("is_ended", ENDED),
    ("is_likely_ended", ENDED),
    ("is_ended_later", ENDED),
    ("", "open"),
)
# How certain it is that nothing but an abort ends it, and why
REASONS: tuple[Case, ...] = (
    ("outcome_uncertain", UNKNOWN, "its marker may lie in damaged bytes"),
    ("is_prepared", UNKNOWN, "the coordinator has decided it, and has to write its marker"),
    ("is_pending waits_for_client", UNKNOWN, "the coordinator has it open, and waits for its client"),
    (
        "is_pending hangs_as_of_last_write",
        UNKNOWN,
        "the coordinator has it open, for longer than its own timeout, and has to end it",
    ),
    ("is_pending", UNKNOWN, "the coordinator had it open at the last write, and has to end it"),
    ("is_ended is_young", LIKELY, "the coordinator ended it, and its marker has not come yet"),
    ("is_ended", CERTAIN, "the coordinator ended it, and its marker did not come"),
    (
        "is_ended_later",
        UNKNOWN,
        "the coordinator ended it after the end of this copy: its marker may have come since",
    ),
    ("is_proven", CERTAIN, "by the brokers' clock"),
    ("is_likely_ended", LIKELY, "the coordinator ended it, if it began when its producer says"),
    ("has_no_start", UNKNOWN, "its first batch has no credible timestamp"),
    (
        "hangs_by_wall_clock_alone",
        UNKNOWN,
        "it was open at the last write of its log, and is too old by the wall clock if that was the last one",
    ),
    (
        "has_unknown_clock",
        UNKNOWN,
        "the newest timestamp is a producer's, and the file's modification time does not confirm it",
    ),
    ("is_too_long", UNKNOWN, "open for more than 7 days by a producer's clock, which may be wrong"),
    ("", LIKELY, "by a producer's clock"),
)
MARKERS_WRITTEN = (
    "nothing holds back consumers. Update the brokers: with the mend of KAFKA-19999 the coordinator "
    "completes it; until then its producer gets CONCURRENT_TRANSACTIONS"
)
REMEDIES: tuple[Case, ...] = (
    ("outcome_uncertain", "look for its marker in the damaged bytes first"),
    ("has_markers", MARKERS_WRITTEN),
    (
        "is_prepared is_commit",
        "start the brokers: its coordinator writes the COMMIT marker. Do not abort it: that loses what is "
        "committed",
    ),
    ("is_prepared", "start the brokers: its coordinator writes the ABORT marker"),
    (
        "commits_in_two_phases",
        "let its client commit or abort it, as the job restores its checkpoint: an abort from outside loses "
        "what the client has counted as committed",
    ),
    (
        "is_pending",
        "start the brokers: its coordinator aborts it, once it is open for longer than its timeout",
    ),
    (
        "is_known has_committed",
        "abort it: nothing else ends it. If it is what the coordinator committed, that loses its records: "
        "copy them first",
    ),
    ("is_certain", "abort it: nothing else ends it"),
    (
        "",
        "start the brokers: if its coordinator has it open, it aborts it. Else run check_command, and abort "
        "what it lists",
    ),
)


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
    lost: bool,
    unread: int = 0,
) -> Ending:
    """Returns what ends an open transaction.

    place: topic, partition and the epoch of its data. wall_ms: the time that counts as now. lost: whether its
    marker may lie in damaged bytes. unread: records of ``__transaction_state`` that can't be read, which may
    be of it.
    """
    now_ms, start_ms, allowed = clock.now_ms, None, TRANSACTION_TIMEOUT_MS
    if age.open_ms is not None and now_ms is not None:
        start_ms = now_ms - age.open_ms
    holding = set() if noted is None else _noted(noted, place, age, clock, start_ms, unread)
    if noted is not None and "is_pending" in holding:
        start_ms = noted.start_ms
        if "is_prepared" not in holding and noted.timeout_ms < NEVER_MS:
            allowed = max(allowed, noted.timeout_ms)
    open_ms = None if start_ms is None or now_ms is None else now_ms - start_ms
    open_now_ms = None if start_ms is None else wall_ms - start_ms
    hung, hung_now = (
        open_for is None or "is_ended" in holding or open_for > allowed for open_for in (open_ms, open_now_ms)
    )
    two_phases = noted is not None and (
        noted.timeout_ms == NEVER_MS or _FLINK.fullmatch(noted.transactional_id) is not None
    )
    more = {
        "outcome_uncertain": lost,
        "hangs_as_of_last_write": hung,
        "hangs_by_wall_clock_alone": not hung,
        "is_young": open_ms is not None and open_ms <= TRANSACTION_TIMEOUT_MS,
        "is_proven": age.proven_open_ms is not None and age.proven_open_ms > TRANSACTION_TIMEOUT_MS,
        "has_no_start": age.open_ms is None,
        "has_unknown_clock": clock.certainty == UNKNOWN,
        "is_too_long": age.open_ms is not None and age.open_ms > LONGEST_LIKELY_MS,
        "commits_in_two_phases": two_phases,
    }
    holding |= {name for name, holds in more.items() if holds}
    certainty, why = decide(REASONS, holding)
    holding |= {f"is_{certainty}"} | ({"is_known"} if certainty != UNKNOWN else set())
    (state,), (remedy,) = decide(STATES, holding), decide(REMEDIES, holding)
    of_id = () if noted is None else (noted.transactional_id, noted.state, noted.timeout_ms, two_phases)
    return Ending(state, hung, hung_now, open_ms, open_now_ms, certainty, why, remedy, *of_id)


def _noted(
    noted: CoordinatorState,
    place: tuple[str, int, int],
    age: Age,
    clock: Clock,
    began_ms: int | None,
    unread: int,
) -> set[str]:
    """Returns the conditions of the tables that hold by a coordinator's records of a transaction."""
    ends = {"PrepareCommit": "is_commit", "CompleteCommit": "has_committed"}
    flags = {ends[noted.state]} if noted.state in ends else set()
    if noted.timeout_ms == NEVER_MS:
        flags.add("waits_for_client")
    if noted.has_pending(*place):
        return flags | {"is_pending"} | ({"is_prepared"} if noted.state in PREPARE else set())
    updated, now_ms, broker_ms = noted.updated_ms, clock.now_ms, clock.broker_ms
    if updated is None or now_ms is None:
        return flags
    if broker_ms is not None and age.proven_open_ms is not None and not unread:
        # it was ended before the log's end, and what the coordinator noted is newer than its start
        began_until = broker_ms - age.proven_open_ms
        flags |= {"is_ended"} if updated <= broker_ms and noted.noted_until_ms >= began_until else set()
    if updated > now_ms:
        flags.add("is_ended_later")
    elif began_ms is not None and noted.noted_until_ms >= began_ms:
        flags.add("is_likely_ended")
    return flags
