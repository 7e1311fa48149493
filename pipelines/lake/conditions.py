"""Conditions of deltalake's SQL for rows that a commit deletes.

Each begins with the partition columns, so that files of other partitions are not opened.
"""

from __future__ import annotations

from collections.abc import Iterable

from pipelines.lake.intents import Place
from pipelines.plan.ledger import Partition
from pipelines.source.delta import sql_literal
from udfs.format import schema

_POSITIONS = {
    schema.RECORDS.name: "batch_position",
    schema.BATCHES.name: "position",
    schema.QUARANTINE.name: "position",
    schema.RAW_SEGMENTS.name: "chunk_position",
}


def delete_predicate(table: str, places: Iterable[Place]) -> str:
    """The rows of a table at some places, which are at least one."""
    places = list(places)
    whole = [sql_literal(p.segment) for p in places if p.position == 0 and p.generation is None]
    parts = [f"segment IN ({', '.join(sorted(whole))})"] if whole else []
    for place in places:
        if place.position > 0 or place.generation is not None:
            terms = [
                f"segment = {sql_literal(place.segment)}",
                f"{_POSITIONS[table]} >= {int(place.position)}",
            ]
            if place.generation is not None:
                terms.append(f"generation = {int(place.generation)}")
            parts.append(f"({' AND '.join(terms)})")
    partitions = partition_predicate({(p.topic, p.partition) for p in places})
    return f"{partitions} AND ({' OR '.join(parts)})"


def partition_predicate(partitions: Iterable[Partition]) -> str:
    """The rows of some topic-partitions, and maybe others of their topics."""
    topics = ", ".join(sorted({sql_literal(topic) for topic, _ in partitions}))
    numbers = ", ".join(sorted({str(int(number)) for _, number in partitions}))
    return f'topic IN ({topics}) AND "partition" IN ({numbers})'
