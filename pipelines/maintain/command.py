"""``kafka-log-lake maintain``: keeps the tables of a lake small and fast to read, and old rows out of it."""

from __future__ import annotations

import json
import time
import uuid
from dataclasses import asdict, dataclass
from functools import partial

from kafka_log_lake.pipelines.cli.commands.maintain import MAINTAIN
from kafka_log_lake.pipelines.cli.settings import LakeSettings
from kafka_log_lake.pipelines.cli.status import phase
from kafka_log_lake.pipelines.cli.terminal import counted_noun, printable
from kafka_log_lake.pipelines.cli.text_tables import Section, size_text, text_lines
from kafka_log_lake.pipelines.engine.on_demand import SparkOnDemand
from kafka_log_lake.pipelines.engine.run_command import run_command
from kafka_log_lake.pipelines.lake import upkeep
from kafka_log_lake.pipelines.lake.address import open_lake
from kafka_log_lake.pipelines.lake.commit import LakeWriter
from kafka_log_lake.pipelines.lake.intents import Intents
from kafka_log_lake.pipelines.lake.path_lake import PathLake
from kafka_log_lake.pipelines.lake.published import DECODE_APP, INGEST_APP
from kafka_log_lake.pipelines.lake.upkeep import Upkept
from kafka_log_lake.pipelines.listing.hadoop import job_scheme
from kafka_log_lake.pipelines.plan import ledger
from kafka_log_lake.pipelines.plan.file_checks import is_gone
from kafka_log_lake.pipelines.plan.landed import Landed
from kafka_log_lake.pipelines.typed.tables import typed_tables
from kafka_log_lake.udfs.storage.byte_source import PIECES

_HOLDERS = ("", ".swap", PIECES)  # end of a name after a segment's: has its bytes


@dataclass(frozen=True)
class Maintained:
    """Result of ``maintain``. dropped: number of segments whose rows were deleted."""

    lake: str
    dropped: int
    tables: list[Upkept]
    seconds: float


def run(
    on_demand: SparkOnDemand, settings: LakeSettings, vacuum_hours: int = 168, keep_days: int | None = None
) -> None:
    """Maintains a lake, and prints what was done. Raises a UserError while a job writes to the lake."""
    done = maintain(on_demand, settings, vacuum_hours, keep_days)
    if settings.json:
        print(json.dumps(asdict(done)))
    else:
        print("\n".join(_lines(done)))


def maintain(
    on_demand: SparkOnDemand, settings: LakeSettings, vacuum_hours: int = 168, keep_days: int | None = None
) -> Maintained:
    """Finishes killed runs, drops old rows, merges small files and deletes files that are not needed.

    vacuum_hours: see ``upkeep``. keep_days: the rows of segments are dropped whose file is gone and whose
    newest record is older than this, from the start of each log; None drops none.
    """
    began = time.monotonic()
    address = open_lake(settings.require_lake(), job_scheme(on_demand))
    intents = Intents(address)
    with intents.lock():
        decoded, landed = (PathLake(on_demand, address, intents, app) for app in (DECODE_APP, INGEST_APP))
        decoded.recover()
        dropped = 0
        if keep_days is not None:
            with phase("dropping old rows"):
                dropped = _drop_old(on_demand, decoded, landed, keep_days)
        with phase("merging and deleting files"):
            typed = [table.table for table in typed_tables(address)]
            tables = list(upkeep.upkeep(address, vacuum_hours, typed))
    return Maintained(address, dropped, tables, time.monotonic() - began)


def _drop_old(on_demand: SparkOnDemand, decoded: LakeWriter, landed: LakeWriter, keep_days: int) -> int:
    """Drops old segments whose files are gone: the next job would decode a file that is there again."""
    known = list(ledger.rows(decoded.ledger()))
    old = upkeep.expired(known, time.time_ns() // 1000, keep_days)
    gone = [row for row in old if all(is_gone(on_demand, row.segment + end) for end in _HOLDERS)]
    gone = upkeep.from_the_start(gone, known)
    names = {row.segment for row in gone}
    raw = [row for row in ledger.rows(Landed(landed.read).known()) if row.segment in names]
    run_id = uuid.uuid4().hex
    # Landed bytes first: bytes without a row in the ledger would be decoded again
    upkeep.drop(landed, raw, run_id)
    upkeep.drop(decoded, gone, run_id)
    return len(gone)


def _lines(done: Maintained) -> list[str]:
    rows = [
        (
            table.table,
            f"{table.files_before:,}",
            f"{table.files:,}",
            size_text(table.bytes),
            f"{table.deleted:,}",
        )
        for table in done.tables
    ]
    section = Section("", ("table", "files before", "files", "bytes", "deleted files"), rows, (1, 2, 3, 4))
    dropped = f", rows of {counted_noun(done.dropped, 'segment')} dropped" if done.dropped else ""
    files = sum(table.files_before - table.files for table in done.tables)
    merged = f"{counted_noun(max(0, files), 'data file')} fewer to read"
    did = f"maintained {printable(done.lake)} in {done.seconds:.1f} s"
    same = "all other rows are" if dropped else "all rows are"
    return [*text_lines(section), f"verdict: {did}: {merged}{dropped}; {same} as before"]


main = partial(run_command, MAINTAIN, run)
