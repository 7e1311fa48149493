"""Gathers what the report shows: the SQL lies in ``facts/``, and one dataclass here holds each result.

Byte counts are bytes on disk. Names of topics, details and contents are as they were found: whoever prints
them escapes them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from importlib import resources
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, QueryBuilder

from kafka_log_lake.pipelines.cli.terminal import time_text
from kafka_log_lake.pipelines.engine.delta import open_table, read_rows, sql_literal
from kafka_log_lake.pipelines.lake.address import table_path
from kafka_log_lake.pipelines.quality_report import header
from kafka_log_lake.pipelines.quality_report.check import ERROR, Check
from kafka_log_lake.pipelines.typed.records_files import sampled_formats
from kafka_log_lake.pipelines.typed.schemas import registry_of_state
from kafka_log_lake.udfs.format.report_tables import QUALITY_METRICS, RUNS
from kafka_log_lake.udfs.format.schema import QUARANTINE, RECORDS, SEGMENTS
from kafka_log_lake.udfs.values.internal.topics import TOPICS, record_reader
from kafka_log_lake.udfs.values.schemas.profile import PayloadFormat

_WORST = 8
_RUNS = 30
# Records of an internal topic above which they are not all decoded for the report
_MOST_INTERNAL = 1_000_000


@dataclass(frozen=True)
class Result:
    """The result of one check. places, failed: numbers of partitions, or of topics for a check over topics.

    worst_topic, worst_partition, worst_value, detail: of the highest value; None if nothing was measured.
    """

    check: Check
    places: int
    failed: int
    worst_topic: str | None = None
    worst_partition: int | None = None
    worst_value: float | None = None
    detail: str | None = None


@dataclass(frozen=True)
class PartitionCounts:
    """Counts of one partition over all its copies. damaged, tail: bytes; the rest of ``bytes`` is sound."""

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
        """Returns the time as text; None without one."""
        return None if self.at_ms is None else time_text(self.at_ms)


@dataclass(frozen=True)
class Worst:
    """A segment with damage, and one of its damaged ranges: the fields of its header, or a dump of its bytes.

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
    fields: list[header.HeaderField]
    dump: list[tuple[str, str, str]]
    page: str | None = None


@dataclass(frozen=True)
class Unread:
    """Damaged ranges, keys, values or records of an internal topic that a reason keeps from being read."""

    what: str
    reason: str
    count: int


@dataclass(frozen=True)
class Format:
    """Counts of the sound batches with one message format and codec."""

    magic: int
    codec: str
    batches: int
    records: int
    bytes: int


@dataclass(frozen=True)
class Written:
    """What was written to a topic in one hour, day, week, month or year: the unit fits all that there is.

    begin_ms: of that time, ms since 1970 UTC.
    """

    unit: str
    begin_ms: int
    topic: str
    records: int
    bytes: int


@dataclass(frozen=True)
class Compression:
    """Bytes of a topic's records in one codec: as stored, and decompressed."""

    topic: str
    codec: str
    stored: int
    expanded: int

    @property
    def ratio(self) -> float | None:
        """Returns decompressed bytes divided by stored bytes; None without stored bytes."""
        return self.expanded / self.stored if self.stored else None

    @property
    def saved(self) -> int:
        return self.expanded - self.stored


@dataclass(frozen=True)
class OutcomeCounts:
    """Counts of transactions with one outcome. held: those that hold back their log's last stable offset."""

    outcome: str
    transactions: int
    records: int
    uncertain: int
    held: int


@dataclass(frozen=True)
class LossCounts:
    """Counts of what is lost. offsets: at most so many. misplaced: offsets whose records have other offsets.

    ends: logs that end in damage. zeros: logs of nothing but zeros. torn: logs that end in an incomplete
    batch, which may be a tail. at_start: of the offsets those before the first segment of their log.
    """

    offsets: int
    misplaced: int
    ends: int
    zeros: int
    torn: int
    at_start: int

    @property
    def is_any(self) -> bool:
        """Returns whether something is lost."""
        return bool(self.offsets or self.misplaced or self.ends or self.zeros)


@dataclass(frozen=True)
class Run:
    """One earlier run. errors, warnings: failed checks, each counted once for every partition or topic.

    measured: all checks, counted the same way. damaged: damaged bytes; None if that check did not run.
    crc_partitions: partitions with wrong checksums; 0 if that check did not run.
    """

    run_id: str
    created_at: datetime
    errors: int
    warnings: int
    measured: int
    damaged: int | None
    crc_partitions: int


