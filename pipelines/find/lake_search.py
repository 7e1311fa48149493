"""Searches the tables of a lake: gives the same matches as the segments that were decoded.

DuckDB reads the rows that can match, by the columns' statistics; conditions are evaluated as over segments.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from kafka_log_lake.pipelines.cli.errors import UserError
from kafka_log_lake.pipelines.cli.terminal import counted_noun
from kafka_log_lake.pipelines.find.conditions import Condition, OneOf, matching
from kafka_log_lake.pipelines.find.lake_statements import (
    DAMAGES,
    IN_LOG,
    LEFT_OUT_UNTIL,
    ORDER,
    SUSPECTS,
    TAILS,
    TRANSACTIONS,
    in_logs,
    pushed,
)
from kafka_log_lake.pipelines.find.logs import LakeLog, home_first
from kafka_log_lake.pipelines.find.searching import Searching
from kafka_log_lake.pipelines.find.segment_search import COLUMNS
from kafka_log_lake.pipelines.find.slice_search import (
    DECIDING,
    NO_TRANSACTIONS,
    LastOffsets,
    Transactions,
    decided,
    distinct_keys,
)
from kafka_log_lake.pipelines.find.unsearched import Unsearched, check_partitions
from kafka_log_lake.pipelines.lake.address import open_lake
from kafka_log_lake.pipelines.lake.published import published_tables
from kafka_log_lake.pipelines.listing.list_segments import TopicFilter
from kafka_log_lake.pipelines.sql.database import open_database
from kafka_log_lake.pipelines.tasks.accounts import of_tail
from kafka_log_lake.pipelines.tasks.slice_scan import DamagedRange
from kafka_log_lake.pipelines.typed.records_files import lake_sample
from kafka_log_lake.pipelines.typed.schemas import registry_reader
from kafka_log_lake.udfs.batches.account import DAMAGE, END, SEGMENT, START, WRONG_BASE, Unseen
from kafka_log_lake.udfs.batches.log_start import LogStart
from kafka_log_lake.udfs.batches.transactions import OUTCOMES, TRANSACTION
from kafka_log_lake.udfs.compute import pc
from kafka_log_lake.udfs.format.report_tables import CHECKPOINTS
from kafka_log_lake.udfs.format.schema import RECORDS
from kafka_log_lake.udfs.values.schemas.registry import Registry

_TABLES = "published_records counted_batches sound_batches published_quarantine segments current_transactions"
_ROWS = 1 << 14
# Of logs that one statement searches: bytes, as the next of them may not be needed, and topics, as DuckDB
# compares each with each file
_TOGETHER, _TOPICS_TOGETHER = 1 << 26, 32
_WHY = {
    DAMAGE: "bytes of the log are damaged there",
    START: "the broker's checkpoint files say that the log began earlier",
    END: "the broker's checkpoint files say that the log reached further",
}
_PLACE = ["segment", "batch_position", "offset"]  # of a record
_KEY = ", ".join(f'"{name}"' for name in _PLACE)
_FIELDS = ("producer_id", "producer_epoch", "first_offset", "last_offset")
_CONTROLS = {outcome: control for control, outcome in OUTCOMES.items()}


@dataclass(kw_only=True)
class LakeSearch(Searching):
    """A search over the tables of a lake."""

    lake: str
    topics: TopicFilter
    threads: int | None = None

    def __post_init__(self) -> None:
        self._tables = published_tables(open_lake(self.lake))
        self._database = open_database(self.lake, _TABLES, self.threads, tables=self._tables)
        # Those that are searched together, and rows of statements about them by the folders of logs
        self._logs_held: Sequence[LakeLog] = ()
        self._rows_held: dict[str, Mapping[str, list[Sequence[Any]]]] = {}

    def schemas(self) -> Registry:
        """Returns the schemas that the lake knows."""
        return registry_reader(open_lake(self.lake), self._tables)()

    def sample(self, topic: str) -> pa.Table:
        """Returns the sample of a topic."""
        return lake_sample(self._tables[RECORDS.name], topic)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Yields matches, with the columns of ``schema``; none if they are only counted."""
        request = self.request
        statement = "SELECT DISTINCT partition_dir FROM counted_batches WHERE is_transactional"
        transactional = {folder for (folder,) in self._database.execute(statement).fetchall()}
        for log, records in self._by_log():
            self.segments += log.segments
            has_any = log.partition_dir in transactional or log.partition_dir in self._starts
            transactions = self._transactions(log) if has_any else NO_TRANSACTIONS
            left = request.left_of_a_log(self.found)
            matches = limited(self._decided(records, transactions), left, request.only == "last")
            last = self._last_offsets(log, transactions) if request.superseded else None
            if request.context and not request.count:
                matches = self._with_context(log, matches)
            for batch in matches:
                is_context = "is_match" in batch.schema.names
                self.found += batch.column("is_match").true_count if is_context else batch.num_rows
                if not request.count:
                    yield self._whole(log, batch, transactions.outcomes, last)
            self._note_unsearched(log)
            if self._is_enough:
                return

    def _logs(self) -> list[LakeLog]:
        rows = self._database.execute(
            "SELECT topic, partition, partition_dir, count(*), sum(damaged), count_if(left_out <> 0), "
            "sum(decoded_bytes) "
            "FROM segments GROUP BY ALL"
        ).fetchall()
        every = [LakeLog(*row) for row in rows if self.topics(row[0])]
        if not every:
            raise UserError(f"{self.lake} has no segment of a topic that is requested")
        check_partitions({(log.topic, log.partition) for log in every}, self.request)
        logs, self.passed_over = home_first(every, self.request)
        return logs

    def _by_log(self) -> Iterator[tuple[LakeLog, Iterator[pa.RecordBatch]]]:
        """Yields each log with the records for which all conditions but those on transactions hold."""
        for logs in _together(self._logs(), 1 if self.request.looks_into_values else _TOPICS_TOGETHER):
            self._logs_held, self._rows_held = logs, {}
            conditions = self._request_of(logs[0].topic).conditions
            by_folder = groupby(self._matches(logs, conditions), lambda match: match[0])
            folder, matches = next(by_folder, ("", iter(())))
            for log in logs:
                if folder != log.partition_dir:
                    yield log, iter(())
                    continue
                yield log, (batch for _, batch in matches)
                folder, matches = next(by_folder, ("", iter(())))

    def _matches(
        self, logs: Sequence[LakeLog], conditions: Sequence[Condition], columns: Sequence[str] = COLUMNS
    ) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Yields the records of logs for which conditions hold, in their order, with the folder of their log.

        columns: those to read, besides segment.
        """
        where, values = pushed(conditions)
        source = f"published_records WHERE {in_logs(logs)} AND ({where})"
        folders = {log.partition_dir for log in logs}
        with self._database.cursor() as other:  # other statements come between two of its batches
            ordered = f"{source} ORDER BY topic, partition, partition_dir, {ORDER}"
            for batch in self._read((*columns, "segment"), ordered, values, other):
                kept = batch.take(pa.array(matching(conditions, batch)))
                runs = pc.run_end_encode(kept.column("segment"))
                begin = 0
                for end, segment in zip(runs.run_ends.to_pylist(), runs.values.to_pylist(), strict=True):
                    folder = segment.rpartition("/")[0]
                    if folder in folders:
                        yield folder, kept[begin:end]
                    begin = end

    def _of_log(self, log: LakeLog, *what: Any) -> Iterator[pa.RecordBatch]:
        """Yields the ``_matches`` of one log."""
        return (batch for folder, batch in self._matches([log], *what) if folder == log.partition_dir)

    def _decided(
        self, records: Iterable[pa.RecordBatch], transactions: Transactions
    ) -> Iterator[pa.RecordBatch]:
        """Yields the records of a log whose transactions match, too."""
        for batch in records:
            kept = decided(batch, self.request, transactions) if self.request.needs_transactions else batch
            if kept.num_rows:
                yield kept

    def _with_context(self, log: LakeLog, matches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yields matches and the records around them, each once, with is_match."""
        places = [batch.select(_PLACE) for batch in matches]
        if not places:
            return
        self._database.register("matches", pa.Table.from_batches(places))
        around = f"ROWS BETWEEN {self.request.context} PRECEDING AND {self.request.context} FOLLOWING"
        held = f"(FROM published_records WHERE {IN_LOG})"
        marked = (
            f"FROM {held} AS r LEFT JOIN (SELECT DISTINCT *, true AS is_found FROM matches) USING ({_KEY})"
        )
        near = f"max(is_match) OVER (ORDER BY {ORDER} {around})"
        try:
            yield from self._read(
                (*COLUMNS, "segment", "is_match"),
                f"(SELECT *, is_found IS NOT NULL AS is_match {marked}) QUALIFY {near} ORDER BY {ORDER}",
                log.place,
                self._database,
            )
        finally:
            self._database.unregister("matches")

    def _read(
        self,
        columns: Sequence[str],
        source: str,
        values: Sequence[object],
        database: duckdb.DuckDBPyConnection,
    ) -> Iterator[pa.RecordBatch]:
        """Yields the columns of a query; source: what follows FROM."""
        names = ", ".join(f'"{name}"' for name in columns)
        schema = pa.schema([self.schema.field(name) for name in columns])
        answer = database.sql(f"SELECT {names} FROM {source}", params=list(values))
        for batch in answer.to_arrow_reader(_ROWS):
            yield batch.cast(schema)

    def _rows_of(self, statement: str, log: LakeLog) -> list[Sequence[Any]]:
        """Returns a statement's rows about a log; executed once for all logs that are searched together."""
        if statement not in self._rows_held:
            rows: dict[str, list[Sequence[Any]]] = defaultdict(list)
            values = {
                "topics": sorted({held.topic for held in self._logs_held}),
                "partitions": sorted({held.partition for held in self._logs_held}),
            }
            for folder, *row in self._database.execute(statement, values).fetchall():
                rows[folder].append(row)
            self._rows_held[statement] = rows
        return self._rows_held[statement].get(log.partition_dir, [])

    def _transactions(self, log: LakeLog) -> Transactions:
        rows = self._rows_of(TRANSACTIONS, log)
        transactions = np.zeros(len(rows), dtype=TRANSACTION)
        for transaction, (*values, outcome, is_over) in zip(transactions, rows, strict=True):
            for name, value in zip(_FIELDS, values, strict=True):
                transaction[name] = value
            transaction["has_data"], transaction["control_type"], transaction["is_over"] = (
                True,
                _CONTROLS[outcome],
                is_over,
            )
        return Transactions.of(transactions, start=self._starts.get(log.partition_dir))

    @cached_property
    def _starts(self) -> dict[str, LogStart]:
        """Returns by folder where logs begin for consumers, if that cuts records off that are searched."""
        if not self.request.committed or CHECKPOINTS.name not in self._tables:
            return {}
        statement = "SELECT partition_dir, log_start_offset, witness, certainty FROM log_starts WHERE is_cut"
        with open_database(self.lake, "log_starts", self.threads, tables=self._tables) as other:
            return {folder: LogStart(*row) for folder, *row in other.execute(statement).fetchall()}

    def _last_offsets(self, log: LakeLog, transactions: Transactions) -> LastOffsets:
        keys = pa.array(self.request.keys, pa.binary())
        if not self.request.keys:
            batches = self._of_log(log, self._request_of(log.topic).conditions)
            keys = distinct_keys(self._decided(batches, transactions))
        last = LastOffsets(keys.to_pylist())
        for batch in self._of_log(log, [OneOf("key", keys)], ("key", *DECIDING)):
            last.add(batch, transactions.outcomes)
        for damage in self._damages(log):
            last.note(damage)
        for missing in self._missing(log):
            if missing.cause == SEGMENT:
                last.unknown_until(missing.last)
        if log.left_out:
            last.unknown_until(self._database.execute(LEFT_OUT_UNTIL, log.place).fetchall()[0][0])
        return last

    def _note_unsearched(self, log: LakeLog) -> None:
        damages = self._damages(log)
        self._note_damages(log, damages)
        named = {damage.first_lost for damage in damages}  # wrong base offsets in a row may hide some
        hurt = [
            unseen
            for unseen in self._lost[log.partition_dir]
            if unseen.cause == DAMAGE and unseen.first not in named
        ]
        self._note_unseen(log, [*self._missing(log), *hurt])
        tails = self._rows_of(TAILS, log)
        unseen = (of_tail(tail, size, None, end, batches > 0) for tail, size, end, batches in tails)
        self._note_unseen(log, filter(None, unseen))
        if log.left_out:
            segments = counted_noun(log.left_out, "segment")
            why = f"records of {segments} were left out when it was decoded"
            self.unsearched.append(Unsearched(log.name, why))

    def _damages(self, log: LakeLog) -> list[DamagedRange]:
        """Returns the damaged ranges of a log with the offsets around them."""
        damages = [DamagedRange(*row) for row in self._rows_of(DAMAGES, log)] if log.damaged else []
        lost = [range_ for range_ in self._lost[log.partition_dir] if range_.cause == DAMAGE]
        return [_widened(damage, lost) for damage in damages]

    def _missing(self, log: LakeLog) -> list[Unseen]:
        """Returns the missing offsets of a log that may hide a match."""
        return [range_ for range_ in self._lost[log.partition_dir] if range_.cause != DAMAGE]

    @cached_property
    def _lost(self) -> Mapping[str, list[Unseen]]:
        """Returns lost offsets that may hide a match, by the folders of logs."""
        ranges: dict[str, list[Unseen]] = defaultdict(list)
        logs = self._database.execute(SUSPECTS).fetchall()
        if CHECKPOINTS.name in self._tables:  # of logs whose start or end is missing
            with open_database(self.lake, CHECKPOINTS.name, tables=self._tables) as other:
                logs += other.execute("SELECT DISTINCT topic, partition_dir FROM checkpoints").fetchall()
        if folders := [folder for topic, folder in logs if self.topics(topic)]:
            statement = "SELECT partition_dir, first_lost, last_lost, cause FROM lost_offsets "
            statement += "WHERE list_contains(?, cause) AND list_contains(?, partition_dir) "
            statement += "AND first_lost IS NOT NULL ORDER BY ALL"  # else past 2^63 - 1: no offset is there
            values = [[SEGMENT, WRONG_BASE, DAMAGE, START, END], folders]
            with open_database(self.lake, "lost_offsets", self.threads, tables=self._tables) as other:
                for folder, first, last, cause in other.execute(statement, values).fetchall():
                    ranges[folder].append(Unseen(first, last, cause=cause, detail=_WHY.get(cause, "")))
        return ranges


