"""The notebooks, run cell by cell as Databricks would, against a lake made from real segments."""

from __future__ import annotations

import ast
import json
import re
import runpy
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from kafka_log_lake.pipelines.cli import notebooks as widgets_elsewhere
from tests.support import corpus, typed_corpus
from tests.support.notebook import Widgets
from tools import notebooks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"
INGEST, EXPLORE, QUALITY, TRANSACTIONS, FORMATS, TYPED = ALL = sorted(NOTEBOOKS.glob("*.py"))

SOUND = ("v2-txn-abort/tx-aborted-0", "v2-txn-open/tx-open-0", "v0-codec-gzip/v0-gzip-0")
DAMAGED = "hostile/bitflip-payload-v2-none-0"
CELL = "# COMMAND ----------"


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


@pytest.mark.parametrize("notebook", ALL, ids=lambda path: path.stem)
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


@pytest.fixture(scope="module")
def lake(spark: SparkSession, logs: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A lake that the first notebook wrote."""
    folder = str(tmp_path_factory.mktemp("lake") / "lake")
    widgets = Widgets(source=str(logs), lake=folder)
    first = runpy.run_path(str(INGEST), init_globals={"dbutils": widgets})
    assert set(widgets.defaults) == {"source", "lake", "topics", "land_raw", "streamed"}
    assert (first["decoded"].segments, first["decoded"].damaged) == (4, 1)
    ledger = {row.topic: row for row in first["ledger"].collect()}
    assert {name: ledger[name].records for name in ("tx-aborted", "tx-open", "v0-gzip")} == {
        Path(name).name[:-2]: kafka_records(name) for name in SOUND
    }
    return folder


def test_a_second_ingest_finds_nothing_new(run: Any, logs: Path, lake: str) -> None:
    assert run(INGEST, dbutils=Widgets(source=str(logs), lake=lake))["decoded"].segments == 0


def test_explore_distinguishes_records_from_committed_ones(run: Any, lake: str) -> None:
    shown: list[Any] = []
    seen = run(
        EXPLORE, dbutils=Widgets(lake=lake, json_topic="bitflip-payload-v2-none"), display=shown.append
    )
    assert shown == [seen["sizes"]]
    topics = {row.topic: row.records for row in seen["topics"].collect()}
    assert len(topics) == 4
    fewer = {row.topic: (row.records, row.committed) for row in seen["committed"].collect()}
    assert fewer == {Path(n).name[:-2]: (kafka_records(n), kafka_committed(n)) for n in SOUND[:2]}
    (path,) = (corpus.ROOT / DAMAGED).glob("*.log")
    sound = {line["offset"] for line in corpus.oracle_records(path) if line["batchPosition"] != 3268}
    parsed = {row.offset for row in seen["parsed"].collect()}
    assert parsed
    assert parsed < sound
    headers = {key for line in corpus.oracle_records(path) for key, _ in line.get("headers", [])}
    assert {row.key for row in seen["headers"].collect()} <= headers


def test_quality_shows_the_damage_and_what_it_cost(
    run: Any, lake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere, temporary = tmp_path / "elsewhere", tmp_path / "temporary"
    elsewhere.mkdir()
    temporary.mkdir()
    monkeypatch.chdir(elsewhere)
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    shown: list[Any] = []
    seen = run(QUALITY, dbutils=Widgets(lake=lake), display=shown.append)
    assert shown == [seen["shares"], seen["checks"]]
    (damage,) = seen["damage"].collect()
    assert (damage.topic, damage.crc_failures) == ("bitflip-payload-v2-none", 1)
    (lost,) = seen["lost"].collect()
    assert (lost.first_lost, lost.last_lost, lost.next_offset) == (31, 40, 41)
    failed = {row.check for row in seen["failed"].collect()}
    assert {"crc_failure_rate", "damaged_bytes"} <= failed
    page = Path(seen["summary"].page)
    assert page.read_text().lower().startswith("<!doctype html>")
    assert page.parent.parent == temporary  # where no folder was requested
    assert list(elsewhere.iterdir()) == []


def test_transactions_are_those_that_the_broker_ended(run: Any, lake: str) -> None:
    shown: list[Any] = []
    seen = run(TRANSACTIONS, dbutils=Widgets(lake=lake), display=shown.append)
    assert shown == [seen["endings"], seen["timeline"], seen["gaps"]]
    assert seen["topic"] == "tx-aborted"
    assert seen["counts"]["tx-aborted", "aborted"] == 4
    # open for 152 ms by the markers around its start, and for years by the wall clock
    (hanging,) = seen["hanging"].collect()
    assert (hanging["topic"], hanging["open_ms"], hanging["certainty"]) == ("tx-open", 152, "unknown")
    assert seen["incomplete"] == 1  # the damaged batch


def test_formats_and_codecs_are_compared(run: Any, lake: str) -> None:
    shown: list[Any] = []
    seen = run(FORMATS, dbutils=Widgets(lake=lake), display=shown.append)
    assert shown == [seen["layouts"], seen["sizes"], seen["compressed"]]
    assert seen["taken"].keys() == {"v0", "v1", "v2", "v3_proposal"}
    assert seen["taken"]["v1"] > seen["taken"]["v0"]
    assert {row.codec for row in seen["measured"]} == {"gzip", "lz4", "snappy", "zstd"}
    assert {row.topic for row in seen["costs"].collect()} == {
        row.topic for row in seen["spark"].table("logs").collect()
    }


def test_values_have_the_types_of_their_schemas(run: Any, tmp_path: Path) -> None:
    topics = {"avro-evolution", "err-pb"}
    typed_corpus.copy((*topics, "_schemas"), tmp_path / "logs")
    shown: list[Any] = []
    widgets = Widgets(source=str(tmp_path / "logs"), lake=str(tmp_path / "lake"))
    seen = run(TYPED, dbutils=widgets, display=shown.append)
    assert shown == [seen["errors"]]
    sent = {topic: typed_corpus.oracle(topic) for topic in topics}
    assert {one["topic"]: one["rows"] for one in seen["decoded"].typed} == {t: len(sent[t]) for t in topics}
    targets = {(row.partition, row.offset): row.value.target for row in seen["typed"].collect()}
    assert targets == {
        (one["partition"], one["offset"]): one["value_as_latest"]["target"] for one in sent["avro-evolution"]
    }
    wrong = sum("error" in one for one in sent["err-pb"])
    assert sum(row.payloads for row in seen["reasons"]) == wrong > 0
    assert {row.topic for row in seen["profile"].collect()} >= topics


def test_landing_first_gives_the_same_records(run: Any, logs: Path, lake: str, tmp_path: Path) -> None:
    landed = Widgets(source=str(logs), lake=str(tmp_path / "raw"), topics="tx-.*", land_raw="yes")
    assert run(INGEST, dbutils=landed)["landed"].segments == 2
    assert len(records(tmp_path / "raw")) == kafka_records(SOUND[0]) + kafka_records(SOUND[1])
    assert records(tmp_path / "raw") == [row for row in records(Path(lake)) if row["topic"].startswith("tx-")]


def test_defaults_serve_from_any_folder_and_leave_nothing_in_it(
    run: Any, logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkout, elsewhere = tmp_path / "checkout", tmp_path / "elsewhere"
    open_log = checkout / "tests" / "data" / "corpus" / "v2-txn-open" / "tx-open-0"
    shutil.copytree(logs / "tx-open-0", open_log)
    (checkout / "notebooks").mkdir()
    elsewhere.mkdir()
    monkeypatch.setattr(widgets_elsewhere, "ROOT", checkout)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.chdir(elsewhere)
    assert run(INGEST)["decoded"].segments == 1
    run(EXPLORE, display=lambda figure: None)  # its widgets had other values above than the defaults
    for notebook in (QUALITY, TRANSACTIONS, FORMATS):
        settings = notebook.read_text().partition("get_session()")
        names: dict[str, Any] = {"__file__": str(notebook)}
        exec("".join(settings[:2]), names)
        assert names["lake"] == str(checkout / "lake")
    assert list(elsewhere.iterdir()) == []
    assert {path.name for path in checkout.iterdir()} == {"tests", "notebooks", "lake", "lake-streamed"}


def test_each_notebook_can_be_converted_to_jupyter_s_format(tmp_path: Path) -> None:
    notebooks.main(str(tmp_path))
    assert [path.stem for path in sorted(tmp_path.iterdir())] == [path.stem for path in ALL]
    for path in ALL:
        made = json.loads((tmp_path / f"{path.stem}.ipynb").read_text())
        assert (made["nbformat"], made["nbformat_minor"]) == (4, 5)
        assert made["cells"][0]["cell_type"] == "markdown"
        assert made["cells"][0]["source"][0].startswith("# ")
        for cell in made["cells"]:
            text = "".join(cell["source"])
            assert "MAGIC" not in text
            if cell["cell_type"] == "code":
                ast.parse(text)
