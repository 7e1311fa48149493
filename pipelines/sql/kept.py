"""Computes views of a few rows once in a database of DuckDB: the state of the lake that it has never changes.

A view stands in many others, and DuckDB plans and runs it anew in each place: ``topic_overview`` had
``log_starts`` 27 times. Views of batches or records are not kept: they are as large as the lake.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache, partial

import duckdb

from kafka_log_lake.pipelines.engine.delta import sql_literal
from kafka_log_lake.pipelines.sql.interrupts import run_apart
from kafka_log_lake.pipelines.sql.statements import KEPT, LAKE, definition
from kafka_log_lake.pipelines.sql.types import quoted
from kafka_log_lake.pipelines.views.declared import SESSION_VIEWS
from kafka_log_lake.udfs.format.schema import BATCHES, OFFSET_FINDINGS, SEGMENTS, TRANSACTIONS

# The most rows that these tables may have, as they decide how many the views have. Of a larger lake nothing
# is kept: a question about one topic need not compute the views of all
MOST_ROWS = {
    BATCHES.name: 1_000_000,
    SEGMENTS.name: 100_000,
    TRANSACTIONS.name: 100_000,
    OFFSET_FINDINGS.name: 100_000,
}
# With a row a segment, log, transaction, topic or group; none depends on the time of the question
_TABLES = (SEGMENTS.name, TRANSACTIONS.name, OFFSET_FINDINGS.name)
_VIEWS = frozenset(
    (
        *("log_clusters", "current_checkpoints", "log_ends", "log_stretches", "compacted_logs"),
        *("undelivered_offsets", "last_stable_offsets", "log_starts", "log_clocks", "segment_times"),
        *("offset_gaps", "lost_offsets", "record_counts", "logs", "topics", "transaction_ages"),
        "group_seeks",
        *("unread_internal", "group_positions", "producer_states", "topic_settings", "log_settings"),
    )
)


_COMMITTED = "committed_records"
_HELD_TOPICS = f"""
SELECT topic FROM {LAKE}.undelivered_offsets UNION SELECT topic FROM {LAKE}.last_stable_offsets
UNION SELECT topic FROM {LAKE}.log_starts WHERE is_cut ORDER BY topic
"""
_MOST_KEPT = 1_000_000  # rows of a view: the positions of groups may be more than any of the tables has


class KeptViews:
    """Computes the views that a statement needs, before it runs, each once in a database.

    database: with KEPT, where the rows lie; in one without it nothing is kept. is_apart: whether that is
    done in a connection of its own, as in the database's own one a result may not have been fetched.
    """

    def __init__(self, database: duckdb.DuckDBPyConnection, is_apart: bool = True) -> None:
        self._database = database
        self._is_apart = is_apart
        found = database.execute("SELECT 1 FROM duckdb_schemas() WHERE schema_name = ?", [KEPT])
        self._wanted = list(_needs()) if found.fetchall() else []
        self._lock = threading.Lock()

    def before(self, statement: str) -> None:
        """Computes what a statement needs. A view that fails stays a view: the statement tells why."""
        with self._lock, suppress(duckdb.Error):
            needs = _needs() if self._wanted else {}
            words = needs.keys() & re.findall(r"\w+", statement.lower())
            needed = set().union(*(needs[word] for word in words))
            names = [name for name in self._wanted if name in needed]
            if names and self._is_apart:
                with self._database.cursor() as cursor:
                    self._keep(cursor, names)
            elif names:
                self._keep(self._database, names)

    def _keep(self, database: duckdb.DuckDBPyConnection, names: list[str]) -> None:
        def run(statement: str) -> None:
            database.execute(statement).fetchall()

        with ThreadPoolExecutor(1) as thread:
            for name in names:
                self._wanted.remove(name)
                for statement in _delivery(database) if name == _COMMITTED else _keeping(database, name):
                    run_apart(database, thread, partial(run, statement))


def _keeping(database: duckdb.DuckDBPyConnection, name: str) -> Iterator[str]:
    """Yields statements that keep the rows of a view, unless they are too many."""
    yield f"CREATE TABLE {KEPT}.{name} AS FROM {LAKE}.{name} LIMIT {_MOST_KEPT + 1}"
    (rows,) = database.execute(f"SELECT count(*) FROM {KEPT}.{name}").fetchall()[0]
    if rows > _MOST_KEPT:
        yield f"DROP TABLE {KEPT}.{name}"
    else:
        yield f"CREATE OR REPLACE VIEW {LAKE}.{name} AS FROM {KEPT}.{name}"


def _delivery(database: duckdb.DuckDBPyConnection) -> Iterator[str]:
    """Yields the statement by which the rule looks only at topics where it leaves data records out."""
    view = next(view for view in SESSION_VIEWS if view.name == _COMMITTED)
    topics = [topic for (topic,) in database.execute(_HELD_TOPICS).fetchall()]
    names = ", ".join(map(quoted, (column.name for column in view.columns)))
    rows = f"SELECT {names} FROM {LAKE}.records WHERE NOT is_control"
    if topics:
        held = f"topic IN ({', '.join(map(sql_literal, topics))})"
        rows += f" AND NOT {held} UNION ALL FROM ({definition(view)}) WHERE {held}"
    yield f"CREATE OR REPLACE VIEW {LAKE}.{_COMMITTED} AS {rows}"


@cache
def _needs() -> dict[str, frozenset[str]]:
    """Returns the tables and views that are kept of those that each one reads, and itself, in their order."""
    needs = {name: frozenset((name,)) for name in _TABLES}
    for view in SESSION_VIEWS:
        itself = {view.name} & {*_VIEWS, _COMMITTED}
        needs[view.name] = frozenset(itself.union(*(needs[name] for name in view.reads(needs))))
    return needs
