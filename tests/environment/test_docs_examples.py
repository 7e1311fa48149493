"""README and docs: what they show runs, and it prints what they say."""

from __future__ import annotations

import dataclasses
import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import deltalake
import duckdb
import polars
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from kafka_log_lake.pipelines import decode_batches
from kafka_log_lake.pipelines.cli import program as console
from kafka_log_lake.pipelines.cli.settings import CostSettings, Settings
from kafka_log_lake.pipelines.format_report import command as format_report
from kafka_log_lake.pipelines.quality_report import command as quality_report
from kafka_log_lake.pipelines.scan.command import scan
from kafka_log_lake.udfs.format.schema import RECORDS, TABLES
from tests.support.answers import answer
from tests.support.corpus import ORACLE
from tests.support.corpus import ROOT as CORPUS
from tests.support.docs import (
    CONNECT,
    FORMATS,
    INNER_VIEWS,
    OPERATIONS,
    QUALITY,
    README,
    ROLES,
    ROOT,
    SHOP,
    VIEWS_PAGE,
    blocks,
    bundled_sources,
)
from tools import picture, pictures

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def bundled(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The lake that ``make samples`` writes."""
    lake = str(tmp_path_factory.mktemp("docs") / "lake")
    decode_batches.run(spark, Settings(source=bundled_sources(), lake=lake))
    return lake


def test_shown_queries_print_what_the_page_shows(spark: SparkSession, bundled: str) -> None:
    text = VIEWS_PAGE.read_text() + INNER_VIEWS.read_text()
    shown = re.findall(r"^```sql\n(.*?)^```\n\n```text\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert len(shown) >= 40
    for statement, output in shown:
        assert "\n".join(answer(bundled, statement, "table")) + "\n" == output


@pytest.fixture(scope="module")
def shop(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The lake that ``make run`` writes."""
    lake = str(tmp_path_factory.mktemp("shop") / "lake")
    decode_batches.run(spark, Settings(source=(str(SHOP),), lake=lake))
    return lake


def test_the_count_of_the_readme_is_what_it_shows(shop: str) -> None:
    (statement,) = blocks(README, "sql")
    assert "\n".join(answer(shop, statement, "table")) + "\n" in blocks(README, "text")


def test_queries_of_the_page_of_quality_print_what_it_shows(
    spark: SparkSession, bundled: str, tmp_path: Path
) -> None:
    quality_report.run(Settings(lake=bundled), output=str(tmp_path))
    text = QUALITY.read_text()
    shown = re.findall(r"^```sql\n(.*?)^```\n\n```text\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert len(shown) == 2
    for statement, output in shown:
        assert "\n".join(answer(bundled, statement, "table")) + "\n" == output


def test_query_of_the_page_on_formats_prints_what_it_shows(spark: SparkSession, bundled: str) -> None:
    format_report.run(spark, CostSettings(lake=bundled, codec_levels="snappy", sample_batches=1))
    ((statement, output),) = re.findall(
        r"^```sql\n(.*?)^```\n\n```text\n(.*?)^```$", FORMATS.read_text(), re.MULTILINE | re.DOTALL
    )
    assert "\n".join(answer(bundled, statement, "table")) + "\n" == output


def test_committed_records_are_what_a_read_committed_consumer_got(spark: SparkSession, bundled: str) -> None:
    """Reliability.md's promise, for every bundled partition that a broker served."""

    def ask(statement: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in answer(bundled, statement)]

    found: dict[Path, list[int]] = {}
    for row in ask("SELECT segment, offset FROM committed_records ORDER BY offset"):
        found.setdefault(Path(row["segment"].removeprefix("file://")).parent, []).append(row["offset"])
    checked = 0
    for segment in ask("SELECT DISTINCT partition_dir FROM segments"):
        folder = Path(segment["partition_dir"].removeprefix("file://"))
        oracle = ORACLE / folder.relative_to(CORPUS)
        if not (oracle / "read_committed.jsonl").exists():
            continue
        start = json.loads((oracle / "offsets.json").read_text())["logStartOffset"]
        lines = (oracle / "read_committed.jsonl").read_text().splitlines()
        assert [o for o in found.get(folder, []) if o >= start] == [
            json.loads(line)["offset"] for line in lines
        ]
        checked += 1
    assert checked > 30


def test_the_picture_of_a_session_shows_what_the_commands_print(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If this fails: python -m tools.picture"""
    for name, sample in picture.LOGS.items():
        shutil.copytree(CORPUS / sample, tmp_path / "kafka-logs" / name)
    monkeypatch.setenv("COLUMNS", str(picture.WIDTH))
    found = scan(Settings(source=(str(tmp_path / "kafka-logs"),)))
    lake = str(tmp_path / "lake")
    decode_batches.run(spark, Settings(source=(str(tmp_path / "kafka-logs"),), lake=lake))
    drawn = ElementTree.parse(picture.PICTURE).iter("{http://www.w3.org/2000/svg}text")
    words = " ".join(" ".join(element.itertext()) for element in drawn).split()
    for topic in found.logs:
        assert topic.topic in words
        assert f"{topic.records:,}" in words
    for _, damage in found.damages:
        assert {f"{damage.position:,}", damage.reason, str(damage.next_offset)} <= set(words)
    for line in answer(lake, picture.QUERY, "table"):
        assert set(line.split()) <= set(words), line
    assert "http://www.w3.org/2000/svg" in picture.PICTURE.read_text()
    assert "url(http" not in picture.PICTURE.read_text()


def test_pictures_show_what_is_in_the_files() -> None:
    """If this fails: python -m tools.pictures"""
    made = pictures.pictures()
    assert {name: (pictures.FOLDER / name).read_text() for name in made} == made


def test_python_of_the_readme_and_of_connect_runs(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    monkeypatch.chdir(tmp_path)
    (with_spark,) = blocks(README, "python")
    lazy, of_frame, alone = blocks(CONNECT, "python")
    names: dict[str, Any] = {"spark": spark}
    exec(with_spark, names)
    assert "decoded 14 segments" in capsys.readouterr().out
    assert rows_of(tmp_path / "lake", "orders") > 0
    exec(lazy, names)
    assert names["records"].columns == [column.name for column in RECORDS.columns]
    assert names["records"].count() == rows_of(tmp_path / "lake", "orders")
    capsys.readouterr()
    exec(of_frame, names)
    assert {"page_views", "crc_mismatch"} <= set(capsys.readouterr().out.replace("|", " ").split())
    exec(alone, {})
    assert "crc_mismatch at byte 2574 - 888 bytes" in capsys.readouterr().out


def rows_of(lake: Path, topic: str) -> int:
    """Returns how many records of a topic a lake has."""
    return DeltaTable(lake / "records").to_pyarrow_table(filters=[("topic", "=", topic)]).num_rows


def test_readers_of_the_page_find_rows(shop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(shop).parent)
    (shown,) = (block for block in blocks(CONNECT, "text") if "scan_delta" in block)
    calls = [line for line in shown.splitlines() if not line.startswith("spark.")]
    assert len(calls) == 4
    for call in calls:
        found = eval(call, {"deltalake": deltalake, "duckdb": duckdb, "polars": polars})
        assert len(found) > 0, call


def test_every_answer_on_the_pages_of_roles_runs(
    spark: SparkSession, bundled: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    shutil.copytree(bundled, tmp_path / "lake")
    (tmp_path / "lake-samples").symlink_to("lake")
    monkeypatch.chdir(tmp_path)
    answers = [answer("lake", statement) for page in ROLES for statement in blocks(page, "sql")]
    assert answers[-1]
    commands = [shlex.split(block) for page in ROLES for block in blocks(page, "sh")]
    assert [command[0] for command in commands] == ["kafka-log-lake"] * len(commands)
    assert {command[1] for command in commands} >= {"scan", "decode", "query", "maintain", "quality-report"}
    for command in commands:
        code = 3 if command[1] == "quality-report" else 0  # the bundled logs are damaged
        assert console.main(command[1:]) == code, command
    names: dict[str, Any] = {}
    for block in (block for page in ROLES for block in blocks(page, "python")):
        if "sys.argv" not in block:  # a separate file: test_recipe runs it
            exec(block, names)
    in_lake = names["frame"][names["frame"]["topic"] == "tx-aborted"]
    assert len(names["committed"]) == len(in_lake) > 0
    assert set(names["loose"].column("topic").to_pylist()) == {"clicks"}
    assert pq.read_table("records.parquet").num_rows > 0


def test_python_alone_needs_no_spark() -> None:
    """The block of the page that promises no Spark, in a Python that cannot import it."""
    script = (
        "import sys; sys.modules['pyspark'] = sys.modules['pipelines'] = None\n"
        + blocks(CONNECT, "python")[-1]
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert "records from offset 0" in done.stdout


def test_statements_of_operations_run(spark: SparkSession, tmp_path: Path) -> None:
    """Upkeep of the tables: the same rows afterwards, and the next runs go on as if nothing had been."""
    lake = str(tmp_path / "lake")
    requested = Settings(source=(str(CORPUS / "v2-txn-open"),), lake=lake)
    again = dataclasses.replace(requested, redecode="tx-open")
    decode_batches.run(spark, requested)
    decode_batches.run(spark, again)
    before = {table.name: rows(lake, table.name) for table in TABLES}
    statements = [s for block in blocks(OPERATIONS, "sql") for s in block.split(";") if s.strip()]
    assert {s.split()[0] for s in statements} == {"OPTIMIZE", "VACUUM", "SELECT", "DESCRIBE"}
    for statement in statements:
        spark.sql(statement.replace("/data/lake", lake)).collect()
    assert {table.name: rows(lake, table.name) for table in TABLES} == before
    assert decode_batches.run(spark, requested).segments == 0
    assert decode_batches.run(spark, again).segments == 1
    assert len(rows(lake, "records")) == len(before["records"])


def rows(lake: str, table: str) -> list[str]:
    return sorted(map(repr, DeltaTable(f"{lake}/{table}").to_pyarrow_table().to_pylist()))
