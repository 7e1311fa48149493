"""The account of a restore, and how it is printed."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field

from kafka_log_lake.pipelines.cli.terminal import counted_noun, printable
from kafka_log_lake.pipelines.cli.text_tables import Section, text_lines
from kafka_log_lake.pipelines.restore import cluster, groups, schemas
from kafka_log_lake.pipelines.restore.cluster import SecurityDone
from kafka_log_lake.pipelines.restore.groups import GroupDone
from kafka_log_lake.pipelines.restore.plan import Plan
from kafka_log_lake.pipelines.restore.schemas import SchemaDone


@dataclass
class TopicDone:
    """A topic: records that were asked for, restored, read back equal, held back (reason -> records).

    left_out: records of transactions that did not commit, after an open one, or below the log start. lost:
    ranges of offsets of which the sources have no records.
    """

    topic: str
    target: str
    partitions: int
    asked: int
    restored: int = 0
    bytes: int = 0
    verified: int = 0
    held_back: dict[str, int] = field(default_factory=dict)
    left_out: int = 0
    lost: int = 0

    @property
    def is_whole(self) -> bool:
        """Says whether all that was asked is in the target, as it was read back."""
        return self.asked == self.restored == self.verified and not self.held_back and not self.lost


@dataclass
class Summary:
    """What a restore did. wrong: records that were read back otherwise, the first ones, in words."""

    restore_id: str
    target: str
    topics: list[TopicDone]
    warnings: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    seconds: float = 0.0
    groups: list[GroupDone] = field(default_factory=list)
    schemas: list[SchemaDone] = field(default_factory=list)
    security: list[SecurityDone] = field(default_factory=list)

    @property
    def others(self) -> list[GroupDone | SchemaDone | SecurityDone]:
        """Returns what is restored besides records."""
        return [*self.groups, *self.schemas, *self.security]

    @property
    def is_whole(self) -> bool:
        return not (self.wrong or any(row.held_back for row in self.others)) and all(
            topic.is_whole for topic in self.topics
        )

    def ask_no_record(self) -> None:
        """Takes the records from what was asked for: topics alone are made."""
        for topic in self.topics:
            topic.asked = topic.bytes = topic.left_out = topic.lost = 0

    def lines(self, is_plan: bool = False) -> Iterator[str]:
        """Yields the lines for a person. is_plan: of a dry run: what would be done.

        Names and texts of the sources stand in them: what a terminal acts on is escaped.
        """
        return map(printable, self._lines(is_plan))

    def _lines(self, is_plan: bool) -> Iterator[str]:
        columns = (
            "topic",
            "to",
            "partitions",
            "records",
            "bytes",
            *(() if is_plan else ("restored", "verified")),
        )
        rows = [
            (
                *(topic.topic, topic.target, f"{topic.partitions:,}", f"{topic.asked:,}", f"{topic.bytes:,}"),
                *(() if is_plan else (f"{topic.restored:,}", f"{topic.verified:,}")),
            )
            for topic in self.topics
        ]
        yield from text_lines(Section("", columns, rows, tuple(range(2, len(columns)))))
        for topic in self.topics:
            for reason, count in sorted(topic.held_back.items()):
                yield f"  {topic.topic}: held back: {counted_noun(count, 'record')}: {reason}"
            if topic.lost:
                ranges = counted_noun(topic.lost, "range")
                yield f"  {topic.topic}: lost in the sources: {ranges} of offsets: lost_offsets, lost_ranges"
            if topic.left_out:
                records = counted_noun(topic.left_out, "record")
                yield (
                    f"  {topic.topic}: left out: {records} of transactions that "
                    "did not commit, after an open one, or below the log start"
                )
        yield from schemas.lines(self.schemas)
        yield from cluster.lines(self.security)
        yield from groups.lines(self.groups, is_plan)
        for line in self.wrong:
            yield f"  wrong: {line}"

    def as_json(self) -> str:
        """Returns the account as one JSON object."""
        return json.dumps({**asdict(self), "is_whole": self.is_whole}, default=str)


def planned(restore_id: str, target: str, plan: Plan) -> Summary:
    """Makes the account of a restore before its first record."""
    return Summary(
        restore_id,
        target,
        [
            TopicDone(
                topic.topic,
                topic.target,
                len(topic.partitions),
                topic.records,
                bytes=topic.bytes,
                left_out=max(topic.left_out, 0),
                lost=topic.lost,
            )
            for topic in plan.topics
        ],
        plan.warnings,
    )


def add_held(summary: Summary, topic: str, reasons: Counter[str]) -> None:
    """Adds records that were held back to the account of their topic."""
    done = next(done for done in summary.topics if done.topic == topic)
    for reason, count in reasons.items():
        done.held_back[reason] = done.held_back.get(reason, 0) + count
