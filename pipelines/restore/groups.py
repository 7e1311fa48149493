"""Commits the offsets of groups in the target: those of ``__consumer_offsets``, moved with the records.

The last commit of a group in a partition counts (``consumer_offsets``), or the last one by a time. Its offset
is translated by the offset map. Where its own record was not restored, the group goes on with the next one.

The commit keeps the text that the client added (Streams has its clock there). It has no leader epoch: epochs
count anew in another cluster, and a consumer with a higher one waits for metadata that never comes
(``ConsumerCoordinator.refreshCommittedOffsets``).
"""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition

from kafka_log_lake.pipelines.cli.terminal import counted_noun
from kafka_log_lake.pipelines.restore.clients import admin, consumer

if TYPE_CHECKING:
    import duckdb

    from kafka_log_lake.pipelines.restore.offset_map import Translator
    from kafka_log_lake.pipelines.restore.plan import Plan
    from kafka_log_lake.pipelines.restore.request import Request

SHARE, STREAMS, CONSUMER, CLASSIC = "share", "streams", "consumer", "classic"
VIEWS = "FROM consumer_offsets, consumer_groups, share_groups"
_SECONDS = 60.0  # for an answer of the target
_TOGETHER = 16  # groups, each with a consumer of its own
_PASSING = {
    *("COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR", "REQUEST_TIMED_OUT"),
    *("_TIMED_OUT", "_TRANSPORT", "UNSTABLE_OFFSET_COMMIT", "NOT_LEADER_FOR_PARTITION"),
}
_IDLE = {"EMPTY", "DEAD"}
_UNKNOWN_GROUP = "GROUP_ID_NOT_FOUND"
GONE = "its own record was not restored: the next one"
NOTHING = "nothing of this partition was restored: the end of the target's"
NOT_RESTORED = "its topic was not restored"
SPREAD = "nothing of this partition was restored: with --partitions no partition of the target is its own"
NO_COMMIT = "no commit in this partition: from its first record"
NOT_TAKEN = "confluent-kafka takes no group without a name, with a space before it, or a NUL in name or text"
NO_SHARE_CALL = (
    "confluent-kafka has no call for start offsets of share groups: set this one with "
    "Admin.alterShareGroupOffsets of Kafka's Java client"
)

# The last commits that can be read, by a time; later ones that can't be read are counted
_COMMITS = """
WITH said AS (
  SELECT *, max(CASE WHEN is_read THEN record_offset END)
    OVER (PARTITION BY cluster, "group", topic, partition) AS last_read
  FROM consumer_offsets WHERE $at_time IS NULL OR record_timestamp <= $at_time
)
SELECT cluster, "group", topic, partition,
  arg_max({'o': committed_offset, 'm': metadata, 'd': is_tombstone}, record_offset) FILTER (is_read) AS last,
  count(*) FILTER (NOT is_read AND record_offset > coalesce(last_read, -1)) AS unread
FROM said WHERE "group" IS NOT NULL AND topic IS NOT NULL
GROUP BY ALL ORDER BY "group", topic, partition, cluster
"""
_KINDS = """
SELECT "group", max_by(kind, record_offset) FROM consumer_groups
WHERE "group" IS NOT NULL AND kind IS NOT NULL AND NOT is_tombstone GROUP BY "group"
"""
_SHARES = """
SELECT "group", topic, partition, start_offset, unread_records FROM share_groups
WHERE start_offset IS NOT NULL ORDER BY "group", topic, partition
"""


@dataclass(frozen=True)
class GroupDone:
    """Where a group stood in a partition of the source, and where it goes on in the target.

    kind: share, streams, consumer or classic. committed: its offset in the source; of a share group the start
    offset; -1 without one. offset: what is committed in the target, None before there is an offset map.
    before, after: what the target had before, and what was read back; None without a commit. note: what a
    reader of the page should know. held_back: why nothing was committed; "" where it was.
    """

    group: str
    kind: str
    topic: str
    partition: int
    committed: int
    metadata: str = ""
    target: str = ""
    target_partition: int = -1
    offset: int | None = None
    before: int | None = None
    after: int | None = None
    note: str = ""
    held_back: str = ""


