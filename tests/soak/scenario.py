"""What the killed jobs have to do: a lake that knows some segments, and log directories that have changed.

Every table changes, in every way: segments that are new, that grew, that were rewritten, that the cleaner
merged away; damage, a transaction, and enough bytes that decoding takes a while.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable

from kafka_log_lake.pipelines.lake.published import DECODE_APP
from tests.support.logs import TABLES, batch, batches, data, marker, put

_KEYS = (
    "partition_dir",
    "segment",
    "batch_position",
    "position",
    "offset",
    "producer_id",
    "first_offset",
    "marker_offset",
)
# What names a run, or counts the bounded runs of a job
_OF_A_RUN = ("run_id", "decoded_at")
# Slices small enough that a segment has several
ARGUMENTS = ("--slice-bytes", "2097152")
# As many segments a run as make several runs of one job
SEVERAL_RUNS = ("--max-files-per-run", "5")


def first_state(logs: Path) -> None:
    """What the lake knows already."""
    put(logs / "rewritten-0", 0, *batches(0, 3))
    put(logs / "grown-0", 0, *batches(0, 2), batch(6)[:40])
    put(logs / "merged-0", 0, *batches(0, 2))
    put(logs / "merged-0", 6, *batches(6, 2))
    put(logs / "same-0", 0, *batches(0, 2))
    put(logs / "tx-0", 0, data(0, producer=3, records=2), data(2, producer=4))


def change(logs: Path) -> None:
    """Makes it what changes every table: a broken batch, segments rewritten, grown, merged away, new."""
    broken = bytearray(batch(9))
    broken[-1] ^= 1
    put(logs / "rewritten-0", 0, batch(0), batch(6), bytes(broken), batch(12))
    put(logs / "grown-0", 0, *batches(0, 4))
    (logs / "merged-0" / f"{6:020d}.log").unlink()
    put(logs / "merged-0", 0, batch(3), batch(9))
    put(logs / "new-0", 0, data(0, producer=3))
    tx = logs / "tx-0" / f"{0:020d}.log"
    tx.write_bytes(tx.read_bytes() + marker(3, producer=3, commit=False) + marker(4, producer=4) + batch(5))


def second_state(logs: Path, bulk_batches: int = 400) -> None:
    """What the killed jobs see; ``bulk_batches`` of some 20 KB in each of two segments."""
    change(logs)
    for partition in range(2):
        put(logs / f"bulk-{partition}", 0, *bulk(bulk_batches))
        put(logs / f"small-{partition}", 0, *batches(0, 4))


def bulk(count: int) -> list[bytes]:
    """Batches of 100 records: one, at many base offsets, which its checksum does not cover."""
    one = batch(0, records=100, text="v" * 180)
    return [(100 * i).to_bytes(8, "big") + one[8:] for i in range(count)]


@dataclass(frozen=True)
class State:
    """What a lake holds, in a form that compares: rows in an order of their own, without a run's name."""

    tables: dict[str, pa.Table]

    def differences(self, other: State) -> list[str]:
        return [
            f"{name}: {table.num_rows} rows here, {other.tables[name].num_rows} there"
            for name, table in self.tables.items()
            if not table.equals(other.tables[name])
        ]


def state(lake: Path) -> State:
    return State({name: _table(lake / name) for name in TABLES})


def _table(path: Path) -> pa.Table:
    found: pa.Table = DeltaTable(str(path)).to_pyarrow_table()
    found = found.drop_columns([name for name in _OF_A_RUN if name in found.column_names])
    keys = [(name, "ascending") for name in _KEYS if name in found.column_names]
    return found.sort_by(keys).combine_chunks()


def left_behind(lake: Path) -> list[str]:
    """What lies in a lake and should not: all but the tables, the lock, and files that VACUUM would take."""
    found = [f"_runs/{p.name}" for p in (lake / "_runs").iterdir() if p.name != "lock"]
    for name in TABLES:
        delta = DeltaTable(str(lake / name))
        named = {Path(uri.removeprefix("file://")) for uri in delta.file_uris()}
        vacuumed = {
            lake / name / p
            for p in delta.vacuum(retention_hours=0, enforce_retention_duration=False, full=True)
        }
        for path in (lake / name).rglob("*"):
            ours = path.is_file() and "_delta_log" not in path.parts and path.suffix != ".crc"  # Hadoop's
            if ours and path not in named and path not in vacuumed:
                found.append(str(path.relative_to(lake)))
    return found


def orphans(lake: Path) -> int:
    """Data files that no version of a table has named: of runs and tasks that died."""
    count = 0
    for name in TABLES:
        log = "".join(p.read_text() for p in (lake / name / "_delta_log").glob("*.json"))
        files = (lake / name).rglob("*.parquet")
        count += sum(p.name not in log for p in files if "_delta_log" not in p.parts)
    return count


def committed(lake: Path) -> dict[str, int]:
    """The last run of the job that each table has."""
    paths = {name: str(lake / name) for name in TABLES[:4]}
    return {
        name: (DeltaTable.is_deltatable(path) and DeltaTable(path).transaction_version(DECODE_APP)) or 0
        for name, path in paths.items()
    }


def copy(lake: Path, to: Path) -> Path:
    shutil.copytree(lake, to)
    return to
