"""Computes the table ``transactions``, after every run that changed a log with transactions.

The rule is ``pipelines.rules.transactions``. It computes whole logs, so that a run that continues or replaces
segments, or is repeated, gives the same rows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from kafka_log_lake.pipelines.engine.delta import sql_in
from kafka_log_lake.pipelines.plan.ledger import Log, Partition
from kafka_log_lake.pipelines.rules import COUNTED
from kafka_log_lake.pipelines.rules.files import Files, files_of
from kafka_log_lake.pipelines.rules.offset_findings import PLACE_COLUMNS
from kafka_log_lake.pipelines.rules.transactions import BATCH_COLUMNS, transactions_of
from kafka_log_lake.udfs.format.schema import BATCHES, QUARANTINE, TRANSACTIONS, Table

_COLUMNS = tuple(c.name for c in TRANSACTIONS.columns)
OF_ROWS = ("topic", "partition")
_OF_LOGS = "topic, partition, partition_dir"
_DIFFERENT_LOGS = f"""
SELECT DISTINCT {_OF_LOGS} FROM (
  (SELECT * FROM computed EXCEPT ALL SELECT * FROM stored)
  UNION ALL (SELECT * FROM stored EXCEPT ALL SELECT * FROM computed))
"""
_HELD_BY_UNCERTAIN = """
SELECT DISTINCT partition_dir FROM (
  SELECT partition_dir, outcome_uncertain,
    first_offset = min(first_offset) OVER (PARTITION BY topic, partition, partition_dir) AS holds
  FROM computed WHERE holds_last_stable_offset)
WHERE holds AND outcome_uncertain ORDER BY partition_dir
"""
_UNKNOWN = "SELECT count(*) FROM computed WHERE outcome = 'open' AND NOT holds_last_stable_offset"


@dataclass(frozen=True)
class Outcome:
    """Counts of transactions with an uncertain outcome in some logs.

    uncertain: partition_dir of each log whose last stable offset is held by such a transaction.
    unknown: number of transactions that have ended, but whose marker was never seen.
    """

    uncertain: list[str] = field(default_factory=list)
    unknown: int = 0


# Columns of a table, where a condition of deltalake's SQL holds: ``LakeWriter.read``
Read = Callable[[Table, Iterable[str], str], pa.Table]


def stored(read: Read, partitions: Collection[Partition]) -> pa.Table:
    """Reads the rows of the table ``transactions`` of some topic-partitions."""
    return rows_of(read, TRANSACTIONS, _COLUMNS, partitions)


def compute(
    read: Read, partitions: Collection[Partition], ledger: pa.Table, before: pa.Table
) -> tuple[pa.Table, set[Log], Outcome]:
    """Computes the transactions of some topic-partitions.

    Returns the rows of the logs that differ from the table, these logs, and what is uncertain in all of them.
    read: reads rows of the lake. ledger: their rows of ``segments``, as they will be after the run.
    before: their rows of ``transactions``.
    """
    database = duckdb.connect(config={"threads": "2"})
    try:
        sound = f"is_transactional AND {COUNTED}"
        files = files_of(ledger)
        batches = rows_of(read, BATCHES, (*OF_ROWS, *BATCH_COLUMNS), partitions, sound)
        damaged = ledger.filter(pc.greater(ledger.column("damaged"), 0))
        places = {*zip(*(damaged.column(name).to_pylist() for name in OF_ROWS), strict=True)}
        damage = rows_of(read, QUARANTINE, (*OF_ROWS, *PLACE_COLUMNS), places)
        transactions = transactions_of(files, known_rows(files, batches), known_rows(files, damage))
        database.register("found", transactions.select(_COLUMNS))
        database.execute("CREATE TABLE computed AS FROM found")
        database.register("stored", before)
        database.execute(f"CREATE TABLE changed AS {_DIFFERENT_LOGS}")
        changed = set(database.execute(f"SELECT {_OF_LOGS} FROM changed").fetchall())
        query = f"SELECT {', '.join(_COLUMNS)} FROM computed SEMI JOIN changed USING ({_OF_LOGS})"
        rows: pa.Table = database.sql(query).to_arrow_table()
        held = [row[0] for row in database.execute(_HELD_BY_UNCERTAIN).fetchall()]
        (unknown,) = database.execute(_UNKNOWN).fetchone() or (0,)
        return rows.cast(TRANSACTIONS.arrow_schema()), changed, Outcome(held, unknown)
    finally:
        database.close()


def rows_of(
    read: Read, table: Table, columns: Collection[str], partitions: Collection[Partition], where: str = ""
) -> pa.Table:
    """Reads columns of a table's rows in some topic-partitions. where: a further condition, "" for none."""
    if not partitions:
        return table.arrow_schema().empty_table().select(columns)
    numbers = ", ".join(str(int(number)) for number in sorted({number for _, number in partitions}))
    condition = f'{sql_in("topic", (topic for topic, _ in partitions))} AND "partition" IN ({numbers})'
    rows = read(table, columns, f"{condition} AND {where}" if where else condition)
    return of_partitions(rows, partitions) if len(partitions) > 1 else rows


def of_partitions(rows: pa.Table, partitions: Collection[Partition]) -> pa.Table:
    """Returns the rows of some topic-partitions. rows: with OF_ROWS."""
    number = rows.column("partition").cast(pa.string())
    both = pc.binary_join_element_wise(rows.column("topic"), number, "\0")
    wanted = pa.array([f"{topic}\0{number}" for topic, number in partitions])
    return rows.filter(pc.is_in(both, value_set=wanted))


def partitions_of(rows: pa.Table) -> set[Partition]:
    """Returns the topic-partitions of some rows. rows: with OF_ROWS."""
    pairs = rows.group_by(OF_ROWS).aggregate([])
    return {*zip(*(pairs.column(name).to_pylist() for name in OF_ROWS), strict=True)}


def known_rows(files: Files, rows: pa.Table) -> pa.Table:
    """Keeps the rows of segments that the ledger has: anybody may have removed rows from it."""
    return rows.filter(pa.array(files.numbers(rows.column("segment")) >= 0))
