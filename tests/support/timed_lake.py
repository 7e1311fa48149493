"""A lake of random logs with hostile timestamps and file times: nothing is decoded."""

from __future__ import annotations

import random
import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
from deltalake import write_deltalake

from kafka_log_lake.pipelines.lake.address import table_path
from kafka_log_lake.udfs.format.schema import RECORDS, TRANSACTIONS
from tests.support import rule_model_time as model
from tests.support.log_model import NOW, SIZE, Log, LogBatch
from tests.support.made_database import findings_of
from tests.support.made_tables import tables
from tests.support.random_logs import Odds, random_logs

HOUR, DAY = model.HOUR, model.DAY
FAR = 2**63 - 1
UNIT_BOUNDS = (10**9, 10**11, 10**14, 10**17)
HOSTILE = (
    *(-(2**63), -2, -1, 0, 2**61, 2**62, 2**63 - 2, 2**63 - 1, 5 * 10**10, 5 * 10**14, 253_402_300_800_000),
    *(bound + more for bound in UNIT_BOUNDS for more in (-1, 0)),
    *(NOW * 1000, NOW // 1000, model.BEGIN_OF_KAFKA - 1, model.BEGIN_OF_KAFKA),
)
ODDS = Odds(mad_timestamp=0.15, timestamps=HOSTILE, wrong_base=0.1)
# A log, its transaction's first batch, and whether its marker may lie in damaged bytes
Open = tuple[Log, LogBatch, bool]


def timed_logs(count: int, seed: int = 29, odds: Odds = ODDS) -> list[Log]:
    pick = random.Random(seed)
    return [_with_file_times(pick, log) for log in random_logs(seed, count, odds)]


def transactions_of(logs: list[Log]) -> list[Open]:
    """Returns open transactions: what is open is no matter here, for how long is."""
    pick, found = random.Random(30), []
    for log in logs:
        firsts = {
            b.producer_id: b
            for _, b in reversed(list(model.decoded(log)))
            if b.is_transactional and not b.control
        }
        found += [(log, b, pick.random() < 0.1) for b in firsts.values() if pick.random() < 0.8]
    return found


def _with_file_times(pick: random.Random, log: Log) -> Log:
    """Files that were modified when their last record came, later, earlier, copied, or without a time."""
    segments = []
    for one in log.segments:
        stamps = [b.max_timestamp_ms for b in one.batches if 10**11 <= b.max_timestamp_ms < 10**14]
        last = max(stamps, default=NOW)
        around = (last, last + HOUR // 2, last + 2 * HOUR, last - 10 * DAY, NOW + 900 * DAY, 0, -5, 2**53)
        segments.append(replace(one, modified_ms=pick.choice(around)))
    # a folder's name holds a quote in another form, which DuckDB does not read
    return replace(log, segments=tuple(segments), topic=log.topic.replace("'", "_"))


def _rows_of_transactions(opened: list[Open]) -> pa.Table:
    rows = [
        {
            "topic": log.topic,
            "partition": log.partition,
            "partition_dir": log.partition_dir,
            "producer_id": one.producer_id,
            "producer_epoch": one.producer_epoch,
            "first_offset": one.base_offset,
            "last_offset": one.last_offset,
            "records": one.count,
            "outcome": "open",
            "outcome_uncertain": lost,
            "holds_last_stable_offset": True,
        }
        for log, one, lost in opened
    ]
    return pa.Table.from_pylist(rows, TRANSACTIONS.arrow_schema())


def _rows_of_records(logs: list[Log]) -> pa.Table:
    rows = [
        {
            "topic": log.topic,
            "partition": log.partition,
            "magic": 2,
            "segment": log.uri(segment),
            "batch_position": segment.batches.index(one) * SIZE,
            "offset": one.base_offset,
            "timestampType": int(one.is_log_append),
            "timestamp_ms": model.record_time(one),
            "is_control": one.control is not None,
            "is_transactional": one.is_transactional,
        }
        for log in logs
        for segment, one in model.decoded(log)
        for _ in range(one.count)
    ]
    return pa.Table.from_pylist(rows, RECORDS.arrow_schema())


def write_lake(template: str, folder: Path, logs: list[Log], opened: list[Open]) -> str:
    """Copies a lake without rows into a new folder, and gives it the rows of logs. Returns its path."""
    lake = str(shutil.copytree(template, folder / "lake"))
    made = tables(logs) | {"transactions": _rows_of_transactions(opened), "records": _rows_of_records(logs)}
    for name, rows in {**made, "offset_findings": findings_of(made)}.items():
        if rows.num_rows:
            write_deltalake(table_path(lake, name), rows, mode="append")
    return lake