def plan_groups(request: Request, database: duckdb.DuckDBPyConnection) -> list[GroupDone]:
    """Returns the positions of the wanted groups in the source, translated nowhere yet."""
    more = request.more
    if more.get("no_groups"):
        return []
    moment, wanted = more.get("groups_at"), more.get("groups")
    at_time = None if moment is None else datetime.fromtimestamp(moment / 1000, UTC)
    positions = [*_commits(database, at_time), *_shares(database, at_time)]
    return [position for position in positions if wanted is None or re.fullmatch(wanted, position.group)]


def restore_groups(
    request: Request, database: duckdb.DuckDBPyConnection, plan: Plan, translator: Translator
) -> list[GroupDone]:
    """Commits the translated offsets of the wanted groups in the target, and reads them back.

    A group with members is refused, and so is one that has committed something else there already, unless
    ``--overwrite-groups``. Returns a row for each position, in order; none is left out.
    """
    planned = plan_groups(request, database)
    if not planned:
        return []
    topics = {topic.topic: topic.target for topic in plan.topics}
    empty = _Ends(request, topics)
    if request.partitions:
        planned = sorted([*planned, *_not_begun(planned, translator)], key=lambda p: (p.group, *_place(p)))
    rows = [moved for position in planned for moved in _translated(position, translator, empty)]
    target = _Target(request, bool(request.more.get("overwrite_groups")))
    of_groups = [list(of_group) for _, of_group in groupby(rows, attrgetter("group"))]
    with ThreadPoolExecutor(_TOGETHER) as threads:  # they wait for answers
        return [row for done in threads.map(target.restore, of_groups) for row in sorted(done, key=_place)]


def lines(rows: Sequence[GroupDone], is_plan: bool = False) -> list[str]:
    """Returns lines of text for a person: how many groups go on, and which do not and why.

    is_plan: of a dry run, which commits nothing.
    """
    if not rows:
        return []
    committed = [row for row in rows if not row.held_back]
    whole = counted_noun(len({row.group for row in committed}), "group")
    what = "to commit" if is_plan else "committed and read back"
    texts = [f"groups       {whole}, {counted_noun(len(committed), 'offset')} {what}"]
    if moved := sum(GONE in row.note for row in committed):
        texts.append(
            f"  {counted_noun(moved, 'offset')} moved to the next record: their own was not restored"
        )
    reasons: dict[tuple[str, str], int] = defaultdict(int)
    for row in rows:
        if row.held_back:
            reasons[row.group, row.held_back] += 1
    texts += [
        f"  held back  {group}: {counted_noun(count, 'partition')}: {why}"
        for (group, why), count in sorted(reasons.items())
    ]
    return texts


def _place(position: GroupDone) -> tuple[str, int, str, int]:
    return position.topic, position.partition, position.target, position.target_partition


def _commits(database: duckdb.DuckDBPyConnection, at_time: datetime | None) -> Iterator[GroupDone]:
    kinds = {group: _kind(name) for group, name in database.execute(_KINDS).fetchall()}
    rows = database.execute(_COMMITS, {"at_time": at_time}).fetchall()
    for (group, topic, partition), copies in groupby(rows, lambda row: row[1:4]):
        commit = _joined(group, kinds.get(group, CLASSIC), topic, partition, list(copies))
        if commit is not None:
            yield commit


def _joined(
    group: str, kind: str, topic: str, partition: int, copies: list[tuple[Any, ...]]
) -> GroupDone | None:
    """Returns the commit that the clusters of a lake agree on; None where it was deleted.

    A lake may hold several clusters: which of two offsets is meant nobody can say.
    """
    unread = sum(row[5] for row in copies)
    last = [row[4] for row in copies if row[4] is not None and not row[4]["d"]]
    if not last and not unread:
        return None
    later = f"{counted_noun(unread, 'later commit')} can't be read: the group may have been further"
    note = later if unread else ""
    if not last:
        return GroupDone(group, kind, topic, partition, -1, held_back="no commit of it can be read")
    if len({commit["o"] for commit in last}) > 1:
        held = "the lake has another commit of a group of this name in another cluster"
        return GroupDone(group, kind, topic, partition, last[0]["o"], note=note, held_back=held)
    text = last[0]["m"] or ""
    held = _not_taken(group, text)
    return GroupDone(group, kind, topic, partition, last[0]["o"], text, note=note, held_back=held)


def _not_taken(group: str, text: str = "") -> str:
    """Returns why a client can't be given a group: spaces before its name and all after a NUL are cut off."""
    is_named = bool(group) and group[0] not in " \t\n\v\f\r"  # without a name the process ends
    return "" if is_named and "\0" not in group + text else NOT_TAKEN