def _widened(damage: DamagedRange, lost: Iterable[Unseen]) -> DamagedRange:
    """Returns a damaged range with the offsets of its log around it, which its file alone may not tell.

    lost: offsets of the log that are lost in damage.
    """
    first = damage.last_offset + 1
    for range_ in lost:
        if range_.first <= first and (range_.last is None or first <= range_.last):
            following = None if range_.last is None else range_.last + 1
            return replace(damage, last_offset=range_.first - 1, next_offset=following)
    return damage


def _together(logs: Iterable[LakeLog], most_topics: int) -> Iterator[list[LakeLog]]:
    """Yields lists of logs that one statement searches, by topic and partition; copies stay together."""
    held: list[LakeLog] = []
    size, topics = 0, set[str]()
    for (topic, partition), same in groupby(logs, lambda log: (log.topic, log.partition)):
        copies = list(same)
        size += sum(log.bytes for log in copies)
        topics.add(topic)
        is_next = bool(held) and (held[-1].topic, held[-1].partition) < (topic, partition)
        if held and (not is_next or size > _TOGETHER or len(topics) > most_topics):
            yield held
            held, size, topics = [], sum(log.bytes for log in copies), {topic}
        held += copies
    if held:
        yield held


def limited(matches: Iterable[pa.RecordBatch], most: int | None, is_last: bool) -> Iterator[pa.RecordBatch]:
    """Yields the first matches, or the last, at most ``most`` of them; None: all."""
    held: list[pa.RecordBatch] = []
    rows = 0
    for batch in matches:
        rows += batch.num_rows
        if is_last and most is not None:
            held.append(batch)
            while rows - held[0].num_rows >= most:
                rows -= held.pop(0).num_rows
        elif most is None or rows < most:
            yield batch
        else:
            yield batch[: batch.num_rows - (rows - most)]
            return
    if held and most is not None:
        yield held[0][max(0, rows - most) :]
        yield from held[1:]