@dataclass(frozen=True)
class QualityReport:
    """Everything that a report shows.

    in_part: segments that the lake holds in part, or not at all. unreadable: files and folders that the last
    job could not read. payloads: formats of keys and values in a sample of each topic. unread: counts of what
    could not be read, by reason.
    at: the run or time of an earlier state; None for the current state.
    """

    lake: str
    run_id: str
    created_at: datetime
    results: list[Result]
    partitions: list[PartitionCounts]
    lost: LossCounts
    in_part: int
    unreadable: list[str]
    failures: list[Failure]
    worst: list[Worst]
    growth: list[Written]
    formats: list[Format]
    compression: list[Compression]
    payloads: list[PayloadFormat]
    unread: list[Unread]
    outcomes: list[OutcomeCounts]
    runs: list[Run]
    at: str | None = None

    def failed(self, severity: str) -> list[Result]:
        """Returns the failed checks of a severity."""
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
) -> QualityReport:
    """Returns the report of one run. tables: those of the current state, or of the state that ``at`` names.

    metrics: rows of this run; for the current state they are already in ``quality_metrics``.
    """
    database.register("metrics", metrics)
    return QualityReport(
        lake=address,
        run_id=run_id,
        created_at=created_at,
        results=_results(database, checks),
        partitions=[PartitionCounts(*row) for row in _query(database, "partitions")],
        lost=LossCounts(*_query(database, "lost")[0]),
        in_part=_query(database, "in_part")[0][0],
        unreadable=_unreadable(tables.get(RUNS.name)),
        failures=[Failure(*row) for row in _query(database, "failures")],
        worst=[
            _worst(database, tables[QUARANTINE.name], row) for row in _query(database, "worst", shown=_WORST)
        ],
        growth=[Written(*row) for row in _query(database, "growth")],
        formats=[Format(*row) for row in _query(database, "formats")],
        compression=[Compression(*row) for row in _query(database, "compression")],
        payloads=sampled_formats(tables[RECORDS.name], registry_of_state(address, at)),
        unread=[
            *(Unread(*row) for row in _query(database, "unread")),
            *_unread_internal(tables[RECORDS.name], tables[SEGMENTS.name]),
        ],
        outcomes=[OutcomeCounts(*row) for row in _query(database, "transactions")],
        runs=[] if at else _runs(address),
        at=at,
    )


def _unread_internal(records: DeltaTable, segments: DeltaTable) -> list[Unread]:
    """Counts records of internal topics that can't be read, by reason; of large topics none."""
    named = " OR ".join(f"topic = {sql_literal(topic)}" for topic in TOPICS)
    sizes: Counter[str] = Counter()
    for row in read_rows(segments, SEGMENTS.arrow_schema(), ["topic", "records"], named).to_pylist():
        sizes[row["topic"]] += row["records"] or 0
    problems: Counter[tuple[str, str]] = Counter()
    for topic in sorted(topic for topic, size in sizes.items() if 0 < size <= _MOST_INTERNAL):
        where, read = f"topic = {sql_literal(topic)}", record_reader(topic)
        rows = read_rows(records, RECORDS.arrow_schema(), ["key", "value", "is_control"], where)
        for batch in rows.filter(pc.invert(rows.column("is_control"))).to_batches():
            pairs = zip(batch.column("key").to_pylist(), batch.column("value").to_pylist(), strict=True)
            for record in (read(key, value) for key, value in pairs):
                if record.problem is not None and record.value is None:
                    problems[topic, record.problem] += 1
    counts = sorted(problems.items())
    return [Unread(f"records of {topic}", reason, count) for (topic, reason), count in counts]


def _sql(name: str) -> str:
    return (
        resources.files("kafka_log_lake.pipelines.quality_report")
        .joinpath("facts", f"{name}.sql")
        .read_text()
    )


def _query(database: duckdb.DuckDBPyConnection, name: str, **parameters: object) -> list[tuple[Any, ...]]:
    return database.execute(_sql(name), parameters or None).fetchall()


def _runs(address: str) -> list[Run]:
    """Returns the last runs, the newest last."""
    table = open_table(table_path(address, QUALITY_METRICS.name))
    query = QueryBuilder().register("metrics", table).execute(_sql("trend").format(shown=_RUNS))
    return [Run(**row) for row in reversed(pa.table(query).to_pylist())]


def _unreadable(table: DeltaTable | None) -> list[str]:
    """Returns the files and folders that the last job could not read. table: ``runs``."""
    if table is None:
        return []
    runs = read_rows(table, RUNS.arrow_schema(), ["began_at", "unreadable"]).sort_by("began_at")
    return (runs.column("unreadable").to_pylist() or [None])[-1] or []


def _results(database: duckdb.DuckDBPyConnection, checks: Collection[Check]) -> list[Result]:
    """Returns the results of the checks: failed errors first, then failed warnings, then the rest."""
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
    stored = read_rows(quarantine, QUARANTINE.arrow_schema(), ["content"], " AND ".join(conditions))
    content = next(iter(stored.column("content").to_pylist()), None) or b""
    before, after, epoch_before, epoch_after, magic = around
    expected = header.Expected(before, after, epoch_before, epoch_after, magic, size, crc, detail)
    fields = header.fields(content, reason, expected)
    dump = [] if fields else list(header.dump(content))
    return Worst(topic, partition, segment, damaged, ranges, position, size, reason, detail, fields, dump)
