"""The notebooks, run cell by cell as Databricks would, against a lake made from real segments."""

from __future__ import annotations

import json
import re
import runpy
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from tests.support import corpus

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOTEBOOKS = Path(__file__).resolve().parent.parent / "notebooks"
INGEST, EXPLORE = NOTEBOOKS / "01_ingest_and_decode.py", NOTEBOOKS / "02_explore_records.py"

SOUND = ("v2-txn-abort/tx-aborted-0", "v2-txn-open/tx-open-0", "v0-codec-gzip/v0-gzip-0")
DAMAGED = "hostile/bitflip-payload-v2-none-0"
CELL = "# COMMAND ----------"


class Widgets:
    """The part of ``dbutils`` that the notebooks use, with values that somebody typed in."""

    def __init__(self, **values: str) -> None:
        self.values = values
        self.defaults: dict[str, str] = {}
        self.widgets = self

    def text(self, name: str, default: str) -> None:
        self.defaults[name] = default

    def get(self, name: str) -> str:
        assert name in self.defaults, f"the widget {name} was read before it was made"
        return self.values.get(name, self.defaults[name])


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log directory of four of the bundled partitions, one of them damaged."""
    folder = tmp_path_factory.mktemp("notebooks") / "logs"
    for name in (*SOUND, DAMAGED):
        shutil.copytree(corpus.ROOT / name, folder / Path(name).name)
    return folder


@pytest.fixture
def run(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs a notebook in the session of the tests; returns the names it leaves behind."""
    monkeypatch.setenv("MPLBACKEND", "Agg")
    monkeypatch.setattr(sys, "path", sys.path[:])

    def execute(notebook: Path, **globals_there: Any) -> dict[str, Any]:
        return runpy.run_path(str(notebook), init_globals=globals_there)

    return execute


def kafka_records(name: str) -> int:
    """Records of a partition as Kafka's own library counts them."""
    return sum(len(corpus.oracle_records(path)) for path in sorted((corpus.ROOT / name).glob("*.log")))


def kafka_committed(name: str) -> int:
    """Records that a read_committed consumer got of a partition."""
    lines = (corpus.ORACLE / name / "read_committed.jsonl").read_text().splitlines()
    return len([json.loads(line) for line in lines])


def records(lake: Path) -> list[dict[str, Any]]:
    found = DeltaTable(lake / "records").to_pyarrow_table().to_pylist()
    return sorted(found, key=repr)


@pytest.mark.parametrize("notebook", [INGEST, EXPLORE], ids=lambda path: path.stem)
def test_notebook_is_in_databricks_source_format(notebook: Path) -> None:
    head, *lines = notebook.read_text().splitlines()
    assert head == "# Databricks notebook source"
    cells = "\n".join(lines).split(CELL)
    assert len(cells) > 4
    for cell in cells:
        found = [line for line in cell.splitlines() if line]
        text = [line for line in found if re.match(r"# MAGIC( |$)", line)]
        assert not text or text == found, "a cell is text or code, not both"
        assert not text or text[0] == "# MAGIC %md"


def test_ingest_and_explore_with_widgets(run: Any, logs: Path, tmp_path: Path) -> None:
    lake, plot = tmp_path / "lake", tmp_path / "records.png"
    widgets = Widgets(source=str(logs), lake=str(lake))
    first = run(INGEST, dbutils=widgets)
    assert set(widgets.defaults) == {"source", "lake", "topics", "land_raw"}
    assert (first["decoded"].segments, first["decoded"].damaged) == (4, 1)
    ledger = {row.topic: row for row in first["ledger"].collect()}
    assert {name: ledger[name].records for name in ("tx-aborted", "tx-open", "v0-gzip")} == {
        Path(name).name[:-2]: kafka_records(name) for name in SOUND
    }
    assert run(INGEST, dbutils=widgets)["decoded"].segments == 0

    shown: list[Any] = []
    seen = run(EXPLORE, dbutils=Widgets(lake=str(lake), plot=str(plot)), display=shown.append)
    assert shown == [seen["figure"]]
    assert plot.read_bytes().startswith(b"\x89PNG")
    topics = {row.topic: row for row in seen["topics"].collect()}
    assert topics.keys() == ledger.keys()
    for name in SOUND[:2]:
        topic = topics[Path(name).name[:-2]]
        assert (topic.records, topic.committed) == (kafka_records(name), kafka_committed(name))
    (damage,) = seen["damage"].collect()
    assert (damage.topic, damage.crc_failures) == ("bitflip-payload-v2-none", 1)
    assert {row.compression for row in seen["codecs"]} == {"none", "gzip", "zstd"}
    assert all(row.expanded >= row.stored > 0 for row in seen["codecs"])


def test_landing_first_gives_the_same_records(run: Any, logs: Path, tmp_path: Path) -> None:
    run(INGEST, dbutils=Widgets(source=str(logs), lake=str(tmp_path / "direct"), topics="tx-.*"))
    landed = Widgets(source=str(logs), lake=str(tmp_path / "raw"), topics="tx-.*", land_raw="yes")
    assert run(INGEST, dbutils=landed)["landed"].segments == 2
    assert len(records(tmp_path / "raw")) == kafka_records(SOUND[0]) + kafka_records(SOUND[1])
    assert records(tmp_path / "raw") == records(tmp_path / "direct")


def test_defaults_serve_where_there_are_no_widgets(
    run: Any, logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(logs / "tx-open-0", tmp_path / "tests" / "data" / "corpus" / "v2-txn-open" / "tx-open-0")
    monkeypatch.chdir(tmp_path)
    assert run(INGEST)["decoded"].segments == 1
    seen = run(EXPLORE, display=lambda figure: None)
    assert [row.topic for row in seen["topics"].collect()] == ["tx-open"]
    assert {path.name for path in tmp_path.iterdir()} == {"tests", "lake", "records.png"}
