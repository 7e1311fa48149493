"""How long the driver takes to read a ledger that knows very many segments, and how much memory that is.

``python -m benchmarks.ledger SEGMENTS``: prints JSON. The segments are in the ledger alone, a thousand to a
partition. ``benchmarks.planning`` runs it.
"""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC, datetime

import pyarrow as pa
from deltalake import write_deltalake

from benchmarks.harness import prepared_main
from benchmarks.memory import peak_mib
from benchmarks.plan_job import known_rows
from benchmarks.segments import KIB, PLAIN, WORK, segment
from kafka_log_lake.pipelines.lake.address import table_path
from kafka_log_lake.pipelines.lake.create import create_tables
from kafka_log_lake.pipelines.plan import ledger
from kafka_log_lake.udfs.format.schema import SEGMENTS

_LAKE = WORK / "ledger"
_A_COMMIT = 500_000
_A_PARTITION = 1000
_MODIFIED = datetime(2026, 1, 1, tzinfo=UTC)


def _listed(numbers: range) -> pa.Table:
    """What a listing would say of the segments."""
    partitions = [number // _A_PARTITION for number in numbers]
    offsets = [number % _A_PARTITION * 1_000_000 for number in numbers]
    folders = [f"/var/lib/kafka/data/planned-{partition}" for partition in partitions]
    return pa.table(
        {
            "partition": partitions,
            "partition_dir": folders,
            "segment": [f"{at:020d}.log" for at in offsets],
            "file_base_offset": offsets,
            "modified": pa.array([_MODIFIED] * len(offsets)),
        }
    )


def _make(count: int) -> None:
    create_tables(str(_LAKE))
    content = segment(replace(PLAIN, records=20), 20 * KIB)
    for first in range(0, count, _A_COMMIT):
        rows = known_rows(_listed(range(first, min(first + _A_COMMIT, count))), content)
        write_deltalake(table_path(str(_LAKE), SEGMENTS.name), rows, mode="append")


def _measure(count: int) -> dict[str, float]:
    before, began = peak_mib("self"), time.perf_counter()
    rows = ledger.read(table_path(str(_LAKE), SEGMENTS.name))
    seconds = time.perf_counter() - began
    assert rows.num_rows == count
    return {"seconds": seconds, "mib": peak_mib("self") - before}


if __name__ == "__main__":
    prepared_main(_LAKE, _make, _measure)
