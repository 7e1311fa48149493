"""How long the driver takes to open a Delta table of very many data files, how much memory that is, and how
long the commit of one more file to the opened table takes.

``python -m benchmarks.table_log FILES``: prints JSON. The files are named in the table's log alone: opening a
table reads no data file. ``benchmarks.planning`` runs it.
"""

from __future__ import annotations

import json
import time

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.transaction import AddAction

from benchmarks.harness import prepared_main
from benchmarks.memory import peak_mib
from benchmarks.segments import WORK

_TABLE = WORK / "table_log"
_APP = "benchmark"
_FILES_A_COMMIT = 500_000
_PARTITIONS = 1000
_PARTITIONED_BY = ("topic", "partition", "magic")
_STATISTICS = json.dumps(
    {
        "numRecords": 1_000_000,
        "minValues": {"offset": 1_000_000_000, "timestamp": "2026-01-01T00:00:00.000Z"},
        "maxValues": {"offset": 1_001_000_000, "timestamp": "2026-01-01T00:10:00.000Z"},
    }
)


def _add(number: int) -> AddAction:
    partition = str(number % _PARTITIONS)
    return AddAction(
        path=f"topic=events/partition={partition}/magic=2/part-{number:032d}.parquet",
        size=40_000_000,
        partition_values={"topic": "events", "partition": partition, "magic": "2"},
        modification_time=0,
        data_change=True,
        stats=_STATISTICS,
    )


def _commit(table: DeltaTable, numbers: range, version: int) -> None:
    table.create_write_transaction(
        [_add(number) for number in numbers],
        mode="append",
        schema=table.schema(),
        partition_by=list(_PARTITIONED_BY),
        commit_properties=CommitProperties(app_transactions=[Transaction(_APP, version)]),
    )
    table.update_incremental()


def _make(files: int) -> None:
    schema = pa.schema([("offset", pa.int64()), ("timestamp", pa.timestamp("us", "UTC"))])
    schema = pa.schema([*schema, *(pa.field(name, pa.string()) for name in _PARTITIONED_BY)])
    write_deltalake(_TABLE, schema.empty_table(), partition_by=list(_PARTITIONED_BY))
    table = DeltaTable(_TABLE)
    for version, first in enumerate(range(0, files, _FILES_A_COMMIT), start=1):
        _commit(table, range(first, min(first + _FILES_A_COMMIT, files)), version)
    DeltaTable(_TABLE).create_checkpoint()


def _measure(files: int) -> dict[str, float]:
    before, began = peak_mib("self"), time.perf_counter()
    table = DeltaTable(_TABLE)
    version = table.transaction_version(_APP)
    opened = time.perf_counter()
    _commit(table, range(files, files + 1), (version or 0) + 1)
    committed = time.perf_counter()
    return {"seconds": opened - began, "mib": peak_mib("self") - before, "commit": committed - opened}


if __name__ == "__main__":
    prepared_main(_TABLE, _make, _measure)
