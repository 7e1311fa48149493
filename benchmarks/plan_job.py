"""A lake that knows very many segments, and the job over them: nothing has changed, nothing is decoded.

``python -m benchmarks.plan_job SEGMENTS ROUNDS``: prints seconds and memory as JSON. ``benchmarks.planning``
prepares what it needs, runs it, and looks at the memory of its Java. The files are hard links to a few, the
ledger is made of the listing: only planning is measured, though over real folders and files.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import write_deltalake

from benchmarks.job_server import LAKES
from benchmarks.memory import peak_mib
from benchmarks.segments import KIB, PLAIN, WORK, batches, segment
from kafka_log_lake.pipelines.cli.settings import Settings
from kafka_log_lake.pipelines.decode.job import plan_afresh
from kafka_log_lake.pipelines.decode_batches import run
from kafka_log_lake.pipelines.engine.on_demand import SparkOnDemand
from kafka_log_lake.pipelines.engine.session import session
from kafka_log_lake.pipelines.lake.address import table_path
from kafka_log_lake.pipelines.lake.create import create_tables
from kafka_log_lake.pipelines.listing.list_segments import list_segments
from kafka_log_lake.pipelines.plan import ledger
from kafka_log_lake.pipelines.plan.ledger import LedgerRow
from kafka_log_lake.udfs.format.schema import SEGMENTS
from kafka_log_lake.udfs.storage.byte_source import FileSource
from kafka_log_lake.udfs.storage.fingerprint import fingerprint

_PER_PARTITION = 100
_OFFSETS = 1_000_000  # from a segment to the next
_LAKE = LAKES / "planning"
_LISTED = ("partition", "partition_dir", "segment", "file_base_offset", "modified")


def _source(count: int) -> Path:
    return WORK / "logs" / f"planned-{count}"


def prepare(count: int) -> None:
    """``count`` segments of 20 KiB, and a lake whose ledger knows them all."""
    content = segment(replace(PLAIN, records=20), 20 * KIB)
    if not _source(count).exists():
        made = _source(count).with_suffix(".part")
        shutil.rmtree(made, ignore_errors=True)
        for number in range(count):
            _link(content, made / f"planned-{number // _PER_PARTITION}", number % _PER_PARTITION)
        made.rename(_source(count))
    shutil.rmtree(_LAKE, ignore_errors=True)
    create_tables(str(_LAKE))
    listed = list_segments(str(_source(count))).segments
    write_deltalake(table_path(str(_LAKE), SEGMENTS.name), known_rows(listed, content), mode="append")


def _link(content: Path, folder: Path, number: int) -> None:
    """A segment of a partition: its first is a copy, as a file can't have any number of links."""
    path = folder / f"{number * _OFFSETS:020d}.log"
    if number == 0:
        folder.mkdir(parents=True)
        shutil.copyfile(content, path)
    else:
        os.link(folder / f"{0:020d}.log", path)


def known_rows(listed: pa.Table, content: Path) -> pa.Table:
    """The rows of the ledger for listed segments that all hold the same bytes."""
    size, last = content.stat().st_size, batches(content.read_bytes())[-1][0]
    source = FileSource(str(content))
    row = LedgerRow(
        topic="planned",
        partition=0,
        partition_dir="",
        segment="",
        file_base_offset=0,
        length=size,
        decoded_bytes=size,
        fingerprint=fingerprint(source, last, size, None, size, size),
    )
    source.close()
    known = ledger.to_arrow([row]).take(pa.array(np.zeros(listed.num_rows, dtype=np.int64)))
    for name in _LISTED:
        at = known.schema.get_field_index(name)
        column = known.schema.field(at)
        known = known.set_column(at, column, listed.column(name).cast(column.type))
    at = known.schema.get_field_index("end_offset")  # no offset is missing between them
    end = pc.add(known.column("file_base_offset"), _OFFSETS - 1)
    return known.set_column(at, known.schema.field(at), end)


def _timed(rounds: int, work: Callable[[], object]) -> list[float]:
    taken = []
    for _ in range(rounds):
        began = time.perf_counter()
        work()
        taken.append(time.perf_counter() - began)
    return taken


def main(count: int, rounds: int) -> None:
    source = str(_source(count))
    settings = Settings(source=(source,), lake=str(_LAKE), driver_memory="1g")
    with session(settings, only_plans=True) as spark:
        summary = run(spark, settings)
        if summary.unchanged != count or summary.segments:
            raise RuntimeError(f"{summary.unchanged} of {count} segments are unchanged")

        def plan_new() -> None:
            runs = plan_afresh(SparkOnDemand(settings, given=spark), settings).runs(
                settings.max_files_per_run, lambda: settings.max_bytes_per_run
            )
            assert sum(map(len, runs)) == count

        found = {
            "unchanged": _timed(rounds, lambda: run(spark, settings)),
            "listing": _timed(rounds, lambda: list_segments(source)),
            "ledger": _timed(rounds, lambda: ledger.read(table_path(str(_LAKE), SEGMENTS.name))),
            "new": _timed(rounds, plan_new),
        }
        print(json.dumps({"seconds": found, "mib": peak_mib("self")}), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
