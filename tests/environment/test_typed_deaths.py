"""A run that dies while it makes typed and kept tables: no row is doubled; the next run completes them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from kafka_log_lake.pipelines import decode_batches
from kafka_log_lake.pipelines.decode_values import command as decode_values
from kafka_log_lake.pipelines.decode_values import job
from kafka_log_lake.pipelines.decode_values import kept as kept
from tests.support import typed_corpus
from tests.support.dying import DiedError, arrange

TOPICS = ("err-avro", "cdc-avro-orders")
TABLES = (
    "value_errors",
    *(f"typed/{topic}" for topic in TOPICS),
    *(f"latest/{topic}" for topic in TOPICS),
    *(f"{kind}/cdc-avro-orders" for kind in ("cdc", "history")),
)
POINTS = {
    "files written": (job._Topic, "_commit_errors", 1, "before"),
    "errors added": (job._Topic, "_commit_errors", 2, "after"),
    "typed rows added": (job._Topic, "_commit", 2, "after"),
    "latest written": (kept, "_write", 1, "after"),
    "before the history": (kept, "_write", 3, "before"),
    "the history written": (kept, "_write", 3, "after"),
}


def rows(lake: Path, table: str, version: int | None = None) -> list[str]:
    path = lake / table
    if not DeltaTable.is_deltatable(str(path)):
        return []
    return sorted(map(repr, DeltaTable(path, version=version).to_pyarrow_table().to_pylist()))


def make(lake: Path) -> None:
    for mode in ("latest", "cdc"):
        assert decode_values.main(["--lake", str(lake), "--mode", mode]) == 0


@pytest.fixture(scope="module")
def decoded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake without typed tables."""
    root = tmp_path_factory.mktemp("deaths")
    typed_corpus.copy((*TOPICS, "_schemas"), root / "logs")
    argv = ["--source", str(root / "logs"), "--lake", str(root / "lake"), "--no-typed"]
    assert decode_batches.main(argv) == 0
    return root / "lake"


@pytest.fixture(scope="module")
def whole(decoded: Path) -> dict[str, list[str]]:
    """The tables of a run that did not die."""
    lake = decoded.with_name("whole")
    shutil.copytree(decoded, lake)
    make(lake)
    found = {table: rows(lake, table) for table in TABLES}
    assert all(found.values())
    return found


@pytest.mark.parametrize("point", POINTS)
def test_the_next_run_completes_what_a_dead_one_began(
    decoded: Path, whole: dict[str, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    lake = tmp_path / "lake"
    shutil.copytree(decoded, lake)

    def die() -> Any:
        raise DiedError

    with monkeypatch.context() as patch:
        arrange(POINTS[point], die, patch.setattr)
        with pytest.raises(DiedError):
            make(lake)
    for table in TABLES:
        assert rows(lake, table) in ([], whole[table])
    make(lake)
    for table in TABLES:
        assert rows(lake, table) == whole[table]
        last = DeltaTable(lake / table).version()
        for version in range(last + 1):
            found = rows(lake, table, version)
            assert len(set(found)) == len(found)
