"""Which versions of the tables belong together: after a run that died, at an earlier run, at a time."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from kafka_log_lake.pipelines.cli.errors import UserError
from kafka_log_lake.pipelines.cli.settings import Settings
from kafka_log_lake.pipelines.lake.published import published_tables
from tests.support import as_command
from tests.support.dying import POINTS, DiedError, arrange
from tests.support.logs import batches, put


def decode(lake: str, logs: Path, **settings: Any) -> str:
    """The id of a run."""
    return as_command.decode(None, Settings(lake=lake, source=(str(logs),), **settings)).run_id


def published_versions(lake: str, at: str | None = None) -> dict[str, int]:
    return {name: table.version() for name, table in published_tables(lake, at).items()}


def offsets(lake: str, at: str | None = None) -> list[int]:
    """The offsets of the records of a published state."""
    delta = DeltaTable(f"{lake}/records", version=published_versions(lake, at)["records"])
    return sorted(delta.to_pyarrow_table(columns=["offset"]).column("offset").to_pylist())


def test_a_lake_without_a_run_has_a_state(lake: str) -> None:
    assert set(published_versions(lake).values()) == {0}


@pytest.mark.parametrize("point", ["records added", "batches added", "before the ledger"])
def test_a_run_that_died_halfway_is_not_seen(lake: str, tmp_path: Path, point: str) -> None:
    logs = tmp_path / "logs"
    put(logs / "a-0", 0, *batches(0, 2))
    decode(lake, logs)
    put(logs / "a-0", 0, *batches(0, 4))
    before = published_versions(lake)

    def die() -> None:
        raise DiedError

    with pytest.MonkeyPatch.context() as patch:
        arrange(POINTS[point], die, patch.setattr)
        with pytest.raises(DiedError):
            decode(lake, logs)
    assert DeltaTable(f"{lake}/records").version() > before["records"]
    assert published_versions(lake) == before
    assert offsets(lake) == list(range(6))
    decode(lake, logs)
    assert offsets(lake) == list(range(12))


def test_an_earlier_state_is_named_by_its_run_or_by_a_time(lake: str, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    runs, times = [], []
    for count in (1, 2, 3):
        put(logs / "a-0", 0, *batches(0, count))
        runs.append(decode(lake, logs))
        time.sleep(0.01)
        times.append(str(int(time.time() * 1000)))
        time.sleep(0.01)
    for count, run, at in zip((1, 2, 3), runs, times, strict=True):
        assert offsets(lake, run) == offsets(lake, at) == list(range(3 * count))
    assert published_versions(lake, runs[-1]) == published_versions(lake)


def test_what_others_commit_belongs_to_the_state_that_it_follows(lake: str, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    for partition in (0, 1):
        put(logs / f"a-{partition}", 0, *batches(0, 2))
    first = decode(lake, logs)
    DeltaTable(f"{lake}/records").optimize.compact()
    DeltaTable(f"{lake}/records").delete('"partition" = 1')
    assert offsets(lake) == offsets(lake, first) == list(range(6))


def test_a_state_that_is_not_there_is_refused_in_one_line(lake: str, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    put(logs / "a-0", 0, *batches(0, 2))
    first = decode(lake, logs)
    for at in ("0" * 32, "yesterday", "2001-01-01"):
        with pytest.raises(UserError, match="has no state of"):
            published_versions(lake, at)
    put(logs / "a-0", 0, *batches(100, 2))
    decode(lake, logs)
    records = DeltaTable(f"{lake}/records")
    records.vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
    assert offsets(lake) == list(range(100, 106))
    with pytest.raises(UserError, match="VACUUM deleted files of records; name a later one"):
        published_versions(lake, first)


def test_a_state_outlives_the_entries_of_the_log_that_published_it(lake: str, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    put(logs / "a-0", 0, *batches(0, 2))
    decode(lake, logs)
    ledger = DeltaTable(f"{lake}/segments")
    ledger.alter.set_table_description("of somebody")
    ledger.create_checkpoint()
    *old, _ = sorted(Path(lake, "segments", "_delta_log").glob("*.json"))
    for entry in old:  # as Delta does with entries older than 30 days, here of a lake that has been quiet
        entry.unlink()
    assert offsets(lake) == offsets(lake, str(int(time.time() * 1000))) == list(range(6))
    put(logs / "a-0", 6, *batches(6, 1))
    decode(lake, logs)
    assert offsets(lake) == list(range(9))
