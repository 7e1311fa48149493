"""What a check of loading finds: where a loader stops in a log."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from kafka_log_lake.pipelines.cli.terminal import printable
from kafka_log_lake.pipelines.cli.text_tables import Section
from kafka_log_lake.udfs.values.internal.releases import NEWEST

OFFSETS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"
SHARE, METADATA = "__share_group_state", "__cluster_metadata"


@dataclass(frozen=True, slots=True)
class Record:
    """A record of an internal log."""

    offset: int
    key: bytes | None
    value: bytes | None


class Stop(NamedTuple):
    """Where a loader stops, or what it ignores, and why.

    offset: of the record. releases: of Kafka that are affected. issue: its number in Kafka's tracker; "" for
    none. after_cleaning: it loads now, and no longer once the log cleaner came so far.
    """

    offset: int
    why: str
    releases: str
    issue: str
    remedy: str
    after_cleaning: bool = False

    @property
    def is_of_newest(self) -> bool:
        """Says whether the newest release is affected."""
        return self.releases.endswith(NEWEST)


class Unloadable(NamedTuple):
    """A log that does not load, or not in full."""

    topic: str
    partition: int
    partition_dir: str
    stop: Stop

    def to_json(self) -> dict[str, object]:
        place = {"topic": self.topic, "partition": self.partition, "partition_dir": self.partition_dir}
        return place | self.stop._asdict()


def table(entries: Iterable[Unloadable]) -> Section:
    """Returns what does not load as a table."""
    return Section(
        "will not load",
        ("log", "offset", "when", "releases", "why", "remedy"),
        [
            (
                f"{printable(entry.topic)}-{entry.partition}",
                f"{entry.stop.offset:,}",
                "after compaction" if entry.stop.after_cleaning else "now",
                entry.stop.releases + (f" ({entry.stop.issue})" if entry.stop.issue else ""),
                printable(entry.stop.why),
                printable(entry.stop.remedy),
            )
            for entry in entries
        ],
        (1,),
    )
