"""Compares the logs in a lake with what the broker's checkpoint files say, and keeps what differs."""

from __future__ import annotations

import pyarrow as pa

from pipelines.lake.commit import LakeWriter
from pipelines.plan.missing import Missing, at_edges, edges_of_ledger
from pipelines.source.checkpoints import Checkpoint
from pipelines.source.listing import Listing
from udfs.format.report_tables import CHECKPOINTS

_FIELDS = Checkpoint._fields


def compare_with_checkpoints(
    lake: LakeWriter, listing: Listing, rows: pa.Table, run_id: str, began_us: int
) -> list[tuple[str, Missing]]:
    """The offsets at the edges of logs that no segment has, each with ``<topic>-<partition>``.

    rows: of the ledger, all of the logs. The table ``checkpoints`` gets a row where the view ``lost_offsets``
    would tell something else without it: none of a log that is whole, as most are.
    began_us: of the run, microseconds since 1970 UTC.
    """
    noted = listing.noted_logs()
    edges = edges_of_ledger(rows, noted)
    if not edges:
        return []
    kept = _kept(lake)
    missing: list[tuple[str, Missing]] = []
    new = []
    for log in sorted(edges):
        checkpoint = noted[log.partition_dir].checkpoint
        found = at_edges(log, checkpoint)
        missing += [(f"{log.topic}-{log.partition}", one) for one in found]
        if found != at_edges(log, kept.get(log.partition_dir)):
            place = {"topic": log.topic, "partition": log.partition, "partition_dir": log.partition_dir}
            new.append({**place, **checkpoint._asdict(), "read_at": began_us, "run_id": run_id})
    if new:
        schema = CHECKPOINTS.arrow_schema()
        plain = {"read_at": pa.int64()}  # microseconds, of which Arrow makes the timestamp
        columns = [
            pa.array([row[f.name] for row in new], plain.get(f.name, f.type)).cast(f.type) for f in schema
        ]
        lake.add_rows(CHECKPOINTS, pa.Table.from_arrays(columns, schema=schema))
    return missing


def _kept(lake: LakeWriter) -> dict[str, Checkpoint]:
    """The last row of each folder in the table ``checkpoints``."""
    if not lake.has(CHECKPOINTS):
        return {}
    stored = lake.read(CHECKPOINTS, ["partition_dir", "read_at", *_FIELDS]).sort_by("read_at")
    columns = ["partition_dir", *_FIELDS]
    return {row.pop("partition_dir"): Checkpoint(**row) for row in stored.select(columns).to_pylist()}