def _kind(name: str) -> str:
    """Returns the kind of a group by the name of its record: ConsumerGroupMetadata, GroupMetadata, ..."""
    return next((kind for kind in (SHARE, STREAMS, CONSUMER) if name.lower().startswith(kind)), CLASSIC)


def _shares(database: duckdb.DuckDBPyConnection, at_time: datetime | None) -> Iterator[GroupDone]:
    for group, topic, partition, start, unread in database.execute(_SHARES).fetchall():
        notes = ["some of its records can't be read"] if unread else []
        notes += ["as of the end: share groups keep no history"] if at_time else []
        held = NO_SHARE_CALL if topic is not None else "the lake has no log of its topic"
        yield GroupDone(group, SHARE, topic or "", partition, start, note="; ".join(notes), held_back=held)


def _not_begun(planned: Sequence[GroupDone], translator: Translator) -> Iterator[GroupDone]:
    """Yields partitions in which a group has no commit, of topics in which it has another.

    Records of several meet in a partition of the target: what it has not read must lie after its offset.
    """
    known: dict[tuple[str, str, str], set[int]] = defaultdict(set)
    for position in planned:
        if position.kind != SHARE:
            known[position.group, position.kind, position.topic].add(position.partition)
    for (group, kind, topic), partitions in known.items():
        for partition in translator.partitions(topic) - partitions:
            held = _not_taken(group)
            yield GroupDone(group, kind, topic, partition, -1, note=NO_COMMIT, held_back=held)


class _Ends:
    """The ends of partitions of the target, for groups that had read an empty one.

    topics: those restored, and their names in the target.
    """

    def __init__(self, request: Request, topics: Mapping[str, str]) -> None:
        self._request, self.topics = request, topics
        self._reader: Consumer | None = None

    def place(self, topic: str, partition: int) -> tuple[str, int, int] | None:
        """Returns topic, partition and end in the target; None where the topic was not restored."""
        if topic not in self.topics or self._request.partitions:
            return None
        self._reader = self._reader or consumer(self._request)
        place = TopicPartition(self.topics[topic], partition)
        try:
            return place.topic, partition, self._reader.get_watermark_offsets(place, timeout=_SECONDS)[1]
        except KafkaException:
            return None


def _translated(position: GroupDone, translator: Translator, empty: _Ends) -> Iterator[GroupDone]:
    """Yields the positions of a group in the target: one, or one a partition where records were spread."""
    if position.held_back and position.held_back != NO_SHARE_CALL:
        yield position
        return
    targets = translator.translate_all(position.topic, position.partition, position.committed)
    if not targets:
        end = empty.place(position.topic, position.partition)
        if end is None:
            yield replace(position, held_back=SPREAD if position.topic in empty.topics else NOT_RESTORED)
        else:
            note = "; ".join(filter(None, (position.note, NOTHING)))
            yield replace(position, target=end[0], target_partition=end[1], offset=end[2], note=note)
    for target, partition, offset, is_exact in targets:
        gone = "" if is_exact or position.committed < 0 else GONE
        note = "; ".join(filter(None, (position.note, gone)))
        yield replace(position, target=target, target_partition=partition, offset=offset, note=note)


