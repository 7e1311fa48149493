"""The report on formats as a command: its runs, its money, its table, and what it prints."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from kafka_log_lake.pipelines.cli.errors import UserError
from kafka_log_lake.pipelines.cli.settings import CostSettings, Settings
from kafka_log_lake.pipelines.dataframes.register import register_views
from kafka_log_lake.pipelines.format_report import command as format_report
from kafka_log_lake.pipelines.format_report.command import by_topic, to_json, to_text
from kafka_log_lake.pipelines.format_report.format_savings import SavingsReport
from kafka_log_lake.pipelines.lake.create import create_tables
from kafka_log_lake.udfs.format.report_tables import FORMAT_SAVINGS
from tests.support import as_command, logs
from tests.support.segment_maker import Batch, Record

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def small_lake(
    spark: SparkSession, lake: str, root: Path, topic: str = "t", records: int = 40
) -> CostSettings:
    logs.put(root / f"{topic}-0", 0, *logs.batches(0, records // 4, records=4))
    as_command.decode(spark, Settings(source=(str(root),), lake=lake))
    return CostSettings(lake=lake, codec_levels="gzip,snappy", sample_batches=3)


def test_bytes_become_money(spark: SparkSession, lake: str, tmp_path: Path) -> None:
    requested = replace(
        small_lake(spark, lake, tmp_path / "logs"),
        price_per_gb_month=25.0,
        replication_factor=2,
        retention_days=45.0,
    )
    stored = (tmp_path / "logs" / "t-0" / f"{0:020d}.log").stat().st_size
    for row in format_report.run(spark, requested).rows.to_pylist():
        assert row["monthly_cost"] == pytest.approx(row["bytes"] * 50e-9)
        assert row["retention_cost"] == pytest.approx(row["bytes"] * 75e-9)
        assert row["saved_bytes"] == stored - row["bytes"]
        assert row["saved_ratio"] == pytest.approx(1 - row["bytes"] / stored)


def test_runs_stay_next_to_each_other_and_the_same_run_writes_nothing(
    spark: SparkSession, lake: str, tmp_path: Path
) -> None:
    requested = small_lake(spark, lake, tmp_path / "logs")
    first = format_report.run(spark, requested)
    again = format_report.run(spark, requested)
    assert (first.is_new, again.is_new) == (True, False)
    assert again.run_id == first.run_id
    assert sorted(map(repr, again.rows.to_pylist())) == sorted(map(repr, first.rows.to_pylist()))
    assert DeltaTable(f"{lake}/format_savings").version() == 1  # 0 creates the table
    dearer = format_report.run(spark, replace(requested, price_per_gb_month=1.0))
    logs.put(tmp_path / "logs" / "t-0", 40, logs.batch(40, 5))
    as_command.decode(spark, Settings(source=(str(tmp_path / "logs"),), lake=lake))
    grown = format_report.run(spark, replace(requested, price_per_gb_month=1.0))
    assert dearer.is_new
    assert grown.is_new
    register_views(spark, lake, "format_savings")
    latest = "created_at = (SELECT max(created_at) FROM format_savings)"
    printed = spark.sql(f"SELECT DISTINCT run_id, records FROM format_savings WHERE {latest}").collect()
    assert [tuple(row) for row in printed] == [(grown.run_id, 45)]
    assert spark.sql("SELECT DISTINCT run_id FROM format_savings").count() == 3


def test_a_sample_is_spread_over_all_batches(spark: SparkSession, lake: str, tmp_path: Path) -> None:
    """The second half of the batches is random: a sample of the first ones would miss that kind."""
    chance = random.Random(1)
    written = []
    for i in range(40):
        texts = chance.randbytes(600).hex() if i >= 20 else "a" * 1200
        written.append(logs.batch(i * 3, 3, text=texts))
    logs.put(tmp_path / "logs" / "t-0", 0, *written)
    as_command.decode(spark, Settings(source=(str(tmp_path / "logs"),), lake=lake))
    sizes = {}
    for batches in (4, 40):
        requested = CostSettings(lake=lake, codec_levels="gzip", sample_batches=batches)
        rows = format_report.run(spark, requested).rows.to_pylist()
        (row,) = [row for row in rows if row["layout"] == "v2" and row["codec"] == "gzip"]
        assert row["sample_batches"] == batches
        sizes[batches] = row["bytes"]
    assert sizes[4] == pytest.approx(sizes[40], rel=0.05)


def test_a_very_large_record_is_in_no_sample(spark: SparkSession, lake: str, tmp_path: Path) -> None:
    """Its exact sizes are there all the same; a topic of such records alone has no estimate."""
    large = Batch(records=(Record(value=bytes(17 << 20)),)).encode()
    logs.put(tmp_path / "logs" / "both-0", 0, large, logs.batch(1, 3))
    logs.put(tmp_path / "logs" / "large-0", 0, large)
    as_command.decode(spark, Settings(source=(str(tmp_path / "logs"),), lake=lake))
    report = format_report.run(spark, CostSettings(lake=lake, codec_levels="snappy"))
    rows = [row for row in report.rows.to_pylist() if row["layout"] == "v2" and row["batch_records"] is None]
    (estimated,) = [row for row in rows if row["basis"] == "estimated"]
    assert (estimated["topic"], estimated["sample_batches"]) == ("both", 1)
    assert estimated["sample_bytes_in"] < 1000
    exact = {row["topic"]: row["bytes"] for row in rows if row["basis"] == "exact"}
    assert exact == {"both": len(large) + len(logs.batch(1, 3)), "large": len(large)}
    (printed,) = [
        line.split() for line in to_text(report, 1.0, "EUR").splitlines() if line.startswith("large ")
    ]
    assert printed[8:10] == ["-", "-"]


def test_the_lake_stays_whole(spark: SparkSession, lake: str, tmp_path: Path) -> None:
    """The report's table has comments like every other, and the next decode takes the lake as it was."""
    requested = small_lake(spark, lake, tmp_path / "logs")
    before = logs.versions(lake)
    format_report.run(spark, requested)
    assert logs.versions(lake) == before
    create_tables(lake)
    assert as_command.decode(spark, Settings(source=(str(tmp_path / "logs"),), lake=lake)).segments == 0
    metadata = DeltaTable(f"{lake}/format_savings").metadata()
    assert metadata.description == FORMAT_SAVINGS.comment
    register_views(spark, lake, "format_savings")
    fields = [(f.name, f.dataType.simpleString()) for f in spark.table("format_savings").schema.fields]
    assert fields == [(column.name, column.sql_type) for column in FORMAT_SAVINGS.columns]


