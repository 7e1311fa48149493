"""The row of ``runs`` of a run that was killed: by what its commits say, as its own process wrote none."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from pipelines.lake.intents import Intent
from pipelines.lake.published import INGEST_APP, Commit
from pipelines.plan.ledger import rows_to_arrow
from udfs.format.report_tables import RUNS
from udfs.format.schema import BATCHES, QUARANTINE, RAW_SEGMENTS, RECORDS, SEGMENTS

if TYPE_CHECKING:
    from pipelines.lake.commit import LakeWriter

_COUNTED = {"batches": BATCHES, "records": RECORDS, "damaged": QUARANTINE}


def row_of(lake: LakeWriter, intent: Intent) -> pa.Table | None:
    """The row of an intent's run, once the intent is finished or taken back; None where nothing is left.

    Other commits of the run count too. seconds, phases and what the process alone knew are null or empty.
    """
    row: dict[str, Any] = dict.fromkeys(("segments", "unchanged", "batches", "records", "damaged"), 0)
    if intent.app_id == INGEST_APP:
        published = _commits(lake.commits(RAW_SEGMENTS.name), intent)
        chunks = lake.chunks_of_run(intent.run_id)
        row["segments"] = pc.count_distinct(chunks.column("segment")).as_py()
        row["bytes"] = pc.sum(chunks.column("chunk_bytes")).as_py() or 0
    else:
        published = _commits(lake.commits(SEGMENTS.name), intent)
        row["segments"], row["bytes"] = (_sum(published, name) for name in ("segments", "bytes"))
        for name, table in _COUNTED.items():
            row[name] = _sum(_commits(lake.commits(table.name), intent), "rows_added")
    if not row["segments"]:
        return None
    began = [one.decoded_at for one in intent.put] or [1000 * one.at for one in published]
    job = "ingest" if intent.app_id == INGEST_APP else "decode"
    known = {"run_id": intent.run_id, "job": job, "began_at": min(began), "seconds": None, "phases": []}
    return rows_to_arrow(RUNS, [row | known | {"warnings": 0, "unreadable": []}])


def _commits(commits: Iterable[Commit], intent: Intent) -> list[Commit]:
    """The commits of an intent's run that are the newest of runs and that were not undone."""
    own: list[Commit] = []
    for commit in commits:
        if commit.said and commit.said.get("app") == intent.app_id:
            if commit.said["run_id"] != intent.run_id:
                break
            own.append(commit)
    undone = {commit.said["run"] for commit in own if commit.said.get("undone")}
    return [commit for commit in own if commit.said["run"] not in undone]


def _sum(commits: Iterable[Commit], name: str) -> int:
    return sum(commit.said.get("metrics", {}).get(name, 0) for commit in commits)