class _Target:
    """The groups of the target cluster."""

    def __init__(self, request: Request, overwrites: bool) -> None:
        self._request, self._admin, self._overwrites = request, admin(request), overwrites

    def restore(self, rows: Sequence[GroupDone]) -> list[GroupDone]:
        """Commits the offsets of one group, but for those held back; returns all of its rows."""
        asked = [row for row in rows if not row.held_back]
        done = self._commit(asked[0].group, asked) if asked else []
        return [*(row for row in rows if row.held_back), *done]

    def _commit(self, group: str, rows: Sequence[GroupDone]) -> list[GroupDone]:
        """Returns the rows with what was there and what is there now."""
        try:
            # this first: it says at once that a right is missing; a consumer only waits for its coordinator
            why = self._refusal(group)
            if why:
                return [replace(row, held_back=why) for row in rows]
            with closing(consumer(self._request, group=group)) as reader:
                before = _committed(reader, rows)
                rows = [replace(row, before=before.get(_key(row), (None, ""))[0]) for row in rows]
                asked = [row for row in rows if self._overwrites or row.before in (None, row.offset)]
                errors = self._alter(group, asked) if asked else {}
                after = _committed(reader, rows)
        except KafkaException as error:
            return [replace(row, held_back=_said(error.args[0])) for row in rows]
        return [_checked(row, asked, errors, after.get(_key(row), (None, ""))) for row in rows]

    def _refusal(self, group: str) -> str:
        """Returns why a group can't be given offsets; "" where it can: it is unknown, or has no members."""
        try:
            describe = partial(self._admin.describe_consumer_groups, [group], request_timeout=_SECONDS)
            answer = _asked(lambda: _only(describe()))
        except KafkaException as error:
            if error.args[0].name() == _UNKNOWN_GROUP:
                return ""
            raise
        if answer.members or answer.state.name not in _IDLE:
            count = counted_noun(len(answer.members), "member")
            return f"the group is in use in the target ({count}, {answer.state.name.lower()}): stop it"
        return ""

    def _alter(self, group: str, rows: Iterable[GroupDone]) -> dict[tuple[str, int], str]:
        """Commits, and returns what the target refused, by partition."""
        # the lowest of one target partition: what several source partitions have in it is read by the group
        lowest = {_key(row): row for row in sorted(rows, key=lambda row: row.offset or 0, reverse=True)}
        wanted = [
            TopicPartition(*place, row.offset or 0, *([row.metadata] if row.metadata else []))
            for place, row in lowest.items()
        ]
        asked = [ConsumerGroupTopicPartitions(group, wanted)]
        alter = partial(self._admin.alter_consumer_group_offsets, asked, request_timeout=_SECONDS)
        answer = _asked(lambda: _only(alter()).topic_partitions)
        return {(at.topic, at.partition): _said(at.error) for at in answer if at.error}


def _committed(reader: Consumer, rows: Iterable[GroupDone]) -> dict[tuple[str, int], tuple[int | None, str]]:
    """Returns offset and text of what the group of a consumer has committed, by partition."""
    # librdkafka's admin client ends the process where a coordinator moves (rd_kafka_handle_OffsetFetch)
    places = [TopicPartition(*place) for place in sorted({_key(row) for row in rows})]
    answer = _asked(lambda: reader.committed(places, _SECONDS))
    for place in answer:
        if place.error:  # what is there is not known: it must not be replaced
            raise KafkaException(place.error)
    return {
        (at.topic, at.partition): (at.offset if at.offset >= 0 else None, at.metadata or "") for at in answer
    }


def _only(answers: dict[Any, Future[Any]]) -> Any:
    """Returns the answer about one group."""
    (future,) = answers.values()
    return future.result(_SECONDS + 10)


def _asked(ask: Callable[[], Any]) -> Any:
    """Returns the answer about one group; asks again while its coordinator moves or loads. Raises its error.

    A new cluster loads it at the first question. An answer may have such an error for each partition.
    """
    until = time.monotonic() + _SECONDS
    while True:
        try:
            answer = ask()
            places = answer if isinstance(answer, list) else ()
            passing = {place.error.name() for place in places if place.error}
            if not passing & _PASSING or time.monotonic() > until:
                return answer
        except KafkaException as error:
            if error.args[0].name() not in _PASSING or time.monotonic() > until:
                raise
        time.sleep(0.3)


def _key(position: GroupDone) -> tuple[str, int]:
    return position.target, position.target_partition


def _said(error: KafkaError) -> str:
    """Returns an error of the target as one line."""
    return " ".join(f"the target: {error.str()} ({error.name()})".split())


def _checked(
    row: GroupDone,
    asked: Sequence[GroupDone],
    errors: dict[tuple[str, int], str],
    after: tuple[int | None, str],
) -> GroupDone:
    """Returns the row with what was read back, and why its offset is not there."""
    done = replace(row, after=after[0])
    if _key(row) in errors:
        return replace(done, held_back=errors[_key(row)])
    if row not in asked:
        return replace(done, held_back=f"it has committed {row.before} there: --overwrite-groups replaces it")
    if after[0] is None or row.offset is None or after[0] > row.offset:
        return replace(done, held_back=f"the target gives {after[0]} back, not {row.offset}")
    if after[0] < row.offset:
        return replace(done, note="; ".join(filter(None, (row.note, "another partition of it lies lower"))))
    return done
