"""What the page shows besides the checks: the SQL lies in ``facts/``, one dataclass here for each.

Byte counts are bytes on disk. Names of topics, details and contents are as they were found: whoever prints
them escapes them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from importlib import resources
from typing import Any

import duckdb
import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from kafka_log_lake.pipelines.cli.terminal import time_text
from kafka_log_lake.pipelines.engine.delta import open_table, read_rows, sql_literal
from kafka_log_lake.pipelines.lake.address import table_path
from kafka_log_lake.pipelines.quality_report import header
from kafka_log_lake.pipelines.quality_report.check import ERROR, Check
from kafka_log_lake.pipelines.typed.records_files import sampled_formats
from kafka_log_lake.pipelines.typed.schemas import registry_of_state
from kafka_log_lake.udfs.format.report_tables import QUALITY_METRICS, RUNS
from kafka_log_lake.udfs.format.schema import QUARANTINE, RECORDS
from kafka_log_lake.udfs.values.schemas.profile import PayloadFormat

_WORST = 8
_RUNS = 30


@dataclass(frozen=True)
class Result:
    """A check of this run. Places are partitions, or topics of a check over topics.

    worst_topic, worst_partition, worst_value, detail: of the highest value; None where nothing was measured.
    """

    check: Check
    places: int
    failed: int
    worst_topic: str | None = None
    worst_partition: int | None = None
    worst_value: float | None = None
    detail: str | None = None


@dataclass(frozen=True)
class Partition:
    """Bytes of a partition, all its copies together; the rest of ``bytes`` is sound."""

    topic: str
    partition: int
    segments: int
    records: int
    bytes: int
    damaged: int
    tail: int
    ranges: int

    @property
    def sound(self) -> int:
        return max(0, self.bytes - self.damaged - self.tail)


@dataclass(frozen=True)
class Failure:
    """A batch with a wrong checksum. at_ms: max timestamp of the sound batch before it; None without one."""

    topic: str
    partition: int
    segment: str
    position: int
    size: int
    at_ms: int | None

    @property
    def at(self) -> str | None:
        """The time in words."""
        return None if self.at_ms is None else time_text(self.at_ms)


@dataclass(frozen=True)
class Worst:
    """A segment with damage, and one of its damaged ranges: the fields of its header, else a dump.

    page: the file next to the report in which ``inspect`` shows the range; None where there is none.
    """

    topic: str
    partition: int
    segment: str
    damaged: int
    ranges: int
    position: int
    size: int
    reason: str
    detail: str | None
    fields: list[header.Field]
    dump: list[tuple[str, str, str]]
    page: str | None = None


@dataclass(frozen=True)
class Format:
    """Sound batches of one message format and codec."""

    magic: int
    codec: str
    batches: int
    records: int
    bytes: int


@dataclass(frozen=True)
class Compression:
    """Records of a topic in one codec: bytes as stored, and expanded."""

    topic: str
    codec: str
    stored: int
    expanded: int

    @property
    def ratio(self) -> float | None:
        """Expanded bytes for one stored; None without stored bytes."""
        return self.expanded / self.stored if self.stored else None

    @property
    def saved(self) -> int:
        return self.expanded - self.stored


@dataclass(frozen=True)
class Outcome:
    """Transactions of one outcome. held: those that hold back the last stable offset of their log."""

    outcome: str
    transactions: int
    records: int
    uncertain: int
    held: int


@dataclass(frozen=True)
class Lost:
    """Offsets that are lost, at most; those whose records are under others; logs that end in damage.

    zeros: logs of nothing but zeros. torn: logs that end in an incomplete batch, which may be a tail.
    """

    offsets: int
    misplaced: int
    ends: int
    zeros: int
    torn: int

    @property
    def is_any(self) -> bool:
        """Whether something is lost."""
        return bool(self.offsets or self.misplaced or self.ends or self.zeros)


@dataclass(frozen=True)
class Run:
    """A run of the report. errors, warnings: failed checks, each counted in every partition or topic.

    measured: the same of all checks. damaged: damaged bytes. crc_partitions: partitions with wrong checksums.
    Both are None or 0 if that check did not run.
    """

    run_id: str
    created_at: datetime
    errors: int
    warnings: int
    measured: int
    damaged: int | None
    crc_partitions: int


@dataclass(frozen=True)
class Report:
    """Everything that a report shows.

    in_part: segments that the lake holds in part, or not at all. unreadable: files and folders that the last
    job could not read. payloads: of a sample of each topic. at: the run or time of
    the state, where it is an earlier one.
    """

    lake: str
    run_id: str
    created_at: datetime
    results: list[Result]
    partitions: list[Partition]
    lost: Lost
    in_part: int
    unreadable: list[str]
    failures: list[Failure]
    worst: list[Worst]
    formats: list[Format]
    compression: list[Compression]
    payloads: list[PayloadFormat]
    outcomes: list[Outcome]
    runs: list[Run]
    at: str | None = None

    def failed(self, severity: str) -> list[Result]:
        """Failed checks of a severity."""
        return [result for result in self.results if result.failed and result.check.severity == severity]


def gather(
    database: duckdb.DuckDBPyConnection,
    address: str,
    tables: Mapping[str, DeltaTable],
    run_id: str,
    created_at: datetime,
    checks: Collection[Check],
    metrics: pa.Table,
    at: str | None = None,
) -> Report:
    """The report of one run. tables: of the state that it is of, an earlier one where ``at`` names one.

    metrics: its rows, which are in ``quality_metrics`` already for the current state.
    """
    database.register("metrics", metrics)
    return Report(
        lake=address,
        run_id=run_id,
        created_at=created_at,
        results=_results(database, checks),
        partitions=[Partition(*row) for row in _query(database, "partitions")],
        lost=Lost(*_query(database, "lost")[0]),
        in_part=_query(database, "in_part")[0][0],
        unreadable=_unreadable(tables.get(RUNS.name)),
        failures=[Failure(*row) for row in _query(database, "failures")],
        worst=[
            _worst(database, tables[QUARANTINE.name], row) for row in _query(database, "worst", shown=_WORST)
        ],
        formats=[Format(*row) for row in _query(database, "formats")],
        compression=[Compression(*row) for row in _query(database, "compression")],
        payloads=sampled_formats(address, tables[RECORDS.name], registry_of_state(address, at)),
        outcomes=[Outcome(*row) for row in _query(database, "transactions")],
        runs=[] if at else _runs(address),
        at=at,
    )


def _sql(name: str) -> str:
    return (
        resources.files("kafka_log_lake.pipelines.quality_report")
        .joinpath("facts", f"{name}.sql")
        .read_text()
    )


def _query(database: duckdb.DuckDBPyConnection, name: str, **parameters: Any) -> list[tuple[Any, ...]]:
    return database.execute(_sql(name), parameters or None).fetchall()


def _runs(address: str) -> list[Run]:
    """The last runs, the newest last."""
    table = open_table(table_path(address, QUALITY_METRICS.name))
    query = QueryBuilder().register("metrics", table).execute(_sql("trend").format(shown=_RUNS))
    return [Run(**row) for row in reversed(pa.table(query).to_pylist())]


def _unreadable(table: DeltaTable | None) -> list[str]:
    """What the last job could not read. table: ``runs``."""
    if table is None:
        return []
    runs = read_rows(table, RUNS.arrow_schema(), ["began_at", "unreadable"]).sort_by("began_at")
    return (runs.column("unreadable").to_pylist() or [None])[-1] or []


def _results(database: duckdb.DuckDBPyConnection, checks: Collection[Check]) -> list[Result]:
    """The checks that ran, the failed errors first, the passed last."""
    measured = {row[0]: row[1:] for row in _query(database, "results")}
    results = []
    for check in checks:
        places, failed, worst = measured.get(check.name, (0, 0, None))
        results.append(Result(check, places, failed, *(worst or ())))
    return sorted(results, key=lambda r: (not r.failed, r.check.severity != ERROR, -r.failed))


def _worst(database: duckdb.DuckDBPyConnection, quarantine: DeltaTable, row: tuple[Any, ...]) -> Worst:
    topic, partition, segment, damaged, ranges, position, size, reason, detail, *place, crc = row
    log, file = place
    (around,) = _query(database, "neighbours", log=log, file=file, position=position)
    conditions = (
        f"topic = {sql_literal(topic)}",
        f'"partition" = {int(partition)}',
        f"segment = {sql_literal(segment)}",
        f"position = {int(position)}",
    )
    found = read_rows(quarantine, QUARANTINE.arrow_schema(), ["content"], " AND ".join(conditions))
    content = next(iter(found.column("content").to_pylist()), None) or b""
    before, after, epoch_before, epoch_after, magic = around
    expected = header.Expected(before, after, epoch_before, epoch_after, magic, size, crc)
    fields = header.fields(content, reason, expected)
    dump = [] if fields else list(header.dump(content))
    return Worst(topic, partition, segment, damaged, ranges, position, size, reason, detail, fields, dump)
