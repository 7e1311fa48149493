"""What a job says of arguments that cannot be meant: one line, and nothing is changed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kafka_log_lake.pipelines import decode_batches
from kafka_log_lake.pipelines.cli.settings import Settings
from kafka_log_lake.pipelines.listing.uris import escape
from tests.support import as_command
from tests.support.logs import batch, put, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    return tmp_path / "logs"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--source", "{logs}/none"], "no such path"),
        (["--source", "{logs}/none*"], "matches nothing"),
        (["--source", "{logs}/[none"], "matches nothing"),
        (["--source", "{logs}/bare"], "no segments"),
        (["--source", "{logs}/folder"], "folder is not a partition"),
        (
            ["--source", "{logs}", "--topics", "nothing"],
            "topics that do not match --topics, or match --exclude-topics: a",
        ),
        ([], "--source is missing"),
        (["--from-raw"], "nothing was landed in the lake: run ingest first"),
    ],
)
def test_each_misuse_ends_with_one_line_and_exit_code_2(
    spark: SparkSession,
    lake: str,
    logs: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    said: str,
) -> None:
    put(logs / "a-0", 0, batch(0))
    put(logs / "folder", 0, batch(0))
    (logs / "bare").mkdir()
    given = [text.replace("{logs}", escape(str(logs)) if "*" in text else str(logs)) for text in arguments]
    assert decode_batches.main([*given, "--lake", lake]) == 2
    errors = capsys.readouterr().err.strip().splitlines()
    assert said in errors[-1]
    assert len(errors) == 1


def test_a_lake_in_its_own_source_is_refused(
    spark: SparkSession, logs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put(logs / "a-0", 0, batch(0))
    for lake in (logs, logs / "lake"):
        assert decode_batches.main(["--source", str(logs), "--lake", str(lake)]) == 2
        (line,) = capsys.readouterr().err.strip().splitlines()
        assert line == f"error: --lake {lake} lies in --source {logs}: choose a folder outside it"
    assert sorted(path.name for path in logs.rglob("*")) == ["00000000000000000000.log", "a-0"]


def test_a_redecode_that_matches_nothing_says_so(spark: SparkSession, lake: str, logs: Path) -> None:
    path = put(logs / "a-0", 0, batch(0))
    requested = Settings(source=(str(logs),), lake=lake)
    as_command.decode(spark, requested)
    summary = as_command.decode(spark, replace(requested, redecode="nothing"))
    assert summary.warnings == [f"--redecode 'nothing' matches no segment: file://{path}"]
    assert as_command.decode(spark, replace(requested, redecode="a-0")).warnings == []


def test_a_loose_file_says_what_to_type_and_is_one_topic_s_alone(
    spark: SparkSession, lake: str, logs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    requested = ["--source", str(put(logs, 0, batch(0))), "--lake", lake]
    assert decode_batches.main(requested) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert line.endswith("for a folder with another name pass --topic NAME --partition NUMBER")
    assert decode_batches.main([*requested, "--topic", "orders", "--partition", "3"]) == 0
    found = {(row["topic"], row["partition"], row["offset"]) for row in rows(lake, "records")}
    assert found == {("orders", 3, 0), ("orders", 3, 1), ("orders", 3, 2)}
    capsys.readouterr()
    assert decode_batches.main([*requested, "--topic", "order", "--partition", "3"]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert "is in this lake as topic orders, partition 3: pass these as --topic and --partition, or" in line
    assert decode_batches.main([*requested, "--topic", "orders", "--partition", "3"]) == 0