def test_hostile_names_are_names(spark: SparkSession, lake: str, tmp_path: Path) -> None:
    topic = "a'b `c` {d} \x1b[31m %41 ü\u202e"
    requested = small_lake(spark, lake, tmp_path / "logs", topic)
    report = format_report.run(spark, requested)
    assert {row["topic"] for row in report.rows.to_pylist()} == {topic}
    shown = to_text(report, 1.0, "EUR")
    assert "EUR a month" in shown
    assert "v3 is an estimate: that proposal never became a format of Kafka" in shown
    assert "\x1b" not in shown
    assert r"a'b `c` {d} \x1b[31m %41 ü\u202e" in shown
    assert json.loads(to_json(report, 1.0, "EUR"))["topics"][0]["topic"] == topic


def test_the_summary_adds_up_partitions(spark: SparkSession, lake: str, tmp_path: Path) -> None:
    for partition in (0, 1):
        logs.put(tmp_path / "logs" / f"t-{partition}", 0, *logs.batches(0, 5 + partition, records=2))
    as_command.decode(spark, Settings(source=(str(tmp_path / "logs"),), lake=lake))
    report = format_report.run(spark, CostSettings(lake=lake, codec_levels="gzip:9,snappy", topics="t"))
    (printed,) = by_topic(report)
    size = sum(path.stat().st_size for path in tmp_path.glob("logs/t-*/*.log"))
    assert (printed["records"], printed["stored"], printed["v2"]) == (22, size, size)
    both = [
        sum(
            row["bytes"] for row in report.rows.to_pylist() if row["layout"] == "v2" and row["codec"] == codec
        )
        for codec in ("gzip", "snappy")
    ]
    assert printed["best"] == min(*both, size)  # what would be larger is not recommended


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--codec-levels", "gzip:10"], "gzip has the levels 1 to 9, not 10"),
        (["--codec-levels", "snappy:1"], "snappy has no levels"),
        (["--codec-levels", "brotli"], "'brotli' is none of gzip, snappy, lz4, zstd"),
        (["--price-per-gb-month", "-1"], "--price-per-gb-month must be a number of 0 or above"),
        (["--price-per-gb-month", "nan"], "--price-per-gb-month must be a number of 0 or above"),
        (["--retention-days", "a week"], "--retention-days must be a number of 0 or above"),
        (["--replication-factor", "0"], "--replication-factor must be a whole number above 0"),
        (["--sample-batches", "0"], "--sample-batches must be a whole number above 0"),
        ([], "--lake is missing"),
    ],
)
def test_wrong_settings_are_one_line(
    spark: SparkSession, argv: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert format_report.main(argv) == 2
    printed = capsys.readouterr().err
    assert message in printed
    assert printed.count("\n") == 1


def test_nothing_to_report_on_is_one_line(spark: SparkSession, lake: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no segments to report on"):
        format_report.run(spark, CostSettings(lake=lake))
    requested = small_lake(spark, lake, tmp_path / "logs")
    with pytest.raises(UserError, match="no segments to report on"):
        format_report.run(spark, replace(requested, topics="other"))
    with pytest.raises(UserError, match="there is no lake"):
        format_report.run(spark, CostSettings(lake=str(tmp_path / "nowhere")))
    assert not Path(lake, "format_savings").exists()


def test_the_command_prints_one_object(
    spark: SparkSession, lake: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small_lake(spark, lake, tmp_path / "logs")
    given = ["--lake", lake, "--codec-levels", "zstd:19,gzip", "--json"]
    assert format_report.main(given) == 0
    printed = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert printed["topics"][0]["records"] == 40
    assert printed["written"] is True
    assert format_report.main(given) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["written"] is False


def test_a_codec_that_makes_a_topic_larger_is_not_the_best() -> None:
    row: dict[str, object] = {"partition": 0, "magic": 2, "records": 9, "batches": 1, "monthly_cost": 1.0}
    row["basis"] = "exact"
    sizes = {"stored": 100, "v1": 110, "v2": 101}
    rows = [
        row
        | {"topic": topic, "layout": layout, "codec": None if layout == "stored" else "none", "bytes": size}
        for topic in ("random", "text", "half", "untried")
        for layout, size in sizes.items()
    ]
    # a partition of a topic of which nothing was sampled, so that no codec was tried on it
    rows += [one | {"partition": 1} for one in rows if one["topic"] == "half"]
    for topic, size in (("random", 100), ("text", 99), ("half", 40)):
        zstd = {"layout": "v2", "codec": "zstd", "level": 3, "bytes": size, "monthly_cost": 0.5}
        zstd |= {"basis": "estimated"}
        rows.append(row | zstd | {"topic": topic})
    found = by_topic(
        SavingsReport("lake", "run", True, pa.Table.from_pylist(rows, FORMAT_SAVINGS.arrow_schema()))
    )
    names = ("codec", "level", "best", "best_monthly_cost")
    printed = {each["topic"]: tuple(each[name] for name in names) for each in found}
    assert printed == {
        "random": ("keep", None, 100, 1.0),
        "text": ("zstd", 3, 99, 0.5),
        "half": ("zstd", 3, 140, 1.5),
        "untried": (None, None, None, None),
    }
