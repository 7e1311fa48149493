"""The stored findings of offsets after many runs are those that one run over all of it stores."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa

from kafka_log_lake.pipelines.lake.offset_findings import Change
from kafka_log_lake.pipelines.plan import ledger
from kafka_log_lake.udfs.format.schema import OFFSET_FINDINGS
from tests.support.log_model import Log
from tests.support.made_database import changed_findings, findings_of
from tests.support.made_tables import tables
from tests.support.random_logs import Odds, random_logs

GROWING = Odds(retention=0, lost_segment=0.3, wrong_base=0.5, damaged_batch=0.1)


def grown(pick: random.Random, log: Log) -> Iterator[Log]:
    """Yields the states of a log that its runs see: each has a few batches more."""
    places = [(at, to) for at, one in enumerate(log.segments) for to in range(1, len(one.batches) + 1)]
    seen = sorted(pick.sample(range(len(places)), min(len(places), pick.randint(1, 4))))
    for at, to in (places[one] for one in seen):
        last = log.segments[at]
        yield replace(log, segments=(*log.segments[:at], replace(last, batches=last.batches[:to])))
    yield log


def rows_of(table: pa.Table) -> list[str]:
    return sorted(map(repr, table.to_pylist()))


def test_a_log_that_grows_run_by_run_has_the_findings_of_its_last_state() -> None:
    pick = random.Random(5)
    for log in random_logs(31, 20, GROWING):
        before = tables([])["segments"].cast(ledger.SCHEMA)
        stored = OFFSET_FINDINGS.arrow_schema().empty_table()
        for state in grown(pick, log):
            made = tables([state])
            after = made["segments"].cast(ledger.SCHEMA)
            was = {row["segment"]: row for row in before.to_pylist()}
            put = {
                row["segment"]: was.get(row["segment"], {}).get("decoded_bytes", 0)
                for row in after.to_pylist()
                if was.get(row["segment"]) != row
            }
            stored = changed_findings(made, stored, Change(before, after, put, [], {}))
            assert rows_of(stored) == rows_of(findings_of(made)), state
            before = after
