"""What a restore will write: the records of each partition of the lake that the arguments choose."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import duckdb

from kafka_log_lake.pipelines.cli.errors import UserError
from kafka_log_lake.pipelines.cli.terminal import counted_noun, printable
from kafka_log_lake.pipelines.engine.delta import sql_literal
from kafka_log_lake.pipelines.listing.list_segments import TopicFilter
from kafka_log_lake.pipelines.restore.request import Request
from kafka_log_lake.udfs.values.internal.topics import TOPICS as INTERNAL
from kafka_log_lake.udfs.values.schemas.registry import SCHEMAS_TOPIC


@dataclass(frozen=True)
class PartitionPlan:
    """The records of one partition that are to be restored.

    bytes: as the format of the source stores them; largest: of one record. earliest, latest: timestamps in
    ms, -1 where records have none; null without records. append_time: records whose timestamp a broker gave;
    at_zero: whose timestamp is 0.
    """

    topic: str
    partition: int
    target: str
    records: int
    bytes: int = 0
    first_offset: int | None = None
    last_offset: int | None = None
    largest: int = 0
    earliest: int | None = None
    latest: int | None = None
    append_time: int = 0
    at_zero: int = 0


@dataclass(frozen=True)
class TopicPlan:
    """A topic to restore. source_partitions: of the sources. left_out: records of transactions that did not
    commit, after an open one, or below the log start; lost: ranges of offsets that are damaged or missing.
    """

    topic: str
    target: str
    source_partitions: int
    partitions: tuple[PartitionPlan, ...]
    left_out: int = 0
    lost: int = 0

    @property
    def records(self) -> int:
        return sum(partition.records for partition in self.partitions)

    @property
    def bytes(self) -> int:
        return sum(partition.bytes for partition in self.partitions)


@dataclass(frozen=True)
class Plan:
    """All topics to restore, by name."""

    topics: tuple[TopicPlan, ...]

    @property
    def partitions(self) -> list[PartitionPlan]:
        """Returns the partitions, the largest first."""
        partitions = [partition for topic in self.topics for partition in topic.partitions]
        return sorted(
            partitions, key=lambda partition: (-partition.bytes, partition.topic, partition.partition)
        )

    @property
    def warnings(self) -> list[str]:
        """Returns what of the plan itself a person should know before the first record."""
        texts = [] if self.records else ["no record of the sources meets the arguments"]
        for topic in self.topics:
            if count := sum(partition.at_zero for partition in topic.partitions):
                records = counted_noun(count, "record")
                texts.append(
                    f"{topic.topic}: {records} with the timestamp 0: held back, unless the target's topic "
                    "has message.timestamp.type=LogAppendTime"
                )
        return texts

    @property
    def records(self) -> int:
        return sum(topic.records for topic in self.topics)

    @property
    def bytes(self) -> int:
        return sum(topic.bytes for topic in self.topics)


# What the statements of a plan and of reading name; for ``open_database``
NAMES = "FROM segments records batches committed_records lost_offsets"


# Topics in which Connect and MirrorMaker keep how far they are
APP_OFFSETS = """SELECT DISTINCT log_topic FROM connect_records WHERE store = 'offset'
UNION SELECT DISTINCT log_topic FROM mm2_records WHERE record.kind IN ('mm2-checkpoint', 'mm2-offset-sync')"""


def source_of(request: Request) -> str:
    """Returns the view of the records that are restored, with the condition that they are data."""
    return "committed_records" if request.committed else "(SELECT * FROM records WHERE NOT is_control)"


def make_plan(database: duckdb.DuckDBPyConnection, request: Request) -> Plan:
    """Counts what is to be restored. Raises a UserError where no topic, or a partition twice, is chosen."""
    chosen = TopicFilter(request.topics, request.exclude_topics)
    rows = database.execute(
        "SELECT topic, max(partition) + 1, max(copies) FROM (SELECT topic, partition, "
        "count(DISTINCT partition_dir) AS copies FROM segments GROUP BY topic, partition) GROUP BY topic"
    ).fetchall()
    passed = {*INTERNAL} | _left_to_others(database, request)
    topics = {name: (count, copies) for name, count, copies in rows if name not in passed and chosen(name)}
    if not topics:
        raise UserError("no topic to restore: --topics and --exclude-topics leave none of the lake")
    twice = sorted(name for name, (_, copies) in topics.items() if copies > 1)
    if twice:
        raise UserError(
            f"the lake has several copies of partitions of {printable(twice[0])}: name the disks as "
            "--source NAME=PATH, or decode with --one-copy, or leave the topic out by --exclude-topics"
        )
    targets = {name: request.renamed(name) for name in topics}
    _refuse_two_to_one(targets)
    names = ", ".join(map(sql_literal, topics))
    where = " AND ".join([f"r.topic IN ({names})", *request.conditions])
    rows = database.execute(
        'SELECT r.topic, r.partition, count(*), sum(r.size_bytes), min(r."offset"), max(r."offset"), '
        "max(r.size_bytes), min(r.timestamp_ms), max(r.timestamp_ms), "
        'count(*) FILTER (r."timestampType" = 1), count(*) FILTER (r.timestamp_ms = 0) '
        f"FROM {source_of(request)} AS r WHERE {where} "
        "GROUP BY r.topic, r.partition ORDER BY r.topic, r.partition"
    ).fetchall()
    of_topic: dict[str, list[PartitionPlan]] = defaultdict(list)
    for topic, partition, *numbers in rows:
        values = [None if number is None else int(number) for number in numbers]
        of_topic[topic].append(PartitionPlan(topic, partition, targets[topic], *values))  # type: ignore[arg-type]
    left_out, lost = _left_out(database, request, where), _lost(database, request, names)
    return Plan(
        tuple(
            TopicPlan(
                name,
                targets[name],
                int(count),
                tuple(of_topic[name]),
                left_out.get(name, 0) - sum(partition.records for partition in of_topic[name]),
                lost.get(name, 0),
            )
            for name, (count, _) in sorted(topics.items())
        )
    )


def _left_to_others(database: duckdb.DuckDBPyConnection, request: Request) -> set[str]:
    """Returns topics that are not restored as records: what a registry gets, and offsets of applications."""
    names = {SCHEMAS_TOPIC} if request.more.get("registry") else set()
    if request.more.get("app_offsets") == "skip":
        names |= {name for (name,) in database.execute(APP_OFFSETS).fetchall()}
    return names


def _refuse_two_to_one(targets: dict[str, str]) -> None:
    seen: dict[str, str] = {}
    for topic, target in targets.items():
        if target in seen:
            both = f"{printable(seen[target])} and {printable(topic)}"
            raise UserError(f"--rename gives {both} the same name {target}")
        seen[target] = topic


def _left_out(database: duckdb.DuckDBPyConnection, request: Request, where: str) -> dict[str, int]:
    """Counts the data records that meet the conditions, delivered or not, by topic."""
    return dict(
        database.execute(
            f"SELECT r.topic, count(*) FROM records AS r WHERE NOT r.is_control AND {where} GROUP BY r.topic"
        ).fetchall()
    )


def _lost(database: duckdb.DuckDBPyConnection, request: Request, names: str) -> dict[str, int]:
    """Counts the ranges of offsets whose records the lake does not have, by topic, within ``--offsets``.

    In a lake of healed disks ``lost_ranges`` has those that no copy has; in others ``lost_offsets``.
    """
    healed = database.execute("SELECT 1 FROM duckdb_tables() WHERE table_name = 'lost_ranges'").fetchone()
    table, first, last = (
        ("lost_ranges", "first_offset", "last_offset")
        if healed
        else ("lost_offsets", "first_lost", "last_lost")
    )
    low, _, high = (request.offsets or ":").partition(":")
    where = [f"topic IN ({names})"]
    where += [f"({last} IS NULL OR {last} >= {int(low)})"] if low else []
    where += [f"{first} < {int(high)}"] if high else []
    if request.partitions_of:
        where.append(f"partition IN ({', '.join(map(str, request.partitions_of))})")
    statement = f"SELECT topic, count(*) FROM {table} WHERE {' AND '.join(where)} GROUP BY topic"
    return dict(database.execute(statement).fetchall())
