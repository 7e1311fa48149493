"""What the first questions of the README and of the pages for roles take in DuckDB, beside a count.

Each question takes turns with a count over the columns that it needs, of the table that it is answered from.
Both have been asked before; what a question takes that is the first of its connection is a figure of its own.
The lake has plain records, a million at ``--size reduced``, and the logs of the shop. Processor time of all
threads is measured, in a lake that is open: other programs change it less than the time on the clock.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from functools import partial

import duckdb

from benchmarks.harness import ROOT, Row, Scale, paired, part_main, say
from benchmarks.job_server import LAKES
from benchmarks.segments import PLAIN, partition_dir
from kafka_log_lake import connect

_GOAL = 1.5
_LAKE = str(LAKES / "first-questions")
_SHOP = ROOT / "tests" / "data" / "shop"
_PARTITIONS = 2
_COUNTS = {
    "records": "SELECT count(*), count(topic) FROM records",
    "times": "SELECT topic, count(timestamp) FROM records GROUP BY topic",
    "headers": "SELECT count(offset), sum(len(headers)) FROM records",
    "keys": "SELECT count(offset), sum(octet_length(key)) FROM records",
    "values": "SELECT count(offset), sum(octet_length(value)) FROM records",
    "texts": "SELECT count(timestamp), sum(octet_length(key)), sum(octet_length(value)), "
    "sum(len(headers)) FROM records",
    "batches": "SELECT count(base_offset), count(last_offset), sum(record_count) FROM batches",
}
# page and question, the count beside it, statement
QUESTIONS = (
    ("README, committed records", "records", "SELECT topic, count(*) FROM committed_records GROUP BY topic"),
    (
        "README, exact counts",
        "batches",
        "SELECT topic, sum(last_offset + 1 - log_start_offset), sum(records), "
        "sum(committed_records) FROM logs GROUP BY topic",
    ),
    (
        "analyst, texts",
        "texts",
        "SELECT timestamp, key_text, value_text, headers_text FROM messages "
        "ORDER BY timestamp, topic, partition, offset LIMIT 20",
    ),
    (
        "analyst, records an hour",
        "times",
        "SELECT topic, date_trunc('hour', timestamp), count(*) FROM messages GROUP BY ALL",
    ),
    (
        "analyst, one header",
        "headers",
        "SELECT offset, headers_text['trace-id'] FROM messages WHERE headers_text['trace-id'] IS NOT NULL",
    ),
    ("auditor, topics", "keys", "SELECT * FROM topic_overview"),
    ("auditor, missing offsets", "batches", "SELECT * FROM offset_gaps"),
    ("auditor, a key", "keys", "SELECT * FROM key_history('orders', CAST('order-7' AS BINARY))"),
    ("auditor, producers", "batches", "SELECT * FROM producers WHERE topic = 'first'"),
    ("auditor, aborted", "batches", "SELECT * FROM current_transactions WHERE outcome = 'aborted'"),
    ("on call, lost offsets", "batches", "SELECT * FROM lost_offsets"),
    ("on call, damaged keys", "keys", "SELECT * FROM damaged_keys"),
    ("on call, seeks", "batches", "SELECT * FROM group_seeks"),
    ("on call, hanging", "batches", "SELECT * FROM hanging_transactions"),
    (
        "on call, lag at a time",
        "batches",
        "SELECT * FROM group_lag_at('orders', TIMESTAMP '2026-01-31 12:00:00')",
    ),
    ("on call, logs", "batches", "SELECT * FROM logs"),
    (
        "platform, schemas",
        "values",
        "SELECT confluent_schema_id(value), count(*) FROM committed_records GROUP BY ALL",
    ),
    ("cost, topics", "texts", "SELECT * FROM topic_profile"),
    ("cost, retention", "batches", "SELECT * FROM retention_report"),
    ("cost, log cleaner", "keys", "SELECT * FROM compaction_report"),
)


def measure(scale: Scale) -> list[Row]:
    shutil.rmtree(_LAKE, ignore_errors=True)
    plain = partition_dir("first", PLAIN, _PARTITIONS, scale.kernel_bytes)
    command = (sys.executable, "-m", "pipelines.decode_batches", "--lake", _LAKE)
    for source in (plain, _SHOP):
        subprocess.run((*command, "--source", str(source)), check=True, capture_output=True, cwd=ROOT)
    with connect(_LAKE) as lake:
        rows = []
        for name, beside, question in QUESTIONS:
            say(f"  {name}")
            ways = {
                "question": partial(_milliseconds, lake, question),
                "count": partial(_milliseconds, lake, _COUNTS[beside]),
            }
            with connect(_LAKE) as new:
                first = _milliseconds(new, question)
            for way in ways.values():
                way()
            pairs = paired(scale.job_rounds, ways)
            spreads = pairs.spread("question"), f"a count of {beside}", pairs.spread("count")
            ratio = pairs.ratio("question", "count")
            note = f"{first:.0f} ms as the first one"
            rows.append(Row(name, "CPU ms", *spreads, ratio, goal=_GOAL, at_least=False, note=note))
    shutil.rmtree(_LAKE)
    return rows


def _milliseconds(lake: duckdb.DuckDBPyConnection, statement: str) -> float:
    began = time.process_time()
    lake.execute(statement).fetchall()
    return 1000 * (time.process_time() - began)


if __name__ == "__main__":
    part_main("first_questions", measure)
