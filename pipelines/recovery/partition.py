"""What a worker process does with one partition: compares its copies, writes the healed log and what is lost.

Its batches stay in this process: rows go into files, and the driver gets the few that describe the partition.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow.parquet as pq

from pipelines.recovery import rows
from pipelines.recovery.compare import Task, compare_task, forget
from pipelines.recovery.log_writer import healed_log, places_of, write_log
from pipelines.recovery.losing import write_losing
from udfs.replicas.entries import TAILS, SegmentFile


@dataclass(frozen=True)
class HealedLog:
    """A healed log, in a folder. end: the offset behind it. segments: at least one, by base offset."""

    folder: str
    topic_id: str | None
    epochs: list[tuple[int, int]]
    start: int
    end: int
    segments: list[SegmentFile]


@dataclass
class Partition:
    """What became of one partition.

    rows: by table of ``rows.REPORTED``. damaged: ranges in all copies without torn and zero tails;
    unreadable: segments of copies. batches, bytes: of the healed log; from_others, mended: of these batches.
    log: None where all that is left is of a deleted topic. healed: the file with rows of ``healed_batches``;
    losing: those with records of losing histories (``losing.LOST``).
    """

    topic: str
    partition: int
    sure: str
    doubts: list[str]
    rows: dict[str, list[rows.Row]]
    damaged: int
    unreadable: int
    batches: int
    bytes: int
    from_others: int
    mended: int
    log: HealedLog | None = None
    healed: str | None = None
    losing: list[str] = field(default_factory=list)


def heal_partition(task: Task, folder: str, losing: str) -> Partition:
    """Heals one partition into ``folder``. losing: a folder for files."""
    one = compare_task(task)
    copies, batches = [*one.copies, *one.others], one.healed.batches
    found = Partition(
        one.topic,
        one.partition,
        str(one.history.sure),
        one.history.doubts,
        {table.name: list(rows_of(one)) for table, rows_of in rows.REPORTED.items()},
        damaged=sum(hurt.reason not in TAILS for copy in copies for hurt in copy.hurts),
        unreadable=sum(len(copy.unreadable) for copy in copies),
        batches=len(batches),
        bytes=int(batches["size"].sum()),
        from_others=int((batches["copy"] != one.history.primary).sum()),
        mended=int((batches["mended"] != 0).sum()),
    )
    if one.copies:
        history = one.history
        place = f"{folder}/{one.topic}-{one.partition}"
        log = healed_log(one)
        written = write_log(log, place)
        found.log = HealedLog(place, one.topic_id, history.epochs, history.start, history.end, written)
        found.healed = f"{losing}/healed-{task.number}.parquet"
        pq.write_table(rows.healed_table(one, *places_of(log, place)), found.healed)
    found.losing = write_losing(one, losing, task.number)
    forget(task)
    return found
