"""Conditions of deltalake's SQL for rows that a commit replaces.

Each begins with the partition columns, so that files of other partitions are not opened.
"""

from __future__ import annotations

from collections.abc import Iterable

from pipelines.lake.intents import Place
from pipelines.source.delta import sql_literal
from udfs.arrow.rewriting import KEYS


def delete_predicate(table: str, places: Iterable[Place]) -> str:
    """The rows of a table at some places, which are at least one."""
    places = list(places)
    owner, position = KEYS[table]
    whole = sorted({sql_literal(p.segment) for p in places if p.position == 0})
    parts = [f"{owner} IN ({', '.join(whole)})"] if whole else []
    parts += [
        f"({owner} = {sql_literal(p.segment)} AND {position} >= {int(p.position)})"
        for p in places
        if p.position > 0
    ]
    topics = ", ".join(sorted({sql_literal(p.topic) for p in places}))
    numbers = ", ".join(map(str, sorted({int(p.partition) for p in places})))
    return f'topic IN ({topics}) AND "partition" IN ({numbers}) AND ({" OR ".join(parts)})'
