"""The map of old to new offsets, and what was held back: Delta tables in the folder of the state."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

import pyarrow as pa
from deltalake import write_deltalake

from kafka_log_lake.pipelines.cli.errors import UserError
from kafka_log_lake.pipelines.engine.delta import open_if_there, read_declared
from kafka_log_lake.pipelines.restore.journal import open_journal
from kafka_log_lake.pipelines.restore.plan import PartitionPlan
from kafka_log_lake.udfs.storage.store import deltalake_options

OFFSET_MAP = pa.schema(
    [
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("first_offset", pa.int64()),
        pa.field("last_offset", pa.int64()),
        pa.field("target_topic", pa.string()),
        pa.field("target_partition", pa.int32()),
        pa.field("target_first_offset", pa.int64()),
        pa.field("target_last_offset", pa.int64()),
        pa.field("records", pa.int64()),
    ]
)
HELD_BACK = pa.schema(
    [
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("reason", pa.string()),
    ]
)
_ROWS = 1 << 16


def write_tables(state: str, partitions: Iterable[PartitionPlan]) -> None:
    """Writes both tables anew, each in one commit, of what the journals confirm."""
    places = sorted(partitions, key=lambda partition: (partition.topic, partition.partition))
    for name, schema, rows in (
        ("offset_map", OFFSET_MAP, _map_rows(state, places)),
        ("held_back", HELD_BACK, _held_rows(state, places)),
    ):
        damage: list[UserError] = []
        batches = _batches(rows, schema, damage)
        try:
            write_deltalake(
                f"{state}/{name}",
                pa.RecordBatchReader.from_batches(schema, batches),
                mode="overwrite",
                storage_options=deltalake_options(state),
            )
        except Exception:
            if damage:  # deltalake raises it as an error of its own
                raise damage[0] from None
            raise


def read(state: str, name: str = "offset_map") -> pa.Table:
    """Reads a table of a state: ``offset_map`` or ``held_back``, in the order of topics and offsets."""
    schema = OFFSET_MAP if name == "offset_map" else HELD_BACK
    table = open_if_there(f"{state}/{name}")
    if table is None:
        return schema.empty_table()
    return read_declared(table, schema).sort_by([(column, "ascending") for column in schema.names[:3]])


class Translated(NamedTuple):
    """A position in the target. is_exact: false where the record at the old position was not restored."""

    topic: str
    partition: int
    offset: int
    is_exact: bool


class Translator:
    """Translates positions of consumers: the offset of the next record to read, or the end of the log."""

    def __init__(self, table: pa.Table) -> None:
        self._runs: dict[tuple[str, int], list[tuple[int, int, str, int, int]]] = defaultdict(list)
        names = ("topic", "partition", "first_offset", "last_offset", "target_topic", "target_partition")
        columns = [table.column(name).to_pylist() for name in (*names, "target_first_offset")]
        for topic, partition, first, last, target, to, new in zip(*columns, strict=True):
            self._runs[topic, partition].append((first, last, target, to, new))
        for runs in self._runs.values():
            runs.sort()

    def partitions(self, topic: str) -> set[int]:
        """Returns the partitions of the source's topic of which records were restored."""
        return {partition for name, partition in self._runs if name == topic}

    def translate(self, topic: str, partition: int, offset: int) -> Translated | None:
        """Returns the position in the target; None where nothing of the partition was restored.

        The next restored record takes the place of one that is gone. Past the last restored record it is the
        offset after it. With ``--partitions N``: that of the next record alone, see ``translate_all``.
        """
        runs = self._runs.get((topic, partition))
        return _position(runs, offset) if runs else None

    def translate_all(self, topic: str, partition: int, offset: int) -> list[Translated]:
        """Returns a position for each partition of the target that has records of the source's partition."""
        by_target: dict[int, list[tuple[int, int, str, int, int]]] = defaultdict(list)
        for run in self._runs.get((topic, partition), ()):
            by_target[run[3]].append(run)
        return [_position(runs, offset) for _, runs in sorted(by_target.items())]


def _position(runs: Sequence[tuple[int, int, str, int, int]], offset: int) -> Translated:
    at = bisect_right(runs, offset, key=lambda run: run[0]) - 1
    if at >= 0:
        first, last, target, to, new = runs[at]
        if offset <= last:
            return Translated(target, to, new + offset - first, True)
    if at + 1 < len(runs):
        _, _, target, to, new = runs[at + 1]
        return Translated(target, to, new, False)
    first, last, target, to, new = runs[-1]
    return Translated(target, to, new + last - first + 1, True)


def _map_rows(state: str, places: Sequence[PartitionPlan]) -> Iterator[tuple[object, ...]]:
    for place in places:
        for entry in open_journal(state, place.topic, place.partition).entries():
            for first, count, to, new in entry.runs:
                old = (place.topic, place.partition, first, first + count - 1)
                yield (*old, place.target, to, new, new + count - 1, count)


def _held_rows(state: str, places: Sequence[PartitionPlan]) -> Iterator[tuple[object, ...]]:
    for place in places:
        for entry in open_journal(state, place.topic, place.partition).entries():
            for offset, reason in entry.held:
                yield (place.topic, place.partition, offset, reason)


def _batches(
    rows: Iterator[tuple[Any, ...]], schema: pa.Schema, damage: list[UserError]
) -> Iterator[pa.RecordBatch]:
    """Yields rows as batches. damage: gets the error of a journal that can't be read."""
    try:
        while some := list(islice(rows, _ROWS)):
            columns = zip(*some, strict=True)
            yield pa.record_batch(
                [pa.array(column, kind) for column, kind in zip(columns, schema.types, strict=True)], schema
            )
    except UserError as error:
        damage.append(error)
        raise
