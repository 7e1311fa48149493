"""Finds which rows of a table a run replaces, and which data files hold them, by the table's log."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from kafka_log_lake.pipelines.engine.delta import data_files, sql_literal
from kafka_log_lake.pipelines.lake.intents import RowRange
from kafka_log_lake.pipelines.plan.ledger import Partition
from kafka_log_lake.udfs.arrow.rewriting import KEYS
from kafka_log_lake.udfs.format.schema import Table


@dataclass(frozen=True)
class OldFile:
    """A data file of a table's newest version that may hold superseded rows.

    path: below the table's folder. starts: as in ``udfs.arrow.rewriting.Rewrite``. is_all: whether all rows
    of the file are such rows, by the bounds in the log.
    """

    path: str
    size: int
    partition_values: dict[str, str | None]
    starts: dict[str, int]
    is_all: bool


def files_with(delta: DeltaTable, table: Table, ranges: Iterable[RowRange]) -> Iterator[OldFile]:
    """Yields the files that may hold rows in some ranges."""
    by_partition: dict[Partition, dict[str, int]] = defaultdict(dict)
    for range_ in ranges:
        starts = by_partition[range_.topic, range_.partition]
        starts[range_.segment] = min(range_.position, starts.get(range_.segment, range_.position))
    if not by_partition:
        return
    owners = {partition: sorted(starts) for partition, starts in by_partition.items()}
    partitioned = {name: f"partition.{name}" for name in table.partitioned_by}
    for file in _of_partitions(data_files(delta), owners):
        partition = (file["partition.topic"], file["partition.partition"])
        if partition not in owners:
            continue
        starts = _reached(file, table.name, owners[partition], by_partition[partition])
        if starts:
            owner, _ = KEYS[table.name]
            only = file.get(f"min.{owner}") if file.get(f"min.{owner}") == file.get(f"max.{owner}") else None
            values = {n: None if file[c] is None else str(file[c]) for n, c in partitioned.items()}
            is_all = starts.get(only or "", 1) == 0
            yield OldFile(file["path"], file["size_bytes"], values, starts, is_all)


def _of_partitions(files: pa.Table, owners: Mapping[Partition, object]) -> Iterator[dict[str, Any]]:
    """Yields the rows of ``data_files`` whose topic and partition number occur in ``owners``."""
    topics, numbers = ({partition[at] for partition in owners} for at in (0, 1))
    number = files.column("partition.partition")
    kept = pc.and_(
        pc.is_in(files.column("partition.topic"), pa.array(sorted(topics), pa.string())),
        pc.is_in(number, pa.array(sorted(numbers), number.type)),
    )
    for batch in files.filter(kept).to_batches(1 << 14):
        yield from batch.to_pylist()


def _reached(
    file: Mapping[str, Any], table: str, owners: list[str], starts: Mapping[str, int]
) -> dict[str, int]:
    """Returns the starts of a partition that may reach into a file, by its bounds. owners: sorted."""
    owner, position = KEYS[table]
    low, high = file.get(f"min.{owner}"), file.get(f"max.{owner}")
    if low is not None and high is not None:
        owners = owners[bisect_left(owners, low) : bisect_right(owners, high)]
    last = None if position is None else file.get(f"max.{position}")
    return {name: starts[name] for name in owners if last is None or starts[name] <= last}


def delete_predicate(table: str, ranges: Iterable[RowRange]) -> str:
    """Returns a condition of deltalake's SQL that holds for the rows of a table in one or more ranges.

    It begins with the partition columns, so that files of other partitions are not opened.
    """
    ranges = list(ranges)
    owner, position = KEYS[table]
    whole = sorted({sql_literal(p.segment) for p in ranges if p.position == 0})
    parts = [f"{owner} IN ({', '.join(whole)})"] if whole else []
    parts += [
        f"({owner} = {sql_literal(p.segment)} AND {position} >= {int(p.position)})"
        for p in ranges
        if p.position > 0
    ]
    topics = ", ".join(sorted({sql_literal(p.topic) for p in ranges}))
    numbers = ", ".join(map(str, sorted({int(p.partition) for p in ranges})))
    return f'topic IN ({topics}) AND "partition" IN ({numbers}) AND ({" OR ".join(parts)})'
